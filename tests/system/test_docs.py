#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages for developers: short, and what they name is there."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import rooms  # noqa: E402
import towtest as t  # noqa: E402

PAGES = [t.ROOT / "ARCHITECTURE.md", t.ROOT / "docs" / "wire-format.md",
         *sorted(page for folder in ("inside", "wire") for page in (t.ROOT / "docs" / folder).glob("*.md"))]
# Mostly tables, as long and as wide as they must be.
TABLES = [t.ROOT / "docs" / "performance.md", t.ROOT / "docs" / "compatibility.md"]
LINES_MAX, COLUMNS_MAX, PARAGRAPH_MAX, SENTENCE_MEAN_MAX = 150, 100, 80, 20


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


@t.test()
def pages_are_short():
    wrong = []
    for page in PAGES + TABLES:
        text, name = page.read_text(), page.relative_to(t.ROOT)
        lines = text.splitlines() if page in PAGES else []
        if len(lines) > LINES_MAX:
            wrong.append(f"{name} has {len(lines)} lines, more than {LINES_MAX}")
        wrong += [f"{name}:{number} has {len(line)} columns" for number, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
        prose = paragraphs(text)
        wrong += [f"{name}: a paragraph of {len(each.split())} words begins: {each[:60]}" for each in prose
                  if len(each.split()) > PARAGRAPH_MAX]
        words = sum(len(each.split()) for each in prose)
        sentences = sum(len(re.findall(r"[.?!:](?=\s|$)", each)) or 1 for each in prose)
        if words > SENTENCE_MEAN_MAX * sentences:
            wrong.append(f"{name}: its sentences have {words / sentences:.0f} words on average")
    t.check(len(PAGES) > 12, f"only {len(PAGES)} pages were found")
    t.check(not wrong, "\n".join(wrong))


@t.test()
def files_that_pages_name_are_there():
    """`src/...` in full; `room/file.c` in some folder of src; a file alone in any."""
    every = {str(path.relative_to(t.ROOT)) for folder in ("src", "api", "tools", "tests", "docs", "bench")
             for path in (t.ROOT / folder).rglob("*") if "__pycache__" not in path.parts}
    wrong = []
    for page in PAGES + TABLES:
        text = page.read_text()
        named = re.findall(r"(?<![\w/.])((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|api|md))\b", text)
        named += re.findall(r"(?<![\w/])(src(?:/[\w-]+)+)(?![\w/.])", text)
        for name in sorted(set(named)):
            if name.startswith("build/") or "FOLDER" in name:
                continue
            known = name in every or name == "train.py" or \
                not name.startswith("src/") and any(path.endswith("/" + name) for path in every)
            if not known:
                wrong.append(f"{page.relative_to(t.ROOT)} names {name}, which is not there")
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            if not (page.parent / link).exists():
                wrong.append(f"{page.relative_to(t.ROOT)} links to {link}, which is not there")
    t.check(not wrong, "\n".join(wrong))


@t.test()
def the_tours_drawing_is_current():
    drawn = rooms.draw(t.BUILD, rooms.Rooms("client"), False)
    shown = (t.ROOT / "docs" / "inside" / "tour.md").read_text()
    wanted = "\n".join(("    " + line).rstrip() for line in drawn.splitlines())
    t.check(wanted in shown, f"docs/inside/tour.md does not show what `tools/rooms.py draw build client` draws:\n{wanted}")


if __name__ == "__main__":
    t.main()
