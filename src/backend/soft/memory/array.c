/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA arrays: rows of texels in plain memory, which copies and textures reach alike. */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/array.h"
#include "gen/texture.h"
#include "gen/vmm.h"

#include <stdlib.h>
#include <string.h>

#define ROW_ALIGN 16

void tow_soft_storage_unref(struct tow_soft_storage *storage)
{
    if (storage != NULL && --storage->refs == 0) {
        tow_soft_alloc_drop(storage->alloc);
        free(storage);
    }
}

struct tow_soft_array *tow_soft_array_ref(struct tow_soft_array *array)
{
    if (array != NULL) {
        array->refs++;
    }
    return array;
}

void tow_soft_array_unref(struct tow_soft_array *array)
{
    if (array != NULL && --array->refs == 0) {
        tow_soft_storage_unref(array->storage);
        free(array);
    }
}

int tow_soft_format_find(CUarray_format format, struct tow_soft_format *ret_format)
{
    static const struct {
        CUarray_format format;
        struct tow_soft_format is;
    } known[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, {TOW_PTX_TEX_U8, 1, 0, false}},
        {CU_AD_FORMAT_UNSIGNED_INT16, {TOW_PTX_TEX_U16, 2, 0, false}},
        {CU_AD_FORMAT_UNSIGNED_INT32, {TOW_PTX_TEX_U32, 4, 0, false}},
        {CU_AD_FORMAT_SIGNED_INT8, {TOW_PTX_TEX_S8, 1, 0, false}},
        {CU_AD_FORMAT_SIGNED_INT16, {TOW_PTX_TEX_S16, 2, 0, false}},
        {CU_AD_FORMAT_SIGNED_INT32, {TOW_PTX_TEX_S32, 4, 0, false}},
        {CU_AD_FORMAT_HALF, {TOW_PTX_TEX_F16, 2, 0, false}},
        {CU_AD_FORMAT_FLOAT, {TOW_PTX_TEX_F32, 4, 0, false}},
        {CU_AD_FORMAT_UNORM_INT8X1, {TOW_PTX_TEX_U8, 1, 1, true}},
        {CU_AD_FORMAT_UNORM_INT8X2, {TOW_PTX_TEX_U8, 1, 2, true}},
        {CU_AD_FORMAT_UNORM_INT8X4, {TOW_PTX_TEX_U8, 1, 4, true}},
        {CU_AD_FORMAT_UNORM_INT16X1, {TOW_PTX_TEX_U16, 2, 1, true}},
        {CU_AD_FORMAT_UNORM_INT16X2, {TOW_PTX_TEX_U16, 2, 2, true}},
        {CU_AD_FORMAT_UNORM_INT16X4, {TOW_PTX_TEX_U16, 2, 4, true}},
        {CU_AD_FORMAT_SNORM_INT8X1, {TOW_PTX_TEX_S8, 1, 1, true}},
        {CU_AD_FORMAT_SNORM_INT8X2, {TOW_PTX_TEX_S8, 1, 2, true}},
        {CU_AD_FORMAT_SNORM_INT8X4, {TOW_PTX_TEX_S8, 1, 4, true}},
        {CU_AD_FORMAT_SNORM_INT16X1, {TOW_PTX_TEX_S16, 2, 1, true}},
        {CU_AD_FORMAT_SNORM_INT16X2, {TOW_PTX_TEX_S16, 2, 2, true}},
        {CU_AD_FORMAT_SNORM_INT16X4, {TOW_PTX_TEX_S16, 2, 4, true}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].format == format) {
            *ret_format = known[i].is;
            return 0;
        }
    }
    return -1;
}

/* Formats that CUDA knows and this device has not: block-compressed and video ones. */
static bool is_other_format(CUarray_format format)
{
    return (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_YUV444_16bit_SemiPlanar) ||
           format == CU_AD_FORMAT_UNORM_INT_101010_2;
}

/* What the device's attributes promise. */
static bool size_ok(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    if (desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) {
        return desc->Width <= 32768 && desc->Height <= 32768 && desc->Depth <= 2048;
    }
    if (desc->Depth != 0) {
        return desc->Width <= 16384 && desc->Height <= 16384 && desc->Depth <= 16384;
    }
    return desc->Width <= 131072 && desc->Height <= 65536;
}

static CUresult desc_ok(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t *ret_texel)
{
    struct tow_soft_format format;
    unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                     CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                     CUDA_ARRAY3D_SPARSE;
    if (desc == NULL || desc->Width == 0 || !size_ok(desc) ||
        (desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (desc->Flags & ~known) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (tow_soft_format_find(desc->Format, &format) != 0) {
        return is_other_format(desc->Format) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED, cube = desc->Flags & CUDA_ARRAY3D_CUBEMAP;
    if ((format.channels != 0 && format.channels != desc->NumChannels) ||
        (desc->Flags & CUDA_ARRAY3D_SPARSE && desc->Height == 0) ||
        (!layered && desc->Depth != 0 && desc->Height == 0) || (layered && desc->Depth == 0) ||
        (cube && (desc->Width != desc->Height || desc->Depth == 0 || desc->Depth % 6 != 0 ||
                  (!layered && desc->Depth != 6)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_texel = format.bytes * desc->NumChannels;
    return CUDA_SUCCESS;
}

/* Bytes of one level; false when they are beyond counting. */
static bool level_layout(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t texel, unsigned level,
                         struct tow_soft_array *a)
{
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED || desc->Flags & CUDA_ARRAY3D_CUBEMAP;
    a->desc = *desc;
    a->desc.Width = desc->Width >> level != 0 ? desc->Width >> level : 1;
    a->desc.Height = desc->Height == 0 ? 0 : desc->Height >> level != 0 ? desc->Height >> level : 1;
    if (!layered && desc->Depth != 0) {
        a->desc.Depth = desc->Depth >> level != 0 ? desc->Depth >> level : 1;
    }
    a->texel = texel;
    a->rows = a->desc.Height != 0 ? (uint32_t)a->desc.Height : 1;
    a->slices = a->desc.Depth != 0 ? (uint32_t)a->desc.Depth : 1;
    a->row_pitch = tow_soft_round_up(a->desc.Width * texel, ROW_ALIGN);
    return !__builtin_mul_overflow(a->row_pitch, a->rows, &a->slice_pitch) &&
           a->slice_pitch <= ((uint64_t)1 << 46) / a->slices;
}

static struct tow_soft_storage *storage_create(struct tow_soft_ctx *ctx, uint64_t size,
                                               CUresult *ret_result)
{
    struct tow_soft_storage *storage = calloc(1, sizeof *storage);
    *ret_result = storage == NULL
                      ? CUDA_ERROR_OUT_OF_MEMORY
                      : tow_soft_alloc_make(ctx, ctx->device->ordinal, TOW_SOFT_MEM_ARRAY, size, 0,
                                            &storage->alloc);
    if (*ret_result != CUDA_SUCCESS) {
        free(storage);
        return NULL;
    }
    storage->refs = 1;
    if (storage->alloc->block != NULL) { /* fresh pages are zero by themselves */
        memset((void *)(uintptr_t)storage->alloc->base, 0, size);
    }
    return storage;
}

static CUresult soft_cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint32_t texel;
    result = pHandle == NULL ? CUDA_ERROR_INVALID_VALUE : desc_ok(desc, &texel);
    if (result == CUDA_SUCCESS) {
        result = tow_soft_capture_unsafe(ctx);
    }
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_array *array = calloc(1, sizeof *array);
    if (array == NULL || !level_layout(desc, texel, 0, array)) {
        free(array);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    array->refs = 1;
    array->storage = storage_create(ctx, array->slice_pitch * array->slices, &result);
    if (array->storage == NULL) {
        free(array);
        return tow_soft_leave(result);
    }
    array->data = (uint8_t *)(uintptr_t)array->storage->alloc->base;
    if (tow_soft_object_add(&array->object, TOW_SOFT_ARRAY, ctx) != 0) {
        tow_soft_array_unref(array);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pHandle = TOW_SOFT_POINTER(array->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    if (desc == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_ARRAY3D_DESCRIPTOR wide = {.Width = desc->Width,
                                    .Height = desc->Height,
                                    .Format = desc->Format,
                                    .NumChannels = desc->NumChannels};
    return soft_cuArray3DCreate_v2(pHandle, &wide);
}

static CUresult enter_array(CUarray handle, struct tow_soft_array **ret_array)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_array = tow_soft_lookup(TOW_SOFT_ARRAY, TOW_SOFT_HANDLE(handle));
    return *ret_array != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult soft_cuArrayDestroy(CUarray hArray)
{
    struct tow_soft_array *array;
    CUresult result = enter_array(hArray, &array);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (array->is_level) {
        return tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    uint64_t handle = array->object.handle;
    result = tow_soft_ctx_wait(array->object.ctx);
    array = tow_soft_lookup(TOW_SOFT_ARRAY, handle);
    if (array != NULL) {
        tow_soft_object_remove(&array->object);
        tow_soft_array_unref(array);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray hArray)
{
    struct tow_soft_array *array;
    CUresult result = enter_array(hArray, &array);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (desc == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *desc = array->desc;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray hArray)
{
    CUDA_ARRAY3D_DESCRIPTOR wide;
    CUresult result =
        desc == NULL ? CUDA_ERROR_INVALID_VALUE : soft_cuArray3DGetDescriptor_v2(&wide, hArray);
    if (result == CUDA_SUCCESS) {
        *desc = (CUDA_ARRAY_DESCRIPTOR){wide.Width, wide.Height, wide.Format, wide.NumChannels};
    }
    return result;
}

static CUresult soft_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                                  CUarray hArray, CUdevice device)
{
    (void)requirements;
    (void)device;
    struct tow_soft_array *array;
    CUresult result = enter_array(hArray, &array);
    /* There are no arrays here whose memory comes later. */
    return result != CUDA_SUCCESS ? result : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

/* ---- sparse arrays ----
 * They have all their memory from the beginning; mappings are checked, and that is all. */

/* A tile has 64 KiB; its shape goes by the size of a texel: 1, 2, 4, 8, 16 bytes. */
static const unsigned *tile_of(const struct tow_soft_array *array)
{
    static const unsigned flat[5][3] = {
        {256, 256, 1}, {256, 128, 1}, {128, 128, 1}, {128, 64, 1}, {64, 64, 1}};
    static const unsigned deep[5][3] = {
        {64, 32, 32}, {32, 32, 32}, {32, 32, 16}, {32, 16, 16}, {16, 16, 16}};
    unsigned size = (unsigned)__builtin_ctz(array->texel);
    bool solid = array->desc.Depth != 0 && !(array->desc.Flags & CUDA_ARRAY3D_LAYERED);
    return solid ? deep[size] : flat[size];
}

static CUresult soft_cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                                CUarray hArray)
{
    struct tow_soft_array *array;
    CUresult result = enter_array(hArray, &array);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (properties == NULL || !(array->desc.Flags & CUDA_ARRAY3D_SPARSE)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    const unsigned *tile = tile_of(array);
    memset(properties, 0, sizeof *properties);
    properties->tileExtent.width = tile[0];
    properties->tileExtent.height = tile[1];
    properties->tileExtent.depth = tile[2];
    return tow_soft_leave(CUDA_SUCCESS);
}

/* Whole tiles, or to the end of the array. */
static bool range_ok(uint64_t offset, uint64_t extent, uint64_t size, unsigned tile)
{
    return extent != 0 && offset % tile == 0 && offset + extent <= size &&
           (extent % tile == 0 || offset + extent == size);
}

static CUresult map_ok(const struct tow_soft_ctx *ctx, const CUarrayMapInfo *info)
{
    const struct tow_soft_array *array =
        info->resourceType == CU_RESOURCE_TYPE_ARRAY
            ? tow_soft_lookup(TOW_SOFT_ARRAY, TOW_SOFT_HANDLE(info->resource.array))
            : NULL;
    if (array == NULL || !(array->desc.Flags & CUDA_ARRAY3D_SPARSE) ||
        info->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL ||
        info->subresource.sparseLevel.level != 0 ||
        info->memHandleType != CU_MEM_HANDLE_TYPE_GENERIC || info->flags != 0 ||
        info->deviceBitMask != 1u << ctx->device->ordinal) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool layered = array->desc.Flags & CUDA_ARRAY3D_LAYERED;
    const unsigned *tile = tile_of(array);
    if (!range_ok(info->subresource.sparseLevel.offsetX, info->subresource.sparseLevel.extentWidth,
                  array->desc.Width, tile[0]) ||
        !range_ok(info->subresource.sparseLevel.offsetY, info->subresource.sparseLevel.extentHeight,
                  array->rows, tile[1]) ||
        !range_ok(info->subresource.sparseLevel.offsetZ, info->subresource.sparseLevel.extentDepth,
                  layered ? 1 : array->slices, tile[2]) ||
        info->subresource.sparseLevel.layer >= (layered ? array->slices : 1)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known = tow_soft_lookup(TOW_SOFT_MEMORY, info->memHandle.memHandle) != NULL;
    return (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP && known) ||
                   (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP &&
                    info->memHandle.memHandle == 0)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult soft_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count,
                                        CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = mapInfoList == NULL || count == 0 ? CUDA_ERROR_INVALID_VALUE
                                               : tow_soft_stream_of(ctx, hStream, &stream);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = map_ok(ctx, &mapInfoList[i]);
    }
    return tow_soft_leave(result);
}

/* ---- mipmapped arrays
 * ---------------------------------------------------------------------------------------- */

static void mipmap_destroy(struct tow_soft_mipmap *mipmap)
{
    tow_soft_object_remove(&mipmap->object);
    for (unsigned i = 0; i < mipmap->levels; i++) {
        if (mipmap->level[i] != NULL) {
            tow_soft_object_remove(&mipmap->level[i]->object);
            tow_soft_array_unref(mipmap->level[i]);
        }
    }
    tow_soft_storage_unref(mipmap->storage);
    free(mipmap);
}

void tow_soft_mipmap_end(struct tow_soft_object *object)
{
    mipmap_destroy((struct tow_soft_mipmap *)object);
}

void tow_soft_array_end(struct tow_soft_object *object)
{
    tow_soft_object_remove(object);
    if (!((struct tow_soft_array *)object)->is_level) { /* a level is its mipmap's */
        tow_soft_array_unref((struct tow_soft_array *)object);
    }
}

static CUresult soft_cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                            const CUDA_ARRAY3D_DESCRIPTOR *desc,
                                            unsigned int numMipmapLevels)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint32_t texel;
    result =
        pHandle == NULL || numMipmapLevels == 0 ? CUDA_ERROR_INVALID_VALUE : desc_ok(desc, &texel);
    if (result == CUDA_SUCCESS && desc->Flags & CUDA_ARRAY3D_SPARSE) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    uint64_t largest = desc->Width > desc->Height ? desc->Width : desc->Height;
    if (!(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && desc->Depth > largest) {
        largest = desc->Depth;
    }
    unsigned most = 64 - (unsigned)__builtin_clzll(largest);
    most = most < TOW_PTX_TEX_LEVELS_MAX ? most : TOW_PTX_TEX_LEVELS_MAX;
    struct tow_soft_mipmap *mipmap = calloc(1, sizeof *mipmap);
    if (mipmap == NULL || tow_soft_object_add(&mipmap->object, TOW_SOFT_MIPMAP, ctx) != 0) {
        free(mipmap);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    mipmap->desc = *desc;
    mipmap->levels = numMipmapLevels < most ? numMipmapLevels : most;
    uint64_t offsets[TOW_PTX_TEX_LEVELS_MAX], size = 0;
    for (unsigned i = 0; i < mipmap->levels; i++) {
        struct tow_soft_array *array = calloc(1, sizeof *array);
        mipmap->level[i] = array;
        if (array == NULL || !level_layout(desc, texel, i, array)) {
            mipmap_destroy(mipmap);
            return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
        array->refs = 1;
        array->is_level = true;
        offsets[i] = size;
        size += tow_soft_round_up(array->slice_pitch * array->slices, TOW_SOFT_UNIT);
    }
    mipmap->storage = storage_create(ctx, size, &result);
    for (unsigned i = 0; i < mipmap->levels && result == CUDA_SUCCESS; i++) {
        struct tow_soft_array *array = mipmap->level[i];
        array->storage = mipmap->storage;
        array->storage->refs++;
        array->data = (uint8_t *)(uintptr_t)(mipmap->storage->alloc->base + offsets[i]);
        if (tow_soft_object_add(&array->object, TOW_SOFT_ARRAY, ctx) != 0) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result != CUDA_SUCCESS) {
        mipmap_destroy(mipmap);
        return tow_soft_leave(result);
    }
    *pHandle = TOW_SOFT_POINTER(mipmap->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult enter_mipmap(CUmipmappedArray handle, struct tow_soft_mipmap **ret_mipmap)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_mipmap = tow_soft_lookup(TOW_SOFT_MIPMAP, TOW_SOFT_HANDLE(handle));
    return *ret_mipmap != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult soft_cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray handle,
                                              unsigned int level)
{
    struct tow_soft_mipmap *mipmap;
    CUresult result = enter_mipmap(handle, &mipmap);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pLevelArray == NULL || level >= mipmap->levels) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pLevelArray = TOW_SOFT_POINTER(mipmap->level[level]->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
    struct tow_soft_mipmap *mipmap;
    CUresult result = enter_mipmap(handle, &mipmap);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t value = mipmap->object.handle;
    result = tow_soft_ctx_wait(mipmap->object.ctx);
    mipmap = tow_soft_lookup(TOW_SOFT_MIPMAP, value);
    if (mipmap != NULL) {
        mipmap_destroy(mipmap);
    }
    return tow_soft_leave(result);
}

void tow_soft_fill_array(struct tow_driver *driver)
{
    tow_driver_set(driver, cuArrayCreate_v2, soft_cuArrayCreate_v2);
    tow_driver_set(driver, cuArray3DCreate_v2, soft_cuArray3DCreate_v2);
    tow_driver_set(driver, cuArrayDestroy, soft_cuArrayDestroy);
    tow_driver_set(driver, cuArrayGetDescriptor_v2, soft_cuArrayGetDescriptor_v2);
    tow_driver_set(driver, cuArray3DGetDescriptor_v2, soft_cuArray3DGetDescriptor_v2);
    tow_driver_set(driver, cuArrayGetMemoryRequirements, soft_cuArrayGetMemoryRequirements);
    tow_driver_set(driver, cuArrayGetSparseProperties, soft_cuArrayGetSparseProperties);
    tow_driver_set(driver, cuMemMapArrayAsync, soft_cuMemMapArrayAsync);
    tow_driver_set(driver, cuMipmappedArrayCreate, soft_cuMipmappedArrayCreate);
    tow_driver_set(driver, cuMipmappedArrayGetLevel, soft_cuMipmappedArrayGetLevel);
    tow_driver_set(driver, cuMipmappedArrayDestroy, soft_cuMipmappedArrayDestroy);
}
