#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the built libcuda.so.1: what it needs, what it exports.

    check_library.py LIBRARY EXPORT-MAP
"""

import re
import subprocess
import sys

NEWEST_GLIBC = (2, 28)
# Parts of the C library; before 2.34 threads and dlopen were libraries of their own.
ALLOWED_NEEDED = re.compile(r"^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux.*)$")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(library, export_map):
    problems = []
    dynamic = output("readelf", "-dW", library)
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if not ALLOWED_NEEDED.match(needed):
            problems.append(f"it needs {needed}; it may need the C library alone")
    if "[libcuda.so.1]" not in re.search(r"\(SONAME\).*", dynamic).group(0):
        problems.append("its soname is not libcuda.so.1")
    symbols = output("objdump", "-T", library)
    for version, name in re.findall(r"\*UND\*.*?\(?GLIBC_([0-9.]+)\)?\s+(\S+)", symbols):
        if tuple(int(n) for n in version.split(".")) > NEWEST_GLIBC:
            problems.append(f"{name} is only in glibc {version} and later; see src/base/oldlibc.h")
    exported = set(re.findall(r"\sg\s+DF? \S+\s+\S+\s+(?:Base\s+)?(\S+)$", symbols, re.M))
    wanted = set(re.findall(r"^\s+(cu\w+);$", open(export_map).read(), re.M))
    for name in sorted(wanted - exported):
        problems.append(f"{name} is not exported")
    for name in sorted(exported - wanted):
        problems.append(f"{name} is exported and is not part of the driver API")
    if not wanted:
        problems.append(f"{export_map} names nothing")
    for problem in problems:
        print(f"{library}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
