"""The server: one handler per function that travels, and the dispatch table."""

from cgen import Writer, plan


def handler(model, f, w):
    p = plan(model, f)
    w(f"/* {f.where} */\nstatic void serve_{f.name}(struct tow_serve *call)\n{{")
    new = None
    for s in p.send8:
        a = s.param
        if s.role == "new":
            w(f"    uint64_t {a.name}_id = tow_dec_u64(&call->in);\n    {a.base} {a.name} = NULL;")
            new = s
        elif s.klass == "handle":
            w(f"    uint64_t {a.name}_id = tow_dec_u64(&call->in);")
            if s.role == "in*":
                w(f"    {a.base} {a.name}_value = ({a.base})tow_serve_handle(call, {model.handle_kind(a.base)}, {a.name}_id);\n    {a.base} *{a.name} = &{a.name}_value;")
            else:
                w(f"    {a.base} {a.name} = ({a.base})tow_serve_handle(call, {model.handle_kind(a.base)}, {a.name}_id);")
        elif s.role == "in*":
            w(f"    {a.base} {a.name}_value = ({a.base})tow_dec_u64(&call->in);\n    {a.base} *{a.name} = &{a.name}_value;")
        elif s.klass == "addr":
            w(f"    void *{a.name} = (void *)(uintptr_t)tow_dec_u64(&call->in);")
        else:
            w(f"    {a.ctype} {a.name} = ({a.base})tow_dec_u64(&call->in);")
    for s in p.send4:
        a = s.param
        get = "tow_dec_f32(&call->in)" if s.klass == "f32" else f"({a.base})tow_dec_u32(&call->in)"
        if s.role == "in*":
            w(f"    {a.base} {a.name}_value = {get};\n    {a.base} *{a.name} = &{a.name}_value;")
        else:
            w(f"    {a.ctype} {a.name} = {get};")
    if p.present:
        w("    uint32_t present = tow_dec_u32(&call->in);")
    w("    tow_dec_align(&call->in, 8);")
    bit = {a.name: f"(present & {1 << i}u)" for i, a in enumerate(p.present)}
    for s in p.send_var:
        a = s.param
        if s.role == "cstr":
            w(f"    const char *{a.name} = tow_serve_text(call);")
        elif s.role == "array":
            if a.bytes:
                w(f"    const void *{a.name} = tow_serve_array(call, (uint64_t)({a.bytes}), 1);")
            else:
                elem = a.base
                cond = f"{bit[a.name]} ? " if a.name in bit else ""
                tail = " : NULL" if cond else ""
                w(f"    {elem} *{a.name} = {cond}tow_serve_array(call, (uint64_t)({a.count}), sizeof({elem})){tail};")
                if hook := model.translated(elem, "server"):
                    w(f"    for (size_t i = 0; {a.name} != NULL && i < (size_t)({a.count}); i++) {{\n        tow_serve_unpack_{hook}(call, &{a.name}[i]);\n    }}")
                if s.klass == "handle":
                    w(f"    tow_serve_handles(call, {model.handle_kind(elem)}, {a.name}, {a.name} != NULL ? (size_t)({a.count}) : 0);")
        elif a.stars == 0:
            w(f"    {a.base} {a.name};\n    tow_serve_record(call, &{a.name}, sizeof {a.name});")
            if hook := model.translated(a.base, "server"):
                w(f"    tow_serve_unpack_{hook}(call, &{a.name});")
        else:
            w(f"    {a.base} {a.name}_record, *{a.name} = &{a.name}_record;")
            if a.name in bit:
                w(f"    if ({bit[a.name]}) {{\n        tow_serve_record(call, &{a.name}_record, sizeof {a.name}_record);\n    }} else {{\n        {a.name} = NULL;\n    }}")
            else:
                w(f"    tow_serve_record(call, &{a.name}_record, sizeof {a.name}_record);")
            if hook := model.translated(a.base, "server"):
                w(f"    if ({a.name} != NULL) {{\n        tow_serve_unpack_{hook}(call, {a.name});\n    }}")
        if s.role != "cstr":
            w("    tow_dec_align(&call->in, 8);")
        else:
            w("    tow_dec_align(&call->in, 8);")
    args = []
    for a in f.params:
        is_reply = any(s.param is a for s in p.reply8 + p.reply4 + p.reply_var)
        is_send = any(s.param is a for s in p.send8 + p.send4 + p.send_var)
        if "new" in a.words:
            args.append(f"&{a.name}")
        elif is_reply and not is_send:
            s = next(s for s in p.reply8 + p.reply4 + p.reply_var if s.param is a)
            if s.role == "array":
                n = a.count or a.bytes
                elem = a.base if a.base != "void" else "unsigned char"
                cond = f"{bit[a.name]} ? " if a.name in bit else ""
                tail = " : NULL" if cond else ""
                w(f"    {elem} *{a.name} = {cond}tow_serve_room(call, (uint64_t)({n}), sizeof({elem})){tail};")
                args.append(a.name)
            else:
                w(f"    {a.base} {a.name}_out;\n    memset(&{a.name}_out, 0, sizeof {a.name}_out);")
                if "opt" in a.words:
                    args.append(f"{bit[a.name]} ? &{a.name}_out : NULL")
                else:
                    args.append(f"&{a.name}_out")
        else:
            args.append(a.name)
    caps = [s.param for s in p.reply_var if s.role == "array" and s.param.count.startswith("*")]
    for a in caps:
        w(f"    uint64_t {a.name}_room = {a.name} != NULL ? (uint64_t)({a.count}) : 0;")
    refused = f"        tow_serve_bind(call, {model.handle_kind(new.param.base)}, {new.param.name}_id, NULL);\n" if new else ""
    w("    if (!tow_serve_ready(call)) {\n" + refused + "        return;\n    }")
    if "before" in f.calls:
        hook, *rest = f.calls["before"].split(", ")
        w(f"    {hook}({', '.join(['call->session'] + rest)});")
    drops = [s.param for s in p.send8 if s.role == "drop"]
    for a in drops:
        w(f"    if (!tow_serve_claim(call, {model.handle_kind(a.base)}, {a.name}_id)) {{\n        return;\n    }}")
    w(f"    call->status = tow_drive(call->driver, {f.name})({', '.join(args)});")
    if new:
        a = new.param
        w(f"    tow_serve_bind(call, {model.handle_kind(a.base)}, {a.name}_id, {a.name});")
    for a in drops:
        w(f"    if (call->status != CUDA_SUCCESS) {{\n        tow_serve_unclaim(call, {a.name}_id, {a.name});\n    }}")
    outs = p.reply8 + p.reply4
    if outs or p.reply_var:
        w("    if (call->status != CUDA_SUCCESS) {\n        return;\n    }")
        if p.reply_var:
            terms = []
            for s in p.reply_var:
                a = s.param
                if s.role != "array":
                    terms.append(f"sizeof({a.base}) + 8")
                else:
                    elem = a.base if a.base != "void" else "unsigned char"
                    n = f"{a.name}_room" if a in caps else a.count or a.bytes
                    terms.append(f"(size_t)({n}) * sizeof({elem}) + 16")
            w(f"    tow_serve_reserve(call, {8 * len(outs) + 16} + {' + '.join(terms)});")
        for s in outs:
            a = s.param
            is_inout = any(x.param is a for x in p.send8 + p.send4)
            v = f"{a.name}_value" if is_inout else f"{a.name}_out"
            if s.klass == "handle":
                w(f"    tow_enc_u64(&call->out, tow_serve_export(call, {model.handle_kind(a.base)}, {v}));")
            elif s.klass == "u64":
                w(f"    tow_enc_u64(&call->out, (uint64_t){v});")
            elif s.klass == "f32":
                w(f"    tow_enc_f32(&call->out, {v});")
            else:
                w(f"    tow_enc_u32(&call->out, (uint32_t){v});")
        if p.reply_var:
            w("    tow_enc_align(&call->out, 8);")
        for s in p.reply_var:
            a = s.param
            if s.role != "array":
                is_inout = any(x.param is a for x in p.send_var)
                v = f"{a.name}_record" if is_inout else f"{a.name}_out"
                if hook := model.translated(a.base, "server"):
                    w(f"    tow_serve_pack_{hook}(call, &{v});")
                w(f"    tow_enc_bytes(&call->out, &{v}, sizeof {v});")
            else:
                elem = a.base if a.base != "void" else "unsigned char"
                if a in caps:
                    w(f"    size_t {a.name}_used = {a.name} != NULL ? (size_t)tow_min_u64({a.name}_room, (uint64_t)({a.count})) : 0;")
                    n = f"{a.name}_used"
                    if s.klass == "handle":
                        w(f"    tow_serve_export_all(call, {model.handle_kind(a.base)}, {a.name}, {n});")
                    w(f"    tow_enc_u64(&call->out, {n});\n    if ({n} > 0) {{\n        tow_enc_bytes(&call->out, {a.name}, {n} * sizeof({elem}));\n    }}")
                else:
                    n = a.count or a.bytes
                    if s.klass == "handle":
                        w(f"    tow_serve_export_all(call, {model.handle_kind(a.base)}, {a.name}, (size_t)({n}));")
                    w(f"    tow_enc_bytes(&call->out, {a.name}, (size_t)({n}) * sizeof({elem}));")
            w("    tow_enc_align(&call->out, 8);")
    w("}\n")


def source(model, family):
    w = Writer(f"Server side of {family.name}.")
    w('#include "server/session/serve.h"\n#include "gen/server_api.h"\n#include "gen/' + family.name + '_server.h"\n\n#include <string.h>\n')
    if any("before" in f.calls for f in family.functions):
        w('#include "server/session/busy.h"\n#include "server/family/graph.h"\n#include "server/copy/mirror.h"\n#include "server/session/watch.h"\n')
    for f in family.functions:
        if f.plain_send and "server-by-hand" not in f.flags:
            handler(model, f, w)
    w(f"void tow_serve_add_{family.name}(tow_serve_fn **table)\n{{")
    for f in family.functions:
        if f.stub or f.local:
            continue
        prefix = "serve" if f.plain_send and "server-by-hand" not in f.flags else "tow_serve"
        w(f"    table[TOW_FN_{f.name}] = {prefix}_{f.name};")
    w("    (void)table;\n}")
    return w.text()


def family_header(family):
    w = Writer(f"What the server implements of {family.name} by hand.")
    guard = f"TOW_GEN_{family.name.upper()}_SERVER_H"
    w(f'#ifndef {guard}\n#define {guard}\n\n#include "gen/{family.name}.h"\n\nstruct tow_serve;\n')
    for f in family.functions:
        if not f.stub and not f.local and f.flags & {"by-hand", "server-by-hand"}:
            w(f"void tow_serve_{f.name}(struct tow_serve *call);")
    w("\n#endif")
    return w.text()


def header(model):
    w = Writer("What the server's families share.")
    w('#ifndef TOW_GEN_SERVER_API_H\n#define TOW_GEN_SERVER_API_H\n\n#include "gen/functions.h"\n#include "server/session/serve.h"\n')
    for name in sorted(n for n, side in model.types.translate.items() if side == "server"):
        w("/* Ids in a record become the driver's handles, and back. */")
        w(f"void tow_serve_unpack_{name}(struct tow_serve *call, {name} *record);")
        w(f"void tow_serve_pack_{name}(struct tow_serve *call, {name} *record);")
    for family in model.families:
        w(f"void tow_serve_add_{family.name}(tow_serve_fn **table);")
    w("\nstatic inline void tow_serve_add_all(tow_serve_fn **table)\n{")
    for family in model.families:
        w(f"    tow_serve_add_{family.name}(table);")
    w("}\n\n#endif")
    return w.text()
