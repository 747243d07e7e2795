# SPDX-License-Identifier: Apache-2.0
"""What travels for a function, in words, and the hash by which client and server agree that both know it.

Only what changes the bytes of a command or its reply counts: numbers and classes of the fields in their
order, lengths of arrays, the layout of records, the numbers of handle kinds, and whether earlier errors and
memory come with the reply (syncs). An encoding by hand is known by the number of its wire(N) alone.
"""

import hashlib
import re

from cgen import plan

NAME = r"[A-Za-z_]\w*"


def layout(model, base, seen=()):
    """A type as its bytes lie: records member by member, enums and handles as what they are."""
    if base in model.types.handles:
        return f"handle {model.types.handle_numbers[base]}"
    real = model.resolve(base)
    if real.startswith("enum "):
        return "enum"
    if not real.startswith(("struct ", "union ")):
        return real
    if real in seen:
        return real
    found = next((r for r in model.types.records if f"{r[0]} {r[1]}" == real), None)
    if found is None:
        return real
    constants = dict(model.types.constants)

    def word(match):
        name = match.group(0)
        if name in constants:
            return constants[name]
        if name in model.types.handles or name in model.types.typedefs:
            return layout(model, name, (*seen, real))
        return name

    body = re.sub(r"/\*.*?\*/", "", " ".join(found[2]))
    body = re.sub(rf"\b(?:struct|union|enum) (?={NAME} \w)", "", body)
    return f"{found[0]} {{{' '.join(re.sub(NAME, word, body).split())}}}"


def _length(f, expr):
    places = {p.name: f"#{i}" for i, p in enumerate(f.params)}
    return re.sub(NAME, lambda m: places.get(m.group(0), m.group(0)), expr)


def _field(model, f, field):
    p = field.param
    what = [field.role, field.klass]
    if field.klass in ("handle", "record") or field.role == "array":
        what.append(layout(model, p.base))
    if field.klass == "record":
        what += [side for side in ("client", "server") if model.translated(p.base, side)]
    if p.count or p.bytes:
        what += ["count" if p.count else "bytes", _length(f, p.count or p.bytes)]
    if "opt" in p.words:
        what.append("opt")
    return " ".join(what)


def describe(model, f):
    lines = [f"{f.number} {f.name} wire {f.wire}{' syncs' if 'syncs' in f.flags else ''}"]
    if "by-hand" in f.flags:
        lines.append("by hand")
    else:
        p = plan(model, f)
        for part in ("send8", "send4", "send_var", "reply8", "reply4", "reply_var"):
            lines += [f"{part}: {_field(model, f, field)}" for field in getattr(p, part)]
        order = {id(a): i for i, a in enumerate(f.params)}
        lines.append("present: " + " ".join(str(order[id(a)]) for a in p.present))
    return "\n".join(lines) + "\n"


def travels(f):
    return not f.stub and not f.local


def hash_of(model, f):
    """32 bits, never 0; 0 if nothing travels."""
    if not travels(f):
        return 0
    return int.from_bytes(hashlib.sha256(describe(model, f).encode()).digest()[:4], "little") or 1


def table_hash(model):
    """Of all that travels: who has the same needs to compare nothing."""
    h = hashlib.sha256()
    for f in model.functions:
        if travels(f):
            h.update(describe(model, f).encode())
    return h.digest()
