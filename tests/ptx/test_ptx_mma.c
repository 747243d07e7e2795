/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions as a kernel writes them: fragments loaded from memory by the documented
 * positions, results compared with the plain product. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "machine.h"
#include "ptx/num/num.h"

/* Registers: A is 16 x 16 f16 row by row at p0, B is 8 columns of 16 at p1 (column by column), C
 * and D 16 x 8 f32 at p2 and p3. Each lane loads pairs along k: one 32-bit load a register. */
static const char mma_body[] =
    ".reg .u64 %rd<20>; .reg .u32 %r<40>; .reg .f32 %f<20>;\n"
    "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];\n"
    "ld.param.u64 %rd2, [p2]; ld.param.u64 %rd3, [p3];\n"
    "mov.u32 %r0, %laneid; shr.u32 %r1, %r0, 2; and.b32 %r2, %r0, 3;\n"
    /* offset of A: row * 32 bytes + t * 4 */
    "shl.b32 %r3, %r1, 5; shl.b32 %r4, %r2, 2; add.u32 %r3, %r3, %r4;\n"
    "cvt.u64.u32 %rd4, %r3; add.u64 %rd5, %rd0, %rd4; add.u64 %rd6, %rd1, %rd4;\n"
    "ld.global.u32 %r10, [%rd5]; ld.global.u32 %r11, [%rd5+256];\n"
    "ld.global.u32 %r12, [%rd5+16]; ld.global.u32 %r13, [%rd5+272];\n"
    "ld.global.u32 %r14, [%rd6]; ld.global.u32 %r15, [%rd6+16];\n"
    /* C and D: row * 32 bytes + t * 8 */
    "shl.b32 %r5, %r1, 5; shl.b32 %r6, %r2, 3; add.u32 %r5, %r5, %r6;\n"
    "cvt.u64.u32 %rd7, %r5; add.u64 %rd8, %rd2, %rd7; add.u64 %rd9, %rd3, %rd7;\n"
    "ld.global.v2.f32 {%f0, %f1}, [%rd8]; ld.global.v2.f32 {%f2, %f3}, [%rd8+256];\n"
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
    "{%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f0, %f1, %f2, %f3};\n"
    "st.global.v2.f32 [%rd9], {%f0, %f1}; st.global.v2.f32 [%rd9+256], {%f2, %f3};\n";

static void mma_multiplies_in_place(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(&m, machine_wrap("", mma_body), true);
    uint16_t *a = machine_alloc(&m, 512), *b = machine_alloc(&m, 256);
    float *c = machine_alloc(&m, 512), *d = machine_alloc(&m, 512);
    for (int i = 0; i < 256; i++) {
        a[i] = (uint16_t)tow_f32_to_f16(tow_f32_bits((float)(i % 7 - 3)));
    }
    for (int i = 0; i < 128; i++) {
        b[i] = (uint16_t)tow_f32_to_f16(tow_f32_bits((float)(i % 5 - 2)));
        c[i] = (float)i;
    }
    const uint64_t args[] = {ARG(a), ARG(b), ARG(c), ARG(d)};
    assert_int_equal(machine_run1(&m, "k", 1, 32, args, 4), 0);
    for (int row = 0; row < 16; row++) {
        for (int col = 0; col < 8; col++) {
            int want = row * 8 + col;
            for (int k = 0; k < 16; k++) {
                want += ((row * 16 + k) % 7 - 3) * ((col * 16 + k) % 5 - 2);
            }
            assert_true(d[row * 8 + col] == (float)want);
        }
    }
    machine_unload(&m);
}

/* One 16 x 16 x 16 product from global memory, A by rows, B by columns, C through shared memory. */
static const char wmma_body[] =
    ".reg .u64 %rd<8>; .reg .b32 %a<8>; .reg .b32 %b<8>; .reg .f32 %c<8>; .reg .u32 %r<4>;\n"
    "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u64 %rd2, [p2];\n"
    "mov.u32 %r0, 20; mov.u32 %r1, tile;\n"
    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%a0,%a1,%a2,%a3,%a4,%a5,%a6,%a7}, [%rd0], "
    "%r0;\n"
    "wmma.load.b.sync.aligned.col.m16n16k16.f16 {%b0,%b1,%b2,%b3,%b4,%b5,%b6,%b7}, [%rd1];\n"
    "wmma.load.c.sync.aligned.row.m16n16k16.f32 {%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7}, [%rd2];\n"
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7}, "
    "{%a0,%a1,%a2,%a3,%a4,%a5,%a6,%a7}, {%b0,%b1,%b2,%b3,%b4,%b5,%b6,%b7}, "
    "{%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7};\n"
    "wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r1], "
    "{%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7}, 16;\n"
    "wmma.load.c.sync.aligned.col.m16n16k16.shared.f32 {%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7}, [%r1];\n"
    "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], "
    "{%c0,%c1,%c2,%c3,%c4,%c5,%c6,%c7};\n";

static void wmma_loads_multiplies_and_stores(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(&m, machine_wrap(".shared .align 32 .b8 tile[1024];", wmma_body), true);
    uint16_t *a = machine_alloc(&m, 16 * 20 * 2), *b = machine_alloc(&m, 512);
    float *c = machine_alloc(&m, 1024);
    for (int i = 0; i < 16; i++) {
        for (int k = 0; k < 16; k++) {
            a[i * 20 + k] = (uint16_t)tow_f32_to_f16(tow_f32_bits((float)(i - k)));
            b[i * 16 + k] = (uint16_t)tow_f32_to_f16(tow_f32_bits((float)(i * k % 5)));
            c[i * 16 + k] = (float)(i + 100 * k);
        }
    }
    const uint64_t args[] = {ARG(a), ARG(b), ARG(c)};
    assert_int_equal(machine_run1(&m, "k", 1, 32, args, 3), 0);
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 16; j++) {
            int want = i + 100 * j;
            for (int k = 0; k < 16; k++) {
                want += (i - k) * (j * k % 5);
            }
            assert_true(c[i * 16 + j] == (float)want);
        }
    }
    machine_unload(&m);
}

/* The last row of A ends one element too late. */
static void wmma_outside_memory_is_a_fault(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(&m, machine_wrap(".shared .align 32 .b8 tile[1024];", wmma_body), true);
    void *a = machine_alloc(&m, (15 * 20 + 16) * 2 - 2), *b = machine_alloc(&m, 512);
    void *c = machine_alloc(&m, 1024);
    const uint64_t args[] = {ARG(a), ARG(b), ARG(c)};
    assert_true(machine_run1(&m, "k", 1, 32, args, 3) < 0);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_ADDRESS);
    assert_true(m.fault.line > 0);
    machine_unload(&m);
}

/* s8 with saturation, its sources straight from memory in register order. */
static const char int_body[] =
    ".reg .u64 %rd<8>; .reg .b32 %a<4>; .reg .b32 %b<2>; .reg .b32 %c<4>; .reg .u32 %r<4>;\n"
    "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];\n"
    "mov.u32 %r0, %laneid; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd3, %rd1, %rd2;\n"
    "add.u64 %rd0, %rd0, %rd2; ld.global.v4.u32 {%a0,%a1,%a2,%a3}, [%rd0];\n"
    "mov.u32 %b0, 0x01010101; mov.u32 %b1, 0x02020202;\n"
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%c0,%c1,%c2,%c3}, "
    "{%a0,%a1,%a2,%a3}, {%b0,%b1}, {2147483000, 2147483000, 0, -1};\n"
    "st.global.v4.u32 [%rd3], {%c0,%c1,%c2,%c3};\n";

static void integer_mma_saturates(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(&m, machine_wrap("", int_body), true);
    int8_t *a = machine_alloc(&m, 512);
    int32_t *d = machine_alloc(&m, 512);
    memset(a, 100, 512);
    memset(a + 4, -3, 4); /* register 1 of lane 0: row 8, columns 0 to 3 */
    const uint64_t args[] = {ARG(a), ARG(d)};
    assert_int_equal(machine_run1(&m, "k", 1, 32, args, 2), 0);
    assert_int_equal(d[0], INT32_MAX);
    assert_int_equal(d[2], 100 * 16 + 100 * 2 * 16 - 4 * 103);
    assert_int_equal(d[3], 100 * 16 + 100 * 2 * 16 - 4 * 103 - 1);
    assert_int_equal(d[4 * 4 + 2], 4800);
    machine_unload(&m);
}

static const char matrix_body[] =
    ".reg .u64 %rd<8>; .reg .b32 %r<12>;\n"
    "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1];\n"
    "mov.u32 %r0, %laneid; shl.b32 %r1, %r0, 4; cvt.u64.u32 %rd2, %r1; add.u64 %rd3, %rd0, %rd2;\n"
    "ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%rd3];\n"
    "mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;\n"
    "st.shared.v4.u32 [%r2], {%r4,%r5,%r6,%r7};\n"
    "bar.warp.sync 0xffffffff;\n"
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r4,%r5,%r6,%r7}, [%r2];\n"
    "movmatrix.sync.aligned.m8n8.trans.b16 %r4, %r4;\n"
    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%r4,%r5,%r6,%r7};\n"
    "bar.warp.sync 0xffffffff;\n"
    "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r2];\n"
    "add.u64 %rd3, %rd1, %rd2;\n"
    "st.global.v4.u32 [%rd3], {%r4,%r5,%r6,%r7};\n";

static void matrices_are_transposed(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(&m, machine_wrap(".shared .align 16 .b8 tile[512];", matrix_body), true);
    uint16_t *in = machine_alloc(&m, 512), *out = machine_alloc(&m, 512);
    for (int i = 0; i < 256; i++) {
        in[i] = (uint16_t)(i * 257);
    }
    const uint64_t args[] = {ARG(in), ARG(out)};
    assert_int_equal(machine_run1(&m, "k", 1, 32, args, 2), 0);
    for (int q = 0; q < 4; q++) {
        for (int row = 0; row < 8; row++) {
            for (int col = 0; col < 8; col++) {
                int from = q == 0 ? row * 8 + col : col * 8 + row; /* the first twice */
                assert_int_equal(out[q * 64 + row * 8 + col], in[q * 64 + from]);
            }
        }
    }
    machine_unload(&m);
}

static void misaligned_matrix_rows_are_a_fault(void **state)
{
    static struct machine m;
    (void)state;
    machine_load(&m,
                 machine_wrap(".shared .align 16 .b8 tile[512];",
                              ".reg .b32 %r<4>; mov.u32 %r0, tile; add.u32 %r0, %r0, 8;\n"
                              "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0];\n"),
                 true);
    assert_true(machine_run1(&m, "k", 1, 32, NULL, 0) < 0);
    assert_int_equal(m.fault.kind, TOW_PTX_FAULT_MISALIGNED);
    machine_unload(&m);
}

static void what_is_not_supported_is_named(void **state)
{
    static const char *const bad[] = {
        ".reg .b32 %r<9>; mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 {%r0,%r1}, "
        "{%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, {%r0,%r1}, %r4, 0x0;\n",
        ".reg .b32 %r<9>; .reg .f32 %f<4>; mma.sync.aligned.m16n8k99.row.col.f32.f16.f16.f32 "
        "{%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%f0,%f1,%f2,%f3};\n",
    };
    static struct machine m;
    (void)state;
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_true(machine_load(&m, machine_wrap("", bad[i]), false) < 0);
        assert_non_null(strstr(m.diag.message, "mma."));
        assert_true(m.diag.line > 0);
        machine_unload(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mma_multiplies_in_place),
        cmocka_unit_test(wmma_loads_multiplies_and_stores),
        cmocka_unit_test(wmma_outside_memory_is_a_fault),
        cmocka_unit_test(integer_mma_saturates),
        cmocka_unit_test(matrices_are_transposed),
        cmocka_unit_test(misaligned_matrix_rows_are_a_fault),
        cmocka_unit_test(what_is_not_supported_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
