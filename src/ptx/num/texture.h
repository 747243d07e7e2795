/* SPDX-License-Identifier: Apache-2.0 */
/* Textures and surfaces as a kernel sees them.
 *
 * The driver face fills a `struct tow_ptx_texture` when an object is made; the executor asks the
 * functions below for one lane at a time. No coordinate, however wrong (NaN, huge, negative), makes
 * them touch memory outside the levels described. The same struct serves a texture and a surface
 * object; a surface uses level 0 only, and of the settings only the format.
 */
#ifndef TOW_PTX_TEXTURE_H
#define TOW_PTX_TEXTURE_H

#include <stdbool.h>
#include <stdint.h>

#define TOW_PTX_TEX_LEVELS_MAX 16 /* 32768 texels a side is the largest CUDA array */

enum tow_ptx_tex_kind {
    TOW_PTX_TEX_BUFFER, /* 1D linear memory: integer coordinates, no filter, out of range reads 0 */
    TOW_PTX_TEX_1D,
    TOW_PTX_TEX_2D, /* CUDA array or pitched linear memory alike */
    TOW_PTX_TEX_3D,
    TOW_PTX_TEX_1D_LAYERED,
    TOW_PTX_TEX_2D_LAYERED,
    TOW_PTX_TEX_CUBE,         /* six layers: +x -x +y -y +z -z */
    TOW_PTX_TEX_CUBE_LAYERED, /* six layers a cube */
};

enum tow_ptx_tex_format {
    TOW_PTX_TEX_U8,
    TOW_PTX_TEX_S8,
    TOW_PTX_TEX_U16,
    TOW_PTX_TEX_S16,
    TOW_PTX_TEX_U32,
    TOW_PTX_TEX_S32,
    TOW_PTX_TEX_F16,
    TOW_PTX_TEX_F32,
};

enum tow_ptx_tex_address { /* numbers as CUaddress_mode */
                           TOW_PTX_TEX_WRAP = 0,
                           TOW_PTX_TEX_CLAMP = 1,
                           TOW_PTX_TEX_MIRROR = 2,
                           TOW_PTX_TEX_BORDER = 3,
};

enum tow_ptx_tex_filter { /* numbers as CUfilter_mode */
                          TOW_PTX_TEX_POINT = 0,
                          TOW_PTX_TEX_LINEAR = 1,
};

struct tow_ptx_tex_level {
    void *data;                    /* borrowed: lives at least as long as any launch that uses it */
    uint32_t width, height, depth; /* in texels; height and depth are 1 where there is none */
    uint64_t row_pitch;            /* bytes from one row to the next */
    uint64_t slice_pitch;          /* bytes from one depth slice, layer or face to the next */
};

struct tow_ptx_texture {
    enum tow_ptx_tex_kind kind;
    enum tow_ptx_tex_format format;
    uint32_t channels; /* 1, 2 or 4 */
    uint32_t layers;   /* of layered kinds; for cubes the number of cubes; else 1 */
    uint32_t level_count;
    struct tow_ptx_tex_level level[TOW_PTX_TEX_LEVELS_MAX];
    enum tow_ptx_tex_address address[3];
    enum tow_ptx_tex_filter filter, mip_filter;
    bool normalized_coords;
    bool normalized_float; /* integer texels are read as [0, 1] or [-1, 1] */
    bool srgb;             /* with normalized_float and U8: first three channels are sRGB-encoded */
    bool seamless_cube;
    float border[4];
    float lod_bias, lod_min, lod_max;
    uint32_t max_anisotropy; /* kept for queries; filtering is isotropic */
};

enum tow_ptx_tex_lod {
    TOW_PTX_TEX_LOD_NONE,  /* level 0 */
    TOW_PTX_TEX_LOD_LEVEL, /* tex.level: `lod`, plus bias, clamped */
    TOW_PTX_TEX_LOD_GRAD,  /* tex.grad: from dx and dy */
};

/* One lane's fetch. Coordinates in the order x, y, z; unused ones are ignored. */
struct tow_ptx_tex_args {
    bool integer;   /* coordinates are in `i`, else in `f` */
    int32_t i[3];   /* texels, of level `lod` */
    float f[3];     /* for cubes the direction */
    uint32_t layer; /* clamped to the last */
    int32_t offset[3];
    enum tow_ptx_tex_lod lod_kind;
    float lod;
    float dx[3], dy[3];
};

/* tex. Four 32-bit channels: f32 for float formats and normalised reads, else integers extended to
 * 32 bits. A channel that the format lacks is 0. */
void tow_ptx_texture_fetch(const struct tow_ptx_texture *texture,
                           const struct tow_ptx_tex_args *args, uint32_t ret_texel[4]);

/* tld4: one component (0 to 3) of the four texels that a bilinear read would use. */
void tow_ptx_texture_gather(const struct tow_ptx_texture *texture,
                            const struct tow_ptx_tex_args *args, unsigned component,
                            uint32_t ret_values[4]);

enum tow_ptx_tex_query { /* txq, suq */
                         TOW_PTX_TEX_Q_WIDTH,
                         TOW_PTX_TEX_Q_HEIGHT,
                         TOW_PTX_TEX_Q_DEPTH,
                         TOW_PTX_TEX_Q_CHANNEL_DATA_TYPE,
                         TOW_PTX_TEX_Q_CHANNEL_ORDER,
                         TOW_PTX_TEX_Q_NORMALIZED_COORDS,
                         TOW_PTX_TEX_Q_FORCE_UNNORMALIZED_COORDS,
                         TOW_PTX_TEX_Q_FILTER_MODE,
                         TOW_PTX_TEX_Q_ADDR_MODE_0,
                         TOW_PTX_TEX_Q_ADDR_MODE_1,
                         TOW_PTX_TEX_Q_ADDR_MODE_2,
                         TOW_PTX_TEX_Q_ARRAY_SIZE,
                         TOW_PTX_TEX_Q_NUM_MIPMAP_LEVELS,
                         TOW_PTX_TEX_Q_NUM_SAMPLES,
                         TOW_PTX_TEX_Q_MEMORY_LAYOUT,
};
/* `level` counts for width, height and depth (txq.level); past the last it is the last. */
uint32_t tow_ptx_texture_query(const struct tow_ptx_texture *texture, enum tow_ptx_tex_query query,
                               uint32_t level);

enum tow_ptx_surf_mode {
    TOW_PTX_SURF_TRAP,
    TOW_PTX_SURF_CLAMP,
    TOW_PTX_SURF_ZERO,
};
/* Where a surface access of `bytes` lands: x in bytes (.b) and y, z in texels; `layer` for layered
 * kinds (a cube's is cube * 6 + face). Success: a pointer to `bytes` bytes inside the surface, or
 * NULL when the access is outside and reads as 0 or is dropped (.zero). -EFAULT: outside under
 * .trap; -EINVAL: x not aligned to `bytes`. */
int tow_ptx_surface_at(const struct tow_ptx_texture *surface, enum tow_ptx_surf_mode mode,
                       int32_t x_bytes, int32_t y, int32_t z, uint32_t layer, uint32_t bytes,
                       void **ret_at);

/* sust.p: one texel (x in texels) from four 32-bit channels, converted to the surface's format. 0,
 * or -EFAULT under .trap. */
int tow_ptx_surface_store(const struct tow_ptx_texture *surface, enum tow_ptx_surf_mode mode,
                          int32_t x, int32_t y, int32_t z, uint32_t layer, const uint32_t texel[4]);

/* Bytes of one texel. */
uint32_t tow_ptx_texture_texel_bytes(const struct tow_ptx_texture *texture);

/* Whether the description is sound: what the driver face checks before it hands one out. 0,
 * -EINVAL. */
int tow_ptx_texture_check(const struct tow_ptx_texture *texture);

#endif
