/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of the elements, times how many there are on each level. */
#include "server/worker/array_size.h"

#include <stdbool.h>

static uint64_t at_least_one(uint64_t value)
{
    return value == 0 ? 1 : value;
}

/* Bits of one element, with all its channels. */
static unsigned element_bits(CUarray_format format, unsigned channels)
{
    channels = channels == 0 ? 1 : channels;
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 8 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 16 * channels;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
        return 8;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_YUY2:
        return 16;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
    case CU_AD_FORMAT_Y416:
        return 64;
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
        return 4; /* blocks of 4x4 */
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
        return 8;
    case CU_AD_FORMAT_NV12:
        return 12;
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_Y444_PLANAR8:
    case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
        return 24;
    case CU_AD_FORMAT_Y444_PLANAR10:
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
        return 48;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 32 * channels;
    default:
        return 32; /* of the packed ones most have that */
    }
}

uint64_t tows_array_size(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels)
{
    if ((what->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0) {
        return 0;
    }
    uint64_t width = at_least_one(what->Width), height = at_least_one(what->Height);
    uint64_t depth = at_least_one(what->Depth), sum = 0;
    bool layered = (what->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
    unsigned bits = element_bits(what->Format, what->NumChannels);
    for (unsigned level = 0; level < at_least_one(levels) && level < 64; level++) {
        uint64_t size;
        if (__builtin_mul_overflow(width, height, &size) ||
            __builtin_mul_overflow(size, depth, &size) ||
            __builtin_mul_overflow(size, (uint64_t)bits, &size) ||
            __builtin_add_overflow(sum, (size + 7) / 8, &sum)) {
            return UINT64_MAX;
        }
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        depth = layered ? depth : at_least_one(depth / 2);
    }
    return sum;
}
