/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects. Kernels look them up without a lock, by the handle that they were
 * given. */
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/memory/array.h"
#include "backend/soft/memory/texture.h"
#include "gen/texture.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096
#define CHUNKS 4096 /* as many as there are handles */

struct tex_object {
    struct tow_soft_object object;
    struct tow_soft_later later;
    uint64_t key; /* the handle, for kernels: queued ones use it after its object was destroyed */
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;     /* all 0 if none was given */
    struct tow_soft_storage *storage; /* counted; NULL for linear memory */
    uint64_t linear, linear_size;     /* linear memory: must be live when a kernel uses it */
    struct tow_ptx_texture is;
};

typedef _Atomic(struct tex_object *) chunk[CHUNK];
static _Atomic(chunk *) chunks[CHUNKS]; /* written under tow_soft.lock, read by anyone */

static _Atomic(struct tex_object *) *slot_of(uint64_t handle)
{
    uint32_t index = (uint32_t)(handle >> 4 & 0xffffff);
    chunk *found = atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire);
    return found != NULL ? &(*found)[index % CHUNK] : NULL;
}

const struct tow_ptx_texture *tow_soft_texture_get(uint64_t handle)
{
    enum tow_soft_kind kind = tow_soft_handle_kind(handle);
    if (kind != TOW_SOFT_TEXTURE && kind != TOW_SOFT_SURFACE) {
        return NULL;
    }
    _Atomic(struct tex_object *) *slot = slot_of(handle);
    struct tex_object *object =
        slot != NULL ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
    if (object == NULL || object->key != handle) {
        return NULL;
    }
    if (object->storage == NULL &&
        !tow_soft_range_ok(NULL, object->linear, object->linear_size, false)) {
        return NULL;
    }
    return &object->is;
}

static int texture_publish(struct tex_object *object)
{
    uint32_t index = (uint32_t)(object->object.handle >> 4 & 0xffffff);
    if (atomic_load(&chunks[index / CHUNK]) == NULL) {
        chunk *made = calloc(1, sizeof *made);
        if (made == NULL) {
            return -1;
        }
        atomic_store_explicit(&chunks[index / CHUNK], made, memory_order_release);
    }
    atomic_store_explicit(slot_of(object->object.handle), object, memory_order_release);
    return 0;
}

static void object_free(void *memory, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct tex_object *object = memory;
    tow_soft_storage_unref(object->storage);
    free(object);
}

/* No kernel that was launched before is left. One that was launched later may still have found it.
 */
static void object_unpublish(struct tow_soft_later *later)
{
    struct tex_object *object =
        (struct tex_object *)((char *)later - offsetof(struct tex_object, later));
    atomic_store(slot_of(object->key), NULL);
    tow_soft_handle_give_back(object->key);
    tow_soft_retire(object_free, object, 0, 0);
}

void tow_soft_texture_end(struct tow_soft_object *base)
{
    struct tex_object *object = (struct tex_object *)base;
    tow_soft_object_hide(base);
    object->later.run = object_unpublish;
    tow_soft_engine_later(&object->later);
}

void tow_soft_textures_fini(void)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        free(atomic_exchange(&chunks[i], NULL));
    }
}

static enum tow_ptx_tex_kind kind_of(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    bool layered = desc->Flags & CUDA_ARRAY3D_LAYERED;
    if (desc->Flags & CUDA_ARRAY3D_CUBEMAP) {
        return layered ? TOW_PTX_TEX_CUBE_LAYERED : TOW_PTX_TEX_CUBE;
    }
    if (layered) {
        return desc->Height != 0 ? TOW_PTX_TEX_2D_LAYERED : TOW_PTX_TEX_1D_LAYERED;
    }
    return desc->Depth != 0 ? TOW_PTX_TEX_3D : desc->Height != 0 ? TOW_PTX_TEX_2D : TOW_PTX_TEX_1D;
}

static CUresult set_format(struct tow_ptx_texture *is, CUarray_format format, unsigned channels)
{
    struct tow_soft_format found;
    if (tow_soft_format_find(format, &found) != 0 ||
        (channels != 1 && channels != 2 && channels != 4)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    is->format = found.format;
    is->channels = channels;
    is->normalized_float = found.normalized;
    return CUDA_SUCCESS;
}

static void set_level(struct tow_ptx_texture *is, unsigned index,
                      const struct tow_soft_array *array)
{
    bool layered = is->kind != TOW_PTX_TEX_3D;
    is->level[index] = (struct tow_ptx_tex_level){.data = array->data,
                                                  .width = (uint32_t)array->desc.Width,
                                                  .height = array->rows,
                                                  .depth = layered ? 1 : array->slices,
                                                  .row_pitch = array->row_pitch,
                                                  .slice_pitch = array->slice_pitch};
}

static void set_layers(struct tow_ptx_texture *is, uint32_t slices)
{
    is->layers = 1;
    if (is->kind == TOW_PTX_TEX_1D_LAYERED || is->kind == TOW_PTX_TEX_2D_LAYERED) {
        is->layers = slices;
    } else if (is->kind == TOW_PTX_TEX_CUBE_LAYERED) {
        is->layers = slices / 6;
    }
}

static CUresult from_array(struct tex_object *object, struct tow_soft_array *array)
{
    CUresult result = set_format(&object->is, array->desc.Format, array->desc.NumChannels);
    object->is.kind = kind_of(&array->desc);
    object->is.level_count = 1;
    set_level(&object->is, 0, array);
    set_layers(&object->is, array->slices);
    object->storage = array->storage;
    object->storage->refs++;
    return result;
}

static CUresult from_resource(struct tex_object *object, const CUDA_RESOURCE_DESC *resource)
{
    struct tow_ptx_texture *is = &object->is;
    is->layers = 1;
    is->level_count = 1;
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
        struct tow_soft_array *array =
            tow_soft_lookup(TOW_SOFT_ARRAY, TOW_SOFT_HANDLE(resource->res.array.hArray));
        return array == NULL ? CUDA_ERROR_INVALID_HANDLE : from_array(object, array);
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
        struct tow_soft_mipmap *mipmap =
            tow_soft_lookup(TOW_SOFT_MIPMAP, TOW_SOFT_HANDLE(resource->res.mipmap.hMipmappedArray));
        if (mipmap == NULL) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        CUresult result = from_array(object, mipmap->level[0]);
        is->level_count = mipmap->levels;
        for (unsigned i = 0; i < mipmap->levels; i++) {
            set_level(is, i, mipmap->level[i]);
        }
        return result;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
        uint64_t at = resource->res.linear.devPtr, size = resource->res.linear.sizeInBytes;
        CUresult result =
            set_format(is, resource->res.linear.format, resource->res.linear.numChannels);
        if (result != CUDA_SUCCESS || size == 0 || at % TOW_SOFT_UNIT != 0 ||
            !tow_soft_range_ok(NULL, at, size, false)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        is->kind = TOW_PTX_TEX_BUFFER;
        uint64_t width = size / tow_ptx_texture_texel_bytes(is);
        is->level[0] =
            (struct tow_ptx_tex_level){.data = (void *)(uintptr_t)at,
                                       .width = width > UINT32_MAX ? UINT32_MAX : (uint32_t)width,
                                       .height = 1,
                                       .depth = 1,
                                       .row_pitch = size,
                                       .slice_pitch = size};
        object->linear = at;
        object->linear_size = size;
        return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
        uint64_t at = resource->res.pitch2D.devPtr, pitch = resource->res.pitch2D.pitchInBytes;
        uint64_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
        CUresult result =
            set_format(is, resource->res.pitch2D.format, resource->res.pitch2D.numChannels);
        if (result != CUDA_SUCCESS || width == 0 || width > 131072 || height == 0 ||
            height > 65536 || at % TOW_SOFT_UNIT != 0 || pitch % 32 != 0 || pitch > (1u << 21)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        uint64_t row = width * tow_ptx_texture_texel_bytes(is);
        object->linear = at;
        object->linear_size = (height - 1) * pitch + row;
        if (pitch < row || !tow_soft_range_ok(NULL, at, object->linear_size, false)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        is->kind = TOW_PTX_TEX_2D;
        is->level[0] = (struct tow_ptx_tex_level){.data = (void *)(uintptr_t)at,
                                                  .width = (uint32_t)width,
                                                  .height = (uint32_t)height,
                                                  .depth = 1,
                                                  .row_pitch = pitch,
                                                  .slice_pitch = pitch * height};
        return CUDA_SUCCESS;
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set_sampling(struct tow_ptx_texture *is, const CUDA_TEXTURE_DESC *desc)
{
    for (int i = 0; i < 3; i++) {
        if ((int)desc->addressMode[i] < 0 || desc->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        is->address[i] = (enum tow_ptx_tex_address)desc->addressMode[i];
    }
    if ((unsigned)desc->filterMode > CU_TR_FILTER_MODE_LINEAR ||
        (unsigned)desc->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    is->filter = (enum tow_ptx_tex_filter)desc->filterMode;
    is->mip_filter = (enum tow_ptx_tex_filter)desc->mipmapFilterMode;
    is->normalized_coords = (desc->flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    bool integer = is->format != TOW_PTX_TEX_F16 && is->format != TOW_PTX_TEX_F32;
    bool wide = is->format == TOW_PTX_TEX_U32 || is->format == TOW_PTX_TEX_S32;
    if (integer && !wide && !(desc->flags & CU_TRSF_READ_AS_INTEGER)) {
        is->normalized_float = true;
    }
    if (is->filter == TOW_PTX_TEX_LINEAR && integer && !is->normalized_float) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    is->srgb = (desc->flags & CU_TRSF_SRGB) != 0;
    is->seamless_cube = (desc->flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
    is->lod_bias = desc->mipmapLevelBias;
    is->lod_min = desc->minMipmapLevelClamp;
    is->lod_max = desc->maxMipmapLevelClamp;
    is->max_anisotropy = desc->maxAnisotropy;
    memcpy(is->border, desc->borderColor, sizeof is->border);
    return CUDA_SUCCESS;
}

/* A view: another format of the same size, fewer levels, fewer layers. */
static CUresult set_view(struct tow_ptx_texture *is, const CUDA_RESOURCE_VIEW_DESC *view)
{
    if (view->format != CU_RES_VIEW_FORMAT_NONE) {
        static const enum tow_ptx_tex_format formats[] = {
            TOW_PTX_TEX_U8,  TOW_PTX_TEX_S8,  TOW_PTX_TEX_U16, TOW_PTX_TEX_S16,
            TOW_PTX_TEX_U32, TOW_PTX_TEX_S32, TOW_PTX_TEX_F16, TOW_PTX_TEX_F32};
        static const uint32_t channels[] = {1, 2, 4};
        unsigned index = (unsigned)view->format - CU_RES_VIEW_FORMAT_UINT_1X8;
        if (index >= 24) {
            return CUDA_ERROR_NOT_SUPPORTED; /* block-compressed */
        }
        uint32_t before = tow_ptx_texture_texel_bytes(is);
        is->format = formats[index / 3];
        is->channels = channels[index % 3];
        if (tow_ptx_texture_texel_bytes(is) != before) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (view->firstMipmapLevel > view->lastMipmapLevel ||
        view->lastMipmapLevel >= is->level_count) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    is->level_count = view->lastMipmapLevel - view->firstMipmapLevel + 1;
    memmove(is->level, is->level + view->firstMipmapLevel, is->level_count * sizeof is->level[0]);
    if (view->lastLayer != 0 || view->firstLayer != 0) {
        bool cubes = is->kind == TOW_PTX_TEX_CUBE_LAYERED;
        if (view->firstLayer > view->lastLayer || view->lastLayer >= is->layers * (cubes ? 6 : 1)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        for (unsigned i = 0; i < is->level_count; i++) {
            is->level[i].data =
                (uint8_t *)is->level[i].data + view->firstLayer * is->level[i].slice_pitch;
        }
        is->layers = (view->lastLayer - view->firstLayer + 1) / (cubes ? 6 : 1);
    }
    return CUDA_SUCCESS;
}

static CUresult object_create(enum tow_soft_kind kind, const CUDA_RESOURCE_DESC *resource,
                              const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view,
                              unsigned long long *ret_handle)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ret_handle == NULL || resource == NULL || resource->flags != 0 ||
        (kind == TOW_SOFT_TEXTURE && texture == NULL) ||
        (kind == TOW_SOFT_SURFACE && resource->resType != CU_RESOURCE_TYPE_ARRAY)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tex_object *object = calloc(1, sizeof *object);
    if (object == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    object->resource = *resource;
    result = from_resource(object, resource);
    if (result == CUDA_SUCCESS && texture != NULL) {
        object->texture = *texture;
        /* NVIDIA's driver tells no border colour. */
        memset(object->texture.borderColor, 0, sizeof object->texture.borderColor);
        result = set_sampling(&object->is, texture);
    }
    if (result == CUDA_SUCCESS && view != NULL) {
        object->view = *view;
        result = object->storage == NULL ? CUDA_ERROR_INVALID_VALUE : set_view(&object->is, view);
    }
    if (result == CUDA_SUCCESS && tow_ptx_texture_check(&object->is) != 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS || tow_soft_object_add(&object->object, kind, ctx) != 0) {
        object_free(object, 0, 0);
        return tow_soft_leave(result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY);
    }
    object->key = object->object.handle;
    if (texture_publish(object) != 0) {
        tow_soft_object_remove(&object->object);
        object_free(object, 0, 0);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *ret_handle = object->key;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult enter_object(enum tow_soft_kind kind, uint64_t handle,
                             struct tex_object **ret_object)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_object = tow_soft_lookup(kind, handle);
    return *ret_object != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult object_destroy(enum tow_soft_kind kind, uint64_t handle)
{
    struct tex_object *object;
    CUresult result = enter_object(kind, handle, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    tow_soft_texture_end(&object->object);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult get_resource(enum tow_soft_kind kind, uint64_t handle, CUDA_RESOURCE_DESC *desc)
{
    struct tex_object *object;
    CUresult result = enter_object(kind, handle, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (desc == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *desc = object->resource;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                       const CUDA_TEXTURE_DESC *pTexDesc,
                                       const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    return object_create(TOW_SOFT_TEXTURE, pResDesc, pTexDesc, pResViewDesc, pTexObject);
}

static CUresult soft_cuTexObjectDestroy(CUtexObject texObject)
{
    return object_destroy(TOW_SOFT_TEXTURE, texObject);
}

static CUresult soft_cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    return get_resource(TOW_SOFT_TEXTURE, texObject, pResDesc);
}

static CUresult soft_cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    struct tex_object *object;
    CUresult result = enter_object(TOW_SOFT_TEXTURE, texObject, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pTexDesc == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pTexDesc = object->texture;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
                                                    CUtexObject texObject)
{
    struct tex_object *object;
    CUresult result = enter_object(TOW_SOFT_TEXTURE, texObject, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pResViewDesc == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pResViewDesc = object->view;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuSurfObjectCreate(CUsurfObject *pSurfObject,
                                        const CUDA_RESOURCE_DESC *pResDesc)
{
    return object_create(TOW_SOFT_SURFACE, pResDesc, NULL, NULL, pSurfObject);
}

static CUresult soft_cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return object_destroy(TOW_SOFT_SURFACE, surfObject);
}

static CUresult soft_cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc,
                                                 CUsurfObject surfObject)
{
    return get_resource(TOW_SOFT_SURFACE, surfObject, pResDesc);
}

void tow_soft_fill_texture(struct tow_driver *driver)
{
    tow_soft_fill_array(driver);
    tow_driver_set(driver, cuTexObjectCreate, soft_cuTexObjectCreate);
    tow_driver_set(driver, cuTexObjectDestroy, soft_cuTexObjectDestroy);
    tow_driver_set(driver, cuTexObjectGetResourceDesc, soft_cuTexObjectGetResourceDesc);
    tow_driver_set(driver, cuTexObjectGetTextureDesc, soft_cuTexObjectGetTextureDesc);
    tow_driver_set(driver, cuTexObjectGetResourceViewDesc, soft_cuTexObjectGetResourceViewDesc);
    tow_driver_set(driver, cuSurfObjectCreate, soft_cuSurfObjectCreate);
    tow_driver_set(driver, cuSurfObjectDestroy, soft_cuSurfObjectDestroy);
    tow_driver_set(driver, cuSurfObjectGetResourceDesc, soft_cuSurfObjectGetResourceDesc);
}
