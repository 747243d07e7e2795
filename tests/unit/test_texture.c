/* SPDX-License-Identifier: Apache-2.0 */
/* Textures: expected values worked out by hand from the addressing and filtering rules; then wild
 * coordinates over every setting, on memory whose surroundings must not be touched. */
#include "num_lib.h"

#include "ptx/num/texture.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct tow_ptx_texture texture_of(enum tow_ptx_tex_kind kind, enum tow_ptx_tex_format format,
                                         uint32_t channels, void *data, uint32_t width,
                                         uint32_t height, uint32_t depth, uint32_t texel_bytes)
{
    struct tow_ptx_texture t = {.kind = kind,
                                .format = format,
                                .channels = channels,
                                .layers = 1,
                                .level_count = 1,
                                .lod_max = 100};
    t.level[0].data = data;
    t.level[0].width = width;
    t.level[0].height = height;
    t.level[0].depth = depth;
    t.level[0].row_pitch = (uint64_t)width * texel_bytes;
    t.level[0].slice_pitch = (uint64_t)width * height * texel_bytes;
    for (int i = 0; i < 3; i++) {
        t.address[i] = TOW_PTX_TEX_CLAMP;
    }
    return t;
}

static float fetch(const struct tow_ptx_texture *t, float x, float y, float z)
{
    struct tow_ptx_tex_args args = {.f = {x, y, z}};
    uint32_t out[4];
    tow_ptx_texture_fetch(t, &args, out);
    return tow_f32(out[0]);
}

static float ramp[4] = {10, 20, 30, 40};

static void point_reads_follow_the_address_mode(void **state)
{
    struct tow_ptx_texture t =
        texture_of(TOW_PTX_TEX_1D, TOW_PTX_TEX_F32, 1, ramp, 4, 1, 1, sizeof(float));
    assert_int_equal(tow_ptx_texture_check(&t), 0);
    assert_true(fetch(&t, 0.0f, 0, 0) == 10);
    assert_true(fetch(&t, 1.99f, 0, 0) == 20);
    assert_true(fetch(&t, -5.0f, 0, 0) == 10);
    assert_true(fetch(&t, 9.0f, 0, 0) == 40);
    t.address[0] = TOW_PTX_TEX_WRAP; /* not normalised: clamps */
    assert_true(fetch(&t, 5.0f, 0, 0) == 40);
    t.address[0] = TOW_PTX_TEX_BORDER;
    t.border[0] = 7;
    assert_true(fetch(&t, -0.01f, 0, 0) == 7);
    assert_true(fetch(&t, 4.0f, 0, 0) == 7);
    assert_true(fetch(&t, 3.99f, 0, 0) == 40);
    t.normalized_coords = true;
    t.address[0] = TOW_PTX_TEX_WRAP;
    assert_true(fetch(&t, 0.25f, 0, 0) == 20);
    assert_true(fetch(&t, 1.25f, 0, 0) == 20);
    assert_true(fetch(&t, -0.25f, 0, 0) == 40);
    t.address[0] = TOW_PTX_TEX_MIRROR;
    assert_true(fetch(&t, 1.1f, 0, 0) == 40);
    assert_true(fetch(&t, 1.9f, 0, 0) == 10);
    assert_true(fetch(&t, -0.1f, 0, 0) == 10);
    assert_true(fetch(&t, 2.3f, 0, 0) == 20);
    assert_true(fetch(&t, NAN, 0, 0) == 10);
}

static void linear_reads_weigh_in_256ths(void **state)
{
    struct tow_ptx_texture t =
        texture_of(TOW_PTX_TEX_1D, TOW_PTX_TEX_F32, 1, ramp, 4, 1, 1, sizeof(float));
    t.filter = TOW_PTX_TEX_LINEAR;
    assert_true(fetch(&t, 0.5f, 0, 0) == 10);
    assert_true(fetch(&t, 1.0f, 0, 0) == 15);
    assert_true(fetch(&t, 1.75f, 0, 0) == 22.5f);
    assert_true(fetch(&t, 0.0f, 0, 0) == 10);
    assert_true(fetch(&t, 4.0f, 0, 0) == 40);
    /* less than 1/512 from the texel's centre is the texel */
    assert_true(fetch(&t, 0.5f + 0.0019f, 0, 0) == 10);
    assert_true(fetch(&t, 0.5f + 0.0021f, 0, 0) == 10 + 10.0f / 256);
    t.address[0] = TOW_PTX_TEX_BORDER;
    assert_true(fetch(&t, 0.0f, 0, 0) == 5);
    assert_true(fetch(&t, -0.5f, 0, 0) == 0);
    t.normalized_coords = true;
    t.address[0] = TOW_PTX_TEX_WRAP;
    assert_true(fetch(&t, 0.0f, 0, 0) == 25); /* half of the last, half of the first */
    assert_true(fetch(&t, 1.0f, 0, 0) == 25);
    t.address[0] = TOW_PTX_TEX_MIRROR;
    assert_true(fetch(&t, 0.0f, 0, 0) == 10);
    assert_true(fetch(&t, 1.0f, 0, 0) == 40);
}

static void two_and_three_dimensions(void **state)
{
    float plane[2][2] = {{0, 100}, {200, 300}};
    struct tow_ptx_texture t =
        texture_of(TOW_PTX_TEX_2D, TOW_PTX_TEX_F32, 1, plane, 2, 2, 1, sizeof(float));
    assert_true(fetch(&t, 1.5f, 0.5f, 0) == 100);
    assert_true(fetch(&t, 0.5f, 1.5f, 0) == 200);
    t.filter = TOW_PTX_TEX_LINEAR;
    assert_true(fetch(&t, 1.0f, 1.0f, 0) == 150);
    assert_true(fetch(&t, 0.75f, 1.25f, 0) == 0.25f * 0.25f * 0 + 0.25f * 0.25f * 100 +
                                                  0.75f * 0.75f * 200 + 0.75f * 0.25f * 300);
    float volume[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct tow_ptx_texture v =
        texture_of(TOW_PTX_TEX_3D, TOW_PTX_TEX_F32, 1, volume, 2, 2, 2, sizeof(float));
    assert_true(fetch(&v, 0, 0, 1.5f) == 4);
    assert_true(fetch(&v, 1, 1, 0) == 3);
    v.filter = TOW_PTX_TEX_LINEAR;
    assert_true(fetch(&v, 1, 1, 1) == 3.5f);
}

static void formats_become_what_kernels_read(void **state)
{
    uint8_t bytes[4] = {255, 128, 0, 51};
    struct tow_ptx_texture t = texture_of(TOW_PTX_TEX_2D, TOW_PTX_TEX_U8, 4, bytes, 1, 1, 1, 4);
    struct tow_ptx_tex_args args = {.f = {0.5f, 0.5f}};
    uint32_t out[4];
    tow_ptx_texture_fetch(&t, &args, out);
    assert_int_equal(out[0], 255);
    assert_int_equal(out[3], 51);
    t.normalized_float = true;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(tow_f32(out[0]) == 1.0f);
    assert_true(tow_f32(out[3]) == 51 / 255.0f);
    t.srgb = true;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(fabsf(tow_f32(out[1]) - 0.2158605f) < 1e-6f);
    assert_true(tow_f32(out[3]) == 51 / 255.0f);
    t.srgb = false;
    t.format = TOW_PTX_TEX_S8;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(tow_f32(out[1]) == -1.0f); /* -128 as well as -127 */
    t.normalized_float = false;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_int_equal(out[0], (uint32_t)-1);
    uint16_t halves[2] = {0x3c00, 0xc000};
    struct tow_ptx_texture h = texture_of(TOW_PTX_TEX_2D, TOW_PTX_TEX_F16, 2, halves, 1, 1, 1, 4);
    tow_ptx_texture_fetch(&h, &args, out);
    assert_true(tow_f32(out[0]) == 1.0f && tow_f32(out[1]) == -2.0f);
    assert_true(out[2] == 0 && out[3] == 0);
    h.format = TOW_PTX_TEX_S16;
    h.normalized_float = true;
    tow_ptx_texture_fetch(&h, &args, out);
    assert_true(tow_f32(out[0]) == 0x3c00 / 32767.0f);
}

static void linear_memory_reads_zero_outside(void **state)
{
    int32_t data[3] = {5, -6, 7};
    struct tow_ptx_texture t = texture_of(TOW_PTX_TEX_BUFFER, TOW_PTX_TEX_S32, 1, data, 3, 1, 1, 4);
    struct tow_ptx_tex_args args = {.integer = true};
    uint32_t out[4];
    for (int i = -2; i < 6; i++) {
        args.i[0] = i;
        tow_ptx_texture_fetch(&t, &args, out);
        assert_int_equal(out[0], (uint32_t)(i >= 0 && i < 3 ? data[i] : 0));
    }
    args.i[0] = INT32_MIN;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_int_equal(out[0], 0);
}

static void layers_and_faces(void **state)
{
    float layers[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    struct tow_ptx_texture t =
        texture_of(TOW_PTX_TEX_1D_LAYERED, TOW_PTX_TEX_F32, 1, layers, 2, 1, 1, 4);
    t.layers = 3;
    t.level[0].slice_pitch = 8;
    struct tow_ptx_tex_args args = {.f = {1.5f}, .layer = 1};
    uint32_t out[4];
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(tow_f32(out[0]) == 4);
    args.layer = 99;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(tow_f32(out[0]) == 6);
    float faces[12];
    for (int i = 0; i < 12; i++) {
        faces[i] = (float)i;
    }
    struct tow_ptx_texture cube =
        texture_of(TOW_PTX_TEX_CUBE, TOW_PTX_TEX_F32, 1, faces, 1, 1, 1, 4);
    const float dirs[6][3] = {{1, 0.1f, 0.2f},  {-1, 0.1f, 0.2f}, {0.1f, 1, 0.2f},
                              {0.1f, -1, 0.2f}, {0.1f, 0.2f, 1},  {0.1f, 0.2f, -1}};
    for (int i = 0; i < 6; i++) {
        assert_true(fetch(&cube, dirs[i][0], dirs[i][1], dirs[i][2]) == i);
    }
    cube.kind = TOW_PTX_TEX_CUBE_LAYERED;
    cube.layers = 2;
    struct tow_ptx_tex_args second = {.f = {0, -2, 0}, .layer = 1};
    tow_ptx_texture_fetch(&cube, &second, out);
    assert_true(tow_f32(out[0]) == 9);
    /* +x: s grows with -z, t with -y */
    float big[6][2][2] = {{{1, 2}, {3, 4}}};
    struct tow_ptx_texture x = texture_of(TOW_PTX_TEX_CUBE, TOW_PTX_TEX_F32, 1, big, 2, 2, 1, 4);
    assert_true(fetch(&x, 1, 0.5f, 0.5f) == 1);
    assert_true(fetch(&x, 1, 0.5f, -0.5f) == 2);
    assert_true(fetch(&x, 1, -0.5f, 0.5f) == 3);
}

static void mipmaps_choose_and_blend(void **state)
{
    float fine[4] = {1, 1, 1, 1}, middle[2] = {2, 2}, coarse[1] = {4};
    struct tow_ptx_texture t = texture_of(TOW_PTX_TEX_1D, TOW_PTX_TEX_F32, 1, fine, 4, 1, 1, 4);
    t.level_count = 3;
    t.level[1] = t.level[0];
    t.level[1].data = middle;
    t.level[1].width = 2;
    t.level[2] = t.level[0];
    t.level[2].data = coarse;
    t.level[2].width = 1;
    t.normalized_coords = true;
    struct tow_ptx_tex_args args = {.f = {0.5f}, .lod_kind = TOW_PTX_TEX_LOD_LEVEL};
    const struct {
        float lod, point, linear;
    } table[] = {{-3, 1, 1},   {0, 1, 1}, {0.25f, 1, 1.25f}, {1, 2, 2},
                 {1.5f, 4, 3}, {9, 4, 4}, {NAN, 1, 1}};
    for (size_t i = 0; i < TEST_COUNT(table); i++) {
        uint32_t out[4];
        args.lod = table[i].lod;
        t.mip_filter = TOW_PTX_TEX_POINT;
        tow_ptx_texture_fetch(&t, &args, out);
        assert_true(tow_f32(out[0]) == table[i].point);
        t.mip_filter = TOW_PTX_TEX_LINEAR;
        tow_ptx_texture_fetch(&t, &args, out);
        assert_true(tow_f32(out[0]) == table[i].linear);
    }
    uint32_t out[4];
    t.mip_filter = TOW_PTX_TEX_POINT;
    args.lod_kind = TOW_PTX_TEX_LOD_GRAD;
    args.dx[0] = 0.5f; /* two texels of level 0 a pixel */
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(tow_f32(out[0]) == 2);
    t.lod_max = 0;
    tow_ptx_texture_fetch(&t, &args, out);
    assert_true(tow_f32(out[0]) == 1);
    assert_int_equal(tow_ptx_texture_query(&t, TOW_PTX_TEX_Q_WIDTH, 1), 2);
    assert_int_equal(tow_ptx_texture_query(&t, TOW_PTX_TEX_Q_NUM_MIPMAP_LEVELS, 0), 3);
}

static void gather_takes_four_corners(void **state)
{
    float plane[2][2][2] = {{{1, 10}, {2, 20}}, {{3, 30}, {4, 40}}};
    struct tow_ptx_texture t = texture_of(TOW_PTX_TEX_2D, TOW_PTX_TEX_F32, 2, plane, 2, 2, 1, 8);
    struct tow_ptx_tex_args args = {.f = {1.0f, 1.0f}};
    uint32_t out[4];
    tow_ptx_texture_gather(&t, &args, 1, out);
    assert_true(tow_f32(out[0]) == 30 && tow_f32(out[1]) == 40);
    assert_true(tow_f32(out[2]) == 20 && tow_f32(out[3]) == 10);
    tow_ptx_texture_gather(&t, &args, 0, out);
    assert_true(tow_f32(out[0]) == 3 && tow_f32(out[3]) == 1);
}

static void surfaces_find_clamp_trap_and_drop(void **state)
{
    uint32_t data[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    struct tow_ptx_texture s = texture_of(TOW_PTX_TEX_2D, TOW_PTX_TEX_U32, 1, data, 4, 2, 1, 4);
    void *at;
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_TRAP, 8, 1, 0, 0, 4, &at), 0);
    assert_ptr_equal(at, &data[1][2]);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_TRAP, 8, 1, 0, 0, 8, &at), 0);
    assert_ptr_equal(at, &data[1][2]);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_TRAP, 16, 1, 0, 0, 4, &at), -EFAULT);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_TRAP, 0, 2, 0, 0, 4, &at), -EFAULT);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_TRAP, -4, 0, 0, 0, 4, &at), -EFAULT);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_TRAP, 4, 0, 0, 0, 8, &at), -EINVAL);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_ZERO, 16, 0, 0, 0, 4, &at), 0);
    assert_null(at);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_CLAMP, 400, -9, 0, 0, 4, &at), 0);
    assert_ptr_equal(at, &data[0][3]);
    assert_int_equal(tow_ptx_surface_at(&s, TOW_PTX_SURF_CLAMP, INT32_MIN, INT32_MAX, 0, 0, 4, &at),
                     0);
    assert_ptr_equal(at, &data[1][0]);
    uint16_t halves[2] = {0};
    struct tow_ptx_texture h = texture_of(TOW_PTX_TEX_1D, TOW_PTX_TEX_F16, 1, halves, 2, 1, 1, 2);
    const uint32_t texel[4] = {0x3f800000};
    assert_int_equal(tow_ptx_surface_store(&h, TOW_PTX_SURF_TRAP, 1, 0, 0, 0, texel), 0);
    assert_int_equal(halves[1], 0x3c00);
    int8_t bytes[4] = {0};
    struct tow_ptx_texture b = texture_of(TOW_PTX_TEX_1D, TOW_PTX_TEX_S8, 4, bytes, 1, 1, 1, 4);
    const uint32_t wide[4] = {500, (uint32_t)-500, 5, (uint32_t)-5};
    assert_int_equal(tow_ptx_surface_store(&b, TOW_PTX_SURF_TRAP, 0, 0, 0, 0, wide), 0);
    assert_true(bytes[0] == 127 && bytes[1] == -128 && bytes[2] == 5 && bytes[3] == -5);
    assert_int_equal(tow_ptx_surface_store(&h, TOW_PTX_SURF_TRAP, INT32_MAX, 0, 0, 0, texel),
                     -EFAULT);
    assert_int_equal(tow_ptx_surface_store(&h, TOW_PTX_SURF_ZERO, INT32_MIN, 0, 0, 0, texel), 0);
}

static void unsound_descriptions_are_refused(void **state)
{
    struct tow_ptx_texture good =
        texture_of(TOW_PTX_TEX_2D, TOW_PTX_TEX_F32, 1, ramp, 2, 2, 1, sizeof(float));
    assert_int_equal(tow_ptx_texture_check(&good), 0);
    struct tow_ptx_texture t = good;
    t.channels = 3;
    assert_int_equal(tow_ptx_texture_check(&t), -EINVAL);
    t = good;
    t.level[0].row_pitch = 7;
    assert_int_equal(tow_ptx_texture_check(&t), -EINVAL);
    t = good;
    t.level_count = 17;
    assert_int_equal(tow_ptx_texture_check(&t), -EINVAL);
    t = good;
    t.level[0].width = 0;
    assert_int_equal(tow_ptx_texture_check(&t), -EINVAL);
}

static float wild_float(void)
{
    static const float specials[] = {0,    -0.0f, 1,        -1,        0.5f, 1e30f, -1e30f,
                                     2e9f, -2e9f, INFINITY, -INFINITY, NAN,  1e-40f};
    uint64_t r = test_random();
    switch (r & 3) {
    case 0:
        return specials[(r >> 8) % TEST_COUNT(specials)];
    case 1:
        return tow_f32((uint32_t)(r >> 16));
    default:
        return ((float)((r >> 16) & 0xffff) - 20000.0f) / 5000.0f;
    }
}

/* The texels end exactly where memory that may not be touched begins, before and after. */
static void no_coordinate_reads_outside(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 2 * page; /* 7,200 bytes at most are used */
    uint8_t *map = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + page, room, PROT_READ | PROT_WRITE), 0);
    for (int i = 0; i < 200000; i++) {
        uint64_t r = test_random();
        enum tow_ptx_tex_kind kind = (enum tow_ptx_tex_kind)(r % 8);
        uint32_t w = 1 + (r >> 8) % 5, h = 1 + (r >> 16) % 4, d = 1 + (r >> 24) % 3;
        bool flat =
            kind == TOW_PTX_TEX_BUFFER || kind == TOW_PTX_TEX_1D || kind == TOW_PTX_TEX_1D_LAYERED;
        bool cube = kind == TOW_PTX_TEX_CUBE || kind == TOW_PTX_TEX_CUBE_LAYERED;
        h = flat ? 1 : cube ? w : h;
        bool layered = kind == TOW_PTX_TEX_1D_LAYERED || kind == TOW_PTX_TEX_2D_LAYERED ||
                       kind == TOW_PTX_TEX_CUBE_LAYERED;
        uint32_t layers = layered ? 1 + (r >> 28) % 3 : 1;
        d = kind == TOW_PTX_TEX_3D ? d : 1;
        uint32_t slices = d * layers * (cube ? 6 : 1);
        enum tow_ptx_tex_format format = (enum tow_ptx_tex_format)((r >> 32) % 8);
        uint32_t part = format < TOW_PTX_TEX_U16                                ? 1
                        : format < TOW_PTX_TEX_U32 || format == TOW_PTX_TEX_F16 ? 2
                                                                                : 4;
        uint32_t channels = 1u << (r >> 36) % 3;
        uint32_t bytes = w * h * slices * part * channels;
        uint8_t *data = (r >> 40) & 1 ? map + page : map + page + room - bytes;
        struct tow_ptx_texture t =
            texture_of(kind, format, channels, data, w, h, d, part * channels);
        t.layers = layers;
        for (int a = 0; a < 3; a++) {
            t.address[a] = (enum tow_ptx_tex_address)((r >> (42 + 2 * a)) & 3);
        }
        t.filter = (enum tow_ptx_tex_filter)((r >> 48) & 1);
        t.normalized_coords = (r >> 49) & 1;
        t.normalized_float = (r >> 50) & 1;
        assert_int_equal(tow_ptx_texture_check(&t), 0);
        struct tow_ptx_tex_args args = {
            .integer = ((r >> 51) & 3) == 0,
            .i = {(int32_t)test_random(), (int32_t)(test_random() % 9) - 4, (int32_t)test_random()},
            .f = {wild_float(), wild_float(), wild_float()},
            .layer = (uint32_t)test_random() >> (test_random() % 32),
            .offset = {(int32_t)test_random(), -8, 7},
            .lod_kind = (enum tow_ptx_tex_lod)((r >> 53) % 3),
            .lod = wild_float(),
            .dx = {wild_float(), wild_float(), wild_float()},
        };
        uint32_t out[4];
        tow_ptx_texture_fetch(&t, &args, out);
        if (!flat && kind != TOW_PTX_TEX_3D) {
            tow_ptx_texture_gather(&t, &args, (unsigned)(r >> 56) & 3, out);
        }
        void *at;
        uint32_t access = 1u << (r >> 58) % 5;
        if (tow_ptx_surface_at(&t, (enum tow_ptx_surf_mode)((r >> 61) % 3),
                               (int32_t)(test_random() % 200 - 100) * (int32_t)access,
                               (int32_t)(test_random() % 12) - 4, (int32_t)(test_random() % 12) - 4,
                               (uint32_t)test_random() % 40, access, &at) == 0 &&
            at) {
            memset(at, 0x3c, access);
            assert_true((uint8_t *)at >= data && (uint8_t *)at + access <= data + bytes);
        }
    }
    munmap(map, room + 2 * page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(point_reads_follow_the_address_mode),
        cmocka_unit_test(linear_reads_weigh_in_256ths),
        cmocka_unit_test(two_and_three_dimensions),
        cmocka_unit_test(formats_become_what_kernels_read),
        cmocka_unit_test(linear_memory_reads_zero_outside),
        cmocka_unit_test(layers_and_faces),
        cmocka_unit_test(mipmaps_choose_and_blend),
        cmocka_unit_test(gather_takes_four_corners),
        cmocka_unit_test(surfaces_find_clamp_trap_and_drop),
        cmocka_unit_test(unsound_descriptions_are_refused),
        cmocka_unit_test(no_coordinate_reads_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
