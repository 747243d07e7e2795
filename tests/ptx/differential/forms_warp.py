# SPDX-License-Identifier: Apache-2.0
"""What threads of a warp do together, control flow, and matrices."""

from core import Form, keys


def shuffles():
    g = "warp"
    for mode in ("up", "down", "bfly", "idx"):
        for c in (0, 0x1f, 0x1c03, 0x181f, 0x1807, 0x0f, 0x1000):
            yield Form(g, f"shfl.sync.{mode}.b32 c={c:#x}", [("i32", "u"), ("count", "u")], ["i32", "pred"],
                       f"shfl.sync.{mode}.b32 %o0|%o1, %i0, %i1, {c}, -1;")
        yield Form(g, f"shfl.sync.{mode}.b32 half a warp", [("i32", "u")], ["i32", "pred"],
                   ".reg .b32 %m;\nmov.u32 %o0, 99;\nsetp.eq.u32 %o1, %lane, 99;\nsetp.lt.u32 %q, %lane, 16;\n"
                   f"@!%q bra over;\nshfl.sync.{mode}.b32 %o0|%o1, %i0, 3, 0x0f, 0xffff;\nover:")
    masks = {"all": "-1", "half": "%m"}
    half = ".reg .b32 %m;\nsetp.lt.u32 %q, %lane, 16;\nselp.b32 %m, 0xffff, 0xffff0000, %q;\n"
    for who, mask in masks.items():
        pre = half if who == "half" else ""
        for mode in ("all", "any", "uni"):
            yield Form(g, f"vote.sync.{mode}.pred, {who}", keys("bool"), ["pred"],
                       f"{pre}vote.sync.{mode}.pred %o0, %i0, {mask};")
            yield Form(g, f"vote.sync.{mode}.pred !p, {who}", keys("few"), ["pred"],
                       f"{pre}.reg .pred %r;\nsetp.ne.u32 %r, %i0, 0;\nvote.sync.{mode}.pred %o0, !%r, {mask};")
        yield Form(g, f"vote.sync.ballot.b32, {who}", keys("bool"), ["i32"],
                   f"{pre}vote.sync.ballot.b32 %o0, %i0, {mask};")
        for t, k in (("b32", "few"), ("b64", "few")):
            widen = "cvt.u64.u32 %wide, %i0;\nshl.b64 %wide, %wide, 33;\n" if t == "b64" else ""
            value = "%wide" if t == "b64" else "%i0"
            yield Form(g, f"match.any.sync.{t}, {who}", keys(k), ["i32"],
                       f"{pre}{widen}match.any.sync.{t} %o0, {value}, {mask};")
            yield Form(g, f"match.all.sync.{t}, {who}", keys(k), ["i32", "pred"],
                       f"{pre}{widen}match.all.sync.{t} %o0|%o1, {value}, {mask};")
        for op in ("add", "min", "max"):
            for t in ("u32", "s32"):
                yield Form(g, f"redux.sync.{op}.{t}, {who}", keys("i32"), ["i32"],
                           f"{pre}redux.sync.{op}.{t} %o0, %i0, {mask};")
        for op in ("and", "or", "xor"):
            yield Form(g, f"redux.sync.{op}.b32, {who}", keys("i32"), ["i32"],
                       f"{pre}redux.sync.{op}.b32 %o0, %i0, {mask};")
        yield Form(g, f"elect.sync, {who}", [], ["i32", "pred"], f"{pre}elect.sync %o0|%o1, {mask};")
        yield Form(g, f"bar.warp.sync, {who}", keys("i32"), ["i32"], f"{pre}bar.warp.sync {mask};\nmov.b32 %o0, %i0;")
    yield Form(g, "activemask.b32", [], ["i32"],
               "setp.lt.u32 %q, %lane, 11;\nmov.u32 %o0, 0;\n@%q bra one;\nbra.uni over;\none:\nactivemask.b32 %o0;\n"
               "over:\nbar.warp.sync -1;")


def control():
    g = "control flow"
    yield Form(g, "bra, a loop of different lengths", keys("i32"), ["i32"],
               ".reg .b32 %n;\nand.b32 %n, %i0, 15;\nmov.u32 %o0, 0;\nagain:\nmad.lo.u32 %o0, %o0, 31, %n;\n"
               "setp.eq.u32 %q, %n, 0;\nsub.u32 %n, %n, 1;\n@!%q bra again;")
    yield Form(g, "brx.idx", keys("i32"), ["i32"],
               ".reg .b32 %n;\nand.b32 %n, %i0, 3;\njumps: .branchtargets l0, l1, l2, l3;\nbrx.idx %n, jumps;\n"
               "l0: mov.u32 %o0, 10;\nbra end;\nl1: mov.u32 %o0, 11;\nbra end;\nl2: mov.u32 %o0, 12;\nbra end;\n"
               "l3: mov.u32 %o0, 13;\nend:")
    funcs = (".func (.param .b32 r) twice(.param .b32 a)\n{ .reg .b32 %x;\nld.param.b32 %x, [a];\nshl.b32 %x, %x, 1;\n"
             "st.param.b32 [r], %x; ret; }\n"
             ".func (.param .b32 r) flip(.param .b32 a)\n{ .reg .b32 %x;\nld.param.b32 %x, [a];\nnot.b32 %x, %x;\n"
             "st.param.b32 [r], %x; ret; }\n")
    yield Form(g, "call, indirect", keys("i32"), ["i32"],
               ".reg .b64 %f, %g;\nmov.u64 %f, twice;\nmov.u64 %g, flip;\nand.b32 %x, %i0, 1;\nsetp.eq.u32 %q, %x, 0;\n"
               "selp.b64 %f, %f, %g, %q;\n{ .param .b32 pa; .param .b32 pr;\nst.param.b32 [pa], %i0;\n"
               "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (pr), %f, (pa), proto;\n"
               "ld.param.b32 %o0, [pr]; }", decl=funcs)
    yield Form(g, "call, recursive", keys("i32"), ["i32"],
               ".reg .b32 %n;\nand.b32 %n, %i0, 7;\n{ .param .b32 pa; .param .b32 pr;\nst.param.b32 [pa], %n;\n"
               "call (pr), fact, (pa);\nld.param.b32 %o0, [pr]; }",
               decl=".func (.param .b32 r) fact(.param .b32 a)\n{ .reg .b32 %x, %y; .reg .pred %q;\n"
                    "ld.param.b32 %x, [a];\nsetp.gt.u32 %q, %x, 1;\n@%q bra more;\nst.param.b32 [r], 1;\nret;\nmore:\n"
                    "sub.u32 %y, %x, 1;\n{ .param .b32 pa; .param .b32 pr;\nst.param.b32 [pa], %y;\n"
                    "call (pr), fact, (pa);\nld.param.b32 %y, [pr]; }\nmul.lo.u32 %y, %x, %y;\n"
                    "st.param.b32 [r], %y;\nret; }")
    yield Form(g, "exit", keys("i32"), ["@i32"],
               "st.global.b32 [%a0], 5;\nand.b32 %x, %i0, 1;\nsetp.eq.u32 %q, %x, 0;\n@%q exit;\n"
               "st.global.b32 [%a0], %i0;")
    yield Form(g, "guards @p and @!p", keys("i32 i32") + [("bool", "u")], ["i32"],
               "mov.u32 %o0, 0;\n@%i2 add.u32 %o0, %i0, %i1;\n@!%i2 sub.u32 %o0, %i0, %i1;")
    yield Form(g, "alloca, stacksave, stackrestore", keys("i32"), ["i32"],
               ".reg .b64 %s, %p;\nstacksave.u64 %s;\nalloca.u64 %p, 64;\ncvta.local.u64 %p, %p;\nst.u32 [%p], %i0;\nld.u32 %o0, [%p];\n"
               "stackrestore.u64 %s;")


def matrix_moves():
    g = "matrices"
    decl = ".shared .align 128 .b8 sm[4096];"
    fill = (".reg .b32 %s, %t;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %t, %s, 32;\nmov.u32 %x, sm;\nadd.u32 %t, %t, %x;\n"
            "st.shared.b32 [%t], %i0;\nst.shared.b32 [%t+4], %i1;\nst.shared.b32 [%t+8], %i2;\n"
            "st.shared.b32 [%t+12], %i3;\nst.shared.b32 [%t+16], %i1;\nst.shared.b32 [%t+20], %i0;\n"
            "st.shared.b32 [%t+24], %i3;\nst.shared.b32 [%t+28], %i2;\nbar.sync 0;\n"
            "mad.lo.u32 %t, %lane, 48, %x;\n")
    ins = [("mint", i) for i in range(4)]
    for trans in ("", ".trans"):
        for count in (1, 2, 4):
            dest = ", ".join(f"%o{i}" for i in range(count))
            yield Form(g, f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", ins, ["i32"] * count,
                       f"{fill}ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{dest}}}, [%t];", decl=decl, n=128)
            source = ", ".join(f"%i{i}" for i in range(count))
            yield Form(g, f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16", ins, ["i64"] * 2,
                       ".reg .b32 %s, %t;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %t, %s, 32;\nmov.u32 %x, sm;\nadd.u32 %t, %t, %x;\n"
                       "st.shared.v2.b64 [%t], {0, 0};\nst.shared.v2.b64 [%t+16], {0, 0};\nbar.sync 0;\n"
                       "mul.lo.u32 %t, %s, 16;\nadd.u32 %t, %t, %x;\n"
                       f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%t], {{{source}}};\nbar.sync 0;\n"
                       "ld.shared.v2.b64 {%o0, %o1}, [%t];", decl=decl, n=128)
    yield Form(g, "movmatrix.sync.aligned.m8n8.trans.b16", [("mint", 0)], ["i32"],
               "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;", n=128)


def bound_of(d, a):
    if d in ("s32", "f64"):
        return ""
    if d == "f16":
        return "mma 2^-9.5" if a in ("e4m3", "e5m2") else "mma 2^-11"
    return "mma 2^-22"


def mma_form(group, name, shape, regs, d, a, b, c, tail=""):
    """regs: registers of a, b, c and d."""
    ra, rb, rc = regs
    element = {"f16": "mf16", "bf16": "mbf16", "tf32": "mf32", "f64": "mf64", "e4m3": "me4m3", "e5m2": "me5m2",
               "f32": "mf32", "s32": "mint"}
    ka, kb, kc = (element.get(t, "mint") for t in (a, b, c))
    ins = [(ka, i) for i in range(ra)] + [(kb, 4 + i) for i in range(rb)] + [(kc, 8 + i) for i in range(rc)]
    out = {"f16": "f16x2", "f32": "f32", "f64": "f64", "s32": "i32"}[d]
    groups, at = [], 0
    for count in (ra, rb, rc):
        groups.append(", ".join(f"%i{at + i}" for i in range(count)))
        at += count
    count = rc if d == c else (rc * 2 if c == "f16" else rc // 2)
    dest = ", ".join(f"%o{i}" for i in range(count))
    return Form(group, name, ins, [out] * count, f"{name} {{{dest}}}, {{{groups[0]}}}, {{{groups[1]}}}, {{{groups[2]}}};",
                bound=bound_of(d, a), n=256, version="8.7" if a in ("e4m3", "e5m2") else "8.1")


def mma():
    g = "matrix products"
    head = "mma.sync.aligned"
    for shape, ra, rb in (("m16n8k8", 2, 1), ("m16n8k16", 4, 2)):
        for d in ("f16", "f32"):
            for c in ("f16", "f32"):
                yield mma_form(g, f"{head}.{shape}.row.col.{d}.f16.f16.{c}", shape,
                               (ra, rb, 2 if c == "f16" else 4), d, "f16", "f16", c)
        yield mma_form(g, f"{head}.{shape}.row.col.f32.bf16.bf16.f32", shape, (ra, rb, 4), "f32", "bf16", "bf16", "f32")
    for shape, ra, rb in (("m16n8k4", 2, 1), ("m16n8k8", 4, 2)):
        yield mma_form(g, f"{head}.{shape}.row.col.f32.tf32.tf32.f32", shape, (ra, rb, 4), "f32", "tf32", "tf32", "f32")
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            for d in ("f16", "f32"):
                for shape, ra, rb in (("m16n8k32", 4, 2), ("m16n8k16", 2, 1)):
                    yield mma_form(g, f"{head}.{shape}.row.col.{d}.{a}.{b}.{d}", shape, (ra, rb, 2 if d == "f16" else 4),
                                   d, a, b, d)
    for shape, ra, rb, rc in (("m8n8k4", 1, 1, 2), ("m16n8k4", 2, 1, 4), ("m16n8k8", 4, 2, 4), ("m16n8k16", 8, 4, 4)):
        for rounding in ("", ".rn", ".rz", ".rm", ".rp"):
            yield mma_form(g, f"{head}.{shape}.row.col{rounding}.f64.f64.f64.f64", shape, (ra, rb, rc), "f64", "f64",
                           "f64", "f64")
    for width, shapes in (("8", (("m8n8k16", 1, 1, 2), ("m16n8k16", 2, 1, 4), ("m16n8k32", 4, 2, 4))),
                          ("4", (("m8n8k32", 1, 1, 2), ("m16n8k32", 2, 1, 4), ("m16n8k64", 4, 2, 4)))):
        for shape, ra, rb, rc in shapes:
            for a in "us":
                for b in "us":
                    for sat in ("", ".satfinite"):
                        yield mma_form(g, f"{head}.{shape}.row.col{sat}.s32.{a}{width}.{b}{width}.s32", shape,
                                       (ra, rb, rc), "s32", a + width, b + width, "s32")
    for shape, ra, rb, rc in (("m8n8k128", 1, 1, 2), ("m16n8k128", 2, 1, 4), ("m16n8k256", 4, 2, 4)):
        for op in ("xor", "and"):
            yield mma_form(g, f"{head}.{shape}.row.col.s32.b1.b1.s32.{op}.popc", shape, (ra, rb, rc), "s32", "b1", "b1",
                           "s32")
    for la in ("row", "col"):
        for lb in ("row", "col"):
            for d, c in (("f16", "f16"), ("f32", "f32"), ("f32", "f16")):
                yield mma_form(g, f"{head}.m8n8k4.{la}.{lb}.{d}.f16.f16.{c}", "m8n8k4", (2, 2, 4 if c == "f16" else 8),
                               d, "f16", "f16", c)


def wmma():
    """Fragments have no known layout: loaded, multiplied and stored, one warp each matrix."""
    g = "matrix products"
    cases = []
    for shape in ("m16n16k16", "m8n32k16", "m32n8k16"):
        cases += [(shape, "f16", "f16", c, d, 8, 8) for c in ("f16", "f32") for d in ("f16", "f32")]
        bf = {"m16n16k16": (4, 4), "m8n32k16": (2, 8), "m32n8k16": (8, 2)}[shape]
        cases += [(shape, "bf16", "bf16", "f32", "f32", *bf)]
        i8 = {"m16n16k16": (2, 2), "m8n32k16": (1, 4), "m32n8k16": (4, 1)}[shape]
        cases += [(shape, t, t, "s32", "s32", *i8) for t in ("s8", "u8")]
    cases += [("m16n16k8", "tf32", "tf32", "f32", "f32", 4, 4), ("m8n8k4", "f64", "f64", "f64", "f64", 1, 1)]
    cases += [("m8n8k32", t, t, "s32", "s32", 1, 1) for t in ("s4", "u4")] + [("m8n8k128", "b1", "b1", "s32", "s32", 1, 1)]
    pools = {"f16": "mf16", "bf16": "mbf16", "tf32": "mf32", "f64": "mf64", "f32": "mf32"}
    for shape, a, b, c, d, ra, rb in cases:
        m, n, k = (int(x) for x in shape[1:].replace("n", " ").replace("k", " ").split())
        bits = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}[a]
        cbits = {"f64": 64, "f16": 16}.get(c, 32)
        dbits = {"f64": 64, "f16": 16}.get(d, 32)
        rc = {"f16": 4, "f32": 8, "s32": 8, "f64": 2}[c]
        rd = {"f16": 4, "f32": 8, "s32": 8, "f64": 2}[d]
        if m * n == 64:
            rc = rd = 2
        regs = []
        for name, count, width in (("a", ra, bits), ("b", rb, bits), ("c", rc, cbits), ("d", rd, dbits)):
            regs.append(f".reg .b{64 if width == 64 else 32} %w{name}<{count}>;")
        vec = {name: "{" + ", ".join(f"%w{name}{i}" for i in range(count)) + "}"
               for name, count in (("a", ra), ("b", rb), ("c", rc), ("d", rd))}
        # 4 matrices of packed elements: 4 bytes a word of the pool (8 of f64), copied to shared memory by all threads
        move = "b64" if a == "f64" else "b32"
        size = 8 if a == "f64" else 4
        setup = [".reg .b32 %s, %t, %j;", "mov.u32 %s, %tid.x;", f"mul.lo.u32 %t, %s, {size};", "mov.u32 %j, sm;",
                 "add.u32 %t, %t, %j;"]
        ins = [(pools.get(a, "mint"), 0), (pools.get(b, "mint"), 1), (pools.get(a, "mint"), 2), (pools.get(b, "mint"), 3),
               (pools.get(c, "mint"), 8), (pools.get(c, "mint"), 9)]
        step = 128 * size
        for i, at in enumerate((0, 2 * step, step, 3 * step)):
            setup.append(f"st.shared.{move} [%t+{at}], %i{i};")
        csize = 8 if c == "f64" else 4
        setup += [f"mul.lo.u32 %t, %s, {csize};", "add.u32 %t, %t, %j;"]
        for i in range(4):
            setup.append(f"st.shared.b{csize * 8} [%t+{4 * step + i * 128 * csize}], %i{4 + i % 2};")
        setup += ["bar.sync 0;"]
        types = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
        op = ".xor.popc" if a == "b1" else ""
        out = {"f16": "f16x2", "f32": "f32", "f64": "f64", "s32": "i32"}[d]
        words = m * n * dbits // (64 if d == "f64" else 32)
        count = max(1, words // 128)
        for la in ("row", "col"):
            for lb in ("row", "col"):
                if bits < 8 and (la, lb) != ("row", "col"):
                    continue
                name = f"wmma.mma{op}.sync.aligned.{la}.{lb}.{shape}.{types}"
                body = setup + regs
                body += [f"wmma.load.a.sync.aligned.{la}.{shape}.shared.{a} {vec['a']}, [%j];",
                         f"add.u32 %t, %j, {2 * step};",
                         f"wmma.load.b.sync.aligned.{lb}.{shape}.shared.{b} {vec['b']}, [%t];",
                         f"add.u32 %t, %j, {4 * step};",
                         f"wmma.load.c.sync.aligned.row.{shape}.shared.{c} {vec['c']}, [%t];",
                         f"{name} {vec['d']}, {vec['a']}, {vec['b']}, {vec['c']};", "bar.sync 0;",
                         f"wmma.store.d.sync.aligned.row.{shape}.shared.{d} [%j], {vec['d']};", "bar.sync 0;"]
                dsize = 8 if d == "f64" else 4
                body += [f"mul.lo.u32 %t, %s, {dsize};", f"and.b32 %t, %t, {words * dsize - 1};", "add.u32 %t, %t, %j;"]
                body += [f"ld.shared.b{dsize * 8} %o{i}, [%t+{i * 128 * dsize}];" for i in range(count)]
                yield Form(g, name, ins, [out] * count, "\n".join(body), decl=".shared .align 128 .b8 sm[8192];",
                           bound=bound_of(d, a), n=128)


def sparse():
    g = "matrix products"
    for d in ("f16", "f32"):
        regs = {"f16": 2, "f32": 4}[d]
        names = [", ".join(f"%i{i + at}" for i in range(count)) for at, count in ((0, 2), (2, 2), (4, regs))]
        ins = [("mf16", i) for i in range(4)] + [("m" + d, 8 + i) for i in range(regs)]
        dest = ", ".join(f"%o{i}" for i in range(regs))
        name = f"mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.{d}.f16.f16.{d}"
        yield Form(g, name, ins, ["f16x2" if d == "f16" else "f32"] * regs,
                   f"mov.u32 %x, 0x44444444;\n{name} {{{dest}}}, {{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}}, %x, 0x0;",
                   bound=bound_of(d, "f16"), n=256, version="8.5")


def forms():
    for part in (shuffles, control, matrix_moves, mma, wmma, sparse):
        yield from part()
