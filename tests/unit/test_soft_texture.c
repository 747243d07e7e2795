/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects as kernels see them. */
#include <stdatomic.h>
#include <unistd.h>

#include "soft_lib.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/stream.h"
#include "gen/texture.h"
#include "gen/vmm.h"

/* read: out[y * 8 + x] = tex(x, y); fetch: out[x] = tex1Dfetch(x); write: surf(x, y) = y * 8 + x.
 */
static const char *const kernels =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry read(.param .u64 tex, .param .u64 out, .param .f32 shift)\n{\n"
    "  .reg .b32 %r<8>; .reg .b64 %d<6>; .reg .f32 %f<10>;\n"
    "  ld.param.u64 %d0, [tex]; ld.param.u64 %d1, [out]; ld.param.f32 %f0, [shift];\n"
    "  mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y;\n"
    "  cvt.rn.f32.u32 %f1, %r0; cvt.rn.f32.u32 %f2, %r1; add.f32 %f1, %f1, %f0; add.f32 %f2, %f2, "
    "%f0;\n"
    "  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%d0, {%f1, %f2}];\n"
    "  mad.lo.u32 %r2, %r1, 8, %r0; mul.wide.u32 %d2, %r2, 4; add.u64 %d3, %d1, %d2;\n"
    "  st.global.f32 [%d3], %f3;\n  ret;\n}\n"
    ".visible .entry fetch(.param .u64 tex, .param .u64 out)\n{\n"
    "  .reg .b32 %r<8>; .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d0, [tex]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x;\n"
    "  tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d0, {%r0}];\n"
    "  mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; st.global.u32 [%d3], %r1;\n  ret;\n}\n"
    ".visible .entry write(.param .u64 surf)\n{\n"
    "  .reg .b32 %r<8>; .reg .b64 %d; .reg .f32 %f<2>;\n"
    "  ld.param.u64 %d, [surf]; mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y;\n"
    "  mad.lo.u32 %r2, %r1, 8, %r0; cvt.rn.f32.u32 %f0, %r2; mov.b32 %r3, %f0; shl.b32 %r4, %r0, "
    "2;\n"
    "  sust.b.2d.b32.trap [%d, {%r4, %r1}], {%r3};\n  ret;\n}\n";

static CUmodule module;
static CUarray array;

static int setup(void **state)
{
    int rc = soft_setup(state);
    if (rc != 0) {
        return rc;
    }
    OK(tow_drive(cu, cuModuleLoadData)(&module, kernels));
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 8,
                                    .Height = 4,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 1,
                                    .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    OK(tow_drive(cu, cuArray3DCreate_v2)(&array, &desc));
    return 0;
}

static void a_surface_written_is_read_through_a_texture(void **state)
{
    (void)state;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res = {.array = {array}}};
    CUDA_TEXTURE_DESC sampling = {
        .addressMode = {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP},
        .filterMode = CU_TR_FILTER_MODE_LINEAR};
    CUsurfObject surface;
    CUtexObject texture;
    OK(tow_drive(cu, cuSurfObjectCreate)(&surface, &resource));
    OK(tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    void *write_params[] = {&surface};
    CUfunction write = soft_function(module, "write"), read = soft_function(module, "read");
    OK(tow_drive(cu, cuLaunchKernel)(write, 1, 1, 1, 8, 4, 1, 0, NULL, write_params, NULL));
    CUdeviceptr out;
    OK(tow_drive(cu, cuMemAlloc_v2)(&out, 32 * 4));
    float shift = 0.5f, got[32];
    void *read_params[] = {&texture, &out, &shift};
    OK(tow_drive(cu, cuLaunchKernel)(read, 1, 1, 1, 8, 4, 1, 0, NULL, read_params, NULL));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(got, out, sizeof got));
    for (int i = 0; i < 32; i++) {
        assert_true(got[i] == (float)i);
    }
    shift = 1.0f; /* half way between four texels, clamped at the edges */
    OK(tow_drive(cu, cuLaunchKernel)(read, 1, 1, 1, 8, 4, 1, 0, NULL, read_params, NULL));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(got, out, sizeof got));
    assert_true(got[0] == 4.5f);
    assert_true(got[7] == 11.0f);
    assert_true(got[31] == 31.0f);
    CUDA_RESOURCE_DESC asked;
    OK(tow_drive(cu, cuTexObjectGetResourceDesc)(&asked, texture));
    assert_ptr_equal(asked.res.array.hArray, array);
    OK(tow_drive(cu, cuTexObjectDestroy)(texture));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuTexObjectDestroy)(texture));
    OK(tow_drive(cu, cuSurfObjectDestroy)(surface));
    /* A texture that is gone is a fault, not a crash. */
    OK(tow_drive(cu, cuLaunchKernel)(read, 1, 1, 1, 8, 4, 1, 0, NULL, read_params, NULL));
    assert_int_not_equal(tow_drive(cu, cuCtxSynchronize)(), CUDA_SUCCESS);
}

static void hold_host(void *user)
{
    while (!atomic_load((atomic_bool *)user)) {
        usleep(1000);
    }
}

/* With its array, as programs do that destroy all they have behind their last launch. */
static void an_object_lives_until_the_kernels_before_its_end_are_done(void **state)
{
    (void)state;
    atomic_bool go = false;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res = {.array = {array}}};
    CUDA_TEXTURE_DESC sampling = {.filterMode = CU_TR_FILTER_MODE_POINT};
    CUsurfObject surface;
    CUtexObject texture, others[64];
    CUdeviceptr out;
    CUstream stream;
    float shift = 0.5f, got[32];
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuMemAlloc_v2)(&out, sizeof got));
    OK(tow_drive(cu, cuSurfObjectCreate)(&surface, &resource));
    OK(tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    void *write_params[] = {&surface}, *read_params[] = {&texture, &out, &shift};
    OK(tow_drive(cu, cuLaunchHostFunc)(stream, hold_host, &go));
    OK(tow_drive(cu, cuLaunchKernel)(soft_function(module, "write"), 1, 1, 1, 8, 4, 1, 0, stream,
                                     write_params, NULL));
    OK(tow_drive(cu, cuLaunchKernel)(soft_function(module, "read"), 1, 1, 1, 8, 4, 1, 0, stream,
                                     read_params, NULL));
    OK(tow_drive(cu, cuSurfObjectDestroy)(surface));
    OK(tow_drive(cu, cuTexObjectDestroy)(texture));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuTexObjectDestroy)(texture));
    for (int i = 0; i < 64; i++) { /* none takes their place */
        OK(tow_drive(cu, cuTexObjectCreate)(&others[i], &resource, &sampling, NULL));
    }
    atomic_store(&go, true);
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(got, out, sizeof got));
    for (int i = 0; i < 32; i++) {
        assert_true(got[i] == (float)i);
    }
    for (int i = 0; i < 64; i++) {
        OK(tow_drive(cu, cuTexObjectDestroy)(others[i]));
    }
    OK(tow_drive(cu, cuLaunchKernel)(soft_function(module, "write"), 1, 1, 1, 8, 4, 1, 0, stream,
                                     write_params, NULL));
    assert_int_not_equal(tow_drive(cu, cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

static void linear_memory_behind_a_texture_must_live(void **state)
{
    (void)state;
    CUdeviceptr in, out;
    unsigned values[32], got[32];
    for (unsigned i = 0; i < 32; i++) {
        values[i] = i * i;
    }
    OK(tow_drive(cu, cuMemAlloc_v2)(&in, 4 * MIB));
    OK(tow_drive(cu, cuMemAlloc_v2)(&out, sizeof got));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(in, values, sizeof values));
    CUDA_RESOURCE_DESC resource = {
        .resType = CU_RESOURCE_TYPE_LINEAR,
        .res = {.linear = {in, CU_AD_FORMAT_UNSIGNED_INT32, 1, sizeof values - 4}}};
    CUDA_TEXTURE_DESC sampling = {.flags = CU_TRSF_READ_AS_INTEGER};
    CUtexObject texture;
    OK(tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    void *params[] = {&texture, &out};
    CUfunction fetch = soft_function(module, "fetch");
    OK(soft_launch(fetch, 1, 32, NULL, params));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(got, out, sizeof got));
    assert_int_equal(got[30], 900);
    assert_int_equal(got[31], 0); /* past the end */
    OK(tow_drive(cu, cuMemFree_v2)(in));
    OK(soft_launch(fetch, 1, 32, NULL, params));
    assert_int_not_equal(tow_drive(cu, cuCtxSynchronize)(), CUDA_SUCCESS);
}

static void wrong_descriptions_are_refused(void **state)
{
    (void)state;
    CUtexObject texture;
    CUarray other;
    CUDA_TEXTURE_DESC sampling = {0};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    resource.res.array.hArray = array;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuTexObjectCreate)(&texture, &resource, NULL, NULL));
    sampling.filterMode = (CUfilter_mode)7;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    sampling.filterMode = CU_TR_FILTER_MODE_POINT;
    sampling.addressMode[2] = (CUaddress_mode)(CU_TR_ADDRESS_MODE_BORDER + 1);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 8, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 3};
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuArrayCreate_v2)(&other, &desc));
    desc.NumChannels = 1;
    desc.Width = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuArrayCreate_v2)(&other, &desc));
}

static void mipmaps_have_levels(void **state)
{
    (void)state;
    CUmipmappedArray mipmap;
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 8,
                                    .Height = 4,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 1},
                            got;
    OK(tow_drive(cu, cuMipmappedArrayCreate)(&mipmap, &desc, 10));
    CUarray level;
    OK(tow_drive(cu, cuMipmappedArrayGetLevel)(&level, mipmap, 2));
    OK(tow_drive(cu, cuArray3DGetDescriptor_v2)(&got, level));
    assert_int_equal(got.Width, 2);
    assert_int_equal(got.Height, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMipmappedArrayGetLevel)(&level, mipmap, 4));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuArrayDestroy)(level));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                                   .res = {.mipmap = {mipmap}}};
    CUDA_TEXTURE_DESC sampling = {.maxMipmapLevelClamp = 3};
    CUtexObject texture;
    OK(tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    OK(tow_drive(cu, cuMipmappedArrayDestroy)(mipmap));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuMipmappedArrayDestroy)(mipmap));
    OK(tow_drive(cu, cuTexObjectDestroy)(texture));
}

/* The array's context ends first: what a texture of another one reads stays there, and is given
 * back once. */
static void an_array_lives_as_long_as_a_texture_of_another_context(void **state)
{
    (void)state;
    size_t before, after, total;
    CUcontext other;
    CUarray theirs;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&before, &total));
    OK(tow_drive(cu, cuCtxCreate_v4)(&other, NULL, 0, 0));
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 4096, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    OK(tow_drive(cu, cuArray3DCreate_v2)(&theirs, &desc));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res = {.array = {theirs}}};
    CUDA_TEXTURE_DESC sampling = {0};
    CUtexObject texture;
    OK(tow_drive(cu, cuTexObjectCreate)(&texture, &resource, &sampling, NULL));
    OK(tow_drive(cu, cuCtxDestroy_v2)(other));
    CUdeviceptr out;
    OK(tow_drive(cu, cuMemAlloc_v2)(&out, 32 * 4));
    float shift = 0.5f, got[32];
    void *params[] = {&texture, &out, &shift};
    OK(tow_drive(cu, cuLaunchKernel)(soft_function(module, "read"), 1, 1, 1, 8, 4, 1, 0, NULL,
                                     params, NULL));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(got, out, sizeof got));
    for (int i = 0; i < 32; i++) {
        assert_true(got[i] == 0);
    }
    OK(tow_drive(cu, cuMemFree_v2)(out));
    OK(tow_drive(cu, cuTexObjectDestroy)(texture));
    OK(tow_drive(cu, cuMemGetInfo_v2)(&after, &total));
    assert_int_equal(after, before);
}

/* Memory for a tile of a layer; the array has as many layers as it is deep, or one. */
static CUresult map_layer(CUarray sparse, CUmemGenericAllocationHandle memory, unsigned layer)
{
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    OK(tow_drive(cu, cuArrayGetSparseProperties)(&tiles, sparse));
    CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY,
                           .resource = {.array = sparse},
                           .subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
                           .memOperationType = CU_MEM_OPERATION_TYPE_MAP,
                           .memHandleType = CU_MEM_HANDLE_TYPE_GENERIC,
                           .memHandle = {.memHandle = memory},
                           .deviceBitMask = 1};
    info.subresource.sparseLevel.layer = layer;
    info.subresource.sparseLevel.extentWidth = tiles.tileExtent.width;
    info.subresource.sparseLevel.extentHeight = tiles.tileExtent.height;
    info.subresource.sparseLevel.extentDepth = 1;
    return tow_drive(cu, cuMemMapArrayAsync)(&info, 1, NULL);
}

static void memory_is_mapped_into_layers_that_there_are(void **state)
{
    (void)state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    CUmemGenericAllocationHandle memory;
    OK(tow_drive(cu, cuMemCreate)(&memory, 2 << 20, &prop, 0));
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 1024,
                                    .Height = 1024,
                                    .Depth = 3,
                                    .Format = CU_AD_FORMAT_FLOAT,
                                    .NumChannels = 1,
                                    .Flags = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_LAYERED};
    CUarray layers, plain;
    OK(tow_drive(cu, cuArray3DCreate_v2)(&layers, &desc));
    OK(map_layer(layers, memory, 0));
    OK(map_layer(layers, memory, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, map_layer(layers, memory, 3));
    desc.Depth = 0;
    desc.Flags = CUDA_ARRAY3D_SPARSE;
    OK(tow_drive(cu, cuArray3DCreate_v2)(&plain, &desc));
    OK(map_layer(plain, memory, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, map_layer(plain, memory, 1));
    OK(tow_drive(cu, cuArrayDestroy)(layers));
    OK(tow_drive(cu, cuArrayDestroy)(plain));
    OK(tow_drive(cu, cuMemRelease)(memory));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_surface_written_is_read_through_a_texture),
        TEST(an_object_lives_until_the_kernels_before_its_end_are_done),
        TEST(linear_memory_behind_a_texture_must_live),
        TEST(wrong_descriptions_are_refused),
        TEST(mipmaps_have_levels),
        TEST(memory_is_mapped_into_layers_that_there_are),
        TEST(an_array_lives_as_long_as_a_texture_of_another_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
