/* SPDX-License-Identifier: Apache-2.0 */
/* State spaces, loads and stores, atomics, faults, device functions that the machine provides. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "machine.h"

static struct machine m;

#define REGS                                                                                       \
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<8>;\n"    \
    ".reg .b128 %q<3>; .reg .f64 %g<4>;\n"                                                         \
    "mov.u32 %r1, %tid.x; ld.param.u64 %d0, [p0]; mad.wide.u32 %d1, %r1, 4, %d0;\n"                \
    "mad.wide.u32 %d2, %r1, 16, %d0;\n"

static uint32_t *out;

static int run(const char *declarations, const char *body, uint32_t grid, uint32_t block)
{
    char text[16384];
    snprintf(text, sizeof text, "%s%s", REGS, body);
    machine_load(&m, machine_wrap(declarations, text), true);
    out = machine_alloc(&m, 4096);
    uint64_t args[2] = {ARG(out), 0x1122334455667788ull};
    return machine_run1(&m, "k", grid, block, args, 2);
}

static void run_well(const char *declarations, const char *body, uint32_t grid, uint32_t block)
{
    if (run(declarations, body, grid, block)) {
        fail_msg("line %u: %s", m.fault.line, m.fault.message);
    }
}

static void vectors_load_and_store(void **state)
{
    (void)state;
    run_well(
        "",
        "st.global.v4.u32 [%d2], {%r1, 5, 6, %r1}; ld.global.v2.u64 {%d3, %d4}, [%d2];\n"
        "cvt.u32.u64 %r2, %d3; shr.u64 %d4, %d4, 32; cvt.u32.u64 %r3, %d4; add.u32 %r4, %r2, %r3;\n"
        "st.global.v2.u16 [%d2], {%h0, 7}; ld.global.v4.u8 {%r5, %r6, %r7, %r8}, [%d2];\n"
        "st.global.v2.u32 [%d2], {%r4, %r7}; ld.global.b128 %q0, [%d2]; st.global.b128 [%d2+1024], "
        "%q0;",
        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[4 * i], 2 * i);
        assert_int_equal(out[4 * i + 1], 7);
        assert_int_equal(out[4 * i + 256], 2 * i);
        assert_int_equal(out[4 * i + 2 + 256], 6);
    }
    machine_unload(&m);
}

/* Lanes at even steps take a short way, also when two write to one place: the last one's stays. The
 * first round of the loop goes the long way, since no range is known yet. */
static void steps_of_all_kinds_reach_the_same_as_one_lane_after_the_other(void **state)
{
    (void)state;
    static const struct {
        const char *space, *base;
    } places[] = {{"global", "%d0"}, {"", "%d0"}, {"shared", "s"}, {"", "generic"}};
    static const int64_t steps[] = {0, 1, 2, 4, 8, 12, 32, -4, -1};
    static const int64_t gaps[] = {0, 4, 16, 32, 64, 128, -64, 512};
    static const struct {
        const char *type;
        int bytes;
    } types[] = {{"u32", 4}, {"u16", 2}, {"u8", 1}, {"u64", 8}};
    for (unsigned i = 0; i < sizeof places / sizeof places[0] * 4; i++) {
        unsigned place = i / 4, type = i % 4;
        bool wide = types[type].bytes == 8, shared = place >= 2;
        const char *space = places[place].space, *dot = *space ? "." : "";
        char body[4096];
        snprintf(
            body, sizeof body,
            "%s.shared .align 16 .b8 s[2048]; ld.param.u64 %%d3, [p1]; ld.param.u64 %%d4, [p2]; "
            "and.b32 %%r2, %%r1, 15; shr.u32 %%r3, %%r1, 4; cvt.u64.u32 %%d5, %%r2;\n"
            "cvt.u64.u32 %%d6, %%r3; mul.lo.u64 %%d5, %%d5, %%d3; mad.lo.u64 %%d5, %%d6, %%d4, "
            "%%d5; ld.param.u32 %%r6, [p3]; setp.eq.u32 %%p2, %%r1, %%r6; @%%p2 add.u64 %%d5, "
            "%%d5, 8; mov.u64 %%d7, %s; %s add.u64 %%d7, %%d7, %%d5; cvt.u32.u64 %%r7, %%d7;\n"
            "mov.u32 %%r9, 0; add.u32 %%r10, %%r1, 100; cvt.u64.u32 %%d10, %%r10;\n"
            "again: st%s%s.%s [%s+1024], %s; ld%s%s.%s %s, [%s+1024];\n"
            "add.u32 %%r9, %%r9, 1; setp.lt.u32 %%p1, %%r9, 3; @%%p1 bra again;\n"
            "cvt.u32.u64 %%r5, %%d11; st.global.u32 [%%d1+3072], %s;\n",
            REGS, strcmp(places[place].base, "generic") == 0 ? "s" : places[place].base,
            place == 3 ? "cvta.shared.u64 %d7, %d7;" : "", dot, space, types[type].type,
            place == 2 ? "%r7" : "%d7", wide ? "%d10" : "%r10", dot, space, types[type].type,
            wide ? "%d11" : "%r4", place == 2 ? "%r7" : "%d7", wide ? "%r5" : "%r4");
        machine_load(&m, machine_wrap("", body), true);
        out = machine_alloc(&m, 4096);
        for (unsigned k = 0; k < sizeof steps / sizeof steps[0] * 8 * 4; k++) {
            static const int odds[] = {-1, 0, 7, 31}; /* a lane that is out of step */
            int64_t step = steps[k / 32], gap = gaps[k / 4 % 8];
            int odd = odds[k % 4];
            uint64_t args[4] = {ARG(out), (uint64_t)step, (uint64_t)gap, (uint32_t)odd};
            uint8_t want[2048] = {0}, *at[32];
            memset(out, 0, 4096);
            int error = machine_run1(&m, "k", 1, 32, args, 4);
            if (step % types[type].bytes || gap % types[type].bytes) {
                assert_int_equal(error, -EIO);
                assert_int_equal(m.fault.kind, TOW_PTX_FAULT_MISALIGNED);
                continue;
            }
            assert_int_equal(error, 0);
            for (int l = 0; l < 32; l++) {
                uint64_t value = (uint64_t)l + 100;
                at[l] = want + 1024 + (l & 15) * step + (l >> 4) * gap + (l == odd ? 8 : 0);
                memcpy(at[l], &value, (size_t)types[type].bytes);
            }
            for (unsigned l = 0; l < 32; l++) {
                uint64_t value = 0;
                memcpy(&value, at[l], (size_t)types[type].bytes);
                assert_int_equal(out[768 + l], value);
            }
            assert_true(shared || memcmp(out, want, sizeof want) == 0);
        }
        machine_unload(&m);
    }
}

/* Lanes that are anywhere, and of them those that take part alone: what the others have stays. */
static void some_lanes_reach_what_all_of_them_would(void **state)
{
    (void)state;
    static const uint32_t masks[] = {~0u, 1u, 0x80000000u, 0x7fffffffu, 0xffff0000u, 0xa5a5a5a5u};
    static const char *const places[][2] = {{"global", "%d6"}, {"shared", "%r7"}};
    for (unsigned i = 0; i < 2 * sizeof masks / sizeof masks[0]; i++) {
        uint32_t mask = masks[i / 2];
        const char *const *place = places[i % 2];
        char body[2048];
        /* Lane l is at word 5l modulo 64. Lanes without the guard are out of bounds. */
        snprintf(body, sizeof body,
                 ".shared .align 4 .b8 s[256]; shr.u32 %%r2, 0x%x, %%r1; and.b32 %%r2, %%r2, 1;\n"
                 "setp.eq.u32 %%p1, %%r2, 1; mul.lo.u32 %%r3, %%r1, 20; and.b32 %%r3, %%r3, 255;\n"
                 "selp.u32 %%r3, %%r3, 0x40000001, %%p1; mov.u32 %%r7, s; add.u32 %%r7, %%r7, "
                 "%%r3;\n"
                 "cvt.u64.u32 %%d6, %%r3; add.u64 %%d6, %%d6, %%d0; mov.u32 %%r9, 0; add.u32 "
                 "%%r10, %%r1, 100;\n"
                 "again: mov.u32 %%r11, 7; @%%p1 st.%s.u32 [%s], %%r10;\n"
                 "@%%p1 ld.%s.u32 %%r11, [%s]; add.u32 %%r9, %%r9, 1;\n"
                 "setp.lt.u32 %%p2, %%r9, 2; @%%p2 bra again; st.global.u32 [%%d1+1024], %%r11;",
                 mask, place[0], place[1], place[0], place[1]);
        run_well("", body, 1, 32);
        for (unsigned l = 0; l < 32; l++) {
            bool takes = mask >> l & 1;
            assert_int_equal(out[256 + l], takes ? 100 + l : 7);
            if (i % 2 == 0) {
                assert_int_equal(out[5 * l % 64], takes ? 100 + l : 0);
            }
        }
        machine_unload(&m);
    }
}

static void narrow_loads_extend(void **state)
{
    (void)state;
    run_well(".global .s8 bytes[4] = {-1, 2, -128, 127};",
             "ld.global.s8 %r2, [bytes]; ld.global.u8 %r3, [bytes]; ld.global.s8 %d3, [bytes+2];\n"
             "ld.global.s16 %r4, [bytes+2]; ld.global.u16 %h1, [bytes+2]; cvt.u32.u16 %r5, %h1;\n"
             "cvt.u32.u64 %r6, %d3; st.global.v4.u32 [%d0], {%r2, %r3, %r4, %r5}; st.global.u32 "
             "[%d0+16], %r6;",
             1, 1);
    assert_int_equal(out[0], 0xffffffffu);
    assert_int_equal(out[1], 255);
    assert_int_equal(out[2], 0x7f80);
    assert_int_equal(out[3], 0x7f80);
    assert_int_equal(out[4], 0xffffff80u);
    machine_unload(&m);
}

static void variables_have_their_initial_values(void **state)
{
    (void)state;
    run_well(".const .align 4 .f32 pi = 0f40490FDB; .global .u32 numbers[5] = {1, 2, 0x10};\n"
             ".global .u64 where = numbers; .global .u64 third = generic(numbers)+8;\n"
             ".global .f64 half[2] = {0.5, 0d4000000000000000};\n"
             ".global .v2 .u32 pair[2] = {{1, 2}, {3, 4}}; .visible .global .u32 zero;",
             "ld.const.u32 %r2, [pi]; ld.global.u64 %d3, [where]; ld.global.u32 %r3, [%d3+4];\n"
             "ld.global.u64 %d4, [third]; ld.u32 %r4, [%d4]; ld.global.u32 %r5, [numbers+16];\n"
             "st.global.v4.u32 [%d0], {%r2, %r3, %r4, %r5}; ld.global.f64 %g0, [half+8];\n"
             "cvt.rzi.u32.f64 %r6, %g0; ld.global.v2.u32 {%r7, %r8}, [pair+8];\n"
             "st.global.v4.u32 [%d0+16], {%r6, %r7, %r8, 9};",
             1, 1);
    static const uint32_t want[] = {0x40490fdb, 2, 16, 0, 2, 3, 4, 9};
    assert_memory_equal(out, want, sizeof want);
    machine_unload(&m);
}

static void generic_addresses_reach_every_space(void **state)
{
    (void)state;
    run_well(
        ".shared .align 8 .b8 sh[256];",
        ".local .align 8 .b8 lo[64]; cvta.shared.u64 %d3, 0; mov.u64 %d4, sh; cvta.shared.u64 %d4, "
        "%d4;\n"
        "mad.wide.u32 %d5, %r1, 4, %d4; st.u32 [%d5], %r1; mov.u64 %d6, lo; cvta.local.u64 %d7, "
        "%d6;\n"
        "add.u32 %r2, %r1, 100; st.u32 [%d7+4], %r2; ld.local.u32 %r3, [lo+4];\n"
        "xor.b32 %r4, %r1, 1; mul.wide.u32 %d8, %r4, 4; add.u64 %d8, %d8, %d4; bar.warp.sync -1;\n"
        "ld.u32 %r5, [%d8]; isspacep.shared %p0, %d8; isspacep.local %p1, %d7; isspacep.global "
        "%p2, %d1;\n"
        "and.pred %p0, %p0, %p1; and.pred %p0, %p0, %p2; isspacep.global %p3, %d8;\n"
        "mad.lo.u32 %r6, %r5, 1000, %r3; @!%p0 mov.u32 %r6, 0; @%p3 mov.u32 %r6, 1; st.u32 [%d1], "
        "%r6;\n"
        "cvta.to.shared.u64 %d9, %d4; cvta.to.local.u64 %d10, %d7; setp.ne.u64 %p4, %d10, %d6; "
        "@%p4 trap;",
        1, 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_int_equal(out[i], (i ^ 1) * 1000 + 100 + i);
    }
    machine_unload(&m);
}

static void kernel_parameters_are_readable_memory(void **state)
{
    (void)state;
    run_well(
        "",
        "mov.b64 %d3, p1; cvta.param.u64 %d4, %d3; ld.u32 %r2, [%d4+4]; ld.param.u16 %r3, [p1+2];\n"
        "ld.param.u32 %r4, [%d3]; st.global.v4.u32 [%d0], {%r2, %r3, %r4, 0};",
        1, 1);
    assert_int_equal(out[0], 0x11223344);
    assert_int_equal(out[1], 0x5566);
    assert_int_equal(out[2], 0x55667788);
    machine_unload(&m);
}

static void dynamic_shared_memory_follows_the_static(void **state)
{
    (void)state;
    machine_load(
        &m,
        machine_wrap(
            ".shared .b8 fixed[20]; .extern .shared .align 16 .b8 dynamic[];", REGS
            "mov.u32 %r2, dynamic; st.shared.u8 [fixed+19], %r1; mov.u32 %r3, %dynamic_smem_size;\n"
            "st.shared.u32 [dynamic+96], 5; ld.shared.u32 %r4, [%r2+96];\n"
            "st.global.v4.u32 [%d0], {%r2, %r3, %r4, 0};"),
        true);
    out = machine_alloc(&m, 64);
    uint64_t args[1] = {ARG(out)};
    m.dynamic_shared = 100;
    assert_int_equal(machine_run1(&m, "k", 1, 1, args, 1), 0);
    assert_int_equal(out[0], 32);
    assert_int_equal(out[1], 100);
    assert_int_equal(out[2], 5);
    m.dynamic_shared = 96;
    assert_int_equal(machine_run1(&m, "k", 1, 1, args, 1), -EIO);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_ADDRESS);
    machine_unload(&m);
}

static void atomics_add_up_over_blocks(void **state)
{
    (void)state;
    char text[8192];
    snprintf(text, sizeof text, "%s%s", REGS,
             "atom.global.add.u32 %r2, [%d0], 1; red.global.add.u64 [%d0+8], 3;\n"
             "atom.global.max.s32 %r3, [%d0+16], %r1; red.global.min.u32 [%d0+20], %r1;\n"
             "atom.global.or.b32 %r4, [%d0+24], %r1; mov.f32 %f0, 0f3F800000; red.global.add.f32 "
             "[%d0+28], %f0;\n"
             "mov.f64 %g0, 0d3FF0000000000000; atom.global.add.f64 %g1, [%d0+32], %g0;\n"
             "atom.global.inc.u32 %r5, [%d0+40], 99; atom.global.dec.u32 %r6, [%d0+44], 1000;\n"
             "mov.b32 %r7, 0x3c003c00; red.global.add.noftz.f16x2 [%d0+48], %r7;\n"
             "red.global.xor.b32 [%d0+52], %r1; atom.add.release.gpu.u64 %d5, [%d0+56], 1;");
    machine_load(&m, machine_wrap("", text), true);
    out = machine_alloc(&m, 256);
    out[5] = 1000;
    uint64_t args[1] = {ARG(out)};
    m.threads = 2;
    assert_int_equal(machine_run1(&m, "k", 10, 100, args, 1), 0);
    assert_int_equal(out[0], 1000);
    assert_int_equal(*(uint64_t *)(out + 2), 3000);
    assert_int_equal(out[4], 99);
    assert_int_equal(out[5], 0);
    assert_int_equal(out[6], 127);
    assert_true(*(float *)(out + 7) == 1000);
    assert_true(*(double *)(out + 8) == 1000);
    assert_int_equal(out[10], 0);          /* 1000 times modulo 100 */
    assert_int_equal(out[11], 1);          /* 0 -> 1000 -> 999 ... */
    assert_int_equal(out[12], 0x63d063d0); /* 1000 in f16, twice */
    assert_int_equal(out[13], 0);
    assert_int_equal(*(uint64_t *)(out + 14), 1000);
    machine_unload(&m);
}

static void atomics_return_what_was_there(void **state)
{
    (void)state;
    run_well(
        ".shared .align 16 .b8 s[64];",
        "mov.u32 %r9, 0; @%p7 mov.u32 %r9, 1; mov.u32 %r2, s; st.shared.v4.u32 [s], {7, 0, 0, 0};\n"
        "atom.shared.exch.b32 %r3, [s], 9; atom.shared.cas.b32 %r4, [s], 9, 11; "
        "atom.shared.cas.b32 %r5, [%r2], 9, 13;\n"
        "atom.shared.add.u32 %r6, [s], 1; st.global.v4.u32 [%d0], {%r3, %r4, %r5, %r6};\n"
        "mov.u16 %h1, 12; mov.u16 %h2, 300; atom.shared.cas.b16 %h3, [s], %h1, %h2; cvt.u32.u16 "
        "%r7, %h3;\n"
        "ld.shared.u32 %r8, [s]; mov.b128 %q0, {%d0, %d1}; mov.u64 %d3, 0; mov.u64 %d4, 300; "
        "mov.b128 %q1, {%d4, %d3};\n"
        "atom.shared.cas.b128 %q2, [s], %q1, %q0; mov.b128 {%d5, %d6}, %q2; cvt.u32.u64 %r10, "
        "%d5;\n"
        "ld.shared.u64 %d7, [s]; setp.ne.u64 %p1, %d7, %d0; selp.u32 %r11, 1, 2, %p1;\n"
        "st.global.v4.u32 [%d0+16], {%r7, %r8, %r10, %r11};",
        1, 1);
    static const uint32_t want[] = {7, 9, 11, 11, 12, 300, 300, 2};
    assert_memory_equal(out, want, sizeof want);
    machine_unload(&m);
}

static void fault_is(enum tow_ptx_fault_kind kind, unsigned thread, const char *declarations,
                     const char *body, uint32_t block)
{
    assert_int_equal(run(declarations, body, 1, block), -EIO);
    if (m.fault.kind != kind || m.fault.thread[0] != thread) {
        fail_msg("kind %d thread %u: %s", m.fault.kind, m.fault.thread[0], m.fault.message);
    }
    assert_string_equal(m.fault.kernel, "k");
    assert_true(m.fault.line >= 4);
    machine_unload(&m);
}

/* The log names the one thread among all that made the mistake. */
static void a_fault_tells_whose_it_is(void **state)
{
    (void)state;
    const char *text =
        PTX_HEAD ".entry k(.param .u64 p0)\n"
                 "{ .reg .b32 %r<8>; .reg .pred %p<4>; .reg .b64 %d;\n"
                 "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z;\n"
                 "mov.u32 %r3, %tid.x; mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z;\n"
                 "setp.eq.u32 %p0, %r0, 1; setp.eq.and.u32 %p0, %r1, 2, %p0; setp.eq.and.u32 %p0, "
                 "%r2, 3, %p0;\n"
                 "setp.eq.and.u32 %p0, %r3, 4, %p0; setp.eq.and.u32 %p0, %r4, 5, %p0;\n"
                 "setp.eq.and.u32 %p0, %r5, 6, %p0;\n"
                 "@!%p0 ret; mov.u64 %d, 64; st.global.u32 [%d], %r0; ret; }\n";
    static const uint32_t grid[3] = {2, 3, 4}, block[3] = {5, 6, 7};
    machine_load(&m, text, true);
    assert_int_equal(machine_run(&m, "k", grid, block, &(uint64_t){0}, 1), -EIO);
    static const uint32_t where[6] = {1, 2, 3, 4, 5, 6};
    assert_memory_equal(m.fault.block, where, sizeof m.fault.block);
    assert_memory_equal(m.fault.thread, where + 3, sizeof m.fault.thread);
    assert_int_equal(m.fault.line, 11);
    assert_int_equal(m.fault.address, 64);
    machine_unload(&m);
}

static void mistakes_end_in_the_right_fault(void **state)
{
    (void)state;
    /* 4096 bytes: thread 30 of a stride of 128 is inside, 32 is out by one element */
    fault_is(TOW_PTX_FAULT_ADDRESS, 32, "",
             "mad.wide.u32 %d3, %r1, 128, %d0; st.global.u32 [%d3], %r1;", 64);
    fault_is(TOW_PTX_FAULT_ADDRESS, 0, "", "ld.global.u64 %d3, [%d0+4096];", 1);
    fault_is(TOW_PTX_FAULT_ADDRESS, 0, "", "ld.global.u32 %r3, [%d0+-4];", 1);
    fault_is(TOW_PTX_FAULT_ADDRESS, 0, "", "mov.u64 %d3, 0; st.u32 [%d3], 1;", 32);
    fault_is(TOW_PTX_FAULT_ADDRESS, 3, "",
             "setp.eq.u32 %p0, %r1, 3; mov.u64 %d3, 16; @%p0 atom.global.add.u32 %r2, [%d3], 1;",
             32);
    fault_is(TOW_PTX_FAULT_MISALIGNED, 0, "", "ld.global.u32 %r2, [%d0+2];", 1);
    fault_is(TOW_PTX_FAULT_MISALIGNED, 0, "", "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d0+8];", 1);
    fault_is(TOW_PTX_FAULT_MISALIGNED, 1, ".shared .b8 s[64];",
             "mov.u32 %r3, s; add.u32 %r3, %r3, %r1; ld.shared.u16 %h0, [%r3];", 4);
    /* the last of 32 that lie side by side; 3968 is where the last 128 bytes begin */
    fault_is(TOW_PTX_FAULT_ADDRESS, 31, "",
             "mov.u32 %r9, 0; again: ld.global.u32 %r2, [%d1+3968]; add.u32 %r9, %r9, 1; "
             "setp.lt.u32 %p1, %r9, 3; @%p1 bra again; st.global.u32 [%d1+3972], %r1;",
             32);
    /* 64 bytes are 128, as on hardware */
    fault_is(TOW_PTX_FAULT_ADDRESS, 32, ".shared .b8 s[64];",
             "mov.u32 %r3, s; mad.lo.u32 %r3, %r1, 4, %r3; st.shared.u32 [%r3], 1;", 64);
    fault_is(TOW_PTX_FAULT_ADDRESS, 0, "",
             ".local .b8 lo[16]; mov.u64 %d3, lo; ld.local.u32 %r2, [%d3+4194304];", 1);
    fault_is(TOW_PTX_FAULT_ADDRESS, 0, ".const .u32 c = 1;",
             "mov.u64 %d3, c; add.u64 %d3, %d3, 65536; ld.const.u32 %r2, [%d3];", 1);
    fault_is(TOW_PTX_FAULT_TRAP, 5, "", "setp.eq.u32 %p0, %r1, 5; @%p0 trap;", 32);
    fault_is(TOW_PTX_FAULT_STACK, 0, ".func f() { .local .b8 big[1024]; call f; ret; }", "call f;",
             1);
}

static void device_printf_formats(void **state)
{
    (void)state;
    run_well(
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
        ".global .align 1 .b8 format[] = {120, 61, 37, 48, 53, 100, 32, 37, 115, 32, 37, 46, 50, "
        "102, 32,"
        " 37, 108, 108, 120, 32, 37, 99, 32, 37, 37, 10, 0};\n" /* x=%05d %s %.2f %llx %c %%\n */
        ".global .align 1 .b8 word[] = {119, 111, 114, 100, 0};",
        ".local .align 8 .b8 args[48]; mov.u64 %d3, args; cvta.local.u64 %d4, %d3; add.s32 %r2, "
        "%r1, -42;\n"
        "st.local.u32 [args], %r2; mov.u64 %d5, word; st.local.u64 [args+8], %d5;\n"
        "mov.f64 %g0, 0d4009000000000000; st.local.f64 [args+16], %g0; mov.u64 %d6, 0xabcdef0123; "
        "st.local.u64 [args+24], %d6;\n"
        "st.local.u32 [args+32], 90; mov.u64 %d7, format; { .param .b64 f; .param .b64 a; .param "
        ".b32 r;\n"
        "st.param.b64 [f], %d7; st.param.b64 [a], %d4; call.uni (r), vprintf, (f, a); ld.param.b32 "
        "%r3, [r]; }",
        1, 2);
    assert_string_equal(m.output,
                        "x=-0042 word 3.12 abcdef0123 Z %\nx=-0041 word 3.12 abcdef0123 Z %\n");
    machine_unload(&m);
}

static void device_malloc_gives_memory(void **state)
{
    (void)state;
    static const char declarations[] = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
                                       ".extern .func free(.param .b64 p);\n";
    static const char body[] = "{ .param .b64 n; .param .b64 r; st.param.b64 [n], 16; call (r), "
                               "malloc, (n); ld.param.b64 %d3, [r]; }\n"
                               "add.u32 %r2, %r1, 7; st.u32 [%d3+12], %r2; ld.u32 %r3, [%d3+12]; "
                               "st.global.u32 [%d1], %r3;\n"
                               "{ .param .b64 p; st.param.b64 [p], %d3; call free, (p); }\n";
    run_well(declarations, body, 1, 4);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(out[i], i + 7);
    }
    machine_unload(&m);
    char after[2048];
    snprintf(after, sizeof after, "%s ld.u32 %%r3, [%%d3];", body);
    fault_is(TOW_PTX_FAULT_ADDRESS, 0, declarations, after, 1); /* use after free */
}

static void assertions_report_and_fault(void **state)
{
    (void)state;
    static const char declarations[] = ".extern .func __assertfail(.param .b64 a, .param .b64 b, "
                                       ".param .b32 c, .param .b64 d, .param .b64 e);\n"
                                       ".global .b8 t[3] = {120, 33, 0};\n";
    static const char body[] =
        "setp.lt.u32 %p0, %r1, 2; @%p0 bra FINE; mov.u64 %d3, t; { .param .b64 a; .param .b64 b; "
        ".param .b32 c; .param .b64 d; .param .b64 e;\n"
        "st.param.b64 [a], %d3; st.param.b64 [b], %d3; st.param.b32 [c], 12; st.param.b64 [d], "
        "%d3; st.param.b64 [e], 1;\n"
        "call.uni __assertfail, (a, b, c, d, e); } FINE:";
    assert_int_equal(run(declarations, body, 1, 4), -EIO);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_ASSERT);
    assert_int_equal(m.asserts, 2);
    assert_int_equal(m.fault.thread[0], 2);
    machine_unload(&m);
    fault_is(TOW_PTX_FAULT_TRAP, 3, ".extern .func abort();\n",
             "setp.lt.u32 %p0, %r1, 3; @%p0 bra FINE; call.uni abort, (); FINE:", 8);
}

static void conditions_are_set_by_handle(void **state)
{
    (void)state;
    static const char declarations[] =
        ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n";
    /* The handle is the kernel's second parameter; only thread 3 sets it. */
    static const char body[] =
        "setp.ne.u32 %p0, %r1, 3; @%p0 bra OTHERS; ld.param.u64 %d3, [p1]; add.u32 %r2, %r1, 37;\n"
        "{ .param .b64 h; .param .b32 v; st.param.b64 [h], %d3; st.param.b32 [v], %r2;\n"
        "call.uni cudaGraphSetConditional, (h, v); } OTHERS: st.global.u32 [%d1], 1;";
    run_well(declarations, body, 1, 8);
    assert_int_equal(m.condition, 40);
    assert_int_equal(out[3] + out[7], 2);
    machine_unload(&m);
    fault_is(TOW_PTX_FAULT_ADDRESS, 2, declarations,
             "setp.ne.u32 %p0, %r1, 2; @%p0 bra OTHERS;\n"
             "{ .param .b64 h; .param .b32 v; st.param.b64 [h], 9; st.param.b32 [v], 1;\n"
             "call.uni cudaGraphSetConditional, (h, v); } OTHERS:",
             8);
}

static void alloca_grows_the_stack(void **state)
{
    (void)state;
    run_well("",
             "stacksave.u64 %d3; alloca.u64 %d4, 64, 16; cvta.local.u64 %d5, %d4; st.u32 [%d5+60], "
             "%r1;\n"
             "ld.local.u32 %r2, [%d4+60]; stackrestore.u64 %d3; st.global.u32 [%d1], %r2;",
             1, 32);
    assert_int_equal(out[17], 17);
    machine_unload(&m);
}

/* The one memory that no allocation holds: the workspace of a grid barrier, 4096 bytes whose
 * address is in %envreg1 and %envreg2. Accesses larger than it are not inside it. */
static void a_cooperative_launch_reaches_no_further_than_its_workspace(void **state)
{
    static const struct {
        const char *body;
        bool well;
    } cases[] = {
        {"ld.global.u32 %r2, [%d3];", true},
        {"ld.global.u32 %r2, [%d3+4092];", true},
        {"cp.async.bulk.global.shared::cta.bulk_group [%d3], [data], 4096;", true},
        {"ld.global.u32 %r2, [%d3+4096];", false},
        {"ld.global.u32 %r2, [%d3+-4];", false},
        {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%d3], 4112, "
         "[bar];",
         false},
        {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%d3], 8192, "
         "[bar];",
         false},
        {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [data], [%d3+65536], "
         "8192, [bar];",
         false},
        {"cp.async.bulk.global.shared::cta.bulk_group [%d3], [data], 8192;", false},
        {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d3], [data], 8192;", false},
        {"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r9}, "
         "[%d3], 16;",
         true},
        {"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r9}, "
         "[%d3], 512;",
         false},
        {"wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r9}, "
         "[%d3+8192], 1024;",
         false},
        {"wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%d3], {%r2,%r3,%r4,%r5}, 512;",
         false},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s",
                 REGS "mov.u32 %r2, %envreg1; mov.u32 %r3, %envreg2; mov.b64 %d3, {%r3, %r2};\n"
                      "mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0;\n",
                 cases[i].body);
        machine_load(
            &m, machine_wrap(".shared .align 16 .b8 data[8192]; .shared .align 8 .b64 bar;", text),
            true);
        out = machine_alloc(&m, 4096);
        uint64_t args[1] = {ARG(out)};
        m.cooperative = true;
        int error = machine_run1(&m, "k", 1, 32, args, 1);
        if ((error == 0) != cases[i].well || (error && m.fault.kind != TOW_PTX_FAULT_ADDRESS)) {
            fail_msg("%s: %d, fault %d: %s", cases[i].body, error, m.fault.kind, m.fault.message);
        }
        machine_unload(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_load_and_store),
        cmocka_unit_test(steps_of_all_kinds_reach_the_same_as_one_lane_after_the_other),
        cmocka_unit_test(some_lanes_reach_what_all_of_them_would),
        cmocka_unit_test(narrow_loads_extend),
        cmocka_unit_test(variables_have_their_initial_values),
        cmocka_unit_test(generic_addresses_reach_every_space),
        cmocka_unit_test(kernel_parameters_are_readable_memory),
        cmocka_unit_test(dynamic_shared_memory_follows_the_static),
        cmocka_unit_test(atomics_add_up_over_blocks),
        cmocka_unit_test(atomics_return_what_was_there),
        cmocka_unit_test(a_fault_tells_whose_it_is),
        cmocka_unit_test(mistakes_end_in_the_right_fault),
        cmocka_unit_test(device_printf_formats),
        cmocka_unit_test(device_malloc_gives_memory),
        cmocka_unit_test(assertions_report_and_fault),
        cmocka_unit_test(conditions_are_set_by_handle),
        cmocka_unit_test(alloca_grows_the_stack),
        cmocka_unit_test(a_cooperative_launch_reaches_no_further_than_its_workspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
