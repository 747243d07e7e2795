#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes what `make install` has installed, by meson's own list, and the folders that are empty then.

    tools/uninstall.py BUILD [--destdir FOLDER]

Below a destdir every folder goes that is empty. Without one, a few stay that a system has of its own.
"""

import argparse
import json
import pathlib

# Below the prefix; Debian's /usr/local has them before anything is installed.
KEPT = {".", "bin", "lib", "share", "share/man"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--destdir", type=pathlib.Path)
    args = parser.parse_args()
    info = args.build / "meson-info"
    options = json.loads((info / "intro-buildoptions.json").read_text())
    prefix = pathlib.Path(next(option["value"] for option in options if option["name"] == "prefix"))
    files = [pathlib.Path(path) for path in json.loads((info / "intro-installed.json").read_text()).values()]
    top = args.destdir.resolve() if args.destdir else pathlib.Path("/")
    kept = set() if args.destdir else {prefix / name for name in KEPT} | set(prefix.parents)
    removed, folders = 0, set()
    for file in files:
        path = top / file.relative_to("/")
        folders.update(parent for parent in path.parents if top in parent.parents)
        if path.is_symlink() or path.exists():
            path.unlink()
            removed += 1
    for folder in sorted(folders - kept, key=lambda folder: len(folder.parts), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    print(f"{removed} files were removed below {top / prefix.relative_to('/')}")


if __name__ == "__main__":
    main()
