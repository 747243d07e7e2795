# SPDX-License-Identifier: Apache-2.0
"""Loads, stores, address spaces, moves, atomics, asynchronous copies and barriers."""

from core import OFFSET, Form, keys

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8,
         "u64": 8, "s64": 8, "f64": 8}
SHARED = ".shared .align 16 .b8 sm[4096];"


def at(space, size=32):
    """Code that leaves this thread's address in the space in %t."""
    if space == "shared":
        return (f".reg .b64 %t; .reg .b32 %s;\nmov.u32 %s, %tid.x;\nmul.wide.u32 %t, %s, {size};\n"
                "mov.u64 %wide, sm;\nadd.u64 %t, %t, %wide;\n")
    if space == "local":
        return ".local .align 16 .b8 lm[32];\n.reg .b64 %t;\nmov.u64 %t, lm;\n"
    return ".reg .b64 %t;\nmov.u64 %t, %a0;\n"  # global: results themselves


def loads():
    g = "load and store"
    source = f"add.u64 %at, %pool, {OFFSET[('i64', 'u')]};\nmul.wide.u32 %wide, %me, 8;\nadd.u64 %at, %at, %wide;\n"
    for t in SIZES:  # narrow loads extend into wider registers
        for reg in ("i16", "i32", "i64"):
            if SIZES[t] * 8 > int(reg[1:]) or (t[0] == "f" and SIZES[t] * 8 != int(reg[1:])):
                continue
            yield Form(g, f"ld.global.{t} into {reg[1:]} bits", [], [reg], f"{source}ld.global.{t} %o0, [%at];")
    for how in ("", ".nc", ".ca", ".cg", ".cs", ".lu", ".cv"):
        for space in ("", ".global"):
            if how == ".nc" and not space:
                continue
            yield Form(g, f"ld{space}{how}.u32", [], ["i32"], f"{source}ld{space}{how}.u32 %o0, [%at];")
    for how in (".weak", ".volatile", ".relaxed.cta", ".relaxed.gpu", ".relaxed.sys", ".acquire.cta", ".acquire.gpu",
                ".acquire.sys", ".relaxed.cluster", ".acquire.cluster"):
        yield Form(g, f"ld{how}.global.u32", [], ["i32"], f"{source}ld{how}.global.u32 %o0, [%at];")
    for how in (".nc.L1::no_allocate", ".L1::evict_last", ".L2::128B", ".nc.L2::256B", ".L1::evict_first.L2::64B"):
        yield Form(g, f"ld.global{how}.u32", [], ["i32"], f"{source}ld.global{how}.u32 %o0, [%at];")
    yield Form(g, "ldu.global.u32", [], ["i32"],
               f"ldu.global.u32 %o0, [%pool+{OFFSET[('i64', 'u')] + 80}];")
    align = "and.b64 %at, %at, -16;\n"
    for v in (2, 4):
        for t in ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "f32", "b64", "u64", "f64"):
            if SIZES[t] * v > 16:
                continue
            reg = {1: "i16", 2: "i16", 4: "i32", 8: "i64"}[SIZES[t]]
            dest = ", ".join(f"%o{i}" for i in range(v))
            yield Form(g, f"ld.global.v{v}.{t}", [], [reg] * v, f"{source}{align}ld.global.v{v}.{t} {{{dest}}}, [%at];")
    for space in ("shared", "local"):
        for t in SIZES:
            for reg in ("i16", "i32", "i64"):
                if SIZES[t] * 8 > int(reg[1:]) or (t[0] == "f" and SIZES[t] * 8 != int(reg[1:])):
                    continue
                yield Form(g, f"ld.{space}.{t} into {reg[1:]} bits", keys("i64"), [reg],
                           f"{at(space)}st.{space}.b64 [%t], %i0;\nld.{space}.{t} %o0, [%t];",
                           decl=SHARED if space == "shared" else "")
        for v, t in ((2, "b8"), (4, "s8"), (2, "s16"), (4, "u16"), (2, "b32"), (4, "b32"), (4, "f32"), (2, "f64")):
            reg = {1: "i32", 2: "i32", 4: "i32", 8: "i64"}[SIZES[t]]
            dest = ", ".join(f"%o{i}" for i in range(v))
            yield Form(g, f"ld.{space}.v{v}.{t}", keys("i64 i64"), [reg] * v,
                       f"{at(space)}st.{space}.v2.b64 [%t], {{%i0, %i1}};\nld.{space}.v{v}.{t} {{{dest}}}, [%t];",
                       decl=SHARED if space == "shared" else "")
    for how in (".volatile.shared", ".relaxed.cta.shared", ".acquire.gpu.shared", ".shared::cta", ".shared::cluster"):
        other = how.replace("acquire", "release")
        yield Form(g, f"ld{how}.b32, st{other}.b32", keys("i32"), ["i32"],
                   f"{at('shared')}st{other}.b32 [%t], %i0;\nld{how}.b32 %o0, [%t];", decl=SHARED)
    yield Form(g, "createpolicy, ld.L2::cache_hint", [], ["i32"],
               f"{source}.reg .b64 %y;\ncreatepolicy.fractional.L2::evict_last.b64 %y, 1.0;\n"
               "ld.global.L2::cache_hint.u32 %o0, [%at], %y;")
    # stores: what a thread wrote is read back as whole words
    for space in ("global", "shared", "local", "generic"):
        for t in SIZES:
            reg = {1: "i16", 2: "i16", 4: "i32", 8: "i64"}[SIZES[t]]
            outs = ["@i64"] if space in ("global", "generic") else ["i64"]
            spelled = "" if space == "generic" else f".{space}"
            fetch = "" if outs[0][0] == "@" else f"ld.{space}.b64 %o0, [%t];"
            yield Form(g, f"st.{space}.{t}", keys([reg]), outs,
                       f"{at(space)}st{spelled}.b64 [%t], -1;\nst{spelled}.{t} [%t], %i0;\n{fetch}",
                       decl=SHARED if space == "shared" else "")
        for v, t in ((2, "b8"), (4, "b8"), (2, "b16"), (4, "b16"), (2, "b32"), (4, "b32"), (4, "f32"), (2, "b64"),
                     (2, "f64")):
            if space == "generic":
                continue
            reg = {1: "i16", 2: "i16", 4: "i32", 8: "i64"}[SIZES[t]]
            ins = [(reg, i) for i in range(v)]
            source_regs = ", ".join(f"%i{i}" for i in range(v))
            if space == "global":
                where = ".reg .b64 %t;\nmul.wide.u32 %t, %me, 16;\nadd.u64 %t, %out, %t;\n"
                body = (f"{where}st.global.v2.b64 [%t], {{-1, -1}};\nst.global.v{v}.{t} [%t], {{{source_regs}}};")
                outs = ["@i64", "@i64"]
            else:
                body = (f"{at(space)}st.{space}.v2.b64 [%t], {{-1, -1}};\nst.{space}.v{v}.{t} [%t], {{{source_regs}}};\n"
                        f"ld.{space}.v2.b64 {{%o0, %o1}}, [%t];")
                outs = ["i64", "i64"]
            yield Form(g, f"st.{space}.v{v}.{t}", ins, outs, body, decl=SHARED if space == "shared" else "")
    for how in (".wb", ".cg", ".cs", ".wt"):
        yield Form(g, f"st.global{how}.u32", keys("i32"), ["@i32"], f"st.global{how}.u32 [%a0], %i0;")
    for how in (".weak", ".volatile", ".relaxed.cta", ".relaxed.gpu", ".relaxed.sys", ".release.cta", ".release.gpu",
                ".release.sys", ".relaxed.cluster", ".release.cluster"):
        yield Form(g, f"st{how}.global.u32", keys("i32"), ["@i32"], f"st{how}.global.u32 [%a0], %i0;")
    for t in ("b128",):
        yield Form(g, "ld.global.b128 st.global.b128", [], ["@i64", "@i64"],
                   f"{source}{align}.reg .b128 %w;\nld.relaxed.gpu.global.b128 %w, [%at];\n"
                   "mul.wide.u32 %wide, %me, 16;\nadd.u64 %wide, %out, %wide;\n"
                   "st.relaxed.gpu.global.b128 [%wide], %w;", version="8.4")
    const = ".const .align 8 .b32 table[8] = {1, 2, 0xdeadbeef, 4, 5, 6, 7, 0x80000000};"
    pick = "and.b32 %x, %lane, 7;\nmul.wide.u32 %wide, %x, 4;\nmov.u64 %at, table;\nadd.u64 %at, %at, %wide;\n"
    yield Form(g, "ld.const.b32", [], ["i32"], pick + "ld.const.b32 %o0, [%at];", decl=const)
    yield Form(g, "ld.const.s8", [], ["i32"], pick + "ld.const.s8 %o0, [%at+3];", decl=const)
    yield Form(g, "ld.const.v2.b32", [], ["i32", "i32"], pick + "and.b64 %at, %at, -8;\nld.const.v2.b32 {%o0, %o1}, [%at];",
               decl=const)
    table = const.replace(".const", ".global")
    yield Form(g, "ld.global of a variable", [], ["i32"], pick + "ld.global.b32 %o0, [%at];", decl=table)
    yield Form(g, "ld.param.b32 of a function", keys("i32 i32"), ["i32"],
               "{ .param .b32 pa; .param .b32 pb; .param .b32 pr;\nst.param.b32 [pa], %i0; st.param.b32 [pb], %i1;\n"
               "call (pr), twist, (pa, pb);\nld.param.b32 %o0, [pr]; }",
               decl=".func (.param .b32 r) twist(.param .b32 a, .param .b32 b)\n{ .reg .b32 %x, %y;\n"
                    "ld.param.b32 %x, [a]; ld.param.b32 %y, [b];\nshl.b32 %x, %x, 3; xor.b32 %x, %x, %y;\n"
                    "st.param.b32 [r], %x; ret; }")


def spaces():
    g = "addresses and moves"
    for space in ("shared", "local", "global", "const"):
        decl = SHARED + "\n.const .b32 c[2] = {1, 2};\n.global .b32 v[2];"
        name = {"shared": "sm", "const": "c", "global": "v"}.get(space)
        take = ".local .align 8 .b8 lm[8];\nmov.u64 %at, lm;\n" if space == "local" else f"mov.u64 %at, {name};\n"
        for other in ("shared", "local", "global", "const", "shared::cta", "shared::cluster", "param"):
            yield Form(g, f"isspacep.{other} of {space}", [], ["pred"],
                       f"{take}cvta.{space}.u64 %at, %at;\nisspacep.{other} %o0, %at;", decl=decl)
        yield Form(g, f"cvta.{space}.u64 cvta.to.{space}.u64", [], ["pred"],
                   f"{take}cvta.{space}.u64 %wide, %at;\ncvta.to.{space}.u64 %wide, %wide;\n"
                   "setp.eq.u64 %o0, %at, %wide;", decl=decl)
        if space != "const":
            yield Form(g, f"generic store, {space} load", keys("i32"), ["i32"],
                       (at(space) if space != "global" else
                        ".reg .b64 %t;\nmov.u64 %t, buffer;\nmul.wide.u32 %wide, %me, 4;\nadd.u64 %t, %t, %wide;\n") +
                       f"cvta.{space}.u64 %wide, %t;\nst.u32 [%wide], %i0;\nld.{space}.u32 %o0, [%t];",
                       decl=decl + "\n.global .align 8 .b8 buffer[2048];")
    for t in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        kind = "i" + t[1:]
        yield Form(g, f"mov.{t}", keys([kind]), [kind], f"mov.{t} %o0, %i0;")
    yield Form(g, "mov.pred", keys("bool"), ["pred"], "mov.pred %o0, %i0;")
    yield Form(g, "mov.b32 {b16, b16}", keys("i16 i16"), ["i32"], "mov.b32 %o0, {%i0, %i1};")
    yield Form(g, "mov.b64 {b32, b32}", keys("i32 i32"), ["i64"], "mov.b64 %o0, {%i0, %i1};")
    yield Form(g, "mov.b64 {b16 x 4}", keys("i16 i16 i16 i16"), ["i64"], "mov.b64 %o0, {%i0, %i1, %i2, %i3};")
    yield Form(g, "mov {b16, b16} b32", keys("i32"), ["i16", "i16"], "mov.b32 {%o0, %o1}, %i0;")
    yield Form(g, "mov {b32, b32} b64", keys("i64"), ["i32", "i32"], "mov.b64 {%o0, %o1}, %i0;")
    yield Form(g, "mov {b16 x 4} b64", keys("i64"), ["i16"] * 4, "mov.b64 {%o0, %o1, %o2, %o3}, %i0;")
    yield Form(g, "mov.b128", keys("i64 i64"), ["i64", "i64"],
               ".reg .b128 %w;\nmov.b128 %w, {%i0, %i1};\nmov.b128 {%o1, %o0}, %w;", version="8.3")
    for reg in ("tid.x", "tid.y", "ntid.x", "ntid.z", "ctaid.x", "ctaid.y", "nctaid.x", "nctaid.z", "laneid",
                "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge", "cluster_ctaid.x",
                "cluster_nctaid.x", "cluster_ctarank", "cluster_nctarank", "clusterid.x", "nclusterid.x"):
        yield Form(g, f"mov.u32 %{reg}", [], ["i32"], f"mov.u32 %o0, %{reg};")
    yield Form(g, "mov.pred %is_explicit_cluster", [], ["pred"], "mov.pred %o0, %is_explicit_cluster;")
    for name in ("prefetch.global.L1", "prefetch.global.L2", "prefetchu.L1", "prefetch.global.L2::evict_last"):
        yield Form(g, name, [], ["i32"], f"{name} [%pool];\nmov.u32 %o0, 7;")
    yield Form(g, "discard.global.L2", [], ["i32"], "mov.u32 %o0, 7;\nmov.u64 %at, junk;\ndiscard.global.L2 [%at], 128;",
               decl=".global .align 128 .b8 junk[128];")


ATOMS = [("add", ("u32", "s32", "u64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2")),
         ("min", ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2")),
         ("max", ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2")),
         ("and", ("b32", "b64")), ("or", ("b32", "b64")), ("xor", ("b32", "b64")), ("exch", ("b32", "b64")),
         ("cas", ("b16", "b32", "b64")), ("inc", ("u32",)), ("dec", ("u32",))]


def atomics():
    g = "atomics"
    kinds = {"u32": "i32", "s32": "i32", "b32": "i32", "u64": "i64", "s64": "i64", "b64": "i64", "b16": "i16"}
    for op, types in ATOMS:
        for t in types:
            k = kinds.get(t, t)
            size = {"i16": 16, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64}.get(k, 32)
            noftz = ".noftz" if t in ("f16", "bf16", "f16x2", "bf16x2") and op == "add" else ""
            noftz = ".noftz" if "f16" in t else ""
            ins = keys([k, k, k] if op == "cas" else [k, k])
            more = ", %i2" if op == "cas" else ""
            if op == "cas":  # every other thread finds what it expects
                more = "and.b32 %x, %me, 1;\nsetp.eq.u32 %q, %x, 0;\n@%q mov.b{0} %i1, %i0;\n".format(size)
            for space in ("global", "shared", "generic"):
                for how in ("",) if space != "global" else ("", ".relaxed.cta", ".acquire.gpu", ".release.sys",
                                                           ".acq_rel.gpu", ".relaxed.cluster"):
                    if how not in ("", ".acq_rel.gpu") and t not in ("u32", "b32", "f32"):
                        continue
                    spelled = "" if space == "generic" else f".{space}"
                    pre = at("shared" if space == "shared" else "global").replace("%a0", "%a1")
                    pre += f"st{spelled}.b{size} [%t], %i0;\n" + (more if op == "cas" else "")
                    operands = "%i1, %i2" if op == "cas" else "%i1"
                    outs = [k, k] if space == "shared" else [k, "@" + k]
                    last = "ld.shared.b{0} %o1, [%t];".format(size) if space == "shared" else ""
                    decl = SHARED if space == "shared" else ""
                    yield Form(g, f"atom{how}{spelled}.{op}{noftz}.{t}", ins, outs,
                               f"{pre}atom{how}{spelled}.{op}{noftz}.{t} %o0, [%t], {operands};\n{last}", decl=decl)
                    if op in ("exch", "cas"):
                        continue
                    outs, last = outs[1:], last.replace("%o1", "%o0")
                    yield Form(g, f"red{how}{spelled}.{op}{noftz}.{t}", ins, outs,
                               pre.replace("%a1", "%a0") +
                               f"red{how}{spelled}.{op}{noftz}.{t} [%t], {operands};\n{last}", decl=decl)
    for op in ("exch", "cas"):
        pair = ".reg .b128 %v, %w, %u;\nmov.b128 %v, {%i0, %i1};\nmov.b128 %w, {%i2, %i3};\n"
        more = "%v, %w" if op == "cas" else "%w"
        yield Form(g, f"atom.global.{op}.b128", keys("i64 i64 i64 i64"), ["i64", "i64"],
                   f"{pair}.reg .b64 %t;\nmov.u64 %t, cells;\nmul.wide.u32 %wide, %me, 16;\nadd.u64 %t, %t, %wide;\n"
                   f"st.global.v2.b64 [%t], {{%i0, %i1}};\natom.global.{op}.b128 %u, [%t], {more};\n"
                   "mov.b128 {%o0, %o1}, %u;\nld.global.v2.b64 {%o0, %o1}, [%t];",
                   decl=".global .align 16 .b8 cells[8192];", version="8.4")
    for v, t, k in ((2, "f32", "f32"), (4, "f32", "f32"), (2, "f16", "f16"), (4, "f16", "f16"), (8, "f16", "f16"),
                    (2, "f16x2", "f16x2"), (4, "f16x2", "f16x2"), (2, "bf16", "bf16"), (4, "bf16", "bf16"),
                    (8, "bf16", "bf16"), (2, "bf16x2", "bf16x2"), (4, "bf16x2", "bf16x2")):
        size = 16 if t in ("f16", "bf16") else 32
        for op in ("add", "min", "max") if "f16" in t else ("add",):
            noftz = ".noftz" if "f16" in t else ""
            values = ", ".join(f"%i{i % 4}" for i in range(v))
            regs = ", ".join(f"%r{i}" for i in range(v))
            first = "\n".join(f"st.global.b{size} [%t+{i * size // 8}], %i{(i + 1) % 4};" for i in range(v))
            where = "\nmov.u64 %t, cells;\nmul.wide.u32 %wide, %me, 16;\nadd.u64 %t, %t, %wide;\n"
            fold = "ld.global.v2.b64 {%o0, %o1}, [%t];"
            decl = ".global .align 16 .b8 cells[8192];"
            yield Form(g, f"atom.global.v{v}.{t}.{op}", keys([k] * 4), ["i64", "i64"],
                       f".reg .b64 %t; .reg .b{size} %r<8>;{where}{first}\n"
                       f"atom.global.v{v}.{t}.{op}{noftz} {{{regs}}}, [%t], {{{values}}};\n{fold}".replace(
                           f".v{v}.{t}.{op}{noftz}", f".{op}{noftz}.v{v}.{t}"), decl=decl, n=256)
            yield Form(g, f"red.global.v{v}.{t}.{op}", keys([k] * 4), ["i64", "i64"],
                       f".reg .b64 %t;{where}{first}\nred.global.{op}{noftz}.v{v}.{t} [%t], {{{values}}};\n{fold}",
                       decl=decl, n=256)
    # many threads, one cell: the order is open, the sum is not
    for t, op in (("u32", "add"), ("s32", "min"), ("s32", "max"), ("b32", "and"), ("b32", "or"), ("b32", "xor")):
        yield Form(g, f"red.shared.{op}.{t}, one cell", keys("i32"), ["i32"],
                   ".reg .b32 %s;\nmov.u32 %s, %tid.x;\nsetp.eq.u32 %q, %s, 0;\n@%q st.shared.b32 [sm], 12345;\n"
                   f"bar.sync 0;\nred.shared.{op}.{t} [sm], %i0;\nbar.sync 0;\nld.shared.b32 %o0, [sm];", decl=SHARED)


def asynchronous():
    g = "asynchronous copies and barriers"
    source = f"add.u64 %at, %pool, {OFFSET[('i64', 'u')]};\nmul.wide.u32 %wide, %me, 16;\n" \
             "and.b64 %wide, %wide, 2047;\nadd.u64 %at, %at, %wide;\n"
    own = ".reg .b32 %s;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %s, %s, 16;\nmov.u32 %x, sm;\nadd.u32 %s, %s, %x;\n"
    for how, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        for end in ("cp.async.commit_group;\ncp.async.wait_group 0;", "cp.async.wait_all;"):
            yield Form(g, f"cp.async.{how} {size} {end.split('.')[2].split(';')[0].split()[0]}", [], ["i64", "i64"],
                       f"{source}{own}st.shared.v2.b64 [%s], {{-1, -1}};\n"
                       f"cp.async.{how}.shared.global [%s], [%at], {size};\n{end}\n"
                       "ld.shared.v2.b64 {%o0, %o1}, [%s];", decl=SHARED)
        yield Form(g, f"cp.async.{how} {size} src-size", [], ["i64", "i64"],
                   f"{source}{own}st.shared.v2.b64 [%s], {{-1, -1}};\n.reg .b32 %n;\nand.b32 %n, %lane, {size - 1};\n"
                   f"cp.async.{how}.shared.global [%s], [%at], {size}, %n;\ncp.async.wait_all;\n"
                   "ld.shared.v2.b64 {%o0, %o1}, [%s];", decl=SHARED)
        yield Form(g, f"cp.async.{how} {size} ignore-src", [], ["i64", "i64"],
                   f"{source}{own}st.shared.v2.b64 [%s], {{-1, -1}};\nand.b32 %x, %lane, 1;\nsetp.eq.u32 %q, %x, 1;\n"
                   f"cp.async.{how}.shared.global [%s], [%at], {size}, %q;\ncp.async.wait_all;\n"
                   "ld.shared.v2.b64 {%o0, %o1}, [%s];", decl=SHARED)
    swap = "mov.u32 %s, %tid.x;\nxor.b32 %s, %s, 127;\nmul.lo.u32 %s, %s, 16;\nadd.u32 %s, %s, %x;\n" \
           "ld.shared.b32 %o0, [%s];"
    for name in ("bar.sync 0", "bar.sync 1, 128", "barrier.sync 2", "barrier.sync.aligned 3", "barrier.cta.sync 4",
                 "bar.cta.sync 5", "bar.arrive 6, 256;\nbar.sync 6, 256"):
        if "arrive" in name:
            continue
        yield Form(g, name, keys("i32"), ["i32"], f"{own}st.shared.b32 [%s], %i0;\n{name};\n{swap}", decl=SHARED)
    for op in ("and", "or"):
        yield Form(g, f"bar.red.{op}.pred", keys("bool"), ["pred"], f"bar.red.{op}.pred %o0, 0, %i0;")
    yield Form(g, "bar.red.popc.u32", keys("bool"), ["i32"], "bar.red.popc.u32 %o0, 0, %i0;")
    yield Form(g, "barrier.cluster", keys("i32"), ["i32"],
               f"{own}st.shared.b32 [%s], %i0;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n{swap}", decl=SHARED)
    for name in ("membar.cta", "membar.gl", "membar.sys", "fence.sc.cta", "fence.acq_rel.gpu", "fence.sc.sys",
                 "fence.proxy.async", "fence.mbarrier_init.release.cluster", "fence.sc.cluster", "fence.proxy.alias"):
        yield Form(g, name, keys("i32"), ["i32"], f"{own}st.shared.b32 [%s], %i0;\n{name};\nbar.sync 0;\n{swap}",
                   decl=SHARED)
    bar = SHARED + "\n.shared .align 8 .b64 mb;"
    start = ".reg .b32 %z; .reg .b64 %state;\nmov.u32 %z, %tid.x;\nsetp.eq.u32 %q, %z, 0;\n" \
            "@%q mbarrier.init.shared.b64 [mb], 128;\nbar.sync 0;\n"
    loop = "wait:\n{0} %q, [mb], {1};\n@!%q bra wait;\n"
    for wait in ("mbarrier.test_wait.shared.b64", "mbarrier.try_wait.shared.b64",
                 "mbarrier.try_wait.acquire.cta.shared::cta.b64"):
        yield Form(g, f"mbarrier.arrive.shared.b64, {wait}", keys("i32"), ["i32"],
                   f"{start}{own}st.shared.b32 [%s], %i0;\nmbarrier.arrive.shared.b64 %state, [mb];\n"
                   f"{loop.format(wait, '%state')}{swap}", decl=bar)
    yield Form(g, "mbarrier.test_wait.parity", keys("i32"), ["i32"],
               f"{start}{own}st.shared.b32 [%s], %i0;\nmbarrier.arrive.shared.b64 _, [mb];\n"
               f"{loop.format('mbarrier.test_wait.parity.shared.b64', '0')}{swap}", decl=bar)
    yield Form(g, "mbarrier.arrive.noComplete", keys("i32"), ["i32"],
               f"{start}{own}st.shared.b32 [%s], %i0;\n"
               "setp.lt.u32 %q, %z, 64;\n@%q mbarrier.arrive.noComplete.shared.b64 %state, [mb], 1;\nbar.sync 0;\n"
               "@!%q mbarrier.arrive.shared.b64 %state, [mb];\n"
               f"{loop.format('mbarrier.test_wait.parity.shared.b64', '0')}{swap}", decl=bar)
    yield Form(g, "mbarrier.arrive_drop", keys("i32"), ["i32"],
               f"{start}{own}st.shared.b32 [%s], %i0;\nmbarrier.arrive_drop.shared.b64 %state, [mb];\n"
               f"{loop.format('mbarrier.test_wait.shared.b64', '%state')}{swap}", decl=bar)
    yield Form(g, "mbarrier.arrive.expect_tx, cp.async.bulk", keys("i32"), ["i32"],
               start.replace("128;", "1;") + own +
               "@%q mbarrier.arrive.expect_tx.shared.b64 _, [mb], 2048;\n"
               f"add.u64 %at, %pool, {OFFSET[('i64', 'u')]};\n"
               "@%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sm], [%at], 2048, [mb];\n"
               f"{loop.format('mbarrier.try_wait.parity.shared.b64', '0')}{swap}", decl=bar)
    yield Form(g, "mbarrier.pending_count", keys("i32"), ["i32"],
               f"{start}setp.eq.u32 %q, %z, 0;\n@%q mbarrier.arrive.noComplete.shared.b64 %state, [mb], 5;\n"
               "@%q mbarrier.pending_count.b64 %o0, %state;\n@!%q mov.u32 %o0, 0;", decl=bar)
    yield Form(g, "cp.async.mbarrier.arrive.noinc", keys("i32"), ["i64", "i64"],
               f"{start}{source}{own}cp.async.cg.shared.global [%s], [%at], 16;\n"
               f"cp.async.mbarrier.arrive.noinc.shared.b64 [mb];\n"
               f"{loop.format('mbarrier.test_wait.parity.shared.b64', '0')}ld.shared.v2.b64 {{%o0, %o1}}, [%s];",
               decl=bar)
    yield Form(g, "cp.async.bulk.global.shared::cta", keys("i64"), ["@i64"],
               ".reg .b32 %s;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %s, %s, 8;\nmov.u32 %x, sm;\nadd.u32 %s, %s, %x;\n"
               "st.shared.b64 [%s], %i0;\nfence.proxy.async;\nbar.sync 0;\n"
               "mov.u32 %s, %tid.x;\nsetp.eq.u32 %q, %s, 0;\n"
               "@%q cp.async.bulk.global.shared::cta.bulk_group [%a0], [sm], 1024;\n@%q cp.async.bulk.commit_group;\n"
               "@%q cp.async.bulk.wait_group 0;", decl=SHARED)
    for op, t in (("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"),
                  ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("min", "s64"), ("max", "u64")):
        b, k = t[1:], "i" + t[1:]
        yield Form(g, f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{t}", [(k, 0), (k, 1)], ["@" + k],
                   f".reg .b32 %s;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %s, %s, {int(b) // 8};\nmov.u32 %x, sm;\n"
                   f"add.u32 %s, %s, %x;\nst.shared.b{b} [%s], %i0;\nst.global.b{b} [%a0], %i1;\nmembar.gl;\n"
                   "fence.proxy.async;\nbar.sync 0;\nmov.u32 %s, %tid.x;\nsetp.eq.u32 %q, %s, 0;\n"
                   f"@%q cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{t} [%a0], [sm], {16 * int(b)};\n"
                   "@%q cp.async.bulk.commit_group;\n@%q cp.async.bulk.wait_group 0;", decl=SHARED)
    for name in ("griddepcontrol.wait", "griddepcontrol.launch_dependents", "nanosleep.u32 20"):
        yield Form(g, name, [], ["i32"], f"{name};\nmov.u32 %o0, 7;")
    yield Form(g, "bar.arrive, bar.sync", keys("i32"), ["i32"],  # two warps give, two take
               f"{own}.reg .b32 %z;\nmov.u32 %z, %tid.x;\nsetp.lt.u32 %q, %z, 64;\nmov.u32 %o0, 1;\n"
               "@!%q bra take;\nst.shared.b32 [%s], %i0;\nbar.arrive 1, 128;\nbra done;\ntake:\nbar.sync 1, 128;\n"
               "ld.shared.b32 %o0, [%s+-1024];\ndone:", decl=SHARED)
    yield Form(g, "getctarank.u64", [], ["i32"], "mov.u64 %at, sm;\ncvta.shared.u64 %at, %at;\ngetctarank.u64 %o0, %at;",
               decl=SHARED)


def forms():
    for part in (loads, spaces, atomics, asynchronous):
        yield from part()
