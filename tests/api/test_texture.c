/* Arrays, mipmaps, texture and surface objects, tensor maps. */
#include "api.h"

enum { WIDTH = 64, HEIGHT = 16 };

/* fetch(unsigned long long texture, float *out, int width): out[y * width + x] = texel (x, y) */
static const char texture_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry fetch(.param .u64 p0, .param .u64 p1, .param .u32 p2)\n{\n"
    ".reg .u64 %t, %a, %o; .reg .u32 %x, %y, %w, %i; .reg .s32 %sx, %sy; .reg .f32 %r, %g, %b, "
    "%c;\n"
    "ld.param.u64 %t, [p0]; ld.param.u64 %a, [p1]; ld.param.u32 %w, [p2];\n"
    "mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mov.b32 %sx, %x; mov.b32 %sy, %y;\n"
    "tex.2d.v4.f32.s32 {%r, %g, %b, %c}, [%t, {%sx, %sy}];\n"
    "mad.lo.u32 %i, %y, %w, %x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;\n"
    "st.global.f32 [%a], %r; ret;\n}\n";

static void array_keeps_its_description(void)
{
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR made = {.Width = WIDTH,
                                    .Height = HEIGHT,
                                    .Depth = 4,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 2},
                            got = {0};
    OK(cuArray3DCreate(&array, &made));
    OK(cuArray3DGetDescriptor(&got, array));
    EQUAL(got.Width, WIDTH);
    EQUAL(got.Height, HEIGHT);
    EQUAL(got.Depth, 4);
    EQUAL(got.Format, CU_AD_FORMAT_FLOAT);
    EQUAL(got.NumChannels, 2);
    OK(cuArrayDestroy(array));
    EQUAL(cuArrayCreate(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuArray3DCreate(&array, NULL), CUDA_ERROR_INVALID_VALUE);
}

static CUarray filled_array(float *values)
{
    CUarray array = NULL;
    CUDA_ARRAY_DESCRIPTOR made = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    OK(cuArrayCreate(&array, &made));
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        values[i] = (float)i / 4;
    }
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = values,
                          .srcPitch = WIDTH * sizeof(float),
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * sizeof(float),
                          .Height = HEIGHT};
    OK(cuMemcpy2D(&copy));
    return array;
}

static void texture_reads_its_array(void)
{
    static float values[WIDTH * HEIGHT], read[WIDTH * HEIGHT];
    CUarray array = filled_array(values);
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    CUDA_TEXTURE_DESC how = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP,
                                             CU_TR_ADDRESS_MODE_CLAMP},
                             .filterMode = CU_TR_FILTER_MODE_POINT};
    CUtexObject texture = 0;
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    CUDA_RESOURCE_DESC again = {0};
    OK(cuTexObjectGetResourceDesc(&again, texture));
    EQUAL(again.resType, CU_RESOURCE_TYPE_ARRAY);
    TRUE(again.res.array.hArray == array); /* the handle that the program knows */
    CUDA_TEXTURE_DESC told = {0};
    OK(cuTexObjectGetTextureDesc(&told, texture));
    EQUAL(told.filterMode, CU_TR_FILTER_MODE_POINT);

    CUmodule module = NULL;
    CUfunction fetch = NULL;
    CUdeviceptr out = 0;
    int width = WIDTH;
    OK(cuModuleLoadData(&module, texture_ptx));
    OK(cuModuleGetFunction(&fetch, module, "fetch"));
    OK(cuMemAlloc(&out, sizeof read));
    void *params[] = {&texture, &out, &width};
    OK(cuLaunchKernel(fetch, HEIGHT, 1, 1, WIDTH, 1, 1, 0, NULL, params, NULL));
    OK(cuMemcpyDtoH(read, out, sizeof read));
    EQUAL(memcmp(read, values, sizeof read), 0);
    OK(cuMemFree(out));
    OK(cuModuleUnload(module));
    OK(cuTexObjectDestroy(texture));
    OK(cuArrayDestroy(array));
}

static void texture_of_linear_memory(void)
{
    CUdeviceptr memory = 0;
    CUtexObject texture = 0;
    OK(cuMemAlloc(&memory, 4096));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                   .res.linear = {.devPtr = memory,
                                                  .format = CU_AD_FORMAT_UNSIGNED_INT32,
                                                  .numChannels = 1,
                                                  .sizeInBytes = 4096}};
    CUDA_TEXTURE_DESC how = {.flags = CU_TRSF_READ_AS_INTEGER};
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    CUDA_RESOURCE_DESC again = {0};
    OK(cuTexObjectGetResourceDesc(&again, texture));
    EQUAL(again.resType, CU_RESOURCE_TYPE_LINEAR);
    EQUAL(again.res.linear.devPtr, memory);
    EQUAL(again.res.linear.sizeInBytes, 4096);
    OK(cuTexObjectDestroy(texture));
    OK(cuMemFree(memory));
    EQUAL(cuTexObjectCreate(NULL, &resource, &how, NULL), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuTexObjectCreate(&texture, NULL, &how, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void surface_knows_its_array(void)
{
    CUarray array = NULL;
    CUsurfObject surface = 0;
    CUDA_ARRAY3D_DESCRIPTOR made = {.Width = WIDTH,
                                    .Height = HEIGHT,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                    .NumChannels = 1,
                                    .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    OK(cuArray3DCreate(&array, &made));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    CUDA_RESOURCE_DESC again = {0};
    OK(cuSurfObjectCreate(&surface, &resource));
    OK(cuSurfObjectGetResourceDesc(&again, surface));
    TRUE(again.res.array.hArray == array);
    OK(cuSurfObjectDestroy(surface));
    OK(cuArrayDestroy(array));
}

static void mipmap_has_levels(void)
{
    CUmipmappedArray mipmap = NULL;
    CUarray level = NULL, same = NULL;
    CUDA_ARRAY3D_DESCRIPTOR made = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR got = {0};
    OK(cuMipmappedArrayCreate(&mipmap, &made, 3));
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 1));
    OK(cuMipmappedArrayGetLevel(&same, mipmap, 1));
    OK(cuArray3DGetDescriptor(&got, level));
    EQUAL(got.Width, WIDTH / 2);
    EQUAL(got.Height, HEIGHT / 2);
    TRUE(same == level);
    EQUAL(cuMipmappedArrayGetLevel(&same, mipmap, 9), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                                   .res.mipmap.hMipmappedArray = mipmap};
    CUDA_TEXTURE_DESC how = {.flags = CU_TRSF_NORMALIZED_COORDINATES, .maxMipmapLevelClamp = 2};
    CUDA_RESOURCE_DESC again = {0};
    CUtexObject texture = 0;
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    OK(cuTexObjectGetResourceDesc(&again, texture));
    TRUE(again.res.mipmap.hMipmappedArray == mipmap);
    OK(cuTexObjectDestroy(texture));
    OK(cuMipmappedArrayDestroy(mipmap));
}

/* Equal shapes are answered from memory: whatever the address, the bytes are those of an encoding
 * of its own. */
static void tensor_maps_are_as_encoded(void)
{
    CUdeviceptr memory = 0;
    OK(cuMemAlloc(&memory, 1 << 20));
    CUtensorMap map[4];
    cuuint64_t dim[] = {64, 64}, stride[] = {64 * 4};
    cuuint32_t box[] = {32, 32}, step[] = {1, 1};
    memset(map, 0, sizeof map);
    CUresult first = CUDA_SUCCESS;
    for (int i = 0; i < 2; i++) {
        CUresult result = cuTensorMapEncodeTiled(
            &map[i], CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)(memory + 65536u * i),
            dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        first = i == 0 ? result : first;
        EQUAL(result, first);
    }
    if (first == CUDA_ERROR_NOT_SUPPORTED) {
        printf("tensor maps are not supported by this device\n");
    } else {
        OK(first);
        map[2] = map[0];
        OK(cuTensorMapReplaceAddress(&map[2], (void *)(uintptr_t)(memory + 65536)));
        EQUAL(memcmp(&map[2], &map[1], sizeof map[1]), 0);
        TRUE(memcmp(&map[0], &map[1], sizeof map[0]) != 0);
        /* An address that is not aligned is refused, cached shape or not. */
        EQUAL(cuTensorMapEncodeTiled(
                  &map[3], CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)(memory + 4), dim,
                  stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_ERROR_INVALID_VALUE);
    }
    EQUAL(cuTensorMapEncodeTiled(
              &map[3], CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 0, (void *)(uintptr_t)memory, dim, stride,
              box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(memory));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    array_keeps_its_description();
    texture_reads_its_array();
    texture_of_linear_memory();
    surface_knows_its_array();
    mipmap_has_levels();
    tensor_maps_are_as_encoded();
    return api_end(&api);
}
