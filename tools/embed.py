#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the files of the live page into the program.

  tools/embed.py OUT FILE...    writes OUT, a C file with tows_web_pages (src/server/web/pages.h); index.html is /
"""

import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}


def main():
    out, *files = map(pathlib.Path, sys.argv[1:])
    lines = ["/* Made by tools/embed.py. */", '#include "server/web/pages.h"', ""]
    rows = []
    for path in files:
        name, data = "file_" + path.name.replace(".", "_"), path.read_bytes()
        lines.append(f"static const unsigned char {name}[] = {{")
        lines += ["    " + "".join(f"{byte}," for byte in data[at:at + 32]) for at in range(0, len(data), 32)]
        lines += ["};", ""]
        rows.append(f'    {{"/{"" if path.name == "index.html" else path.name}", "{TYPES[path.suffix]}", {name}, sizeof {name}}},')
    out.write_text("\n".join([*lines, "const struct tows_web_page tows_web_pages[] = {", *rows, "    {0},", "};", ""]))


if __name__ == "__main__":
    main()
