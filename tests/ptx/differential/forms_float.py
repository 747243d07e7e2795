# SPDX-License-Identifier: Apache-2.0
"""Floating point forms: arithmetic, approximations, conversions."""

from core import Form, keys, plain

ROUNDS = ("rn", "rz", "rm", "rp")
INTS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")


def arithmetic():
    g = "floating point"
    for r in ("",) + tuple("." + r for r in ROUNDS):
        for name in ("add", "sub", "mul"):
            for ftz in ("", ".ftz"):
                for sat in ("", ".sat"):
                    yield plain(g, f"{name}{r}{ftz}{sat}.f32", "f32 f32", "f32")
            yield plain(g, f"{name}{r}.f64", "f64 f64", "f64")
        if r:
            for ftz in ("", ".ftz"):
                for sat in ("", ".sat"):
                    for name in ("fma", "mad"):
                        yield plain(g, f"{name}{r}{ftz}{sat}.f32", "f32 f32 f32", "f32")
                for name in ("rcp", "sqrt"):
                    yield plain(g, f"{name}{r}{ftz}.f32", "f32", "f32")
                yield plain(g, f"div{r}{ftz}.f32", "f32 f32", "f32")
            for name in ("fma", "mad"):
                yield plain(g, f"{name}{r}.f64", "f64 f64 f64", "f64")
            for name in ("rcp", "sqrt"):
                yield plain(g, f"{name}{r}.f64", "f64", "f64")
            yield plain(g, f"div{r}.f64", "f64 f64", "f64")
    for t in ("f32", "f64"):
        for ftz in ("", ".ftz") if t == "f32" else ("",):
            for name in ("abs", "neg"):
                yield plain(g, f"{name}{ftz}.{t}", t, t)
            for name in ("min", "max"):
                for nan in ("", ".NaN") if t == "f32" else ("",):
                    for sign in ("", ".xorsign.abs") if t == "f32" else ("",):
                        yield plain(g, f"{name}{ftz}{nan}{sign}.{t}", [t, t], t)
        yield plain(g, f"copysign.{t}", [t, t], t)
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield plain(g, f"testp.{test}.{t}", t, "pred")


def half():
    g = "half precision"
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        brain = t[0] == "b"
        for r in ("", ".rn"):
            for ftz in ("",) if brain else ("", ".ftz"):
                for name in ("add", "sub", "mul"):
                    for sat in ("",) if brain else ("", ".sat"):
                        yield plain(g, f"{name}{r}{ftz}{sat}.{t}", [t, t], t)
        for ftz in ("",) if brain else ("", ".ftz"):
            for tail in ("", ".sat", ".relu"):
                if not (brain and tail == ".sat"):
                    yield plain(g, f"fma.rn{ftz}{tail}.{t}", [t, t, t], t)
            for name in ("neg", "abs"):
                yield plain(g, f"{name}{ftz}.{t}", t, t)
            for name in ("min", "max"):
                for nan in ("", ".NaN"):
                    for sign in ("", ".xorsign.abs"):
                        yield plain(g, f"{name}{ftz}{nan}{sign}.{t}", [t, t], t)
        for relu in ("", ".relu"):
            yield plain(g, f"fma.rn.oob{relu}.{t}", [t, t, t], t)


def approximate():
    g = "approximate functions"
    for ftz in ("", ".ftz"):
        yield plain(g, f"rcp.approx{ftz}.f32", "f32", "f32", bound="ulp 1")
        yield plain(g, f"sqrt.approx{ftz}.f32", "f32", "f32", bound="ulp 1")
        yield plain(g, f"rsqrt.approx{ftz}.f32", "f32", "f32", bound="ulp 2")
        yield plain(g, f"div.approx{ftz}.f32", "f32 f32", "f32", bound="ulp 1")
        yield plain(g, f"div.full{ftz}.f32", "f32 f32", "f32", bound="ulp 1")
        yield plain(g, f"ex2.approx{ftz}.f32", "f32", "f32", bound="ulp 2")
        yield Form(g, f"ex2.approx{ftz}.f32 (-8 to 8)", [("unit", "u")], ["f32"], f"ex2.approx{ftz}.f32 %o0, %i0;",
                   bound="ulp 2")
        yield plain(g, f"lg2.approx{ftz}.f32", "f32", "f32", bound="ulp 2 or abs 2^-22")
        for name in ("sin", "cos"):
            yield Form(g, f"{name}.approx{ftz}.f32 (-pi to pi)", [("angle", "u")], ["f32"],
                       f"{name}.approx{ftz}.f32 %o0, %i0;", bound="abs 2^-20.5")
            yield Form(g, f"{name}.approx{ftz}.f32 (-8 to 8)", [("unit", "u")], ["f32"],
                       f"{name}.approx{ftz}.f32 %o0, %i0;", bound="abs 2^-20.5")
    yield plain(g, "tanh.approx.f32", "f32", "f32", bound="rel 2^-16")
    yield Form(g, "tanh.approx.f32 (-8 to 8)", [("unit", "u")], ["f32"], "tanh.approx.f32 %o0, %i0;",
               bound="rel 2^-16")
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        yield plain(g, f"tanh.approx.{t}", t, t, bound="ulp 1")
        ftz = ".ftz" if t[0] == "b" else ""
        yield plain(g, f"ex2.approx{ftz}.{t}", t, t, bound="ulp 1")
    yield plain(g, "rcp.approx.ftz.f64", "f64", "f64", bound="rel 2^-20")
    yield plain(g, "rsqrt.approx.ftz.f64", "f64", "f64", bound="rel 2^-20")
    yield plain(g, "rsqrt.approx.f64", "f64", "f64", bound="ulp 1")


def cvt(name, source, outs, **more):
    return Form("conversion", name, [(source, "u")], outs, f"{name} %o0, %i0;", **more)


def integer_conversions():
    held = {"8": "i32", "16": "i16", "32": "i32", "64": "i64"}
    for a in INTS:
        for d in INTS:
            for sat in ("", ".sat"):
                yield cvt(f"cvt{sat}.{d}.{a}", held[a[1:]], [held[d[1:]]])
    for a in INTS[:4]:  # narrow values in wide registers
        for d in INTS[:4]:
            yield Form("conversion", f"cvt.{d}.{a} (32-bit registers)", [("i32", "u")], ["i32"],
                       f"cvt.{d}.{a} %o0, %i0;")
            yield Form("conversion", f"cvt.{d}.{a} (64-bit registers)", [("i64", "u")], ["i64"],
                       f"cvt.{d}.{a} %o0, %i0;")
    for t in ("f16", "bf16", "f32", "f64"):
        for i in INTS:
            for r in ROUNDS:
                for sat in ("", ".sat") if t in ("f32", "f64", "f16") else ("",):
                    yield cvt(f"cvt.{r}{sat}.{t}.{i}", held[i[1:]], [t])
                for ftz in ("", ".ftz") if t == "f32" else ("",):
                    for sat in ("", ".sat"):
                        yield cvt(f"cvt.{r}i{ftz}{sat}.{i}.{t}", t, [held[i[1:]]])


def float_conversions():
    types = ("f16", "bf16", "f32", "f64")
    for a in types:
        for d in types:
            ftzs = ("", ".ftz") if "f32" in (a, d) else ("",)
            for ftz in ftzs:
                for sat in ("", ".sat"):
                    for r in ("",) + tuple("." + r for r in ROUNDS) + tuple(f".{r}i" for r in ROUNDS):
                        yield cvt(f"cvt{r}{ftz}{sat}.{d}.{a}", a, [d])
    for d in ("f16", "bf16"):
        for r in ("rn", "rz"):
            for tail in ("", ".satfinite", ".relu", ".relu.satfinite"):
                if tail:
                    yield cvt(f"cvt.{r}{tail}.{d}.f32", "f32", [d])
                yield plain("conversion", f"cvt.{r}{tail}.{d}x2.f32", "f32 f32", f"{d}x2")
    for r in ("rn", "rz", "rna"):
        for relu in ("", ".relu"):
            for sat in ("", ".satfinite"):
                yield cvt(f"cvt.{r}{relu}{sat}.tf32.f32", "f32", ["f32"], version="8.6")
    for d in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            yield plain("conversion", f"cvt.rn.satfinite{relu}.{d}.f32", "f32 f32", "i16")
            yield Form("conversion", f"cvt.rn.satfinite{relu}.{d}.f16x2", [("f16x2", "u")], ["i16"],
                       f"cvt.rn.satfinite{relu}.{d}.f16x2 %o0, %i0;")
            yield Form("conversion", f"cvt.rn{relu}.f16x2.{d}", [("bytes", "u")], ["f16x2"],
                       f".reg .b16 %n;\ncvt.u16.u32 %n, %i0;\ncvt.rn{relu}.f16x2.{d} %o0, %n;")


def mixed():
    """Only where two texts differ from the plain ones: operands that are constants, negated predicates."""
    for t, text in (("f32", "0f3fc00000"), ("f64", "0d3ff8000000000000")):
        yield Form("floating point", f"add.{t} constant", keys([t]), [t], f"add.{t} %o0, %i0, {text};")
        yield Form("floating point", f"fma.rn.{t} constants", keys([t]), [t], f"fma.rn.{t} %o0, %i0, {text}, {text};")


def forms():
    for part in (arithmetic, half, approximate, integer_conversions, float_conversions, mixed):
        yield from part()
