/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of fuzz_ptx. A template is an instruction with places:
 *
 *   <a|b|c>   one of them
 *   $w $W     a 32-bit register to write; a source: a register or a number
 *   $l $L     the same of 64 bits
 *   $h $f $g $q $p   a register: 16 bits, f32, f64, b128, predicate
 *   $G $S $C $A $O $B   an address: global, shared, shared of the cluster, generic, local, mbarrier
 *   $N        a byte count of a bulk copy       $V   a stride
 *   $M        a mask of lanes                   $T   a texture or surface handle
 *   $1 .. $8  a vector of so many 32-bit registers; $x, $y: of 2, 4 f32; $z: of 2 64-bit registers
 *
 * %d0 to %d15 and %r0 to %r15 are addresses that the prologue makes; what templates write are the
 * others, so an instruction usually finds sound operands and every kernel goes on for a while. */
#include "fuzz_grammar.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const templates[] = {
    /* memory */
    "ld<.global|.global.nc|.volatile.global|.relaxed.gpu.global|.acquire.sys.global|.global.cg>."
    "u32 $w, $G;",
    "ld.global.v2.u32 {$w, $w}, $G;",
    "ld.global.v4.u32 $4, $G;",
    "ld.global<.b8|.b16> $h, $G;",
    "ld.global.v2.u64 $z, $G;",
    "ld.global.b128 $q, $G;",
    "ld<.shared|.volatile.shared|.shared::cta>.u32 $w, $S;",
    "ld.shared::cluster.u32 $w, $C;",
    "ld.shared.v4.f32 $y, $S;",
    "ld.shared.b64 $l, $S;",
    "ld.local.u32 $w, $O;",
    "ld.local.v2.u64 $z, $O;",
    "ld.const.u32 $w, [table+<0|4|60|64|-4>];",
    "ld.param.u32 $w, [p<0|1|2|3|0+4|1+4>];",
    "ld<.u32|.volatile.u32|.relaxed.cluster.u32> $w, $A;",
    "ld.v4.f32 $y, $A;",
    "ld.u64 $l, $A;",
    "ldu.global.u32 $w, $G;",
    "st<.global|.volatile.global|.release.gpu.global>.u32 $G, $W;",
    "st.global.v4.u32 $G, $4;",
    "st.global.b128 $G, $q;",
    "st.global.b8 $G, $h;",
    "st.shared.u32 $S, $W;",
    "st.shared.v2.u64 $S, $z;",
    "st.shared::cluster.u32 $C, $W;",
    "st.local.u32 $O, $W;",
    "st.u32 $A, $W;",
    "st.v4.f32 $A, $y;",
    "st.u64 $A, $L;",
    "prefetch<.global.L1|.global.L2> $G;",
    "prefetchu.L1 $A;",
    "discard.global.L2 $G, 128;",
    "applypriority.global.L2::evict_normal $G, 128;",
    "isspacep<.global|.shared|.shared::cluster|.local|.const|.param> $p, $L;",
    "cvta<.shared|.global|.local|.const|.to.shared|.to.global|.to.local>.u64 $l, $L;",
    "alloca.u64 $l, <16|4096|65536|$l>, 16;",
    /* atomics */
    "atom<|.global|.relaxed.gpu.global>.<and|or|xor|exch>.b32 $w, $G, $W;",
    "atom.global.<add|min|max|inc|dec>.u32 $w, $G, $W;",
    "atom<|.global|.acq_rel.sys>.add.u32 $w, $A, $W;",
    "atom.shared.<add|min|max>.u32 $w, $S, $W;",
    "atom.shared::cluster.add.u32 $w, $C, $W;",
    "atom.global.cas.b<16|32> <$h|$w>, $G, <$h|$W>, <$h|$W>;",
    "atom.cas.b64 $l, $A, $L, $L;",
    "atom.global.cas.b128 $q, $G, $q, $q;",
    "atom.global.exch.b128 $q, $G, $q;",
    "atom.shared.add.<u64|f64> <$l|$g>, $S, <$L|$g>;",
    "atom.global.add.noftz.<f16|bf16> $h, $G, $h;",
    "atom.global.v4.f32.add $y, $G, $y;",
    "red<.global|.relaxed.cluster.global>.<add|min|max>.u32 $G, $W;",
    "red.shared.add.u64 $S, $L;",
    "red.global.add.v4.f32 $G, $y;",
    "red.add.f32 $A, $f;",
    /* asynchronous copies and mbarriers */
    "cp.async.<ca|cg>.shared.global $S, $G, 16;",
    "cp.async.ca.shared.global $S, $G, <4|8|16>, $W;",
    "cp.async.ca.shared.global $S, $G, <4|8>, $p;",
    "cp.async.<commit_group|wait_all>;",
    "cp.async.wait_group <0|1>;",
    "cp.async.mbarrier.arrive<|.noinc>.shared.b64 $B;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes $S, $G, $N, $B;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes $C, $A, $N, $B;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster $S, $G, "
    "$N, $B, <$w|3|255|65535>;",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes $C, $S, $N, $B;",
    "cp.async.bulk.global.shared::cta.bulk_group $G, $S, $N;",
    "cp.async.bulk.global.shared::cta.bulk_group $A, $S, $N;",
    "cp.async.bulk.<commit_group|wait_group 0|wait_group.read 0>;",
    "cp.async.bulk.prefetch.L2.global $G, $N;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.<add|min|max|inc|dec>.u32 $G, $S, $N;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.<add|min|max>.<u64|s64> $A, $S, $N;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.<add|min|max>.noftz.<f16|bf16> $G, $S, $N;",
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.<and|or|xor>."
    "b32 $C, $S, $N, $B;",
    "mbarrier.init.shared.b64 $B, <1|2|32|64|$W>;",
    "mbarrier.init.shared.b64 [bar], <1|32|64>;",
    "mbarrier.inval.shared.b64 $B;",
    "mbarrier.<arrive|arrive_drop>.shared.b64 <_|$l>, $B;",
    "mbarrier.arrive<|_drop>.shared.b64 $l, $B, $W;",
    "mbarrier.<arrive|arrive_drop>.expect_tx.shared.b64 _, $B, $N;",
    "mbarrier.<expect_tx|complete_tx>.relaxed.<cta|cluster>.shared<::cta|::cluster>.b64 $B, $N;",
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, $C;",
    "mbarrier.<test_wait|try_wait>.shared.b64 $p, $B, $l;",
    "mbarrier.<test_wait|try_wait>.parity.shared.b64 $p, $B, $W;",
    "mbarrier.arrive.b64 $l, $A;",
    "mbarrier.pending_count.b64 $w, $l;",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.<u32|b32> $C, $w, $B;",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v<2.b32|2.s32> $C, {$w, $w}, $C;",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 $C, $y, $C;",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 $C, $z, $C;",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.<add|min|max|inc|dec>."
    "u32 $C, $w, $C;",
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 $C, $l, $B;",
    "@$p multimem.<ld_reduce|red>.relaxed.sys.global.add.u32 $w, $G;",
    /* clusters */
    "clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes<|.multicast::cluster::all>."
    "b128 $A, $A;",
    "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 $S, $B;",
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 $p, $q;",
    "clusterlaunchcontrol.query_cancel.get_first_ctaid<::x.b32|::y.b32|::z.b32>.b128 $w, $q;",
    "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 $4, $q;",
    "mapa.shared::cluster.u32 $w, %r<3|4|5>, $W;",
    "mapa.u64 $l, %d3, $W;",
    "mapa.shared::cluster.u64 $l, $L, $W;",
    "getctarank<.shared::cluster|>.u<32 $w, $W|64 $w, $L>;",
    "getctarank.u64 $w, $L;",
    "barrier.cluster.arrive<|.relaxed|.release.aligned>;",
    "barrier.cluster.arrive; barrier.cluster.wait;",
    "barrier.cluster.wait<|.acquire.aligned>;",
    /* barriers, warps */
    "bar.sync <0|1|15|$W><|, 32|, 64|, $W>;",
    "barrier.sync <0|1|$W><|, 64>;",
    "bar.arrive <1|2|$W>, <64|128|$W>;",
    "bar.red.<and|or>.pred $p, <0|1|$W>, $p;",
    "bar.red.popc.u32 $w, <0|1>, $p;",
    "bar.warp.sync $M;",
    "shfl.sync.<up|down|bfly|idx>.b32 $w, $W, $W, $W, $M;",
    "shfl.sync.<up|down|bfly|idx>.b32 $w|$p, $W, $W, $W, $M;",
    "vote.sync.<any|all|uni>.pred $p, $p, $M;",
    "vote.sync.ballot.b32 $w, $p, $M;",
    "match.<any|all>.sync.b<32 $w, $W|32 $w, $W>, $M;",
    "match.all.sync.b64 $w|$p, $L, $M;",
    "redux.sync.<add|min|max>.s32 $w, $W, $M;",
    "elect.sync $w|$p, $M;",
    "activemask.b32 $w;",
    "fence.<sc|acq_rel>.<cta|gpu|sys|cluster>;",
    "fence.proxy.<async|alias>;",
    "griddepcontrol.<wait|launch_dependents>;",
    "nanosleep.u32 <0|1|$w>;",
    /* matrices */
    "ldmatrix.sync.aligned.m8n8.x1<|.trans>.shared.b16 {$w}, $S;",
    "ldmatrix.sync.aligned.m8n8.x2<|.trans>.shared.b16 $2, $S;",
    "ldmatrix.sync.aligned.m8n8.x4<|.trans>.shared<|::cta>.b16 $4, $S;",
    "stmatrix.sync.aligned.m8n8.x4<|.trans>.shared.b16 $S, $4;",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 $S, {$w};",
    "movmatrix.sync.aligned.m8n8.trans.b16 $w, $w;",
    "wmma.load.<a|b>.sync.aligned.<row|col>.<m16n16k16|m8n32k16|m32n8k16>.global.f16 $8, $G, $V;",
    "wmma.load.<a|b>.sync.aligned.<row|col>.m16n16k16.shared.f16 $8, $S, $V;",
    "wmma.load.a.sync.aligned.<row|col>.m16n16k16.global.f16 $8, $A, $V;",
    "wmma.load.c.sync.aligned.<row|col>.m16n16k16.global.f16 $4, $G, $V;",
    "wmma.load.c.sync.aligned.<row|col>.m16n16k16.shared.f32 "
    "{%f8,%f9,%f10,%f11,%f12,%f13,%f14,%f15}, $S, $V;",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.<u8|s8> $2, $G, $V;",
    "wmma.load.a.sync.aligned.row.m8n8k32.global.<u4|s4> {$w}, $G, $V;",
    "wmma.load.b.sync.aligned.col.m8n8k128.global.b1 {$w}, $G, $V;",
    "wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {$g}, $G, $V;",
    "wmma.store.d.sync.aligned.<row|col>.m16n16k16.global.f16 $G, $4, $V;",
    "wmma.store.d.sync.aligned.<row|col>.m16n16k16<|.global>.f16 $A, $4, $V;",
    "wmma.store.d.sync.aligned.<row|col>.m16n16k16.shared.f32 $S, "
    "{%f8,%f9,%f10,%f11,%f12,%f13,%f14,%f15}, $V;",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 $4, $8, $8, $4;",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 $y, $4, $2, $y;",
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 $2, $2, {$w}, $2;",
    "mma.sync.aligned.m16n8k32.row.col.s32.<u8|s8>.<u8|s8>.s32 $4, $4, $2, $4;",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$g, $g}, {$g}, {$g}, {$g, $g};",
    /* textures and surfaces */
    "tex.1d.v4.<f32|u32|s32>.<f32 $Y, [$T, {$f}]|s32 $Y, [$T, {$w}]>;",
    "tex.2d.v4.f32.f32 $y, [$T, {$f, $f}];",
    "tex.2d.v4.u32.s32 $4, [$T, {$w, $w}];",
    "tex.3d.v4.f32.<f32 $y, [$T, {$f, $f, $f, $f}]|s32 $y, [$T, {$w, $w, $w, $w}]>;",
    "tex.a1d.v4.f32.f32 $y, [$T, {$w, $f}];",
    "tex.a2d.v4.f32.f32 $y, [$T, {$w, $f, $f, $f}];",
    "tex.cube.v4.f32.f32 $y, [$T, {$f, $f, $f, $f}];",
    "tex.acube.v4.f32.f32 $y, [$T, {$w, $f, $f, $f}];",
    "tex.level.2d.v4.f32.f32 $y, [$T, {$f, $f}], $f;",
    "tex.level.3d.v4.f32.f32 $y, [$T, {$f, $f, $f, $f}], $f;",
    "tex.grad.2d.v4.f32.f32 $y, [$T, {$f, $f}], {$f, $f}, {$f, $f};",
    "tld4.<r|g|b|a>.2d.v4.f32.f32 $y, [$T, {$f, $f}];",
    "tld4.r.cube.v4.f32.f32 $y, [$T, {$f, $f, $f, $f}];",
    "txq.<width|height|depth|num_mipmap_levels|array_size>.b32 $w, [$T];",
    "txq.level.<width|height>.b32 $w, [$T], $W;",
    "suq.<width|height|depth>.b32 $w, [$T];",
    "suld.b.1d.<b32.trap {$w}|v2.b32.clamp {$w, $w}|v4.b32.zero {$w, $w, $w, $w}>, [$T, {$w}];",
    "suld.b.2d.b32.<trap|clamp|zero> {$w}, [$T, {$w, $w}];",
    "suld.b.2d.v4.b32.<clamp|zero> $4, [$T, {$w, $w}];",
    "suld.b.3d.v2.b64.<clamp|zero> $z, [$T, {$w, $w, $w, $w}];",
    "suld.b.a2d.v4.b32.<clamp|zero> $4, [$T, {$w, $w, $w, $w}];",
    "sust.b.1d.b32.<trap|clamp|zero> [$T, {$w}], {$w};",
    "sust.b.2d.v4.b32.<clamp|zero> [$T, {$w, $w}], $4;",
    "sust.b.3d.b32.<clamp|zero> [$T, {$w, $w, $w, $w}], {$w};",
    "sust.b.a2d.v2.b64.<clamp|zero> [$T, {$w, $w, $w, $w}], $z;",
    "sust.p.2d.v4.b32.<trap|clamp> [$T, {$w, $w}], $4;",
    "sured.b.2d.<add|min|max>.u32.<trap|clamp|zero> [$T, {$w, $w}], $w;",
    "sured.b.2d.add.u64.clamp [$T, {$w, $w}], $l;",
    /* arithmetic that makes addresses and counts */
    "mov.u32 $w, $W;",
    "mov.u64 $l, $L;",
    "mov.f32 $f, 0f<00000000|3F800000|7F800000|7FC00000|FF7FFFFF|4B000000|C2C80000|80000001>;",
    "mov.b64 $l, {$w, $w};",
    "mov.b128 $q, {$l, $l};",
    "mov.u32 $w, "
    "%<laneid|warpid|smid|nctaid.x|ctaid.x|cluster_ctarank|cluster_nctarank|clusterid.x|total_smem_"
    "size|dynamic_smem_size|clock>;",
    "<add|sub|mul.lo|min|max>.<u32|s32> $w, $W, $W;",
    "<add.u64|sub.u64|and.b64|or.b64> $l, $L, $L;",
    "add.u64 $l, %d<0|1|2|3|4>, <0|16|4080|-16|$l>;",
    "<shl|shr>.b32 $w, $W, $W;",
    "<div|rem>.<u32|s32> $w, $W, $W;",
    "setp.<lt|eq|gt|ne>.u32 $p, $W, $W;",
    "selp.b32 $w, $W, $W, $p;",
    "cvt.rn.f32.u32 $f, $w;",
    "cvt.rzi.s32.f32 $w, $f;",
    "<bfe.u32 $w, $W, $W, $W|bfi.b32 $w, $W, $W, $W, $W>;",
    "prmt.b32 $w, $W, $W, $W;",
    "brev.b32 $w, $W;",
    "fma.rn.f32 $f, $f, $f, $f;",
    "add.f64 $g, $g, $g;",
    "vset4.u32.u32.<eq|lt> $w, $W, $W, $W;",
    /* calls */
    "{ .param .b32 i; .param .b32 o; st.param.b32 [i], $w; call (o), twice, (i); ld.param.b32 $w, "
    "[o]; }",
    "{ .param .b32 i; .param .b32 o; st.param.b32 [i], $w; call (o), deep, (i); ld.param.b32 $w, "
    "[o]; }",
    "{ .param .b64 i; .param .b64 o; st.param.b64 [i], <16|256|$l>; call (o), malloc, (i); "
    "ld.param.b64 $l, [o]; }",
    "{ .param .b64 i; st.param.b64 [i], $L; call free, (i); }",
    "{ .param .b64 i; .param .b64 j; .param .b32 o; mov.u64 %d14, format; st.param.b64 [i], "
    "<%d14|%d15>; st.param.b64 [j], <%d4|$l>; call (o), vprintf, (i, j); }",
    "call (<$w|$l>), rows, (<$w|$l|5>, <$w|7>);",
    "{ .param .b8 i<[1]|[4]|[16]|[64]>; .param .b8 o<[1]|[16]|[256]>; call ($l, o), blocks, (i); }",
    "{ .reg .b64 %t; .param .b32 i; .param .b32 o; ld.global.u64 %t, [functions+24]; call "
    "(<$w|$l>), %t, (<$w|$l|i>, $w), kind; }",
    "{ .reg .b64 %t; .param .b32 i; .param .b32 o; ld.global.u64 %t, [functions+<0|8|16>]; "
    "st.param.b32 [i], $w; call (o), %t, (i), kind; }",
    "{ .reg .b64 %t; .param .b32 i; .param .b32 o; add.u64 %t, $l, 0; st.param.b32 [i], $w; call "
    "(o), %t, (i), kind; }",
};

/* What is written, or dropped when there is no room. */
struct out {
    char *text;
    size_t length, size;
    fuzz_next *next;
};

static void put(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct out *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out->text + out->length, out->size - out->length, format, args);
    va_end(args);
    if (length > 0 && (size_t)length < out->size - out->length) {
        out->length += (size_t)length;
    }
}

#define ONE_OF(out, list) (list)[(out)->next(sizeof(list) / sizeof *(list))]

static const char *number(struct out *out)
{
    static const char *const hostile[] = {
        "0",          "1",          "2",          "3",         "4",        "15",
        "16",         "31",         "32",         "64",        "4095",     "4096",
        "4112",       "8192",       "65536",      "16777216",  "33554432", "50331648",
        "2147483647", "2147483648", "4294967280", "4294967295"};
    return ONE_OF(out, hostile);
}

static void offset(struct out *out)
{
    static const char *const near[] = {"", "", "", "+4", "+8", "+16", "+16", "+32", "+64", "+256"};
    static const char *const far[] = {"+4080", "+4092",  "+4096",        "+8176",
                                      "+8192", "+65520", "+65536",       "+-4",
                                      "+-16",  "+-4096", "+16777216",    "+2147483632",
                                      "+1",    "+2",     "+-2147483648", "+33554432"};
    put(out, "%s", out->next(10) ? ONE_OF(out, near) : ONE_OF(out, far));
}

static bool rarely(struct out *out)
{
    return out->next(24) == 0;
}

static void vector(struct out *out, unsigned count, char kind)
{
    unsigned low = kind == 'f' ? 0 : 16;
    put(out, "{");
    for (unsigned i = 0; i < count; i++) {
        put(out, "%s%%%c%u", i ? ", " : "", kind, low + out->next(16));
    }
    put(out, "}");
}

static void place(struct out *out, char what)
{
    static const char *const sizes[] = {"16", "32", "64", "256", "1024"};
    static const char *const large[] = {"0",     "4096",  "4112",       "8192", "16384",
                                        "65536", "65552", "4294967280", "7",    "%r20"};
    static const char *const strides[] = {"16", "16", "32", "64", "8", "128"};
    static const char *const steep[] = {"0",       "1",          "256",        "512",  "4096",
                                        "1048576", "2147483648", "4294967295", "%r21", "24"};
    static const char *const shared[] = {"sh", "sh", "sh", "%r3", "%r5", "bar", "dynamic"};
    static const char *const generic[] = {"%d0", "%d0", "%d1", "%d2", "%d3",
                                          "%d4", "%d5", "%d6", "%d12"};
    switch (what) {
    case 'w':
        put(out, "%%r%u", 16 + out->next(16));
        break;
    case 'W':
        if (out->next(3)) {
            put(out, "%%r%u", out->next(2) ? 16 + out->next(16) : out->next(16));
        } else {
            put(out, "%s", number(out));
        }
        break;
    case 'l':
        put(out, "%%d%u", 16 + out->next(16));
        break;
    case 'L':
        if (out->next(4)) {
            put(out, "%%d%u", out->next(2) ? 16 + out->next(16) : out->next(13));
        } else {
            put(out, "%s", number(out));
        }
        break;
    case 'h':
        put(out, "%%h%u", out->next(8));
        break;
    case 'f':
        put(out, "%%f%u", out->next(16));
        break;
    case 'g':
        put(out, "%%g%u", out->next(8));
        break;
    case 'q':
        put(out, "%%q%u", out->next(4));
        break;
    case 'p':
        put(out, "%%p%u", out->next(8));
        break;
    case 'G':
        put(out, "[%%d%u", rarely(out) ? out->next(32) : out->next(12) ? out->next(2) : 2);
        offset(out);
        put(out, "]");
        break;
    case 'S':
        put(out, "[");
        if (rarely(out)) {
            put(out, "%%r%u", out->next(32));
        } else {
            put(out, "%s", ONE_OF(out, shared));
        }
        offset(out);
        put(out, "]");
        break;
    case 'C':
        put(out, "[%%r%u", rarely(out) ? out->next(32) : 6 + out->next(4));
        offset(out);
        put(out, "]");
        break;
    case 'A':
        put(out, "[");
        if (rarely(out)) {
            put(out, "%%d%u", out->next(32));
        } else {
            put(out, "%s", ONE_OF(out, generic));
        }
        offset(out);
        put(out, "]");
        break;
    case 'O':
        put(out, "[%s", rarely(out) ? "%r20" : "own");
        offset(out);
        put(out, "]");
        break;
    case 'B':
        put(out, "[%s]",
            rarely(out)    ? "%r22"
            : out->next(8) ? "bar"
            : out->next(2) ? "%r4"
                           : "bar+8");
        break;
    case 'N':
        put(out, "%s", out->next(4) ? ONE_OF(out, sizes) : ONE_OF(out, large));
        break;
    case 'V':
        put(out, "%s", out->next(3) ? ONE_OF(out, strides) : ONE_OF(out, steep));
        break;
    case 'M':
        put(out, "%s", rarely(out) ? "%r23" : out->next(8) ? "4294967295" : "%r15");
        break;
    case 'T':
        put(out, "%s", rarely(out) ? "%d20" : "%d8");
        break;
    case 'x':
        vector(out, 2, 'f');
        break;
    case 'y':
        vector(out, 4, 'f');
        break;
    case 'Y':
        vector(out, 4, out->next(2) ? 'f' : 'r');
        break;
    case 'z':
        vector(out, 2, 'd');
        break;
    default:
        vector(out, (unsigned)(what - '0'), 'r');
        break;
    }
}

/* <a|b|c>: writes one of them and returns what is behind. They do not nest. */
static const char *expand(struct out *out, const char *at, char end);
static const char *choose(struct out *out, const char *at)
{
    const char *ends = strchr(at, '>');
    unsigned count = 1;
    for (const char *c = at; c < ends; c++) {
        count += *c == '|';
    }
    unsigned chosen = out->next(count);
    for (unsigned i = 0; i < chosen; i++) {
        at = strchr(at, '|') + 1;
    }
    expand(out, at, '|');
    return ends + 1;
}

static const char *expand(struct out *out, const char *at, char end)
{
    while (*at && *at != end && !(end == '|' && *at == '>')) {
        if (*at == '<') {
            at = choose(out, at + 1);
        } else if (*at == '$') {
            place(out, at[1]);
            at += 2;
        } else {
            put(out, "%c", *at++);
        }
    }
    return at;
}

static void statement(struct out *out, unsigned label)
{
    switch (out->next(24)) {
    case 0: /* skipped by some */
        put(out, "@%%p%u bra L%u;\n", out->next(8), label + out->next(4));
        return;
    case 1: /* a few times round */
        put(out, "add.u32 %%r14, %%r14, 1; setp.lt.u32 %%p7, %%r14, %u; @%%p7 bra L%u;\n",
            out->next(9), out->next(label + 1));
        return;
    case 2:
        put(out, "@%%p%u %s;\n", out->next(8), out->next(9) ? "exit" : "trap");
        return;
    default:
        break;
    }
    size_t before = out->length;
    const char *text = ONE_OF(out, templates);
    if (*text != '{' && out->next(5) == 0) { /* a guard is for one instruction */
        put(out, "@%s%%p%u ", out->next(2) ? "!" : "", out->next(8));
    }
    expand(out, text, 0);
    if (out->length + 1 >= out->size) {
        out->length = before;
    }
    put(out, "\n");
}

static void kernel(struct out *out, unsigned index)
{
    unsigned count = 3 + out->next(30);
    put(out,
        ".visible .entry k%u(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u32 p3)\n",
        index);
    if (out->next(12) == 0) {
        put(out, ".reqnctapercluster %u, 1, 1\n", 1 + out->next(4));
    }
    put(out,
        "{\n.reg .pred %%p<8>; .reg .b16 %%h<8>; .reg .b32 %%r<32>; .reg .b64 %%d<32>;\n"
        ".reg .f32 %%f<16>; .reg .f64 %%g<8>; .reg .b128 %%q<4>;\n"
        ".local .align 16 .b8 own[%u]; .shared .align 16 .b8 mine[%u];\n"
        "kind: .callprototype (.param .b32 _) _ (.param .b32 _);\n",
        16u << out->next(5), 16u << out->next(6));
    /* %d0, %d1 memory, %d2 the grid's workspace, %d3 shared, %d4 local, %d5 another block's shared,
     * %d6 a variable, %d8 the texture; %r3 to %r5 shared, %r6 to %r9 of some block */
    put(out,
        "ld.param.u64 %%d0, [p0]; ld.param.u64 %%d1, [p1]; ld.param.u64 %%d8, [p2];\n"
        "ld.param.u32 %%r10, [p3];\n"
        "mov.u32 %%r0, %%tid.x; mov.u32 %%r1, %%envreg1; mov.u32 %%r2, %%envreg2;\n"
        "mov.b64 %%d2, {%%r2, %%r1}; mov.u32 %%r1, %%cluster_ctarank; mov.u32 %%r3, sh;\n"
        "mov.u32 %%r4, bar; mov.u32 %%r5, mine; cvt.u64.u32 %%d3, %%r3; cvta.shared.u64 %%d3, "
        "%%d3;\n"
        "mov.u64 %%d4, own; cvta.local.u64 %%d4, %%d4; mapa.u64 %%d5, %%d3, %u;\n"
        "mov.u64 %%d6, variable; mapa.shared::cluster.u32 %%r6, %%r3, %u;\n"
        "mapa.shared::cluster.u32 %%r7, %%r4, %u; mapa.shared::cluster.u32 %%r8, %%r3, %%r1;\n"
        "mapa.shared::cluster.u32 %%r9, %%r4, %%r1; activemask.b32 %%r15; mov.u32 %%r14, 0;\n"
        "mov.u64 %%d12, %%d0; mov.u64 %%d15, %%d3; setp.lt.u32 %%p0, %%r0, 16;\n"
        "and.b32 %%r16, %%r0, 1; setp.eq.u32 %%p1, %%r16, 0; setp.eq.u32 %%p2, %%r0, 0;\n",
        out->next(4), out->next(4), out->next(4));
    if (out->next(3)) {
        put(out, "mbarrier.init.shared.b64 [bar], %u; bar.sync 0;\n", 1 + out->next(70));
    }
    if (out->next(2)) { /* each thread its own place */
        put(out, "mul.wide.u32 %%d7, %%r0, 16; add.u64 %%d0, %%d0, %%d7;\n");
    }
    for (unsigned i = 0; i < count; i++) {
        put(out, "L%u: ", i);
        statement(out, i);
    }
    for (unsigned i = count; i < count + 4; i++) {
        put(out, "L%u: ", i);
    }
    put(out, "st.global.u32 [%%d1], %%r16; ret;\n}\n");
}

size_t fuzz_grammar(fuzz_next *next, char *text, size_t size)
{
    struct out out = {.text = text, .size = size, .next = next};
    unsigned wide = 32u << next(2);
    put(&out,
        ".version 8.8\n.target sm_120\n.address_size 64\n"
        ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
        ".extern .func free(.param .b64 p);\n"
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
        ".extern .func (.param .b32 r) absent(.param .b32 x);\n"
        ".extern .shared .align 16 .b8 dynamic[];\n"
        ".shared .align 16 .b8 sh[%u]; .shared .align 8 .b64 bar;\n"
        ".const .align 4 .b8 table[64]; .visible .global .align 16 .b8 variable[256];\n"
        ".global .align 1 .b8 format[16] = {37, %u, %u, %u, 37, 115, 37, %u, 42, 37, 108, 108, "
        "120, "
        "37, 102, %u};\n"
        ".func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %%a; ld.param.b32 %%a, [x];\n"
        "add.u32 %%a, %%a, %%a; st.param.b32 [r], %%a; ret; }\n"
        ".func (.param .b32 r) deep(.param .b32 x) { .reg .b32 %%a; .reg .pred %%p;\n"
        ".local .b8 room[%u]; ld.param.b32 %%a, [x]; sub.u32 %%a, %%a, 1;\n"
        "setp.lt.u32 %%p, %%a, 64; { .param .b32 i; .param .b32 o; st.param.b32 [i], %%a;\n"
        "@%%p call (o), deep, (i); } st.param.b32 [r], %%a; bar.warp.sync 4294967295; ret; }\n"
        ".func (.reg .b%u r) rows(.reg .b%u x, .reg .b32 y) { mov.b%u r, 5; ret; }\n"
        ".func (.reg .b64 r, .param .align 16 .b8 q[%u]) blocks(.param .align 16 .b8 x[%u]) { "
        "mov.b64 "
        "r, 1; ret; }\n"
        ".global .u64 functions[4] = {twice, deep, %s, rows};\n",
        16u << next(10), 33 + next(90), 33 + next(90), 33 + next(90), 33 + next(90), next(2) * 37,
        16u << next(6), wide, 32u << next(2), wide, 1u << next(7), 1u << next(7),
        next(4) ? "twice" : "absent");
    unsigned kernels = 1 + next(3);
    for (unsigned i = 0; i < kernels; i++) {
        kernel(&out, i);
    }
    return out.length;
}
