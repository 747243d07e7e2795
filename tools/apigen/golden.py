"""Test vectors: every function whose marshalling is generated, with made-up arguments and a made-up driver.

tests/apigen/test_golden.c runs them: the client's half encodes, the bytes are compared with golden/wire.txt, the
server's half decodes them and calls the driver here, which looks at what arrived; the same for the reply.
"""

import re

from cgen import Writer, plan

COUNT = 3  # of every array; the driver answers ANSWER elements where it says how many there are
ANSWER = 2


def eval_count(expr):
    return eval(re.sub(r"[A-Za-z_]\w*", str(COUNT), expr.replace("*", "")))  # noqa: S307: our own table


class Vector:
    def __init__(self, model, f):
        self.model, self.f, self.plan = model, f, plan(model, f)
        exprs = " ".join(p.count + " " + p.bytes for p in f.params)
        self.counts = set(re.findall(r"[A-Za-z_]\w*", exprs))

    def kind(self, p):
        return self.model.handle_kind(p.base)

    def hook(self, p):
        return self.model.translated(p.base, "client") or self.model.translated(p.base, "server")

    def value(self, p, index, answer=False):
        """A scalar that is not a handle, as a C expression of the parameter's base type."""
        k = self.model.klass(p.base)
        if p.name in self.counts:
            return f"({p.base}){ANSWER if answer else COUNT}"
        way = 0xB if answer else 0xA
        if k == "u64":
            return f"({p.base})0x{way:x}1b2c3d4e5f6{index:02x}00ull"
        if k == "f32":
            return f"{index}.5f" if answer else f"{index}.25f"
        if self.model.resolve(p.base) in ("int", "long long"):
            return f"({p.base})-0x{way:x}1b2{index:02x}0"
        return f"({p.base})0x{5 if answer else 6}{way:x}1b2{index:02x}0"


def drive(v, w):
    """The driver: looks at what came and answers."""
    f = v.f
    w(f"/* {f.where} */\nstatic CUresult drive_{f.name}({f.prototype})\n{{\n    golden_driven(TOW_FN_{f.name});")
    for i, p in enumerate(f.params):
        k, what = v.model.klass(p.base), f'"{p.name}"'
        if p.stars == 0:
            if k == "handle":
                w(f"    golden_see_handle({what}, {v.kind(p)}, {i}, {p.name});")
            elif k == "device":
                w(f"    golden_see_u64({what}, (uint64_t){p.name}, GOLDEN_ORDINAL);")
            elif k == "record":
                w(f"    {p.base} {p.name}_want;\n    golden_fill(&{p.name}_want, sizeof {p.name}_want, {i});")
                if v.hook(p):
                    w(f"    golden_shape_{v.hook(p)}(&{p.name}_want, GOLDEN_DRIVER);")
                w(f"    golden_see({what}, &{p.name}, &{p.name}_want, sizeof {p.name});")
            elif k == "f32":
                w(f"    golden_see_u64({what}, {p.name} == {v.value(p, i)}, 1);")
            else:
                w(f"    golden_see_u64({what}, (uint64_t){p.name}, (uint64_t)({v.value(p, i)}));")
            continue
        if "cstr" in p.words:
            w(f'    golden_see_text({what}, {p.name}, "made-up {p.name}");')
            continue
        if "addr" in p.words:
            w(f"    golden_see_u64({what}, (uint64_t)(uintptr_t){p.name}, 0xadd7e5500{i:02x}0ull);")
            continue
        if "new" in p.words:
            w(f"    *{p.name} = ({p.base})golden_made({v.kind(p)}, {i});")
            continue
        optional = "opt" in p.words
        if optional and "server-by-hand" not in f.flags:
            w(f"    golden_see_u64({what}, {p.name} != NULL, !golden_bare);")
        opening = f"    if ({p.name} != NULL) {{"
        w(opening)
        array = p.count or p.bytes
        elem = p.base if p.base != "void" else "unsigned char"
        if "in" in p.words or "inout" in p.words:
            n = eval_count(array) if array else 1
            w(f"        for (size_t i = 0; i < {n}; i++) {{")
            at = f"{p.name}[i]" if p.base != "void" else f"((const unsigned char *){p.name})[i]"
            if k == "handle":
                w(f"            golden_see_handle({what}, {v.kind(p)}, {i} * 8 + i, {at});")
            elif k == "record":
                w(f"            {elem} want;\n            golden_fill(&want, sizeof want, {i} + (unsigned)i);")
                if v.hook(p):
                    w(f"            golden_shape_{v.hook(p)}(&want, GOLDEN_DRIVER);")
                w(f"            golden_see({what}, &{at}, &want, sizeof want);")
            elif k == "other":
                w(f"            golden_see_u64({what}, {at}, (unsigned char)({i} + i));")
            else:
                w(f"            {elem} want = ({elem})({v.value(p, i)} + ({elem})i);\n            golden_see({what}, &{at}, &want, sizeof want);")
            w("        }")
        if "out" in p.words or "inout" in p.words:
            n = (ANSWER if p.count.startswith("*") else eval_count(array)) if array else 1
            w(f"        for (size_t i = 0; i < {n}; i++) {{")
            at = f"{p.name}[i]" if p.base != "void" else f"((unsigned char *){p.name})[i]"
            if k == "handle":
                w(f"            {at} = ({elem})golden_made({v.kind(p)}, {i} * 8 + (unsigned)i);")
            elif k == "record":
                w(f"            golden_fill(&{at}, sizeof {at}, 0x80 + {i} + (unsigned)i);")
                if v.hook(p):
                    w(f"            golden_shape_{v.hook(p)}(&{at}, GOLDEN_DRIVER_ANSWER);")
            elif k == "other":
                w(f"            {at} = (unsigned char)(0x80 + {i} + i);")
            elif k == "device":
                w(f"            {at} = GOLDEN_ORDINAL;")
            else:
                w(f"            {at} = ({elem})({v.value(p, i, True)} + ({elem})i);")
            w("        }")
        w("    }")
    w("    return CUDA_SUCCESS;\n}\n")


def send(v, w):
    """The client: made-up arguments, then a look at the outputs."""
    f = v.f
    w(f"/* {f.where} */\nstatic void send_{f.name}(void)\n{{\n    const bool bare = golden_bare;\n    (void)bare;")
    args, checks = [], []
    for i, p in enumerate(f.params):
        k, what = v.model.klass(p.base), f'"{p.name}"'
        elem = p.base if p.base != "void" else "unsigned char"
        if p.stars == 0:
            if k == "handle":
                args.append(f"({p.base})golden_id({v.kind(p)}, {i})")
            elif k == "device":
                args.append("GOLDEN_DEVICE")
            elif k == "record":
                w(f"    {p.base} {p.name};\n    golden_fill(&{p.name}, sizeof {p.name}, {i});")
                if v.hook(p):
                    w(f"    golden_shape_{v.hook(p)}(&{p.name}, GOLDEN_PROGRAM);")
                args.append(p.name)
            else:
                args.append(v.value(p, i))
            continue
        if "cstr" in p.words:
            args.append(f'"made-up {p.name}"')
            continue
        if "addr" in p.words:
            args.append(f"(void *)(uintptr_t)0xadd7e5500{i:02x}0ull")
            continue
        if "new" in p.words:
            args.append(f"({p.base})golden_new({v.kind(p)})")
            checks.append(f"    golden_bound({what}, {v.kind(p)}, {i});")
            continue
        array = p.count or p.bytes
        n = eval_count(array) if array else 1
        w(f"    {elem} {p.name}[{n}];\n    memset({p.name}, 0xee, sizeof {p.name});")
        if "in" in p.words or "inout" in p.words:
            w(f"    for (unsigned i = 0; i < {n}; i++) {{")
            if k == "handle":
                w(f"        {p.name}[i] = ({elem})golden_id({v.kind(p)}, {i} * 8 + i);")
            elif k == "record":
                w(f"        golden_fill(&{p.name}[i], sizeof {p.name}[i], {i} + i);")
                if v.hook(p):
                    w(f"        golden_shape_{v.hook(p)}(&{p.name}[i], GOLDEN_PROGRAM);")
            elif k == "other":
                w(f"        {p.name}[i] = (unsigned char)({i} + i);")
            else:
                w(f"        {p.name}[i] = ({elem})({v.value(p, i)} + ({elem})i);")
            w("    }")
        args.append(f"bare ? NULL : {p.name}" if "opt" in p.words else p.name)
        if "async" not in f.flags and ("out" in p.words or "inout" in p.words):
            n = (ANSWER if p.count.startswith("*") else n) if array else 1
            cond = "!bare && " if "opt" in p.words else ""
            c = f"    for (unsigned i = 0; {cond}i < {n}; i++) {{\n"
            if k == "handle":
                c += f"        golden_took_handle({what}, {v.kind(p)}, {i} * 8 + i, {p.name}[i]);\n"
            elif k == "record":
                c += f"        {elem} want;\n        golden_fill(&want, sizeof want, 0x80 + {i} + i);\n"
                if v.hook(p):
                    c += f"        golden_shape_{v.hook(p)}(&want, GOLDEN_PROGRAM_ANSWER);\n"
                c += f"        golden_took({what}, &{p.name}[i], &want, sizeof want);\n"
            else:
                want = f"(unsigned char)(0x80 + {i} + i)" if k == "other" else "GOLDEN_DEVICE" if k == "device" else f"({elem})({v.value(p, i, True)} + ({elem})i)"
                c += f"        {elem} want = {want};\n        golden_took({what}, &{p.name}[i], &want, sizeof want);\n"
            checks.append(c + "    }")
    w(f"    golden_sent(tow_send_{f.name}({', '.join(args)}));")
    for c in checks:
        w(c)
    w("}\n")


def family_source(model, family):
    w = Writer(f"One made-up call of every function of {family.name} whose marshalling is generated.")
    w(f'#include "golden.h"\n\n#include <string.h>\n\n#include "gen/{family.name}_client.h"\n')
    vectors = [Vector(model, f) for f in sorted(family.functions, key=lambda f: f.number) if f.plain_send]
    for v in vectors:
        drive(v, w)
        send(v, w)
    w(f"static const struct golden_vector vectors[] = {{")
    for v in vectors:
        optional = any("opt" in p.words for p in v.f.params)
        w(f'    {{"{v.f.name}", TOW_FN_{v.f.name}, {"true" if optional else "false"}, send_{v.f.name}}},')
    w('    {"", 0, false, NULL},\n};\n')
    w("static void fill(struct tow_driver *driver)\n{")
    for v in vectors:
        w(f"    tow_driver_set(driver, {v.f.name}, drive_{v.f.name});")
    w("    (void)driver;\n}\n")
    w("static const uint16_t by_hand[] = {")
    for f in sorted(family.functions, key=lambda f: f.number):
        if not f.stub and not f.local and not f.plain_send:
            w(f"    TOW_FN_{f.name},")
    w("    0,\n};\n")
    w(f"const struct golden_family golden_{family.name} = {{vectors, by_hand, fill}};")
    return w.text()


def source(model):
    w = Writer("The families' made-up calls.")
    w('#include "golden.h"\n\n#include <stddef.h>\n')
    for family in model.families:
        w(f"extern const struct golden_family golden_{family.name};")
    w("\nconst struct golden_family *const golden_families[] = {")
    for family in model.families:
        w(f"    &golden_{family.name},")
    w("    NULL,\n};")
    return w.text()
