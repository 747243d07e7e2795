#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a cuda.h for machines without a CUDA toolkit: our generated ABI header, and the plain names that
programs write (cuMemAlloc) as macros for the newest version of each function (cuMemAlloc_v2).

usage: cuda_header.py .../gen/cuda_abi.h OUT/cuda.h
"""

import os
import pathlib
import re
import sys

# Plain names that are not the newest version: CUDA added a version beside them, not in their place.
SPECIAL = {"cuCtxGetDevice": None, "cuCtxSynchronize": None, "cuStreamGetCtx": None,
           "cuGraphInstantiate": "cuGraphInstantiateWithFlags"}


def newest(text):
    """{plain name: versioned name} for every function with a versioned form, per-thread forms left out."""
    names = {}
    for base, version in re.findall(r"\b(cu[A-Z]\w*?)_v(\d+)\s*\(", text):
        names[base] = max(names.get(base, 0), int(version))
    chosen = {base: SPECIAL.get(base, f"{base}_v{version}") for base, version in sorted(names.items())}
    return {base: name for base, name in chosen.items() if name}


def whole(path, seen):
    """The header with those of ours that it includes in their place, each once, and without our numbers."""
    if path in seen:
        return ""
    seen.add(path)
    text = re.sub(r"^enum \{\n(?:    TOW_FN_\w+ = \d+,\n)+\};\n\n", "", path.read_text(), flags=re.M)
    return re.sub(r'^#include "gen/(\w+\.h)"$', lambda found: whole(path.parent / found[1], seen), text, flags=re.M)


def main():
    source, target = (pathlib.Path(word) for word in sys.argv[1:3])
    text = whole(source, set())
    lines = ["/* Made by tools/cuda_header.py: the CUDA driver API for programs, without a toolkit. */",
             "#ifndef TOWLINE_CUDA_H", "#define TOWLINE_CUDA_H",
             "#ifdef __cplusplus", 'extern "C" {', "#endif", text]
    lines += [f"#define {plain} {name}" for plain, name in newest(text).items()]
    lines += ["#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    target.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    if target.exists() and target.read_text() == text:
        return  # nothing is built again
    partial = target.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.rename(target)


if __name__ == "__main__":
    main()
