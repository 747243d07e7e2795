# SPDX-License-Identifier: Apache-2.0
"""Test vectors: every function whose marshalling is generated, with made-up arguments and a made-up driver.

tests/apigen/test_golden.c runs them: the client's half encodes, the bytes are compared with golden/wire.txt,
the server's half decodes them and calls the driver here, which looks at what arrived; the same for
the reply.
"""

import re

from cgen import plan
from emit import Code

COUNT = 3  # of every array; the driver answers ANSWER elements where it says how many there are
ANSWER = 2


def eval_count(expr):
    return eval(re.sub(r"[A-Za-z_]\w*", str(COUNT), expr.replace("*", "")))  # noqa: S307: our own table


class Parameter:
    """One parameter of a vector: its made-up values on both sides."""

    def __init__(self, model, counts, p, index):
        self.model, self.p, self.index = model, p, index
        self.klass = model.klass(p.base)
        self.kind = model.handle_kind(p.base)
        self.hook = model.translated(p.base, "client") or model.translated(p.base, "server")
        self.is_count = p.name in counts
        self.element = p.base if p.base != "void" else "unsigned char"
        self.array = p.count or p.bytes
        self.what = f'"{p.name}"'

    def number(self, answer=False):
        """What a scalar that is not a handle has."""
        index, way = self.index, 0xB if answer else 0xA
        if self.is_count:
            return str(ANSWER if answer else COUNT)
        if self.klass == "u64":
            return f"0x{way:x}1b2c3d4e5f6{index:02x}00ull"
        if self.klass == "f32":
            return f"{index}.5f" if answer else f"{index}.25f"
        if self.model.resolve(self.p.base) in ("int", "long long"):
            return f"-0x{way:x}1b2{index:02x}0"
        return f"0x{5 if answer else 6}{way:x}1b2{index:02x}0"

    def value(self):
        return self.number() if self.klass == "f32" else f"({self.p.base}){self.number()}"

    def counted(self, answer=False):
        """The same of element i."""
        return f"({self.element})({self.number(answer)} + i)"

    def length(self, answer=False):
        if answer and self.p.count.startswith("*"):
            return ANSWER
        return eval_count(self.array) if self.array else 1

    def shape(self, w, record, side):
        if self.hook:
            w.call(f"golden_shape_{self.hook}", f"&{record}", side)

    def address(self):
        return f"0xadd7e5500{self.index:02x}0ull"

    # ---- the driver ----

    def drive(self, f, w):
        """Looks at what came, and answers."""
        p = self.p
        if p.stars == 0:
            self.see_scalar(w)
        elif "cstr" in p.words:
            w.call("golden_see_text", self.what, p.name, f'"made-up {p.name}"')
        elif "addr" in p.words:
            w.call("golden_see_u64", self.what, f"(uint64_t)(uintptr_t){p.name}", self.address())
        elif "new" in p.words:
            w.set(f"*{p.name}", f"({p.base})golden_made({self.kind}, {self.index})")
        else:
            if "opt" in p.words and "server-by-hand" not in f.flags:
                w.call("golden_see_u64", self.what, f"{p.name} != NULL", "!golden_bare")
            with w.if_(f"{p.name} != NULL"):
                if p.words & {"in", "inout"}:
                    with w.for_("size_t", f"i < {self.length()}"):
                        self.see_element(w)
                if p.words & {"out", "inout"}:
                    with w.for_("size_t", f"i < {self.length(True)}"):
                        self.answer_element(w)

    def see_scalar(self, w):
        p = self.p
        if self.klass == "handle":
            w.call("golden_see_handle", self.what, self.kind, str(self.index), p.name)
        elif self.klass == "device":
            w.call("golden_see_u64", self.what, f"(uint64_t){p.name}", "GOLDEN_ORDINAL")
        elif self.klass == "record":
            w(f"{p.base} {p.name}_want;")
            w.call("golden_fill", f"&{p.name}_want", f"sizeof {p.name}_want", str(self.index))
            self.shape(w, f"{p.name}_want", "GOLDEN_DRIVER")
            w.call("golden_see", self.what, f"&{p.name}", f"&{p.name}_want", f"sizeof {p.name}")
        elif self.klass == "f32":
            w.call("golden_see_u64", self.what, f"{p.name} == {self.value()}", "1")
        else:
            w.call("golden_see_u64", self.what, f"(uint64_t){p.name}", f"(uint64_t)({self.value()})")

    def see_element(self, w):
        p, index = self.p, self.index
        at = f"{p.name}[i]" if p.base != "void" else f"((const unsigned char *){p.name})[i]"
        if self.klass == "handle":
            w.call("golden_see_handle", self.what, self.kind, f"{index} * 8 + i", at)
        elif self.klass == "record":
            w(f"{self.element} want;")
            w.call("golden_fill", "&want", "sizeof want", f"{index} + (unsigned)i")
            self.shape(w, "want", "GOLDEN_DRIVER")
            w.call("golden_see", self.what, f"&{at}", "&want", "sizeof want")
        elif self.klass == "other":
            w.call("golden_see_u64", self.what, at, f"(unsigned char)({index} + i)")
        else:
            w.set(f"{self.element} want", self.counted())
            w.call("golden_see", self.what, f"&{at}", "&want", "sizeof want")

    def answer_element(self, w):
        p, index = self.p, self.index
        at = f"{p.name}[i]" if p.base != "void" else f"((unsigned char *){p.name})[i]"
        if self.klass == "handle":
            w.set(at, f"({self.element})golden_made({self.kind}, {index} * 8 + (unsigned)i)")
        elif self.klass == "record":
            w.call("golden_fill", f"&{at}", f"sizeof {at}", f"0x80 + {index} + (unsigned)i")
            self.shape(w, at, "GOLDEN_DRIVER_ANSWER")
        elif self.klass == "other":
            w.set(at, f"(unsigned char)(0x80 + {index} + i)")
        elif self.klass == "device":
            w.set(at, "GOLDEN_ORDINAL")
        else:
            w.set(at, self.counted(True))

    # ---- the program ----

    def argument(self, w):
        """What the program passes, after what is written here to make it."""
        p = self.p
        if p.stars == 0:
            return self.scalar(w)
        if "cstr" in p.words:
            return f'"made-up {p.name}"'
        if "addr" in p.words:
            return f"(void *)(uintptr_t){self.address()}"
        if "new" in p.words:
            return f"({p.base})golden_new({self.kind})"
        w(f"{self.element} {p.name}[{self.length()}];")
        w.call("memset", p.name, "0xee", f"sizeof {p.name}")
        if p.words & {"in", "inout"}:
            with w.for_("unsigned", f"i < {self.length()}"):
                self.make_element(w)
        return f"bare ? NULL : {p.name}" if "opt" in p.words else p.name

    def scalar(self, w):
        p = self.p
        if self.klass == "handle":
            return f"({p.base})golden_id({self.kind}, {self.index})"
        if self.klass == "device":
            return "GOLDEN_DEVICE"
        if self.klass == "record":
            w(f"{p.base} {p.name};")
            w.call("golden_fill", f"&{p.name}", f"sizeof {p.name}", str(self.index))
            self.shape(w, p.name, "GOLDEN_PROGRAM")
            return p.name
        return self.value()

    def make_element(self, w):
        at, index = f"{self.p.name}[i]", self.index
        if self.klass == "handle":
            w.set(at, f"({self.element})golden_id({self.kind}, {index} * 8 + i)")
        elif self.klass == "record":
            w.call("golden_fill", f"&{at}", f"sizeof {at}", f"{index} + i")
            self.shape(w, at, "GOLDEN_PROGRAM")
        elif self.klass == "other":
            w.set(at, f"(unsigned char)({index} + i)")
        else:
            w.set(at, self.counted())

    def took(self, f, w):
        """The program's look at an output."""
        p = self.p
        if "new" in p.words:
            w.call("golden_bound", self.what, self.kind, str(self.index))
        if "async" in f.flags or not p.words & {"out", "inout"} or p.words & {"cstr", "addr", "new"}:
            return
        condition = "!bare && " if "opt" in p.words else ""
        with w.for_("unsigned", f"{condition}i < {self.length(True)}"):
            self.took_element(w)

    def took_element(self, w):
        at, index = f"{self.p.name}[i]", self.index
        if self.klass == "handle":
            w.call("golden_took_handle", self.what, self.kind, f"{index} * 8 + i", at)
            return
        if self.klass == "record":
            w(f"{self.element} want;")
            w.call("golden_fill", "&want", "sizeof want", f"0x80 + {index} + i")
            self.shape(w, "want", "GOLDEN_PROGRAM_ANSWER")
        elif self.klass == "other":
            w.set(f"{self.element} want", f"(unsigned char)(0x80 + {index} + i)")
        elif self.klass == "device":
            w.set(f"{self.element} want", "GOLDEN_DEVICE")
        else:
            w.set(f"{self.element} want", self.counted(True))
        w.call("golden_took", self.what, f"&{at}", "&want", "sizeof want")


def vector(model, f, w):
    plan(model, f)  # says what is wrong with the line
    counts = set(re.findall(r"[A-Za-z_]\w*", " ".join(f"{p.count} {p.bytes}" for p in f.params)))
    params = [Parameter(model, counts, p, i) for i, p in enumerate(f.params)]
    with w.function(f"static CUresult drive_{f.name}({f.prototype})", f"The driver's {f.name} ({f.where})."):
        w.call("golden_driven", f"TOW_FN_{f.name}")
        for p in params:
            p.drive(f, w)
        w.ret("CUDA_SUCCESS")
    with w.function(f"static void send_{f.name}(void)", f"The program's call of {f.name} ({f.where})."):
        w("const bool bare = golden_bare;")
        w("(void)bare;")
        args = ", ".join(p.argument(w) for p in params)
        w.set("CUresult sent", f"towc_send_{f.name}({args})")
        w.call("golden_sent", "sent")
        for p in params:
            p.took(f, w)


def family_source(model, family):
    w = Code(f"One made-up call of every function of {family.name} whose marshalling is generated.")
    w.include("golden.h")
    w.include("<string.h>")
    w.include(f"gen/{family.name}_client.h")
    functions = sorted(family.functions, key=lambda f: f.number)
    plain = [f for f in functions if f.plain_send]
    for f in plain:
        vector(model, f, w)
    w()
    with w.block("static const struct golden_vector vectors[] = {", "};"):
        for f in plain:
            optional = "true" if any("opt" in p.words for p in f.params) else "false"
            w(f'{{"{f.name}", TOW_FN_{f.name}, {optional}, send_{f.name}}},')
        w('{"", 0, false, NULL},')
    with w.function("static void fill(struct tow_driver *driver)", "The driver's functions."):
        for f in plain:
            w.call("tow_driver_set", "driver", f.name, f"drive_{f.name}")
        w("(void)driver;")
    w()
    with w.block("static const uint16_t by_hand[] = {", "};"):
        rows = [(f"TOW_FN_{f.name},", f.where) for f in functions if not (f.stub or f.local or f.plain_send)]
        w.rows([*rows, ("0,", "the end")])
    w()
    w(f"const struct golden_family golden_{family.name} = {{vectors, by_hand, fill}};")
    return w.text()


def source(model):
    w = Code("The families' made-up calls.")
    w.include("golden.h")
    w.include("<stddef.h>")
    w()
    for family in model.families:
        w(f"extern const struct golden_family golden_{family.name};")
    w()
    with w.block("const struct golden_family *const golden_families[] = {", "};"):
        w.rows((f"&golden_{family.name},", f"api/{family.name}.api") for family in model.families)
        w("NULL,")
    return w.text()
