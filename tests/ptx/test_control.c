/* SPDX-License-Identifier: Apache-2.0 */
/* Divergence, loops, calls, barriers and what threads of a warp do together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "machine.h"

static struct machine m;

/* A kernel that stores %r0 of each thread to p0[thread]. */
#define STORE_R0                                                                                   \
    "{ .reg .b32 %t<4>; .reg .b64 %td<3>; mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x;\n"           \
    "mov.u32 %t2, %ntid.x; mad.lo.u32 %t0, %t1, %t2, %t0; ld.param.u64 %td0, [p0];\n"              \
    "mad.wide.u32 %td1, %t0, 4, %td0; st.global.u32 [%td1], %r0; }\n"
#define REGS ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>;\n"

static uint32_t *run(const char *declarations, const char *body, uint32_t grid, uint32_t block)
{
    char text[16384];
    snprintf(text, sizeof text, "%s%s\n%s", REGS, body, STORE_R0);
    machine_load(&m, machine_wrap(declarations, text), true);
    uint32_t *out = machine_alloc(&m, grid * block * 4);
    uint32_t *more = machine_alloc(&m, 65536);
    uint64_t args[2] = {ARG(out), ARG(more)};
    int error = machine_run1(&m, "k", grid, block, args, 2);
    if (error) {
        fail_msg("line %u: %s", m.fault.line, m.fault.message);
    }
    return out;
}

static void branches_diverge_and_join(void **state)
{
    (void)state;
    uint32_t *out =
        run("",
            "mov.u32 %r1, %tid.x; mov.u32 %r0, 100; and.b32 %r2, %r1, 3;\n"
            "setp.eq.u32 %p0, %r2, 0; @%p0 bra ZERO; setp.eq.u32 %p1, %r2, 1;\n"
            "@%p1 bra ONE; add.u32 %r0, %r0, 7; bra JOIN;\n"
            "ZERO: add.u32 %r0, %r0, 1; bra.uni JOIN;\n"
            "ONE: add.u32 %r0, %r0, 2;\n"
            "JOIN: activemask.b32 %r3; popc.b32 %r3, %r3; mad.lo.u32 %r0, %r3, 1000, %r0;",
            1, 64);
    for (unsigned i = 0; i < 64; i++) {
        /* All 32 have met again at JOIN. */
        unsigned add = i % 4 == 0 ? 1 : i % 4 == 1 ? 2 : 7;
        assert_int_equal(out[i], 32000 + 100 + add);
    }
    machine_unload(&m);
}

static void loops_end_each_thread_in_its_turn(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r1, %tid.x; mov.u32 %r0, 0; mov.u32 %r2, 0;\n"
                        "LOOP: setp.ge.u32 %p0, %r2, %r1; @%p0 bra DONE;\n"
                        "and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 0;\n"
                        "@%p1 add.u32 %r0, %r0, %r2; @!%p1 sub.u32 %r0, %r0, 1;\n"
                        "add.u32 %r2, %r2, 1; bra LOOP; DONE:",
                        1, 96);
    for (unsigned i = 0; i < 96; i++) {
        uint32_t want = 0;
        for (unsigned k = 0; k < i; k++) {
            want += k & 1 ? -1u : k;
        }
        assert_int_equal(out[i], want);
    }
    machine_unload(&m);
}

static void threads_that_leave_a_loop_meet_behind_it(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r1, %tid.x; mov.u32 %r0, 0; mov.u32 %r2, 0;\n"
                        "LOOP: setp.ge.u32 %p0, %r2, %r1; @%p0 bra DONE; add.u32 %r2, %r2, 1;\n"
                        "activemask.b32 %r3; popc.b32 %r3, %r3; add.u32 %r0, %r0, %r3;\n"
                        "setp.gt.u32 %p1, %r2, 20; @%p1 bra LATE; bra LOOP;\n"
                        "LATE: add.u32 %r0, %r0, 100000;\n"
                        "DONE: activemask.b32 %r3; popc.b32 %r3, %r3;\n"
                        "mad.lo.u32 %r0, %r3, 1000, %r0;",
                        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        uint32_t want = 32000 + (i > 20 ? 100000 : 0);
        for (unsigned k = 0; k < i && k < 21; k++) {
            want += 31 - k; /* who is still in the loop */
        }
        assert_int_equal(out[i], want);
    }
    machine_unload(&m);
}

static void results_under_a_guard_leave_other_lanes_as_they_are(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 5;\n"
                        "cvt.rn.f64.u32 %d1, %r1; @%p1 add.f64 %d1, %d1, 0d4024000000000000;\n"
                        "cvt.rn.f32.u32 %r2, %r1; @%p1 div.rn.f32 %r2, %r2, 0f3F000000;\n"
                        "cvt.rzi.u32.f64 %r0, %d1; cvt.rzi.u32.f32 %r3, %r2;\n"
                        "@!%p1 mul.lo.u32 %r3, %r3, 3; mad.lo.u32 %r0, %r3, 1000, %r0;",
                        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], i < 5 ? i + 10 + 2 * i * 1000 : i + 3 * i * 1000);
    }
    machine_unload(&m);
}

static void brx_picks_by_table(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 3; T: .branchtargets A, B, C;\n"
                        "brx.idx %r2, T; A: mov.u32 %r0, 10; bra E; B: mov.u32 %r0, 20; bra E;\n"
                        "C: mov.u32 %r0, 30; E:",
                        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], 10 + 10 * (i % 3));
    }
    machine_unload(&m);
}

static const char functions[] =
    ".func (.param .b32 r) twice(.param .b32 x)\n"
    "{ .reg .b32 %a<2>; ld.param.b32 %a0, [x]; shl.b32 %a1, %a0, 1; st.param.b32 [r], %a1; ret; }\n"
    ".func (.param .b32 r) square(.param .b32 x)\n"
    "{ .reg .b32 %a<2>; ld.param.b32 %a0, [x]; mul.lo.u32 %a1, %a0, %a0; st.param.b32 [r], %a1;"
    " ret; }\n"
    ".func (.reg .b32 %o) regs(.reg .b32 %i, .reg .b64 %j)\n"
    "{ .reg .b32 %a; cvt.u32.u64 %a, %j; sub.u32 %o, %i, %a; ret; }\n"
    ".func (.param .b32 r) fact(.param .b32 x)\n"
    "{ .reg .b32 %a<4>; .reg .pred %p; ld.param.b32 %a0, [x]; mov.u32 %a1, 1;\n"
    "setp.le.u32 %p, %a0, 1; @%p bra END; sub.u32 %a2, %a0, 1;\n"
    "{ .param .b32 i; .param .b32 o; st.param.b32 [i], %a2; call.uni (o), fact, (i);\n"
    "ld.param.b32 %a3, [o]; } mul.lo.u32 %a1, %a0, %a3; END: st.param.b32 [r], %a1; ret; }\n"
    ".func (.param .align 8 .b8 r[16]) swap(.param .align 8 .b8 x[16])\n"
    "{ .reg .b64 %a<2>; ld.param.b64 %a0, [x]; ld.param.b64 %a1, [x+8];\n"
    "st.param.v2.b64 [r], {%a1, %a0}; ret; }\n"
    ".global .u64 table[2] = {twice, square};\n";

static void direct_calls_pass_parameters(void **state)
{
    (void)state;
    uint32_t *out = run(functions,
                        "mov.u32 %r1, %tid.x;\n"
                        "{ .param .b32 i; .param .b32 o; st.param.b32 [i], %r1;\n"
                        "call.uni (o), square, (i); ld.param.b32 %r2, [o]; }\n"
                        "mov.u64 %d1, 3; call (%r0), regs, (%r2, %d1);",
                        1, 64);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(out[i], i * i - 3);
    }
    machine_unload(&m);
}

static void structs_pass_by_value(void **state)
{
    (void)state;
    uint32_t *out = run(functions,
                        "cvt.u64.u32 %d0, %tid.x; mov.u64 %d1, 1000;\n"
                        "{ .param .align 8 .b8 i[16]; .param .align 8 .b8 o[16];\n"
                        "st.param.b64 [i], %d0; st.param.b64 [i+8], %d1; call (o), swap, (i);\n"
                        "ld.param.v2.b64 {%d2, %d3}, [o]; } sub.u64 %d2, %d2, %d3;\n"
                        "cvt.u32.u64 %r0, %d2;",
                        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], 1000 - i);
    }
    machine_unload(&m);
}

static void recursion_of_different_depth_works(void **state)
{
    (void)state;
    uint32_t *out = run(functions,
                        "rem.u32 %r1, %tid.x, 12; { .param .b32 i; .param .b32 o;\n"
                        "st.param.b32 [i], %r1; call (o), fact, (i); ld.param.b32 %r0, [o]; }",
                        2, 64);
    for (unsigned i = 0; i < 128; i++) {
        uint32_t want = 1;
        for (unsigned k = 2; k <= i % 64 % 12; k++) {
            want *= k;
        }
        assert_int_equal(out[i], want);
    }
    machine_unload(&m);
}

/* A function of 8,192 registers that live at once takes a MiB, and calls may have 2 GiB together:
 * a loop of calls has the same ones again and again. */
static void a_call_that_returns_gives_its_registers_back(void **state)
{
    (void)state;
    enum { REGISTERS = 8192, CALLS = 4096, TEXT = 1 << 20 };
    char *text = malloc(TEXT);
    size_t n =
        (size_t)snprintf(text, TEXT,
                         PTX_HEAD ".func (.param .b32 r) large(.param .b32 x)\n"
                                  "{ .reg .b32 %%a<%d>; .reg .b32 %%s; .reg .pred %%p;\n"
                                  "ld.param.b32 %%s, [x]; setp.ne.u32 %%p, %%s, 0; @%%p bra END;\n",
                         REGISTERS);
    for (int i = 0; i < REGISTERS; i++) {
        n += (size_t)snprintf(text + n, TEXT - n, "add.u32 %%a%d, %%s, %d;\n", i, i);
    }
    for (int i = 0; i < REGISTERS; i++) {
        n += (size_t)snprintf(text + n, TEXT - n, "add.u32 %%s, %%s, %%a%d;\n", i);
    }
    snprintf(text + n, TEXT - n,
             "END: st.param.b32 [r], %%s; ret; }\n"
             ".entry k(.param .u64 p0)\n{ %s mov.u32 %%r0, 0; mov.u32 %%r1, 0;\n"
             "LOOP: { .param .b32 i; .param .b32 o; st.param.b32 [i], %%r1;\n"
             "call.uni (o), large, (i); ld.param.b32 %%r2, [o]; } add.u32 %%r0, %%r0, %%r2;\n"
             "add.u32 %%r1, %%r1, 1; setp.lt.u32 %%p0, %%r1, %d; @%%p0 bra LOOP;\n%s ret; }\n",
             REGS, CALLS, STORE_R0);
    machine_load(&m, text, true);
    uint32_t *out = machine_alloc(&m, 4);
    if (machine_run1(&m, "k", 1, 1, &(uint64_t){ARG(out)}, 1) != 0) {
        fail_msg("%s", m.fault.message);
    }
    assert_int_equal(out[0], REGISTERS / 2 * (REGISTERS - 1) + CALLS / 2 * (CALLS - 1));
    machine_unload(&m);
    free(text);
}

static void indirect_calls_go_where_each_thread_says(void **state)
{
    (void)state;
    uint32_t *out = run(functions,
                        "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; mov.u64 %d0, table;\n"
                        "mad.wide.u32 %d1, %r2, 8, %d0; ld.global.u64 %d2, [%d1];\n"
                        "{ .param .b32 i; .param .b32 o; st.param.b32 [i], %r1;\n"
                        "P: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
                        "call (o), %d2, (i), P; ld.param.b32 %r0, [o]; }",
                        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], i & 1 ? i * i : 2 * i);
    }
    machine_unload(&m);
}

static void a_bad_call_target_is_a_fault(void **state)
{
    (void)state;
    machine_load(&m,
                 machine_wrap("", ".reg .b64 %d0; mov.u64 %d0, 77; P: .callprototype _ ();\n"
                                  "call %d0, (), P;"),
                 true);
    assert_int_equal(machine_run1(&m, "k", 1, 1, NULL, 0), -5);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_INSTRUCTION);
    machine_unload(&m);
}

static void shuffles_move_values(void **state)
{
    (void)state;
    uint32_t *out =
        run("",
            "mov.u32 %r1, %laneid; shfl.sync.up.b32 %r2|%p0, %r1, 1, 0, -1;\n"
            "selp.u32 %r3, 1000, 0, %p0; add.u32 %r2, %r2, %r3;\n"
            "shfl.sync.down.b32 %r4, %r1, 2, 0x1f, -1; mad.lo.u32 %r2, %r4, 10000, %r2;\n"
            "shfl.sync.bfly.b32 %r5, %r1, 5, 0x1f, -1; mad.lo.u32 %r0, %r5, 1000000, %r2;",
            1, 32);
    for (unsigned i = 0; i < 32; i++) {
        unsigned up = i ? 1000 + i - 1 : 0, down = i < 30 ? i + 2 : i;
        assert_int_equal(out[i], up + down * 10000 + (i ^ 5) * 1000000);
    }
    machine_unload(&m);
}

static void shuffles_stay_in_their_segment(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r1, %laneid; add.u32 %r1, %r1, 100;\n"
                        "shfl.sync.idx.b32 %r2, %r1, 3, 0x181f, 0xffffffff;\n"
                        "shfl.sync.down.b32 %r3, %r1, 4, 0x181f, 0xffffffff;\n"
                        "mad.lo.u32 %r0, %r3, 1000, %r2;",
                        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        unsigned down = i % 8 < 4 ? i + 4 : i;
        assert_int_equal(out[i], 100 + i / 8 * 8 + 3 + (100 + down) * 1000);
    }
    machine_unload(&m);
}

/* What is known when decoding is computed then; a register that no constant is behind is not. Both
 * have equal results, also when only some threads take part. */
static void known_operands_give_what_unknown_ones_give(void **state)
{
    (void)state;
    static const char *const modes[] = {"up", "down", "bfly", "idx"};
    static const unsigned lanes[] = {0, 1, 5, 16, 31}, clamps[] = {0, 31, 0x1c1f, 0x1800};
    for (unsigned i = 0; i < 4 * 5 * 4; i++) {
        char body[2048];
        snprintf(body, sizeof body,
                 ".reg .b32 %%k<5>; mov.u32 %%r1, %%tid.x; mov.u32 %%k0, %u; mov.u32 %%k1, %u; "
                 "mov.b32 %%k2, -1;\n"
                 "mov.u32 %%k3, 0x%x; mul.lo.u32 %%r5, %%r1, 0; add.u32 %%r6, %%k0, %%r5;\n"
                 "add.u32 %%r7, %%k1, %%r5; add.u32 %%r8, %%k2, %%r5; add.u32 %%r9, %%k3, %%r5;\n"
                 "add.s32 %%r10, %%r1, -9; setp.lt.u32 %%p3, %%r1, 20; mov.u32 %%r2, 77;\n"
                 "mov.u32 %%r3, 77; shfl.sync.%s.b32 %%r2|%%p0, %%r10, %%k0, %%k1, %%k2;\n"
                 "shfl.sync.%s.b32 %%r3|%%p1, %%r10, %%r6, %%r7, %%r8; xor.b32 %%r4, %%r2, %%r3;\n"
                 "xor.pred %%p2, %%p0, %%p1; @%%p2 add.u32 %%r4, %%r4, 0x100;\n"
                 "@%%p3 shfl.sync.%s.b32 %%r2, %%r10, %%k0, %%k1, %%k3;\n"
                 "@%%p3 shfl.sync.%s.b32 %%r3, %%r10, %%r6, %%r7, %%r9;\n"
                 "xor.b32 %%r2, %%r2, %%r3; or.b32 %%r4, %%r4, %%r2;\n"
                 "vote.sync.ballot.b32 %%r2, %%p3, %%k2; vote.sync.ballot.b32 %%r3, %%p3, %%r8;\n"
                 "bar.warp.sync %%k2; bar.warp.sync %%r8;\n"
                 "xor.b32 %%r2, %%r2, %%r3; or.b32 %%r4, %%r4, %%r2;\n"
                 "mul.wide.s32 %%d2, %%r10, %u; mul.wide.s32 %%d3, %%r10, %%r6;\n"
                 "mul.wide.u32 %%d4, %%r10, %u; mul.wide.u32 %%d5, %%r10, %%r6;\n"
                 "setp.ne.u64 %%p0, %%d2, %%d3; setp.ne.or.u64 %%p0, %%d4, %%d5, %%p0;\n"
                 "@%%p0 or.b32 %%r4, %%r4, 0x1000; mov.b32 %%r0, %%r4;",
                 lanes[i % 5], clamps[i / 5 % 4], 0xfffffu, modes[i / 20], modes[i / 20],
                 modes[i / 20], modes[i / 20], lanes[i % 5], lanes[i % 5]);
        uint32_t *out = run("", body, 1, 32);
        for (unsigned l = 0; l < 32; l++) {
            assert_int_equal(out[l], 0);
        }
        machine_unload(&m);
    }
}

static void popc_counts(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 0x9e3779b1;\n"
                        "setp.eq.u32 %p0, %r1, 31; @%p0 mov.b32 %r2, -1; popc.b32 %r0, %r2;",
                        1, 32);
    for (uint32_t l = 0; l < 32; l++) {
        assert_int_equal(out[l], l == 31 ? 32 : __builtin_popcount(l * 0x9e3779b1u));
    }
    machine_unload(&m);
}

static void votes_count_threads(void **state)
{
    (void)state;
    uint32_t *out =
        run("",
            "mov.u32 %r1, %laneid; setp.lt.u32 %p0, %r1, 5;\n"
            "vote.sync.ballot.b32 %r2, %p0, -1; vote.sync.any.pred %p1, %p0, -1;\n"
            "vote.sync.all.pred %p2, %p0, -1; vote.sync.uni.pred %p3, %p0, -1;\n"
            "selp.u32 %r3, 100, 0, %p1; selp.u32 %r4, 1000, 0, %p2;\n"
            "selp.u32 %r5, 10000, 0, %p3; add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4;\n"
            "add.u32 %r0, %r0, %r5; vote.sync.all.pred %p4, !%p1, -1;\n"
            "@%p4 add.u32 %r0, %r0, 100000;",
            1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], 31 + 100);
    }
    machine_unload(&m);
}

static void sync_instructions_wait_for_their_members(void **state)
{
    (void)state;
    /* Half of the warp is late: the shuffle must still see all lanes. */
    uint32_t *out =
        run("",
            "mov.u32 %r1, %laneid; mov.u32 %r2, 0; setp.lt.u32 %p0, %r1, 16;\n"
            "@%p0 bra SYNC; LATE: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1;\n"
            "@%p1 bra LATE;\n"
            "SYNC: shfl.sync.idx.b32 %r3, %r2, 31, 31, -1; redux.sync.add.u32 %r4, %r1, -1;\n"
            "mad.lo.u32 %r0, %r3, 1000, %r4;",
            1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], 31000 + 31 * 16);
    }
    machine_unload(&m);
}

static void sync_instructions_wait_for_members_that_take_long(void **state)
{
    (void)state;
    /* Longer than a warp runs before another gets its turn. */
    uint32_t *out = run("",
                        "mov.u32 %r1, %laneid; mov.u32 %r2, 0; setp.ne.u32 %p0, %r1, 31;\n"
                        "@%p0 bra SYNC; LATE: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 20000;\n"
                        "@%p1 bra LATE;\n"
                        "SYNC: shfl.sync.idx.b32 %r0, %r2, 31, 31, -1;",
                        1, 64);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(out[i], 20000);
    }
    machine_unload(&m);
    /* Half of the first warp waits at a barrier for half of the second, which takes long. */
    out = run("",
              "mov.u32 %r1, %tid.x; mov.u32 %r2, 0; setp.lt.u32 %p0, %r1, 16; @%p0 bra SYNC;\n"
              "setp.ge.u32 %p0, %r1, 48; @%p0 bra SYNC; setp.lt.u32 %p0, %r1, 32; @%p0 bra MEET;\n"
              "LATE: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 20000; @%p1 bra LATE;\n"
              "MEET: barrier.sync 1, 32; mov.u32 %r2, %tid.x;\n"
              "SYNC: xor.b32 %r3, %r1, 16; and.b32 %r3, %r3, 31;\n"
              "shfl.sync.idx.b32 %r0, %r2, %r3, 31, -1;",
              1, 64);
    for (unsigned i = 0; i < 64; i++) {
        unsigned from = i ^ 16;
        assert_int_equal(out[i], from >= 16 && from < 48 ? from : 0);
    }
    machine_unload(&m);
}

static void match_and_elect_find_partners(void **state)
{
    (void)state;
    uint32_t *out =
        run("",
            "mov.u32 %r1, %laneid; and.b32 %r2, %r1, 3; match.any.sync.b32 %r3, %r2, -1;\n"
            "elect.sync _|%p0, -1; selp.u32 %r4, 1, 0, %p0; xor.b32 %r0, %r3, %r4;\n"
            "mov.u64 %d0, 5; match.all.sync.b64 %r5|%p1, %d0, -1; @!%p1 mov.u32 %r0, 0;\n"
            "match.all.sync.b32 %r5|%p1, 9, -1; @!%p1 mov.u32 %r0, 0;\n"
            "cvt.u64.u32 %d1, %r2; shl.b64 %d1, %d1, 40; match.any.sync.b64 %r6, %d1, -1;\n"
            "setp.ne.u32 %p2, %r6, %r3; @%p2 mov.u32 %r0, 0;\n"
            "match.all.sync.b32 %r5|%p1, %r2, -1; @%p1 mov.u32 %r0, 0;",
            1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], (0x11111111u << (i & 3)) ^ (i == 0));
    }
    machine_unload(&m);
}

static void redux_reduces(void **state)
{
    (void)state;
    uint32_t *out =
        run("",
            "mov.u32 %r1, %laneid; sub.s32 %r1, %r1, 10; redux.sync.min.s32 %r2, %r1, -1;\n"
            "redux.sync.max.u32 %r3, %r1, -1; redux.sync.xor.b32 %r4, %r1, 0xffff;\n"
            "add.u32 %r0, %r2, %r3;",
            1, 32);
    assert_int_equal(out[3], (uint32_t)-11);
    machine_unload(&m);
}

static void barriers_order_shared_memory(void **state)
{
    (void)state;
    uint32_t *out =
        run(".shared .align 4 .b8 buffer[4096];",
            "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, buffer;\n"
            "add.u32 %r4, %r3, %r2; mul.lo.u32 %r5, %r1, 3; st.shared.u32 [%r4], %r5;\n"
            "bar.sync 0; sub.u32 %r6, 255, %r1; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r3;\n"
            "ld.shared.u32 %r0, [%r6];",
            2, 256);
    for (unsigned i = 0; i < 512; i++) {
        assert_int_equal(out[i], (255 - i % 256) * 3);
    }
    machine_unload(&m);
}

static void barrier_reductions_count(void **state)
{
    (void)state;
    uint32_t *out =
        run("",
            "mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 70; bar.red.popc.u32 %r2, 1, %p0;\n"
            "barrier.cta.red.and.aligned.pred %p1, 2, %p0; bar.red.or.pred %p2, 3, 128, %p0;\n"
            "selp.u32 %r3, 1000, 0, %p1; selp.u32 %r4, 10000, 0, %p2; add.u32 %r0, %r2, %r3;\n"
            "add.u32 %r0, %r0, %r4;",
            1, 128);
    for (unsigned i = 0; i < 128; i++) {
        assert_int_equal(out[i], 70 + 10000);
    }
    machine_unload(&m);
}

/* The result goes to a register that held a constant before, of which there is a row for all. */
static void a_reduction_replaces_a_constant(void **state)
{
    (void)state;
    uint32_t *out = run("",
                        "mov.u32 %r2, 1234567; mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 70;\n"
                        "bar.red.popc.u32 %r2, 1, %p0; add.u32 %r0, %r2, 1;",
                        1, 128);
    for (unsigned i = 0; i < 128; i++) {
        assert_int_equal(out[i], 71);
    }
    machine_unload(&m);
}

static void named_barriers_pair_producers_with_consumers(void **state)
{
    (void)state;
    /* Warp 0 writes and only arrives, warp 1 waits and reads. */
    uint32_t *out =
        run(".shared .b32 cell;",
            "mov.u32 %r1, %tid.x; mov.u32 %r0, 0; setp.ge.u32 %p0, %r1, 32; @%p0 bra TAKE;\n"
            "setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [cell], 42; bar.arrive 1, 64;\n"
            "bra END; TAKE: bar.sync 1, 64; ld.shared.u32 %r0, [cell]; END:",
            1, 64);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[40], 42);
    machine_unload(&m);
}

static void exited_threads_do_not_hold_a_barrier(void **state)
{
    (void)state;
    machine_load(&m,
                 machine_wrap("", REGS "mov.u32 %r1, %tid.x; setp.gt.u32 %p0, %r1, 40; @%p0 exit;\n"
                                       "bar.sync 0; ld.param.u64 %d0, [p0];\n"
                                       "atom.global.add.u32 %r2, [%d0], 1;"),
                 true);
    uint32_t *out = machine_alloc(&m, 4);
    uint64_t args[1] = {ARG(out)};
    assert_int_equal(machine_run1(&m, "k", 1, 100, args, 1), 0);
    assert_int_equal(*out, 41);
    machine_unload(&m);
}

static void a_barrier_that_cannot_complete_is_a_deadlock(void **state)
{
    (void)state;
    machine_load(&m, machine_wrap("", "bar.sync 1, 128;"), true);
    assert_int_equal(machine_run1(&m, "k", 1, 64, NULL, 0), -5);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_DEADLOCK);
    assert_int_equal(m.fault.line, 7);
    machine_unload(&m);
}

#define END_AND_FILE "END: ret;\n}\n.file 1 \"a.cu\"\n.visible .entry other()\n{\n"

/* The half of the warp that has left was its last group. */
static void whoever_waits_for_ever_has_a_line_in_the_source(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap("", REGS
                     ".loc 1 20 0\nmov.u32 %r1, %tid.x; setp.ge.u32 %p0, %r1, 16; @%p0 bra END;\n"
                     ".loc 1 30 0\nbar.sync 1, 64;\n"
                     ".loc 1 40 0\n" END_AND_FILE),
        true);
    assert_int_equal(machine_run1(&m, "k", 1, 32, NULL, 0), -5);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_DEADLOCK);
    assert_non_null(m.fault.file);
    assert_string_equal(m.fault.file, "a.cu");
    assert_int_equal(m.fault.file_line, 30);
    machine_unload(&m);
}

static struct tow_ptx_fault alone; /* of who went on alone */

static void found_alone(void *user, const struct tow_ptx_fault *fault)
{
    (void)user;
    if (fault->kind == TOW_PTX_FAULT_MASK_OTHER) {
        alone = *fault;
    }
}

static void whoever_goes_on_alone_has_a_line_in_the_source(void **state)
{
    (void)state;
    tow_ptx_check_loads(TOW_PTX_CHECK_SYNC);
    machine_load(&m,
                 machine_wrap("", REGS "mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 24;\n"
                                       "setp.eq.u32 %p0, %r2, 8; @%p0 bra WAIT;\n"
                                       "setp.ge.u32 %p0, %r1, 16; @%p0 bra END;\n"
                                       ".loc 1 30 0\nbar.warp.sync 0xffff;\n"
                                       "WAIT: bar.sync 0;\n" END_AND_FILE),
                 true);
    tow_ptx_check_loads(0);
    m.found = found_alone;
    m.checks = TOW_PTX_CHECK_SYNC;
    memset(&alone, 0, sizeof alone);
    assert_int_equal(machine_run1(&m, "k", 1, 32, NULL, 0), 0);
    m.found = NULL;
    m.checks = 0;
    assert_int_equal(alone.kind, TOW_PTX_FAULT_MASK_OTHER);
    assert_int_equal(alone.thread[0], 0);
    assert_non_null(alone.file);
    assert_int_equal(alone.file_line, 30);
    machine_unload(&m);
}

static void threads_of_a_warp_can_wait_for_each_other(void **state)
{
    (void)state;
    /* A lock that each thread spins on: needs threads of one warp to make progress alone. */
    machine_load(
        &m,
        machine_wrap("",
                     REGS "ld.param.u64 %d0, [p0]; SPIN: atom.global.cas.b32 %r1, [%d0], 0, 1;\n"
                          "setp.ne.u32 %p0, %r1, 0; @%p0 bra SPIN;\n"
                          "ld.volatile.global.u32 %r2, [%d0+4]; add.u32 %r2, %r2, 1;\n"
                          "st.volatile.global.u32 [%d0+4], %r2; membar.gl;\n"
                          "atom.global.exch.b32 %r3, [%d0], 0;"),
        true);
    uint32_t *out = machine_alloc(&m, 8);
    uint64_t args[1] = {ARG(out)};
    m.threads = 2;
    assert_int_equal(machine_run1(&m, "k", 4, 96, args, 1), 0);
    assert_int_equal(out[1], 4 * 96);
    machine_unload(&m);
}

static void blocks_can_wait_for_later_blocks(void **state)
{
    (void)state;
    /* Every block waits until all eight have come; only one host thread runs them. */
    machine_load(
        &m,
        machine_wrap("",
                     REGS "ld.param.u64 %d0, [p0]; red.global.add.u32 [%d0], 1;\n"
                          "WAIT: ld.acquire.gpu.global.u32 %r1, [%d0]; setp.lt.u32 %p0, %r1, 8;\n"
                          "@%p0 bra WAIT;"),
        true);
    uint32_t *out = machine_alloc(&m, 4);
    uint64_t args[1] = {ARG(out)};
    assert_int_equal(machine_run1(&m, "k", 8, 1, args, 1), 0);
    m.cooperative = true;
    *out = 0;
    assert_int_equal(machine_run1(&m, "k", 8, 1, args, 1), 0);
    machine_unload(&m);
}

/* A wider result than its register, in the last register of a frame that has no room behind it. */
static void results_stay_in_their_registers(void **state)
{
    (void)state;
    uint32_t *out =
        run(".shared .b32 s;\n.func (.reg .b64 r) wide(.reg .b64 x) { add.u64 r, x, 0x500000001; "
            "ret; }\n"
            ".func (.reg .b32 r) narrow(.reg .b32 x) { add.u32 r, x, 1; ret; }\n",
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x;\n"
            "mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z; mov.u32 %r7, %ctaid.x; mov.u32 %r8, "
            "%ctaid.y;\n"
            "call (%r1), wide, (%r1); call (%r8), wide, (%r8); call (%r7), wide, (%r7);\n"
            "cvt.u64.u32 %d1, %r4; call (%d1), narrow, (%d1); cvt.u32.u64 %r4, %d1;\n"
            "st.shared.u32 [s], %r2; st.shared.u32 [s], %r3; st.shared.u32 [s], %r5;\n"
            "st.shared.u32 [s], %r6; add.u32 %r0, %r1, %r4; add.u32 %r0, %r0, %r7;\n"
            "add.u32 %r0, %r0, %r8;",
            1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], i + 1 + 33 + 1 + 1);
    }
    machine_unload(&m);
}

static void a_launch_can_be_stopped(void **state)
{
    (void)state;
    machine_load(&m, machine_wrap("", "L: bra L;"), true);
    atomic_store(&m.stop, true);
    assert_int_equal(machine_run1(&m, "k", 1, 32, NULL, 0), -5);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_STOPPED);
    machine_unload(&m);
}

static void special_registers_tell_who_we_are(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap(
            "", REGS
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;\n"
            "mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mad.lo.u32 %r6, %r3, %r5, %r2;\n"
            "mad.lo.u32 %r6, %r6, %r4, %r1; mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y;\n"
            "mov.u32 %r9, %nctaid.x; mad.lo.u32 %r7, %r8, %r9, %r7;\n"
            "mov.u32 %r10, %ntid.z; mul.lo.u32 %r11, %r4, %r5; mul.lo.u32 %r11, %r11, %r10;\n"
            "mad.lo.u32 %r12, %r7, %r11, %r6; ld.param.u64 %d0, [p0];\n"
            "mad.wide.u32 %d1, %r12, 4, %d0; mov.u32 %r13, %warpid; shl.b32 %r13, %r13, 5;\n"
            "mov.u32 %r14, %laneid; add.u32 %r13, %r13, %r14; sub.u32 %r13, %r13, %r6;\n"
            "add.u32 %r12, %r12, %r13; st.global.u32 [%d1], %r12;\n"
            "mov.u32 %r0, %lanemask_lt; popc.b32 %r0, %r0; setp.ne.u32 %p0, %r0, %r14; @%p0 trap;\n"
            "mov.u64 %d2, %clock64; mov.u32 %r0, %clock; mov.u64 %d3, %globaltimer;\n"
            "setp.eq.u64 %p1, %d3, 0; @%p1 trap;"),
        true);
    uint32_t grid[3] = {3, 2, 1}, block[3] = {5, 4, 3};
    uint32_t *out = machine_alloc(&m, 6 * 60 * 4);
    uint64_t args[1] = {ARG(out)};
    if (machine_run(&m, "k", grid, block, args, 1)) {
        fail_msg("%s", m.fault.message);
    }
    for (unsigned i = 0; i < 360; i++) {
        assert_int_equal(out[i], i);
    }
    machine_unload(&m);
}

static void clusters_share_memory(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap(".shared .b32 cell;", REGS
                     "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank;\n"
                     "add.u32 %r3, %r1, 100; st.shared.u32 [cell], %r3;\n"
                     "barrier.cluster.arrive; barrier.cluster.wait;\n"
                     "add.u32 %r4, %r1, 1; rem.u32 %r4, %r4, %r2; mov.u32 %r5, cell;\n"
                     "mapa.shared::cluster.u32 %r6, %r5, %r4; ld.shared::cluster.u32 %r7, [%r6];\n"
                     "getctarank.shared::cluster.u32 %r8, %r6; mad.lo.u32 %r0, %r8, 1000, %r7;\n"
                     "barrier.cluster.arrive; barrier.cluster.wait;" STORE_R0),
        true);
    uint32_t *out = machine_alloc(&m, 8 * 4);
    uint64_t args[1] = {ARG(out)};
    m.cluster[0] = 4;
    if (machine_run1(&m, "k", 8, 1, args, 1)) {
        fail_msg("%s", m.fault.message);
    }
    for (unsigned i = 0; i < 8; i++) {
        unsigned next = (i % 4 + 1) % 4;
        assert_int_equal(out[i], next * 1000 + 100 + next);
    }
    machine_unload(&m);
}

static void mbarriers_count_arrivals_and_bytes(void **state)
{
    (void)state;
    uint32_t *out = run(".shared .align 8 .b64 bar; .shared .align 16 .b8 data[64];",
                        "mov.u32 %r1, %tid.x; setp.eq.u32 %p0, %r1, 0; ld.param.u64 %d0, [p1];\n"
                        "@%p0 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; @!%p0 bra ARRIVE;\n"
                        "st.global.u32 [%d0+12], 77;\n"
                        "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;\n"
                        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], "
                        "[%d0], 64, [bar];\n"
                        "bra WAIT; ARRIVE: mbarrier.arrive.shared.b64 %d1, [bar];\n"
                        "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;\n"
                        "ld.shared.u32 %r0, [data+12];",
                        1, 64);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(out[i], 77);
    }
    machine_unload(&m);
}

static void stores_to_another_block_are_counted(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap(
            ".shared .align 8 .b64 bar; .shared .align 8 .b32 cell[2];",
            REGS "mov.u32 %r1, %cluster_ctarank; mbarrier.init.shared.b64 [bar], 1;\n"
                 "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 12; st.shared.u32 [cell+4], 5;\n"
                 "barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r2, %r1, 1;\n"
                 "mov.u32 %r3, cell; mapa.shared::cluster.u32 %r4, %r3, %r2; mov.u32 %r5, bar;\n"
                 "mapa.shared::cluster.u32 %r6, %r5, %r2; add.u32 %r7, %r1, 40; mov.b64 %d1, {%r7, "
                 "%r7};\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r4], %d1, [%r6];\n"
                 "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
                 "[%r4+4], 2, [%r6];\n"
                 "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;\n"
                 "ld.shared.u32 %r8, [cell]; ld.shared.u32 %r9, [cell+4]; mad.lo.u32 %r0, %r9, "
                 "100, %r8;\n"
                 "barrier.cluster.arrive; barrier.cluster.wait;" STORE_R0),
        true);
    uint32_t *out = machine_alloc(&m, 8);
    uint64_t args[1] = {ARG(out)};
    m.cluster[0] = 2;
    if (machine_run1(&m, "k", 2, 1, args, 1)) {
        fail_msg("%s", m.fault.message);
    }
    assert_int_equal(out[0], 4300 + 41);
    assert_int_equal(out[1], 4200 + 40);
    machine_unload(&m);
}

/* A persistent kernel's loop: the answer comes, with its bytes counted, and it is always no. */
static void no_cluster_is_cancelled(void **state)
{
    static const char *const asks[] = {
        /* each block for itself; the first one for all */
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
        "[answer], [bar];",
        "@%p0 clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes."
        "multicast::cluster::all.b128 [%d3], [%d4];"};
    static const char before[] =
        REGS ".reg .b128 %q; mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p0, %r1, 0;\n"
             "mbarrier.init.shared.b64 [bar], 1; st.shared.u32 [answer], -1;\n"
             "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;\n"
             "barrier.cluster.arrive; barrier.cluster.wait;\n"
             "mov.u64 %d1, answer; mov.u64 %d2, bar; cvta.shared.u64 %d3, %d1;\n"
             "cvta.shared.u64 %d4, %d2;\n";
    static const char behind[] =
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;\n"
        "ld.shared.b128 %q, [answer]; mov.u32 %r0, 1000;\n"
        "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q;\n"
        "@%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r0, %q;\n"
        "@%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r3, %r4, %r5, _}, "
        "%q;\n"
        "ld.shared.u32 %r6, [answer]; add.u32 %r0, %r0, %r6;\n"
        "barrier.cluster.arrive; barrier.cluster.wait;" STORE_R0;
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        char body[4096];
        snprintf(body, sizeof body, "%s%s%s", before, asks[i], behind);
        machine_load(
            &m, machine_wrap(".shared .align 8 .b64 bar; .shared .align 16 .b8 answer[16];", body),
            true);
        uint32_t *out = machine_alloc(&m, 8);
        uint64_t args[1] = {ARG(out)};
        m.cluster[0] = 2;
        if (machine_run1(&m, "k", 2, 1, args, 1)) {
            fail_msg("%s", m.fault.message);
        }
        assert_int_equal(out[0], 1000);
        assert_int_equal(out[1], 1000);
        machine_unload(&m);
    }
}

static void async_copies_arrive(void **state)
{
    (void)state;
    uint32_t *out = run(
        ".shared .align 16 .b8 data[1024];",
        "mov.u32 %r1, %tid.x; ld.param.u64 %d0, [p1]; mad.wide.u32 %d1, %r1, 16, %d0;\n"
        "st.global.v4.u32 [%d1], {%r1, 1, 2, 3}; mov.u32 %r2, data; mad.lo.u32 %r3, %r1, 16, %r2;\n"
        "cp.async.cg.shared.global [%r3], [%d1], 16; cp.async.commit_group;\n"
        "cp.async.wait_group 0; ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3];\n"
        "cp.async.ca.shared.global [%r3], [%d1], 8, 4; ld.shared.v2.u32 {%r8, %r9}, [%r3];\n"
        "mad.lo.u32 %r0, %r4, 100, %r7; mad.lo.u32 %r0, %r9, 7, %r0;",
        1, 64);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(out[i], i * 100 + 3);
    }
    machine_unload(&m);
}

/* A register that stands for a parameter or a special register, and some that only look like it. */
static void names_for_what_never_changes_are_seen_through(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap("",
                     ".reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<12>; .reg .b16 %h<4>;\n"
                     "ld.param.u64 %d0, [p0]; cvta.to.global.u64 %d1, %d0; mov.u64 %d2, %d1;\n"
                     "mov.u32 %r0, %tid.x; mov.b32 %r1, %r0; mad.wide.u32 %d3, %r1, 32, %d2;\n"
                     /* half of a parameter; the whole; the same again */
                     "ld.param.u32 %r2, [p1+4]; ld.param.u64 %d4, [p1]; ld.param.u64 %d5, [p1];\n"
                     "add.u64 %d6, %d4, %d5; ld.param.u16 %h0, [p1]; cvt.u32.u16 %r3, %h0;\n"
                     "st.global.u64 [%d3], %d6; st.global.v2.u32 [%d3+8], {%r2, %r3};\n"
                     /* written twice, under a guard, changed in place, in a loop */
                     "ld.param.u32 %r4, [p2]; add.u32 %r4, %r4, %r0; mov.u32 %r5, %ntid.x;\n"
                     "setp.eq.u32 %p0, %r0, 3; @%p0 mov.u32 %r5, %laneid;\n"
                     "mov.u32 %r6, 7; @%p0 ld.param.u32 %r6, [p2];\n"
                     "st.global.v4.u32 [%d3+16], {%r4, %r5, %r6, 0};\n"
                     "mov.u32 %r7, 0; mov.u32 %r8, %tid.x;\n"
                     "again: mov.u32 %r9, %r7; add.u32 %r7, %r7, 1; mov.u32 %r10, %r8;\n"
                     "setp.lt.u32 %p1, %r7, 5; @%p1 bra again;\n"
                     "add.u32 %r11, %r9, %r10; st.global.u32 [%d3+28], %r11;"),
        true);
    uint32_t *out = machine_alloc(&m, 64 * 32);
    uint64_t args[3] = {ARG(out), 0x1122334455667788ull, 1000};
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(machine_run1(&m, "k", 1, 64, args, 3), 0);
        for (uint32_t i = 0; i < 64; i++) {
            const uint32_t *at = out + 8 * i;
            uint64_t twice;
            memcpy(&twice, at, 8);
            assert_true(twice == 2 * args[1]);
            assert_int_equal(at[2], args[1] >> 32);
            assert_int_equal(at[3], args[1] & 0xffff);
            assert_int_equal(at[4], args[2] + i);
            assert_int_equal(at[5], i == 3 ? 3 : 64);
            assert_int_equal(at[6], i == 3 ? args[2] : 7);
            assert_int_equal(at[7], 4 + i);
        }
        args[1] = 0xfedcba9876543210ull; /* the next launch has its own */
        args[2] = 5;
    }
    machine_unload(&m);
}

/* Every block reads what the one before wrote in the round before: without the barrier some see an
 * old value. Of a launch that is not cooperative the call returns cudaErrorInvalidValue. */
static void the_machine_brings_grid_barriers_along(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap(
            ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 scope);\n"
            ".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 h, .param .b32 flags);",
            ".reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %d<12>;\n"
            "ld.param.u64 %d0, [p0]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; mov.u32 %r2, "
            "%ntid.x;\n"
            "mov.u32 %r13, %nctaid.x; mad.lo.u32 %r3, %r0, %r2, %r1; mul.lo.u32 %r4, %r13, %r2;\n"
            "add.u32 %r5, %r3, %r2; rem.u32 %r5, %r5, %r4;\n"
            "mad.wide.u32 %d1, %r3, 4, %d0; mad.wide.u32 %d2, %r5, 4, %d0; mov.u32 %r6, 0;\n"
            "{ .param .b32 s; .param .b64 h; st.param.b32 [s], 1;\n"
            "call.uni (h), cudaCGGetIntrinsicHandle, (s); ld.param.b64 %d3, [h]; }\n"
            "again:\n"
            "ld.volatile.global.u32 %r7, [%d1];\n"
            "{ .param .b64 h; .param .b32 f; .param .b32 e; st.param.b64 [h], %d3; st.param.b32 "
            "[f], 0;\n"
            "call.uni (e), cudaCGSynchronize, (h, f); ld.param.b32 %r8, [e]; }\n"
            "add.u32 %r7, %r7, 1; st.volatile.global.u32 [%d2], %r7;\n"
            "{ .param .b64 h; .param .b32 f; .param .b32 e; st.param.b64 [h], %d3; st.param.b32 "
            "[f], 0;\n"
            "call.uni (e), cudaCGSynchronize, (h, f); ld.param.b32 %r9, [e]; }\n"
            "add.u32 %r6, %r6, 1; setp.lt.u32 %p0, %r6, 20; @%p0 bra again;\n"
            "or.b32 %r8, %r8, %r9; mul.wide.u32 %d4, %r4, 4; add.u64 %d5, %d1, %d4; "
            "st.global.u32 [%d5], %r8;"),
        true);
    uint32_t *out = machine_alloc(&m, 2 * 8 * 64 * 4);
    uint64_t args[1] = {ARG(out)};
    m.threads = 2;
    m.cooperative = true;
    assert_int_equal(machine_run1(&m, "k", 8, 64, args, 1), 0);
    for (uint32_t i = 0; i < 8 * 64; i++) {
        assert_int_equal(out[i], 20);
        assert_int_equal(out[8 * 64 + i], 0);
    }
    m.cooperative = false;
    assert_int_equal(machine_run1(&m, "k", 1, 64, args, 1), 0);
    assert_int_equal(out[64], 1);
    machine_unload(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(branches_diverge_and_join),
        cmocka_unit_test(loops_end_each_thread_in_its_turn),
        cmocka_unit_test(threads_that_leave_a_loop_meet_behind_it),
        cmocka_unit_test(results_under_a_guard_leave_other_lanes_as_they_are),
        cmocka_unit_test(brx_picks_by_table),
        cmocka_unit_test(direct_calls_pass_parameters),
        cmocka_unit_test(structs_pass_by_value),
        cmocka_unit_test(recursion_of_different_depth_works),
        cmocka_unit_test(a_call_that_returns_gives_its_registers_back),
        cmocka_unit_test(indirect_calls_go_where_each_thread_says),
        cmocka_unit_test(a_bad_call_target_is_a_fault),
        cmocka_unit_test(shuffles_move_values),
        cmocka_unit_test(shuffles_stay_in_their_segment),
        cmocka_unit_test(known_operands_give_what_unknown_ones_give),
        cmocka_unit_test(popc_counts),
        cmocka_unit_test(votes_count_threads),
        cmocka_unit_test(sync_instructions_wait_for_their_members),
        cmocka_unit_test(sync_instructions_wait_for_members_that_take_long),
        cmocka_unit_test(match_and_elect_find_partners),
        cmocka_unit_test(redux_reduces),
        cmocka_unit_test(barriers_order_shared_memory),
        cmocka_unit_test(barrier_reductions_count),
        cmocka_unit_test(a_reduction_replaces_a_constant),
        cmocka_unit_test(named_barriers_pair_producers_with_consumers),
        cmocka_unit_test(exited_threads_do_not_hold_a_barrier),
        cmocka_unit_test(a_barrier_that_cannot_complete_is_a_deadlock),
        cmocka_unit_test(whoever_waits_for_ever_has_a_line_in_the_source),
        cmocka_unit_test(whoever_goes_on_alone_has_a_line_in_the_source),
        cmocka_unit_test(threads_of_a_warp_can_wait_for_each_other),
        cmocka_unit_test(blocks_can_wait_for_later_blocks),
        cmocka_unit_test(results_stay_in_their_registers),
        cmocka_unit_test(a_launch_can_be_stopped),
        cmocka_unit_test(special_registers_tell_who_we_are),
        cmocka_unit_test(clusters_share_memory),
        cmocka_unit_test(mbarriers_count_arrivals_and_bytes),
        cmocka_unit_test(stores_to_another_block_are_counted),
        cmocka_unit_test(no_cluster_is_cancelled),
        cmocka_unit_test(names_for_what_never_changes_are_seen_through),
        cmocka_unit_test(the_machine_brings_grid_barriers_along),
        cmocka_unit_test(async_copies_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
