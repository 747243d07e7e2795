# SPDX-License-Identifier: Apache-2.0
"""The server: one handler per function that travels, and the dispatch table."""

from cgen import plan
from emit import Code


def element(a):
    return a.base if a.base != "void" else "unsigned char"


class Handler:
    """serve_cuX: decodes a command, calls the driver, encodes the reply."""

    def __init__(self, model, f, w):
        self.model, self.f, self.w, self.plan = model, f, w, plan(model, f)
        p = self.plan
        self.new = next((s.param for s in p.send8 if s.role == "new"), None)
        self.drops = [s.param for s in p.send8 if s.role == "drop"]
        # The bit of each parameter that may be missing.
        self.bit = {a.name: f"present & {1 << i}u" for i, a in enumerate(p.present)}
        self.sent = {s.param.name for s in p.send8 + p.send4 + p.send_var}
        self.reply = {s.param.name: s for s in p.reply8 + p.reply4 + p.reply_var}
        # Arrays of which the reply says how long they are.
        self.listed = [s.param for s in p.reply_var if s.role == "array" and s.param.count.startswith("*")]

    def kind(self, a):
        return self.model.handle_kind(a.base)

    def write(self):
        w, f = self.w, self.f
        head = f"static void serve_{f.name}(struct tows_serve *call)"
        with w.function(head, f"Serves {f.name} ({f.where})."):
            self.decode()
            args = [self.argument(a) for a in f.params]
            for a in self.listed:
                w.set(f"uint64_t {a.name}_room", f"{a.name} != NULL ? (uint64_t)({a.count}) : 0")
            with w.if_("!tows_serve_ready(call)"):
                if self.new:
                    w.call("tows_serve_bind", "call", self.kind(self.new), f"{self.new.name}_id", "NULL")
                w.ret()
            # First the claim: nobody may find it again once the hook has seen that nobody has it.
            for a in self.drops:
                w.ret_if(f"!tows_serve_claim(call, {self.kind(a)}, {a.name}_id)")
            if "before" in f.calls:
                hook, *rest = f.calls["before"].split(", ")
                w.call(hook, "call->session", *rest)
            w.set("call->status", f"tow_drive(call->driver, {f.name})({', '.join(args)})")
            if self.new:
                w.call("tows_serve_bind", "call", self.kind(self.new), f"{self.new.name}_id", self.new.name)
            for a in self.drops:
                with w.if_("call->status != CUDA_SUCCESS"):
                    w.call("tows_serve_unclaim", "call")
            if self.reply:
                w.ret_if("call->status != CUDA_SUCCESS")
                self.encode()

    def decode(self):
        w, p = self.w, self.plan
        for s in p.send8:
            self.decode8(s)
        for s in p.send4:
            a = s.param
            get = "tow_dec_f32(&call->in)" if s.klass == "f32" else f"({a.base})tow_dec_u32(&call->in)"
            self.take(s, a.ctype, get)
        if p.present:
            w.set("uint32_t present", "tow_dec_u32(&call->in)")
        w.call("tow_dec_align", "&call->in", "8")
        for s in p.send_var:
            self.decode_var(s)
            w.call("tow_dec_align", "&call->in", "8")

    def take(self, s, ctype, value):
        """A scalar, or what a pointer of the program's pointed at."""
        w, a = self.w, s.param
        if s.role == "in*":
            w.set(f"{a.base} {a.name}_value", value)
            w.set(f"{a.base} *{a.name}", f"&{a.name}_value")
        else:
            w.set(f"{ctype}{'' if ctype.endswith('*') else ' '}{a.name}", value)

    def decode8(self, s):
        w, a = self.w, s.param
        if s.role == "new":
            w.set(f"uint64_t {a.name}_id", "tow_dec_u64(&call->in)")
            w.set(f"{a.base} {a.name}", "NULL")
        elif s.klass == "handle":
            w.set(f"uint64_t {a.name}_id", "tow_dec_u64(&call->in)")
            self.take(s, a.base, f"({a.base})tows_serve_handle(call, {self.kind(a)}, {a.name}_id)")
        elif s.klass == "addr":
            w.set(f"void *{a.name}", "(void *)(uintptr_t)tow_dec_u64(&call->in)")
        else:
            self.take(s, a.ctype, f"({a.base})tow_dec_u64(&call->in)")

    def decode_var(self, s):
        w, a = self.w, s.param
        hook = self.model.translated(a.base, "server")
        if s.role == "cstr":
            w.set(f"const char *{a.name}", "tows_serve_text(call)")
        elif s.role == "array":
            self.decode_array(s, hook)
        elif a.stars == 0:
            w(f"{a.base} {a.name};")
            w.call("tows_serve_record", "call", f"&{a.name}", f"sizeof {a.name}")
            if hook:
                w.call(f"tows_serve_unpack_{hook}", "call", f"&{a.name}")
        else:
            w(f"{a.base} {a.name}_record;")
            w.set(f"{a.base} *{a.name}", f"&{a.name}_record")
            if a.name in self.bit:
                with w.if_(self.bit[a.name]):
                    w.call("tows_serve_record", "call", f"&{a.name}_record", f"sizeof {a.name}_record")
                with w.else_():
                    w.set(a.name, "NULL")
            else:
                w.call("tows_serve_record", "call", f"&{a.name}_record", f"sizeof {a.name}_record")
            if hook:
                with w.if_(f"{a.name} != NULL"):
                    w.call(f"tows_serve_unpack_{hook}", "call", a.name)

    def set_if_present(self, a, value):
        w = self.w
        if a.name not in self.bit:
            w.set(f"{element(a)} *{a.name}", value)
            return
        w.set(f"{element(a)} *{a.name}", "NULL")
        with w.if_(self.bit[a.name]):
            w.set(a.name, value)

    def decode_array(self, s, hook):
        w, a = self.w, s.param
        if a.bytes:
            w.set(f"const void *{a.name}", f"tows_serve_array(call, (uint64_t)({a.bytes}), 1)")
            return
        self.set_if_present(a, f"tows_serve_array(call, (uint64_t)({a.count}), sizeof({a.base}))")
        if hook:
            with w.for_("size_t", f"{a.name} != NULL && i < (size_t)({a.count})"):
                w.call(f"tows_serve_unpack_{hook}", "call", f"&{a.name}[i]")
        if s.klass == "handle":
            count = f"{a.name} != NULL ? (size_t)({a.count}) : 0"
            w.call("tows_serve_handles", "call", self.kind(a), a.name, count)

    def argument(self, a):
        """What the driver gets; room for what it answers is made."""
        w = self.w
        if "new" in a.words:
            return f"&{a.name}"
        if a.name in self.sent or a.name not in self.reply:
            return a.name
        if self.reply[a.name].role == "array":
            count = a.count or a.bytes
            self.set_if_present(a, f"tows_serve_room(call, (uint64_t)({count}), sizeof({element(a)}))")
            return a.name
        w(f"{a.base} {a.name}_out;")
        w.call("memset", f"&{a.name}_out", "0", f"sizeof {a.name}_out")
        return f"({self.bit[a.name]}) ? &{a.name}_out : NULL" if "opt" in a.words else f"&{a.name}_out"

    def encode(self):
        w, p = self.w, self.plan
        if p.reply_var:
            self.reserve()
        for s in p.reply8 + p.reply4:
            a = s.param
            value = f"{a.name}_value" if a.name in self.sent else f"{a.name}_out"
            if s.klass == "handle":
                w.call("tow_enc_u64", "&call->out", f"tows_serve_export(call, {self.kind(a)}, {value})")
            elif s.klass == "f32":
                w.call("tow_enc_f32", "&call->out", value)
            else:
                bits = "64" if s.klass == "u64" else "32"
                w.call(f"tow_enc_u{bits}", "&call->out", f"(uint{bits}_t){value}")
        if p.reply_var:
            w.call("tow_enc_align", "&call->out", "8")
        for s in p.reply_var:
            if s.role == "array":
                self.encode_array(s)
            else:
                self.encode_record(s.param)
            w.call("tow_enc_align", "&call->out", "8")

    def reserve(self):
        w, p = self.w, self.plan
        w.set("size_t reply_size", str(8 * len(p.reply8 + p.reply4) + 16))
        for s in p.reply_var:
            a = s.param
            if s.role != "array":
                w(f"reply_size += sizeof({a.base}) + 8;")
            else:
                count = f"{a.name}_room" if a in self.listed else a.count or a.bytes
                w(f"reply_size += (size_t)({count}) * sizeof({element(a)}) + 16;")
        w.call("tows_serve_reserve", "call", "reply_size")

    def encode_record(self, a):
        w = self.w
        value = f"{a.name}_record" if a.name in self.sent else f"{a.name}_out"
        if hook := self.model.translated(a.base, "server"):
            w.call(f"tows_serve_pack_{hook}", "call", f"&{value}")
        w.call("tow_enc_bytes", "&call->out", f"&{value}", f"sizeof {value}")

    def encode_array(self, s):
        w, a = self.w, s.param
        if a not in self.listed:
            count = f"(size_t)({a.count or a.bytes})"
            if s.klass == "handle":
                w.call("tows_serve_export_all", "call", self.kind(a), a.name, count)
            w.call("tow_enc_bytes", "&call->out", a.name, f"{count} * sizeof({element(a)})")
            return
        used = f"{a.name}_used"
        w.set(f"size_t {used}", "0")
        with w.if_(f"{a.name} != NULL"):
            w.set(used, f"(size_t)tow_min_u64({a.name}_room, (uint64_t)({a.count}))")
        if s.klass == "handle":
            w.call("tows_serve_export_all", "call", self.kind(a), a.name, used)
        w.call("tow_enc_u64", "&call->out", used)
        with w.if_(f"{used} > 0"):
            w.call("tow_enc_bytes", "&call->out", a.name, f"{used} * sizeof({element(a)})")


def by_hand(f):
    return not f.stub and not f.local and bool(f.flags & {"by-hand", "server-by-hand"})


def source(model, family):
    w = Code(f"Server side of {family.name}.")
    w.include("<string.h>")
    includes = []
    if any("before" in f.calls for f in family.functions):
        includes = ["server/copy/mirror.h", "server/session/completion.h"]
    w.include("gen/server_api.h", f"gen/{family.name}_server.h", *includes, "server/session/serve.h")
    travelling = [f for f in family.functions if not f.stub and not f.local]
    for f in travelling:
        if not by_hand(f):
            Handler(model, f, w).write()
    head = f"void tows_serve_add_{family.name}(tows_serve_fn **table)"
    with w.function(head, f"Puts the handlers of {family.name} into the session's table."):
        for f in travelling:
            w.set(f"table[TOW_FN_{f.name}]", f"{'tows_serve' if by_hand(f) else 'serve'}_{f.name}")
        w("(void)table;")
    return w.text()


def family_header(family):
    w = Code(f"What the server implements of {family.name} by hand.")
    with w.guard(f"{family.name.upper()}_SERVER"):
        w.include(f"gen/{family.name}.h")
        w()
        w("struct tows_serve;")
        for f in family.functions:
            if by_hand(f):
                w(f"void tows_serve_{f.name}(struct tows_serve *call);")
    return w.text()


def header(model):
    w = Code("What the server's families share.")
    with w.guard("SERVER_API"):
        w.include("gen/functions.h", "server/session/serve.h")
        w()
        w.comment("Ids in a record become the driver's handles, and back.")
        for name in sorted(n for n, side in model.types.translate.items() if side == "server"):
            w(f"void tows_serve_unpack_{name}(struct tows_serve *call, {name} *record);")
            w(f"void tows_serve_pack_{name}(struct tows_serve *call, {name} *record);")
        w()
        for family in model.families:
            w(f"void tows_serve_add_{family.name}(tows_serve_fn **table);")
        with w.function("static inline void tows_serve_add_all(tows_serve_fn **table)", "The whole table."):
            for family in model.families:
                w.call(f"tows_serve_add_{family.name}", "table")
    return w.text()
