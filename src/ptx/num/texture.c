/* SPDX-License-Identifier: Apache-2.0 */
/* Textures and surfaces: addressing, filtering, conversion of texels.
 *
 * Every texel read goes through texel_at, which takes integer positions that the address mode has
 * already brought inside; that function clamps once more, so nothing above it can read outside. */
#include "ptx/num/texture.h"
#include "ptx/num/num_bits.h"

#include <errno.h>

#define POSITION_MAX                                                                               \
    (1 << 30)                 /* beyond any texture; keeps sums of positions and offsets in range */
#define EXTENT_MAX (1u << 28) /* the widest linear texture */

static uint32_t format_bytes(enum tow_ptx_tex_format format)
{
    switch (format) {
    case TOW_PTX_TEX_U8:
    case TOW_PTX_TEX_S8:
        return 1;
    case TOW_PTX_TEX_U16:
    case TOW_PTX_TEX_S16:
    case TOW_PTX_TEX_F16:
        return 2;
    default:
        return 4;
    }
}

uint32_t tow_ptx_texture_texel_bytes(const struct tow_ptx_texture *texture)
{
    return format_bytes(texture->format) * texture->channels;
}

static bool is_cube(const struct tow_ptx_texture *t)
{
    return t->kind == TOW_PTX_TEX_CUBE || t->kind == TOW_PTX_TEX_CUBE_LAYERED;
}

static bool is_layered(const struct tow_ptx_texture *t)
{
    return t->kind == TOW_PTX_TEX_1D_LAYERED || t->kind == TOW_PTX_TEX_2D_LAYERED ||
           t->kind == TOW_PTX_TEX_CUBE_LAYERED;
}

static unsigned texture_dimensions(const struct tow_ptx_texture *t)
{
    switch (t->kind) {
    case TOW_PTX_TEX_BUFFER:
    case TOW_PTX_TEX_1D:
    case TOW_PTX_TEX_1D_LAYERED:
        return 1;
    case TOW_PTX_TEX_3D:
        return 3;
    default:
        return 2;
    }
}

/* Slices beyond the plane that a position may name: depth, layers or faces. */
static uint32_t texture_slices(const struct tow_ptx_texture *t,
                               const struct tow_ptx_tex_level *level)
{
    if (t->kind == TOW_PTX_TEX_3D) {
        return level->depth;
    }
    if (is_cube(t)) {
        return t->layers * 6;
    }
    return is_layered(t) ? t->layers : 1;
}

int tow_ptx_texture_check(const struct tow_ptx_texture *t)
{
    if ((unsigned)t->kind > TOW_PTX_TEX_CUBE_LAYERED || (unsigned)t->format > TOW_PTX_TEX_F32 ||
        (t->channels != 1 && t->channels != 2 && t->channels != 4) || t->layers == 0 ||
        t->layers > 65536 || t->level_count == 0 || t->level_count > TOW_PTX_TEX_LEVELS_MAX) {
        return -EINVAL;
    }
    for (int i = 0; i < 3; i++) {
        if ((unsigned)t->address[i] > TOW_PTX_TEX_BORDER) {
            return -EINVAL;
        }
    }
    if (!is_layered(t) && t->layers != 1) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < t->level_count; i++) {
        const struct tow_ptx_tex_level *l = &t->level[i];
        uint64_t row = (uint64_t)l->width * tow_ptx_texture_texel_bytes(t);
        if (!l->data || !l->width || !l->height || !l->depth || l->width > EXTENT_MAX ||
            l->height > EXTENT_MAX || l->depth > EXTENT_MAX) {
            return -EINVAL;
        }
        if ((texture_dimensions(t) == 1 && l->height != 1) ||
            (texture_dimensions(t) < 3 && l->depth != 1) || (l->height > 1 && l->row_pitch < row)) {
            return -EINVAL;
        }
        if (texture_slices(t, l) > 1 && l->slice_pitch < row) {
            return -EINVAL;
        }
    }
    return 0;
}

/* ---- texels --------------------------------------------------------------------------- */

static int32_t clamp_int(int32_t v, int32_t low, int32_t high)
{
    return v < low ? low : v > high ? high : v;
}

static uint8_t *texel_at(const struct tow_ptx_texture *t, const struct tow_ptx_tex_level *level,
                         int32_t x, int32_t y, int32_t slice)
{
    x = clamp_int(x, 0, (int32_t)level->width - 1);
    y = clamp_int(y, 0, (int32_t)level->height - 1);
    slice = clamp_int(slice, 0, (int32_t)texture_slices(t, level) - 1);
    return (uint8_t *)level->data + (uint64_t)slice * level->slice_pitch +
           (uint64_t)y * level->row_pitch + (uint64_t)x * tow_ptx_texture_texel_bytes(t);
}

static bool reads_float(const struct tow_ptx_texture *t)
{
    bool narrow = t->format <= TOW_PTX_TEX_S16;
    return t->format >= TOW_PTX_TEX_F16 || (t->normalized_float && narrow);
}

static float from_srgb(float c)
{
    return c <= 0.04045f ? c / 12.92f : powf((c + 0.055f) / 1.055f, 2.4f);
}

/* One channel as the 32 bits that a kernel receives. */
static uint32_t channel_bits(const struct tow_ptx_texture *t, const uint8_t *texel,
                             unsigned channel)
{
    const uint8_t *at = texel + channel * format_bytes(t->format);
    uint32_t v = 0;
    memcpy(&v, at, format_bytes(t->format));
    float f;
    switch (t->format) {
    case TOW_PTX_TEX_U8:
        f = (float)v / 255.0f;
        if (t->srgb && channel < 3) {
            f = from_srgb(f);
        }
        break;
    case TOW_PTX_TEX_S8:
        v = (uint32_t)(int8_t)v;
        f = (float)(int32_t)v / 127.0f;
        break;
    case TOW_PTX_TEX_U16:
        f = (float)v / 65535.0f;
        break;
    case TOW_PTX_TEX_S16:
        v = (uint32_t)(int16_t)v;
        f = (float)(int32_t)v / 32767.0f;
        break;
    case TOW_PTX_TEX_F16:
        return tow_f32_bits(tow_h2f(v));
    default:
        return v;
    }
    return t->normalized_float ? tow_f32_bits(f < -1.0f ? -1.0f : f) : v;
}

static void read_texel(const struct tow_ptx_texture *t, const struct tow_ptx_tex_level *level,
                       int32_t x, int32_t y, int32_t slice, uint32_t out[4])
{
    const uint8_t *texel = texel_at(t, level, x, y, slice);
    for (unsigned c = 0; c < 4; c++) {
        out[c] = c < t->channels ? channel_bits(t, texel, c) : 0;
    }
}

static void read_border(const struct tow_ptx_texture *t, uint32_t out[4])
{
    for (unsigned c = 0; c < 4; c++) {
        float f = t->border[c];
        if (reads_float(t)) {
            out[c] = tow_f32_bits(f);
        } else {
            out[c] = (uint32_t)(f >= 0x1p31f    ? (int64_t)(f < 0x1p32f ? f : 0x1.fffffep31f)
                                : f >= -0x1p31f ? (int64_t)f
                                                : 0);
        }
    }
}

/* ---- addressing ----------------------------------------------------------------------- */

/* wrap and mirror need normalised coordinates; without them they are clamp. On a face of a cube the
 * mode counts for the neighbours of a filtered read. */
static enum tow_ptx_tex_address mode_of(const struct tow_ptx_texture *t, unsigned axis, bool linear)
{
    enum tow_ptx_tex_address mode = t->address[axis];
    bool periodic = mode == TOW_PTX_TEX_WRAP || mode == TOW_PTX_TEX_MIRROR;
    if (is_cube(t) ? !linear : periodic && !t->normalized_coords) {
        return TOW_PTX_TEX_CLAMP;
    }
    return mode;
}

/* A position as the mode maps it: inside [0, n), or -1 for the border. */
static int32_t texture_map(int32_t i, int32_t n, enum tow_ptx_tex_address mode)
{
    switch (mode) {
    case TOW_PTX_TEX_WRAP: {
        int32_t m = i % n;
        return m < 0 ? m + n : m;
    }
    case TOW_PTX_TEX_MIRROR: {
        int64_t period = 2 * (int64_t)n;
        int64_t m = i % period;
        m = m < 0 ? m + period : m;
        return (int32_t)(m < n ? m : period - 1 - m);
    }
    case TOW_PTX_TEX_BORDER:
        return i < 0 || i >= n ? -1 : i;
    default:
        return clamp_int(i, 0, n - 1);
    }
}

static int32_t to_position(float x)
{
    float f = __builtin_floorf(x);
    if (!(f > -(float)POSITION_MAX)) { /* NaN too */
        return x == x ? -POSITION_MAX : 0;
    }
    return f < (float)POSITION_MAX ? (int32_t)f : POSITION_MAX;
}

/* One axis of a fetch: the two positions and how much the second weighs. */
struct axis {
    int32_t at[2]; /* mapped; -1 is the border */
    float weight;
};

/* From a coordinate to texels. Normalised coordinates are first brought into one period, where no
 * precision is lost to the size of the number. */
static float texture_scale(float x, int32_t n, enum tow_ptx_tex_address mode, bool normalized)
{
    if (!normalized) {
        return x;
    }
    if (mode == TOW_PTX_TEX_WRAP) {
        x = x - __builtin_floorf(x);
    } else if (mode == TOW_PTX_TEX_MIRROR) {
        x = x - 2.0f * __builtin_floorf(x * 0.5f);
    }
    return x * (float)n;
}

static struct axis axis_linear(float x, int32_t n, enum tow_ptx_tex_address mode, int32_t offset)
{
    struct axis a;
    float shifted = x - 0.5f;
    int32_t i = to_position(shifted);
    float fraction = shifted - __builtin_floorf(shifted);
    /* 8 bits behind the point; what is rounded up to 1 lies on the next texel */
    float weight = __builtin_floorf(fraction * 256.0f + 0.5f) * (1.0f / 256.0f);
    i += weight == 1.0f;
    a.weight = weight >= 0.0f && weight < 1.0f ? weight : 0.0f;
    a.at[0] = texture_map(i + offset, n, mode);
    a.at[1] = texture_map(i + offset + 1, n, mode);
    return a;
}

static struct axis axis_point(int32_t i, int32_t n, enum tow_ptx_tex_address mode)
{
    struct axis a = {.weight = 0};
    a.at[0] = a.at[1] = texture_map(i, n, mode);
    return a;
}

static int32_t clamp_offset(int32_t offset)
{
    return clamp_int(offset, -4096, 4096);
}

/* Cube face and coordinates on it, in [0, 1]. */
static unsigned cube_face(const float dir[3], float *s, float *t)
{
    float x = dir[0], y = dir[1], z = dir[2];
    float ax = __builtin_fabsf(x), ay = __builtin_fabsf(y), az = __builtin_fabsf(z);
    float major, u, v;
    unsigned face;
    if (az >= ax && az >= ay) {
        face = z < 0 ? 5 : 4;
        major = az, u = z < 0 ? -x : x, v = -y;
    } else if (ay >= ax) {
        face = y < 0 ? 3 : 2;
        major = ay, u = x, v = y < 0 ? -z : z;
    } else {
        face = x < 0 ? 1 : 0;
        major = ax, u = x < 0 ? z : -z, v = -y;
    }
    *s = (u / major + 1.0f) * 0.5f;
    *t = (v / major + 1.0f) * 0.5f;
    return face;
}

/* What a fetch reads at one level: the positions on each axis. */
struct footprint {
    struct axis axis[3];
    int32_t slice; /* layer or face; not for 3D */
};

static struct footprint texture_locate(const struct tow_ptx_texture *t,
                                       const struct tow_ptx_tex_level *level,
                                       const struct tow_ptx_tex_args *args, bool linear)
{
    struct footprint p = {.slice = 0};
    unsigned count = texture_dimensions(t);
    const int32_t size[3] = {(int32_t)level->width, (int32_t)level->height, (int32_t)level->depth};
    float coord[3] = {args->f[0], args->f[1], args->f[2]};
    uint32_t layer = args->layer < t->layers ? args->layer : t->layers - 1;
    bool normalized = t->normalized_coords;
    if (is_cube(t)) {
        unsigned face = cube_face(args->f, &coord[0], &coord[1]);
        p.slice = (int32_t)((t->kind == TOW_PTX_TEX_CUBE_LAYERED ? layer * 6 : 0) + face);
        normalized = true;
    } else if (is_layered(t)) {
        p.slice = (int32_t)layer;
    }
    for (unsigned i = 0; i < 3; i++) {
        if (i >= count) {
            p.axis[i] = axis_point(0, 1, TOW_PTX_TEX_CLAMP);
            continue;
        }
        enum tow_ptx_tex_address mode = mode_of(t, i, linear);
        int32_t offset = clamp_offset(args->offset[i]);
        if (args->integer) {
            int32_t at = clamp_int(args->i[i], -POSITION_MAX, POSITION_MAX);
            /* no mode counts here: what lies outside is marked, and reads as zero */
            p.axis[i] = axis_point(at + offset, size[i], TOW_PTX_TEX_BORDER);
            continue;
        }
        float x =
            texture_scale(coord[i], size[i], is_cube(t) ? TOW_PTX_TEX_CLAMP : mode, normalized);
        p.axis[i] = linear ? axis_linear(x, size[i], mode, offset)
                           : axis_point(to_position(x) + offset, size[i], mode);
    }
    return p;
}

static void read_at(const struct tow_ptx_texture *t, const struct tow_ptx_tex_level *level,
                    const struct footprint *p, unsigned i, unsigned j, unsigned k, uint32_t out[4])
{
    int32_t x = p->axis[0].at[i], y = p->axis[1].at[j], z = p->axis[2].at[k];
    if (x < 0 || y < 0 || z < 0) {
        read_border(t, out);
        return;
    }
    read_texel(t, level, x, y, t->kind == TOW_PTX_TEX_3D ? z : p->slice, out);
}

static void sample_level(const struct tow_ptx_texture *t, uint32_t index,
                         const struct tow_ptx_tex_args *args, uint32_t out[4])
{
    const struct tow_ptx_tex_level *level = &t->level[index];
    bool linear = t->filter == TOW_PTX_TEX_LINEAR && reads_float(t) && !args->integer;
    struct footprint p = texture_locate(t, level, args, linear);
    bool outside = p.axis[0].at[0] < 0 || p.axis[1].at[0] < 0 || p.axis[2].at[0] < 0;
    /* Integer coordinates do not reach the texels of a one-dimensional array, only linear memory.
     */
    if (args->integer && (outside || t->kind == TOW_PTX_TEX_1D)) {
        memset(out, 0, 4 * sizeof out[0]);
        return;
    }
    if (!linear) {
        read_at(t, level, &p, 0, 0, 0, out);
        return;
    }
    unsigned count = texture_dimensions(t);
    float sum[4] = {0, 0, 0, 0};
    for (unsigned corner = 0; corner < 1u << count; corner++) {
        float weight = 1.0f;
        unsigned at[3] = {0, 0, 0};
        for (unsigned i = 0; i < count; i++) {
            at[i] = corner >> i & 1;
            weight *= at[i] ? p.axis[i].weight : 1.0f - p.axis[i].weight;
        }
        if (weight == 0.0f) { /* a neighbour that does not count may be infinite */
            continue;
        }
        uint32_t texel[4];
        read_at(t, level, &p, at[0], at[1], at[2], texel);
        for (unsigned c = 0; c < 4; c++) {
            sum[c] += weight * tow_f32(texel[c]);
        }
    }
    if (t->kind == TOW_PTX_TEX_1D && t->address[1] == TOW_PTX_TEX_BORDER) {
        /* One row high, read at its upper edge: half of the result lies above, on the border. */
        for (unsigned c = 0; c < 4; c++) {
            sum[c] = 0.5f * sum[c] + 0.5f * t->border[c];
        }
    }
    for (unsigned c = 0; c < 4; c++) {
        out[c] = tow_f32_canon(tow_f32_bits(sum[c]));
    }
}

/* What most kernels read: floats of one channel, two dimensions, inside. False: it is another case.
 * The same sums in the same order as sample_level. */
static bool sample_plain(const struct tow_ptx_texture *t, const struct tow_ptx_tex_args *args,
                         uint32_t out[4])
{
    const struct tow_ptx_tex_level *level = &t->level[0];
    if (t->kind != TOW_PTX_TEX_2D || t->format != TOW_PTX_TEX_F32 || t->channels != 1 ||
        args->integer) {
        return false;
    }
    bool linear = t->filter == TOW_PTX_TEX_LINEAR, normalized = t->normalized_coords;
    const int32_t size[2] = {(int32_t)level->width, (int32_t)level->height};
    struct axis axis[2];
    for (unsigned i = 0; i < 2; i++) {
        enum tow_ptx_tex_address mode = mode_of(t, i, linear);
        int32_t offset = clamp_offset(args->offset[i]);
        float x = texture_scale(args->f[i], size[i], mode, normalized);
        axis[i] = linear ? axis_linear(x, size[i], mode, offset)
                         : axis_point(to_position(x) + offset, size[i], mode);
        if (axis[i].at[0] < 0 || axis[i].at[1] < 0) {
            return false;
        }
    }
    const uint8_t *rows[2] = {
        (const uint8_t *)level->data + (uint64_t)axis[1].at[0] * level->row_pitch,
        (const uint8_t *)level->data + (uint64_t)axis[1].at[1] * level->row_pitch};
    memset(out, 0, 4 * sizeof out[0]);
    if (!linear) {
        memcpy(out, rows[0] + 4 * (uint64_t)axis[0].at[0], 4);
        return true;
    }
    float wx = axis[0].weight, wy = axis[1].weight, sum = 0;
    const float weights[4] = {(1.0f - wx) * (1.0f - wy), wx * (1.0f - wy), (1.0f - wx) * wy,
                              wx * wy};
    for (unsigned corner = 0; corner < 4; corner++) {
        if (weights[corner] != 0.0f) { /* a neighbour that does not count may be infinite */
            float texel;
            memcpy(&texel, rows[corner >> 1] + 4 * (uint64_t)axis[0].at[corner & 1], 4);
            sum += weights[corner] * texel;
        }
    }
    out[0] = tow_f32_canon(tow_f32_bits(sum));
    return true;
}

static float level_of_detail(const struct tow_ptx_texture *t, const struct tow_ptx_tex_args *args)
{
    const struct tow_ptx_tex_level *base = &t->level[0];
    float lod = 0;
    if (args->lod_kind == TOW_PTX_TEX_LOD_LEVEL) {
        lod = args->lod;
    } else if (args->lod_kind == TOW_PTX_TEX_LOD_GRAD) {
        const float size[3] = {(float)base->width, (float)base->height, (float)base->depth};
        float x = 0, y = 0;
        for (unsigned i = 0; i < texture_dimensions(t); i++) {
            float s = t->normalized_coords ? size[i] : 1.0f;
            x += args->dx[i] * s * args->dx[i] * s;
            y += args->dy[i] * s * args->dy[i] * s;
        }
        float longest = x > y ? x : y;
        lod = longest > 0 ? 0.5f * log2f(longest) : -126.0f;
    }
    lod += t->lod_bias;
    lod = lod < t->lod_min ? t->lod_min : lod;
    lod = lod > t->lod_max ? t->lod_max : lod;
    float last = (float)(t->level_count - 1);
    return lod > 0 ? (lod < last ? lod : last) : 0.0f; /* NaN is level 0 */
}

TOW_HOT __attribute__((flatten)) void tow_ptx_texture_fetch(const struct tow_ptx_texture *texture,
                                                            const struct tow_ptx_tex_args *args,
                                                            uint32_t ret_texel[4])
{
    if (texture->kind == TOW_PTX_TEX_BUFFER) {
        int32_t x = args->integer ? args->i[0] : to_position(args->f[0]);
        if (x < 0 || (uint32_t)x >= texture->level[0].width) {
            memset(ret_texel, 0, 4 * sizeof ret_texel[0]);
            return;
        }
        read_texel(texture, &texture->level[0], x, 0, 0, ret_texel);
        return;
    }
    if (texture->level_count == 1 && sample_plain(texture, args, ret_texel)) {
        return;
    }
    if (texture->level_count == 1) {
        sample_level(texture, 0, args, ret_texel);
        return;
    }
    float lod = level_of_detail(texture, args);
    if (texture->mip_filter == TOW_PTX_TEX_POINT || !reads_float(texture)) {
        sample_level(texture, (uint32_t)(lod + 0.5f), args, ret_texel);
        return;
    }
    uint32_t low = (uint32_t)lod;
    float weight = __builtin_floorf((lod - (float)low) * 256.0f + 0.5f) * (1.0f / 256.0f);
    sample_level(texture, low, args, ret_texel);
    if (weight > 0 && low + 1 < texture->level_count) {
        uint32_t next[4];
        sample_level(texture, low + 1, args, next);
        for (unsigned c = 0; c < 4; c++) {
            float v = tow_f32(ret_texel[c]) * (1.0f - weight) + tow_f32(next[c]) * weight;
            ret_texel[c] = tow_f32_canon(tow_f32_bits(v));
        }
    }
}

void tow_ptx_texture_gather(const struct tow_ptx_texture *texture,
                            const struct tow_ptx_tex_args *args, unsigned component,
                            uint32_t ret_values[4])
{
    /* counter-clockwise from the lower left, y growing downwards */
    static const uint8_t corners[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
    const struct tow_ptx_tex_level *level = &texture->level[0];
    struct footprint p = texture_locate(texture, level, args, true);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t texel[4];
        read_at(texture, level, &p, corners[i][0], corners[i][1], 0, texel);
        ret_values[i] = texel[component & 3];
    }
}

/* ---- queries -------------------------------------------------------------------------- */

/* Numbers of the channel types and orders: those of OpenCL, which PTX shares. */
static uint32_t channel_type(const struct tow_ptx_texture *t)
{
    static const uint16_t plain[] = {
        [TOW_PTX_TEX_U8] = 0x10da,  [TOW_PTX_TEX_S8] = 0x10d7,  [TOW_PTX_TEX_U16] = 0x10db,
        [TOW_PTX_TEX_S16] = 0x10d8, [TOW_PTX_TEX_U32] = 0x10dc, [TOW_PTX_TEX_S32] = 0x10d9,
        [TOW_PTX_TEX_F16] = 0x10dd, [TOW_PTX_TEX_F32] = 0x10de,
    };
    static const uint16_t normalized[] = {
        [TOW_PTX_TEX_U8] = 0x10d2,
        [TOW_PTX_TEX_S8] = 0x10d0,
        [TOW_PTX_TEX_U16] = 0x10d3,
        [TOW_PTX_TEX_S16] = 0x10d1,
    };
    return t->normalized_float && t->format <= TOW_PTX_TEX_S16 ? normalized[t->format]
                                                               : plain[t->format];
}

static uint32_t address_number(enum tow_ptx_tex_address mode)
{
    switch (mode) {
    case TOW_PTX_TEX_WRAP:
        return 0;
    case TOW_PTX_TEX_MIRROR:
        return 1;
    case TOW_PTX_TEX_CLAMP:
        return 3;
    default:
        return 4;
    }
}

uint32_t tow_ptx_texture_query(const struct tow_ptx_texture *texture, enum tow_ptx_tex_query query,
                               uint32_t level)
{
    uint32_t last = texture->level_count - 1;
    const struct tow_ptx_tex_level *l = &texture->level[level < last ? level : last];
    unsigned count = texture_dimensions(texture);
    switch (query) {
    case TOW_PTX_TEX_Q_WIDTH:
        return l->width;
    case TOW_PTX_TEX_Q_HEIGHT:
        /* layers take the place of the next dimension */
        return count > 1 ? l->height : is_layered(texture) ? texture->layers : 0;
    case TOW_PTX_TEX_Q_DEPTH:
        return count > 2 ? l->depth : count > 1 && is_layered(texture) ? texture->layers : 0;
    case TOW_PTX_TEX_Q_CHANNEL_DATA_TYPE:
        return channel_type(texture);
    case TOW_PTX_TEX_Q_CHANNEL_ORDER:
        return texture->channels == 1 ? 0x10b0 : texture->channels == 2 ? 0x10b2 : 0x10b5;
    case TOW_PTX_TEX_Q_NORMALIZED_COORDS:
        return texture->normalized_coords;
    case TOW_PTX_TEX_Q_FORCE_UNNORMALIZED_COORDS:
        return 0;
    case TOW_PTX_TEX_Q_FILTER_MODE:
        return texture->filter;
    case TOW_PTX_TEX_Q_ADDR_MODE_0:
        return address_number(texture->address[0]);
    case TOW_PTX_TEX_Q_ADDR_MODE_1:
        return address_number(texture->address[1]);
    case TOW_PTX_TEX_Q_ADDR_MODE_2:
        return address_number(texture->address[2]);
    case TOW_PTX_TEX_Q_ARRAY_SIZE:
        return is_layered(texture) ? texture->layers : 0;
    case TOW_PTX_TEX_Q_NUM_MIPMAP_LEVELS:
        return texture->level_count;
    case TOW_PTX_TEX_Q_NUM_SAMPLES:
        return 1;
    case TOW_PTX_TEX_Q_MEMORY_LAYOUT:
        return 0;
    }
    return 0;
}

/* ---- surfaces ------------------------------------------------------------------------- */

static bool bring_inside(int64_t *v, int64_t count, enum tow_ptx_surf_mode mode)
{
    if (*v >= 0 && *v < count) {
        return true;
    }
    if (mode != TOW_PTX_SURF_CLAMP) {
        return false;
    }
    *v = *v < 0 ? 0 : count - 1;
    return true;
}

int tow_ptx_surface_at(const struct tow_ptx_texture *surface, enum tow_ptx_surf_mode mode,
                       int32_t x_bytes, int32_t y, int32_t z, uint32_t layer, uint32_t bytes,
                       void **ret_at)
{
    const struct tow_ptx_tex_level *level = &surface->level[0];
    unsigned count = texture_dimensions(surface);
    uint64_t row = (uint64_t)level->width * tow_ptx_texture_texel_bytes(surface);
    if (bytes == 0 || x_bytes % (int32_t)bytes) {
        return -EINVAL;
    }
    int64_t x = x_bytes / (int32_t)bytes; /* in units of the access */
    int64_t row_at = count > 1 ? y : 0;
    int64_t slice = surface->kind == TOW_PTX_TEX_3D           ? z
                    : is_cube(surface) || is_layered(surface) ? (int64_t)layer
                                                              : 0;
    bool inside = row >= bytes && bring_inside(&x, (int64_t)(row / bytes), mode) &&
                  bring_inside(&row_at, level->height, mode) &&
                  bring_inside(&slice, texture_slices(surface, level), mode);
    if (!inside) {
        if (mode == TOW_PTX_SURF_TRAP) {
            return -EFAULT;
        }
        *ret_at = NULL;
        return 0;
    }
    *ret_at = (uint8_t *)level->data + (uint64_t)slice * level->slice_pitch +
              (uint64_t)row_at * level->row_pitch + (uint64_t)x * bytes;
    return 0;
}

/* What does not fit an integer format is clamped. */
static uint32_t to_format(enum tow_ptx_tex_format format, uint32_t v)
{
    switch (format) {
    case TOW_PTX_TEX_U8:
        return v < UINT8_MAX ? v : UINT8_MAX;
    case TOW_PTX_TEX_U16:
        return v < UINT16_MAX ? v : UINT16_MAX;
    case TOW_PTX_TEX_S8:
        return (uint32_t)clamp_int((int32_t)v, INT8_MIN, INT8_MAX);
    case TOW_PTX_TEX_S16:
        return (uint32_t)clamp_int((int32_t)v, INT16_MIN, INT16_MAX);
    case TOW_PTX_TEX_F16:
        return tow_f2h(tow_f32(v));
    default:
        return v;
    }
}

int tow_ptx_surface_store(const struct tow_ptx_texture *surface, enum tow_ptx_surf_mode mode,
                          int32_t x, int32_t y, int32_t z, uint32_t layer, const uint32_t texel[4])
{
    uint32_t bytes = tow_ptx_texture_texel_bytes(surface), part = format_bytes(surface->format);
    void *at;
    int64_t x_bytes = (int64_t)x * bytes;
    if (x_bytes > INT32_MAX || x_bytes < INT32_MIN) {
        x_bytes = x < 0 ? -(int64_t)bytes : (int64_t)(INT32_MAX / bytes) * bytes;
    }
    int r = tow_ptx_surface_at(surface, mode, (int32_t)x_bytes, y, z, layer, bytes, &at);
    if (r < 0 || !at) {
        return r;
    }
    for (unsigned c = 0; c < surface->channels; c++) {
        uint32_t v = to_format(surface->format, texel[c]);
        memcpy((uint8_t *)at + c * part, &v, part);
    }
    return 0;
}
