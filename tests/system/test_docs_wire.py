#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wire's pages against the code: drawings against structs and encoders, numbers against constants."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "apigen"))
import table  # noqa: E402
import towtest as t  # noqa: E402

PAGES = [t.ROOT / "docs" / "wire-format.md", *sorted((t.ROOT / "docs" / "wire").glob("*.md"))]
# Where the constants and structs are that the pages name.
SOURCES = [*(t.ROOT / "src" / "wire").glob("*.h"), *(t.ROOT / "src" / "transport").glob("*.h"),
           *(t.ROOT / "src" / name for name in ("base/clock.h", "base/hash.h", "wire/diff.c", "transport/shm.c",
                                                "transport/patience.c", "server/door/pending_conn.c", "server/run/side.c"))]
SIZES = {"char": 1, "u8": 1, "u16": 2, "u32": 4, "i32": 4, "u64": 8, "i64": 8}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "ms": 10**6, "s": 10**9}


class Code:
    """What the headers define: constants, enums by their members, structs with their fields."""

    def __init__(self):
        self.texts = {"UINT16_MAX": "0xffff", "UINT32_MAX": "0xffffffff"}
        self.enums, self.structs = [], {}
        for path in SOURCES:
            source = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.S)
            for name, text in re.findall(r"^#define (\w+) +(.+)$", source, re.M):
                self.constant(path, name, text)
            for body in re.findall(r"\benum(?: \w+)? \{(.*?)\}", source, re.S):
                self.enum(path, body)
            for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", source, re.S | re.M):
                self.structs[name] = [line for line in re.split(r";\s*", body) if line.strip()]

    def constant(self, path, name, text):
        known = self.texts.setdefault(name, text.strip())
        if known != text.strip():
            self.texts[name] = f"{path.name} has another {name}"

    def enum(self, path, body):
        names, before = [], "-1"
        for member in filter(None, (part.strip() for part in body.split(","))):
            name, _, text = member.partition("=")
            before = text.strip() or f"({before}) + 1"
            self.constant(path, name.strip(), before)
            names.append(name.strip())
        if path.suffix == ".h":  # a file's own may have others among them
            self.enums.append(names)

    def value(self, name):
        """Of a constant; None where there is no such number."""
        if name not in self.texts:
            return None
        text = re.sub(r"\bU?INT64_C\((\w+)\)", r"\1", self.texts[name])
        text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]*\b", r"\1", text)
        text = re.sub(r"\([a-z]\w+\)", "", text)
        text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: m[0] if m[0].startswith("0x") else f"({self.value(m[0])})", text)
        return eval(text) if re.fullmatch(r"[\w\s()+*/<>|&~-]+", text) and "None" not in text else None

    def layout(self, name):
        """([(offset, type, count, field)], size, alignment) of a struct whose fields are numbers, arrays and structs."""
        rows, at, wide = [], 0, 1
        for declaration in self.structs[name]:
            found = re.match(r"\s*(?:_Alignas\((\d+)\) )?(?:_Atomic )?((?:struct )?\w+) (.+)$", declaration, re.S)
            kind = re.sub(r"^(u?)int(\d+)_t$", lambda m: ("u" if m[1] else "i") + m[2], found[2])
            if kind.startswith("struct "):
                _, size, align = self.layout(kind.split()[1])
            else:
                size = align = SIZES[kind]
            align = max(align, int(found[1] or 1))
            for field in found[3].split(","):
                field, _, length = field.strip().partition("[")
                length = length.rstrip("]")
                count = int(length) if length.isdigit() else self.value(length) if length else 1
                at += -at % align
                rows.append((at, kind, count, field))
                at += size * count
            wide = max(wide, align)
        return rows, at + -at % wide, wide


def encoders():
    """{HELLO: [what its encoder writes, in order]}; what is in a loop of a fixed length counts so often."""
    source = (t.ROOT / "src" / "wire" / "control.c").read_text()
    found = {}
    for name, body in re.findall(r"^(?:int|void) tow_(\w+?)(?:_head|_encode|_head_encode)\([^{]*\{\n(.*?)^\}", source, re.S | re.M):
        body = re.sub(r"for \(int i = 0; i < (\d+); i\+\+\) \{(.*?)\}", lambda m: m[2] * int(m[1]), body, flags=re.S)
        words = {"cstr": "string", "align": "zeros"}
        found[name.upper()] = [words.get(word, word) for word in re.findall(r"\btow_enc_(?!init|block)(\w+)\(", body)]
    return found


FAMILY = re.compile(r"^\| (\w+) \| (\d+) \| (\w+) \| (\d+) \|$", re.M)
ROW = re.compile(r"    +(\d+|\.|\*)  ((?:struct )?\w+)(?: x (\d+))?(?:  +(\w+))?(?:  .*)?$")


def drawings():
    """(page, head, rows): indented blocks whose lines, but for the first, are rows of fields."""
    for page in PAGES:
        for block in re.findall(r"(?:^    .*\n)+", page.read_text(), re.M):
            head, *rows = block.splitlines()
            rows = [ROW.match(row) for row in rows]
            if rows and all(rows):
                yield page.name, head.strip(), [(row[1], row[2], int(row[3] or 1), row[4]) for row in rows]


def misplaced(rows):
    """The first offset that does not follow from the types before it, counted from the first row's."""
    if rows[0][0] == ".":
        return None
    at = int(rows[0][0])
    for offset, kind, count, _ in rows:
        if offset == "*" or kind in ("string", "bytes"):
            return None
        size = 8 if kind == "zeros" else SIZES[kind]
        at += 0 if kind == "zeros" else -at % size
        if offset != "." and int(offset) != at:
            return offset
        at = at + -at % 8 if kind == "zeros" else at + size * count
    return None


@t.test()
def drawings_of_structs_are_the_code():
    code, seen = Code(), 0
    for page, head, rows in drawings():
        if not head.startswith("struct "):
            continue
        wanted, _, _ = code.layout(head.split()[1])
        shown = [(int(offset), kind, count, name) for offset, kind, count, name in rows]
        t.check(shown == wanted, f"{page}: {head} is drawn as\n{shown}\nand is\n{wanted}")
        seen += 1
    t.check(seen >= 12, f"only {seen} drawings of structs were found")


@t.test()
def drawings_of_frames_are_what_encoders_write():
    code, written, shown = Code(), encoders(), {}
    for page, head, rows in drawings():
        if not head.startswith("struct "):
            t.check(misplaced(rows) is None, f"{page}: {head}: nothing can begin at {misplaced(rows)}")
            shown[head] = [kind for _, kind, count, _ in rows for _ in range(count)]
    for page in PAGES:
        for name, body in re.findall(r"^\| 0x\w+ \| (\w+) \|[^|]*\| `(.+?)`", page.read_text(), re.M):
            shown[name] = [field.split()[0] for field in body.split(", ")]
    kinds = [name.removeprefix("TOW_CONTROL_") for enum in code.enums for name in enum if name.startswith("TOW_CONTROL_")]
    for name in set(kinds) & set(written):
        t.check(shown.get(name) == written[name], f"{name} is described as {shown.get(name)}, and written as {written[name]}")
    t.check(len(set(kinds) & set(written)) >= 17, f"only these encoders were found: {sorted(written)}")


def amount(text):
    """What "64 KiB", "1,024" or "0xf000" stand for."""
    number, _, unit = text.replace(",", "").partition(" ")
    return int(number, 0) * UNITS.get(unit, 1)


@t.test()
def numbers_are_those_of_the_code():
    """`QUANTITY (`NAME`)` in sentences; `| NUMBER | `NAME` |` and `| `NAME` | VALUE |` in tables. An enum is shown whole."""
    code, wrong, rows = Code(), [], set()

    def compare(page, text, name):
        known = code.layout(name.split()[1])[1] if name.startswith("struct ") else code.value(name)
        seconds = name.endswith("_S") and text.endswith(" s")
        if known is None or amount(text) != known * (10**9 if seconds else 1):
            wrong.append(f"{page.name} says {text} of {name}, which is {known}")

    quantity = r"(?<![\w^.-])(-?(?:0x[0-9a-f]+|\d{1,3}(?:,\d{3})+|\d+)(?: (?:KiB|MiB|bytes|ms|s)\b)?)"
    for page in PAGES:
        text = FAMILY.sub("", page.read_text())  # they are compared below
        for number, name in re.findall(r"^\| (\w+) \| `?([A-Z_0-9]+)`? \|", text, re.M):
            name = name if name in code.texts else f"TOW_CONTROL_{name}"
            compare(page, number, name)
            rows.add(name)
        for name, number in re.findall(r"^\| `(\w+)` \| ([\w ,]+) \|", text, re.M):
            compare(page, number, name)
        text = re.sub(r"^\| (?:\w+ \| `?[A-Z_0-9]+`?|`\w+` \| [\w ,]+) \|", "|", text, flags=re.M)
        text = " ".join(re.sub(r"^    +(\d+)  ", "", line) for line in text.splitlines())
        for number, name in re.findall(quantity + r" \(`((?:struct )?\w+)`\)", text):
            compare(page, number.replace(" bytes", ""), name)
        bare = re.sub(quantity + r" \(`((?:struct )?\w+)`\)", "", text)
        for number in re.findall(quantity, bare):
            if " " in number or "," in number or number.startswith("0x") or len(number) > 2:
                wrong.append(f"{page.name} says {number}; write the name of the constant behind it, in brackets")
        wrong += [f"{page.name} names {name}, which is not there"
                  for name in re.findall(r"`([A-Z][A-Z_0-9]+)`", text) if name not in code.texts]
    for enum in code.enums:
        missing = set(enum) - rows - {"TOW_CONTROL_FIRST"}
        if rows & set(enum) and missing:
            wrong.append(f"the tables have some of {enum[0]} ... {enum[-1]}, and not {sorted(missing)}")
    everything = "".join(page.read_text() for page in PAGES)
    limits = re.findall(r"^#define (TOW_\w+_MAX)\b", (t.ROOT / "src" / "wire" / "limits.h").read_text(), re.M)
    wrong += [f"no page has the limit {name}" for name in limits if f"`{name}`" not in everything]
    t.check(len(rows) > 50, f"only {len(rows)} rows were found")
    t.check(not wrong, "\n".join(wrong))


@t.test()
def functions_and_families_are_the_tables():
    families = table.read_families(t.ROOT / "api")
    names = {function.name for family in families for function in family.functions}
    front = PAGES[0].read_text()
    shown = {}
    for row in FAMILY.findall(front):
        shown |= {row[0]: int(row[1]), row[2]: int(row[3])}
    t.equal(shown, {family.name: family.first for family in families}, "first numbers of families")
    gone = [name for family in families for _, _, name in family.gone]
    t.check(bool(gone) != ("No function has gone" in front), f"docs/wire-format.md does not say which functions have gone: {gone}")
    for page in PAGES:
        for name in re.findall(r"\bcu[A-Z]\w+", page.read_text()):
            t.check(name in names or f"{name}_v2" in names, f"{page.name} names {name}, which the table does not have")
        for name in gone:
            t.check(page != PAGES[0] or name in front, f"docs/wire-format.md does not list {name}, whose number is reserved")


if __name__ == "__main__":
    t.main()
