"""The driver table: one pointer per function, filled by a backend; stubs for what it lacks."""

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


def header(model):
    w = Writer("The driver table that backends fill.")
    w('#ifndef TOW_GEN_DRIVER_H\n#define TOW_GEN_DRIVER_H\n\n#include "gen/cuda_types.h"\n')
    w("struct tow_driver {")
    for f in model.functions:
        w(f"    CUresult(CUDAAPI *{f.name})({f.prototype});")
    w("};\n")
    w("/* Points every entry at a stub that answers CUDA_ERROR_NOT_SUPPORTED and names itself once in the log. */")
    w("void tow_driver_fill_stubs(struct tow_driver *driver);\n")
    w("/* Fills the entries that `find` knows (a dlsym-like function); the others stay as they are.\n * Returns how many were found. */")
    w("int tow_driver_load(struct tow_driver *driver, void *(*find)(void *user, const char *name), void *user);\n")
    w("#endif")
    return w.text()


ENTRY = """/* One function of the table: where it stands and what it is until a backend has it. */
struct tow_driver_entry {
    uint16_t number;
    uint16_t offset; /* within struct tow_driver */
    void (*stub)(void);
};

"""


def entries_header(model):
    w = Writer("What driver.c has of each family.")
    w('#ifndef TOW_GEN_DRIVER_ENTRIES_H\n#define TOW_GEN_DRIVER_ENTRIES_H\n\n#include "gen/driver.h"\n')
    w(ENTRY.rstrip())
    w("\n/* Names itself once in the log. */\nCUresult tow_driver_refuse(unsigned number);\n")
    for family in model.families:
        w(f"extern const struct tow_driver_entry tow_driver_{family.name}[];")
        w(f"extern const unsigned tow_driver_{family.name}_count;")
    w("\n#endif")
    return w.text()


def family_source(family):
    """Tables, not long functions: compilers with sanitizers take minutes for those."""
    w = Writer(f"The driver table's part of {family.name}: stubs.")
    w(f'#include "gen/driver_entries.h"\n#include "gen/{family.name}.h"\n')
    for f in family.functions:
        w(f"static CUresult stub_{f.name}({f.prototype})\n{{")
        for p in f.params:
            w(f"    (void){p.name};")
        w(f"    return tow_driver_refuse(TOW_FN_{f.name});\n}}\n")
    w(f"const struct tow_driver_entry tow_driver_{family.name}[] = {{")
    for f in family.functions:
        w(f"    {{TOW_FN_{f.name}, offsetof(struct tow_driver, {f.name}), (void (*)(void))stub_{f.name}}},")
    w(f"}};\nconst unsigned tow_driver_{family.name}_count = sizeof tow_driver_{family.name} / sizeof tow_driver_{family.name}[0];")
    return w.text()


SOURCE = """CUresult tow_driver_refuse(unsigned number)
{
    static atomic_uchar said[TOW_FN_LIMIT];
    if (atomic_exchange_explicit(&said[number], 1, memory_order_relaxed) == 0) {
        tow_log(TOW_AREA_BACKEND, TOW_LOG_WARN, "%s is not supported by this device",
                tow_fn_info(number)->name);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

void tow_driver_fill_stubs(struct tow_driver *driver)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        for (unsigned j = 0; j < *families[i].count; j++) {
            const struct tow_driver_entry *entry = &families[i].entries[j];
            memcpy((char *)driver + entry->offset, &entry->stub, sizeof entry->stub);
        }
    }
}

int tow_driver_load(struct tow_driver *driver, void *(*find)(void *user, const char *name),
                    void *user)
{
    int count = 0;
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        for (unsigned j = 0; j < *families[i].count; j++) {
            const struct tow_driver_entry *entry = &families[i].entries[j];
            void *found = find(user, tow_fn_info(entry->number)->name);
            if (found != NULL) {
                memcpy((char *)driver + entry->offset, &found, sizeof found);
                count++;
            }
        }
    }
    return count;
}"""


def source(model):
    w = Writer("Stubs and loader of the driver table.")
    w('#include "gen/driver.h"\n\n#include <stdatomic.h>\n#include <string.h>\n')
    w('#include "base/log.h"\n#include "gen/driver_entries.h"\n#include "gen/functions.h"\n')
    w("static const struct {\n    const struct tow_driver_entry *entries;\n    const unsigned *count;\n} families[] = {")
    for family in model.families:
        w(f"    {{tow_driver_{family.name}, &tow_driver_{family.name}_count}},")
    w("};\n#define FAMILY_COUNT (sizeof families / sizeof families[0])\n")
    w(SOURCE)
    return w.text()
