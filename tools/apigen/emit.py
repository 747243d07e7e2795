# SPDX-License-Identifier: Apache-2.0
"""Writes C as the house formats it (.clang-format), without needing clang-format: 100 columns, 4 spaces,
what is too long goes on below its bracket. A test compares with clang-format."""

import re
import textwrap
from contextlib import contextmanager

WIDTH = 100
# What clang-format counts for a line's end, as far as needed here: it takes the layout that costs least.
COMMA, FIRST_COMMA, AFTER_ASSIGNMENT, AFTER_TYPE, AFTER_MACRO = 41, 56, 37, 95, 115
AFTER_BRACKET = {"call": 74, "declaration": 155}
# Where a line may go on outside of a list: after an operator, before the parts of a condition (? and :).
OPERATORS = re.compile(r" (?:\|\| |&& |\| |\+ |(?=\? )|(?=: ))")
ORDER = (" || ", " && ", " ", " | ", " + ")


def _groups(text):
    """The outermost brackets: (place of the opening one, of the closing one)."""
    groups, open_, at = [], [], 0
    while at < len(text):
        if text[at] == '"':
            at = text.index('"', at + 1)
        elif text[at] in "([{":
            open_.append(at)
        elif text[at] in ")]}" and open_:
            start = open_.pop()
            if not open_:
                groups.append((start, at))
        at += 1
    return groups


def split(text):
    """A list at its own commas."""
    items, depth, start, quoted = [], 0, 0, False
    for at, c in enumerate(text):
        quoted ^= c == '"'
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
    return [*items, text[start:].strip()]


def _fill(lines, column, items, end):
    """The list's lines, each as full as it can be; the last line so far goes on, or begins at `column`."""
    breaks = 0
    for i, item in enumerate(items):
        last = i == len(items) - 1
        piece = item + (end if last else ",")
        space = " " if i and lines[-1].strip() else ""
        if i and len(lines[-1]) + len(space) + len(piece) > WIDTH:
            lines.append(" " * column)
            breaks += 1
            space = ""
        lines[-1] += space + piece
    return lines, breaks


def _layouts(indent, text):
    """The ways to write `HEAD(LIST)END` over several lines: (cost, lines)."""
    groups = _groups(text)
    if not groups:
        return
    open_, close = groups[-1]
    items, end = split(text[open_ + 1 : close]), text[close:]
    head, kind = text[: open_ + 1], "call" if end.endswith(";") and "=" in text or indent else "declaration"
    heads = [(0, [" " * indent + head], indent)]
    if m := re.match(r"([^=(\"]*[^=!<>(\"]=) (?!\{)(.*)$", head):
        heads.append((AFTER_ASSIGNMENT, [" " * indent + m[1], " " * (indent + 4) + m[2]], indent + 4))
    elif kind == "declaration" and (m := re.match(r"(.*) (\w+\()$", head)):
        heads.append((AFTER_MACRO if "CUDAAPI" in m[1] else AFTER_TYPE, [m[1], m[2]], indent))
    for cost, lines, start in heads:
        filled, breaks = _fill(list(lines), len(lines[-1]), items, end)
        yield cost + (FIRST_COMMA + COMMA * (breaks - 1) if breaks else 0), filled
        if head.endswith("("):
            filled, breaks = _fill([*lines, " " * (start + 4)], start + 4, items, end)
            yield cost + AFTER_BRACKET[kind] + COMMA * breaks, filled


CONDITION = re.compile(r"(?:if|for|while) \(")


def _wrap_condition(indent, text):
    """Broken after its weakest operators, each line below the bracket."""
    lines, rest, at = [], text, indent
    while at + len(rest) > WIDTH:
        depth, places = 0, []
        for place, c in enumerate(rest):
            depth += (c in "([{") - (c in ")]}")
            operator = OPERATORS.match(rest, place)
            if not operator or depth != (0 if lines else 1):
                continue
            if at + len(rest[: operator.end()].rstrip()) <= WIDTH:
                places.append((ORDER.index(operator[0]), -place, operator.end()))
        if not places:
            break
        end = min(places)[2]
        lines.append(" " * at + rest[:end].rstrip())
        rest, at = rest[end:], indent + CONDITION.match(text).end()
    return [*lines, " " * at + rest]


def wrap(indent, text):
    """The lines of one statement or declaration."""
    if indent + len(text) <= WIDTH:
        return [" " * indent + text]
    if m := re.match(r"(typedef [^(]*) (\w+;)$", text):
        return [m[1], f"    {m[2]}"]
    if m := re.match(r"([^=(\"]*[^=!<>(\"]=) (?!\{)(.*)$", text):
        if indent + 4 + len(m[2]) <= WIDTH:
            return [" " * indent + m[1], " " * (indent + 4) + m[2]]
    if CONDITION.match(text):
        return _wrap_condition(indent, text)
    layouts = [(cost, lines) for cost, lines in _layouts(indent, text) if max(map(len, lines)) <= WIDTH]
    return min(layouts)[1] if layouts else [" " * indent + text]


def comment(text, indent=0):
    """A comment, over several lines where it must."""
    pad = " " * indent
    lines = textwrap.wrap(text, WIDTH - indent - 3, break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1 and len(lines[0]) + indent + 6 <= WIDTH:
        return [f"{pad}/* {lines[0]} */"]
    lines = textwrap.wrap(text + " */", WIDTH - indent - 3, break_long_words=False, break_on_hyphens=False)
    if lines[-1] == "*/":
        lines[-2:] = lines[-2].rsplit(" ", 1)[0], lines[-2].rsplit(" ", 1)[1] + " */"
    return [f"{pad}/* {lines[0]}"] + [f"{pad} * {line}" for line in lines[1:]]


class Code:
    """One file. Calling it writes a line at the depth of the blocks that are open."""

    def __init__(self, banner):
        self.lines = [*comment(f"{banner} Generated by tools/apigen; do not edit.")]
        self.depth = 0

    def __call__(self, text=""):
        self.lines.extend(wrap(4 * self.depth, text) if text else [""])

    def text(self):
        return "\n".join(self.lines) + "\n"

    def comment(self, text):
        self.lines.extend(comment(text, 4 * self.depth))

    def rows(self, rows):
        """Rows of a table, (text, what it is)."""
        rows = list(rows)
        width = max((len(row) for row, _ in rows), default=0)
        for row, what in rows:
            self(f"{row:{width}} /* {what} */")

    def include(self, *names):
        """One group: `<name>` or a path of ours."""
        self()
        for name in names:
            self(f"#include {name}" if name.startswith("<") else f'#include "{name}"')

    def define(self, name, value):
        line = f"#define {name} {value}"
        if len(line) <= WIDTH:
            self(line)
        else:
            self.lines += [f"#define {name}".ljust(WIDTH - 1) + "\\", f"    {value}"]

    @contextmanager
    def guard(self, name):
        self(f"#ifndef TOW_GEN_{name}_H")
        self(f"#define TOW_GEN_{name}_H")
        yield
        self()
        self("#endif")

    @contextmanager
    def block(self, opening, closing="}"):
        self(opening)
        self.depth += 1
        yield
        self.depth -= 1
        self(closing)

    @contextmanager
    def function(self, head, doc):
        """A function with what it is for and where it comes from."""
        self()
        self.comment(doc)
        self(head)
        with self.block("{"):
            yield

    def if_(self, condition):
        return self.block(f"if ({condition}) {{")

    def else_(self):
        self.lines.pop()
        return self.block("} else {")

    def for_(self, kind, condition):
        return self.block(f"for ({kind} i = 0; {condition}; i++) {{")

    def call(self, name, *args):
        self(f"{name}({', '.join(args)});")

    def set(self, target, value):
        self(f"{target} = {value};")

    def ret(self, value=""):
        self(f"return {value};" if value else "return;")

    def ret_if(self, condition, value=""):
        with self.if_(condition):
            self.ret(value)

    def ret_unless_success(self, status):
        self.ret_if(f"{status} != CUDA_SUCCESS", status)
