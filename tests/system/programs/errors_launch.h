/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes with code: images, functions, launches. Part of errors.c. */

/* ---- modules ------------------------------------------------------------------------------- */

CASE(module_null_out, CONTEXT)
{
    say(cuModuleLoadData(NULL, kernels_ptx));
}
CASE(module_null_image, CONTEXT)
{
    say(cuModuleLoadData(&module, NULL));
}
CASE(module_not_ptx, CONTEXT)
{
    say(cuModuleLoadData(&module, "hello, world\n"));
}
CASE(module_empty, CONTEXT)
{
    say(cuModuleLoadData(&module, ""));
}
CASE(module_syntax, CONTEXT)
{
    say(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry k()\n{\n    bogus.u32 %r1;\n}\n"));
}
CASE(module_undeclared_register, CONTEXT)
{
    say(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry k()\n{\n    mov.u32 %r1, 1;\n    ret;\n}\n"));
}
CASE(module_unresolved, CONTEXT)
{
    say(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".extern .func absent();\n"
                                  ".visible .entry k()\n{\n    call absent;\n    ret;\n}\n"));
}
CASE(module_future_version, CONTEXT)
{
    say(cuModuleLoadData(&module, ".version 99.9\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry k()\n{\n    ret;\n}\n"));
}
CASE(module_corrupt_elf, CONTEXT)
{
    static uint64_t image[512] = {0x00010102464c457f}; /* ELF, and then nothing of sense */
    say(cuModuleLoadData(&module, image));
}
ALONE(module_corrupt_fat_binary, CONTEXT)
{
    static uint32_t image[256] = {0xba55ed50, 0x00100001, 64, 0, 0xffffffff};
    say(cuModuleLoadData(&module, image));
}
CASE(module_no_file, CONTEXT)
{
    say(cuModuleLoad(&module, "/nonexistent/file.cubin"));
}
CASE(module_unload_null, CONTEXT)
{
    say_and_sync(cuModuleUnload(NULL));
}
ALONE(module_unload_twice, MODULE)
{
    NEED(cuModuleUnload(module));
    say_and_sync(cuModuleUnload(module));
}
CASE(function_missing, MODULE)
{
    say(cuModuleGetFunction(&poke, module, "no_such_kernel"));
}
CASE(function_empty_name, MODULE)
{
    say(cuModuleGetFunction(&poke, module, ""));
}
CASE(function_null_name, MODULE)
{
    say(cuModuleGetFunction(&poke, module, NULL));
}
CASE(function_null_module, MODULE)
{
    say(cuModuleGetFunction(&poke, NULL, "poke"));
}
CASE(function_null_out, MODULE)
{
    say(cuModuleGetFunction(NULL, module, "poke"));
}
CASE(global_missing, MODULE)
{
    say(cuModuleGetGlobal(&memory, NULL, module, "no_such_variable"));
}
CASE(global_of_function, MODULE)
{
    say(cuModuleGetGlobal(&memory, NULL, module, "poke"));
}
CASE(function_attribute_unknown, MODULE)
{
    int value;
    say(cuFuncGetAttribute(&value, (CUfunction_attribute)99, poke));
}
CASE(function_attribute_null, MODULE)
{
    say(cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, poke));
}
CASE(function_set_read_only, MODULE)
{
    say(cuFuncSetAttribute(poke, CU_FUNC_ATTRIBUTE_NUM_REGS, 3));
}
CASE(function_set_shared_too_big, MODULE)
{
    say(cuFuncSetAttribute(poke, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 10 << 20));
}
CASE(library_null_image, CONTEXT)
{
    CUlibrary library;
    say(cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
}
CASE(library_kernel_missing, CONTEXT)
{
    CUlibrary library;
    CUkernel kernel;
    NEED(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    say(cuLibraryGetKernel(&kernel, library, "no_such_kernel"));
}
CASE(link_no_file, CONTEXT)
{
    CUlinkState link;
    NEED(cuLinkCreate(0, NULL, NULL, &link));
    say(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nonexistent/file.ptx", 0, NULL, NULL));
}
CASE(link_bad_ptx, CONTEXT)
{
    CUlinkState link;
    NEED(cuLinkCreate(0, NULL, NULL, &link));
    say(cuLinkAddData(link, CU_JIT_INPUT_PTX, "no ptx", 7, "name", 0, NULL, NULL));
}
CASE(occupancy_null, MODULE)
{
    say(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, poke, 32, 0));
}
CASE(occupancy_no_threads, MODULE)
{
    int blocks;
    say(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, poke, 0, 0));
}

/* ---- launches ------------------------------------------------------------------------------ */

CASE(launch_null_function, MODULE)
{
    say_and_sync(launch(NULL, 1, 1, NULL));
}
CASE(launch_no_blocks, MODULE)
{
    say_and_sync(launch(nothing, 0, 1, NULL));
}
CASE(launch_no_threads, MODULE)
{
    say_and_sync(launch(nothing, 1, 0, NULL));
}
CASE(launch_1025_threads, MODULE)
{
    say_and_sync(launch(nothing, 1, 1025, NULL));
}
CASE(launch_33_x_32_threads, MODULE)
{
    say_and_sync(cuLaunchKernel(nothing, 1, 1, 1, 33, 32, 1, 0, NULL, NULL, NULL));
}
CASE(launch_65_deep, MODULE)
{
    say_and_sync(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
}
CASE(launch_grid_65536_high, MODULE)
{
    say_and_sync(cuLaunchKernel(nothing, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}
CASE(launch_grid_2_31_wide, MODULE)
{
    say_and_sync(cuLaunchKernel(nothing, 1u << 31, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}
CASE(launch_shared_too_much, MODULE)
{
    say_and_sync(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 10 << 20, NULL, NULL, NULL));
}
CASE(launch_shared_not_opted_in, MODULE)
{
    say_and_sync(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 49153, NULL, NULL, NULL));
}
CASE(launch_over_maxntid, MODULE)
{
    CUfunction bounded;
    NEED(cuModuleGetFunction(&bounded, module, "bounded"));
    say_and_sync(launch(bounded, 1, 128, NULL));
}
CASE(launch_not_reqntid, MODULE)
{
    CUfunction exact;
    NEED(cuModuleGetFunction(&exact, module, "exact"));
    say_and_sync(launch(exact, 1, 16, NULL));
}
CASE(launch_no_params, MODULE)
{
    say_and_sync(launch(poke, 1, 1, NULL));
}
CASE(launch_both_forms, MODULE)
{
    size_t size = 8;
    void *params[] = {&memory};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    say_and_sync(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra));
}
ALONE(launch_extra_too_short, MODULE)
{
    size_t size = 4;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &memory, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    say_and_sync(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
}
CASE(launch_extra_unknown_tag, MODULE)
{
    void *extra[] = {(void *)77, &memory, CU_LAUNCH_PARAM_END};
    say_and_sync(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
}
CASE(launch_cooperative_too_large, MODULE)
{
    say_and_sync(cuLaunchCooperativeKernel(nothing, 1 << 20, 1, 1, 1024, 1, 1, 0, NULL, NULL));
}
CASE(launch_ex_null, MODULE)
{
    say_and_sync(cuLaunchKernelEx(NULL, nothing, NULL, NULL));
}
CASE(launch_ex_unknown_attribute, MODULE)
{
    CUlaunchAttribute attribute = {.id = (CUlaunchAttributeID)200};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
    say_and_sync(cuLaunchKernelEx(&config, nothing, NULL, NULL));
}
CASE(launch_ex_cluster_does_not_divide, MODULE)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {2, 1, 1}};
    CUlaunchConfig config = {3, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};
    say_and_sync(cuLaunchKernelEx(&config, nothing, NULL, NULL));
}
CASE(launch_then_next_works, MODULE)
{
    say(launch(nothing, 1, 1025, NULL));
    cuCtxSynchronize();
    CUresult next = launch(nothing, 1, 32, NULL);
    then(next != CUDA_SUCCESS ? next : cuCtxSynchronize());
}

/* The runtime loads and looks up before the program has a context. */
static CUkernel kernel_without_context(void)
{
    CUlibrary library;
    CUkernel kernel;
    NEED(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    NEED(cuLibraryGetKernel(&kernel, library, "poke"));
    return kernel;
}
ALONE(launch_of_a_kernel_looked_up_early, INIT)
{
    CUkernel kernel = kernel_without_context();
    NEED(cuCtxCreate(&context, NULL, 0, device));
    NEED(cuMemAlloc(&memory, 16));
    void *params[] = {&memory};
    say_and_sync(launch((CUfunction)kernel, 1, 1, params));
}
ALONE(kernel_params_without_context, INIT)
{
    size_t offset, size;
    say(cuKernelGetParamInfo(kernel_without_context(), 0, &offset, &size));
}
