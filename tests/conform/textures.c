/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, texture and surface objects: descriptions come back as they were given. */
#include "driver.h"

static CUarray array_of(size_t width, size_t height, size_t depth, CUarray_format format,
                        unsigned channels, unsigned flags)
{
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = width,
                                 .Height = height,
                                 .Depth = depth,
                                 .Format = format,
                                 .NumChannels = channels,
                                 .Flags = flags};
    OK(cuArray3DCreate(&array, &d));
    return array;
}

static void describe(CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    memset(&d, 0x55, sizeof d);
    IS(cuArray3DGetDescriptor(&d, array), CUDA_SUCCESS);
    conform_say("%zu x %zu x %zu, format %d, channels %u, flags %u", d.Width, d.Height, d.Depth,
                d.Format, d.NumChannels, d.Flags);
}

CASE(array_descriptions,
     "arrays of one, two and three dimensions, layered and cubes, tell what they are")
{
    describe(array_of(10, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0));
    describe(array_of(10, 20, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_SURFACE_LDST));
    describe(array_of(10, 20, 5, CU_AD_FORMAT_HALF, 2, 0));
    describe(array_of(10, 20, 5, CU_AD_FORMAT_SIGNED_INT16, 2, CUDA_ARRAY3D_LAYERED));
    describe(array_of(16, 16, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP));
    CUDA_ARRAY_DESCRIPTOR d;
    memset(&d, 0x55, sizeof d);
    IS(cuArrayGetDescriptor(&d, array_of(10, 20, 0, CU_AD_FORMAT_FLOAT, 2, 0)), CUDA_SUCCESS);
    conform_say("%zu x %zu, format %d, channels %u", d.Width, d.Height, d.Format, d.NumChannels);
}

CASE(array_without_planes, "an array of an ordinary format has no planes")
{
    CUarray array = array_of(8, 8, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0), plane = NULL;
    IS(cuArrayGetPlane(&plane, array, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

CASE(array_mistakes, "arrays that cannot be are refused")
{
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 10, .Height = 0, .Depth = 5, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    SEE(cuArray3DCreate(&array, &d));
    d.Height = 10, d.Depth = 5, d.Flags = CUDA_ARRAY3D_CUBEMAP;
    SEE(cuArray3DCreate(&array, &d));
    d.Depth = 6, d.Height = 12;
    SEE(cuArray3DCreate(&array, &d));
    d.Flags = 0, d.NumChannels = 5;
    SEE(cuArray3DCreate(&array, &d));
}

CASE(array_of_a_box, "a three-dimensional array takes and gives its bytes")
{
    CUarray array = array_of(4, 3, 2, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
    int in[24], out[24] = {0};
    CUDA_MEMCPY3D p;
    for (int i = 0; i < 24; i++) {
        in[i] = i * 3;
    }
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST, p.srcHost = in, p.srcPitch = 16, p.srcHeight = 3;
    p.dstMemoryType = CU_MEMORYTYPE_ARRAY, p.dstArray = array;
    p.WidthInBytes = 16, p.Height = 3, p.Depth = 2;
    IS(cuMemcpy3D(&p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_ARRAY, p.srcArray = array;
    p.dstMemoryType = CU_MEMORYTYPE_HOST, p.dstHost = out, p.dstPitch = 16, p.dstHeight = 3;
    p.WidthInBytes = 16, p.Height = 3, p.Depth = 2;
    IS(cuMemcpy3D(&p), CUDA_SUCCESS);
    EQ(memcmp(in, out, sizeof in), 0);
}

CASE(texture_description_of_array,
     "a texture of an array tells its resource, its reading and its view")
{
    CUarray array = array_of(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    CUDA_RESOURCE_DESC r, got_r;
    CUDA_TEXTURE_DESC t, got_t;
    CUtexObject object = 0;
    memset(&r, 0, sizeof r);
    memset(&t, 0, sizeof t);
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    r.res.array.hArray = array;
    t.addressMode[0] = CU_TR_ADDRESS_MODE_CLAMP;
    t.addressMode[1] = CU_TR_ADDRESS_MODE_BORDER;
    t.filterMode = CU_TR_FILTER_MODE_LINEAR;
    t.borderColor[2] = 0.5f;
    t.maxAnisotropy = 4;
    IS(cuTexObjectCreate(&object, &r, &t, NULL), CUDA_SUCCESS);
    IS(cuTexObjectGetResourceDesc(&got_r, object), CUDA_SUCCESS);
    EQ(got_r.resType, CU_RESOURCE_TYPE_ARRAY);
    TRUE(got_r.res.array.hArray == array);
    IS(cuTexObjectGetTextureDesc(&got_t, object), CUDA_SUCCESS);
    conform_say("address %d %d %d, filter %d, flags %u, anisotropy %u", got_t.addressMode[0],
                got_t.addressMode[1], got_t.addressMode[2], got_t.filterMode, got_t.flags,
                got_t.maxAnisotropy);
    NUM(got_t.borderColor[2] * 10);
    CUDA_RESOURCE_VIEW_DESC v;
    SEE(cuTexObjectGetResourceViewDesc(&v, object));
    IS(cuTexObjectDestroy(object), CUDA_SUCCESS);
}

static void tell_border(int channels, CUaddress_mode mode)
{
    CUDA_RESOURCE_DESC r;
    CUDA_TEXTURE_DESC t;
    CUtexObject object = 0;
    memset(&r, 0, sizeof r);
    memset(&t, 0, sizeof t);
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    r.res.array.hArray = array_of(8, 8, 0, CU_AD_FORMAT_FLOAT, channels, 0);
    t.addressMode[0] = t.addressMode[1] = t.addressMode[2] = mode;
    for (int i = 0; i < 4; i++) {
        t.borderColor[i] = (float)(i + 1);
    }
    OK(cuTexObjectCreate(&object, &r, &t, NULL));
    memset(&t, 0, sizeof t);
    OK(cuTexObjectGetTextureDesc(&t, object));
    conform_say("%d channels, mode %d: %g %g %g %g", channels, (int)mode, t.borderColor[0],
                t.borderColor[1], t.borderColor[2], t.borderColor[3]);
    OK(cuTexObjectDestroy(object));
}

CASE(texture_border_is_told, "which parts of a border colour are told")
{
    tell_border(1, CU_TR_ADDRESS_MODE_BORDER);
    tell_border(2, CU_TR_ADDRESS_MODE_BORDER);
    tell_border(4, CU_TR_ADDRESS_MODE_BORDER);
    tell_border(4, CU_TR_ADDRESS_MODE_CLAMP);
}

CASE(texture_description_of_linear, "a texture of linear memory tells its address, format and size")
{
    CUdeviceptr w = words(64);
    CUDA_RESOURCE_DESC r, got;
    CUDA_TEXTURE_DESC t;
    CUtexObject object = 0;
    memset(&r, 0, sizeof r);
    memset(&t, 0, sizeof t);
    r.resType = CU_RESOURCE_TYPE_LINEAR;
    r.res.linear.devPtr = w;
    r.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    r.res.linear.numChannels = 2;
    r.res.linear.sizeInBytes = 256;
    t.flags = CU_TRSF_READ_AS_INTEGER;
    IS(cuTexObjectCreate(&object, &r, &t, NULL), CUDA_SUCCESS);
    IS(cuTexObjectGetResourceDesc(&got, object), CUDA_SUCCESS);
    EQ(got.resType, CU_RESOURCE_TYPE_LINEAR);
    TRUE(got.res.linear.devPtr == w);
    EQ(got.res.linear.format, CU_AD_FORMAT_UNSIGNED_INT32);
    EQ(got.res.linear.numChannels, 2);
    EQ(got.res.linear.sizeInBytes, 256);
    IS(cuTexObjectGetTextureDesc(&t, object), CUDA_SUCCESS);
    EQ(t.flags, CU_TRSF_READ_AS_INTEGER);
}

CASE(texture_description_of_rows, "a texture of pitched memory tells width, height and pitch")
{
    CUdeviceptr a = 0;
    size_t pitch = 0;
    CUDA_RESOURCE_DESC r, got;
    CUDA_TEXTURE_DESC t;
    CUtexObject object = 0;
    OK(cuMemAllocPitch(&a, &pitch, 40, 8, 4));
    memset(&r, 0, sizeof r);
    memset(&t, 0, sizeof t);
    r.resType = CU_RESOURCE_TYPE_PITCH2D;
    r.res.pitch2D.devPtr = a;
    r.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    r.res.pitch2D.numChannels = 1;
    r.res.pitch2D.width = 10;
    r.res.pitch2D.height = 8;
    r.res.pitch2D.pitchInBytes = pitch;
    IS(cuTexObjectCreate(&object, &r, &t, NULL), CUDA_SUCCESS);
    OK(cuTexObjectGetResourceDesc(&got, object));
    EQ(got.res.pitch2D.width, 10);
    EQ(got.res.pitch2D.height, 8);
    TRUE(got.res.pitch2D.pitchInBytes == pitch);
    r.res.pitch2D.pitchInBytes = 41;
    SEE(cuTexObjectCreate(&object, &r, &t, NULL));
}

CASE(surface_description, "a surface tells its array; an array not made for surfaces is refused")
{
    CUarray good = array_of(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST);
    CUarray bad = array_of(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0);
    CUDA_RESOURCE_DESC r, got;
    CUsurfObject object = 0;
    memset(&r, 0, sizeof r);
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    r.res.array.hArray = good;
    IS(cuSurfObjectCreate(&object, &r), CUDA_SUCCESS);
    OK(cuSurfObjectGetResourceDesc(&got, object));
    TRUE(got.res.array.hArray == good);
    IS(cuSurfObjectDestroy(object), CUDA_SUCCESS);
    r.res.array.hArray = bad;
    SEE(cuSurfObjectCreate(&object, &r));
}

CASE(mipmap_levels, "levels of a mipmapped array halve, and end")
{
    CUmipmappedArray array = NULL;
    CUarray level = NULL;
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 64, .Height = 32, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    IS(cuMipmappedArrayCreate(&array, &d, 4), CUDA_SUCCESS);
    IS(cuMipmappedArrayGetLevel(&level, array, 3), CUDA_SUCCESS);
    describe(level);
    SEE(cuMipmappedArrayGetLevel(&level, array, 4));
    IS(cuMipmappedArrayDestroy(array), CUDA_SUCCESS);
}

/* 1024 x 1024 floats and four smaller levels. */
static CUmipmappedArray mipmap_of(unsigned flags)
{
    CUmipmappedArray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 1024,
                                 .Height = 1024,
                                 .Format = CU_AD_FORMAT_FLOAT,
                                 .NumChannels = 1,
                                 .Flags = flags};
    OK(cuMipmappedArrayCreate(&array, &d, 5));
    return array;
}

CASE(mipmap_sparse, "levels smaller than a tile of a sparse mipmapped array are in its tail")
{
    CUmipmappedArray array = mipmap_of(CUDA_ARRAY3D_SPARSE);
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    memset(&tiles, 0x55, sizeof tiles);
    IS(cuMipmappedArrayGetSparseProperties(&tiles, array), CUDA_SUCCESS);
    NUM(tiles.tileExtent.width);
    NUM(tiles.tileExtent.height);
    NUM(tiles.tileExtent.depth);
    NUM(tiles.miptailFirstLevel);
    TRUE(tiles.miptailSize != 0);
    OK(cuMipmappedArrayDestroy(array));
}

CASE(mipmap_not_sparse, "an ordinary mipmapped array has no tiles")
{
    CUmipmappedArray array = mipmap_of(0);
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    IS(cuMipmappedArrayGetSparseProperties(&tiles, array), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(array));
}

CASE(mipmap_without_memory,
     "a mipmapped array that is to be mapped later tells how much memory it needs")
{
    CUmipmappedArray array = mipmap_of(CUDA_ARRAY3D_DEFERRED_MAPPING);
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    memset(&need, 0, sizeof need);
    IS(cuMipmappedArrayGetMemoryRequirements(&need, array, dev), CUDA_SUCCESS);
    TRUE(need.size >= 5 << 20);
    TRUE(need.alignment != 0);
    OK(cuMipmappedArrayDestroy(array));
}

CASE(mipmap_with_memory, "a mipmapped array that has its memory tells no needs")
{
    CUmipmappedArray array = mipmap_of(0);
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    IS(cuMipmappedArrayGetMemoryRequirements(&need, array, dev), CUDA_ERROR_INVALID_VALUE);
    OK(cuMipmappedArrayDestroy(array));
}

/* Two images of 8 x 8 pixels of 64 halves, for a filter of 3 x 3. */
static CUresult encode_im2col(CUtensorMap *map, unsigned rank, CUdeviceptr at, int corner)
{
    const cuuint64_t size[] = {64, 8, 8, 2}, strides[] = {128, 1024, 8192};
    const int lower[] = {corner, corner}, upper[] = {-1, -1};
    const cuuint32_t steps[] = {1, 1, 1, 1};
    memset(map, 0, sizeof *map);
    return cuTensorMapEncodeIm2col(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, (void *)(uintptr_t)at, size, strides, lower,
        upper, 64, 64, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

CASE(tensor_im2col, "an im2col tensor map is the same for the same tensor and another for another")
{
    CUdeviceptr w = words(4096);
    CUtensorMap a, b;
    OK(encode_im2col(&a, 4, w, -1));
    IS(encode_im2col(&b, 4, w, -1), CUDA_SUCCESS);
    EQ(memcmp(&a, &b, sizeof a), 0);
    IS(encode_im2col(&b, 4, w, 0), CUDA_SUCCESS);
    TRUE(memcmp(&a, &b, sizeof a) != 0);
}

CASE(tensor_im2col_of_rows, "an im2col tensor map needs three dimensions")
{
    CUtensorMap map;
    IS(encode_im2col(&map, 2, words(4096), -1), CUDA_ERROR_INVALID_VALUE);
}
