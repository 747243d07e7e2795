"""The driver API's types and prototypes, so that building needs no CUDA toolkit; and what the comparison with a real
cuda.h needs."""

import re

from cgen import Writer


def _prototypes(functions, w):
    for f in functions:
        w(f"CUresult CUDAAPI {f.name}({f.prototype});")
        if f.variant:
            w(f"CUresult CUDAAPI {f.name}_{f.variant}({f.prototype});")


def types_header(model):
    w = Writer("The driver API's types, as programs are compiled against them.")
    w("#ifndef TOW_GEN_CUDA_TYPES_H\n#define TOW_GEN_CUDA_TYPES_H\n")
    w("#include <stddef.h>\n#include <stdint.h>\n")
    w("#define CUDAAPI\n#define CUDA_CB\n")
    t = model.types
    constants = dict(t.constants)
    # Constants that types use (array sizes) come first; they are plain numbers.
    for name, value in t.constants:
        if re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", value):
            w(f"#define {name} {value}")
    w()
    for kind, at in t.order:
        if kind == "enum":
            tag, values, _ = t.enums[at]
            w(f"enum {tag} {{")
            for name, value in values:
                w(f"    {name} = {value},")
            w("};")
        elif kind == "record":
            word, tag, body, _ = t.records[at]
            w(f"{word} {tag} {{")
            w("\n".join(body))
            w("};")
        else:
            w(at)
    w()
    for name, value in constants.items():
        if not re.fullmatch(r"-?(0x)?[0-9A-Fa-f]+", value):
            w(f"#define {name} {value}")
    w("\n#endif")
    return w.text()


def family_header(family):
    w = Writer(f"The functions of {family.name}: their numbers and prototypes.")
    guard = f"TOW_GEN_{family.name.upper()}_H"
    w(f'#ifndef {guard}\n#define {guard}\n\n#include "gen/cuda_types.h"\n')
    w("enum {")
    for f in family.functions:
        w(f"    TOW_FN_{f.name} = {f.number},")
    w("};\n")
    _prototypes(family.functions, w)
    w("\n#endif")
    return w.text()


def header(model):
    w = Writer("The whole driver API; who needs one family includes that one's header.")
    w("#ifndef TOW_GEN_CUDA_ABI_H\n#define TOW_GEN_CUDA_ABI_H\n")
    w('#include "gen/cuda_types.h"')
    for family in model.families:
        w(f'#include "gen/{family.name}.h"')
    w("\n#endif")
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
                inner = out[start:]
                out[start:] = [m.group(1)] + ([f"{m.group(1)}.{n}" for n in inner] if not m.group(2) else [])
        elif m := re.search(r"\(\*(\w+)\)\(|(\w+)((?:\[\d+\])*);$", line):
            out.append(m.group(1) or m.group(2))
    return out


def check(model):
    """Lines X(type) F(type, member) E(name) P(function): expanded once with our header and once
    with NVIDIA's; the test compares the two."""
    w = Writer("What must be equal in our ABI header and in cuda.h.")
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
    w = Writer("Every prototype declared a second time beside NVIDIA's.")
    w("#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n")
    _prototypes(model.functions, w)
    return w.text()
