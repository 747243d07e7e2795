/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, mipmaps, texture and surface objects, tensor maps. */
#include "api.h"

enum { WIDTH = 64, HEIGHT = 16, DEPTH = 3 };

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
    "st.global.f32 [%a], %r; ret;\n}\n"
    /* level(unsigned long long texture, float *out, int width, int height, float level):
     * out[y * width + x] = what the texture has in the middle of texel (x, y) of that level */
    ".visible .entry level(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3, "
    ".param .f32 p4)\n{\n"
    ".reg .u64 %t, %a, %o; .reg .u32 %x, %y, %w, %h, %i; .reg .f32 %u, %v, %s, %l, %r, %g, %b, "
    "%c;\n"
    "ld.param.u64 %t, [p0]; ld.param.u64 %a, [p1]; ld.param.u32 %w, [p2]; ld.param.u32 %h, [p3];\n"
    "ld.param.f32 %l, [p4]; mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x;\n"
    "cvt.rn.f32.u32 %u, %x; add.f32 %u, %u, 0f3F000000; cvt.rn.f32.u32 %s, %w; "
    "div.rn.f32 %u, %u, %s;\n"
    "cvt.rn.f32.u32 %v, %y; add.f32 %v, %v, 0f3F000000; cvt.rn.f32.u32 %s, %h; "
    "div.rn.f32 %v, %v, %s;\n"
    "tex.level.2d.v4.f32.f32 {%r, %g, %b, %c}, [%t, {%u, %v}], %l;\n"
    "mad.lo.u32 %i, %y, %w, %x; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;\n"
    "st.global.f32 [%a], %r; ret;\n}\n"
    /* layered(texture, out, width, height), volume(texture, out, width, height): blocks are rows
     * and layers or planes */
    ".visible .entry layered(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)\n{\n"
    ".reg .u64 %t, %a, %o; .reg .u32 %x, %y, %z, %w, %h, %i; .reg .f32 %r, %g, %b, %c;\n"
    "ld.param.u64 %t, [p0]; ld.param.u64 %a, [p1]; ld.param.u32 %w, [p2]; ld.param.u32 %h, [p3];\n"
    "mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mov.u32 %z, %ctaid.y;\n"
    "tex.a2d.v4.f32.s32 {%r, %g, %b, %c}, [%t, {%z, %x, %y, %y}];\n"
    "mad.lo.u32 %i, %z, %h, %y; mad.lo.u32 %i, %i, %w, %x; mul.wide.u32 %o, %i, 4;\n"
    "add.u64 %a, %a, %o; st.global.f32 [%a], %r; ret;\n}\n"
    ".visible .entry volume(.param .u64 p0, .param .u64 p1, .param .u32 p2, .param .u32 p3)\n{\n"
    ".reg .u64 %t, %a, %o; .reg .u32 %x, %y, %z, %w, %h, %i; .reg .f32 %r, %g, %b, %c;\n"
    "ld.param.u64 %t, [p0]; ld.param.u64 %a, [p1]; ld.param.u32 %w, [p2]; ld.param.u32 %h, [p3];\n"
    "mov.u32 %x, %tid.x; mov.u32 %y, %ctaid.x; mov.u32 %z, %ctaid.y;\n"
    "tex.3d.v4.f32.s32 {%r, %g, %b, %c}, [%t, {%x, %y, %z, %z}];\n"
    "mad.lo.u32 %i, %z, %h, %y; mad.lo.u32 %i, %i, %w, %x; mul.wide.u32 %o, %i, 4;\n"
    "add.u64 %a, %a, %o; st.global.f32 [%a], %r; ret;\n}\n";

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

static const CUDA_TEXTURE_DESC nearest = {
    .addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP},
    .filterMode = CU_TR_FILTER_MODE_POINT};

/* Texels in layers or in the planes of a volume, each read by its place. */
static void texture_reads_layers_or_planes(const char *kernel, unsigned flags)
{
    static float values[DEPTH * HEIGHT * WIDTH], read[DEPTH * HEIGHT * WIDTH];
    CUarray array = NULL;
    CUtexObject texture = 0;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUdeviceptr out = 0;
    int width = WIDTH, height = HEIGHT;
    CUDA_ARRAY3D_DESCRIPTOR made = {.Width = WIDTH,
                                    .Height = HEIGHT,
                                    .Depth = DEPTH,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 1,
                                    .Flags = flags};
    OK(cuArray3DCreate(&array, &made));
    for (int i = 0; i < DEPTH * HEIGHT * WIDTH; i++) {
        values[i] = (float)i / 8;
    }
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = values,
                          .srcPitch = WIDTH * sizeof(float),
                          .srcHeight = HEIGHT,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = WIDTH * sizeof(float),
                          .Height = HEIGHT,
                          .Depth = DEPTH};
    OK(cuMemcpy3D(&copy));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    OK(cuTexObjectCreate(&texture, &resource, &nearest, NULL));
    OK(cuModuleLoadData(&module, texture_ptx));
    OK(cuModuleGetFunction(&function, module, kernel));
    OK(cuMemAlloc(&out, sizeof read));
    void *params[] = {&texture, &out, &width, &height};
    OK(cuLaunchKernel(function, HEIGHT, DEPTH, 1, WIDTH, 1, 1, 0, NULL, params, NULL));
    OK(cuMemcpyDtoH(read, out, sizeof read));
    EQUAL(memcmp(read, values, sizeof read), 0);
    OK(cuMemFree(out));
    OK(cuModuleUnload(module));
    OK(cuTexObjectDestroy(texture));
    OK(cuArrayDestroy(array));
}

static void fill_level(CUmipmappedArray mipmap, unsigned index, float first)
{
    static float values[WIDTH * HEIGHT];
    CUarray level = NULL;
    size_t width = WIDTH >> index, height = HEIGHT >> index;
    OK(cuMipmappedArrayGetLevel(&level, mipmap, index));
    for (size_t i = 0; i < width * height; i++) {
        values[i] = first + (float)i;
    }
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = values,
                          .srcPitch = width * sizeof(float),
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = level,
                          .WidthInBytes = width * sizeof(float),
                          .Height = height};
    OK(cuMemcpy2D(&copy));
}

/* Reads as many texels as level `index` has, at `level`. */
static void read_level(CUfunction kernel, CUtexObject texture, unsigned index, float level,
                       float *ret_read)
{
    int width = WIDTH >> index, height = HEIGHT >> index;
    size_t size = (size_t)width * (size_t)height * sizeof(float);
    CUdeviceptr out = 0;
    OK(cuMemAlloc(&out, size));
    void *params[] = {&texture, &out, &width, &height, &level};
    OK(cuLaunchKernel(kernel, (unsigned)height, 1, 1, (unsigned)width, 1, 1, 0, NULL, params,
                      NULL));
    OK(cuMemcpyDtoH(ret_read, out, size));
    OK(cuMemFree(out));
}

static void mipmap_levels_are_sampled(void)
{
    static float read[WIDTH * HEIGHT];
    CUmipmappedArray mipmap = NULL;
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    CUtexObject texture = 0;
    CUDA_ARRAY3D_DESCRIPTOR made = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    OK(cuMipmappedArrayCreate(&mipmap, &made, 3));
    fill_level(mipmap, 0, 1000);
    fill_level(mipmap, 1, 5000);
    fill_level(mipmap, 2, 9000);
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                                   .res.mipmap.hMipmappedArray = mipmap};
    CUDA_TEXTURE_DESC how = nearest;
    how.flags = CU_TRSF_NORMALIZED_COORDINATES;
    how.maxMipmapLevelClamp = 2;
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    OK(cuModuleLoadData(&module, texture_ptx));
    OK(cuModuleGetFunction(&kernel, module, "level"));
    const float first[] = {1000, 5000, 9000};
    for (unsigned index = 0; index < 3; index++) {
        read_level(kernel, texture, index, (float)index, read);
        for (int i = 0; i < (WIDTH >> index) * (HEIGHT >> index); i++) {
            EQUAL(read[i], first[index] + (float)i);
        }
    }
    read_level(kernel, texture, 2, 7, read); /* beyond the last level is the last */
    EQUAL(read[0], 9000);
    OK(cuTexObjectDestroy(texture));

    how.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR; /* half way is half of each */
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    read_level(kernel, texture, 1, 1.5f, read);
    EQUAL(read[0], 7000);
    OK(cuTexObjectDestroy(texture));
    how.maxMipmapLevelClamp = 1;
    OK(cuTexObjectCreate(&texture, &resource, &how, NULL));
    read_level(kernel, texture, 1, 1.5f, read);
    EQUAL(read[0], 5000);
    OK(cuTexObjectDestroy(texture));
    OK(cuModuleUnload(module));
    OK(cuMipmappedArrayDestroy(mipmap));
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

static void tensor_maps_need_a_shape(void)
{
    CUtensorMap map;
    cuuint64_t dim[4] = {8, 8, 8, 8}, stride[3] = {64, 512, 4096};
    cuuint32_t step[4] = {1, 1, 1, 1};
    CUdeviceptr at;
    OK(cuMemAlloc(&at, 65536));
    for (int missing = 0; missing < 5; missing++) {
        EQUAL(cuTensorMapEncodeIm2colWide(
                  missing == 0 ? NULL : &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, missing == 1 ? 9 : 4,
                  (void *)(uintptr_t)at, missing == 2 ? NULL : dim, missing == 3 ? NULL : stride,
                  -1, -1, 8, 8, missing == 4 ? NULL : step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemFree(at));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    array_keeps_its_description();
    texture_reads_its_array();
    texture_reads_layers_or_planes("layered", CUDA_ARRAY3D_LAYERED);
    texture_reads_layers_or_planes("volume", 0);
    mipmap_levels_are_sampled();
    texture_of_linear_memory();
    surface_knows_its_array();
    mipmap_has_levels();
    tensor_maps_are_as_encoded();
    tensor_maps_need_a_shape();
    return api_end(&api);
}
