/* What arrays and textures share. */
#ifndef TOW_SOFT_ARRAY_H
#define TOW_SOFT_ARRAY_H

#include "backend/soft/ground/soft.h"

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
