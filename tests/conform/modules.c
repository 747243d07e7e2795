/* SPDX-License-Identifier: Apache-2.0 */
/* Code: modules, libraries, kernels, their globals and attributes, the linker, what compilers say.
 */
#include "driver.h"

CASE(module_globals, "a global is found with its size, or only its size, or only its address")
{
    CUdeviceptr at = 0;
    size_t size = 0;
    IS(cuModuleGetGlobal(&at, &size, mod, "number"), CUDA_SUCCESS);
    EQ(size, 4);
    TRUE(at != 0);
    IS(cuModuleGetGlobal(NULL, &size, mod, "bytes"), CUDA_SUCCESS);
    EQ(size, 24);
    IS(cuModuleGetGlobal(&at, NULL, mod, "factors"), CUDA_SUCCESS);
    SEE(cuModuleGetGlobal(NULL, NULL, mod, "number"));
    IS(cuModuleGetGlobal(&at, &size, mod, "numbe"), CUDA_ERROR_NOT_FOUND);
}

CASE(module_loaded_twice, "two loads of one image have globals of their own")
{
    CUmodule other = NULL;
    CUdeviceptr a = 0, b = 0;
    OK(cuModuleLoadData(&other, driver_ptx));
    OK(cuModuleGetGlobal(&a, NULL, mod, "number"));
    OK(cuModuleGetGlobal(&b, NULL, other, "number"));
    TRUE(other != mod);
    TRUE(a != b);
    OK(cuMemsetD32(a, 99, 1));
    OK(cuCtxSynchronize());
    EQ(peek(b, 0), 7);
    EQ(peek(a, 0), 99);
    IS(cuModuleUnload(other), CUDA_SUCCESS);
    EQ(peek(a, 0), 99);
}

CASE(module_managed_variable, "the program uses a managed variable at the address of its module's")
{
    static const char shared[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                 ".visible .global .attribute(.managed) .align 4 .b32 both = 5;\n";
    CUmodule other = NULL;
    CUdeviceptr at = 0;
    size_t size = 0;
    unsigned managed = 2;
    OK(cuModuleLoadData(&other, shared));
    IS(cuModuleGetGlobal(&at, &size, other, "both"), CUDA_SUCCESS);
    EQ(size, 4);
    IS(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at), CUDA_SUCCESS);
    EQ(managed, 1);
    volatile int *both = (volatile int *)(uintptr_t)at;
    EQ(*both, 5);
    *both += 100;
    OK(launch_inc(NULL, at, 10));
    OK(cuCtxSynchronize());
    EQ(*both, 115);
    IS(cuModuleUnload(other), CUDA_SUCCESS);
}

CASE(module_function_is_one, "asking for a function twice gives the same handle")
{
    TRUE(function("set") == function("set"));
    TRUE(function("set") != function("copy"));
}

CASE(module_unload_while_running, "a module may be unloaded while its kernel is queued")
{
    CUmodule other = NULL;
    CUfunction f = NULL;
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    int value = 5;
    void *params[] = {&w, &value};
    OK(cuModuleLoadData(&other, driver_ptx));
    OK(cuModuleGetFunction(&f, other, "set"));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
    IS(cuModuleUnload(other), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(module_function_count, "a module's functions are counted and listed")
{
    unsigned count = 0;
    CUfunction list[32];
    IS(cuModuleGetFunctionCount(&count, mod), CUDA_SUCCESS);
    NUM(count);
    IS(cuModuleEnumerateFunctions(list, count < 32 ? count : 32, mod), CUDA_SUCCESS);
    CUfunction wanted = function("set");
    int found = 0;
    for (unsigned i = 0; i < count && i < 32; i++) {
        found += list[i] == wanted;
    }
    EQ(found, 1);
}

CASE(module_function_name, "a function tells its name and its module")
{
    const char *name = NULL;
    CUmodule owner = NULL;
    IS(cuFuncGetName(&name, function("limited")), CUDA_SUCCESS);
    conform_say("name %s", name != NULL ? name : "none");
    IS(cuFuncGetModule(&owner, function("limited")), CUDA_SUCCESS);
    TRUE(owner == mod);
}

CASE(module_parameters, "cuFuncGetParamInfo tells where each parameter is")
{
    CUfunction f = function("many");
    for (size_t i = 0; i < 7; i++) {
        size_t offset = 999, size = 999;
        CUresult r = cuFuncGetParamInfo(f, i, &offset, &size);
        conform_say("%zu: %s at %zu, %zu bytes", i, result_name(r), offset, size);
    }
    size_t offset, size;
    IS(cuFuncGetParamInfo(f, 7, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    IS(cuFuncGetParamInfo(f, 1, &offset, NULL), CUDA_SUCCESS);
    IS(cuFuncGetParamInfo(function("nothing"), 0, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

static long long func_attribute(const char *name, CUfunction_attribute which)
{
    int value = -1;
    OK(cuFuncGetAttribute(&value, which, function(name)));
    return value;
}

CASE(module_function_attributes, "a function's attributes are those of its code")
{
    EQ(func_attribute("fixed", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 4000);
    EQ(func_attribute("set", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 0);
    EQ(func_attribute("limited", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 128);
    EQ(func_attribute("exact", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    EQ(func_attribute("set", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    EQ(func_attribute("set", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 0);
    EQ(func_attribute("set", CU_FUNC_ATTRIBUTE_PTX_VERSION), 70);
    NUM(func_attribute("set", CU_FUNC_ATTRIBUTE_CACHE_MODE_CA));
    TRUE(func_attribute("set", CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
    EQ(func_attribute("set", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 48 << 10);
    NUM(func_attribute("fixed", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
    NUM(func_attribute("set", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT));
}

CASE(module_dynamic_shared, "more than 48 KiB of dynamic shared memory must be asked for first")
{
    CUdeviceptr w = words(1);
    CUfunction f = function("shared");
    void *params[] = {&w};
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 48 << 10, side, params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 48 << 10);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 64 << 10, side, params, NULL),
            CUDA_ERROR_INVALID_VALUE);
    IS(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10),
       CUDA_SUCCESS);
    EQ(func_attribute("shared", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 64 << 10);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 64 << 10, side, params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 64 << 10);
}

CASE(module_attribute_mistakes, "attributes that cannot be set, or not to this value")
{
    CUfunction f = function("shared");
    SEE(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 20));
    SEE(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
    SEE(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
    SEE(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101));
    SEE(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1));
    SEE(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 5));
    SEE(cuFuncSetCacheConfig(f, CU_FUNC_CACHE_PREFER_L1));
    SEE(cuFuncSetCacheConfig(f, (CUfunc_cache)9));
}

CASE(module_jit_log, "a PTX text with a mistake leaves a message in the error log")
{
    char errors[1024] = "", info[1024] = "";
    CUmodule broken = NULL;
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {errors, (void *)sizeof errors, info, (void *)sizeof info};
    IS(cuModuleLoadDataEx(&broken,
                          ".version 7.0\n.target sm_70\n.address_size 64\n.entry e() { ret }\n", 4,
                          names, values),
       CUDA_ERROR_INVALID_PTX);
    TRUE(errors[0] != 0);
    TRUE((size_t)values[1] > 0 && (size_t)values[1] <= sizeof errors);
    TRUE(broken == NULL);
}

CASE(module_jit_options, "options that only tune do not hinder loading")
{
    CUmodule other = NULL;
    CUjit_option names[] = {CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_WALL_TIME,
                            CU_JIT_GENERATE_LINE_INFO};
    void *values[] = {(void *)32, (void *)1, NULL, (void *)0};
    IS(cuModuleLoadDataEx(&other, driver_ptx, 4, names, values), CUDA_SUCCESS);
    TRUE(other != NULL);
}

static const char part_a[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
    ".visible .entry use(.param .u64 to, .param .u32 v)\n{\n"
    ".reg .b64 %a; .reg .b32 %v;\nld.param.u64 %a, [to]; ld.param.u32 %v, [v];\n"
    "{ .param .b32 x; .param .b32 r; st.param.b32 [x], %v;\n"
    "call.uni (r), twice, (x); ld.param.b32 %v, [r]; }\n"
    "st.global.u32 [%a], %v; ret;\n}\n";
static const char part_b[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n.reg .b32 %v;\n"
    "ld.param.b32 %v, [x]; add.u32 %v, %v, %v; st.param.b32 [r], %v; ret;\n}\n";

static CUresult add_text(CUlinkState state, const char *text)
{
    return cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, "part",
                         0, NULL, NULL);
}

CASE(module_linker, "two texts linked together call each other")
{
    CUlinkState state = NULL;
    CUmodule linked = NULL;
    CUfunction f = NULL;
    void *image = NULL;
    size_t size = 0;
    CUdeviceptr w = words(1);
    int value = 21;
    void *params[] = {&w, &value};
    OK(cuLinkCreate(0, NULL, NULL, &state));
    IS(add_text(state, part_a), CUDA_SUCCESS);
    IS(add_text(state, part_b), CUDA_SUCCESS);
    IS(cuLinkComplete(state, &image, &size), CUDA_SUCCESS);
    TRUE(image != NULL && size > 0);
    IS(cuModuleLoadData(&linked, image), CUDA_SUCCESS);
    IS(cuLinkDestroy(state), CUDA_SUCCESS);
    OK(cuModuleGetFunction(&f, linked, "use"));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, side, params, NULL));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 42);
}

/* NVIDIA's driver calls it one or the other, by what it has linked before. */
static const char *link_result(CUresult got)
{
    return got == CUDA_ERROR_INVALID_SOURCE || got == CUDA_ERROR_UNKNOWN ? "fails"
                                                                         : result_name(got);
}

CASE(module_linker_unresolved, "linking fails when a function is nowhere defined")
{
    CUlinkState state = NULL;
    void *image = NULL;
    size_t size = 0;
    OK(cuLinkCreate(0, NULL, NULL, &state));
    SEE(add_text(state, part_a));
    conform_say("linking -> %s", link_result(cuLinkComplete(state, &image, &size)));
    OK(cuLinkDestroy(state));
}

CASE(module_linker_twice_defined, "linking fails when a function is defined twice")
{
    CUlinkState state = NULL;
    void *image = NULL;
    size_t size = 0;
    OK(cuLinkCreate(0, NULL, NULL, &state));
    OK(add_text(state, part_b));
    CUresult second = add_text(state, part_b), whole = cuLinkComplete(state, &image, &size);
    conform_say("adding it or linking -> %s", link_result(second != CUDA_SUCCESS ? second : whole));
    OK(cuLinkDestroy(state));
}

CASE(library_kernels, "a library's kernels are counted, found, named and launched")
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction f = NULL;
    CUmodule inner = NULL;
    unsigned count = 0;
    const char *name = NULL;
    CUdeviceptr w = words(1);
    int value = 61;
    void *params[] = {&w, &value};
    IS(cuLibraryLoadData(&library, driver_ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    IS(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
    NUM(count);
    IS(cuLibraryGetKernel(&kernel, library, "set"), CUDA_SUCCESS);
    IS(cuKernelGetName(&name, kernel), CUDA_SUCCESS);
    conform_say("name %s", name != NULL ? name : "none");
    IS(cuKernelGetFunction(&f, kernel), CUDA_SUCCESS);
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, side, params, NULL));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 61);
    value = 62;
    IS(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, side, params, NULL), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 62);
    IS(cuLibraryGetModule(&inner, library), CUDA_SUCCESS);
    TRUE(inner != NULL);
    IS(cuLibraryUnload(library), CUDA_SUCCESS);
}

CASE(library_enumerates, "a library lists its kernels, and each knows its library")
{
    CUlibrary library = NULL, owner = NULL;
    CUkernel list[32];
    unsigned count = 0;
    OK(cuLibraryLoadData(&library, driver_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernelCount(&count, library));
    IS(cuLibraryEnumerateKernels(list, count < 32 ? count : 32, library), CUDA_SUCCESS);
    IS(cuKernelGetLibrary(&owner, list[0]), CUDA_SUCCESS);
    TRUE(owner == library);
}

CASE(library_globals, "a library's globals are found by name")
{
    CUlibrary library = NULL;
    CUdeviceptr at = 0;
    size_t size = 0;
    OK(cuLibraryLoadData(&library, driver_ptx, NULL, NULL, 0, NULL, NULL, 0));
    IS(cuLibraryGetGlobal(&at, &size, library, "number"), CUDA_SUCCESS);
    EQ(size, 4);
    EQ(peek(at, 0), 7);
    SEE(cuLibraryGetGlobal(&at, &size, library, "absent"));
    SEE(cuLibraryGetManaged(&at, &size, library, "number"));
}

CASE(library_kernel_attributes, "a kernel's attributes can be asked and set per device")
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    int value = -1;
    size_t offset = 0, size = 0;
    OK(cuLibraryLoadData(&library, driver_ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "shared"));
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, dev));
    EQ(value, 48 << 10);
    IS(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10, kernel, dev),
       CUDA_SUCCESS);
    OK(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, dev));
    EQ(value, 64 << 10);
    IS(cuKernelGetParamInfo(kernel, 0, &offset, &size), CUDA_SUCCESS);
    EQ(offset, 0);
    EQ(size, 8);
    SEE(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_SHARED, dev));
}

CASE(library_lives_without_context, "a library loaded before a context works in the context")
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUcontext none = NULL;
    CUdeviceptr w = words(1);
    int value = 63;
    void *params[] = {&w, &value};
    OK(cuCtxPopCurrent(&none));
    IS(cuLibraryLoadData(&library, driver_ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    IS(cuLibraryGetKernel(&kernel, library, "set"), CUDA_SUCCESS);
    OK(cuCtxPushCurrent(none));
    IS(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, side, params, NULL), CUDA_SUCCESS);
    OK(cuStreamSynchronize(side));
    EQ(peek(w, 0), 63);
}

CASE(module_function_loading, "functions are told to be loaded once they were used")
{
    CUmodule other = NULL;
    CUfunction f = NULL;
    CUfunctionLoadingState state = (CUfunctionLoadingState)99;
    OK(cuModuleLoadData(&other, driver_ptx));
    OK(cuModuleGetFunction(&f, other, "count"));
    IS(cuFuncLoad(f), CUDA_SUCCESS);
    IS(cuFuncIsLoaded(&state, f), CUDA_SUCCESS);
    EQ(state, CU_FUNCTION_LOADING_STATE_LOADED);
}
