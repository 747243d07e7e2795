/* SPDX-License-Identifier: Apache-2.0 */
/* Code images, modules, libraries, variables, the linker, printf and device malloc. */
#include "base/mutex.h"
#include "soft_lib.h"
#include "backend/soft/code/module.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/graph.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/pool.h"

#include <unistd.h>

static void globals_have_values_and_addresses(void **state)
{
    (void)state;
    CUmodule module = soft_module();
    CUdeviceptr p;
    size_t size;
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&p, &size, module, "counter"));
    assert_int_equal(size, 4);
    unsigned value = 0;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4));
    assert_int_equal(value, 7);
    OK(soft_launch(soft_function(module, "bump"), 1, 1, NULL, NULL));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4));
    assert_int_equal(value, 8);
    unsigned char table[16];
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&p, &size, module, "table"));
    assert_int_equal(size, 16);
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(table, p, 16));
    assert_int_equal(table[2], 3);
    assert_int_equal(table[4], 0);
    FAILS(CUDA_ERROR_NOT_FOUND, tow_drive(cu, cuModuleGetGlobal_v2)(&p, &size, module, "nothing"));
    CUmodule second = soft_module();
    CUdeviceptr q;
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&q, NULL, second, "counter"));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, q, 4));
    assert_int_equal(value, 7);
    OK(tow_drive(cu, cuModuleUnload)(second));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoH_v2)(&value, q, 4));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuModuleUnload)(second));
}

static void functions_are_enumerated(void)
{
    CUmodule module = soft_module();
    CUfunction functions[16] = {NULL};
    unsigned count = 0;
    const char *name = NULL;
    OK(tow_drive(cu, cuModuleGetFunctionCount)(&count, module));
    assert_int_equal(count, 9);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuModuleGetFunctionCount)(NULL, module));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuModuleEnumerateFunctions)(NULL, 9, module));
    OK(tow_drive(cu, cuModuleEnumerateFunctions)(functions, 8, module));
    assert_null(functions[8]);
    OK(tow_drive(cu, cuModuleEnumerateFunctions)(functions, 16, module));
    assert_null(functions[9]);
    for (unsigned i = 0; i < count; i++) {
        CUfunction same;
        OK(tow_drive(cu, cuFuncGetName)(&name, functions[i]));
        OK(tow_drive(cu, cuModuleGetFunction)(&same, module, name));
        assert_ptr_equal(same, functions[i]);
    }
    OK(tow_drive(cu, cuModuleUnload)(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuModuleGetFunctionCount)(&count, module));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuModuleEnumerateFunctions)(functions, 9, module));
}

static void functions_are_found_by_name_only(void **state)
{
    (void)state;
    functions_are_enumerated();
    CUmodule module = soft_module();
    CUfunction f;
    FAILS(CUDA_ERROR_NOT_FOUND, tow_drive(cu, cuModuleGetFunction)(&f, module, "missing"));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuModuleGetFunction)(&f, module, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuModuleGetFunction)(NULL, module, "add"));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuModuleGetFunction)(&f, (CUmodule)0x30, "add"));
    unsigned count;
    OK(tow_drive(cu, cuModuleGetFunctionCount)(&count, module));
    assert_int_equal(count, 9);
    f = soft_function(module, "add");
    size_t offset, size;
    OK(tow_drive(cu, cuFuncGetParamInfo)(f, 3, &offset, &size));
    assert_int_equal(offset, 24);
    assert_int_equal(size, 4);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuFuncGetParamInfo)(f, 4, &offset, &size));
    const char *name;
    OK(tow_drive(cu, cuFuncGetName)(&name, f));
    assert_string_equal(name, "add");
    int value;
    OK(tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                         soft_function(module, "bounded")));
    assert_int_equal(value, 64);
    OK(tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                         soft_function(module, "shared")));
    assert_int_equal(value, 256);
    OK(tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, f));
    assert_int_equal(value, 16);
    OK(tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    assert_true(value > 10);
    OK(tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS,
                                         soft_function(module, "bounded")));
    assert_int_equal(value, 10);
    OK(tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
    assert_int_equal(value, 80);
    OK(tow_drive(cu, cuModuleUnload)(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
}

static void bad_images_are_refused_with_a_log(void **state)
{
    (void)state;
    CUmodule module;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuModuleLoadData)(&module, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE, tow_drive(cu, cuModuleLoadData)(&module, "no code at all"));
    FAILS(CUDA_ERROR_INVALID_IMAGE, tow_drive(cu, cuModuleLoadData)(&module, ""));
    static const unsigned char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, tow_drive(cu, cuModuleLoadData)(&module, elf));
    char log[512] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    const char *broken = ".version 8.0\n.target sm_80\n.address_size 64\n"
                         ".visible .entry f()\n{\n  frobnicate.u32 %r1, 2;\n}\n";
    CUresult result = tow_drive(cu, cuModuleLoadDataEx)(&module, broken, 2, options, values);
    assert_true(result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_NOT_SUPPORTED);
    assert_non_null(strstr(log, "line 6"));
    assert_int_equal((size_t)values[1], strlen(log));
    /* Where a function is called that no text defines. */
    const char *lacking = ".version 8.0\n.target sm_80\n.address_size 64\n"
                          ".extern .func absent();\n.visible .entry f()\n{\n  call absent;\n}\n";
    values[1] = (void *)sizeof log;
    assert_int_not_equal(tow_drive(cu, cuModuleLoadDataEx)(&module, lacking, 2, options, values),
                         CUDA_SUCCESS);
    assert_non_null(strstr(log, "'absent'"));
    assert_non_null(strstr(log, "line 7"));
    FAILS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
          tow_drive(cu, cuModuleLoadData)(&module,
                                          ".version 99.0\n.target sm_80\n.address_size 64\n"));
    FAILS(CUDA_ERROR_FILE_NOT_FOUND,
          tow_drive(cu, cuModuleLoad)(&module, "/nonexistent/file.cubin"));
}

static void put16(unsigned char *at, unsigned value)
{
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
}

static void put64(unsigned char *at, unsigned long long value)
{
    for (int i = 0; i < 8; i++) {
        at[i] = (unsigned char)(value >> 8 * i);
    }
}

/* One entry; returns its size. */
static size_t entry(unsigned char *at, unsigned kind, unsigned sm, const void *payload, size_t size,
                    size_t unpacked, unsigned flags)
{
    size_t padded = (size + 7) / 8 * 8;
    memset(at, 0, 64 + padded);
    put16(at, kind);
    put16(at + 2, 0x0101);
    put16(at + 4, 64);
    put64(at + 8, padded);
    if (flags != 0) {
        put64(at + 16, size);
        put64(at + 56, unpacked);
    }
    put16(at + 28, sm);
    put64(at + 40, flags);
    memcpy(at + 64, payload, size);
    return 64 + padded;
}

static size_t fatbin(unsigned char *image, size_t body)
{
    put16(image, 0xed50);
    put16(image + 2, 0xba55);
    put16(image + 4, 1);
    put16(image + 6, 16);
    put64(image + 8, body);
    return 16 + body;
}

/* LZ4 that only ever uses literals is still LZ4. */
static size_t lz4_literals(const char *text, unsigned char *out)
{
    size_t length = strlen(text), n = 0;
    out[n++] = 0xf0;
    size_t rest = length - 15;
    while (rest >= 255) {
        out[n++] = 255;
        rest -= 255;
    }
    out[n++] = (unsigned char)rest;
    memcpy(out + n, text, length);
    return n + length;
}

static const char *ptx_of(int number)
{
    static char text[2][256];
    snprintf(text[number & 1], sizeof text[0],
             ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .u32 which = %d;\n"
             ".visible .entry k() { ret; }\n",
             number);
    return text[number & 1];
}

static unsigned which(const void *image)
{
    CUmodule module;
    OK(tow_drive(cu, cuModuleLoadData)(&module, image));
    CUdeviceptr p;
    unsigned value = 0;
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&p, NULL, module, "which"));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4));
    OK(tow_drive(cu, cuModuleUnload)(module));
    return value;
}

static void the_newest_ptx_of_a_fat_binary_is_taken(void **state)
{
    (void)state;
    static unsigned char image[4096], packed[1024];
    size_t at = 16;
    at += entry(image + at, 2, 90, "sass", 4, 0, 0);
    at += entry(image + at, 1, 121, ptx_of(121), strlen(ptx_of(121)) + 1, 0, 0);
    at += entry(image + at, 1, 80, ptx_of(80), strlen(ptx_of(80)) + 1, 0, 0);
    at += entry(image + at, 1, 130, ptx_of(130), strlen(ptx_of(130)) + 1, 0, 0); /* not for us */
    fatbin(image, at - 16);
    assert_int_equal(which(image), 121);

    at = 16;
    const char *text = ptx_of(75);
    at += entry(image + at, 1, 75, packed, lz4_literals(text, packed), strlen(text), 0x2000);
    fatbin(image, at - 16);
    assert_int_equal(which(image), 75);

    /* A wrapper around it, as runtimes register them. */
    struct {
        unsigned magic, version;
        const void *data;
        void *extra;
    } wrapper = {0x466243b1, 1, image, NULL};
    assert_int_equal(which(&wrapper), 75);
}

static void ptx_for_newer_gpus_alone_is_refused(void **state)
{
    (void)state;
    static unsigned char image[4096];
    CUmodule module;
    char log[512] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    size_t at = 16;
    at += entry(image + at, 1, 141, ptx_of(141), strlen(ptx_of(141)) + 1, 0, 0);
    at += entry(image + at, 1, 130, ptx_of(130), strlen(ptx_of(130)) + 1, 0, 0);
    fatbin(image, at - 16);
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU,
          tow_drive(cu, cuModuleLoadDataEx)(&module, image, 2, options, values));
    assert_non_null(strstr(log, "for GPUs of compute capability 13.0 and newer"));
    assert_non_null(strstr(log, "arch=compute_121,code=compute_121, or start"));
    assert_non_null(strstr(log, "--soft-capability 13.0."));
}

static void damaged_fat_binaries_are_refused(void **state)
{
    (void)state;
    static unsigned char image[4096], packed[1024], copy[4096];
    CUmodule module;
    size_t at = 16;
    at += entry(image + at, 2, 90, "sass", 4, 0, 0);
    fatbin(image, at - 16);
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, tow_drive(cu, cuModuleLoadData)(&module, image));
    const char *text = ptx_of(75);
    at = 16;
    at += entry(image + at, 1, 75, packed, lz4_literals(text, packed), strlen(text), 0x2000);
    size_t size = fatbin(image, at - 16);
    /* Whatever byte is damaged: an error or a load, never a crash. */
    for (size_t i = 4; i < size; i++) {
        memcpy(copy, image, sizeof copy);
        copy[i] ^= 0x81;
        if (tow_drive(cu, cuModuleLoadData)(&module, copy) == CUDA_SUCCESS) {
            OK(tow_drive(cu, cuModuleUnload)(module));
        }
    }
}

static void kernels_that_are_gone_are_refused(CUkernel kernel)
{
    const char *name = NULL;
    int attribute;
    size_t offset, size;
    CUfunction function;
    CUlibrary library;
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuKernelGetName)(&name, kernel));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuKernelGetFunction)(&function, kernel));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuKernelGetLibrary)(&library, kernel));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuKernelGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0,
                                              kernel, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuKernelGetParamInfo)(kernel, 0, &offset, &size));
}

static void libraries_serve_every_context(void **state)
{
    (void)state;
    OK(tow_drive(cu, cuCtxSetCurrent)(NULL));
    CUlibrary library;
    OK(tow_drive(cu, cuLibraryLoadData)(&library, soft_kernels, NULL, NULL, 0, NULL, NULL,
                                        0)); /* needs no context */
    CUkernel kernel;
    OK(tow_drive(cu, cuLibraryGetKernel)(&kernel, library, "bump"));
    FAILS(CUDA_ERROR_NOT_FOUND, tow_drive(cu, cuLibraryGetKernel)(&kernel, library, "nope"));
    unsigned count;
    OK(tow_drive(cu, cuLibraryGetKernelCount)(&count, library));
    assert_int_equal(count, 9);
    CUdeviceptr p, q;
    FAILS(CUDA_ERROR_INVALID_CONTEXT,
          tow_drive(cu, cuLibraryGetGlobal)(&p, NULL, library, "counter"));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    size_t size;
    OK(tow_drive(cu, cuLibraryGetGlobal)(&p, &size, library, "counter"));
    OK(soft_launch((CUfunction)kernel, 1, 1, NULL, NULL)); /* as the runtime launches */
    unsigned value;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4));
    assert_int_equal(value, 8);
    CUcontext own;
    OK(tow_drive(cu, cuCtxCreate_v2)(&own, 0, 0));
    OK(tow_drive(cu, cuLibraryGetGlobal)(&q, &size, library, "counter"));
    assert_int_not_equal(p, q);
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, q, 4));
    assert_int_equal(value, 7);
    OK(tow_drive(cu, cuCtxDestroy_v2)(own));
    CUfunction function;
    OK(tow_drive(cu, cuKernelGetFunction)(&function, kernel));
    CUmodule module;
    OK(tow_drive(cu, cuLibraryGetModule)(&module, library));
    FAILS(CUDA_ERROR_NOT_PERMITTED, tow_drive(cu, cuModuleUnload)(module));
    int attribute;
    OK(tow_drive(cu, cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536,
                                           kernel, 0));
    OK(tow_drive(cu, cuFuncGetAttribute)(
        &attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
    assert_int_equal(attribute, 65536);
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          tow_drive(cu, cuKernelGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 5));
    const char *name = NULL;
    OK(tow_drive(cu, cuKernelGetName)(&name, kernel));
    assert_string_equal(name, "bump");
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuKernelGetName)(NULL, kernel));
    CUlibrary same = NULL;
    OK(tow_drive(cu, cuKernelGetLibrary)(&same, kernel));
    assert_ptr_equal(same, library);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuKernelGetLibrary)(NULL, kernel));
    OK(tow_drive(cu, cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
    OK(tow_drive(cu, cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_EQUAL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuKernelSetCacheConfig)(kernel, (CUfunc_cache)4, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuKernelSetCacheConfig)(kernel, (CUfunc_cache)-1, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          tow_drive(cu, cuKernelSetCacheConfig)(kernel, CU_FUNC_CACHE_PREFER_L1, 5));
    OK(tow_drive(cu, cuLibraryUnload)(library));
    kernels_that_are_gone_are_refused(kernel);
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuLibraryUnload)(library));
    FAILS(CUDA_ERROR_INVALID_HANDLE, soft_launch((CUfunction)kernel, 1, 1, NULL, NULL));
}

static void the_linker_joins_ptx(void **state)
{
    (void)state;
    const char *caller =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
        ".visible .entry main_kernel(.param .u64 p)\n{\n"
        "  .reg .b32 %r<4>; .reg .b64 %d;\n"
        "  .param .b32 in; .param .b32 out;\n"
        "  mov.u32 %r0, 21; st.param.b32 [in], %r0;\n"
        "  call.uni (out), twice, (in);\n"
        "  ld.param.b32 %r1, [out]; ld.param.u64 %d, [p]; st.global.u32 [%d], %r1; ret;\n}\n";
    const char *callee =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n"
        "  .reg .b32 %r<2>;\n"
        "  ld.param.b32 %r0, [x]; add.u32 %r0, %r0, %r0; st.param.b32 [r], %r0; ret;\n}\n";
    CUlinkState link;
    OK(tow_drive(cu, cuLinkCreate_v2)(0, NULL, NULL, &link));
    OK(tow_drive(cu, cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, (void *)caller, strlen(caller) + 1,
                                       "a", 0, NULL, NULL));
    OK(tow_drive(cu, cuLinkAddData_v2)(link, CU_JIT_INPUT_PTX, (void *)callee, strlen(callee), "b",
                                       0, NULL, NULL));
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU,
          tow_drive(cu, cuLinkAddData_v2)(link, CU_JIT_INPUT_CUBIN, (void *)"x", 1, "c", 0, NULL,
                                          NULL));
    void *image;
    size_t size;
    OK(tow_drive(cu, cuLinkComplete)(link, &image, &size));
    assert_int_equal(strlen(image) + 1, size);
    CUmodule module;
    OK(tow_drive(cu, cuModuleLoadData)(&module, image));
    OK(tow_drive(cu, cuLinkDestroy)(link));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuLinkDestroy)(link));
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4));
    void *params[] = {&p};
    OK(soft_launch(soft_function(module, "main_kernel"), 1, 1, NULL, params));
    unsigned value = 0;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4));
    assert_int_equal(value, 42);
}

static char printed[256];

static void hook(void *user, const char *text, size_t length)
{
    assert_ptr_equal(user, printed);
    strncat(printed, text, length);
}

static void printf_comes_out_at_synchronisation(void **state)
{
    (void)state;
    *backend.print = hook;
    *backend.print_user = printed;
    const char *text =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
        ".global .align 1 .b8 format[9] = {118, 97, 108, 117, 101, 61, 37, 100, 0};\n"
        ".visible .entry say()\n{\n"
        "  .local .align 8 .b8 args[8]; .reg .b32 %r<3>; .reg .b64 %d<4>;\n"
        "  .param .b64 p0; .param .b64 p1; .param .b32 q;\n"
        "  mov.u32 %r0, 42; st.local.u32 [args], %r0;\n"
        "  mov.u64 %d0, format; cvta.global.u64 %d0, %d0;\n"
        "  mov.u64 %d1, args; cvta.local.u64 %d1, %d1;\n"
        "  st.param.b64 [p0], %d0; st.param.b64 [p1], %d1;\n"
        "  call.uni (q), vprintf, (p0, p1);\n  ret;\n}\n";
    CUmodule module;
    OK(tow_drive(cu, cuModuleLoadData)(&module, text));
    OK(soft_launch(soft_function(module, "say"), 1, 1, NULL, NULL));
    OK(tow_drive(cu, cuCtxSynchronize)());
    assert_string_equal(printed, "value=42");
}

static const char heap_text[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
    ".extern .func free(.param .b64 p);\n"
    ".visible .entry get(.param .u64 out, .param .u64 n)\n{\n"
    "  .reg .b64 %d<4>; .param .b64 a; .param .b64 r;\n"
    "  ld.param.u64 %d0, [n]; st.param.b64 [a], %d0;\n"
    "  call.uni (r), malloc, (a);\n"
    "  ld.param.b64 %d1, [r]; ld.param.u64 %d2, [out]; st.global.u64 [%d2], %d1; ret;\n}\n"
    ".visible .entry put(.param .u64 p)\n{\n"
    "  .reg .b64 %d; .param .b64 a;\n"
    "  ld.param.u64 %d, [p]; st.param.b64 [a], %d; call.uni free, (a); ret;\n}\n";

static void the_heap_goes_with_its_context(void **state)
{
    (void)state;
    size_t before, after, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&before, &total));
    for (int i = 0; i < 2; i++) {
        CUcontext own;
        CUmodule module;
        CUdeviceptr out, p = 0;
        unsigned long long bytes = 3 << 20;
        void *params[] = {&out, &bytes};
        OK(tow_drive(cu, cuCtxCreate_v2)(&own, 0, 0));
        OK(tow_drive(cu, cuModuleLoadData)(&module, heap_text));
        OK(tow_drive(cu, cuMemAlloc_v2)(&out, 8));
        OK(soft_launch(soft_function(module, "get"), 1, 1, NULL, params));
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(&p, out, 8));
        assert_int_not_equal(p, 0); /* and is never freed */
        OK(tow_drive(cu, cuCtxDestroy_v2)(own));
        OK(tow_drive(cu, cuMemGetInfo_v2)(&after, &total));
        assert_int_equal(after, before);
    }
}

static void device_malloc_gives_checked_memory(void **state)
{
    (void)state;
    CUmodule module;
    OK(tow_drive(cu, cuModuleLoadData)(&module, heap_text));
    CUdeviceptr out, p = 1;
    OK(tow_drive(cu, cuMemAlloc_v2)(&out, 8));
    unsigned long long bytes = 128;
    void *params[] = {&out, &bytes};
    OK(soft_launch(soft_function(module, "get"), 1, 1, NULL, params));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&p, out, 8));
    assert_int_not_equal(p, 0);
    unsigned value = 3;
    void *fill_params[] = {&p, &value};
    CUfunction fill = soft_function(soft_module(), "fill");
    OK(soft_launch(fill, 1, 32, NULL, fill_params));
    OK(tow_drive(cu, cuCtxSynchronize)());
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4)); /* the host cannot reach it */
    bytes = 1ull << 40;
    CUdeviceptr none = 1;
    OK(soft_launch(soft_function(module, "get"), 1, 1, NULL, params));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&none, out, 8));
    assert_int_equal(none, 0);
    /* The heap has 8 MiB: for two of these one after the other. */
    CUdeviceptr large = 0;
    void *put_large[] = {&large};
    bytes = 5 << 20;
    for (int i = 0; i < 2; i++) {
        OK(soft_launch(soft_function(module, "get"), 1, 1, NULL, params));
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(&large, out, 8));
        assert_int_not_equal(large, 0);
        OK(soft_launch(soft_function(module, "get"), 1, 1, NULL, params));
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(&none, out, 8));
        assert_int_equal(none, 0);
        OK(soft_launch(soft_function(module, "put"), 1, 1, NULL, put_large));
        OK(tow_drive(cu, cuCtxSynchronize)());
    }
    void *put_params[] = {&p};
    OK(soft_launch(soft_function(module, "put"), 1, 1, NULL, put_params));
    OK(tow_drive(cu, cuCtxSynchronize)());
    OK(soft_launch(fill, 1, 32, NULL, fill_params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
}

/* Its module ends them; whoever frees one by its address, at once, in a stream or by a graph, is
 * refused. */
static void variables_are_not_freed_by_their_address(void **state)
{
    (void)state;
    CUmodule module;
    CUdeviceptr both, word, again;
    OK(tow_drive(cu, cuModuleLoadData)(&module,
                                       ".version 8.0\n.target sm_80\n.address_size 64\n"
                                       ".visible .global .align 8 .u64 word;\n"
                                       ".visible .global .attribute(.managed) .align 8 .u64 both;\n"
                                       ".visible .entry nothing() { ret; }\n"));
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&both, NULL, module, "both"));
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&word, NULL, module, "word"));
    for (int i = 0; i < 2; i++) {
        FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFree_v2)(i == 0 ? both : word));
        FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFreeAsync)(i == 0 ? both : word, NULL));
    }
    OK(tow_drive(cu, cuModuleGetGlobal_v2)(&again, NULL, module, "both"));
    assert_true(again == both);
    /* A graph finds out when it runs. */
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    OK(tow_drive(cu, cuGraphAddMemFreeNode)(&node, graph, NULL, 0, word));
    OK(tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(tow_drive(cu, cuGraphLaunch)(exec, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuCtxSynchronize)());
}

static size_t free_memory(void)
{
    size_t left, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&left, &total));
    return left;
}

/* Whoever holds a module longest ends its variables, also if its context is gone by then. */
static void variables_end_with_a_module_that_outlives_its_context(void **state)
{
    (void)state;
    const char *text = ".version 8.0\n.target sm_80\n.address_size 64\n"
                       ".visible .global .align 8 .b8 many[8388608];\n"
                       ".visible .global .attribute(.managed) .align 8 .b8 both[8388608];\n"
                       ".visible .entry nothing() { ret; }\n";
    size_t before = free_memory();
    CUcontext other;
    CUmodule handle;
    OK(tow_drive(cu, cuCtxCreate_v2)(&other, 0, 0));
    OK(tow_drive(cu, cuModuleLoadData)(&handle, text));
    tow_mutex_lock(&tow_soft.lock);
    struct tow_soft_module *module = tow_soft_lookup(TOW_SOFT_MODULE, TOW_SOFT_HANDLE(handle));
    assert_non_null(module);
    tow_soft_module_ref(module);
    tow_mutex_unlock(&tow_soft.lock);
    OK(tow_drive(cu, cuCtxDestroy_v2)(other));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    assert_true(free_memory() < before);
    tow_mutex_lock(&tow_soft.lock);
    tow_soft_module_unref(module);
    tow_mutex_unlock(&tow_soft.lock);
    assert_int_equal(free_memory(), before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, soft_setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(globals_have_values_and_addresses),
        TEST(functions_are_found_by_name_only),
        TEST(bad_images_are_refused_with_a_log),
        TEST(the_newest_ptx_of_a_fat_binary_is_taken),
        TEST(ptx_for_newer_gpus_alone_is_refused),
        TEST(damaged_fat_binaries_are_refused),
        TEST(libraries_serve_every_context),
        TEST(the_linker_joins_ptx),
        TEST(printf_comes_out_at_synchronisation),
        TEST(device_malloc_gives_checked_memory),
        TEST(the_heap_goes_with_its_context),
        TEST(variables_are_not_freed_by_their_address),
        TEST(variables_end_with_a_module_that_outlives_its_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
