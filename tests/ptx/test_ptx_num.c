/* SPDX-License-Identifier: Apache-2.0 */
/* Floating-point and conversion instructions as text: each line of the table is one instruction
 * with the bits of its sources and of its result. All run in one kernel. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "machine.h"

struct line {
    const char *name; /* the instruction without operands */
    const char
        *kinds; /* registers, result first: h 16 bits, r 32, l 64, f f32, d f64, p predicate */
    uint64_t a, b, c, want;
};

static const struct line lines[] = {
    {"add.f32", "fff", 0x3f800000, 0x33800000, 0, 0x3f800000},
    {"add.rp.f32", "fff", 0x3f800000, 0x33800000, 0, 0x3f800001},
    {"add.rm.ftz.f32", "fff", 0x00000001, 0x80000001, 0, 0x80000000},
    {"add.sat.f32", "fff", 0x3f800000, 0x3f800000, 0, 0x3f800000},
    {"sub.rz.f32", "fff", 0x7f7fffff, 0xff7fffff, 0, 0x7f7fffff},
    {"mul.f32", "fff", 0x7f800000, 0x00000000, 0, 0x7fffffff},
    {"mul.ftz.f32", "fff", 0x1fc00000, 0x20000000, 0, 0x00000000},
    {"mul.ftz.f32", "fff", 0x9fc00000, 0x20800000, 0, 0x80c00000},
    {"mul.ftz.sat.f32", "fff", 0xffc00000, 0x3f800000, 0, 0x00000000},
    {"fma.rn.f32", "ffff", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000},
    {"fma.rm.f32", "ffff", 0x3f800000, 0x3f800000, 0xbf800000, 0x80000000},
    {"mad.rn.f32", "ffff", 0x40000000, 0x40400000, 0x3f800000, 0x40e00000},
    {"div.rn.f32", "fff", 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
    {"div.rz.f32", "fff", 0x3f800000, 0x40400000, 0, 0x3eaaaaaa},
    {"div.full.f32", "fff", 0x40c00000, 0x40000000, 0, 0x40400000},
    {"div.approx.ftz.f32", "fff", 0x3f800000, 0x7f000000, 0, 0x00000000},
    {"rcp.rn.f32", "ff", 0x40400000, 0, 0, 0x3eaaaaab},
    {"rcp.approx.ftz.f32", "ff", 0x80000001, 0, 0, 0xff800000},
    {"sqrt.rn.f32", "ff", 0x40000000, 0, 0, 0x3fb504f3},
    {"sqrt.rp.f32", "ff", 0x40000000, 0, 0, 0x3fb504f4},
    {"sqrt.approx.f32", "ff", 0xbf800000, 0, 0, 0x7fffffff},
    {"rsqrt.approx.f32", "ff", 0x40800000, 0, 0, 0x3f000000},
    {"ex2.approx.ftz.f32", "ff", 0x40400000, 0, 0, 0x41000000},
    {"lg2.approx.f32", "ff", 0x41000000, 0, 0, 0x40400000},
    {"sin.approx.f32", "ff", 0x80000000, 0, 0, 0x80000000},
    {"cos.approx.ftz.f32", "ff", 0x00000000, 0, 0, 0x3f800000},
    {"tanh.approx.f32", "ff", 0xff800000, 0, 0, 0xbf800000},
    {"neg.f32", "ff", 0x00000000, 0, 0, 0x80000000},
    {"abs.ftz.f32", "ff", 0x80000005, 0, 0, 0x00000000},
    {"min.f32", "fff", 0x7fc00000, 0xbf800000, 0, 0xbf800000},
    {"max.NaN.f32", "fff", 0x7fc00000, 0xbf800000, 0, 0x7fffffff},
    {"min.xorsign.abs.f32", "fff", 0xc0000000, 0x3f800000, 0, 0xbf800000},
    {"max.f32", "ffff", 0x3f800000, 0x40000000, 0x40400000, 0x40400000},
    {"min.NaN.abs.f32", "ffff", 0xc0000000, 0x40400000, 0xbf800000, 0x3f800000},
    {"copysign.f32", "fff", 0x80000000, 0x3f800000, 0, 0xbf800000},
    {"testp.subnormal.f32", "pf", 0x007fffff, 0, 0, 1},
    {"testp.notanumber.f64", "pd", 0x7ff0000000000000, 0, 0, 0},
    {"add.f64", "ddd", 0x3ff0000000000000, 0x3ca0000000000000, 0, 0x3ff0000000000000},
    {"add.rp.f64", "ddd", 0x3ff0000000000000, 0x3ca0000000000000, 0, 0x3ff0000000000001},
    {"sub.rm.f64", "ddd", 0x3ff0000000000000, 0x3ff0000000000000, 0, 0x8000000000000000},
    {"mul.rz.f64", "ddd", 0x7fefffffffffffff, 0x4000000000000000, 0, 0x7fefffffffffffff},
    {"fma.rn.f64", "dddd", 0x3ff0000000000001, 0x3ff0000000000001, 0xbff0000000000002,
     0x3970000000000000},
    {"div.rp.f64", "ddd", 0x3ff0000000000000, 0x4008000000000000, 0, 0x3fd5555555555556},
    {"rcp.rn.f64", "dd", 0x4008000000000000, 0, 0, 0x3fd5555555555555},
    {"sqrt.rn.f64", "dd", 0x4000000000000000, 0, 0, 0x3ff6a09e667f3bcd},
    {"rcp.approx.ftz.f64", "dd", 0x4010000000000000, 0, 0, 0x3fd0000000000000},
    {"rsqrt.approx.f64", "dd", 0x4010000000000000, 0, 0, 0x3fe0000000000000},
    {"min.f64", "ddd", 0x8000000000000000, 0x0000000000000000, 0, 0x8000000000000000},
    {"add.f16", "hhh", 0x3c00, 0x1000, 0, 0x3c00},
    {"add.rn.ftz.sat.f16", "hhh", 0x4000, 0x4000, 0, 0x3c00},
    {"fma.rn.relu.f16", "hhhh", 0xbc00, 0x3c00, 0x0000, 0x0000},
    {"fma.rn.f16x2", "rrrr", 0x3c004000, 0x40004200, 0x3c003c00, 0x42004700},
    {"mul.rn.bf16x2", "rrr", 0x3f804000, 0x40004040, 0, 0x400040c0},
    {"fma.rn.bf16", "hhhh", 0x3fc0, 0x3f81, 0x8001, 0x3fc1},
    {"min.f16", "hhh", 0x0000, 0x8000, 0, 0x8000},
    {"max.NaN.bf16x2", "rrr", 0x7fc03f80, 0x3f804000, 0, 0x7fff4000},
    {"neg.f16x2", "rr", 0x3c008000, 0, 0, 0xbc000000},
    {"ex2.approx.f16", "hh", 0x4000, 0, 0, 0x4400},
    {"tanh.approx.bf16", "hh", 0x7f80, 0, 0, 0x3f80},
    {"add.rn.f32x2", "lll", 0x3f80000040000000, 0x4000000040000000, 0, 0x4040000040800000},
    {"cvt.rzi.s32.f32", "rf", 0xc02ccccd, 0, 0, 0xfffffffe},
    {"cvt.rni.s32.f32", "rf", 0x40200000, 0, 0, 2},
    {"cvt.rpi.ftz.u32.f32", "rf", 0x00000001, 0, 0, 0},
    {"cvt.rzi.s32.f32", "rf", 0x7fc00000, 0, 0, 0},
    {"cvt.rzi.s32.f32", "lf", 0xc0400000, 0, 0, 0xfffffffffffffffd},
    {"cvt.rzi.u32.f32", "lf", 0x4f000000, 0, 0, 0x0000000080000000},
    {"cvt.rzi.s64.f32", "lf", 0x7fc00000, 0, 0, 0x8000000000000000},
    {"cvt.rzi.u32.f64", "rd", 0xbff0000000000000, 0, 0, 0},
    {"cvt.rzi.u8.f32", "rf", 0x43c80000, 0, 0, 255},
    {"cvt.rzi.s16.f64", "hd", 0xc1e0000000000000, 0, 0, 0x8000},
    {"cvt.rn.f32.s32", "fr", 0x01000001, 0, 0, 0x4b800000},
    {"cvt.rp.f32.u32", "fr", 0x01000001, 0, 0, 0x4b800001},
    {"cvt.rn.f32.u64", "fl", 0xffffffffffffffff, 0, 0, 0x5f800000},
    {"cvt.rz.f64.s64", "dl", 0x8000000000000001, 0, 0, 0xc3dfffffffffffff},
    {"cvt.rn.f16.s32", "hr", 2049, 0, 0, 0x6800},
    {"cvt.f64.f32", "df", 0x3f800001, 0, 0, 0x3ff0000020000000},
    {"cvt.rn.f32.f64", "fd", 0x3ff0000010000000, 0, 0, 0x3f800000},
    {"cvt.rp.f32.f64", "fd", 0x3ff0000010000000, 0, 0, 0x3f800001},
    {"cvt.rn.f16.f32", "hf", 0x477ff000, 0, 0, 0x7c00},
    {"cvt.rz.f16.f32", "hf", 0x477ff000, 0, 0, 0x7bff},
    {"cvt.f32.f16", "fh", 0x0001, 0, 0, 0x33800000},
    {"cvt.rn.bf16.f32", "hf", 0x3f818000, 0, 0, 0x3f82},
    {"cvt.f32.bf16", "fh", 0x3f81, 0, 0, 0x3f810000},
    {"cvt.rn.relu.bf16.f32", "hf", 0xbf800000, 0, 0, 0},
    {"cvt.rna.tf32.f32", "rf", 0x3f801000, 0, 0, 0x3f802000},
    {"cvt.rn.f16x2.f32", "rff", 0x3f800000, 0xc0000000, 0, 0x3c00c000},
    {"cvt.rn.satfinite.e4m3x2.f32", "hff", 0x44800000, 0x3f800000, 0, 0x7e38},
    {"cvt.rn.satfinite.relu.e5m2x2.f32", "hff", 0xbf800000, 0x3f800000, 0, 0x003c},
    {"cvt.rn.f16x2.e4m3x2", "rh", 0x387e, 0, 0, 0x3c005f00},
    {"cvt.rni.f32.f32", "ff", 0xbf000000, 0, 0, 0x80000000},
    {"cvt.sat.f32.f32", "ff", 0x40000000, 0, 0, 0x3f800000},
    {"cvt.rmi.f64.f64", "dd", 0xbfe0000000000000, 0, 0, 0xbff0000000000000},
    {"cvt.sat.u8.s32", "rr", 0xffffff00, 0, 0, 0},
    {"cvt.sat.s8.s32", "rr", 200, 0, 0, 127},
    {"cvt.s64.s32", "lr", 0x80000000, 0, 0, 0xffffffff80000000},
    {"cvt.u16.u32", "hr", 0x12345678, 0, 0, 0x5678},
    {"cvt.pack.sat.s16.s32", "rrr", 40000, 0xffff0000, 0, 0x7fff8000},
    {"cvt.pack.sat.u8.s32.b32", "rrrr", 300, 5, 0x12345678, 0x5678ff05},
};
#define LINES (sizeof lines / sizeof lines[0])

static unsigned width(char kind)
{
    return kind == 'h' ? 16 : kind == 'l' || kind == 'd' ? 64 : 32;
}

/* Loads the sources, runs the line, stores the result widened to 64 bits. */
static void write_line(char **at, char *end, size_t index)
{
    const struct line *line = &lines[index];
    size_t sources = strlen(line->kinds) - 1;
    for (size_t s = 0; s < sources; s++) {
        char kind = line->kinds[s + 1];
        *at += snprintf(*at, (size_t)(end - *at), "ld.global.b%u %%%c%zu, [%%in+%zu];\n",
                        width(kind), kind, s + 1, index * 24 + s * 8);
    }
    char d = line->kinds[0];
    *at += snprintf(*at, (size_t)(end - *at), "%s %%%c0", line->name, d);
    for (size_t s = 0; s < sources; s++) {
        *at += snprintf(*at, (size_t)(end - *at), ", %%%c%zu", line->kinds[s + 1], s + 1);
    }
    if (d == 'p') {
        *at += snprintf(*at, (size_t)(end - *at), ";\nselp.u32 %%r0, 1, 0, %%p0");
        d = 'r';
    }
    *at += snprintf(*at, (size_t)(end - *at), ";\nst.global.b%u [%%out+%zu], %%%c0;\n", width(d),
                    index * 8, d);
}

static void every_line_gives_its_bits(void **state)
{
    static char text[1 << 16];
    static struct machine m;
    char *at = text, *end = text + sizeof text;
    (void)state;
    at += snprintf(at, (size_t)(end - at),
                   ".reg .b64 %%in, %%out; .reg .b16 %%h<5>; .reg .b32 %%r<5>; .reg .b64 %%l<5>;\n"
                   ".reg .f32 %%f<5>; .reg .f64 %%d<5>; .reg .pred %%p<2>;\n"
                   "ld.param.u64 %%in, [p0]; ld.param.u64 %%out, [p1];\n");
    for (size_t i = 0; i < LINES; i++) {
        write_line(&at, end, i);
    }
    machine_load(&m, machine_wrap("", text), true);
    uint64_t *in = machine_alloc(&m, LINES * 24), *out = machine_alloc(&m, LINES * 8);
    for (size_t i = 0; i < LINES; i++) {
        in[3 * i] = lines[i].a;
        in[3 * i + 1] = lines[i].b;
        in[3 * i + 2] = lines[i].c;
    }
    const uint64_t args[] = {ARG(in), ARG(out)};
    assert_int_equal(machine_run1(&m, "k", 1, 32, args, 2), 0);
    for (size_t i = 0; i < LINES; i++) {
        if (out[i] != lines[i].want) {
            fail_msg("%s of %llx, %llx, %llx gives %llx, want %llx", lines[i].name,
                     (unsigned long long)lines[i].a, (unsigned long long)lines[i].b,
                     (unsigned long long)lines[i].c, (unsigned long long)out[i],
                     (unsigned long long)lines[i].want);
        }
    }
    machine_unload(&m);
}

/* Lanes that do not take part keep what they had. */
static void masked_lanes_are_left_alone(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(
        &m,
        machine_wrap("", ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .f64 %d<4>;\n"
                         ".reg .pred %p<2>;\n"
                         "ld.param.u64 %rd0, [p0]; mov.u32 %r0, %laneid;\n"
                         "mul.wide.u32 %rd1, %r0, 8; add.u64 %rd0, %rd0, %rd1;\n"
                         "and.b32 %r1, %r0, 1; setp.ne.u32 %p0, %r1, 0;\n"
                         "mov.f64 %d0, 0d4000000000000000; mov.f32 %f0, 0f40800000;\n"
                         "@%p0 sqrt.approx.f32 %f0, %f0;\n"
                         "@%p0 cvt.f64.f32 %d0, %f0;\n"
                         "@!%p0 add.rz.f64 %d0, %d0, 0d3ff0000000000000;\n"
                         "cvt.rzi.s64.f64 %rd2, %d0; st.global.u64 [%rd0], %rd2;\n"),
        true);
    uint64_t *out = machine_alloc(&m, 256);
    const uint64_t args[] = {ARG(out)};
    assert_int_equal(machine_run1(&m, "k", 1, 32, args, 1), 0);
    for (int l = 0; l < 32; l++) {
        assert_int_equal(out[l], l & 1 ? 2 : 3);
    }
    machine_unload(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_gives_its_bits),
        cmocka_unit_test(masked_lanes_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
