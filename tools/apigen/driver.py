# SPDX-License-Identifier: Apache-2.0
"""Facts about each function, and stubs for what a backend lacks (src/backend/driver.h)."""

import signature
from emit import Code

# A word of the table, its flag, what it says.
FLAGS = (
    ("async", "ASYNC", 1, "no reply"),
    ("syncs", "SYNCS", 2, "delivers errors of earlier no-reply calls"),
    ("quick", "QUICK", 4, "never waits in the driver: served without handing over"),
    ("noctx", "NOCTX", 8, "needs no current context"),
    ("local", "LOCAL", 16, "the client answers alone"),
    ("", "UNSUPPORTED", 32, "answers CUDA_ERROR_NOT_SUPPORTED"),
    ("blocks", "BLOCKS", 64, "may wait for the device though it needs no reply"),
    ("", "SHOWS", 128, "the host sees what kernels wrote when it returns"),
    ("quick-idle", "QUICK_IDLE", 256, "waits in the driver for the work of its context only"),
)

FACTS = """struct tow_fn_info {
    const char *name;
    uint16_t number;
    uint16_t flags;
    uint32_t travels; /* hash of what travels for it; 0: nothing does */
};

/* Facts about a function; NULL for a number that is not in the table. */
const struct tow_fn_info *tow_fn_info(unsigned number);

/* SHA-256 of what travels for all functions. */
extern const uint64_t tow_table_hash[4];

/* The numbers of the functions that travel, ascending, each with its hash. */
extern const uint32_t tow_travels[][2];
extern const uint32_t tow_travel_count;"""


def functions_header(model):
    w = Code("Handle kinds and facts about each function.")
    with w.guard("FUNCTIONS"):
        w.include("<stdint.h>")
        w()
        w.comment("All function numbers are below; those of each family stand in gen/FAMILY.h.")
        # Rounded, so that a new function changes this header only where its family outgrows a hundred.
        limit = model.functions[-1].number // 100 * 100 + 100
        w(f"enum {{ TOW_FN_LIMIT = {limit} }};")
        w()
        w.comment("Kinds of handle that travel as ids.")
        numbers = model.types.handle_numbers
        with w.block("enum tow_handle_kind {", "};"):
            w("TOW_H_NONE,")
            for handle in sorted(numbers, key=numbers.get):
                w(f"{model.handle_kind(handle)} = {numbers[handle]},")
            w("TOW_H_LIMIT,")
        w()
        with w.block("enum {", "};"):
            for _, name, value, what in FLAGS:
                w.comment(what)
                w(f"TOW_FN_{name} = {value},")
        w()
        w.lines.extend(FACTS.split("\n"))
    return w.text()


def _flags(f):
    flags = [f"TOW_FN_{name}" for word, name, _, _ in FLAGS if word in f.flags]
    if f.flags & {"syncs", "shows"}:
        flags.append("TOW_FN_SHOWS")
    if f.stub:
        flags.append("TOW_FN_UNSUPPORTED")
    return " | ".join(flags) or "0"


def functions_source(model):
    w = Code("Facts about each function.")
    w.include("gen/functions.h")
    w.include("<stddef.h>")
    w()
    with w.block("static const struct tow_fn_info infos[TOW_FN_LIMIT] = {", "};"):
        for f in model.functions:
            travels = signature.hash_of(model, f)
            known = f"0x{travels:08x}u" if travels else "0"
            w(f'[{f.number}] = {{"{f.name}", {f.number}, {_flags(f)}, {known}}},')
    digest = signature.table_hash(model)
    w()
    with w.block("const uint64_t tow_table_hash[4] = {", "};"):
        for i in range(0, 32, 8):
            w(f"0x{digest[i : i + 8][::-1].hex()}u,")
    w()
    with w.block("const uint32_t tow_travels[][2] = {", "};"):
        w.rows((f"{{{f.number}, 0x{signature.hash_of(model, f):08x}u}},", f.name)
               for f in filter(signature.travels, model.functions))
    w("const uint32_t tow_travel_count = sizeof tow_travels / sizeof tow_travels[0];")
    w()
    w("const struct tow_fn_info *tow_fn_info(unsigned number)")
    with w.block("{"):
        w.ret("number < TOW_FN_LIMIT && infos[number].name != NULL ? &infos[number] : NULL")
    return w.text()


def stubs_header(model):
    w = Code("The stubs of every family.")
    w()
    for family in model.families:
        w(f"extern const struct tow_driver_stub tow_driver_{family.name}[];")
    w()
    with w.block("static const struct tow_driver_stub *const tow_driver_stubs[] = {", "};"):
        for family in model.families:
            w(f"tow_driver_{family.name},")
        w("NULL,")
    return w.text()


def family_source(family):
    """Tables, not long functions: compilers with sanitizers take minutes for those."""
    w = Code(f"What the driver table has of {family.name} where a backend lacks it.")
    w.include("<stddef.h>")
    w.include("backend/driver.h", f"gen/{family.name}.h")
    w()
    w(f"extern const struct tow_driver_stub tow_driver_{family.name}[];")
    for f in family.functions:
        with w.function(f"static CUresult stub_{f.name}({f.prototype})", f"Refuses {f.name} ({f.where})."):
            for p in f.params:
                w(f"(void){p.name};")
            w.ret(f"tow_driver_refuse(TOW_FN_{f.name})")
    w()
    with w.block(f"const struct tow_driver_stub tow_driver_{family.name}[] = {{", "};"):
        for f in family.functions:
            w(f"{{TOW_FN_{f.name}, (tow_driver_fn *)stub_{f.name}}},")
        w("{0, NULL},")
    return w.text()
