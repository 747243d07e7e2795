"""The client: exported entries, marshalling, cuGetProcAddress table, export map, call tracing."""

from cgen import Writer, plan


def send_params(f):
    """A `new` handle reaches the send function as the id that the client minted."""
    out = []
    for p in f.params:
        out.append(f"{p.base} {p.name}" if "new" in p.words else p.declare)
    return ", ".join(out) or "void"


def api_header(model):
    w = Writer("What the client's families share.")
    w('#ifndef TOW_GEN_CLIENT_API_H\n#define TOW_GEN_CLIENT_API_H\n\n#include "gen/cuda_types.h"\n')
    hooks = sorted(n for n, side in model.types.translate.items() if side == "client")
    if hooks:
        w("/* Records as the server understands them, and back. Packing changes a copy; a device named in it\n"
          " * decides the server (*link, left alone if there is none). */\nstruct tow_link;")
    for name in hooks:
        w(f"CUresult tow_pack_{name}({name} *record, struct tow_link **link);")
        w(f"void tow_unpack_{name}(struct tow_link *link, {name} *record);")
    w("\nstruct tow_proc {\n    const char *name;      /* without version suffix */\n"
      "    int since;             /* first CUDA version, 12030 = 12.3 */\n"
      "    int per_thread_since;  /* 0: no per-thread-stream variant */\n    void *entry, *per_thread_entry;\n};")
    w("/* Sorted by name, then by version. */\nextern const struct tow_proc tow_procs[];\n"
      "extern const unsigned tow_proc_count;\n\n#endif")
    return w.text()


def family_header(family):
    w = Writer(f"What the client implements of {family.name}, by hand or generated.")
    guard = f"TOW_GEN_{family.name.upper()}_CLIENT_H"
    w(f'#ifndef {guard}\n#define {guard}\n\n#include "gen/{family.name}.h"\n')
    w("/* tow_cuX: the body of cuX. tow_send_cuX: its plain marshalling, for bodies written by hand. */")
    for f in family.functions:
        if not f.stub:
            w(f"CUresult tow_{f.name}({f.prototype});")
        if f.plain_send:
            w(f"CUresult tow_send_{f.name}({send_params(f)});")
    w("\n#endif")
    return w.text()


PUT = {"u64": "tow_enc_u64", "u32": "tow_enc_u32", "f32": "tow_enc_f32"}
GET = {"u64": "tow_dec_u64", "u32": "tow_dec_u32", "f32": "tow_dec_f32"}


def _put(w, k, expr, indent="    "):
    if k in ("handle", "addr"):
        w(f"{indent}tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)({expr}));")
    elif k == "device":
        w(f"{indent}tow_enc_u32(&call.enc, (uint32_t)tow_device_to_server({expr}));")
    elif k == "u64":
        w(f"{indent}tow_enc_u64(&call.enc, (uint64_t)({expr}));")
    elif k == "u32":
        w(f"{indent}tow_enc_u32(&call.enc, (uint32_t)({expr}));")
    else:
        w(f"{indent}tow_enc_f32(&call.enc, {expr});")


def pack(model, v, w):
    """A record that the client's hook changes: packed before the call begins, since that may fail."""
    a, hook = v.param, model.translated(v.param.base, "client")
    if v.role == "array":
        w(f"    for (size_t i = 0; {a.name} != NULL && i < (size_t)({a.count}); i++) {{\n        {a.base} one = {a.name}[i];")
        w(f"        CUresult packed = tow_pack_{hook}(&one, &link);\n        if (packed != CUDA_SUCCESS) {{\n            return packed;\n        }}\n    }}")
        return
    value = a.name if a.stars == 0 else f"*{a.name}"
    w(f"    {a.base} {a.name}_wire;\n    memset(&{a.name}_wire, 0, sizeof {a.name}_wire);")
    body = f"{a.name}_wire = {value};\n    CUresult {a.name}_packed = tow_pack_{hook}(&{a.name}_wire, &link);"
    if "opt" in a.words:
        body = f"CUresult {a.name}_packed = CUDA_SUCCESS;\n    if ({a.name} != NULL) {{\n        {a.name}_wire = {value};\n        {a.name}_packed = tow_pack_{hook}(&{a.name}_wire, &link);\n    }}"
    w(f"    {body}\n    if ({a.name}_packed != CUDA_SUCCESS) {{\n        return {a.name}_packed;\n    }}")


def send(model, f, w):
    p = plan(model, f)
    w(f"/* {f.where} */")
    w(f"CUresult tow_send_{f.name}({send_params(f)})\n{{")
    size = 8 * len(p.send8) + 4 * (len(p.send4) + bool(p.present)) + 8
    size += 8 * sum(1 for v in p.reply_var if v.param.count.startswith("*"))
    terms = [str(size)]
    for v in p.send_var:
        a = v.param
        if v.role == "cstr":
            w(f"    size_t {a.name}_size = strlen({a.name}) + 1;")
            terms.append(f"{a.name}_size + 16")
        elif v.role == "array":
            n = a.bytes or f"({a.count}) * sizeof *{a.name}"
            terms.append(f"({a.name} != NULL ? (size_t)({n}) : 0) + 8")
        elif a.stars == 0:
            terms.append(f"sizeof {a.name} + 8")
        else:
            terms.append(f"sizeof *{a.name} + 8")
    devices = [a for a in p.send4 if a.klass == "device" and a.role != "in*"]
    packed = [v for v in p.send_var if v.klass == "record" and model.translated(v.param.base, "client")]
    routed = devices or packed
    if routed:
        w("    struct tow_link *link = NULL;")
    for a in devices:
        w(f"    CUresult {a.param.name}_status = tow_device_route({a.param.name}, &link);")
        w(f"    if ({a.param.name}_status != CUDA_SUCCESS) {{\n        return {a.param.name}_status;\n    }}")
    for v in packed:
        pack(model, v, w)
    for v in p.reply_var:
        a = v.param
        if v.role == "array" and a.count.startswith("*"):
            w(f"    size_t {a.name}_room = {a.name} != NULL ? (size_t)({a.count}) : 0;")
    w("    struct tow_call call;")
    flags = []
    if "async" not in f.flags:
        flags.append("TOW_CALL_REPLY")
    if "noctx" not in f.flags:
        flags.append("TOW_CALL_CONTEXT")
    if "captured" in f.flags:
        flags.append(f"tow_capture_flag({f.stream.name})")
    begin = "tow_call_begin_for(&call, link, " if routed else "tow_call_begin(&call, "
    w(f"    CUresult status = {begin}TOW_FN_{f.name}, {' + '.join(terms)}, {' | '.join(flags) or '0'});")
    w("    if (status != CUDA_SUCCESS) {\n        return status;\n    }")
    for s in p.send8:
        a = s.param
        if s.role == "in*":
            v = f"({a.name} != NULL ? *{a.name} : 0)" if "opt" in a.words else f"*{a.name}"
            _put(w, s.klass, v)
        else:
            _put(w, s.klass, a.name)
    for s in p.send4:
        a = s.param
        v = a.name if s.role != "in*" else f"({a.name} != NULL ? *{a.name} : 0)" if "opt" in a.words else f"*{a.name}"
        _put(w, s.klass, v)
    if p.present:
        bits = " | ".join(f"({a.name} != NULL ? {1 << i}u : 0u)" for i, a in enumerate(p.present))
        w(f"    tow_enc_u32(&call.enc, {bits});")
    w("    tow_enc_align(&call.enc, 8);")
    for v in p.send_var:
        a = v.param
        if v.role == "cstr":
            w(f"    tow_enc_u32(&call.enc, (uint32_t){a.name}_size);")
            w(f"    tow_enc_bytes(&call.enc, {a.name}, {a.name}_size);")
        elif v in packed and v.role == "array":
            w(f"    for (size_t i = 0; {a.name} != NULL && i < (size_t)({a.count}); i++) {{")
            w(f"        {a.base} one = {a.name}[i];\n        tow_pack_{model.translated(a.base, 'client')}(&one, &link);\n        tow_enc_bytes(&call.enc, &one, sizeof one);\n    }}")
        elif v in packed:
            value = f"    tow_enc_bytes(&call.enc, &{a.name}_wire, sizeof {a.name}_wire);"
            w(f"    if ({a.name} != NULL) {{\n    {value}\n    }}" if "opt" in a.words else value)
        elif v.role == "array":
            n = a.bytes or f"({a.count}) * sizeof *{a.name}"
            if "opt" in a.words:
                w(f"    if ({a.name} != NULL) {{\n        tow_enc_bytes(&call.enc, {a.name}, (size_t)({n}));\n    }}")
            else:
                w(f"    tow_enc_bytes(&call.enc, {a.name}, (size_t)({n}));")
        elif a.stars == 0:
            w(f"    tow_enc_bytes(&call.enc, &{a.name}, sizeof {a.name});")
        elif "opt" in a.words:
            w(f"    if ({a.name} != NULL) {{\n        tow_enc_bytes(&call.enc, {a.name}, sizeof *{a.name});\n    }}")
        else:
            w(f"    tow_enc_bytes(&call.enc, {a.name}, sizeof *{a.name});")
        w("    tow_enc_align(&call.enc, 8);")
    if "async" in f.flags:
        w("    return tow_call_send(&call);\n}\n")
        return
    outs = p.reply8 or p.reply4 or p.reply_var
    if not outs:
        w("    return tow_call_end(&call, tow_call_wait(&call));\n}\n")
        return
    w("    status = tow_call_wait(&call);\n    if (status == CUDA_SUCCESS) {")
    for s in p.reply8 + p.reply4:
        a = s.param
        if s.klass == "handle":
            value = f"({a.base})(uintptr_t)tow_dec_u64(&call.dec)"
        elif s.klass == "device":
            value = "tow_device_on(call.link, (int)tow_dec_u32(&call.dec))"
        else:
            value = f"({a.base}){GET[s.klass]}(&call.dec)"
        if "opt" in a.words:
            w(f"        {a.base} {a.name}_value = {value};\n        if ({a.name} != NULL) {{\n            *{a.name} = {a.name}_value;\n        }}")
        else:
            w(f"        *{a.name} = {value};")
    if p.reply_var:
        w("        tow_dec_align(&call.dec, 8);")
    for s in p.reply_var:
        a = s.param
        if s.role == "array" and a.count.startswith("*"):
            w(f"        tow_call_get_array(&call, {a.name}, sizeof *{a.name}, {a.name}_room);")
        elif s.role == "array":
            n = a.bytes or f"({a.count}) * sizeof *{a.name}"
            w(f"        tow_call_get_bytes(&call, {a.name}, (size_t)({n}));")
        else:
            w(f"        tow_call_get_bytes(&call, {a.name}, sizeof *{a.name});")
            hook = model.translated(a.base, "client")
            if hook:
                w(f"        if ({a.name} != NULL) {{\n            tow_unpack_{hook}(call.link, {a.name});\n        }}")
    w("    }\n    return tow_call_end(&call, status);\n}\n")


def body(model, f, w):
    """tow_cuX where nobody wrote one by hand: checks what the driver checks at once, then sends."""
    w(f"/* {f.where} */\nCUresult tow_{f.name}({f.prototype})\n{{")
    need = [p.name for p in f.params if p.stars and not p.words & {"opt", "addr"}]
    counted = {p.name: p for p in f.params if p.count and not p.count.startswith("*")}
    tests = []
    for n in need:
        if n in counted:
            tests.append(f"({n} == NULL && ({counted[n].count}) > 0)")
        else:
            tests.append(f"{n} == NULL")
    if tests:
        w(f"    if ({' || '.join(tests)}) {{\n        return CUDA_ERROR_INVALID_VALUE;\n    }}")
    for p in f.params:
        if "reach" in p.words:
            w(f"    CUresult {p.name}_status = tow_mirror_reach({p.name});\n    if ({p.name}_status != CUDA_SUCCESS) {{\n        return {p.name}_status;\n    }}")
    new = [p for p in f.params if "new" in p.words]
    drop = [p for p in f.params if "drop" in p.words]
    args = ", ".join(f"({p.base})(uintptr_t)id" if p in new else p.name for p in f.params)
    if new:
        n = new[0]
        kind = model.handle_kind(n.base)
        w(f"    uint64_t id = 0;\n    CUresult status = tow_handle_mint({kind}, &id);\n    if (status != CUDA_SUCCESS) {{\n        return status;\n    }}")
        w(f"    status = tow_send_{f.name}({args});")
        w(f"    if (status != CUDA_SUCCESS) {{\n        tow_handle_retire(id);\n        return status;\n    }}\n    *{n.name} = ({n.base})(uintptr_t)id;\n    return CUDA_SUCCESS;\n}}\n")
        return
    if drop:
        d = drop[0]
        w(f"    CUresult status = tow_send_{f.name}({args});\n    if (status == CUDA_SUCCESS) {{\n        tow_handle_retire((uint64_t)(uintptr_t){d.name});\n    }}\n    return status;\n}}\n")
        return
    w(f"    return tow_send_{f.name}({args});\n}}\n")


def trace(model, f, w):
    w(f"static void trace_{f.name}({', '.join(['CUresult result'] + [p.declare for p in f.params])})\n{{")
    w(f"    struct tow_trace t;\n    tow_trace_begin(&t, TOW_FN_{f.name});")
    for p in f.params:
        k = model.klass(p.base)
        if p.stars == 0:
            if k == "f32":
                w(f'    tow_trace_float(&t, "{p.name}", (double){p.name});')
            elif k == "u64" or k == "handle":
                w(f'    tow_trace_hex(&t, "{p.name}", (uint64_t)(uintptr_t){p.name});' if k == "handle" or "ptr" in p.ctype else f'    tow_trace_int(&t, "{p.name}", (long long){p.name});')
            elif k in ("u32", "device"):
                w(f'    tow_trace_int(&t, "{p.name}", (long long){p.name});')
            elif k == "record":
                w(f'    tow_trace_record(&t, "{p.name}", &{p.name}, sizeof {p.name});')
            else:
                w(f'    tow_trace_hex(&t, "{p.name}", (uint64_t)(uintptr_t){p.name});')
        elif "cstr" in p.words:
            w(f'    tow_trace_text(&t, "{p.name}", {p.name});')
        elif p.stars == 1 and not p.count and not p.bytes and k in ("u64", "u32", "device", "handle") and p.base != "void":
            w(f'    tow_trace_out(&t, "{p.name}", {p.name}, result == CUDA_SUCCESS && {p.name} != NULL ? (uint64_t)(uintptr_t)*{p.name} : 0, result);')
        else:
            w(f'    tow_trace_hex(&t, "{p.name}", (uint64_t)(uintptr_t){p.name});')
    w("    tow_trace_end(&t, result);\n}\n")


def entry(model, f, w):
    trace(model, f, w)
    answer = f"tow_refuse(TOW_FN_{f.name})" if f.stub else f"tow_{f.name}({f.args})"
    result_args = ", ".join(["result"] + [p.name for p in f.params])
    event = next((p.name for p in f.params if p.base == "CUevent"), "")
    told = "" if f.stub else f"    tow_event_elsewhere({event});\n" if "records" in f.flags else f"    tow_event_in_graph({event});\n" if "awaits" in f.flags else ""
    observed = f"{told}    if (__builtin_expect(tow_observed != 0, 0)) {{\n        struct tow_observation o;\n        tow_observe_begin(&o, TOW_FN_{f.name});\n        CUresult result = {answer};\n        if (tow_observe_end(&o, result)) {{\n            trace_{f.name}({result_args});\n        }}\n        return tow_logged(TOW_FN_{f.name}, result);\n    }}"
    w(f"/* {f.where} */\nTOW_PUBLIC CUresult CUDAAPI {f.name}({f.prototype})\n{{\n{observed}\n    return tow_logged(TOW_FN_{f.name}, {answer});\n}}\n")
    if f.stub:
        if f.variant:
            w(f"TOW_PUBLIC CUresult CUDAAPI {f.name}_{f.variant}({f.prototype})\n{{\n    return {f.name}({f.args});\n}}\n")
        return
    if f.variant == "ptsz":
        stream = [p.name for p in f.params if p.base == "CUstream" and p.stars == 0]
        if not stream:
            stream = [p.name for p in f.params if p.base == "CUstream"]
        w(f"TOW_PUBLIC CUresult CUDAAPI {f.name}_ptsz({f.prototype})\n{{")
        config = [p for p in f.params if p.base == "CUlaunchConfig"]
        params = [p for p in f.params if p.base == "CUDA_GRAPH_INSTANTIATE_PARAMS"]
        if stream:
            for s in stream:
                w(f"    if ({s} == NULL) {{\n        {s} = CU_STREAM_PER_THREAD;\n    }}")
            w(f"    return {f.name}({f.args});\n}}\n")
        elif config:
            c = config[0].name
            w(f"    if ({c} == NULL || {c}->hStream != NULL) {{\n        return {f.name}({f.args});\n    }}\n    CUlaunchConfig own = *{c};\n    own.hStream = CU_STREAM_PER_THREAD;")
            w(f"    return {f.name}({', '.join('&own' if p.name == c else p.name for p in f.params)});\n}}\n")
        elif params:
            w(f"    return {f.name}({f.args});\n}}\n")
        else:
            raise ValueError(f"{f.where}: {f.name}: ptsz without a stream parameter")
    elif f.variant == "ptds":
        w(f"TOW_PUBLIC CUresult CUDAAPI {f.name}_ptds({f.prototype})\n{{\n    tow_per_thread_enter();\n    CUresult result = {f.name}({f.args});\n    tow_per_thread_leave();\n    return result;\n}}\n")


def source(model, family):
    w = Writer(f"Client side of {family.name}.")
    w('#include "client/link/call.h"\n#include "client/edge/logs.h"\n#include "client/edge/observe.h"\n#include "gen/client_api.h"\n#include "gen/' + family.name + '_client.h"\n\n#include <string.h>\n')
    if any("reach" in p.words for f in family.functions for p in f.params):
        w('#include "client/hostmem/mirror.h"\n')
    for f in family.functions:
        if "same" in f.calls:
            w(f"/* {f.where} */\nCUresult tow_{f.name}({f.prototype})\n{{\n    return tow_{f.calls['same']}({f.args});\n}}\n")
        if f.plain_send:
            send(model, f, w)
            if "client-by-hand" not in f.flags:
                body(model, f, w)
        entry(model, f, w)
    return w.text()


def base_name(name):
    import re

    return re.sub(r"_v\d$", "", name)


def procs(model):
    w = Writer("The versions that cuGetProcAddress chooses from.")
    w('#include "gen/client_api.h"\n#include "gen/cuda_abi.h"\n\nconst struct tow_proc tow_procs[] = {')
    rows = []
    for f in model.functions:
        pt = f"{f.name}_{f.variant}" if f.variant else ""
        rows.append((base_name(f.name), f.since, int(f.calls.get(f.variant, 0) or 0) if f.variant else 0, f.name, pt))
    rows.sort()
    for name, since, pts, entry_name, pt in rows:
        w(f'    {{"{name}", {since}, {pts}, (void *){entry_name}, {"(void *)" + pt if pt else "0"}}},')
    w("};\nconst unsigned tow_proc_count = sizeof tow_procs / sizeof tow_procs[0];")
    return w.text()


def export_map(model):
    lines = ["{", "global:"]
    for f in model.functions:
        lines.append(f"    {f.name};")
        if f.variant:
            lines.append(f"    {f.name}_{f.variant};")
    lines += ["local:", "    *;", "};"]
    return "\n".join(lines) + "\n"


def error_names(model):
    """CUresult values with their names; the sentences stand in src/client/session/error.c."""
    w = Writer("Names of the result codes.")
    tag = model.resolve("CUresult")[5:]
    values = next(v for t, v, _ in model.types.enums if t == tag)
    for name, value in values:
        w(f"TOW_RESULT({name}, {value})")
    return w.text()
