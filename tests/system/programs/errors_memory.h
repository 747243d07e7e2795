/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes with memory: allocations, copies, memsets, arrays, textures. Part of errors.c. */

/* ---- memory -------------------------------------------------------------------------------- */

CASE(alloc_null, CONTEXT)
{
    say(cuMemAlloc(NULL, 16));
}
CASE(alloc_zero, CONTEXT)
{
    say(cuMemAlloc(&memory, 0));
}
CASE(alloc_too_much, CONTEXT)
{
    say(cuMemAlloc(&memory, (size_t)1 << 60));
}
CASE(alloc_twice_the_total, CONTEXT)
{
    size_t total;
    NEED(cuDeviceTotalMem(&total, device));
    say(cuMemAlloc(&memory, 2 * total));
}
ALONE(alloc_after_out_of_memory, CONTEXT)
{
    say(cuMemAlloc(&memory, (size_t)1 << 60));
    then(cuMemAlloc(&memory, 16));
}
CASE(free_null, CONTEXT)
{
    say_and_sync(cuMemFree(0));
}
CASE(free_garbage, CONTEXT)
{
    say_and_sync(cuMemFree(0xdead0000));
}
ALONE(free_inside, CONTEXT)
{
    say_and_sync(cuMemFree(memory + 256));
}
CASE(free_misaligned, CONTEXT)
{
    say_and_sync(cuMemFree(memory + 1));
}
CASE(free_twice, CONTEXT)
{
    NEED(cuMemFree(memory));
    say_and_sync(cuMemFree(memory));
}
CASE(free_host_pointer, CONTEXT)
{
    say_and_sync(cuMemFree((CUdeviceptr)(uintptr_t)host));
}
CASE(free_pinned_as_device, CONTEXT)
{
    void *pinned;
    NEED(cuMemAllocHost(&pinned, 4096));
    say_and_sync(cuMemFree((CUdeviceptr)(uintptr_t)pinned));
}
CASE(free_host_of_malloc, CONTEXT)
{
    say(cuMemFreeHost(malloc(64)));
}
CASE(free_host_of_device, CONTEXT)
{
    say(cuMemFreeHost((void *)(uintptr_t)memory));
}
CASE(free_host_null, CONTEXT)
{
    say(cuMemFreeHost(NULL));
}
CASE(free_host_twice, CONTEXT)
{
    void *pinned;
    NEED(cuMemAllocHost(&pinned, 4096));
    NEED(cuMemFreeHost(pinned));
    say(cuMemFreeHost(pinned));
}
CASE(free_host_inside, CONTEXT)
{
    char *pinned;
    NEED(cuMemAllocHost((void **)&pinned, 4096));
    say(cuMemFreeHost(pinned + 64));
}
CASE(host_alloc_null, CONTEXT)
{
    say(cuMemHostAlloc(NULL, 64, 0));
}
CASE(host_alloc_flags, CONTEXT)
{
    void *pinned;
    say(cuMemHostAlloc(&pinned, 64, 0x100));
}
CASE(host_alloc_zero, CONTEXT)
{
    void *pinned;
    say(cuMemHostAlloc(&pinned, 0, 0));
}
CASE(host_register_null, CONTEXT)
{
    say(cuMemHostRegister(NULL, 4096, 0));
}
CASE(host_register_zero, CONTEXT)
{
    say(cuMemHostRegister(host, 0, 0));
}
CASE(host_register_flags, CONTEXT)
{
    say(cuMemHostRegister(aligned_alloc(4096, 4096), 4096, 0x80));
}
CASE(host_register_twice, CONTEXT)
{
    void *block = aligned_alloc(4096, 8192);
    NEED(cuMemHostRegister(block, 8192, 0));
    say(cuMemHostRegister(block, 8192, 0));
}
CASE(host_register_overlap, CONTEXT)
{
    char *block = aligned_alloc(4096, 8192);
    NEED(cuMemHostRegister(block, 8192, 0));
    say(cuMemHostRegister(block + 4096, 4096, 0));
}
CASE(host_unregister_unknown, CONTEXT)
{
    say(cuMemHostUnregister(aligned_alloc(4096, 4096)));
}
CASE(host_unregister_twice, CONTEXT)
{
    void *block = aligned_alloc(4096, 4096);
    NEED(cuMemHostRegister(block, 4096, 0));
    NEED(cuMemHostUnregister(block));
    say(cuMemHostUnregister(block));
}
CASE(host_pointer_of_malloc, CONTEXT)
{
    say(cuMemHostGetDevicePointer(&memory, malloc(64), 0));
}
CASE(host_pointer_flags, CONTEXT)
{
    void *pinned;
    NEED(cuMemAllocHost(&pinned, 4096));
    say(cuMemHostGetDevicePointer(&memory, pinned, 5));
}
CASE(host_flags_of_malloc, CONTEXT)
{
    unsigned flags;
    say(cuMemHostGetFlags(&flags, malloc(64)));
}
CASE(address_range_garbage, CONTEXT)
{
    size_t size;
    say(cuMemGetAddressRange(&memory, &size, NOWHERE));
}
ALONE(address_range_freed, CONTEXT)
{
    CUdeviceptr base;
    size_t size;
    NEED(cuMemFree(memory));
    say(cuMemGetAddressRange(&base, &size, memory));
}
CASE(pitch_element_3, CONTEXT)
{
    size_t pitch;
    say(cuMemAllocPitch(&memory, &pitch, 100, 10, 3));
}
CASE(pitch_zero_width, CONTEXT)
{
    size_t pitch;
    say(cuMemAllocPitch(&memory, &pitch, 0, 10, 4));
}
CASE(pitch_null, CONTEXT)
{
    say(cuMemAllocPitch(&memory, NULL, 100, 10, 4));
}
CASE(managed_flags_zero, CONTEXT)
{
    say(cuMemAllocManaged(&memory, 64, 0));
}
CASE(managed_flags_unknown, CONTEXT)
{
    say(cuMemAllocManaged(&memory, 64, 0x70));
}
CASE(managed_zero, CONTEXT)
{
    say(cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL));
}
CASE(pointer_attribute_of_malloc, CONTEXT)
{
    CUmemorytype type;
    say(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                              (CUdeviceptr)(uintptr_t)malloc(64)));
}
CASE(pointer_attribute_unknown, CONTEXT)
{
    uint64_t value;
    say(cuPointerGetAttribute(&value, (CUpointer_attribute)999, memory));
}
CASE(pointer_attribute_null, CONTEXT)
{
    say(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
}
ALONE(pointer_attribute_freed, CONTEXT)
{
    CUmemorytype type;
    NEED(cuMemFree(memory));
    say(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
}
CASE(free_async_garbage, CONTEXT)
{
    say_and_sync(cuMemFreeAsync(0x123400, NULL));
}
CASE(pool_create_null, CONTEXT)
{
    say(cuMemPoolCreate(NULL, NULL));
}
CASE(vmm_create_zero, CONTEXT)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    say(cuMemCreate(&handle, 0, &prop, 0));
}
CASE(vmm_create_odd_size, CONTEXT)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    say(cuMemCreate(&handle, 1000, &prop, 0));
}
CASE(vmm_reserve_zero, CONTEXT)
{
    say(cuMemAddressReserve(&memory, 0, 0, 0, 0));
}
CASE(vmm_unmap_nothing, CONTEXT)
{
    say(cuMemUnmap(0x7000000000, 2 << 20));
}

/* ---- copies and memsets -------------------------------------------------------------------- */

CASE(copy_to_null, CONTEXT)
{
    say_and_sync(cuMemcpyHtoD(0, host, 16));
}
CASE(copy_from_null_host, CONTEXT)
{
    say_and_sync(cuMemcpyHtoD(memory, NULL, 16));
}
CASE(copy_to_null_host, CONTEXT)
{
    say(cuMemcpyDtoH(NULL, memory, 16));
}
CASE(copy_from_null, CONTEXT)
{
    say(cuMemcpyDtoH(host, 0, 16));
}
CASE(copy_nothing_to_null, CONTEXT)
{
    say_and_sync(cuMemcpyHtoD(0, NULL, 0));
}
ALONE(copy_to_past_the_end, CONTEXT)
{
    size_t much = SIZE + (256 << 20);
    say_and_sync(cuMemcpyHtoD(memory, calloc(1, much), much));
}
ALONE(copy_from_past_the_end, CONTEXT)
{
    size_t much = SIZE + (256 << 20);
    say(cuMemcpyDtoH(malloc(much), memory, much));
}
ALONE(copy_to_freed, CONTEXT)
{
    NEED(cuMemFree(memory));
    say_and_sync(cuMemcpyHtoD(memory, host, 16));
}
ALONE(copy_from_freed, CONTEXT)
{
    NEED(cuMemFree(memory));
    say(cuMemcpyDtoH(host, memory, 16));
}
CASE(copy_inside_from_garbage, CONTEXT)
{
    say_and_sync(cuMemcpyDtoD(memory, NOWHERE, 16));
}
CASE(copy_inside_to_garbage, CONTEXT)
{
    say_and_sync(cuMemcpyDtoD(NOWHERE, memory, 16));
}
CASE(copy_up_swapped, CONTEXT)
{
    say_and_sync(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)host, (void *)(uintptr_t)memory, 16));
}
CASE(copy_down_swapped, CONTEXT)
{
    say(cuMemcpyDtoH((void *)(uintptr_t)memory, (CUdeviceptr)(uintptr_t)host, 16));
}
CASE(copy_up_to_host, CONTEXT)
{
    say_and_sync(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)(host + 128), host, 16));
}
CASE(copy_async_to_null, CONTEXT)
{
    say_and_sync(cuMemcpyHtoDAsync(0, host, 16, NULL));
}
CASE(copy_then_alloc, CONTEXT)
{
    /* An old copy's error is not the allocation's. */
    CUdeviceptr other;
    say(cuMemcpyHtoDAsync(NOWHERE, host, 16, NULL));
    CUresult alloc = cuMemAlloc(&other, 16);
    then(cuCtxSynchronize());
    printf(" and alloc");
    say(alloc);
}
CASE(memset_null, CONTEXT)
{
    say_and_sync(cuMemsetD32(0, 1, 4));
}
CASE(memset_d32_misaligned, CONTEXT)
{
    say_and_sync(cuMemsetD32(memory + 2, 1, 4));
}
CASE(memset_d16_misaligned, CONTEXT)
{
    say_and_sync(cuMemsetD16(memory + 1, 1, 4));
}
ALONE(memset_past_the_end, CONTEXT)
{
    say_and_sync(cuMemsetD8(memory, 1, SIZE + (256 << 20)));
}
ALONE(memset_freed, CONTEXT)
{
    NEED(cuMemFree(memory));
    say_and_sync(cuMemsetD8(memory, 1, 16));
}
CASE(memset_2d_small_pitch, CONTEXT)
{
    say_and_sync(cuMemsetD2D8(memory, 8, 1, 16, 4));
}
CASE(copy_2d_null, CONTEXT)
{
    say(cuMemcpy2D(NULL));
}
CASE(copy_2d_small_pitch, CONTEXT)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 8,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 32,
                          .WidthInBytes = 16,
                          .Height = 4};
    say_and_sync(cuMemcpy2D(&copy));
}
CASE(copy_2d_memory_type, CONTEXT)
{
    CUDA_MEMCPY2D copy = {.srcMemoryType = (CUmemorytype)99,
                          .srcHost = host,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = memory,
                          .dstPitch = 16,
                          .WidthInBytes = 16,
                          .Height = 4};
    say_and_sync(cuMemcpy2D(&copy));
}
CASE(copy_3d_outside_array, CONTEXT)
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 16,
                                    .Height = 16,
                                    .Depth = 4,
                                    .NumChannels = 1,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT8};
    NEED(cuArray3DCreate(&array, &desc));
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 16,
                          .srcHeight = 16,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .dstXInBytes = 8,
                          .WidthInBytes = 16,
                          .Height = 4,
                          .Depth = 1};
    say_and_sync(cuMemcpy3D(&copy));
}

/* ---- arrays and textures ------------------------------------------------------------------- */

static CUresult create_array(size_t width, unsigned channels, unsigned format)
{
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR desc = {width, 16, (CUarray_format)format, channels};
    return cuArrayCreate(&array, &desc);
}
CASE(array_null, CONTEXT)
{
    CUarray array;
    say(cuArrayCreate(&array, NULL));
}
CASE(array_no_width, CONTEXT)
{
    say(create_array(0, 1, CU_AD_FORMAT_FLOAT));
}
CASE(array_three_channels, CONTEXT)
{
    say(create_array(16, 3, CU_AD_FORMAT_FLOAT));
}
CASE(array_format, CONTEXT)
{
    say(create_array(16, 1, 0x77));
}
CASE(array_too_wide, CONTEXT)
{
    say(create_array(1 << 20, 1, CU_AD_FORMAT_FLOAT));
}
CASE(array_destroy_null, CONTEXT)
{
    say(cuArrayDestroy(NULL));
}
CASE(texture_null, CONTEXT)
{
    CUtexObject texture;
    say(cuTexObjectCreate(&texture, NULL, NULL, NULL));
}
CASE(texture_resource_type, CONTEXT)
{
    CUtexObject texture;
    CUDA_RESOURCE_DESC resource = {.resType = (CUresourcetype)9};
    CUDA_TEXTURE_DESC how = {.flags = 0};
    say(cuTexObjectCreate(&texture, &resource, &how, NULL));
}
CASE(texture_linear_misaligned, CONTEXT)
{
    CUtexObject texture;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR};
    CUDA_TEXTURE_DESC how = {.flags = 0};
    resource.res.linear.devPtr = memory + 4;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 1024;
    say(cuTexObjectCreate(&texture, &resource, &how, NULL));
}
