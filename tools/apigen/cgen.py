# SPDX-License-Identifier: Apache-2.0
"""What the generated C files share: type classes, the order of fields on the wire."""

from dataclasses import dataclass

U64 = {"size_t", "unsigned long long", "uint64_t", "long long"}
U32 = {"unsigned int", "int", "uint32_t", "unsigned char", "unsigned short"}


class Model:
    """The table with the questions that several outputs ask of it."""

    def __init__(self, families, types):
        self.families = families
        self.types = types
        functions = [f for family in families for f in family.functions]
        self.functions = sorted(functions, key=lambda f: f.number)
        self.enum_tags = {tag for tag, _, _ in types.enums}

    def resolve(self, name):
        seen = 0
        while name in self.types.typedefs and seen < 20:
            name, seen = self.types.typedefs[name], seen + 1
        return name

    def klass(self, base):
        """handle, device, u64, u32, f32, record or other (only by-hand code can carry it)."""
        if base in self.types.handles:
            return "handle"
        if base in ("CUdevice", "CUdevice_v1"):
            return "device"
        real = self.resolve(base)
        if real.startswith("enum "):
            return "u32"
        if real.startswith(("struct ", "union ")):
            return "record"
        if real in U64:
            return "u64"
        if real in U32:
            return "u32"
        if real == "float":
            return "f32"
        return "other"

    def translated(self, base, side):
        """The record's name if hooks of that side (client, server) change it on its way; else ''."""
        real = self.resolve(base)
        for name, at in self.types.translate.items():
            if at == side and self.resolve(name) == real:
                return name
        return ""

    @staticmethod
    def handle_kind(base):
        return "TOW_H_" + base[2:].upper()


@dataclass
class Field:
    param: object
    role: str  # in, new, drop, inout, out, capacity
    klass: str


@dataclass
class Plan:
    """How one function's parameters travel. Lists are in wire order."""

    send8: list
    send4: list
    present: list  # parameters with a bit in the presence word, in bit order
    send_var: list
    reply8: list
    reply4: list
    reply_var: list


def plan(model, f):
    p = Plan([], [], [], [], [], [], [])
    for a in f.params:
        k = model.klass(a.base)
        if a.stars == 0:
            role = "drop" if "drop" in a.words else "in"
            if k == "record":
                p.send_var.append(Field(a, role, k))
            else:
                (p.send8 if k in ("handle", "u64") else p.send4).append(Field(a, role, k))
            if k == "other":
                raise ValueError(f"{f.where}: {f.name}: {a.ctype} {a.name} needs by-hand code")
            continue
        if "cstr" in a.words:
            p.send_var.append(Field(a, "cstr", "cstr"))
            continue
        if "addr" in a.words:
            p.send8.append(Field(a, "in", "addr"))
            continue
        if a.stars != 1 or (k == "other" and not a.bytes):
            raise ValueError(f"{f.where}: {f.name}: {a.ctype} {a.name} needs by-hand code")
        if "new" in a.words:
            p.send8.append(Field(a, "new", k))
            continue
        if "opt" in a.words or ("out" in a.words and a.count.startswith("*")):
            p.present.append(a)
        if a.count or a.bytes:
            array = Field(a, "array", k)
            if "out" in a.words:
                p.reply_var.append(array)
            else:
                p.send_var.append(array)
            continue
        if "in" in a.words or "inout" in a.words:
            if k == "record":
                p.send_var.append(Field(a, "in*", k))
            else:
                (p.send8 if k in ("handle", "u64") else p.send4).append(Field(a, "in*", k))
        if "out" in a.words or "inout" in a.words:
            if k == "record":
                p.reply_var.append(Field(a, "out*", k))
            else:
                (p.reply8 if k in ("handle", "u64") else p.reply4).append(Field(a, "out*", k))
        if not a.words & {"in", "out", "inout"}:
            raise ValueError(f"{f.where}: {f.name}: say in, out or inout of {a.name}")
    return p
