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
