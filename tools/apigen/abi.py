# SPDX-License-Identifier: Apache-2.0
"""The driver API's types and prototypes, so that building needs no CUDA toolkit; and what the comparison
with a real cuda.h needs."""

import re

from emit import Code


def _declare(functions, w):
    for f in functions:
        w(f"CUresult CUDAAPI {f.name}({f.prototype});")
        if f.variant:
            w(f"CUresult CUDAAPI {f.name}_{f.variant}({f.prototype});")


def _is_number(value):
    return re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", value) is not None


def _declare_type(types, kind, at, w):
    if kind == "text":
        w(at)
    elif kind == "enum":
        tag, values, _ = types.enums[at]
        with w.block(f"enum {tag} {{", "};"):
            for name, value in values:
                w(f"{name} = {value},")
    else:
        word, tag, body, _ = types.records[at]
        w(f"{word} {tag} {{")
        w.lines.extend(body)
        w("};")


def types_header(model):
    w = Code("The driver API's types, as programs are compiled against them.")
    types = model.types
    with w.guard("CUDA_TYPES"):
        w.include("<stddef.h>", "<stdint.h>")
        w()
        w("#define CUDAAPI")
        w("#define CUDA_CB")
        w()
        # Types use them as array sizes.
        for name, value in types.constants:
            if _is_number(value):
                w.define(name, value)
        w()
        for kind, at in types.order:
            _declare_type(types, kind, at, w)
        w()
        for name, value in types.constants:
            if not _is_number(value):
                w.define(name, value)
    return w.text()


def family_header(family):
    w = Code(f"The functions of {family.name}: their numbers and prototypes.")
    with w.guard(family.name.upper()):
        w.include("gen/cuda_types.h")
        w()
        with w.block("enum {", "};"):
            for f in family.functions:
                w(f"TOW_FN_{f.name} = {f.number},")
        w()
        _declare(family.functions, w)
    return w.text()


def header(model):
    w = Code("The whole driver API; who needs one family includes that one's header.")
    with w.guard("CUDA_ABI"):
        w.include("gen/cuda_types.h", *(f"gen/{family.name}.h" for family in model.families))
    return w.text()


def _fields(body):
    """Member paths of a record, entering anonymous members."""
    out, stack = [], []
    for line in body:
        line = line.strip()
        if re.match(r"(struct|union) \{$", line):
            stack.append(len(out))
        elif m := re.match(r"\}\s*(\w*)((?:\[\d+\])*);$", line):
            start = stack.pop()
            if m.group(1):
                inner = [] if m.group(2) else [f"{m.group(1)}.{name}" for name in out[start:]]
                out[start:] = [m.group(1)] + inner
        elif m := re.search(r"\(\*(\w+)\)\(|(\w+)((?:\[\d+\])*);$", line):
            out.append(m.group(1) or m.group(2))
    return out


def check(model):
    """Lines X(type) F(type, member) E(name) P(function): expanded once with our header and once
    with NVIDIA's; the test compares the two."""
    w = Code("What must be equal in our ABI header and in cuda.h.")
    w()
    t = model.types
    named = {}
    for name in t.typedefs:
        named.setdefault(model.resolve(name), name)
    for word, tag, body, _ in t.records:
        name = named.get(f"{word} {tag}")
        if name is None:
            continue
        w(f"TOW_TYPE({name})")
        for member in _fields(body):
            w(f"TOW_FIELD({name}, {member})")
    for tag, values, _ in t.enums:
        for name, _ in values:
            w(f"TOW_ENUM({name})")
    return w.text()


def prototypes(model):
    """Includes the real cuda.h and declares every function again: a difference does not compile."""
    w = Code("Every prototype declared a second time beside NVIDIA's.")
    w()
    w("#define __CUDA_API_VERSION_INTERNAL")
    w.include("<cuda.h>", "<cudaProfiler.h>")
    w()
    _declare(model.functions, w)
    return w.text()
