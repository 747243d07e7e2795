# SPDX-License-Identifier: Apache-2.0
"""Textures and surfaces. The runner makes the object that a form's `texture` describes and passes its handle."""

from core import Form, Random

WIDTH, HEIGHT, DEPTH = 16, 8, 4
FORMATS = {"u8": 0x01, "u16": 0x02, "u32": 0x03, "s8": 0x08, "s16": 0x09, "s32": 0x0a, "f16": 0x10, "f32": 0x20}
BYTES = {"u8": 1, "u16": 2, "u32": 4, "s8": 1, "s16": 2, "s32": 4, "f16": 2, "f32": 4}
LAYERED, SURFACE, CUBE, GATHER = 1, 2, 4, 8
AS_INTEGER, NORMALIZED, SRGB = 1, 2, 16
ADDRESS = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}
SIZES = {"1d": (WIDTH, 0, 0), "2d": (WIDTH, HEIGHT, 0), "3d": (WIDTH, HEIGHT, DEPTH), "a1d": (WIDTH, 0, DEPTH),
         "a2d": (WIDTH, HEIGHT, DEPTH), "cube": (WIDTH, WIDTH, 6), "acube": (WIDTH, WIDTH, 12)}
FLAGS = {"a1d": LAYERED, "a2d": LAYERED, "cube": CUBE, "acube": CUBE | LAYERED}


def texels(kind, count):
    rnd = Random(f"texels/{kind}")
    if kind == "f32":  # between -4 and 4, exact in few bits, so that linear filtering has a small error
        return b"".join((0x3f800000 + rnd.bits(12) * 0x1000 | rnd.bits(1) << 31).to_bytes(4, "little")
                        for _ in range(count))
    if kind == "f16":
        return b"".join((0x3c00 + rnd.bits(11) | rnd.bits(1) << 15).to_bytes(2, "little") for _ in range(count))
    return b"".join(rnd.bits(8 * BYTES[kind]).to_bytes(BYTES[kind], "little") for _ in range(count))


class Texture:
    def __init__(self, geometry, kind, channels=4, linear=False, address="clamp", flags=0, surface=False, array=0):
        self.size, self.kind, self.channels = SIZES[geometry], kind, channels
        self.array_flags = FLAGS.get(geometry, 0) | (SURFACE if surface else 0) | array
        self.filter, self.address, self.flags, self.surface = int(linear), ADDRESS[address], flags, surface

    def head(self):
        return (2 if self.surface else 1, *self.size, FORMATS[self.kind], self.channels, self.array_flags, self.filter,
                self.address, self.flags)

    def data(self):
        count = self.size[0] * max(1, self.size[1]) * max(1, self.size[2]) * self.channels
        return texels(self.kind, count)

    def __repr__(self):
        return repr(self.head())


# Coordinates: %f0 %f1 %f2 from -8 to 8, brought to the texture's size, and %n0 %n1 %n2, the same in whole numbers.
def coordinates(scale):
    lines = [".reg .b32 %f<4>, %n<4>, %k; .reg .b64 %h;", "ld.param.u64 %h, [p2];"]
    for i, step in enumerate((1, 5, 9)):
        lines += [f"mul.lo.u32 %k, %me, {step};", f"add.u32 %k, %k, {10 + 37 * i};", "and.b32 %k, %k, 511;",
                  f"cvt.rn.f32.u32 %f{i}, %k;", f"mul.f32 %f{i}, %f{i}, 0f{scale[i]};", f"sub.f32 %f{i}, %f{i}, 0f{scale[3]};",
                  f"cvt.rmi.s32.f32 %n{i}, %f{i};"]
    lines += ["and.b32 %n3, %me, 3;"]
    return "\n".join(lines) + "\n"


# From -4 past the end in steps of texels; normalized: -1.5 to 2.5.
TEXEL = ("3d400000", "3d000000", "3ccccccd", "40800000")
UNIT = ("3c010204", "3c030201", "3c050607", "3fc00000")


def place(geometry, whole):
    r = "%n" if whole else "%f"
    return {"1d": f"{{{r}0}}", "2d": f"{{{r}0, {r}1}}", "3d": f"{{{r}0, {r}1, {r}2, {r}2}}", "a1d": f"{{%n3, {r}0}}",
            "a2d": f"{{%n3, {r}0, {r}1, {r}1}}", "cube": "{%f0, %f1, %f2, %f2}",
            "acube": "{%x, %f0, %f1, %f2}"}[geometry]


def textures():
    g = "textures"
    dest = "{%o0, %o1, %o2, %o3}"
    pre = "and.b32 %x, %me, 1;\n"
    for geometry in SIZES:
        cube = "cube" in geometry
        body = coordinates(UNIT if cube else TEXEL) + pre
        for kind, t in (("f32", "f32"), ("s32", "s32"), ("u32", "u32"), ("u8", "u32"), ("s16", "s32"), ("f16", "f32")):
            flags = AS_INTEGER if t != "f32" else 0
            for coordinate in ("f32", "s32") if not cube else ("f32",):
                yield Form(g, f"tex.{geometry}.v4.{t}.{coordinate} of {kind}", [], [t.replace("u", "i").replace("s", "i")] * 4,
                           body + f"tex.{geometry}.v4.{t}.{coordinate} {dest}, [%h, {place(geometry, coordinate == 's32')}];",
                           texture=Texture(geometry, kind, flags=flags | (NORMALIZED if cube else 0)))
        for kind in ("u8", "s8", "u16", "s16"):  # read as numbers from 0 or -1 to 1
            yield Form(g, f"tex.{geometry}.v4.f32.f32 of normalized {kind}", [], ["f32"] * 4,
                       body + f"tex.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}];",
                       texture=Texture(geometry, kind, flags=NORMALIZED if cube else 0))
        normalized = coordinates(UNIT) + pre
        for address in ADDRESS:
            yield Form(g, f"tex.{geometry}.v4.f32.f32 {address}, normalized", [], ["f32"] * 4,
                       normalized + f"tex.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}];",
                       texture=Texture(geometry, "f32", address=address, flags=NORMALIZED))
            yield Form(g, f"tex.{geometry}.v4.f32.f32 {address}, linear", [], ["f32"] * 4,
                       normalized + f"tex.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}];",
                       texture=Texture(geometry, "f32", address=address, flags=NORMALIZED, linear=True),
                       bound="abs 2^-4.5")
        if not cube:
            yield Form(g, f"tex.{geometry}.v4.f32.f32 border, texels", [], ["f32"] * 4,
                       body + f"tex.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}];",
                       texture=Texture(geometry, "f32", address="border"))
        for channels in (1, 2):
            yield Form(g, f"tex.{geometry}.v4.f32.f32, {channels} channels", [], ["f32"] * 4,
                       body + f"tex.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}];",
                       texture=Texture(geometry, "f32", channels=channels, flags=NORMALIZED if cube else 0))
        yield Form(g, f"tex.level.{geometry}.v4.f32.f32", [], ["f32"] * 4,
                   normalized + f"mov.b32 %f3, 0f00000000;\ntex.level.{geometry}.v4.f32.f32 {dest}, "
                   f"[%h, {place(geometry, False)}], %f3;", texture=Texture(geometry, "f32", flags=NORMALIZED))
        for what in ("width", "height", "depth", "channel_data_type", "channel_order", "array_size"):
            yield Form(g, f"txq.{what}.b32 of {geometry}", [], ["i32"],
                       f".reg .b64 %h;\nld.param.u64 %h, [p2];\ntxq.{what}.b32 %o0, [%h];",
                       texture=Texture(geometry, "f32"), n=128)
    for part in "rgba":
        body = coordinates(UNIT)
        yield Form(g, f"tld4.{part}.2d.v4.f32.f32", [], ["f32"] * 4,
                   body + f"tld4.{part}.2d.v4.f32.f32 {dest}, [%h, {{%f0, %f1}}];",
                   texture=Texture("2d", "f32", flags=NORMALIZED, array=GATHER))
        yield Form(g, f"tld4.{part}.2d.v4.u32.f32", [], ["i32"] * 4,
                   body + f"tld4.{part}.2d.v4.u32.f32 {dest}, [%h, {{%f0, %f1}}];",
                   texture=Texture("2d", "u8", flags=NORMALIZED | AS_INTEGER, array=GATHER))
    yield Form(g, "tex.2d.v4.f32.f32 of sRGB", [], ["f32"] * 4,
               coordinates(TEXEL) + f"tex.2d.v4.f32.f32 {dest}, [%h, {{%f0, %f1}}];",
               texture=Texture("2d", "u8", flags=SRGB | NORMALIZED), bound="abs 2^-8")


def surfaces():
    g = "surfaces"
    for geometry in ("1d", "2d", "3d", "a1d", "a2d"):
        for t, size in (("b8", 1), ("b16", 2), ("b32", 4), ("b64", 8)):
            for v in (1, 2, 4):
                if v * size > 16:
                    continue
                kind = {1: "u8", 2: "u16"}.get(size, "u32")
                channels = v * max(1, size // 4)
                reg = {1: "i16", 2: "i16", 4: "i32", 8: "i64"}[size]
                regs = [f"%o{i}" for i in range(v)]
                vector = "" if v == 1 else f".v{v}"
                value = regs[0] if v == 1 else "{" + ", ".join(regs) + "}"
                scaled = coordinates(TEXEL) + f"mul.lo.s32 %n0, %n0, {v * size};\n"
                for mode in ("zero", "clamp"):
                    yield Form(g, f"suld.b.{geometry}{vector}.{t}.{mode}", [], [reg] * v,
                               scaled + f"suld.b.{geometry}{vector}.{t}.{mode} {value}, [%h, {place(geometry, True)}];",
                               texture=Texture(geometry, kind, channels=channels, surface=True))
                inner = (".reg .b32 %n<4>; .reg .b64 %h;\nld.param.u64 %h, [p2];\nand.b32 %n0, %me, 15;\n"
                         f"mul.lo.s32 %n0, %n0, {v * size};\nshr.u32 %n1, %me, 4;\nand.b32 %n1, %n1, 7;\n"
                         "shr.u32 %n2, %me, 7;\nand.b32 %n2, %n2, 3;\nmov.u32 %n3, %n2;\n")
                if geometry in ("1d",):
                    inner += "setp.ge.u32 %q, %me, 16;\n"
                elif geometry == "a1d":
                    inner += "mov.u32 %n3, %n1;\nsetp.ge.u32 %q, %me, 64;\n"
                elif geometry == "2d":
                    inner += "setp.ge.u32 %q, %me, 128;\n"
                else:
                    inner += "setp.ge.u32 %q, %me, 512;\n"
                source = [f"%i{i}" for i in range(v)]
                given = source[0] if v == 1 else "{" + ", ".join(source) + "}"
                start = "".join(f"mov.b{8 * size if size > 1 else 16} {r}, 0;\n" for r in regs)
                yield Form(g, f"sust.b.{geometry}{vector}.{t}.trap", [(reg, i) for i in range(v)], [reg] * v,
                           inner + start + f"@%q bra over;\nsust.b.{geometry}{vector}.{t}.trap [%h, {place(geometry, True)}], "
                           f"{given};\nsuld.b.{geometry}{vector}.{t}.trap {value}, [%h, {place(geometry, True)}];\nover:",
                           texture=Texture(geometry, kind, channels=channels, surface=True))
        for what in ("width", "height", "depth"):
            yield Form(g, f"suq.{what}.b32 of {geometry}", [], ["i32"],
                       f".reg .b64 %h;\nld.param.u64 %h, [p2];\nsuq.{what}.b32 %o0, [%h];",
                       texture=Texture(geometry, "u32", channels=1, surface=True), n=128)
    for op, t in (("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"), ("max", "u32"), ("max", "s32"),
                  ("and", "b32"), ("or", "b32"), ("add", "u64")):
        reg = "i64" if t[1:] == "64" else "i32"
        size = 8 if reg == "i64" else 4
        yield Form(g, f"sured.b.2d.{op}.{t}.trap", [(reg, "u")], [reg],
                   ".reg .b32 %n<4>; .reg .b64 %h;\nld.param.u64 %h, [p2];\nand.b32 %n0, %me, 15;\n"
                   f"mul.lo.s32 %n0, %n0, {size};\nshr.u32 %n1, %me, 4;\n"
                   f"sured.b.2d.{op}.{t}.trap [%h, {{%n0, %n1}}], %i0;\n"
                   f"membar.gl;\nsuld.b.2d.b{size * 8}.trap %o0, [%h, {{%n0, %n1}}];",
                   texture=Texture("2d", "u32", channels=size // 4, surface=True), n=128)


def forms():
    yield from textures()
    yield from surfaces()
