#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clang-tidy says of src/; .clang-tidy has its checks."""

import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


def findings(build, paths, *flags):
    """What it says of these files. One that it cannot read is a finding, too."""
    said = t.each_file([t.tool("clang-tidy-14"), "--quiet", "-p", str(build), *flags], paths, 10)
    return sorted({re.sub(r"^\S*?/(?=src/)", "", line) for line in said.splitlines()
                   if re.search(r"(^|: )error: |^Error while processing|^Skipping ", line)
                   or (": warning: " in line and "/src/" in line.split(":")[0])})


@t.test(300, matrix="the same for all users")
def clang_tidy_finds_nothing():
    listed = json.loads((t.BUILD / "compile_commands.json").read_text())
    paths = sorted({(pathlib.Path(one["directory"]) / one["file"]).resolve() for one in listed})
    # hash.c has the instructions of both processors, switched on by a pragma that is gcc's.
    paths = [path for path in paths if t.ROOT / "src" in path.parents and path != t.ROOT / "src" / "base" / "hash.c"]
    t.check(len(paths) > 200, f"only {len(paths)} files in compile_commands.json")
    # It takes a tenth of a second for each: those that this commit changes, and a tenth of the others.
    changed = t.changed_files()
    print(*(chosen := sorted({*t.drawn(paths, len(paths) // 10), *(path for path in paths if path in changed)})), sep="\n")
    found = findings(t.BUILD, chosen)
    t.check(not found, "\n".join(found))


@t.test()
def what_clang_tidy_cannot_read_is_a_finding():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        source = pathlib.Path(base, "src", "one.c")
        source.parent.mkdir()
        source.write_text("int one(int a)\n{\n    if (a)\n        return 2;\n    return 1;\n}\n")
        for flags, words in (("", "readability-braces-around-statements"), ("-fno-such-flag", "unknown argument"),
                             ("-include no-such-file.h", "file not found")):
            pathlib.Path(base, "compile_commands.json").write_text(json.dumps([
                {"directory": base, "file": str(source), "command": f"cc {flags} -c {source}"}]))
            found = findings(base, [source], f"--config-file={t.ROOT / '.clang-tidy'}")
            t.check(any(words in line for line in found), f"{flags}: {found}")


if __name__ == "__main__":
    t.main()
