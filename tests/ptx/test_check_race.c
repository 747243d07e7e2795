/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that are told of races in shared memory: what is one, and above all what is none. */
#include "../unit/cmocka_all.h"

#include "machine.h"

#include <stdio.h>
#include <string.h>

/* %r1: the thread; %r2: its number in data[]; %r3: the same of the other warp's, %r4 of its
 * neighbour in its own; %p1: the first thread; %p2: the first warp. */
#define REGS                                                                                       \
    ".reg .b32 %r<32>; .reg .b64 %d<16>; .reg .pred %p<8>;\n"                                      \
    "ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; mov.u32 %r10, data;\n"                           \
    "shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, %r10; xor.b32 %r3, %r2, 128; xor.b32 %r4, %r2, 4;\n"   \
    "setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, 32; mov.u32 %r9, 7;\n"                         \
    "cvt.u64.u32 %d2, %r2; cvta.shared.u64 %d2, %d2;\n"
#define SHARED ".shared .align 128 .b8 data[1024]; .shared .align 8 .b64 bar; .shared .u32 flag;"

#define OWN "st.shared.u32 [%r2], %r1;\n"
#define OTHERS "ld.shared.u32 %r8, [%r3];\n"
#define NEXT "ld.shared.u32 %r8, [%r4];\n"
#define BAR "bar.sync 0;\n"
#define CLEAR "@%p1 st.shared.u32 [flag], 0;\n" BAR
/* The first thread hands over to the first of the other warp. */
#define HAND(give, take)                                                                           \
    CLEAR "setp.eq.u32 %p3, %r1, 32;\n"                                                            \
          "@%p1 st.shared.u32 [data], 5;\n" give "@!%p3 bra done;\n"                               \
          "wait: " take "setp.ne.u32 %p4, %r7, 1;\n@%p4 bra wait;\n"
#define TAKEN "ld.shared.u32 %r8, [data];\ndone:\n"

static struct machine m;
static unsigned told, unseen;
static uint32_t cluster = 1; /* blocks of one */
static bool named;
static struct tow_ptx_fault first;

static void found(void *user, const struct tow_ptx_fault *fault)
{
    (void)user;
    if (fault->kind == TOW_PTX_FAULT_UNSEEN) {
        unseen++;
        return;
    }
    assert_int_equal(fault->kind, TOW_PTX_FAULT_RACE);
    if (told++ == 0) {
        first = *fault;
        named = strcmp(fault->other.function, "k") == 0;
    }
}

static void run_text(const char *text, uint32_t blocks)
{
    tow_ptx_check_loads(TOW_PTX_CHECK_RACE);
    machine_load(&m, text, true);
    tow_ptx_check_loads(0);
    uint64_t args[1] = {ARG(machine_alloc(&m, 4096))};
    m.cluster[0] = cluster;
    m.found = found;
    m.checks = TOW_PTX_CHECK_RACE;
    told = unseen = 0;
    assert_int_equal(machine_run1(&m, "k", blocks, 64, args, 1), 0);
    machine_unload(&m);
}

static void run(const char *body, uint32_t blocks)
{
    char text[8192];
    snprintf(text, sizeof text, "%s%s", REGS, body);
    run_text(machine_wrap(SHARED, text), blocks);
}

static const char *const races[] = {
    OWN OTHERS,
    OWN NEXT,
    OTHERS OWN,
    OWN BAR OTHERS OWN,
    OWN BAR OTHERS BAR OWN OTHERS,
    "st.shared.u32 [data], %r1;",
    "ld.shared.u32 %r8, [data]; add.u32 %r8, %r8, 1; st.shared.u32 [data], %r8;",
    "@%p1 st.shared.u32 [data], 0; atom.shared.add.u32 %r8, [data], 1;",
    "@%p1 st.shared.u32 [data], 0; ld.volatile.shared.u32 %r8, [data];",
    "st.volatile.shared.u32 [%r2], %r1; ld.shared.u32 %r8, [%r3];",
    OWN "xor.b32 %r5, %r2, 128; st.shared.u8 [%r5+3], %r9;",
    OWN "and.b32 %r5, %r3, 0xffffff0; ld.shared.v4.u32 {%r5,%r6,%r7,%r8}, [%r5];",
    "st.u32 [%d2], %r1;" OTHERS,
    OWN "membar.cta;" OTHERS, /* a fence makes nobody wait */
    OWN "bar.warp.sync 0xffffffff;" OTHERS,
    /* Each thread meets itself, and then the wrong neighbour. */
    OWN "and.b32 %r5, %r1, 31; mov.u32 %r6, 1; shl.b32 %r6, %r6, %r5; bar.warp.sync %r6;" NEXT,
    OWN "and.b32 %r5, %r1, 1; add.u32 %r5, %r5, 1; and.b32 %r6, %r1, 2;"
        "mov.u32 %r7, 0x33333333; setp.eq.u32 %p3, %r6, 0; @%p3 bra low;"
        "mov.u32 %r7, 0xcccccccc; low: bar.warp.sync %r7; xor.b32 %r5, %r2, 8;"
        "ld.shared.u32 %r8, [%r5];",
    OWN "shr.u32 %r5, %r1, 5; add.u32 %r5, %r5, 1; bar.sync %r5, 32;" OTHERS,
    OWN "bar.arrive 1, 128;" OTHERS,                                        /* who does not wait */
    OWN "not.pred %p3, %p2; @%p3 bar.red.and.pred %p3, 1, 32, %p2;" OTHERS, /* one warp alone */
    OWN "and.b32 %r5, %r1, 1; setp.eq.u32 %p3, %r5, 0; setp.eq.u32 %p4, %r1, 99;" /* half of it */
        "@%p3 vote.sync.any.pred %p3, %p4, 0x55555555;" NEXT,
    "cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.wait_all;" OTHERS,
    OWN "shfl.sync.bfly.b32 %r8, %r1, 1, 31, 0xffffffff;" OTHERS,
    OWN "and.b32 %r5, %r3, 0xffffff80; and.b32 %r6, %r1, 7; shl.b32 %r6, %r6, 4;"
        "add.u32 %r5, %r5, %r6; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r5];",
    HAND("@%p1 st.volatile.shared.u32 [flag], 1;\n", "ld.volatile.shared.u32 %r7, [flag];\n") TAKEN,
    /* Plainly, before others have come with their atomics, or have seen the flag. */
    CLEAR "atom.shared.add.u32 %r8, [flag], 1; setp.eq.u32 %p3, %r8, 31;"
          "@%p3 st.shared.u32 [flag], 0;",
    CLEAR "ld.volatile.shared.u32 %r8, [flag]; @%p1 st.shared.u32 [flag], 1;",
    CLEAR "@!%p2 ld.volatile.shared.u32 %r8, [flag]; @%p1 st.shared.u32 [flag], 1;",
    HAND("@%p1 atom.shared.exch.b32 %r8, [flag], 1;\n", "atom.shared.or.b32 %r7, [flag], 0;\n")
        TAKEN,
};

static const char *const no_races[] = {
    OWN BAR OTHERS,
    OWN BAR OTHERS BAR OWN,
    OWN "barrier.sync 3;" OTHERS,
    OWN "setp.eq.u32 %p3, %r1, 99; bar.red.or.pred %p3, 0, %p3;" OTHERS,
    OWN "bar.red.popc.u32 %r8, 0, %p1;" OTHERS,
    OWN "bar.sync 1, 64;" OTHERS,
    /* The result is in place of the guard. */
    OWN "setp.ge.u32 %p3, %r1, 0; setp.eq.u32 %p4, %r1, 99;"
        "@%p3 bar.red.or.pred %p3, 0, %p4;" OTHERS,
    OWN "setp.eq.u32 %p3, %r1, 99; setp.eq.u32 %p4, %r1, %r1;"
        "@!%p3 bar.red.and.pred %p3, 0, %p4;" OTHERS,
    OWN "setp.ge.u32 %p3, %r1, 0; @%p3 vote.sync.all.pred %p3, %p1, 0xffffffff;" NEXT,
    OWN "bar.warp.sync 0xffffffff;" NEXT "bar.warp.sync 0xffffffff;" OWN,
    OWN "and.b32 %r5, %r1, 28; mov.u32 %r6, 15; shl.b32 %r6, %r6, %r5; bar.warp.sync %r6;" NEXT,
    OWN "and.b32 %r5, %r1, 16; mov.u32 %r6, 0xffff; setp.eq.u32 %p3, %r5, 0; @%p3 bra low;"
        "mov.u32 %r6, 0xffff0000; bar.warp.sync %r6;" NEXT
        "bra.uni done; low: bar.warp.sync %r6;" NEXT "done:",
    OWN "shfl.sync.bfly.b32 %r8, %r1, 1, 31, 0xffffffff;" NEXT,
    OWN "vote.sync.any.pred %p3, %p1, 0xffffffff;" NEXT,
    OWN "match.any.sync.b32 %r8, %r1, 0xffffffff;" NEXT,
    OWN "redux.sync.add.u32 %r8, %r1, 0xffffffff;" NEXT,
    "st.volatile.shared.u32 [%r2], %r1; ld.volatile.shared.u32 %r8, [%r3];",
    "st.relaxed.cta.shared.u32 [data], %r1;",
    "@%p1 st.shared.u32 [data], 0;" BAR "atom.shared.add.u32 %r8, [data], 1;" BAR
    "ld.shared.u32 %r8, [data];",
    "red.shared.add.u32 [data], 1; atom.shared.max.u32 %r8, [data], %r1;",
    "st.shared.u32 [data], %r9;", /* everybody writes the same */
    "st.shared.u32 [data], %r9; st.shared.u8 [data], %r9;",
    "ld.shared.u32 %r8, [data];",
    "cp.async.ca.shared.global [%r2], [%d1], 4; cp.async.wait_all;" BAR OTHERS,
    /* A ring: each barrier is for those who come. */
    OWN "bar.arrive 2, 96; @%p2 bra done; bar.sync 3, 32; done:",
    "@%p2 bra give; bar.sync 1, 64;" OTHERS "bra.uni done; give:" OWN "bar.arrive 1, 64; done:",
    OWN "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" OTHERS,
    OWN "barrier.cluster.arrive.aligned;" BAR "barrier.cluster.wait.aligned;" OTHERS,
    /* Who has ended has come to all barriers. */
    OWN "@%p2 ret;" BAR OTHERS,
    OWN "and.b32 %r5, %r1, 1; setp.eq.u32 %p3, %r5, 1; @%p3 ret;" BAR NEXT OTHERS,
    HAND("membar.cta;\n@%p1 st.volatile.shared.u32 [flag], 1;\n",
         "ld.volatile.shared.u32 %r7, [flag];\n") TAKEN,
    HAND("fence.acq_rel.cta;\n@%p1 atom.shared.exch.b32 %r8, [flag], 1;\n",
         "atom.shared.or.b32 %r7, [flag], 0;\n") "fence.acq_rel.cta;\n" TAKEN,
    HAND("@%p1 st.release.cta.shared.u32 [flag], 1;\n", "ld.acquire.cta.shared.u32 %r7, [flag];\n")
        TAKEN,
    HAND("@%p1 red.release.cta.shared.add.u32 [flag], 1;\n",
         "ld.acquire.cta.shared.u32 %r7, [flag];\n") TAKEN,
    /* Through a part of what was written, at another address and of another size. */
    "@%p1 st.shared.u64 [bar], 0; mov.u32 %r12, 1;" HAND(
        "membar.cta;\n@%p1 st.volatile.shared.v2.u32 [bar], {%r12, %r12};\n",
        "ld.volatile.shared.u32 %r7, [bar+4];\n") TAKEN,
    "@%p1 st.shared.u64 [bar], 0;" HAND(
        "membar.cta;\n@%p1 st.volatile.shared.u8 [bar+4], %r9;\n",
        "ld.volatile.shared.u64 %d5, [bar]; shr.u64 %d5, %d5, 32; cvt.u32.u64 %r7, %d5;"
        "setp.eq.u32 %p5, %r7, 7; selp.u32 %r7, 1, 0, %p5;\n") TAKEN,
    /* Plainly, behind one's own atomic or volatile access of the same memory. */
    CLEAR "membar.cta; atom.shared.add.u32 %r8, [flag], 1; setp.eq.u32 %p3, %r8, 63;"
          "@%p3 st.shared.u32 [flag], 0;",
    CLEAR "atom.shared.inc.u32 %r8, [flag], 63; setp.eq.u32 %p3, %r8, 63; @!%p3 bra done;"
          "ld.shared.u32 %r8, [flag]; st.shared.u32 [flag], 0; done:",
    HAND("membar.cta;\n@%p1 st.volatile.shared.u32 [flag], 1;\n",
         "ld.volatile.shared.u32 %r7, [flag];\n") "ld.shared.u32 %r8, [flag];\n"
                                                  "st.shared.u32 [flag], 5;\ndone:\n",
    HAND("@%p1 atom.shared.exch.b32 %r8, [flag], 1;\n",
         "atom.shared.or.b32 %r7, [flag], 0;\n") "ld.shared.u32 %r8, [flag];\ndone:\n",
    /* The flag is in global memory. */
    "@%p1 st.volatile.global.u32 [%d1], 0;" BAR "setp.eq.u32 %p3, %r1, 32;"
    "@%p1 st.shared.u32 [data], 5; membar.gl; @%p1 st.volatile.global.u32 [%d1], 1;"
    "@!%p3 bra done; wait: ld.volatile.global.u32 %r7, [%d1]; setp.ne.u32 %p4, %r7, 1;"
    "@%p4 bra wait;" TAKEN,
    /* A lock. */
    CLEAR "@%p1 st.shared.u32 [data], 0;" BAR "mov.u32 %r11, 0;"
          "again: atom.shared.cas.b32 %r8, [flag], 0, 1; setp.ne.u32 %p3, %r8, 0; @%p3 bra next;"
          "ld.shared.u32 %r8, [data]; add.u32 %r8, %r8, 1; st.shared.u32 [data], %r8; membar.cta;"
          "atom.shared.exch.b32 %r8, [flag], 0; bra.uni done; next: bra again; done:",
    /* An mbarrier. */
    "@%p1 mbarrier.init.shared.b64 [bar], 64;" BAR OWN "mbarrier.arrive.shared.b64 %d5, [bar];"
    "wait: mbarrier.test_wait.shared.b64 %p3, [bar], %d5; @!%p3 bra wait;" OTHERS,
    "@%p1 mbarrier.init.shared.b64 [bar], 1;" BAR
    "@%p1 mbarrier.arrive.expect_tx.shared.b64 %d5, [bar], 256;"
    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%d1], 256, "
    "[bar];"
    "wait: mbarrier.test_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra wait;" OTHERS,
};

/* Two blocks of a cluster, %r11 the block, %r13 and %r14 bar and flag of the other one; %p3: the
 * first block. Its first thread has written, `give`s to the other block, whose first thread `take`s
 * and `back` gives to thread 40 of the first block, which `waits`. */
#define BESIDE(give, take, back, waits)                                                            \
    "@%p1 mbarrier.init.shared.b64 [bar], 1; @%p1 st.shared.u32 [flag], 0;"                        \
    "mov.u32 %r11, %cluster_ctarank; setp.eq.u32 %p3, %r11, 0; xor.b32 %r12, %r11, 1;"             \
    "mov.u32 %r13, bar; mapa.shared::cluster.u32 %r13, %r13, %r12;"                                \
    "mov.u32 %r14, flag; mapa.shared::cluster.u32 %r14, %r14, %r12;" MEET                          \
    "@!%p3 bra second; setp.eq.u32 %p4, %r1, 40; @%p1 st.shared.u32 [data], 5;" give               \
    "@!%p4 bra done;" waits "st.shared.u8 [data+1], %r9; bra.uni done;"                            \
    "second: @!%p1 bra done;" take back "done:" MEET
#define MEET "barrier.cluster.arrive; barrier.cluster.wait;"
#define ARRIVE "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];"
#define AWAIT(label)                                                                               \
    label ": mbarrier.test_wait.parity.shared.b64 %p5, [bar], 0; @!%p5 bra " label ";"
#define POLL(label, what) label ": " what "setp.ne.u32 %p5, %r7, 1; @%p5 bra " label ";"
#define FLAG "ld.volatile.shared.u32 %r7, [flag];"
#define OTHER_FLAG "ld.volatile.shared::cluster.u32 %r7, [%r14];"

static const char *const beside[] = {
    BESIDE("@%p1 " ARRIVE, AWAIT("one"), ARRIVE, AWAIT("two")),
    BESIDE("membar.gl; @%p1 st.volatile.shared::cluster.u32 [%r14], 1;", POLL("one", FLAG),
           "membar.gl; atom.shared::cluster.exch.b32 %r8, [%r14], 1;", POLL("two", FLAG)),
    /* Each looks at the other's. */
    BESIDE("membar.gl; @%p1 st.volatile.shared.u32 [flag], 1;", POLL("one", OTHER_FLAG),
           "membar.gl; st.volatile.shared.u32 [flag], 1;", POLL("two", OTHER_FLAG)),
};

static const char *const beside_nobody[] = {
    BESIDE("@%p1 " ARRIVE, AWAIT("one"), ARRIVE, ""),
    BESIDE("@%p1 " ARRIVE, AWAIT("one"), "st.shared::cluster.u32 [%r14], 1;",
           "ld.shared.u32 %r7, [flag];"),
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static void races_are_told(void **state)
{
    (void)state;
    for (unsigned i = 0; i < COUNT(races); i++) {
        run(races[i], 1);
        if (told == 0) {
            fail_msg("not told: %s", races[i]);
        }
        run(races[i], 3); /* each block begins anew */
        assert_true(told >= 3);
    }
}

static void what_is_in_order_is_no_race(void **state)
{
    (void)state;
    for (unsigned i = 0; i < COUNT(no_races); i++) {
        for (uint32_t blocks = 1; blocks <= 3; blocks += 2) {
            run(no_races[i], blocks);
            if (told != 0) {
                fail_msg("told: %s\nthread %u line %u, thread %u line %u", no_races[i],
                         first.thread[0], first.line, first.other.thread[0], first.other.line);
            }
        }
    }
}

static void what_goes_through_another_block_is_in_order(void **state)
{
    (void)state;
    cluster = 2;
    for (unsigned i = 0; i < COUNT(beside); i++) {
        run(beside[i], 4);
        if (told != 0) {
            fail_msg("told: %s\nthread %u line %u, thread %u line %u", beside[i], first.thread[0],
                     first.line, first.other.thread[0], first.other.line);
        }
    }
    for (unsigned i = 0; i < COUNT(beside_nobody); i++) {
        run(beside_nobody[i], 4);
        if (told == 0) {
            fail_msg("not told: %s", beside_nobody[i]);
        }
    }
    cluster = 1;
}

static void threads_may_end_without_an_instruction(void **state)
{
    (void)state;
    run_text(PTX_HEAD SHARED "\n.visible .entry k(.param .u64 p0)\n{\n" REGS OWN
                             "@%p2 bra done;" BAR OTHERS "done:\n}\n",
             1);
    assert_int_equal(told, 0);
}

static void both_threads_and_lines_are_told(void **state)
{
    (void)state;
    run("\n" OWN OTHERS, 1);
    assert_int_equal(first.deed, TOW_PTX_DEED_WRITE);
    assert_int_equal(first.other.deed, TOW_PTX_DEED_READ);
    assert_int_equal(first.line + 1, first.other.line);
    assert_int_equal(first.thread[0] ^ 32, first.other.thread[0]);
    assert_int_equal(first.place, TOW_PTX_PLACE_SHARED);
    assert_int_equal(first.bytes, 4);
    assert_true(named);
}

/* One barrier, over and over, by warps that are not equally fast. */
static void rounds_are_told_apart(void **state)
{
#define ROUNDS(between)                                                                            \
    "mov.u32 %r20, 0;\nround:\n" OWN BAR OTHERS between "mov.u32 %r21, 0; @%p2 bra fast;\n"        \
    "slow: add.u32 %r21, %r21, 1; setp.lt.u32 %p3, %r21, 9000; @%p3 bra slow;\n"                   \
    "fast: add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 12; @%p3 bra round;\n"
    (void)state;
    run(ROUNDS(BAR), 1);
    assert_int_equal(told, 0);
    run(ROUNDS(""), 1);
    assert_int_not_equal(told, 0);
}

static void blocks_without_memory_are_named(void **state)
{
    (void)state;
    tow_ptx_race_limit(256 << 10); /* one block at a time */
    run(OWN OTHERS, 3);
    assert_int_not_equal(told, 0);
    assert_int_equal(unseen, 0);
    tow_ptx_race_limit(0); /* and nothing is left of the launch before */
    run(OWN OTHERS, 3);
    assert_int_equal(told, 0);
    assert_int_equal(unseen, 3);
    tow_ptx_race_limit(256 << 10);
    run(OWN OTHERS, 1);
    assert_int_not_equal(told, 0);
    assert_int_equal(unseen, 0);
    cluster = 2; /* of a cluster all blocks or none */
    run(beside[0], 4);
    assert_int_equal(told, 0);
    assert_int_not_equal(unseen, 0);
    cluster = 1;
    tow_ptx_race_limit(UINT64_C(4) << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(races_are_told),
        cmocka_unit_test(what_is_in_order_is_no_race),
        cmocka_unit_test(what_goes_through_another_block_is_in_order),
        cmocka_unit_test(threads_may_end_without_an_instruction),
        cmocka_unit_test(both_threads_and_lines_are_told),
        cmocka_unit_test(rounds_are_told_apart),
        cmocka_unit_test(blocks_without_memory_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
