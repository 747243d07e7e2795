# SPDX-License-Identifier: Apache-2.0
"""The client: exported entries, marshalling, cuGetProcAddress table, export map, call tracing."""

import re

from cgen import plan
from emit import Code


def send_params(f):
    """A `new` handle reaches the send function as the id that the client minted."""
    return ", ".join(f"{p.base} {p.name}" if "new" in p.words else p.declare for p in f.params) or "void"


PROCS = """struct towc_proc {
    const char *name;     /* without version suffix */
    int since;            /* first CUDA version, 12030 = 12.3 */
    int per_thread_since; /* 0: no per-thread-stream variant */
    void *entry, *per_thread_entry;
};
/* Sorted by name, then by version. */
extern const struct towc_proc towc_procs[];
extern const unsigned towc_proc_count;"""


def api_header(model):
    w = Code("What the client's families share.")
    with w.guard("CLIENT_API"):
        w.include("gen/cuda_types.h")
        w()
        w.comment("Records as the server understands them, and back. Packing changes a copy; a device named "
                  "in it decides the server (*link, left alone if there is none).")
        w("struct towc_link;")
        for name in sorted(n for n, side in model.types.translate.items() if side == "client"):
            w(f"CUresult towc_pack_{name}({name} *record, struct towc_link **link);")
            w(f"void towc_unpack_{name}(struct towc_link *link, {name} *record);")
        w()
        w.lines.extend(PROCS.split("\n"))
    return w.text()


def family_header(family):
    w = Code(f"What the client implements of {family.name}, by hand or generated.")
    with w.guard(f"{family.name.upper()}_CLIENT"):
        w.include(f"gen/{family.name}.h")
        w()
        w.comment("towc_cuX: the body of cuX. "
                  "towc_send_cuX: its plain marshalling, for bodies written by hand.")
        for f in family.functions:
            if not f.stub:
                w(f"CUresult towc_{f.name}({f.prototype});")
            if f.plain_send:
                w(f"CUresult towc_send_{f.name}({send_params(f)});")
    return w.text()


def size_of(a):
    """The bytes of an array parameter."""
    return f"(size_t)({a.bytes or f'({a.count}) * sizeof *{a.name}'})"


def is_listed(field):
    """An array of which the reply says how long it is."""
    return field.role == "array" and field.param.count.startswith("*")


class Sender:
    """towc_send_cuX: encodes a command, and decodes its reply if there is one."""

    def __init__(self, model, f, w):
        self.model, self.f, self.w, self.plan = model, f, w, plan(model, f)
        self.devices = [a for a in self.plan.send4 if a.klass == "device" and a.role != "in*"]
        self.packed = [v for v in self.plan.send_var
                       if v.klass == "record" and model.translated(v.param.base, "client")]

    def write(self):
        w, f, p = self.w, self.f, self.plan
        with w.function(f"CUresult towc_send_{f.name}({send_params(f)})", f"Sends {f.name} ({f.where})."):
            for v in p.send_var:
                if v.role == "cstr":
                    w.set(f"size_t {v.param.name}_size", f"strlen({v.param.name}) + 1")
            self.route()
            for a in (v.param for v in p.reply_var if is_listed(v)):
                w.set(f"size_t {a.name}_room", f"{a.name} != NULL ? (size_t)({a.count}) : 0")
            self.begin()
            self.encode()
            if "async" in f.flags:
                w.ret("towc_call_send(&call)")
            elif not (p.reply8 or p.reply4 or p.reply_var):
                w.ret("towc_call_end(&call, towc_call_wait(&call))")
            else:
                w.set("status", "towc_call_wait(&call)")
                with w.if_("status == CUDA_SUCCESS"):
                    self.decode()
                w.ret("towc_call_end(&call, status)")

    def route(self):
        """A device, or a record that names one, decides the server; that may fail."""
        w = self.w
        if self.devices or self.packed:
            w("struct towc_link *link = NULL;")
        for name in (a.param.name for a in self.devices):
            w.set(f"CUresult {name}_status", f"towc_device_route({name}, &link)")
            w.ret_unless_success(f"{name}_status")
        for v in self.packed:
            if v.role == "array":
                self.pack_array(v.param)
            else:
                self.pack_record(v.param)

    def pack_array(self, a):
        w, hook = self.w, self.model.translated(a.base, "client")
        with w.for_("size_t", f"{a.name} != NULL && i < (size_t)({a.count})"):
            w.set(f"{a.base} one", f"{a.name}[i]")
            w.set("CUresult packed", f"towc_pack_{hook}(&one, &link)")
            w.ret_unless_success("packed")

    def pack_record(self, a):
        w, hook = self.w, self.model.translated(a.base, "client")
        value = a.name if a.stars == 0 else f"*{a.name}"
        w(f"{a.base} {a.name}_wire;")
        w.call("memset", f"&{a.name}_wire", "0", f"sizeof {a.name}_wire")
        if "opt" in a.words:
            w.set(f"CUresult {a.name}_packed", "CUDA_SUCCESS")
            with w.if_(f"{a.name} != NULL"):
                w.set(f"{a.name}_wire", value)
                w.set(f"{a.name}_packed", f"towc_pack_{hook}(&{a.name}_wire, &link)")
        else:
            w.set(f"{a.name}_wire", value)
            w.set(f"CUresult {a.name}_packed", f"towc_pack_{hook}(&{a.name}_wire, &link)")
        w.ret_unless_success(f"{a.name}_packed")

    def size(self):
        """How many bytes the command may take."""
        w, p = self.w, self.plan
        fixed = 8 + 8 * len(p.send8) + 4 * (len(p.send4) + bool(p.present))
        fixed += 8 * sum(map(is_listed, p.reply_var))
        fixed += sum(16 if v.role == "cstr" else 8 for v in p.send_var)
        if not p.send_var:
            return str(fixed)
        w.set("size_t call_size", str(fixed))
        for v in p.send_var:
            a = v.param
            if v.role == "cstr":
                w(f"call_size += {a.name}_size;")
            elif v.role == "array":
                with w.if_(f"{a.name} != NULL"):
                    w(f"call_size += {size_of(a)};")
            else:
                w(f"call_size += sizeof {'*' if a.stars else ''}{a.name};")
        return "call_size"

    def begin(self):
        w, f = self.w, self.f
        size = self.size()
        flags = [] if "async" in f.flags else ["TOW_CALL_REPLY"]
        if "noctx" not in f.flags:
            flags.append("TOW_CALL_CONTEXT")
        if "captured" in f.flags:
            flags.append(f"towc_capture_flag({f.stream.name})")
        w("struct towc_call call;")
        routed = self.devices or self.packed
        begin = "towc_call_begin_for(&call, link, " if routed else "towc_call_begin(&call, "
        w.set("CUresult status", f"{begin}TOW_FN_{f.name}, {size}, {' | '.join(flags) or '0'})")
        w.ret_unless_success("status")

    def encode(self):
        w, p = self.w, self.plan
        for s in p.send8 + p.send4:
            value = s.param.name
            if s.role == "in*":
                value = f"({value} != NULL ? *{value} : 0)" if "opt" in s.param.words else f"*{value}"
            self.encode_scalar(s.klass, value)
        if p.present:
            w("uint32_t call_present = 0;")
            for i, a in enumerate(p.present):
                w(f"call_present |= {a.name} != NULL ? {1 << i}u : 0u;")
            w.call("tow_enc_u32", "&call.enc", "call_present")
        w.call("tow_enc_align", "&call.enc", "8")
        for v in p.send_var:
            self.encode_var(v)
            w.call("tow_enc_align", "&call.enc", "8")

    def encode_scalar(self, klass, value):
        put = self.w.call
        if klass in ("handle", "addr"):
            put("tow_enc_u64", "&call.enc", f"(uint64_t)(uintptr_t)({value})")
        elif klass == "device":
            put("tow_enc_u32", "&call.enc", f"(uint32_t)towc_device_to_server({value})")
        elif klass == "f32":
            put("tow_enc_f32", "&call.enc", value)
        else:
            put(f"tow_enc_{klass}", "&call.enc", f"(uint{klass[1:]}_t)({value})")

    def encode_var(self, v):
        w, a = self.w, v.param
        if v.role == "cstr":
            w.call("tow_enc_u32", "&call.enc", f"(uint32_t){a.name}_size")
            w.call("tow_enc_bytes", "&call.enc", a.name, f"{a.name}_size")
            return
        if v in self.packed and v.role == "array":
            with w.for_("size_t", f"{a.name} != NULL && i < (size_t)({a.count})"):
                w.set(f"{a.base} one", f"{a.name}[i]")
                w.call(f"towc_pack_{self.model.translated(a.base, 'client')}", "&one", "&link")
                w.call("tow_enc_bytes", "&call.enc", "&one", "sizeof one")
            return
        if v in self.packed:
            bytes_ = (f"&{a.name}_wire", f"sizeof {a.name}_wire")
        elif v.role == "array":
            bytes_ = (a.name, size_of(a))
        elif a.stars == 0:
            bytes_ = (f"&{a.name}", f"sizeof {a.name}")
        else:
            bytes_ = (a.name, f"sizeof *{a.name}")
        if "opt" in a.words:
            with w.if_(f"{a.name} != NULL"):
                w.call("tow_enc_bytes", "&call.enc", *bytes_)
        else:
            w.call("tow_enc_bytes", "&call.enc", *bytes_)

    def decode(self):
        w, p = self.w, self.plan
        for s in p.reply8 + p.reply4:
            self.decode_scalar(s)
        if p.reply_var:
            w.call("tow_dec_align", "&call.dec", "8")
        for s in p.reply_var:
            a = s.param
            if is_listed(s):
                w.call("towc_call_get_array", "&call", a.name, f"sizeof *{a.name}", f"{a.name}_room")
            elif s.role == "array":
                w.call("towc_call_get_bytes", "&call", a.name, size_of(a))
            else:
                w.call("towc_call_get_bytes", "&call", a.name, f"sizeof *{a.name}")
                if hook := self.model.translated(a.base, "client"):
                    with w.if_(f"{a.name} != NULL"):
                        w.call(f"towc_unpack_{hook}", "call.link", a.name)

    def decode_scalar(self, s):
        w, a = self.w, s.param
        if s.klass == "handle":
            value = f"({a.base})(uintptr_t)tow_dec_u64(&call.dec)"
        elif s.klass == "device":
            value = "towc_device_on(call.link, (int)tow_dec_u32(&call.dec))"
        else:
            value = f"({a.base})tow_dec_{s.klass}(&call.dec)"
        if "opt" not in a.words:
            w.set(f"*{a.name}", value)
            return
        w.set(f"{a.base} {a.name}_value", value)
        with w.if_(f"{a.name} != NULL"):
            w.set(f"*{a.name}", f"{a.name}_value")


def check_arguments(f, w):
    """What the driver refuses at once."""
    tests = []
    for p in f.params:
        if not p.stars or p.words & {"opt", "addr"}:
            continue
        if p.count and not p.count.startswith("*"):
            tests.append(f"({p.name} == NULL && ({p.count}) > 0)")
        else:
            tests.append(f"{p.name} == NULL")
    if tests:
        w.ret_if(" || ".join(tests), "CUDA_ERROR_INVALID_VALUE")
    for p in f.params:
        if "reach" in p.words:
            w.set(f"CUresult {p.name}_status", f"towc_mirror_reach_work({p.name})")
            w.ret_unless_success(f"{p.name}_status")


def body(model, f, w):
    """towc_cuX where nobody wrote one by hand: checks what the driver checks at once, then sends."""
    with w.function(f"CUresult towc_{f.name}({f.prototype})", f"The body of {f.name} ({f.where})."):
        check_arguments(f, w)
        new = next((p for p in f.params if "new" in p.words), None)
        drop = next((p for p in f.params if "drop" in p.words), None)
        args = ", ".join(f"({p.base})(uintptr_t)id" if p is new else p.name for p in f.params)
        if new:
            w("uint64_t id = 0;")
            w.set("CUresult status", f"towc_handle_mint({model.handle_kind(new.base)}, &id)")
            w.ret_unless_success("status")
            w.set("status", f"towc_send_{f.name}({args})")
            with w.if_("status != CUDA_SUCCESS"):
                w.call("towc_handle_retire", "id")
                w.ret("status")
            w.set(f"*{new.name}", f"({new.base})(uintptr_t)id")
            w.ret("CUDA_SUCCESS")
        elif drop:
            w.set("CUresult status", f"towc_send_{f.name}({args})")
            with w.if_("status == CUDA_SUCCESS"):
                w.call("towc_handle_retire", f"(uint64_t)(uintptr_t){drop.name}")
            w.ret("status")
        else:
            w.ret(f"towc_send_{f.name}({args})")


def trace_parameter(model, p, w):
    k, what = model.klass(p.base), f'"{p.name}"'
    if "cstr" in p.words:
        w.call("towc_trace_text", "&t", what, p.name)
    elif p.stars == 0 and p.base in ("CUfunction", "CUkernel"):
        w.call("towc_trace_kernel", "&t", what, p.name)
    elif p.stars == 0 and k == "f32":
        w.call("towc_trace_float", "&t", what, f"(double){p.name}")
    elif p.stars == 0 and (k in ("u32", "device") or k == "u64" and "ptr" not in p.ctype):
        w.call("towc_trace_int", "&t", what, f"(long long){p.name}")
    elif p.stars == 0 and k == "record":
        w.call("towc_trace_record", "&t", what, f"&{p.name}", f"sizeof {p.name}")
    elif p.stars == 1 and not p.count and not p.bytes and k in ("u64", "u32", "device", "handle"):
        with w.if_(f"result == CUDA_SUCCESS && {p.name} != NULL"):
            w.call("towc_trace_out", "&t", what, p.name, f"(uint64_t)(uintptr_t)*{p.name}", "result")
        with w.else_():
            w.call("towc_trace_out", "&t", what, p.name, "0", "result")
    else:
        w.call("towc_trace_hex", "&t", what, f"(uint64_t)(uintptr_t){p.name}")


def trace(model, f, w):
    params = ", ".join(["CUresult result"] + [p.declare for p in f.params])
    with w.function(f"static void trace_{f.name}({params})", f"Traces a call of {f.name} ({f.where})."):
        w("struct towc_trace t;")
        w.call("towc_trace_begin", "&t", f"TOW_FN_{f.name}")
        for p in f.params:
            trace_parameter(model, p, w)
        w.call("towc_trace_end", "&t", "result")


def told(f):
    """Calls that let a graph record or await an event say so first; the client does not see it otherwise."""
    event = next((p.name for p in f.params if p.base == "CUevent"), "")
    if f.stub:
        return None
    if "records" in f.flags:
        return "towc_event_elsewhere", event
    if "awaits" in f.flags:
        return "towc_event_in_graph", event
    return None


def entry(model, f, w):
    """cuX itself: the body, and around it what observes calls."""
    trace(model, f, w)
    answer = f"towc_refuse(TOW_FN_{f.name})" if f.stub else f"towc_{f.name}({f.args})"
    with w.function(f"TOW_PUBLIC CUresult CUDAAPI {f.name}({f.prototype})", documented(f)):
        if call := told(f):
            w.call(*(part for part in call if part))
        with w.if_("__builtin_expect(towc_observed != 0, 0)"):
            w("struct towc_observation o;")
            w.call("towc_observe_begin", "&o", f"TOW_FN_{f.name}")
            w.set("CUresult result", answer)
            with w.if_("towc_observe_end(&o, result)"):
                w.call(f"trace_{f.name}", "result", *(p.name for p in f.params))
            w.ret(f"towc_logged(TOW_FN_{f.name}, result)")
        w.set("CUresult answer", answer)
        w.ret(f"towc_logged(TOW_FN_{f.name}, answer)")
    if f.variant:
        variant(f, w)


def documented(f):
    return f"{f.doc} ({f.where})" if f.doc else f"{f.name} ({f.where})"


def variant(f, w):
    """cuX_ptsz and cuX_ptds: the same with the thread's own stream in the place of the default one."""
    head = f"TOW_PUBLIC CUresult CUDAAPI {f.name}_{f.variant}({f.prototype})"
    with w.function(head, f"{f.name} with the thread's own default stream ({f.where})."):
        if f.stub:
            w.ret(f"{f.name}({f.args})")
        elif f.variant == "ptds":
            w.call("towc_per_thread_enter")
            w.set("CUresult result", f"{f.name}({f.args})")
            w.call("towc_per_thread_leave")
            w.ret("result")
        else:
            own_stream(f, w)


def own_stream(f, w):
    streams = [p for p in f.params if p.base == "CUstream"]
    streams = [p for p in streams if p.stars == 0] or streams
    config = next((p.name for p in f.params if p.base == "CUlaunchConfig"), None)
    if streams:
        for p in streams:
            with w.if_(f"{p.name} == NULL"):
                w.set(p.name, "CU_STREAM_PER_THREAD")
    elif config:
        w.ret_if(f"{config} == NULL || {config}->hStream != NULL", f"{f.name}({f.args})")
        w.set("CUlaunchConfig own", f"*{config}")
        w.set("own.hStream", "CU_STREAM_PER_THREAD")
        w.ret(f"{f.name}({', '.join('&own' if p.name == config else p.name for p in f.params)})")
        return
    elif not any(p.base == "CUDA_GRAPH_INSTANTIATE_PARAMS" for p in f.params):
        raise ValueError(f"{f.where}: {f.name}: ptsz without a stream parameter")
    w.ret(f"{f.name}({f.args})")


def source(model, family):
    w = Code(f"Client side of {family.name}.")
    includes = ["client/edge/logs.h", "client/edge/observe.h", "client/link/call.h"]
    if any("reach" in p.words for f in family.functions for p in f.params):
        includes.append("client/hostmem/mirror.h")
    w.include("<string.h>")
    w.include(*includes, "gen/client_api.h", f"gen/{family.name}_client.h")
    for f in family.functions:
        if "same" in f.calls:
            same = f.calls["same"]
            with w.function(f"CUresult towc_{f.name}({f.prototype})", f"The same as {same} ({f.where})."):
                w.ret(f"towc_{same}({f.args})")
        if f.plain_send:
            Sender(model, f, w).write()
            if "client-by-hand" not in f.flags:
                body(model, f, w)
        entry(model, f, w)
    return w.text()


def base_name(name):
    return re.sub(r"_v\d$", "", name)


def procs(model):
    w = Code("The versions that cuGetProcAddress chooses from.")
    w.include("gen/client_api.h", "gen/cuda_abi.h")
    w()
    rows = []
    for f in model.functions:
        per_thread = f"{f.name}_{f.variant}" if f.variant else ""
        since = int(f.calls.get(f.variant, 0) or 0) if f.variant else 0
        rows.append((base_name(f.name), f.since, since, f.name, per_thread))
    with w.block("const struct towc_proc towc_procs[] = {", "};"):
        for name, since, per_thread_since, function, per_thread in sorted(rows):
            other = f"(void *){per_thread}" if per_thread else "0"
            w(f'{{"{name}", {since}, {per_thread_since}, (void *){function}, {other}}},')
    w("const unsigned towc_proc_count = sizeof towc_procs / sizeof towc_procs[0];")
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
    w = Code("Names of the result codes.")
    w()
    tag = model.resolve("CUresult")[5:]
    values = next(v for t, v, _ in model.types.enums if t == tag)
    for name, value in values:
        w(f"TOW_RESULT({name}, {value})")
    return w.text()
