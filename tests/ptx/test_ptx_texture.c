/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface instructions as a kernel writes them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "machine.h"
#include "ptx/num/num.h"
#include "ptx/num/texture.h"

static struct tow_ptx_texture plain(enum tow_ptx_tex_kind kind, enum tow_ptx_tex_format format,
                                    uint32_t channels, void *data, uint32_t width, uint32_t height,
                                    uint32_t depth, uint32_t texel)
{
    struct tow_ptx_texture t = {
        .kind = kind,
        .format = format,
        .channels = channels,
        .layers = 1,
        .level_count = 1,
        .lod_max = 99,
        .address = {TOW_PTX_TEX_CLAMP, TOW_PTX_TEX_CLAMP, TOW_PTX_TEX_CLAMP}};
    t.level[0] = (struct tow_ptx_tex_level){.data = data,
                                            .width = width,
                                            .height = height,
                                            .depth = depth,
                                            .row_pitch = (uint64_t)width * texel,
                                            .slice_pitch = (uint64_t)width * height * texel};
    assert_int_equal(tow_ptx_texture_check(&t), 0);
    return t;
}

/* Each body leaves four words a lane in %r0 to %r3; lane numbers are %r4 and, as float, %f4. */
static void run(struct machine *m, const struct tow_ptx_texture *texture, const char *body,
                uint32_t out[32][4])
{
    static char text[4096];
    snprintf(text, sizeof text,
             ".reg .u64 %%rd<8>; .reg .b32 %%r<20>; .reg .f32 %%f<20>; .reg .pred %%p<4>;\n"
             ".reg .b16 %%rs<8>;\n"
             "ld.param.u64 %%rd0, [p0]; ld.param.u64 %%rd1, [p1];\n"
             "mov.u32 %%r4, %%laneid; cvt.rn.f32.u32 %%f4, %%r4; mul.wide.u32 %%rd2, %%r4, 16;\n"
             "add.u64 %%rd1, %%rd1, %%rd2;\n"
             "mov.u32 %%r0, 0; mov.u32 %%r1, 0; mov.u32 %%r2, 0; mov.u32 %%r3, 0;\n"
             "%s\n"
             "st.global.v4.u32 [%%rd1], {%%r0, %%r1, %%r2, %%r3};\n",
             body);
    machine_load(m, machine_wrap("", text), true);
    m->texture = texture;
    void *memory = machine_alloc(m, 512);
    const uint64_t args[] = {77, ARG(memory)};
    int error = machine_run1(m, "k", 1, 32, args, 2);
    if (error) {
        fail_msg("line %u: %s", m->fault.line, m->fault.message);
    }
    memcpy(out, memory, 512);
    machine_unload(m);
}

static struct machine m;
static uint32_t out[32][4];

static void tex_reads_every_geometry(void **state)
{
    (void)state;
    float data[64];
    for (int i = 0; i < 64; i++) {
        data[i] = (float)i;
    }
    struct tow_ptx_texture t = plain(TOW_PTX_TEX_BUFFER, TOW_PTX_TEX_F32, 1, data, 20, 1, 1, 4);
    run(&m, &t, "tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd0, {%r4}];", out);
    for (int l = 0; l < 32; l++) {
        assert_true(tow_f32(out[l][0]) == (l < 20 ? (float)l : 0.0f));
    }
    t = plain(TOW_PTX_TEX_2D, TOW_PTX_TEX_F32, 1, data, 8, 8, 1, 4);
    run(&m, &t, "tex.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {%f4, 0f40000000}];", out);
    for (int l = 0; l < 32; l++) {
        assert_true(tow_f32(out[l][0]) == (float)(16 + (l < 7 ? l : 7)));
    }
    t.filter = TOW_PTX_TEX_LINEAR;
    run(&m, &t, "tex.2d.v4.f32.f32 {%r0, _, _, _}, [%rd0, {%f4, 0f40200000}];", out);
    assert_true(tow_f32(out[3][0]) == 16 + 2.5f);
    t = plain(TOW_PTX_TEX_3D, TOW_PTX_TEX_F32, 1, data, 4, 4, 4, 4);
    run(&m, &t, "tex.3d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {%f4, %f4, %f4, %f4}];", out);
    assert_true(tow_f32(out[2][0]) == 2 + 8 + 32);
    t = plain(TOW_PTX_TEX_2D_LAYERED, TOW_PTX_TEX_F32, 1, data, 4, 4, 1, 4);
    t.layers = 4;
    run(&m, &t,
        "tex.a2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {%r4, 0f3f800000, 0f40400000, "
        "0f00000000}];",
        out);
    assert_true(tow_f32(out[2][0]) == 32 + 1 + 12);
    assert_true(tow_f32(out[31][0]) == 48 + 1 + 12);
    t = plain(TOW_PTX_TEX_1D_LAYERED, TOW_PTX_TEX_F32, 1, data, 4, 1, 1, 4);
    t.layers = 16;
    run(&m, &t, "tex.a1d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {%r4, 0f3f800000}];", out);
    assert_true(tow_f32(out[5][0]) == 21);
    t = plain(TOW_PTX_TEX_CUBE, TOW_PTX_TEX_F32, 1, data, 2, 2, 1, 4);
    run(&m, &t,
        "tex.cube.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {0f00000000, 0fbf800000, "
        "0f00000000, 0f00000000}];",
        out);
    assert_true(tow_f32(out[0][0]) == 12 + 3);
    t.kind = TOW_PTX_TEX_CUBE_LAYERED;
    t.layers = 2;
    run(&m, &t,
        "tex.acube.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {%r4, 0f3f800000, 0f3f000000, "
        "0f3f000000}];",
        out);
    assert_true(tow_f32(out[0][0]) == 0 && tow_f32(out[1][0]) == 24);
}

static void tex_gives_halves_and_takes_offsets(void **state)
{
    (void)state;
    float data[4] = {1, 2, 3, 4};
    struct tow_ptx_texture t = plain(TOW_PTX_TEX_1D, TOW_PTX_TEX_F32, 1, data, 4, 1, 1, 4);
    run(&m, &t,
        "tex.1d.v4.f16.f32 {%rs0, %rs1, %rs2, %rs3}, [%rd0, {0f3f800000}], {1};\n"
        "cvt.u32.u16 %r0, %rs0; cvt.u32.u16 %r1, %rs3;\n"
        "tex.1d.v2.f16x2.f32 {%r2, %r3}|%p0, [%rd0, 0f3f800000];\n"
        "selp.u32 %r3, %r3, 0, %p0;",
        out);
    assert_int_equal(out[0][0], 0x4200);
    assert_int_equal(out[0][1], 0);
    assert_int_equal(out[0][2], 0x4000);
    assert_int_equal(out[0][3], 0);
}

static void tex_level_grad_and_gather(void **state)
{
    (void)state;
    float fine[16], coarse[4] = {100, 100, 100, 100};
    for (int i = 0; i < 16; i++) {
        fine[i] = (float)i;
    }
    struct tow_ptx_texture t = plain(TOW_PTX_TEX_2D, TOW_PTX_TEX_F32, 1, fine, 4, 4, 1, 4);
    t.level_count = 2;
    t.level[1] = (struct tow_ptx_tex_level){
        .data = coarse, .width = 2, .height = 2, .depth = 1, .row_pitch = 8, .slice_pitch = 16};
    t.normalized_coords = true;
    run(&m, &t,
        "tex.level.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {0f3e800000, 0f3e800000}], "
        "%f4;",
        out);
    assert_true(tow_f32(out[0][0]) == 5 && tow_f32(out[1][0]) == 100);
    run(&m, &t,
        "tex.grad.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {0f3e800000, 0f3e800000}], "
        "{0f3f000000, 0f00000000}, {0f00000000, 0f00000000};",
        out);
    assert_true(tow_f32(out[0][0]) == 100);
    t.level_count = 1;
    t.normalized_coords = false;
    run(&m, &t, "tld4.r.2d.v4.f32.f32 {%r0, %r1, %r2, %r3}, [%rd0, {0f40000000, 0f40000000}];",
        out);
    assert_true(tow_f32(out[0][0]) == 9 && tow_f32(out[0][1]) == 10);
    assert_true(tow_f32(out[0][2]) == 6 && tow_f32(out[0][3]) == 5);
    run(&m, &t,
        "txq.width.b32 %r0, [%rd0]; txq.height.b32 %r1, [%rd0];\n"
        "txq.channel_order.b32 %r2, [%rd0]; suq.width.b32 %r3, [%rd0];",
        out);
    assert_int_equal(out[0][0], 4);
    assert_int_equal(out[0][1], 4);
    assert_int_equal(out[0][2], 0x10b0);
    assert_int_equal(out[0][3], 4);
}

static void surfaces_load_store_and_reduce(void **state)
{
    (void)state;
    uint32_t data[4][16] = {{0}};
    struct tow_ptx_texture s = plain(TOW_PTX_TEX_2D, TOW_PTX_TEX_U32, 1, data, 16, 4, 1, 4);
    run(&m, &s,
        "shl.b32 %r5, %r4, 2; add.u32 %r6, %r4, 1000;\n"
        "sust.b.2d.b32.zero [%rd0, {%r5, 1}], {%r6};\n"
        "suld.b.2d.b32.zero {%r0}, [%rd0, {%r5, 1}];\n"
        "suld.b.2d.v2.b32.clamp {%r1, %r2}, [%rd0, {8, 99}];",
        out);
    for (uint32_t l = 0; l < 32; l++) {
        assert_int_equal(out[l][0], l < 16 ? 1000 + l : 0);
        assert_int_equal(data[1][l % 16], 1000 + l % 16);
        assert_int_equal(data[2][l % 16], 0);
    }
    uint8_t bytes[16] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct tow_ptx_texture u = plain(TOW_PTX_TEX_1D, TOW_PTX_TEX_U8, 4, bytes, 4, 1, 1, 4);
    run(&m, &u,
        "suld.b.1d.v4.b8.trap {%rs0, %rs1, %rs2, %rs3}, [%rd0, {4}];\n"
        "cvt.u32.u16 %r0, %rs0; cvt.u32.u16 %r1, %rs3;\n"
        "sust.b.1d.v4.b8.trap [%rd0, {8}], {%rs3, %rs2, %rs1, %rs0};",
        out);
    assert_int_equal(out[0][0], 5);
    assert_int_equal(out[0][1], 8);
    assert_int_equal(bytes[8], 8);
    memset(data, 0, sizeof data);
    run(&m, &s,
        "sured.b.add.2d.u32.trap [%rd0, {0, 3}], %r4;\n"
        "sured.b.max.2d.s32.trap [%rd0, {4, 3}], %r4;",
        out);
    assert_int_equal(data[3][0], 31 * 32 / 2);
    assert_int_equal(data[3][1], 31);
}

static int run_failing(const struct tow_ptx_texture *texture, const char *body, uint64_t handle)
{
    machine_load(&m, machine_wrap("", body), true);
    m.texture = texture;
    const uint64_t args[] = {handle};
    int error = machine_run1(&m, "k", 1, 32, args, 1);
    machine_unload(&m);
    return error;
}

static void trap_and_bad_handles_are_faults(void **state)
{
    (void)state;
    uint32_t data[4] = {0};
    struct tow_ptx_texture s = plain(TOW_PTX_TEX_1D, TOW_PTX_TEX_U32, 1, data, 4, 1, 1, 4);
    assert_true(run_failing(&s,
                            ".reg .u64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd0, [p0];\n"
                            "suld.b.1d.b32.trap {%r0}, [%rd0, {16}];",
                            1) < 0);
    assert_true(run_failing(&s,
                            ".reg .u64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd0, [p0];\n"
                            "suld.b.1d.b32.trap {%r0}, [%rd0, {2}];",
                            1) < 0);
    assert_true(run_failing(&s,
                            ".reg .u64 %rd<2>; .reg .f32 %f<4>; ld.param.u64 %rd0, [p0];\n"
                            "tex.1d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd0, {%f0}];",
                            0) < 0);
    assert_int_equal(run_failing(&s,
                                 ".reg .u64 %rd<2>; .reg .b32 %r<2>; ld.param.u64 %rd0, [p0];\n"
                                 "suld.b.1d.b32.trap {%r0}, [%rd0, {12}];",
                                 1),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tex_reads_every_geometry),
        cmocka_unit_test(tex_gives_halves_and_takes_offsets),
        cmocka_unit_test(tex_level_grad_and_gather),
        cmocka_unit_test(surfaces_load_store_and_reduce),
        cmocka_unit_test(trap_and_bad_handles_are_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
