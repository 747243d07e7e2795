#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rooms: the sub-folders of a large folder, and which way calls run between them.

src/FOLDER/ROOMS lists the rooms of a folder from the ground up. A file uses its own room and those that stand before it
in the list, never one behind it. Headers beside ROOMS are the folder's face: every room may include them.

  tools/rooms.py walls FOLDER OUT    makes OUT/ROOM, where a compiler finds the headers that ROOM may include and no others;
                                     prints the names of the rooms
  tools/rooms.py check BUILD         reads the object files: calls that run up, circles of calls that are too large; of
                                     folders without rooms the circles alone
  tools/rooms.py draw BUILD FOLDER   the calls between the rooms, as a drawing; --numbers: with how many files call
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"
CIRCLE_MAX = 4  # files that may call each other in a circle, all of one room or of one folder without rooms


class Rooms:
    """One folder's list. Its lines are `uses FOLDER|HEADER...`, what lies below the folder as a whole, and
    `ROOM  what it is for`."""

    def __init__(self, folder):
        self.folder = folder
        self.uses, self.names = [], []
        for line in (SRC / folder / "ROOMS").read_text().splitlines():
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if words[0] == "uses":
                self.uses += words[1:]
            else:
                self.names.append(words[0])

    def below(self, room):
        """The rooms whose headers `room` may include, itself too."""
        return self.names[:self.names.index(room) + 1]


def listed():
    """All folders that have rooms."""
    return [Rooms(str(path.parent.relative_to(SRC))) for path in sorted(SRC.rglob("ROOMS"))]


def without_rooms():
    """All other folders with sources."""
    with_rooms = [SRC / rooms.folder for rooms in listed()]
    return [str(path.relative_to(SRC)) for path in sorted({source.parent for source in SRC.rglob("*.c")})
            if not any(path.is_relative_to(folder) for folder in with_rooms)]


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (path.is_symlink() and os.readlink(path) == str(target)):
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def walls(folder, out):
    """A folder of links for each room: a header that is not in it cannot be included."""
    rooms = Rooms(folder)
    for room in rooms.names:
        wanted = {name: SRC / name for name in rooms.uses}
        wanted.update({f"{folder}/{face.name}": face for face in (SRC / folder).glob("*.h")})
        wanted.update({f"{folder}/{name}": SRC / folder / name for name in rooms.below(room)})
        for path in (out / room).rglob("*"):
            if path.is_symlink() and str(path.relative_to(out / room)) not in wanted:
                path.unlink()
        for name, target in wanted.items():
            link(out / room / name, target)
    print("\n".join(rooms.names))


def objects(build, rooms):
    """{ROOM/FILE: its object file} of a folder."""
    found = {}
    for compiled in sorted((build / "src" / rooms.folder).rglob("*.c.o")):
        for room in rooms.names:
            name = compiled.name.removesuffix(".o")
            if name.startswith(room + "_") and (SRC / rooms.folder / room / name[len(room) + 1:]).exists():
                found[f"{room}/{name[len(room) + 1:]}"] = compiled
    return found


def objects_without_rooms(build, folder):
    """{FILE: its object file} of a folder that has none; what is generated is not in it."""
    found = {}
    for source in sorted((SRC / folder).glob("*.c")):
        for compiled in sorted((build / "src" / folder).glob(f"*.p/{source.name}.o")):
            found.setdefault(source.name, compiled)
    return found


def calls(compiled):
    """{file: {file that it uses: the names it uses of it}} from the symbol tables: functions and variables."""
    defines, wants = {}, {name: set() for name in compiled}
    names = {str(path): name for name, path in compiled.items()}
    table = subprocess.run(["nm", "-A", *names], capture_output=True, text=True, check=True).stdout if names else ""
    for line in table.splitlines():
        path, _, symbol = line.partition(":")
        kind, symbol = symbol.split()[-2:]
        if kind in "Uw":
            wants[names[path]].add(symbol)
        elif kind in "TDBRCVW":
            defines[symbol] = names[path]
    found = {name: {} for name in compiled}
    for name, symbols in wants.items():
        for symbol in sorted(symbols):
            other = defines.get(symbol, name)
            if other != name:
                found[name].setdefault(other, []).append(symbol)
    return found


def circles(arrows):
    """Sets of files each of which reaches all others of its set by calls (Tarjan's algorithm), largest first."""
    order, low, stack, found = {}, {}, [], []

    def visit(name):
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in arrows:
        if name not in order:
            visit(name)
    return sorted(found, key=len, reverse=True)


def mistakes(build, rooms):
    """Sentences, one for each call that runs up and each circle that is too large."""
    arrows = calls(objects(build, rooms))
    found = []
    for name, others in arrows.items():
        room = name.split("/")[0]
        for other, symbols in others.items():
            above = other.split("/")[0]
            if above not in rooms.below(room):
                found.append(f"src/{rooms.folder}/{name} calls up into {above}: {', '.join(symbols)}")
    for circle in circles(arrows):
        if len({name.split("/")[0] for name in circle}) > 1:
            found.append(f"src/{rooms.folder}: a circle of calls crosses rooms: {', '.join(circle)}")
        elif len(circle) > CIRCLE_MAX:
            found.append(f"src/{rooms.folder}: {len(circle)} files call each other: {', '.join(circle)}")
    return found


def mistakes_without_rooms(build, folder):
    """Sentences, one for each circle that is too large."""
    return [f"src/{folder}: {len(circle)} files call each other: {', '.join(circle)}"
            for circle in circles(calls(objects_without_rooms(build, folder))) if len(circle) > CIRCLE_MAX]


def draw(build, rooms, numbers):
    """Who calls whom: a row for each room, the top first, and a column for each, the ground first. Nothing stands right of
    the diagonal. `numbers`: how many files of the one use files of the other."""
    arrows = calls(objects(build, rooms))
    count = {}
    for name, others in arrows.items():
        for other in others:
            pair = name.split("/")[0], other.split("/")[0]
            count[pair] = count.get(pair, 0) + 1
    wide = max(len(name) for name in rooms.names)
    rows = []
    for at, name in reversed(list(enumerate(rooms.names, 1))):
        calling = [count.get((name, other), 0) for other in rooms.names]
        marks = "".join(("" if n == 0 else str(n) if numbers else "*").rjust(4) for n in calling)
        rows.append(f"{at:2} {name.ljust(wide)}{marks}".rstrip())
    rows.append(" " * (3 + wide) + "".join(str(at).rjust(4) for at in range(1, len(rooms.names) + 1)))
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("walls", "check", "draw"))
    parser.add_argument("place", nargs="+")
    parser.add_argument("--numbers", action="store_true", help="draw: how many files call")
    args = parser.parse_args()
    if args.verb == "walls":
        walls(args.place[0], pathlib.Path(args.place[1]))
        return 0
    build = pathlib.Path(args.place[0])
    if args.verb == "draw":
        rooms = Rooms(args.place[1])
        print(draw(build, rooms, args.numbers))
        print(f"largest circles of calls: {[len(circle) for circle in circles(calls(objects(build, rooms)))][:5]}")
        return 0
    found = [mistake for rooms in listed() for mistake in mistakes(build, rooms)]
    found += [mistake for folder in without_rooms() for mistake in mistakes_without_rooms(build, folder)]
    print("\n".join(found) or "calls run one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
