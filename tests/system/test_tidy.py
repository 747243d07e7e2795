#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clang-tidy says of src/; .clang-tidy has its checks."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


@t.test(300)
def clang_tidy_finds_nothing():
    listed = json.loads((t.BUILD / "compile_commands.json").read_text())
    paths = sorted({(pathlib.Path(one["directory"]) / one["file"]).resolve() for one in listed})
    # hash.c has the instructions of both processors, switched on by a pragma that is gcc's.
    paths = [path for path in paths if t.ROOT / "src" in path.parents and path != t.ROOT / "src" / "base" / "hash.c"]
    t.check(len(paths) > 200, f"only {len(paths)} files in compile_commands.json")
    said = t.each_file([t.tool("clang-tidy-14"), "--quiet", "-p", str(t.BUILD)], paths, 10)
    found = sorted({re.sub(r"^\S*?/(?=src/)", "", line) for line in said.splitlines()
                    if re.search(r": (warning|error): ", line) and "/src/" in line.split(":")[0]})
    t.check(not found, "\n".join(found))


if __name__ == "__main__":
    t.main()
