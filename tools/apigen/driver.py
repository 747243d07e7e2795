"""Facts about each function, and stubs for what a backend lacks in the driver table (src/backend/driver.h)."""

import signature
from cgen import Writer


def functions_header(model):
    w = Writer("Function numbers, handle kinds and facts about each function.")
    w("#ifndef TOW_GEN_FUNCTIONS_H\n#define TOW_GEN_FUNCTIONS_H\n\n#include <stdint.h>\n")
    # Rounded, so that a new function changes this header only when its family outgrows a hundred.
    limit = model.functions[-1].number // 100 * 100 + 100
    w(f"/* All numbers are below; each family's stand in gen/FAMILY.h. */\nenum {{\n    TOW_FN_LIMIT = {limit},\n}};\n")
    w("/* Kinds of handle that travel as ids. */\nenum tow_handle_kind {\n    TOW_H_NONE,")
    numbers = model.types.handle_numbers
    for h in sorted(numbers, key=numbers.get):
        w(f"    {model.handle_kind(h)} = {numbers[h]},")
    w("    TOW_H_LIMIT,\n};\n")
    w("enum {\n    TOW_FN_ASYNC = 1,       /* no reply */\n    TOW_FN_SYNCS = 2,       /* delivers errors of earlier no-reply calls */")
    w("    TOW_FN_QUICK = 4,       /* never waits in the driver: served without handing over */\n    TOW_FN_NOCTX = 8,       /* needs no current context */\n    TOW_FN_LOCAL = 16,      /* the client answers alone */\n    TOW_FN_UNSUPPORTED = 32,\n    TOW_FN_BLOCKS = 64,     /* may wait for the device though it needs no reply */\n    TOW_FN_SHOWS = 128,     /* the host sees what kernels wrote when it returns */\n    TOW_FN_QUICK_IDLE = 256, /* waits in the driver for the work of its context only */\n};\n")
    w("struct tow_fn_info {\n    const char *name;\n    uint16_t number;\n    uint16_t flags;\n    uint32_t travels; /* hash of what travels for it; 0: nothing does */\n};\n")
    w("/* Facts about a function; NULL for a number that is not in the table. */")
    w("const struct tow_fn_info *tow_fn_info(unsigned number);\n")
    w("/* SHA-256 of what travels for all functions. */\nextern const uint64_t tow_table_hash[4];\n")
    w("/* The numbers of the functions that travel, ascending, each with its hash. */\nextern const uint32_t tow_travels[][2];\nextern const uint32_t tow_travel_count;\n")
    w("#endif")
    return w.text()


def functions_source(model):
    w = Writer("Facts about each function.")
    w('#include "gen/functions.h"\n\n#include <stddef.h>\n')
    w("static const struct tow_fn_info infos[TOW_FN_LIMIT] = {")
    for f in model.functions:
        flags = []
        for word, name in (("async", "ASYNC"), ("syncs", "SYNCS"), ("quick", "QUICK"), ("noctx", "NOCTX"), ("local", "LOCAL"), ("blocks", "BLOCKS"), ("quick-idle", "QUICK_IDLE")):
            if word in f.flags:
                flags.append("TOW_FN_" + name)
        if f.flags & {"syncs", "shows"}:
            flags.append("TOW_FN_SHOWS")
        if f.stub:
            flags.append("TOW_FN_UNSUPPORTED")
        travels = signature.hash_of(model, f)
        w(f'    [{f.number}] = {{"{f.name}", {f.number}, {" | ".join(flags) or "0"}, {f"0x{travels:08x}u" if travels else 0}}},')
    w("};\n")
    digest = signature.table_hash(model)
    words = ", ".join("0x" + digest[i : i + 8][::-1].hex() + "u" for i in range(0, 32, 8))
    w(f"const uint64_t tow_table_hash[4] = {{{words}}};\n")
    w("const uint32_t tow_travels[][2] = {")
    for f in model.functions:
        if signature.travels(f):
            w(f"    {{{f.number}, 0x{signature.hash_of(model, f):08x}u}},")
    w("};\nconst uint32_t tow_travel_count = sizeof tow_travels / sizeof tow_travels[0];\n")
    w("const struct tow_fn_info *tow_fn_info(unsigned number)\n{")
    w("    return number < TOW_FN_LIMIT && infos[number].name != NULL ? &infos[number] : NULL;\n}")
    return w.text()


def stubs_header(model):
    w = Writer("The stubs of every family.")
    for family in model.families:
        w(f"extern const struct tow_driver_stub tow_driver_{family.name}[];")
    w("\nstatic const struct tow_driver_stub *const tow_driver_stubs[] = {")
    for family in model.families:
        w(f"    tow_driver_{family.name},")
    w("    NULL,\n};")
    return w.text()


def family_source(family):
    """Tables, not long functions: compilers with sanitizers take minutes for those."""
    w = Writer(f"What the driver table has of {family.name} where a backend lacks it.")
    w(f'#include <stddef.h>\n\n#include "backend/driver.h"\n#include "gen/{family.name}.h"\n')
    w(f"extern const struct tow_driver_stub tow_driver_{family.name}[];\n")
    for f in family.functions:
        w(f"static CUresult stub_{f.name}({f.prototype})\n{{")
        for p in f.params:
            w(f"    (void){p.name};")
        w(f"    return tow_driver_refuse(TOW_FN_{f.name});\n}}\n")
    w(f"const struct tow_driver_stub tow_driver_{family.name}[] = {{")
    for f in family.functions:
        w(f"    {{TOW_FN_{f.name}, (tow_driver_fn *)stub_{f.name}}},")
    w("    {0, NULL},\n};")
    return w.text()
