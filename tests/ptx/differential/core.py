# SPDX-License-Identifier: Apache-2.0
"""Forms of PTX instructions, each a small kernel, and the inputs they run on.

A form is one instruction with its modifiers and types. Its kernel reads operands from the pool (memory made from a
seed, the same for all forms), executes the instruction once a thread, and stores the results. Nothing but results is
recorded; everything else comes from here again.
"""

import hashlib
import struct

SEED = 0x746f776c696e65  # every input follows from this
N = 512                  # threads of a form unless it says otherwise
BLOCK = 128

MASK64 = (1 << 64) - 1


def mix(x):
    """A counter in, 64 random bits out (splitmix64)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


class Random:
    """Counter based: value i of a stream depends on the seed, the stream's name and i alone."""

    def __init__(self, name):
        self.base = int.from_bytes(hashlib.sha256(f"{SEED}/{name}".encode()).digest()[:8], "little")
        self.at = 0

    def bits(self, n=64):
        self.at += 1
        return mix((self.base + self.at * 0x632BE59BD9B4E019) & MASK64) >> (64 - n)

    def below(self, n):
        return self.bits() % n


def f32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def f64(x):
    return struct.unpack("<Q", struct.pack("<d", x))[0]


# ---- values ----

INT16 = [0, 1, 2, 3, 7, 8, 0x7f, 0x80, 0xff, 0x100, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff]
INT32 = [0, 1, 2, 31, 32, 0xff, 0x8000, 0xffff, 0x10000, 0x7fffff, 0x7fffffff, 0x80000000, 0x80000001, 0xffff8000,
         0xfffffffe, 0xffffffff]
INT64 = [0, 1, 2, 63, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x20000000000001, 0x7fffffffffffffff,
         0x8000000000000000, 0x8000000000000001, 0xffffffff80000000, 0xfffffffffffffffe, 0xffffffffffffffff]
F32 = [0, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffa12345, 1, 0x807fffff, 0x00800000,
       0x7f7fffff, 0xff7fffff, 0x40490fdb, 0x3f7fffff, 0x4b000001]
F32_MORE = [0x7fffffff, 0xffffffff, 0x7f800001, 0x80000001, 0x007fffff, 0x80800000, 0x3f000000, 0xbf000000, 0x3fc00000,
            0x40200000, 0xc0200000, 0x3effffff, 0x3f000001, 0x4f000000, 0x4effffff, 0xcf000000, 0xcf000001, 0x4f800000,
            0x4f7fffff, 0x5f000000, 0x5effffff, 0xdf000000, 0x5f800000, 0x42fe0000, 0x42ff0000, 0x437f0000, 0x437f8000,
            0xc3000000, 0xc3008000, 0x46fffe00, 0x477fff00, 0x477fe000, 0x477ff000, 0x33800000, 0x33000000, 0x33000001,
            0x387fc000, 0x38800000, 0x477fefff, 0x43e00000, 0x43e80000, 0x47600000, 0x47680000, 0x3b000000, 0x3a800000,
            0x3aff0000, 0x38000000, 0x37800000, 0x7f7f8000, 0x7f7f0000, 0x00008000, 0x00004000, 0x00018000, 0x3f808000,
            0x3f818000, 0x3f801000, 0x3f803000, 0x3f800fff, 0x42c80000, 0xc2c80000, 0x43160000, 0xc3160000]
F16 = [0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0xfd55, 1, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x4248, 0x3bff,
       0x6401]
BF16 = [0, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0xffa5, 1, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x4049, 0x3f7f,
        0x4381]
F64 = [0, 1 << 63, f64(1.0), f64(-1.0), f64(float("inf")), f64(float("-inf")), 0x7ff8000000000000, 0xfff4000012345678,
       1, 0x800fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, f64(3.141592653589793),
       0x3fefffffffffffff, 0x4330000000000001]
F64_MORE = [f64(x) for x in (0.5, -0.5, 1.5, 2.5, -2.5, 127.5, 128, 255.5, 256, -128.5, -129, 32767.5, 65535.5, 65536,
                             2147483647.0, 2147483647.5, 2147483648.0, -2147483648.5, 4294967295.5, 4294967296.0,
                             9223372036854774784.0, 9223372036854775808.0, -9223372036854775808.0,
                             18446744073709549568.0, 18446744073709551616.0, 65504.0, 65519.999, 65520.0, 5.96e-8,
                             2.98e-8, 2.99e-8, 3.4028234663852886e38, 3.4028235677973366e38, 3.40282356e38, 1.4e-45,
                             7.006492321624085e-46, 7.1e-46, 1.17549435e-38, 1e-300, 1e300)]
ANGLES = [0, 0x80000000, f32(3.14159274), f32(-3.14159274), f32(1.57079637), f32(-1.57079637), f32(0.785398), 1,
          0x007fffff, 0x7fc00000]

SPECIAL = {
    "i16": (INT16, []), "i32": (INT32, [0x7f, 0x80, 0x7ffffffe, 0xffff7fff, 0xffffff80, 0xffffff7f, 0x01000001]),
    "i64": (INT64, [0x7f, 0x80, 0x8000, 0xffffffff7fffffff, 0xffffffffffff8000, 0x0100000000000001]),
    "f32": (F32, F32_MORE), "f64": (F64, F64_MORE), "f16": (F16, [0x7fff, 0xffff, 0x03ff, 0x8001, 0x3800, 0x3e00]),
    "bf16": (BF16, [0x7fff, 0xffff, 0x007f, 0x8001, 0x3f00, 0x3fc0, 0x42ff, 0x4f00]),
}
WIDTH = {"i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64, "f16": 16, "bf16": 16}
FLOAT = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


def ordinary(rnd, kind, spread):
    """A float within 2^±spread, any mantissa."""
    exponent_bits, mantissa_bits = FLOAT[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = bias - spread + rnd.below(2 * spread)
    return (rnd.bits(1) << (exponent_bits + mantissa_bits)) | (exponent << mantissa_bits) | rnd.bits(mantissa_bits)


def random_value(rnd, kind, i):
    if kind in FLOAT:
        if i % 4 == 3:
            return rnd.bits(WIDTH[kind])
        return ordinary(rnd, kind, (2, 6, 12)[i % 4] if kind != "f16" else (2, 4, 10)[i % 4])
    value, width = rnd.bits(WIDTH[kind]), WIDTH[kind]
    if i % 3 == 1:
        value >>= rnd.below(width)
    elif i % 3 == 2:
        value = (-(value >> rnd.below(width))) & ((1 << width) - 1)
    return value


def numbers(kind, slot):
    """Special values, crossed with those of the other operands (slots 0 to 3), and random ones after them."""
    rnd, (core, more) = Random(f"{kind}/{slot}"), SPECIAL[kind]
    out = []
    if slot == "u":
        out += core + more
    else:
        for i in range(256):
            low, high = i % 16, i // 16
            out.append(core[(low, high, (i * 5 + high * 3 + 7) % 16, (i * 11 + high * 5 + 3) % 16)[slot]])
    while len(out) < N:
        out.append(random_value(rnd, kind, len(out)))
    return out


def pairs(kind, slot):
    rnd = Random(f"{kind}x2/{slot}")
    low = numbers(kind, slot)
    high = numbers(kind, {"u": "u", 0: 1, 1: 0, 2: 2, 3: 3}[slot])
    turn = rnd.below(N) if slot == "u" else 0
    return [low[i] | high[(i + turn) % N] << 16 for i in range(N)]


def counts(slot):
    """Shift amounts, positions, lengths."""
    rnd = Random(f"count/{slot}")
    step = {"u": 1, 0: 1, 1: 7, 2: 11, 3: 13}[slot]
    out = [i * step % 72 for i in range(256)] + [255, 256, 257, 0xffffffff, 0x80000000, 0x7fffffff, 0x100, 0x120]
    while len(out) < N:
        out.append(rnd.below(33) if len(out) % 2 else rnd.below(300))
    return out


def matrix(kind, slot):
    """Elements for mma: 4 warps of ordinary ones, then large and small, then some that are infinite or no number."""
    rnd = Random(f"m{kind}/{slot}")
    out = []
    for i in range(N):
        warp = i // 32 % 8
        if kind in ("f16", "bf16", "f32", "f64"):
            def one():
                spread = 2 if warp < 4 else 5
                if warp == 6 and rnd.below(24) == 0:
                    return SPECIAL[kind][0][rnd.below(16)]
                if warp == 7:
                    return ordinary(rnd, kind, 1) & ~((1 << (FLOAT[kind][1] - 2)) - 1)  # small exact sums
                return ordinary(rnd, kind, spread)
            out.append(one() | one() << 16 if WIDTH[kind] == 16 else one())
        elif kind in ("e4m3", "e5m2"):
            word = 0
            for k in range(4):
                bias, bits = (7, 3) if kind == "e4m3" else (15, 2)
                spread = 2 if warp < 4 else 5
                byte = (rnd.bits(1) << 7) | (bias - spread + rnd.below(2 * spread)) << bits | rnd.bits(bits)
                if warp == 6 and rnd.below(48) == 0:
                    byte = rnd.bits(8)
                word |= byte << (8 * k)
            out.append(word)
        else:
            out.append(rnd.bits(32))
    return out


def pool_values(key):
    kind, slot = key
    if kind in SPECIAL:
        return numbers(kind, slot)
    if kind in ("f16x2", "bf16x2"):
        return pairs(kind[:-2], slot)
    if kind == "count":
        return counts(slot)
    if kind[0] == "m":
        return matrix(kind[1:], slot)
    rnd = Random(f"{kind}/{slot}")
    if kind == "bytes":  # every byte in the lower and in the upper half
        return [(i & 255) | ((i * 7 + 3) & 255) << 8 | (i * 13 & 255) << 16 | (255 - i & 255) << 24 for i in range(N)]
    if kind == "angle":
        return ANGLES + [f32((rnd.bits(24) / (1 << 23) - 1) * 3.14159) for _ in range(N - len(ANGLES))]
    if kind == "unit":  # between -8 and 8
        return ANGLES + [f32((rnd.bits(24) / (1 << 20)) - 8) for _ in range(N - len(ANGLES))]
    if kind == "bool":
        return [(i >> {"u": 0, 0: 0, 1: 1, 2: 2}[slot] & 1) if i < 8 else rnd.bits(1) for i in range(N)]
    if kind == "few":  # few different values, so that lanes agree
        return [rnd.below(3 if i % 64 < 32 else 1) for i in range(N)]
    raise KeyError(key)


SLOTS = ["u", 0, 1, 2, 3]
KINDS = ["i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "count"]
KEYS = [(kind, slot) for kind in KINDS for slot in SLOTS]
KEYS += [("bytes", "u"), ("angle", "u"), ("unit", "u"), ("bool", "u"), ("bool", 0), ("bool", 1), ("bool", 2),
         ("few", "u")]
KEYS += [("m" + kind, slot) for kind in ("f16", "bf16", "f32", "f64", "e4m3", "e5m2", "int") for slot in range(16)]
OFFSET = {key: i * N * 8 for i, key in enumerate(KEYS)}
_values = {}


def values(key):
    if key not in _values:
        _values[key] = pool_values(key)
    return _values[key]


def pool():
    return b"".join(struct.pack(f"<{N}Q", *values(key)) for key in KEYS)


# ---- forms ----

# What an operand is to how it is held: register, bytes in memory.
HELD = {"pred": ("pred", 4), "i16": ("b16", 2), "i32": ("b32", 4), "i64": ("b64", 8), "f16": ("b16", 2),
        "bf16": ("b16", 2), "f32": ("b32", 4), "f64": ("b64", 8), "f16x2": ("b32", 4), "bf16x2": ("b32", 4)}
POOL_HELD = {"count": "b32", "bytes": "b32", "angle": "b32", "unit": "b32", "few": "b32", "bool": "pred",
             "mf64": "b64"}


def held(kind):
    return HELD[kind][0] if kind in HELD else POOL_HELD.get(kind, "b32")


class Form:
    """name: what the status page calls it; ins: pool keys, in registers %i0 ...; outs: kinds, from registers %o0 ...
    (a kind that begins with @ is written by the body itself, at the address %a0 ...); bound: how far results may be
    from the recorded ones, "" for bit-equal; each instruction form has a name of its own."""

    def __init__(self, group, name, ins, outs, body, bound="", decl="", regs="", version="8.1", n=N, texture=None,
                 directives=""):
        self.group, self.name, self.body, self.bound = group, name, body, bound
        self.ins = [key if isinstance(key, tuple) else None for key in ins]
        self.outs, self.decl, self.regs, self.version, self.n = outs, decl, regs, version, n
        self.texture, self.directives = texture, directives

    def out_layout(self):
        """(kind, offset, bytes of one) of each result array."""
        at, layout = 0, []
        for kind in self.outs:
            size = HELD[kind.lstrip("@")][1]
            at = (at + size - 1) // size * size
            layout.append((kind.lstrip("@"), at, size))
            at += size * self.n
        return layout, at

    def out_bytes(self):
        return self.out_layout()[1]

    def ptx(self):
        lines = [f".version {self.version}", ".target sm_90", ".address_size 64", self.decl,
                 ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)", self.directives, "{",
                 ".reg .b64 %pool, %out, %at, %wide; .reg .b32 %me, %lane, %x; .reg .pred %q;"]
        load, store = [], []
        for i, key in enumerate(self.ins):
            kind = held(key[0])
            lines.append(f".reg .{kind} %i{i};")
            if kind == "pred":
                load += [f"ld.global.b32 %x, [%at+{OFFSET[key]}];", f"setp.ne.u32 %i{i}, %x, 0;"]
            else:
                load.append(f"ld.global.{kind} %i{i}, [%at+{OFFSET[key]}];")
        for i, (kind, offset, size) in enumerate(self.out_layout()[0]):
            address = f"mul.wide.u32 %at, %me, {size}; add.u64 %at, %out, %at;"
            if self.outs[i][0] == "@":
                lines.append(f".reg .b64 %a{i};")
                load += [address, f"add.u64 %a{i}, %at, {offset};"]
                continue
            lines.append(f".reg .{held(kind)} %o{i};")
            if kind == "pred":
                store += [f"selp.b32 %x, 1, 0, %o{i};", address, f"st.global.b32 [%at+{offset}], %x;"]
            else:
                store += [address, f"st.global.{held(kind)} [%at+{offset}], %o{i};"]
        lines += [self.regs, "ld.param.u64 %pool, [p0]; ld.param.u64 %out, [p1];",
                  "mov.u32 %me, %ctaid.x;", "mov.u32 %x, %ntid.x;", "mul.lo.u32 %me, %me, %x;",
                  "mov.u32 %x, %tid.x;", "add.u32 %me, %me, %x;", "and.b32 %lane, %x, 31;",
                  "mul.wide.u32 %at, %me, 8; add.u64 %at, %pool, %at;"]
        return "\n".join(line for line in lines + load + [self.body] + store + ["ret;", "}"] if line) + "\n"

    def digest(self):
        """Of all that decides the results: a recording of another form by the same name does not count."""
        h = hashlib.sha256()
        h.update(repr((self.body, self.ins, self.outs, self.decl, self.regs, self.n, self.texture, self.directives, SEED)).encode())
        for key in self.ins:
            if key:
                h.update(struct.pack(f"<{N}Q", *values(key)))
        return h.hexdigest()[:16]


def keys(kinds):
    """Pool keys for operands of these kinds: one alone gets the long list of special values."""
    if isinstance(kinds, str):
        kinds = kinds.split()
    return [(kind, "u" if len(kinds) == 1 else i) for i, kind in enumerate(kinds)]


def plain(group, name, ins, out, **more):
    """An instruction with one result and register operands."""
    ins = keys(ins)
    operands = ", ".join(["%o0"] + [f"%i{i}" for i in range(len(ins))])
    return Form(group, name, ins, [out], f"{name} {operands};", **more)
