#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The size of the house: what this tree has of what a reader must carry in mind.

  tools/house.py [BUILD]                  this tree
  tools/house.py --root DIR [BUILD]       another checkout, of an older commit perhaps
  tools/house.py --moves [BUILD]          also how far four calls travel (tools/moves.py; two minutes)

Lines of product and tests, files of each folder, the longest functions, static functions of one word, words of a sentence
in the pages; with a build (ROOT/build unless named) the largest circle of calls of each folder.
"""

import argparse
import pathlib
import re
import subprocess
import sys

import rooms

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGEST = 10


def sources(folder, *endings):
    return sorted(path for path in folder.rglob("*") if path.suffix in endings and "__pycache__" not in path.parts)


def lines(paths):
    return sum(path.read_text(errors="replace").count("\n") for path in paths)


def functions(path):
    """(name, lines, whether it is static) of each function: in the house style its braces stand in the first column."""
    text = path.read_text().splitlines()
    for at, line in enumerate(text):
        if line != "{" or at == 0:
            continue
        first = at
        while first > 0 and text[first - 1].strip() and not text[first - 1].startswith(("}", "#", " *", "/*", "*/")) \
                and not text[first - 1].endswith((";", "*/")):
            first -= 1
        head = re.search(r"(\w+)\(", re.sub(r"__attribute__\(\(.*?\)\)", "", " ".join(text[first:at])))
        end = next((i for i in range(at, len(text)) if text[i] == "}"), None)
        if head and end is not None:
            yield head[1], end - first + 1, text[first].startswith("static ")


def folders(root):
    """Those that hold much: each with rooms, or each that an older tree had whole."""
    return [name for name in ("client", "server", "backend/soft", "ptx", "transport", "wire", "base") if (root / "src" / name).is_dir()]


def circle(root, build, folder):
    """Files of the largest circle of calls; None without objects. What is generated does not count."""
    written = {str(path.relative_to(root / "src" / folder)).replace("/", "_"): path for path in sources(root / "src" / folder, ".c")}
    found = {}
    for compiled in sorted((build / "src").rglob("*.c.o")):
        name = compiled.name.removesuffix(".o")
        inside = folder.replace("/", "_") + "_"
        below = str(compiled.relative_to(build / "src")).startswith(folder + "/")
        name = name if below else name.removeprefix(inside) if name.startswith(inside) else None
        if name in written:
            found.setdefault(name, compiled)
    return max([1, *map(len, rooms.circles(rooms.calls(found)))]) if found else None


def paragraphs(text):
    """What is prose: no headings, tables and drawings; each point of a list is one."""
    found, words = [], []
    for line in text.splitlines() + [""]:
        prose = line.strip() and not line.startswith(("    ", "#", "|", "```"))
        if (not prose or re.match(r"\s*([-*]|\d+\.) ", line)) and words:
            found.append(" ".join(words))
            words = []
        if prose:
            words.append(line.strip())
    return found


def sentence_mean(text):
    prose = paragraphs(text)
    sentences = sum(len(re.findall(r"[.?!:](?=\s|$)", each)) or 1 for each in prose)
    return sum(len(each.split()) for each in prose) / max(1, sentences)


def report(root, build):
    src = sources(root / "src", ".c", ".h")
    print(f"lines of product            {lines(src)} in {len(src)} files")
    tests = sources(root / "tests", ".c", ".h", ".cu", ".py")
    print(f"lines of tests              {lines(tests)} in {len(tests)} files")

    print("\nlargest circle of calls, files (.c and .h), sub-folders, files of the fullest one")
    for folder in folders(root):
        inside = [path for path in src if path.is_relative_to(root / "src" / folder)]
        per = {}
        for path in inside:
            per[path.parent] = per.get(path.parent, 0) + 1
        largest = circle(root, build, folder) if build.is_dir() else None
        print(f"  {folder:14}{'no build' if largest is None else largest:>9}{len(inside):7}{len(per):7}{max(per.values()):7}")

    every = [(length, f"{path.relative_to(root / 'src')}:{name}", static, name)
             for path in src for name, length, static in functions(path)]
    print(f"\nthe {LONGEST} longest of {len(every)} functions")
    for length, where, _, _ in sorted(every, reverse=True)[:LONGEST]:
        print(f"  {length:4}  {where}")
    one_word = [where for _, where, static, name in every if static and "_" not in name]
    print(f"\nstatic functions of one word  {len(one_word)} of {sum(static for _, _, static, _ in every)}")

    print("\nwords of a sentence")
    pages = [root / "README.md", root / "ARCHITECTURE.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        if page.exists() and not page.name.endswith("-status.md"):
            text = page.read_text()
            longest = max((len(each.split()) for each in paragraphs(text)), default=0)
            print(f"  {str(page.relative_to(root)):30}{sentence_mean(text):5.1f}   longest paragraph {longest}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, help="where the tree was built")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another checkout")
    parser.add_argument("--moves", action="store_true", help="also how far four calls travel")
    args = parser.parse_args()
    root = args.root.resolve()
    build = args.build or root / "build"
    report(root, build)
    if args.moves:
        script = root / "tools" / "moves.py"
        if not script.exists():
            print("\nthis checkout has no tools/moves.py")
            return 0
        print("\nmoves between files", flush=True)
        return subprocess.run([sys.executable, script, build.resolve()]).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
