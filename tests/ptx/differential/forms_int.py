# SPDX-License-Identifier: Apache-2.0
"""Integer, logic, shift, bit, comparison and video forms."""

from core import Form, keys, plain

INT = {"u16": "i16", "s16": "i16", "b16": "i16", "u32": "i32", "s32": "i32", "b32": "i32", "u64": "i64", "s64": "i64",
       "b64": "i64"}
SIX = ("u16", "s16", "u32", "s32", "u64", "s64")
WIDER = {"i16": "i32", "i32": "i64"}
COMPARE_SIGNED = ("eq", "ne", "lt", "le", "gt", "ge")
COMPARE_UNSIGNED = ("lo", "ls", "hi", "hs")
COMPARE_FLOAT = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def arithmetic():
    g = "integer arithmetic"
    for t in SIX:
        k = INT[t]
        for name in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield plain(g, f"{name}.{t}", [k, k], k)
        for name in ("mad.lo", "mad.hi"):
            yield plain(g, f"{name}.{t}", [k, k, k], k)
        yield plain(g, f"sad.{t}", [k, k, k], k)
        if t[1:] != "64":
            yield plain(g, f"mul.wide.{t}", [k, k], WIDER[k])
            yield plain(g, f"mad.wide.{t}", [k, k, WIDER[k]], WIDER[k])
        if t[0] == "s":
            yield plain(g, f"abs.{t}", [k], k)
            yield plain(g, f"neg.{t}", [k], k)
    for name in ("add.sat.s32", "sub.sat.s32", "min.relu.s32", "max.relu.s32"):
        yield plain(g, name, "i32 i32", "i32")
    for name in ("mad.hi.sat.s32", "mad24.hi.sat.s32"):
        yield plain(g, name, "i32 i32 i32", "i32")
    for t in ("u16x2", "s16x2"):
        for name in ("add", "min", "max"):
            yield plain(g, f"{name}.{t}", "i32 i32", "i32")
    for name in ("min.relu.s16x2", "max.relu.s16x2"):
        yield plain(g, name, "i32 i32", "i32")
    for t in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield plain(g, f"mul24.{half}.{t}", "i32 i32", "i32")
            yield plain(g, f"mad24.{half}.{t}", "i32 i32 i32", "i32")
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            yield plain(g, f"dp4a.{a}.{b}", "i32 i32 i32", "i32")
            for half in ("lo", "hi"):
                yield plain(g, f"dp2a.{half}.{a}.{b}", "i32 i32 i32", "i32")


def carry():
    g = "extended precision"
    for t in ("u32", "s32", "u64", "s64"):
        k, b = INT[t], t[1:]
        regs = f".reg .b{b} %junk, %c;"
        flag = f"addc.u{b} %o1, %c, 0;"
        for name in ("add", "sub"):
            yield Form(g, f"{name}.cc.{t}", keys([k, k]), [k, k],
                       f"mov.b{b} %c, 0;\n{name}.cc.{t} %o0, %i0, %i1;\n{flag}", regs=regs)
            # the flag comes from a + a: the top bit of the third operand
            first = f"mov.b{b} %c, 0;\nadd.cc.u{b} %junk, %i2, %i2;\n"
            yield Form(g, f"{name}c.{t}", keys([k, k, k]), [k], f"{first}{name}c.{t} %o0, %i0, %i1;", regs=regs)
            yield Form(g, f"{name}c.cc.{t}", keys([k, k, k]), [k, k],
                       f"{first}{name}c.cc.{t} %o0, %i0, %i1;\n{flag}", regs=regs)
        for half in ("lo", "hi"):
            yield Form(g, f"mad.{half}.cc.{t}", keys([k, k, k]), [k, k],
                       f"mov.b{b} %c, 0;\nmad.{half}.cc.{t} %o0, %i0, %i1, %i2;\n{flag}", regs=regs)
            first = f"mov.b{b} %c, 0;\nadd.cc.u{b} %junk, %i3, %i3;\n"
            yield Form(g, f"madc.{half}.{t}", keys([k] * 4), [k],
                       f"{first}madc.{half}.{t} %o0, %i0, %i1, %i2;", regs=regs)
            yield Form(g, f"madc.{half}.cc.{t}", keys([k] * 4), [k, k],
                       f"{first}madc.{half}.cc.{t} %o0, %i0, %i1, %i2;\n{flag}", regs=regs)


def logic():
    g = "logic and shift"
    for t in ("b16", "b32", "b64"):
        k = INT[t]
        for name in ("and", "or", "xor"):
            yield plain(g, f"{name}.{t}", [k, k], k)
        for name in ("not", "cnot"):
            yield plain(g, f"{name}.{t}", [k], k)
        yield plain(g, f"shl.{t}", [k, "count"], k)
    for name in ("and", "or", "xor"):
        yield plain(g, f"{name}.pred", "bool bool", "pred")
    yield plain(g, "not.pred", "bool", "pred")
    for t in INT:
        yield plain(g, f"shr.{t}", [INT[t], "count"], INT[t])
    for way in ("l", "r"):
        for mode in ("clamp", "wrap"):
            yield plain(g, f"shf.{way}.{mode}.b32", "i32 i32 count", "i32")
    for lut in (0x1b, 0x96, 0xca):
        yield Form(g, f"lop3.b32 {lut:#04x}", keys("i32 i32 i32"), ["i32"], f"lop3.b32 %o0, %i0, %i1, %i2, {lut};")
    for high in range(16):  # all 256 tables
        body = "\n".join(f"lop3.b32 %o{i}, %i0, %i1, %i2, {high * 16 + i};" for i in range(16))
        yield Form(g, f"lop3.b32 {high * 16:#04x} to {high * 16 + 15:#04x}", [("mint", i) for i in range(3)], ["i32"] * 16,
                   body, n=32)
    for how in ("and", "or"):
        yield Form(g, f"lop3.{how}.b32", keys("i32 i32 i32") + [("bool", "u")], ["i32", "pred"],
                   f"lop3.{how}.b32 %o0|%o1, %i0, %i1, %i2, 0x6a, %i3;", version="8.2")


def bits():
    g = "bits"
    for b in ("32", "64"):
        for name in ("popc", "clz"):
            yield plain(g, f"{name}.b{b}", [f"i{b}"], "i32")
        yield plain(g, f"brev.b{b}", [f"i{b}"], f"i{b}")
        for s in "us":
            yield plain(g, f"bfind.{s}{b}", [f"i{b}"], "i32")
            yield plain(g, f"bfind.shiftamt.{s}{b}", [f"i{b}"], "i32")
            yield plain(g, f"bfe.{s}{b}", [f"i{b}", "count", "count"], f"i{b}")
        yield plain(g, f"bfi.b{b}", [f"i{b}", f"i{b}", "count", "count"], f"i{b}")
    for mode in ("clamp", "wrap"):
        yield plain(g, f"bmsk.{mode}.b32", "count count", "i32")
        for s in "us":
            yield plain(g, f"szext.{mode}.{s}32", "i32 count", "i32")
    yield Form(g, "fns.b32", keys("i32 i32 i32"), ["i32"],
               "and.b32 %x, %i1, 31;\n.reg .b32 %s;\nshl.b32 %s, %i2, 27;\nshr.s32 %s, %s, 27;\n"
               "fns.b32 %o0, %i0, %x, %s;")
    yield plain(g, "prmt.b32", "i32 i32 i32", "i32")
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        yield plain(g, f"prmt.b32.{mode}", "i32 i32 i32", "i32")
    for t in ("u8", "s8", "u16", "s16"):
        yield plain(g, f"cvt.pack.sat.{t}.s32" + (".b32" if t[1:] == "8" else ""),
                    "i32 i32 i32" if t[1:] == "8" else "i32 i32", "i32")
    for t in ("u4", "s4", "u2", "s2"):
        yield plain(g, f"cvt.pack.sat.{t}.s32.b32", "i32 i32 i32", "i32")


def compare():
    g = "comparison and selection"
    kinds = {**INT, "f16": "f16", "bf16": "bf16", "f32": "f32", "f64": "f64"}
    for t, k in kinds.items():
        ops = COMPARE_SIGNED
        if t[0] == "b" and t != "bf16":
            ops = ("eq", "ne")
        elif t[0] == "u":
            ops = COMPARE_SIGNED + COMPARE_UNSIGNED
        elif t in ("f16", "bf16", "f32", "f64"):
            ops = COMPARE_SIGNED + COMPARE_FLOAT
        for ftz in ("", ".ftz") if t in ("f32", "f16") else ("",):
            for op in ops:
                yield plain(g, f"setp.{op}{ftz}.{t}", [k, k], "pred")
                for d in ("u32", "s32", "f32"):
                    yield plain(g, f"set.{op}{ftz}.{d}.{t}", [k, k], "i32")
                if t in ("f16", "bf16"):
                    for d in ("u16", "s16", t):
                        yield plain(g, f"set.{op}{ftz}.{d}.{t}", [k, k], "i16")
        for how in ("and", "or", "xor"):
            op = "ne" if t[0] == "b" and t != "bf16" else "le"
            yield Form(g, f"setp.{op}.{how}.{t}", keys([k, k]) + [("bool", "u")], ["pred", "pred"],
                       f"setp.{op}.{how}.{t} %o0|%o1, %i0, %i1, %i2;")
            yield Form(g, f"setp.{op}.{how}.{t} !c", keys([k, k]) + [("bool", "u")], ["pred"],
                       f"setp.{op}.{how}.{t} %o0, %i0, %i1, !%i2;")
            yield Form(g, f"set.{op}.{how}.u32.{t}", keys([k, k]) + [("bool", "u")], ["i32"],
                       f"set.{op}.{how}.u32.{t} %o0, %i0, %i1, %i2;")
        if t not in ("f16", "bf16"):
            yield Form(g, f"selp.{t}", keys([k, k]) + [("bool", "u")], [k], f"selp.{t} %o0, %i0, %i1, %i2;")
            yield Form(g, f"slct.{t}.s32", keys([k, k, "i32"]), [k], f"slct.{t}.s32 %o0, %i0, %i1, %i2;")
            for ftz in ("", ".ftz"):
                yield Form(g, f"slct{ftz}.{t}.f32", keys([k, k, "f32"]), [k], f"slct{ftz}.{t}.f32 %o0, %i0, %i1, %i2;")
    for t in ("f16x2", "bf16x2"):
        for ftz in ("", ".ftz") if t == "f16x2" else ("",):
            for op in COMPARE_SIGNED + COMPARE_FLOAT:
                yield Form(g, f"setp.{op}{ftz}.{t}", keys([t, t]), ["pred", "pred"],
                           f"setp.{op}{ftz}.{t} %o0|%o1, %i0, %i1;")
                yield plain(g, f"set.{op}{ftz}.{t}.{t}", [t, t], "i32")
        for how in ("and", "or", "xor"):
            yield Form(g, f"setp.ge.{how}.{t}", keys([t, t]) + [("bool", "u")], ["pred", "pred"],
                       f"setp.ge.{how}.{t} %o0|%o1, %i0, %i1, %i2;")


def video():
    g = "video"
    # the types of destination and sources, and selectors, each in turn
    turns = [("u32", "u32", "u32", "", ""), ("s32", "s32", "s32", "", ""), ("s32", "u32", "s32", "", ""),
             ("u32", "s32", "u32", "", ""), ("s32", "u32", "u32", ".b0", ".b1"), ("u32", "s32", "s32", ".b3", ".b2"),
             ("s32", "s32", "u32", ".h0", ".h1"), ("u32", "u32", "s32", ".h1", ".h0")]
    for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr"):
        for i, (d, a, b, sa, sb) in enumerate(turns):
            if name in ("vshl", "vshr"):
                b = "u32"
            mode = (".clamp", ".wrap")[i % 2] if name in ("vshl", "vshr") else ""
            third = "count" if name in ("vshl", "vshr") else "i32"
            for sat in ("", ".sat"):
                yield Form(g, f"{name}.{d}.{a}.{b}{sat}{mode} a{sa} b{sb}", keys(["i32", third]), ["i32"],
                           f"{name}.{d}.{a}.{b}{sat}{mode} %o0, %i0{sa}, %i1{sb};")
            for second in ("add", "min", "max"):
                yield Form(g, f"{name}.{d}.{a}.{b}{mode}.{second} a{sa} b{sb}", keys(["i32", third, "i32"]), ["i32"],
                           f"{name}.{d}.{a}.{b}{mode}.{second} %o0, %i0{sa}, %i1{sb}, %i2;")
        for place in (".b0", ".b1", ".b2", ".b3", ".h0", ".h1"):
            kind, mode = ("count", ".clamp") if name in ("vshl", "vshr") else ("i32", "")
            yield Form(g, f"{name}.s32.s32.u32{mode} d{place}", keys(["i32", kind, "i32"]), ["i32"],
                       f"{name}.s32.s32.u32{mode} %o0{place}, %i0, %i1, %i2;")
    for d, a, b, sa, sb in turns:
        for scale in ("", ".shr7", ".shr15"):
            for sat in ("", ".sat"):
                yield Form(g, f"vmad.{d}.{a}.{b}{sat}{scale} a{sa} b{sb}", keys("i32 i32 i32"), ["i32"],
                           f"vmad.{d}.{a}.{b}{sat}{scale} %o0, %i0{sa}, %i1{sb}, %i2;")
        yield Form(g, f"vmad.{d}.{a}.{b}.po a{sa} b{sb}", keys("i32 i32 i32"), ["i32"],
                   f"vmad.{d}.{a}.{b}.po %o0, %i0{sa}, %i1{sb}, %i2;")
        yield Form(g, f"vmad.{d}.{a}.{b} -c a{sa} b{sb}", keys("i32 i32 i32"), ["i32"],
                   f"vmad.{d}.{a}.{b} %o0, %i0{sa}, %i1{sb}, -%i2;")
        for op in COMPARE_SIGNED:
            yield Form(g, f"vset.{a}.{b}.{op} a{sa} b{sb}", keys("i32 i32"), ["i32"],
                       f"vset.{a}.{b}.{op} %o0, %i0{sa}, %i1{sb};")
    for parts in "24":
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"):
            for d, a, b, _, _ in turns[:4]:
                for sat in ("", ".sat") if name != "vavrg" else ("",):
                    yield plain(g, f"{name}{parts}.{d}.{a}.{b}{sat}", "i32 i32 i32", "i32")
                yield plain(g, f"{name}{parts}.{d}.{a}.{b}.add", "i32 i32 i32", "i32")
        for a, b in (("u32", "u32"), ("s32", "s32"), ("u32", "s32")):
            for op in COMPARE_SIGNED:
                yield plain(g, f"vset{parts}.{a}.{b}.{op}", "i32 i32 i32", "i32")
                yield plain(g, f"vset{parts}.{a}.{b}.{op}.add", "i32 i32 i32", "i32")


def forms():
    for part in (arithmetic, carry, logic, bits, compare, video):
        yield from part()
