/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, and what they and textures share. */
#ifndef TOW_SOFT_MEMORY_ARRAY_H
#define TOW_SOFT_MEMORY_ARRAY_H

#include "backend/soft/ground/handle.h"
#include "gen/cuda_types.h"
#include "ptx/num/texture.h"

struct tow_soft_array {
    struct tow_soft_object object;
    unsigned refs;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint32_t texel;        /* bytes */
    uint32_t rows, slices; /* height and depth or layers, at least 1 */
    size_t row_pitch, slice_pitch;
    bool is_level;
    struct tow_soft_storage *storage; /* counted: a mipmapped array shares it with its levels */
    uint8_t *data;                    /* borrowed from storage */
};
struct tow_soft_array *tow_soft_array_ref(struct tow_soft_array *array);
void tow_soft_array_unref(struct tow_soft_array *array);
void tow_soft_array_end(struct tow_soft_object *object);
void tow_soft_mipmap_end(struct tow_soft_object *object);

/* The memory behind an array, shared with its mipmap levels and textures. */
struct tow_soft_storage {
    unsigned refs;
    struct tow_soft_alloc *alloc; /* owned */
};
void tow_soft_storage_unref(struct tow_soft_storage *storage);

struct tow_soft_mipmap {
    struct tow_soft_object object;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    unsigned levels;
    struct tow_soft_array *level[TOW_PTX_TEX_LEVELS_MAX]; /* owned */
    struct tow_soft_storage *storage;                     /* counted */
};

struct tow_soft_format {
    enum tow_ptx_tex_format format;
    uint32_t bytes;
    uint32_t channels; /* where the format fixes them, else 0 */
    bool normalized;   /* always read as float */
};
/* -1 for a format that this device has not. */
int tow_soft_format_find(CUarray_format format, struct tow_soft_format *ret_format);

#endif
