/* SPDX-License-Identifier: Apache-2.0 */
/* A driver-API program about code: modules, libraries, kernels, linking, all ways to launch. */
#include <cuda.h>

#include "kernels_ptx.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult check_result = (call);                                                            \
        if (check_result != CUDA_SUCCESS) {                                                        \
            fprintf(stderr, "FAILED: %s:%d: %s: %d\n", __FILE__, __LINE__, #call, check_result);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "FAILED: %s:%d: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define EXPECT_ERROR(call, expected)                                                               \
    do {                                                                                           \
        CUresult check_result = (call);                                                            \
        if (check_result != (expected)) {                                                          \
            fprintf(stderr, "FAILED: %s:%d: %s: %d, not %d\n", __FILE__, __LINE__, #call,          \
                    check_result, (expected));                                                     \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static CUdevice device;

/* The value of a __device__ counter after `f` added `value` to it from each of `threads` threads.
 */
static uint32_t counter_after(CUdeviceptr counter, CUfunction f, uint32_t value, unsigned threads)
{
    uint32_t result = 0;
    void *params[] = {&value};
    CHECK(cuLaunchKernel(f, 1, 1, 1, threads, 1, 1, 0, NULL, params, NULL));
    CHECK(cuMemcpyDtoH(&result, counter, sizeof result));
    return result;
}

static void test_modules(void)
{
    CUmodule module, again;
    CUfunction count, same;
    CUdeviceptr counter;
    size_t size = 0;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&count, module, "count"));
    CHECK(cuModuleGetFunction(&same, module, "count"));
    EXPECT(count == same);
    CHECK(cuModuleGetGlobal(&counter, &size, module, "counter"));
    EXPECT(size == 4);
    CHECK(cuModuleGetGlobal(NULL, &size, module, "table"));
    EXPECT(size == 32);
    EXPECT(counter_after(counter, count, 3, 10) == 35);
    EXPECT(counter_after(counter, count, 1, 1) == 36);

    /* A second load has variables of its own. */
    CUdeviceptr other;
    CHECK(cuModuleLoadData(&again, kernels_ptx));
    EXPECT(again != module);
    CHECK(cuModuleGetGlobal(&other, NULL, again, "counter"));
    EXPECT(other != counter);
    uint32_t value;
    CHECK(cuMemcpyDtoH(&value, other, sizeof value));
    EXPECT(value == 5);

    /* Names, parameters, the module of a function. */
    unsigned functions = 0;
    CHECK(cuModuleGetFunctionCount(&functions, module));
    EXPECT(functions >= 5);
    CUfunction list[64];
    EXPECT(functions <= 64);
    CHECK(cuModuleEnumerateFunctions(list, functions, module));
    bool found = false;
    for (unsigned i = 0; i < functions; i++) {
        const char *name = NULL;
        CHECK(cuFuncGetName(&name, list[i]));
        found = found || (strcmp(name, "count") == 0 && list[i] == count);
    }
    EXPECT(found);
    CUfunction scale;
    CHECK(cuModuleGetFunction(&scale, module, "scale"));
    size_t offset = 99;
    CHECK(cuFuncGetParamInfo(scale, 2, &offset, &size));
    EXPECT(offset == 12 && size == 4);
    CHECK(cuFuncGetParamInfo(scale, 0, &offset, &size));
    EXPECT(offset == 0 && size == 8);
    EXPECT_ERROR(cuFuncGetParamInfo(scale, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    CUmodule of;
    CHECK(cuFuncGetModule(&of, scale));
    EXPECT(of == module);

    CHECK(cuModuleUnload(again));
    CHECK(cuModuleUnload(module));
    CHECK(cuCtxSynchronize());
}

static void test_file(void)
{
    char path[] = "/tmp/towline_code_XXXXXX";
    int fd = mkstemp(path);
    EXPECT(fd >= 0);
    EXPECT(write(fd, kernels_ptx, strlen(kernels_ptx)) == (ssize_t)strlen(kernels_ptx));
    close(fd);
    CUmodule module;
    CUfunction nothing;
    CHECK(cuModuleLoad(&module, path));
    CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
    CHECK(cuLaunchKernel(nothing, 3, 2, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CHECK(cuModuleUnload(module));
    CUlibrary library;
    CUkernel kernel;
    CHECK(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "nothing"));
    CHECK(cuLibraryUnload(library));
    unlink(path);
    EXPECT_ERROR(cuModuleLoad(&module, path), CUDA_ERROR_FILE_NOT_FOUND);
    CHECK(cuCtxSynchronize());
}

/* The same image as several libraries at once: each has its own variables. */
static void test_again(void)
{
    enum { count = 20 };
    CUlibrary libraries[count];
    for (int i = 0; i < count; i++) {
        CUkernel kernel;
        CUdeviceptr counter;
        CHECK(cuLibraryLoadData(&libraries[i], kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
        CHECK(cuLibraryGetKernel(&kernel, libraries[i], "count"));
        CHECK(cuLibraryGetGlobal(&counter, NULL, libraries[i], "counter"));
        EXPECT(counter_after(counter, (CUfunction)kernel, 3, 10 + (unsigned)i) ==
               35 + 3 * (unsigned)i);
        for (int k = 0; k < i; k++) {
            EXPECT(libraries[k] != libraries[i]);
        }
    }
    /* In the order of loading, so that the first one does not hold the image for the others. */
    for (int i = 0; i < count; i++) {
        CHECK(cuLibraryUnload(libraries[i]));
    }
    CHECK(cuCtxSynchronize());
}

/* Threads that load and unload the same image: whoever is last to hold it changes all the time. */
static void *load_often(void *context)
{
    CHECK(cuCtxSetCurrent(context));
    for (int i = 0; i < 60; i++) {
        CUlibrary library, second;
        CUkernel kernel;
        CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
        CHECK(cuLibraryLoadData(&second, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
        CHECK(cuLibraryUnload(library));
        CHECK(cuLibraryGetKernel(&kernel, second, "nothing"));
        CHECK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        CHECK(cuLibraryUnload(second));
        if (i % 10 == 0) {
            CHECK(cuCtxSynchronize());
        }
    }
    CHECK(cuCtxSynchronize());
    return NULL;
}

static void test_often(void)
{
    CUcontext context;
    pthread_t threads[4];
    CHECK(cuCtxGetCurrent(&context));
    for (int i = 0; i < 4; i++) {
        EXPECT(pthread_create(&threads[i], NULL, load_often, context) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void test_libraries(void)
{
    CUlibrary library, of_kernel;
    CUkernel kernel, same;
    CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
    void *option_value = (void *)1;
    CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, &option, &option_value, 1));
    CHECK(cuLibraryGetKernel(&kernel, library, "count"));
    CHECK(cuLibraryGetKernel(&same, library, "count"));
    EXPECT(kernel == same);
    CHECK(cuKernelGetLibrary(&of_kernel, kernel));
    EXPECT(of_kernel == library);
    const char *name = NULL;
    CHECK(cuKernelGetName(&name, kernel));
    EXPECT(strcmp(name, "count") == 0);
    CUdeviceptr counter, again;
    size_t size = 0;
    CHECK(cuLibraryGetGlobal(&counter, &size, library, "counter"));
    CHECK(cuLibraryGetGlobal(&again, NULL, library, "counter"));
    EXPECT(counter == again && size == 4);
    /* A kernel may be launched as it is, or as its function in this context. */
    EXPECT(counter_after(counter, (CUfunction)kernel, 2, 4) == 13);
    CUfunction function;
    CHECK(cuKernelGetFunction(&function, kernel));
    EXPECT(counter_after(counter, function, 1, 7) == 20);
    CUmodule module;
    CUfunction of_module;
    CHECK(cuLibraryGetModule(&module, library));
    CHECK(cuModuleGetFunction(&of_module, module, "count"));
    EXPECT(counter_after(counter, of_module, 10, 1) == 30);
    CUmodule of_function;
    CHECK(cuFuncGetModule(&of_function, function));
    EXPECT(of_function == module);
    unsigned kernels = 0;
    CHECK(cuLibraryGetKernelCount(&kernels, library));
    EXPECT(kernels >= 5 && kernels <= 64);
    CUkernel list[64];
    CHECK(cuLibraryEnumerateKernels(list, kernels, library));
    int threads = 0, shared = 0;
    CHECK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    EXPECT(threads >= 128 && threads <= 1024);
    CHECK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, kernel,
                               device));
    CHECK(cuKernelGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel,
                               device));
    EXPECT(shared == 60000);
    EXPECT_ERROR(cuLibraryGetKernel(&kernel, library, "absent"), CUDA_ERROR_NOT_FOUND);
    CHECK(cuLibraryUnload(library));
    CHECK(cuCtxSynchronize());
}

static void test_shared_memory(void)
{
    CUmodule module;
    CUfunction reverse;
    CUdeviceptr out;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&reverse, module, "reverse"));
    CHECK(cuMemAlloc(&out, 4096));
    void *params[] = {&out};
    EXPECT_ERROR(cuLaunchKernel(reverse, 1, 1, 1, 1024, 1, 1, 60000, NULL, params, NULL),
                 CUDA_ERROR_INVALID_VALUE);
    CHECK(cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    int value = 0;
    CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse));
    EXPECT(value == 60000);
    CHECK(cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
    EXPECT_ERROR(
        cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
        CUDA_ERROR_INVALID_VALUE);
    CHECK(cuFuncSetCacheConfig(reverse, CU_FUNC_CACHE_PREFER_L1));
    CHECK(cuLaunchKernel(reverse, 1, 1, 1, 1024, 1, 1, 60000, NULL, params, NULL));
    uint32_t host[1024];
    CHECK(cuMemcpyDtoH(host, out, sizeof host));
    for (uint32_t i = 0; i < 1024; i++) {
        EXPECT(host[i] == (1023 - i) * 10);
    }
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
}

static size_t shared_of_block(int threads)
{
    return (size_t)threads * 4;
}

static void test_occupancy(void)
{
    CUmodule module;
    CUfunction reverse;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&reverse, module, "reverse"));
    int blocks = 0, again = 0, grid = 0, block = 0, processors = 0;
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, 128, 0));
    CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&again, reverse, 128, 0,
                                                               CU_OCCUPANCY_DEFAULT));
    EXPECT(blocks > 0 && blocks == again);
    CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &block, reverse, shared_of_block, 0, 0));
    EXPECT(block > 0 && block % 32 == 0 && grid % processors == 0 && grid > 0);
    CHECK(cuOccupancyMaxPotentialBlockSize(&grid, &block, reverse, NULL, 0, 100));
    EXPECT(block > 0 && block <= 100);
    size_t shared = 0;
    CHECK(cuOccupancyAvailableDynamicSMemPerBlock(&shared, reverse, 1, 128));
    EXPECT(shared >= 48 * 1024 - 1024);
    CHECK(cuModuleUnload(module));
}

static void test_launch_forms(void)
{
    CUmodule module;
    CUfunction count;
    CUdeviceptr counter;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&count, module, "count"));
    CHECK(cuModuleGetGlobal(&counter, NULL, module, "counter"));
    uint32_t value = 2, result = 0;
    void *params[] = {&value};
    CUlaunchAttribute attributes[2];
    memset(attributes, 0, sizeof attributes);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[1].value.cooperative = 1;
    CUlaunchConfig config = {2, 1, 1, 4, 1, 1, 0, NULL, attributes, 2};
    CHECK(cuLaunchKernelEx(&config, count, params, NULL));
    config.numAttrs = 0;
    CHECK(cuLaunchKernelEx(&config, count, params, NULL));
    CHECK(cuLaunchCooperativeKernel(count, 1, 2, 1, 4, 1, 1, 0, NULL, params));
    CHECK(cuMemcpyDtoH(&result, counter, sizeof result));
    EXPECT(result == 5 + 3 * 16);

    /* The old way. */
    CHECK(cuFuncSetBlockShape(count, 8, 1, 1));
    CHECK(cuParamSetSize(count, 4));
    CHECK(cuParamSeti(count, 0, 1));
    CHECK(cuLaunchGrid(count, 2, 2));
    CHECK(cuMemcpyDtoH(&result, counter, sizeof result));
    EXPECT(result == 53 + 32);
    CHECK(cuModuleUnload(module));
}

/* Thousands of launches in a row, each with other arguments. */
static void test_many_launches(void)
{
    CUmodule module;
    CUfunction count;
    CUdeviceptr counter;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&count, module, "count"));
    CHECK(cuModuleGetGlobal(&counter, NULL, module, "counter"));
    uint32_t expected = 5, result = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        void *params[] = {&i};
        CHECK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        expected += i;
    }
    CHECK(cuMemcpyDtoH(&result, counter, sizeof result));
    EXPECT(result == expected);
    CHECK(cuModuleUnload(module));
}

static unsigned seed;

/* An image of several megabytes, different for each seed. */
static void test_large_image(void)
{
    enum { LINE = 64, LINES = 60000 };
    size_t start = strlen(kernels_ptx), size = start + (size_t)LINE * LINES + 1;
    char *text = malloc(size);
    EXPECT(text != NULL);
    memcpy(text, kernels_ptx, start);
    for (size_t i = 0; i < LINES; i++) {
        char line[LINE + 1];
        snprintf(line, sizeof line, "// %08zx %08x %0*d", i, seed, LINE - 22, 0);
        line[LINE - 1] = '\n';
        memcpy(text + start + i * LINE, line, LINE);
    }
    text[size - 1] = '\0';
    CUmodule module;
    CUfunction count;
    CUdeviceptr counter;
    CHECK(cuModuleLoadData(&module, text));
    memset(text, 'x', size - 1); /* the image is the driver's own by now */
    free(text);
    CHECK(cuModuleGetFunction(&count, module, "count"));
    CHECK(cuModuleGetGlobal(&counter, NULL, module, "counter"));
    EXPECT(counter_after(counter, count, 4, 5) == 25);
    CHECK(cuModuleUnload(module));
}

static void test_compiler_log(void)
{
    char info[512] = "untouched", error[512] = "untouched";
    CUjit_option options[] = {
        CU_JIT_INFO_LOG_BUFFER,
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_ERROR_LOG_BUFFER,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    };
    void *values[] = {info, (void *)sizeof info, error, (void *)sizeof error};
    CUmodule module;
    CUresult result = cuModuleLoadDataEx(&module,
                                         ".version 7.0\n.target sm_70\n.address_size 64\n"
                                         ".visible .entry k()\n{\n    bogus.u32 %r1;\n}\n",
                                         4, options, values);
    EXPECT(result != CUDA_SUCCESS);
    EXPECT(strcmp(error, "untouched") != 0 && strlen(error) > 0);
    values[1] = (void *)sizeof info;
    values[3] = (void *)sizeof error;
    CHECK(cuModuleLoadDataEx(&module, kernels_ptx, 4, options, values));
    CHECK(cuModuleUnload(module));
}

static const char caller_ptx[] = ".version 7.0\n"
                                 ".target sm_70\n"
                                 ".address_size 64\n"
                                 ".extern .func (.reg .b32 r) twice(.reg .b32 x);\n"
                                 ".visible .entry call_twice(.param .u64 out)\n"
                                 "{\n"
                                 "    .reg .b32 %a, %b;\n"
                                 "    .reg .b64 %p;\n"
                                 "    mov.u32 %a, 21;\n"
                                 "    call (%b), twice, (%a);\n"
                                 "    ld.param.u64 %p, [out];\n"
                                 "    st.global.u32 [%p], %b;\n"
                                 "    ret;\n"
                                 "}\n";
static const char callee_ptx[] = ".version 7.0\n"
                                 ".target sm_70\n"
                                 ".address_size 64\n"
                                 ".visible .func (.reg .b32 r) twice(.reg .b32 x)\n"
                                 "{\n"
                                 "    add.u32 r, x, x;\n"
                                 "    ret;\n"
                                 "}\n";

/* With an option of its own it is other code, whatever is known of this image. */
static void test_options(void)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *value = (void *)32;
    CUmodule module;
    CUfunction count;
    CHECK(cuModuleLoadDataEx(&module, kernels_ptx, 1, &option, &value));
    CHECK(cuModuleGetFunction(&count, module, "count"));
    CHECK(cuModuleUnload(module));
}

static void test_linking(void)
{
    CUlinkState link;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &link));
    CHECK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)caller_ptx, sizeof caller_ptx, "caller", 0,
                        NULL, NULL));
    CHECK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)callee_ptx, sizeof callee_ptx, "callee", 0,
                        NULL, NULL));
    CHECK(cuLinkComplete(link, &cubin, &size));
    EXPECT(cubin != NULL && size > 0);
    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, cubin));
    CHECK(cuLinkDestroy(link));
    CHECK(cuModuleGetFunction(&function, module, "call_twice"));
    CUdeviceptr out;
    uint32_t result = 0;
    CHECK(cuMemAlloc(&out, 4));
    void *params[] = {&out};
    CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CHECK(cuMemcpyDtoH(&result, out, 4));
    EXPECT(result == 42);
    CHECK(cuMemFree(out));
    CHECK(cuModuleUnload(module));
}

/* Handles of what is gone. NVIDIA's driver follows them into freed memory, so this part runs only
 * when it is named; Towline answers an error. */
static void test_stale(void)
{
    CUmodule module;
    CUfunction count;
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleUnload(module));
    EXPECT_ERROR(cuModuleGetFunction(&count, module, "count"), CUDA_ERROR_INVALID_HANDLE);

    CUlibrary library;
    CUkernel kernel;
    uint32_t one = 1;
    void *params[] = {&one};
    CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "count"));
    CHECK(cuLibraryUnload(library));
    EXPECT_ERROR(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
                 CUDA_ERROR_INVALID_HANDLE);

    CUlinkState link;
    void *cubin = NULL;
    size_t size = 0;
    CHECK(cuLinkCreate(0, NULL, NULL, &link));
    CHECK(cuLinkDestroy(link));
    EXPECT_ERROR(cuLinkComplete(link, &cubin, &size), CUDA_ERROR_INVALID_HANDLE);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"modules", test_modules},     {"file", test_file},
        {"libraries", test_libraries}, {"shared", test_shared_memory},
        {"occupancy", test_occupancy}, {"forms", test_launch_forms},
        {"many", test_many_launches},  {"large", test_large_image},
        {"log", test_compiler_log},    {"linking", test_linking},
        {"again", test_again},         {"often", test_often},
        {"options", test_options},     {"stale", test_stale},
    };
    CUcontext context;
    seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)getpid();
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc == 1 ? tests[i].run != test_stale : strcmp(argv[1], tests[i].name) == 0) {
            tests[i].run();
        }
    }
    CHECK(cuCtxSynchronize());
    CHECK(cuDevicePrimaryCtxRelease(device));
    puts("OK");
    return 0;
}
