#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages for developers: short, and what they name is there."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import house  # noqa: E402
import rooms  # noqa: E402
import towtest as t  # noqa: E402

PAGES = [t.ROOT / "ARCHITECTURE.md", t.ROOT / "docs" / "wire-format.md",
         *sorted(page for folder in ("inside", "wire") for page in (t.ROOT / "docs" / folder).glob("*.md"))]
# As long and as wide as they must be: mostly tables, or what people type.
TABLES = [*(t.ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/performance.md", "docs/compatibility.md",
                                       "docs/software-gpu.md",
                                       "docs/testing.md", "docs/reliability.md", "docs/security.md")),
          *sorted((t.ROOT / "docs" / "guide").glob("*.md"))]
# The generated files that one names are made by the build.
FOLDERS = [t.ROOT / "api" / "README.md", *sorted(page for page in (t.ROOT / "src").rglob("README.md") if page.parent.name != "gen")]
LINES_MAX, COLUMNS_MAX, PARAGRAPH_MAX, SENTENCE_MEAN_MAX = 150, 100, 80, 20


@t.test()
def pages_are_short():
    wrong = []
    for page in PAGES + TABLES:
        text, name = page.read_text(), page.relative_to(t.ROOT)
        lines = text.splitlines() if page in PAGES else []
        if len(lines) > LINES_MAX:
            wrong.append(f"{name} has {len(lines)} lines, more than {LINES_MAX}")
        wrong += [f"{name}:{number} has {len(line)} columns" for number, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
        prose = house.paragraphs(text)
        wrong += [f"{name}: a paragraph of {len(each.split())} words begins: {each[:60]}" for each in prose
                  if len(each.split()) > PARAGRAPH_MAX]
        mean = house.sentence_mean(text)
        if mean > SENTENCE_MEAN_MAX:
            wrong.append(f"{name}: its sentences have {mean:.0f} words on average")
    t.check(len(PAGES) > 12, f"only {len(PAGES)} pages were found")
    t.check(not wrong, "\n".join(wrong))


@t.test()
def files_that_pages_name_are_there():
    """`src/...` in full; `room/file.c` in some folder of src; a file alone in any."""
    every = {str(path.relative_to(t.ROOT)) for folder in ("src", "api", "tools", "tests", "docs", "bench", "packaging")
             for path in (t.ROOT / folder).rglob("*") if "__pycache__" not in path.parts}
    every |= {path.name for path in t.ROOT.glob("*.md")}
    wrong = []
    for page in PAGES + TABLES + FOLDERS:
        text = page.read_text()
        named = re.findall(r"(?<![\w/.])((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|api|md))\b", text)
        named += re.findall(r"(?<![\w/])(src(?:/[\w-]+)+)(?![\w/.])", text)
        for name in sorted(set(named)):
            if name.startswith(("build/", "include/", "../", "gen/", "cuda.h")) or re.search(r"FOLDER|FAMILY|ROOM", name):
                continue  # made by the build; a link, see below; any of them
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


@t.test()
def the_readmes_plot_is_current():
    done = t.run([t.ROOT / "tools" / "figures.py", "--print"])
    t.equal((done.returncode, done.stdout), (0, (t.ROOT / "docs" / "figures.svg").read_text()), f"tools/figures.py ({done.stderr})")


@t.test()
def sentences_that_troubleshooting_quotes_are_said():
    """Whoever reads the page has the sentence on his screen: it must be the one that the code says."""
    texts = []
    for path in [*(t.ROOT / "src").rglob("*.c"), *(t.ROOT / "packaging" / "python").rglob("*.py")]:
        joined = re.sub(r'" LIBCUDA( ")?', lambda found: "libcuda.so.1" + ("" if found.group(1) else '"'), path.read_text())
        joined = re.sub(r'"\s*f?"', "", joined)  # literals that stand beside each other
        texts += re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)
    said = "\n".join(texts)
    page = (t.ROOT / "docs" / "guide" / "troubleshooting.md").read_text()
    of_others = {"error while loading shared libraries"}  # the loader's
    quoted = [words for words in re.findall(r"`([^`\n]+)`", page)
              if re.fullmatch(r"[A-Za-z][\w' ,;:./-]+", words) and len(words.split()) > 2 and
              not words.startswith(("towline ", "towlined ", "sudo ", "docker ", "export ", "unset "))]
    t.check(len(quoted) > 12, f"only these are quoted: {quoted}")
    wrong = [words for words in quoted if words not in of_others and words not in said]
    t.check(not wrong, f"nothing says {wrong}")


@t.test()
def the_manual_of_towline_has_its_flags():
    manual = (t.ROOT / "docs" / "man" / "towline.1").read_text().replace("\\-", "-")
    overview = t.run([t.BUILD / "bin" / "towline", "--help"]).stdout
    commands = re.findall(r"^  (\w+)  +", overview.partition("Commands:")[2], re.M)
    t.check(len(commands) >= 5, f"the overview lists only {commands}")
    known = {"--help", "--version"}
    for command in commands:
        known |= set(re.findall(r"--[a-z][a-z-]*", t.run([t.BUILD / "bin" / "towline", command, "--help"]).stdout))
        t.check(re.search(rf"^\.B towline {command}$", manual, re.M), f"docs/man/towline.1 has no synopsis of {command}")
    written = set(re.findall(r"--[a-z][a-z-]*", manual))
    t.equal(sorted(written), sorted(known), "flags in docs/man/towline.1, and in towline COMMAND --help")


@t.test(limit=200)
def the_house_can_be_measured():
    """tools/house.py: every part of its report, with numbers that some other way of counting gives too."""
    done = t.run([t.ROOT / "tools" / "house.py", t.BUILD], timeout=180)
    t.equal(done.returncode, 0, done.stderr)
    files = sum(1 for path in (t.ROOT / "src").rglob("*") if path.suffix in (".c", ".h"))
    t.check(re.search(rf"^lines of product +\d+ in {files} files$", done.stdout, re.M), done.stdout)
    for folder in house.folders(t.ROOT):
        row = re.search(rf"^  {folder} +(\d+) +\d+ +(\d+) +\d+$", done.stdout, re.M)
        t.check(row and 1 <= int(row[1]) <= rooms.CIRCLE_MAX, f"{folder}: {done.stdout}")
    lengths = [int(length) for length in re.findall(r"^ +(\d+)  \S+\.[ch]:\w+$", done.stdout, re.M)]
    t.equal(len(lengths), house.LONGEST, "functions that are listed")
    t.equal(lengths, sorted(lengths, reverse=True), "longest first")
    # A function of one file begins with the file's name: "find" says nothing in a backtrace.
    words = re.search(r"^static functions of one word  (\d+) of (\d+)$", done.stdout, re.M)
    t.check(words and int(words[1]) == 0 and int(words[2]) > 2000, f"static functions of one word: {words and words[0]}")
    for part in ("lines of tests", "docs/wire-format.md"):
        t.check(part in done.stdout, f"nothing of {part}: {done.stdout}")


if __name__ == "__main__":
    t.main()
