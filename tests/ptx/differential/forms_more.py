# SPDX-License-Identifier: Apache-2.0
"""Forms with few siblings: parameters, remote stores, rarer texture, matrix and barrier words."""

from core import OFFSET, Form, keys
from forms_memory import SHARED, SIZES
from forms_texture import GATHER, NORMALIZED, TEXEL, Texture, UNIT, coordinates, place
from forms_warp import bound_of

BARRIER = SHARED + "\n.shared .align 8 .b64 mb;"
OWN = ".reg .b32 %s;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %s, %s, 16;\nmov.u32 %x, sm;\nadd.u32 %s, %s, %x;\n"
SWAP = "mov.u32 %s, %tid.x;\nxor.b32 %s, %s, 127;\nmul.lo.u32 %s, %s, 16;\nadd.u32 %s, %s, %x;\nld.shared.b32 %o0, [%s];"
WAIT = "wait:\nmbarrier.try_wait.parity.shared.b64 %q, [mb], 0;\n@!%q bra wait;\n"


def start(count):
    return (".reg .b32 %z; .reg .b64 %state;\nmov.u32 %z, %tid.x;\nsetp.eq.u32 %q, %z, 0;\n"
            f"@%q mbarrier.init.shared.b64 [mb], {count};\nbar.sync 0;\n")


def parameters():
    """The third parameter is a constant where there is no texture."""
    g = "load and store"
    for t in SIZES:
        for reg in ("i16", "i32", "i64"):
            if SIZES[t] * 8 > int(reg[1:]) or (t[0] == "f" and SIZES[t] * 8 != int(reg[1:])):
                continue
            yield Form(g, f"ld.param.{t} into {reg[1:]} bits", [], [reg], f"ld.param.{t} %o0, [p2];", n=32)
    yield Form(g, "ld.param.v2.b32", [], ["i32", "i32"], "ld.param.v2.b32 {%o0, %o1}, [p2];", n=32)
    yield Form(g, "ld.param.v4.s8", [], ["i32"] * 4, "ld.param.v4.s8 {%o0, %o1, %o2, %o3}, [p2+4];", n=32)
    yield Form(g, "applypriority.global.L2::evict_normal", [], ["i32"],
               "mov.u64 %at, junk;\napplypriority.global.L2::evict_normal [%at], 128;\nmov.u32 %o0, 7;",
               decl=".global .align 128 .b8 junk[128];", n=32)


def remote():
    g = "asynchronous copies and barriers"
    two = ".explicitcluster .reqnctapercluster 2, 1, 1"  # without one the instructions are illegal
    here = (".reg .b32 %ra, %rb, %mz, %own;\nmov.u32 %mz, mb;\nmov.u32 %own, %cluster_ctarank;\n"
            "mapa.shared::cluster.u32 %ra, %s, %own;\nmapa.shared::cluster.u32 %rb, %mz, %own;\n")
    for v, t in ((1, "b64"), (2, "b32"), (4, "b32"), (2, "b64"), (4, "f32"), (1, "s32")):
        k = "i" + t[1:]
        vector = f".v{v}" if v > 1 else ""
        source = "{" + ", ".join(f"%i{i}" for i in range(v)) + "}" if v > 1 else "%i0"
        total = 128 * v * int(t[1:]) // 8
        yield Form(g, f"st.async.shared::cluster{vector}.{t}", [(k, i) for i in range(v)], ["i64", "i64"],
                   f"{start(1)}{OWN}st.shared.v2.b64 [%s], {{-1, -1}};\nbar.sync 0;\n"
                   f"@%q mbarrier.arrive.expect_tx.shared.b64 _, [mb], {total};\nbar.sync 0;\n{here}"
                   f"st.async.shared::cluster.mbarrier::complete_tx::bytes{vector}.{t} [%ra], {source}, [%rb];\n{WAIT}"
                   "ld.shared.v2.b64 {%o0, %o1}, [%s];", decl=BARRIER, n=256, directives=two)
    for op, t in (("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"),
                  ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32")):
        b, k = t[1:], "i" + t[1:]
        yield Form(g, f"red.async.shared::cluster.{op}.{t}", [(k, 0), (k, 1)], [k],
                   f"{start(1)}{OWN}st.shared.b{b} [%s], %i0;\nbar.sync 0;\n"
                   f"@%q mbarrier.arrive.expect_tx.shared.b64 _, [mb], {16 * int(b)};\nbar.sync 0;\n{here}"
                   f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{t} [%ra], %i1, [%rb];\n"
                   f"{WAIT}ld.shared.b{b} %o0, [%s];", decl=BARRIER, directives=two)
    arrive = {"mbarrier.arrive, a count": (256, "mbarrier.arrive.shared.b64 %state, [mb], 2;"),
              "mbarrier.arrive.release.cta.shared::cta.b64": (
                  128, "mbarrier.arrive.release.cta.shared::cta.b64 %state, [mb];"),
              "mbarrier.arrive.release.cluster.shared::cluster.b64": (
                  128, ".reg .b32 %mz, %rb;\nmov.u32 %mz, mb;\nmapa.shared::cluster.u32 %rb, %mz, 0;\n"
                  "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%rb];"),
              "mbarrier.expect_tx, mbarrier.complete_tx": (
                  128, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [mb], 8;\n"
                  "mbarrier.arrive.shared.b64 %state, [mb];\n"
                  "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [mb], 8;"),
              "mbarrier.arrive_drop.noComplete": (
                  129, "setp.lt.u32 %q, %z, 64;\n@%q mbarrier.arrive_drop.noComplete.shared.b64 %state, [mb], 1;\n"
                  "bar.sync 0;\n@!%q mbarrier.arrive.shared.b64 %state, [mb];\nsetp.eq.u32 %q, %z, 5;\n"
                  "@%q mbarrier.arrive.shared.b64 %state, [mb];"),
              "mbarrier.arrive.expect_tx, each thread": (
                  128, "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %state, [mb], 4;\n"
                  "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [mb], 4;")}
    for name, (count, text) in arrive.items():
        yield Form(g, name, keys("i32"), ["i32"],
                   f"{start(count)}{OWN}st.shared.b32 [%s], %i0;\n{text}\n{WAIT}{SWAP}", decl=BARRIER)
    yield Form(g, "mbarrier.inval", keys("i32"), ["i32"],
               f"{start(128)}{OWN}st.shared.b32 [%s], %i0;\nmbarrier.arrive.shared.b64 %state, [mb];\n{WAIT}bar.sync 0;\n"
               f"setp.eq.u32 %q, %z, 0;\n@%q mbarrier.inval.shared.b64 [mb];\n{SWAP}", decl=BARRIER)
    for name in ("barrier.cta.red.popc.u32", "barrier.red.popc.aligned.u32", "bar.cta.red.popc.u32"):
        yield Form(g, name, keys("bool"), ["i32"], f"{name} %o0, 1, %i0;")
        yield Form(g, name + ", !p and a count", keys("bool"), ["i32"], f"{name} %o0, 1, 128, !%i0;")
    for op in ("and", "or"):
        yield Form(g, f"barrier.cta.red.{op}.pred, uniform", [], ["pred"],
                   f".reg .pred %r;\nsetp.lt.u32 %r, %me, 256;\nbarrier.cta.red.{op}.pred %o0, 0, %r;")


def textures():
    g = "textures"
    dest = "{%o0, %o1, %o2, %o3}"
    zero = "mov.b32 %f3, 0f00000000;\n"
    for geometry, gradient in (("1d", "{%f3}"), ("2d", "{%f3, %f3}"), ("3d", "{%f3, %f3, %f3, %f3}"),
                               ("a2d", "{%f3, %f3}")):
        yield Form(g, f"tex.grad.{geometry}.v4.f32.f32", [], ["f32"] * 4,
                   coordinates(UNIT) + zero + f"tex.grad.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}], "
                   f"{gradient}, {gradient};", texture=Texture(geometry, "f32", flags=NORMALIZED))
    for geometry in ("2d", "a2d", "cube"):
        yield Form(g, f"tld4.g.{geometry}.v4.f32.f32, wrapped", [], ["f32"] * 4,
                   coordinates(UNIT) + f"tld4.g.{geometry}.v4.f32.f32 {dest}, [%h, {place(geometry, False)}];",
                   texture=Texture(geometry, "f32", flags=NORMALIZED, address="wrap",
                                   array=GATHER if geometry != "cube" else 0))
    yield Form(g, "tex.2d.v2.f16x2.f32", [], ["f16x2", "f16x2"],
               coordinates(UNIT) + "tex.2d.v2.f16x2.f32 {%o0, %o1}, [%h, {%f0, %f1}];",
               texture=Texture("2d", "f16", flags=NORMALIZED))
    for what in ("normalized_coords", "filter_mode", "addr_mode_0", "num_mipmap_levels", "num_samples"):
        yield Form(g, f"txq.{what}.b32", [], ["i32"],
                   f".reg .b64 %h;\nld.param.u64 %h, [p2];\ntxq.{what}.b32 %o0, [%h];",
                   texture=Texture("2d", "f32", flags=NORMALIZED, address="wrap"), n=32)
    inside = (".reg .b32 %n<4>; .reg .b64 %h;\nld.param.u64 %h, [p2];\nand.b32 %n0, %me, 15;\n"
              "shr.u32 %n1, %me, 4;\n")
    for kind, values in (("u8", "i32"), ("s16", "i32"), ("u32", "i32"), ("f32", "f32")):
        size = {"u8": 4, "s16": 8, "u32": 16, "f32": 16}[kind]
        loads = {4: "suld.b.2d.b32.trap %o0, [%h, {%n2, %n1}];\nmov.b32 %o1, 0;\nmov.b32 %o2, 0;\nmov.b32 %o3, 0;",
                 8: "suld.b.2d.v2.b32.trap {%o0, %o1}, [%h, {%n2, %n1}];\nmov.b32 %o2, 0;\nmov.b32 %o3, 0;",
                 16: "suld.b.2d.v4.b32.trap {%o0, %o1, %o2, %o3}, [%h, {%n2, %n1}];"}[size]
        yield Form("surfaces", f"sust.p.2d.v4.b32.trap to {kind}", [(values, i) for i in range(4)], ["i32"] * 4,
                   inside + "sust.p.2d.v4.b32.trap [%h, {%n0, %n1}], {%i0, %i1, %i2, %i3};\n"
                   f"mul.lo.u32 %n2, %n0, {size};\n{loads}", texture=Texture("2d", kind, surface=True), n=128)


def matrices():
    """wmma with other words, and from global memory with a stride."""
    g = "matrix products"
    for rounding in ("", ".rn", ".rz", ".rm", ".rp"):
        name = f"wmma.mma.sync.aligned.row.col.m8n8k4{rounding}.f64.f64.f64.f64"
        yield Form(g, name + ", loaded", [("mf64", 0)], ["f64"],
                       ".reg .b64 %wa, %wb, %wc<2>;\n.reg .b32 %s, %t;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %t, %s, 8;\n"
                       "mov.u32 %x, sm;\nadd.u32 %t, %t, %x;\nst.shared.b64 [%t], %i0;\nbar.sync 0;\n"
                       "wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%wa}, [%x];\n"
                       "wmma.load.b.sync.aligned.col.m8n8k4.shared.f64 {%wb}, [%x+256];\n"
                       "wmma.load.c.sync.aligned.row.m8n8k4.shared.f64 {%wc0, %wc1}, [%x+512];\n"
                       f"{name} {{%wc0, %wc1}}, {{%wa}}, {{%wb}}, {{%wc0, %wc1}};\nbar.sync 0;\n"
                       "wmma.store.d.sync.aligned.col.m8n8k4.shared.f64 [%x], {%wc0, %wc1};\nbar.sync 0;\n"
                       "and.b32 %t, %s, 63;\nmul.lo.u32 %t, %t, 8;\nadd.u32 %t, %t, %x;\nld.shared.b64 %o0, [%t];",
                       decl=".shared .align 128 .b8 sm[1024];", bound=bound_of("f64", "f64"), n=128)
    for sat in ("", ".satfinite"):
        for t in ("s8", "u8"):
            name = f"wmma.mma.sync.aligned.row.col.m16n16k16.s32.{t}.{t}.s32{sat}"
            yield Form(g, name + ", strides", [("mint", i) for i in range(4)], ["i32", "i32"],
                       ".reg .b32 %wa<2>, %wb<2>, %wc<8>;\n.reg .b32 %s, %t, %u;\nmov.u32 %s, %tid.x;\nmul.lo.u32 %t, %s, 16;\n"
                       "mov.u32 %x, sm;\nadd.u32 %t, %t, %x;\nst.shared.v4.b32 [%t], {%i0, %i1, %i2, %i3};\nbar.sync 0;\n"
                       f"wmma.load.a.sync.aligned.row.m16n16k16.shared.{t} {{%wa0, %wa1}}, [%x], 32;\n"
                       f"wmma.load.b.sync.aligned.col.m16n16k16.shared.{t} {{%wb0, %wb1}}, [%x+512], 32;\n"
                       "wmma.load.c.sync.aligned.col.m16n16k16.shared.s32 {%wc0, %wc1, %wc2, %wc3, %wc4, %wc5, %wc6, %wc7}, "
                       "[%x+1024], 16;\n"
                       f"{name} {{%wc0, %wc1, %wc2, %wc3, %wc4, %wc5, %wc6, %wc7}}, {{%wa0, %wa1}}, {{%wb0, %wb1}}, "
                       "{%wc0, %wc1, %wc2, %wc3, %wc4, %wc5, %wc6, %wc7};\nbar.sync 0;\n"
                       "wmma.store.d.sync.aligned.col.m16n16k16.shared.s32 [%x], "
                       "{%wc0, %wc1, %wc2, %wc3, %wc4, %wc5, %wc6, %wc7}, 16;\nbar.sync 0;\n"
                       "mul.lo.u32 %t, %s, 8;\nadd.u32 %t, %t, %x;\nld.shared.v2.b32 {%o0, %o1}, [%t];",
                       decl=".shared .align 128 .b8 sm[2048];", n=128)


def video():
    g = "video"
    for second in ("add", "min", "max"):
        for a, b in (("u32", "u32"), ("s32", "s32"), ("u32", "s32")):
            for op in ("lt", "ge", "ne"):
                yield Form(g, f"vset.{a}.{b}.{op}.{second} a.b1 b.h1", keys("i32 i32 i32"), ["i32"],
                           f"vset.{a}.{b}.{op}.{second} %o0, %i0.b1, %i1.h1, %i2;")
    for place_ in (".b0", ".b3", ".h0", ".h1"):
        yield Form(g, f"vset.s32.u32.gt d{place_}", keys("i32 i32 i32"), ["i32"],
                   f"vset.s32.u32.gt %o0{place_}, %i0, %i1, %i2;")
    for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for place_ in (".b1", ".h1"):
            for d in ("u32", "s32"):
                yield Form(g, f"{name}.{d}.s32.s32.sat d{place_}", keys("i32 i32 i32"), ["i32"],
                           f"{name}.{d}.s32.s32.sat %o0{place_}, %i0, %i1, %i2;")


def clusters():
    g = "clusters"
    two = ".explicitcluster .reqnctapercluster 2, 1, 1"
    four = ".explicitcluster .reqnctapercluster 4, 1, 1"
    both = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    for reg in ("cluster_ctaid.x", "cluster_nctaid.x", "cluster_ctarank", "cluster_nctarank", "clusterid.x",
                "nclusterid.x", "cluster_ctaid.y", "nclusterid.y"):
        yield Form(g, f"mov.u32 %{reg}, clusters of 2", [], ["i32"], f"mov.u32 %o0, %{reg};", directives=two)
    yield Form(g, "mov.pred %is_explicit_cluster, clusters of 2", [], ["pred"], "mov.pred %o0, %is_explicit_cluster;",
               directives=two)
    other = ".reg .b32 %r, %rs;\nmov.u32 %r, %cluster_ctarank;\n"
    for words, name in ((two, 2), (four, 4)):
        turn = f"add.u32 %r, %r, 1;\nand.b32 %r, %r, {name - 1};\n"
        yield Form(g, f"mapa.shared::cluster.u32, ld.shared::cluster.u32, clusters of {name}", keys("i32"), ["i32"],
                   f"{OWN}st.shared.b32 [%s], %i0;\n{both}{other}{turn}mapa.shared::cluster.u32 %rs, %s, %r;\n"
                   f"ld.shared::cluster.u32 %o0, [%rs];\n{both}", decl=SHARED, directives=words)
        yield Form(g, f"mapa.u64, generic ld, clusters of {name}", keys("i32"), ["i32", "i32"],
                   f"{OWN}st.shared.b32 [%s], %i0;\n{both}{other}{turn}cvt.u64.u32 %wide, %s;\n"
                   "cvta.shared.u64 %wide, %wide;\nmapa.u64 %wide, %wide, %r;\nld.u32 %o0, [%wide];\n"
                   f"getctarank.u64 %o1, %wide;\n{both}", decl=SHARED, directives=words)
        yield Form(g, f"st.shared::cluster.u32, clusters of {name}", keys("i32"), ["i32"],
                   f"{OWN}{both}{other}{turn}mapa.shared::cluster.u32 %rs, %s, %r;\nst.shared::cluster.u32 [%rs], %i0;\n"
                   f"{both}ld.shared.b32 %o0, [%s];", decl=SHARED, directives=words)
        for op, t in (("add", "u32"), ("max", "s32"), ("xor", "b32")):
            yield Form(g, f"atom.shared::cluster.{op}.{t}, clusters of {name}", keys("i32 i32"), ["i32", "i32"],
                       f"{OWN}st.shared.b32 [%s], %i0;\n{both}{other}{turn}mapa.shared::cluster.u32 %rs, %s, %r;\n"
                       f"atom.shared::cluster.{op}.{t} %o0, [%rs], %i1;\n{both}ld.shared.b32 %o1, [%s];", decl=SHARED,
                       directives=words)
        for space in ("shared::cta", "shared::cluster", "shared"):
            yield Form(g, f"isspacep.{space} of another block's memory, clusters of {name}", [], ["pred"],
                       f"{other}{turn}mov.u64 %wide, sm;\ncvta.shared.u64 %wide, %wide;\nmapa.u64 %wide, %wide, %r;\n"
                       f"isspacep.{space} %o0, %wide;", decl=SHARED, directives=words)
        remote_bar = ".reg .b32 %mz, %rb;\nmov.u32 %mz, mb;\nmapa.shared::cluster.u32 %rb, %mz, %r;\n"
        yield Form(g, f"st.async.shared::cluster, clusters of {name}", keys("i32"), ["i32"],
                   f"{start(1)}{OWN}@%q mbarrier.arrive.expect_tx.shared.b64 _, [mb], 512;\n"
                   f"fence.mbarrier_init.release.cluster;\n{both}{other}{turn}{remote_bar}"
                   "mapa.shared::cluster.u32 %rs, %s, %r;\n"
                   "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%rs], %i0, [%rb];\n"
                   f"{WAIT}ld.shared.b32 %o0, [%s];\n{both}", decl=BARRIER, directives=words)
        yield Form(g, f"mbarrier.arrive.shared::cluster, clusters of {name}", keys("i32"), ["i32"],
                   f"{start(128)}{OWN}st.shared.b32 [%s], %i0;\nfence.mbarrier_init.release.cluster;\n{both}{other}{turn}"
                   f"{remote_bar}mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%rb];\n{WAIT}{SWAP}\n{both}",
                   decl=BARRIER, directives=words)
        yield Form(g, f"cp.async.bulk.shared::cluster.shared::cta, clusters of {name}", keys("i32"), ["i32"],
                   f"{start(1)}{OWN}st.shared.b32 [%s], %i0;\nfence.proxy.async;\n"
                   "@%q mbarrier.arrive.expect_tx.shared.b64 _, [mb], 2048;\nfence.mbarrier_init.release.cluster;\n"
                   f"{both}{other}{turn}{remote_bar}.reg .b32 %to, %from;\nmov.u32 %from, sm;\nadd.u32 %to, %from, 2048;\n"
                   "mapa.shared::cluster.u32 %to, %to, %r;\nsetp.eq.u32 %q, %z, 0;\n"
                   "@%q cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%to], [%from], 2048, [%rb];\n"
                   f"{WAIT}ld.shared.b32 %o0, [%s+2048];\n{both}", decl=BARRIER, directives=words)
        yield Form(g, f"cp.async.bulk multicast, clusters of {name}", [], ["i32"],
                   f"{start(1)}{OWN}@%q mbarrier.arrive.expect_tx.shared.b64 _, [mb], 2048;\n"
                   f"fence.mbarrier_init.release.cluster;\n{both}{other}.reg .b16 %mask;\nmov.b16 %mask, {2 ** name - 1};\n"
                   f"add.u64 %at, %pool, {OFFSET[('i64', 'u')]};\nadd.u32 %r, %r, %z;\nsetp.eq.u32 %q, %r, 0;\n"
                   "@%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                   f"[sm], [%at], 2048, [mb], %mask;\n{WAIT}ld.shared.b32 %o0, [%s];\n{both}", decl=BARRIER,
                   directives=words)
    for arrive in ("arrive", "arrive.release", "arrive.relaxed", "arrive.aligned", "arrive.release.aligned"):
        wait = "wait.acquire" + (".aligned" if "aligned" in arrive else "")
        fence = "fence.acq_rel.cluster;\n" if "relaxed" in arrive else ""
        yield Form(g, f"barrier.cluster.{arrive}, barrier.cluster.{wait}", keys("i32"), ["i32"],
                   f"{OWN}st.shared.b32 [%s], %i0;\n{fence}barrier.cluster.{arrive};\nbarrier.cluster.{wait};\n{fence}{other}"
                   "xor.b32 %r, %r, 1;\nmapa.shared::cluster.u32 %rs, %s, %r;\n"
                   f"ld.shared::cluster.u32 %o0, [%rs];\n{both}", decl=SHARED, directives=two)


def stores_outside():
    """Stores past the edge of a surface go nowhere; what is inside depends on the place alone."""
    for geometry in ("1d", "2d", "3d", "a1d", "a2d"):
        for t, size in (("b32", 4), ("b64", 8)):
            at = place(geometry, True)
            yield Form("surfaces", f"sust.b.{geometry}.{t}.zero outside", [], ["i32" if size == 4 else "i64"],
                       coordinates(TEXEL) + f"mul.lo.s32 %n0, %n0, {size};\n.reg .b{size * 8} %v; .reg .b32 %w;\n" +
                       {"1d": "mov.b32 %w, %n0;\n", "2d": "mad.lo.s32 %w, %n1, 1000, %n0;\n", "3d": "mad.lo.s32 %w, %n1, 1000, %n0;\nmad.lo.s32 %w, %n2, 777777, %w;\n",
                        "a1d": "mad.lo.s32 %w, %n3, 1000, %n0;\n",
                        "a2d": "mad.lo.s32 %w, %n1, 1000, %n0;\nmad.lo.s32 %w, %n3, 777777, %w;\n"}[geometry] +
                       ("mov.b32 %v, %w;\n" if size == 4 else "cvt.s64.s32 %v, %w;\n") +
                       f"sust.b.{geometry}.{t}.zero [%h, {at}], %v;\nsuld.b.{geometry}.{t}.zero %o0, [%h, {at}];",
                       texture=Texture(geometry, "u32", channels=size // 4, surface=True))


def forms():
    for part in (parameters, remote, textures, matrices, video, clusters, stores_outside):
        yield from part()
