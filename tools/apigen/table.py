# SPDX-License-Identifier: Apache-2.0
"""Reads the API table (api/*.api) into plain objects. The grammar is described in api/README.md."""

import re
from dataclasses import dataclass, field
from pathlib import Path

PARAM_WORDS = {"in", "out", "inout", "opt", "cstr", "new", "drop", "addr", "reach"}
PARAM_CALLS = {"count", "bytes"}
FLAGS = {"async", "local", "by-hand", "client-by-hand", "server-by-hand", "noctx", "syncs", "shows", "quick",
         "blocks", "records", "awaits", "captured", "quick-idle", "pending"}
FLAG_CALLS = {"ptsz", "ptds", "since", "unsupported", "same", "before", "wire"}
# What a session's record keeps of a function (record.py): with arguments, but for the last two.
RECORD_WORDS = ("makes", "part", "ends", "keeps", "last", "finds", "stays", "asks", "runs")
FLAG_CALLS |= set(RECORD_WORDS[:-2])
FLAGS |= set(RECORD_WORDS[-2:])


class TableError(Exception):
    pass


@dataclass
class Param:
    name: str
    ctype: str  # the C type as written, "const CUuuid *"
    words: set = field(default_factory=set)
    count: str = ""  # element count of an array, an expression over other parameters
    bytes: str = ""  # byte count of a void pointer

    @property
    def stars(self):
        return self.ctype.count("*")

    @property
    def base(self):
        return self.ctype.replace("const", "").replace("*", "").strip()

    @property
    def declare(self):
        return self.ctype + ("" if self.ctype.endswith("*") else " ") + self.name


@dataclass
class Function:
    name: str
    number: int
    family: str
    params: list
    flags: set
    calls: dict  # the FLAG_CALLS -> their arguments
    doc: str
    where: str

    @property
    def since(self):
        return int(self.calls["since"])

    @property
    def variant(self):
        """'ptsz', 'ptds' or '' for the per-thread-stream variant that exists beside it."""
        return "ptsz" if "ptsz" in self.calls else "ptds" if "ptds" in self.calls else ""

    @property
    def stub(self):
        return "unsupported" in self.calls or "pending" in self.flags

    @property
    def reason(self):
        return self.calls.get("unsupported", "pending" if "pending" in self.flags else "")

    @property
    def wire(self):
        """Which of its encodings it has: raised when one that is written by hand changes."""
        return int(self.calls.get("wire", 1))

    @property
    def local(self):
        return "local" in self.flags

    @property
    def plain_send(self):
        """The generator writes the marshalling of this function."""
        return not self.stub and not self.local and "by-hand" not in self.flags

    @property
    def stream(self):
        """The stream that the call goes into, if it names one."""
        return next((p for p in self.params if p.ctype == "CUstream"), None)

    @property
    def args(self):
        return ", ".join(p.name for p in self.params)

    @property
    def prototype(self):
        return ", ".join(p.declare for p in self.params) or "void"


@dataclass
class Family:
    name: str
    first: int
    path: Path
    functions: list = field(default_factory=list)
    gone: list = field(default_factory=list)  # (where, number, name)


def _split(text):
    """Splits a parameter list at its top-level commas."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def _param(text, where):
    words, calls = set(), {}
    while True:
        m = re.match(r"(\w+)\s*\(([^)]*)\)\s*(.*)$", text)
        if m and m.group(1) in PARAM_CALLS:
            calls[m.group(1)] = m.group(2).strip()
            text = m.group(3)
            continue
        m = re.match(r"(\w+)\s+(.*)$", text)
        if m and m.group(1) in PARAM_WORDS:
            words.add(m.group(1))
            text = m.group(2)
            continue
        break
    m = re.match(r"(.*?[\s*])(\w+)$", text)
    if not m:
        raise TableError(f"{where}: parameter '{text}' is not 'TYPE NAME'")
    ctype = re.sub(r"\s*\*", " *", m.group(1).strip()).replace("* *", "**")
    return Param(m.group(2), ctype, words, calls.get("count", ""), calls.get("bytes", ""))


def _function(text, family, doc, where):
    m = re.match(r"fn\s+(\d+)\s+(\w+)\s*\((.*)$", text, re.S)
    if not m:
        raise TableError(f"{where}: a function reads 'fn NUMBER NAME(PARAMETERS) WORDS;'")
    rest, depth, end = m.group(3), 1, -1
    for i, c in enumerate(rest):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            end = i
            break
    if end < 0:
        raise TableError(f"{where}: '(' of {m.group(2)} is not closed")
    params = [_param(p, where) for p in _split(rest[:end])]
    flags, calls = set(), {}
    for word in re.findall(r"[\w-]+(?:\([^)]*\))?", rest[end + 1 :]):
        c = re.match(r"([\w-]+)\((.*)\)$", word)
        if c and c.group(1) in FLAG_CALLS:
            calls[c.group(1)] = c.group(2)
        elif word in FLAGS:
            flags.add(word)
        else:
            raise TableError(f"{where}: {m.group(2)}: unknown word '{word}'")
    if "same" in calls:
        flags.add("local")
    if "since" not in calls:
        raise TableError(f"{where}: {m.group(2)} does not say since which version")
    f = Function(m.group(2), int(m.group(1)), family.name, params, flags, calls, doc, where)
    if "captured" in flags and ("async" not in flags or f.stream is None):
        raise TableError(f"{where}: {f.name} is 'captured', so it must be async and name a stream")
    return f


def _statements(path):
    """(where, text without ';', doc lines before it) of each statement of a table."""
    doc, statement, start = [], "", 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        bare = line.strip()
        if not statement:
            if bare.startswith("##"):
                doc.append(bare[2:].strip())
                continue
            if not bare:
                doc = []
            if not bare or bare.startswith("#"):
                continue
            start = number
        statement += (" " if statement else "") + bare
        if statement.endswith(";"):
            yield f"api/{path.name}:{start}", statement[:-1].strip(), doc
            doc, statement = [], ""


def read_family(path):
    """One family; `gone` are the (where, number, name) that nobody may have again."""
    family = None
    for where, body, doc in _statements(path):
        if body.startswith("family"):
            m = re.match(r"family\s+(\w+)\s+(\d+)$", body)
            if not m:
                raise TableError(f"{where}: a family reads 'family NAME FIRST-NUMBER;'")
            family = Family(m.group(1), int(m.group(2)), path)
        elif m := re.match(r"gone\s+(\d+)\s+(\w+)$", body):
            family.gone.append((where, int(m.group(1)), m.group(2)))
        else:
            family.functions.append(_function(body, family, " ".join(doc), where))
    return family


def is_family(path):
    return re.search(r"^family\s", path.read_text(), re.M) is not None


def _reserve(families):
    """A name and a number: nobody else has them, nor will."""
    names, numbers = {}, {}
    for family in families:
        taken = [(f.where, f.number, f.name) for f in family.functions] + family.gone
        for where, number, name in sorted(taken, key=lambda entry: int(entry[0].rsplit(":", 1)[1])):
            for table, key in ((names, name), (numbers, number)):
                if key in table:
                    raise TableError(f"{where}: {key} is already at {table[key]}")
                table[key] = where


def read_families(folder):
    families = [read_family(path) for path in sorted(Path(folder).glob("*.api")) if is_family(path)]
    _reserve(families)
    families.sort(key=lambda f: f.first)
    for a, b in zip(families, families[1:]):
        for f in a.functions:
            if not a.first <= f.number < b.first:
                raise TableError(f"{f.where}: number {f.number} is outside the range of {a.name}")
    return families


@dataclass
class Types:
    enums: list  # (tag, [(name, value)], where)
    records: list  # (keyword, tag, [body lines], aligned, where)
    order: list  # declarations in order: ("enum", i) ("record", i) ("text", line)
    handles: dict  # type name -> struct tag
    handle_numbers: dict  # type name -> number of its kind, as in ids on the wire
    typedefs: dict  # name -> C text of what it stands for
    constants: list  # (name, value)
    translate: dict = field(default_factory=dict)  # record -> client or server: whose hooks change it


def read_types(folder):
    t = Types([], [], [], {}, {}, {}, [])
    for name in ("enums.api", "types.api", "constants.api"):
        lines = (Path(folder) / name).read_text().splitlines()
        i = 0
        while i < len(lines):
            line, where = lines[i].rstrip(), f"api/{name}:{i + 1}"
            i += 1
            if not line or line.startswith("#"):
                continue
            if m := re.match(r"enum (\w+) \{$", line):
                values = []
                while not lines[i].startswith("}"):
                    v = re.match(r"\s*(\w+) = (-?\w+),$", lines[i])
                    if not v:
                        raise TableError(f"api/{name}:{i + 1}: an enumerator reads 'NAME = VALUE,'")
                    values.append((v.group(1), v.group(2)))
                    i += 1
                i += 1
                t.order.append(("enum", len(t.enums)))
                t.enums.append((m.group(1), values, where))
            elif m := re.match(r"(struct|union) (\w+) \{$", line):
                body = []
                while not lines[i].startswith("}"):
                    body.append(lines[i])
                    i += 1
                i += 1
                t.order.append(("record", len(t.records)))
                t.records.append((m.group(1), m.group(2), body, where))
            elif m := re.match(r"handle (\d+) (\w+) (\w+);$", line):
                number = int(m.group(1))
                if number in t.handle_numbers.values() or not 0 < number < 128:
                    raise TableError(f"{where}: handle {number} is taken, or not in 1 to 127")
                t.handles[m.group(2)] = m.group(3)
                t.handle_numbers[m.group(2)] = number
                t.order.append(("text", f"typedef struct {m.group(3)} *{m.group(2)};"))
            elif m := re.match(r"typedef (.*?)(\w+);$", line):
                t.typedefs[m.group(2)] = m.group(1).strip()
                t.order.append(("text", line))
            elif line.startswith("typedef "):
                t.order.append(("text", line))
            elif m := re.match(r"translate (\w+) (client|server);$", line):
                t.translate[m.group(1)] = m.group(2)
            elif m := re.match(r"const (\w+) (.*)$", line):
                t.constants.append((m.group(1), m.group(2)))
            else:
                raise TableError(f"{where}: '{line}' is not understood")
    return t
