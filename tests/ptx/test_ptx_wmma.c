/* SPDX-License-Identifier: Apache-2.0 */
/* The wmma kernels that nvcc makes of wmma.cu: every type against a product in plain C. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "machine.h"
#include "ptx/num/num.h"

enum type {
    F16,
    BF16,
    F32,
    F64,
    S8,
    U8,
    S32,
    S4,
    B1,
};

struct kernel {
    const char *name;
    int m, n, k;
    enum type from, to;
    bool a_col, b_row;
};
static const struct kernel kernels[] = {
    {"f16_f32", 16, 16, 16, F16, F32, false, false},
    {"f16_f16", 32, 8, 16, F16, F16, true, true},
    {"bf16_f32", 8, 32, 16, BF16, F32, false, true},
    {"tf32_f32", 16, 16, 8, F32, F32, false, false},
    {"f64_f64", 8, 8, 4, F64, F64, true, true},
    {"s8_s32", 16, 16, 16, S8, S32, false, false},
    {"u8_s32", 32, 8, 16, U8, S32, true, true},
    {"s4_s32", 8, 8, 32, S4, S32, false, false},
    {"b1_s32", 8, 8, 128, B1, S32, false, false},
};

/* Small numbers that every type holds. */
static int value(enum type type, int i)
{
    int v = (i * 13 + i / 5) % 7;
    return type == B1 ? v & 1 : type == U8 ? v : v - 3;
}

static void put(void *memory, enum type type, int i, int v)
{
    uint8_t *bytes = memory;
    switch (type) {
    case F16:
        ((uint16_t *)memory)[i] = (uint16_t)tow_f32_to_f16(tow_f32_bits((float)v));
        break;
    case BF16:
        ((uint16_t *)memory)[i] = (uint16_t)tow_f32_to_bf16(tow_f32_bits((float)v));
        break;
    case F32:
        ((float *)memory)[i] = (float)v;
        break;
    case F64:
        ((double *)memory)[i] = v;
        break;
    case S4:
        bytes[i / 2] |= (uint8_t)((v & 15) << (i % 2 * 4));
        break;
    case B1:
        bytes[i / 8] |= (uint8_t)(v << (i % 8));
        break;
    default:
        bytes[i] = (uint8_t)v;
        break;
    }
}

static double get(const void *memory, enum type type, int i)
{
    switch (type) {
    case F16:
        return tow_f32(tow_f16_to_f32(((const uint16_t *)memory)[i]));
    case F32:
        return ((const float *)memory)[i];
    case F64:
        return ((const double *)memory)[i];
    default:
        return ((const int32_t *)memory)[i];
    }
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void every_type_multiplies(void **state)
{
    static struct machine m;
    char *text = read_text(WMMA_PTX);
    (void)state;
    machine_load(&m, text, true);
    free(text);
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const struct kernel *k = &kernels[i];
        void *a = machine_alloc(&m, 4096), *b = machine_alloc(&m, 4096);
        void *c = machine_alloc(&m, 4096);
        for (int e = 0; e < k->m * k->k; e++) {
            put(a, k->from, e, value(k->from, e));
        }
        for (int e = 0; e < k->n * k->k; e++) {
            put(b, k->from, e, value(k->from, e + 3));
        }
        const uint64_t args[] = {ARG(a), ARG(b), ARG(c)};
        assert_int_equal(machine_run1(&m, k->name, 1, 32, args, 3), 0);
        for (int row = 0; row < k->m; row++) {
            for (int col = 0; col < k->n; col++) {
                int want = 0;
                for (int e = 0; e < k->k; e++) {
                    int x = value(k->from, k->a_col ? e * k->m + row : row * k->k + e);
                    int y = value(k->from, (k->b_row ? e * k->n + col : col * k->k + e) + 3);
                    want += k->from == B1 ? x ^ y : x * y;
                }
                if (get(c, k->to, row * k->n + col) != want) {
                    fail_msg("%s: (%d, %d) is %g, want %d", k->name, row, col,
                             get(c, k->to, row * k->n + col), want);
                }
            }
        }
    }
    machine_unload(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_multiplies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
