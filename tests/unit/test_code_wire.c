/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about code: what the client writes is what the server's driver gets, and the way back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "client/code/jit_options.h"
#include "client/code/launch.h"
#include "client/code/launch_attributes.h"
#include "server/code/jit_options.h"
#include "server/code/launch.h"

static uint64_t wire[64 * 1024];

/* A command whose body is what `enc` wrote. */
static void serve_init(struct tows_serve *call, const struct tow_enc *enc)
{
    memset(call, 0, sizeof *call);
    call->in = tow_dec_init(wire, (size_t)(enc->at - (uint8_t *)wire));
    call->out_start = (uint8_t *)call->small;
    call->out = tow_enc_init(call->small, sizeof call->small);
}

static void serve_fini(struct tows_serve *call)
{
    while (call->blocks != NULL) {
        struct tows_serve_block *next = *(struct tows_serve_block **)call->blocks;
        free(call->blocks);
        call->blocks = next;
    }
}

static void logs_and_times_come_back(void **state)
{
    char info[32] = "", error[8] = "";
    CUjit_option options[] = {
        CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,  CU_JIT_WALL_TIME,
        CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_OPTIMIZATION_LEVEL,
    };
    void *values[] = {info, (void *)sizeof info, NULL, error, (void *)sizeof error, (void *)3};
    struct towc_jit jit = {6, options, values};
    assert_int_equal(towc_jit_check(&jit), CUDA_SUCCESS);
    size_t rooms[2];
    towc_jit_log_rooms(&jit, rooms);
    struct tow_enc enc = tow_enc_init(wire, towc_jit_size(&jit));
    towc_jit_encode(&enc, &jit);
    assert_false(enc.overflow);

    struct tows_serve call;
    struct tows_serve_jit served;
    serve_init(&call, &enc);
    tows_serve_jit_init(&served, &call);
    assert_true(tows_serve_ready(&call));
    assert_int_equal(served.count, 6);
    assert_memory_equal(served.options, options, sizeof options);
    assert_int_equal((uintptr_t)served.values[1], sizeof info);
    assert_int_equal((uintptr_t)served.values[5], 3);
    /* What a driver does. */
    strcpy(served.values[0], "fine");
    served.values[1] = (void *)4;
    served.values[2] = (void *)(uintptr_t)0x40400000;
    memset(served.values[3], 'e', sizeof error);
    tows_serve_jit_reply(&served, &call);
    assert_false(call.out.overflow);

    struct tow_dec dec = tow_dec_init(call.out_start, (size_t)(call.out.at - call.out_start));
    towc_jit_decode(&dec, &jit, rooms);
    assert_false(dec.bad);
    assert_string_equal(info, "fine");
    assert_int_equal((uintptr_t)values[1], 4);
    assert_int_equal((uintptr_t)values[2], 0x40400000);
    assert_string_equal(error, "eeeeeee"); /* cut to the program's room, with its NUL */
    assert_int_equal((uintptr_t)values[5], 3);
    tows_serve_jit_fini(&served);
    serve_fini(&call);
}

static void lists_of_names_travel(void **state)
{
    const char *names[] = {"first", "", "third"};
    void *addresses[] = {(void *)0x1000, (void *)0x2000};
    CUjit_option options[] = {
        CU_JIT_REFERENCED_KERNEL_NAMES, CU_JIT_REFERENCED_KERNEL_COUNT,
        CU_JIT_GLOBAL_SYMBOL_ADDRESSES, CU_JIT_GLOBAL_SYMBOL_COUNT,
        CU_JIT_GLOBAL_SYMBOL_NAMES,
    };
    void *values[] = {names, (void *)3, addresses, (void *)2, names};
    struct towc_jit jit = {5, options, values};
    struct tow_enc enc = tow_enc_init(wire, towc_jit_size(&jit));
    towc_jit_encode(&enc, &jit);
    assert_false(enc.overflow);
    struct tows_serve call;
    struct tows_serve_jit served;
    serve_init(&call, &enc);
    tows_serve_jit_init(&served, &call);
    assert_true(tows_serve_ready(&call));
    char **list = served.values[0];
    for (unsigned i = 0; i < 3; i++) {
        assert_string_equal(list[i], names[i]);
    }
    assert_memory_equal(served.values[2], addresses, sizeof addresses);
    tows_serve_jit_fini(&served);

    /* A count that is larger than its list would make the driver read beyond it. */
    size_t size = (size_t)(enc.at - (uint8_t *)wire);
    for (size_t at = 0; at < size; at++) {
        uint8_t *bytes = (uint8_t *)wire, old = bytes[at];
        bytes[at] ^= 0x07;
        serve_init(&call, &enc);
        tows_serve_jit_init(&served, &call);
        if (tows_serve_ready(&call)) {
            assert_true(served.count <= 5);
        }
        tows_serve_jit_fini(&served);
        bytes[at] = old;
    }
    uint64_t *count = (uint64_t *)((uint8_t *)wire + 8 + 16 + 16 + 8);
    assert_int_equal(*count, 3);
    *count = 4;
    serve_init(&call, &enc);
    tows_serve_jit_init(&served, &call);
    assert_false(tows_serve_ready(&call));
    tows_serve_jit_fini(&served);
}

static void launch_attributes_travel(void **state)
{
    CUlaunchAttribute attributes[3];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = 2;
    attributes[0].value.clusterDim.y = 1;
    attributes[0].value.clusterDim.z = 4;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[1].value.programmaticStreamSerializationAllowed = 1;
    attributes[2].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
    size_t size = 0;
    assert_int_equal(towc_launch_attributes_check(attributes, 3, &size), CUDA_SUCCESS);
    struct tow_enc enc = tow_enc_init(wire, size);
    towc_launch_attributes_encode(&enc, attributes, 3);
    assert_false(enc.overflow);
    /* Zeros at the end of a value do not travel. */
    assert_int_equal(enc.at - (uint8_t *)wire, 8 + (8 + 16) + (8 + 8) + 8);
    struct tows_serve call;
    CUlaunchAttribute served[TOW_LAUNCH_ATTRIBUTES_MAX];
    serve_init(&call, &enc);
    assert_int_equal(tows_serve_launch_attributes(&call, served), 3);
    assert_true(tows_serve_ready(&call));
    assert_memory_equal(served, attributes, sizeof attributes);
    assert_int_equal(towc_launch_attributes_check(NULL, 1, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(towc_launch_attributes_check(attributes, TOW_LAUNCH_ATTRIBUTES_MAX + 1, &size),
                     CUDA_ERROR_INVALID_VALUE);
}

static void arguments_are_packed_where_the_kernel_wants_them(void **state)
{
    static const struct towc_param params[] = {{0, 1}, {4, 4}, {8, 8}, {16, 3}, {20, 12}};
    struct towc_kernel kernel = {.param_count = 5, .param_bytes = 32, .params = params};
    uint8_t a = 0x11, d[3] = {4, 5, 6}, e[12];
    uint32_t b = 0x22222222;
    uint64_t c = UINT64_C(0x3333333333333333);
    memset(e, 0x55, sizeof e);
    void *pointers[] = {&a, &b, &c, d, e};
    struct towc_launch_args args;
    assert_int_equal(towc_launch_args_init(&kernel, pointers, NULL, &args), CUDA_SUCCESS);
    assert_int_equal(args.bytes, 32);
    uint8_t packed[40], expected[40];
    memset(packed, 0xee, sizeof packed);
    memset(expected, 0, 32);
    memset(expected + 32, 0xee, 8);
    expected[0] = 0x11;
    memcpy(expected + 4, &b, 4);
    memcpy(expected + 8, &c, 8);
    memcpy(expected + 16, d, 3);
    memcpy(expected + 20, e, 12);
    towc_launch_args_pack(&kernel, &args, packed);
    assert_memory_equal(packed, expected, sizeof packed);

    size_t size = 32;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, expected,
                     CU_LAUNCH_PARAM_END};
    assert_int_equal(towc_launch_args_init(&kernel, NULL, extra, &args), CUDA_SUCCESS);
    memset(packed, 0xee, sizeof packed);
    towc_launch_args_pack(&kernel, &args, packed);
    assert_memory_equal(packed, expected, sizeof packed);
    assert_int_equal(towc_launch_args_init(&kernel, pointers, extra, &args),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(towc_launch_args_init(&kernel, NULL, NULL, &args), CUDA_ERROR_INVALID_VALUE);
    size = 20; /* zeros for the rest */
    assert_int_equal(towc_launch_args_init(&kernel, NULL, extra, &args), CUDA_SUCCESS);
    assert_int_equal(args.bytes, 32);
    memset(packed, 0xee, sizeof packed);
    memset(expected + 20, 0, 12);
    towc_launch_args_pack(&kernel, &args, packed);
    assert_memory_equal(packed, expected, sizeof packed);
    size = TOW_LAUNCH_ARGS_MAX + 1;
    assert_int_equal(towc_launch_args_init(&kernel, NULL, extra, &args), CUDA_ERROR_INVALID_VALUE);
    extra[0] = (void *)77;
    assert_int_equal(towc_launch_args_init(&kernel, NULL, extra, &args), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs_and_times_come_back),
        cmocka_unit_test(lists_of_names_travel),
        cmocka_unit_test(launch_attributes_travel),
        cmocka_unit_test(arguments_are_packed_where_the_kernel_wants_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
