/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface instructions: tex, tld4, txq, suld, sust, sured, suq. What they compute is in
 * texture.c; here are their words and operands.
 *
 * A texture is named by a 64-bit handle. A .texref or .surfref variable is named by its address:
 * the driver face is asked for that address as it is for a handle. */
#include "ptx/decode/decode.h"
#include "ptx/num/num.h"
#include "ptx/num/texture.h"

#include <errno.h>
#include <string.h>

#define MISSING PTX_NO_SLOT

enum geometry {
    GEOM_1D,
    GEOM_2D,
    GEOM_3D,
    GEOM_A1D,
    GEOM_A2D,
    GEOM_CUBE,
    GEOM_ACUBE,
    GEOM_COUNT,
};
static const struct {
    const char *name;
    uint8_t coords;  /* without the layer */
    uint8_t vector;  /* elements that PTX writes in the braces */
    uint8_t spatial; /* components of a derivative or offset */
    bool layered;
} geometries[GEOM_COUNT] = {
    [GEOM_1D] = {"1d", 1, 1, 1, false},      [GEOM_2D] = {"2d", 2, 2, 2, false},
    [GEOM_3D] = {"3d", 3, 4, 3, false},      [GEOM_A1D] = {"a1d", 1, 2, 1, true},
    [GEOM_A2D] = {"a2d", 2, 4, 2, true},     [GEOM_CUBE] = {"cube", 3, 4, 3, false},
    [GEOM_ACUBE] = {"acube", 3, 4, 3, true},
};

static int geometry_of(const char *mod)
{
    for (int g = 0; g < GEOM_COUNT; g++) {
        if (strcmp(mod, geometries[g].name) == 0) {
            return g;
        }
    }
    return -1;
}

struct texture_form {
    uint8_t geometry;
    bool integer; /* coordinates */
    bool halves;  /* results are two f16x2 */
    bool narrow;  /* results are four f16 */
    bool gather;
    uint8_t component;
    uint8_t lod_kind;
    uint32_t handle;
    uint32_t coord[3], layer;
    uint32_t lod, dx[3], dy[3], offset[3]; /* rows; offset[0] MISSING without */
    uint32_t d[4], resident;
    uint8_t results;
};

/* The texture of a lane; the last one found is kept, as mostly all lanes read the same. */
struct lookup {
    uint64_t handle;
    const struct tow_ptx_texture *texture;
};

static const struct tow_ptx_texture *look_up(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                             unsigned lane, uint64_t handle, struct lookup *last)
{
    if (last->texture && last->handle == handle) {
        return last->texture;
    }
    const struct tow_ptx_texture *texture = w->launch->env->texture(w->launch->env_user, handle);
    if (!texture) {
        tow_ptx_fault(w, o, TOW_PTX_FAULT_ADDRESS, lane, handle,
                      "there is no texture or surface object 0x%llx", (unsigned long long)handle);
        return NULL;
    }
    last->handle = handle;
    last->texture = texture;
    return texture;
}

static uint32_t exec_texture_lane32(const struct tow_ptx_warp *w, uint32_t ref, unsigned lane)
{
    return ((const uint32_t *)tow_ptx_row(w, ref))[lane];
}

static void fetch_args(const struct tow_ptx_warp *w, const struct texture_form *form, unsigned l,
                       struct tow_ptx_tex_args *args)
{
    *args = (struct tow_ptx_tex_args){.integer = form->integer};
    unsigned spatial = geometries[form->geometry].spatial;
    for (unsigned i = 0; i < geometries[form->geometry].coords; i++) {
        uint32_t bits = exec_texture_lane32(w, form->coord[i], l);
        if (form->integer) {
            args->i[i] = (int32_t)bits;
        } else {
            args->f[i] = tow_f32(bits);
        }
    }
    if (geometries[form->geometry].layered) {
        args->layer = exec_texture_lane32(w, form->layer, l);
    }
    for (unsigned i = 0; form->offset[0] != MISSING && i < spatial; i++) {
        args->offset[i] = (int32_t)exec_texture_lane32(w, form->offset[i], l);
    }
    args->lod_kind = (enum tow_ptx_tex_lod)form->lod_kind;
    if (form->lod_kind == TOW_PTX_TEX_LOD_LEVEL) {
        uint32_t bits = exec_texture_lane32(w, form->lod, l);
        args->lod = form->integer ? (float)(int32_t)bits : tow_f32(bits);
    } else if (form->lod_kind == TOW_PTX_TEX_LOD_GRAD) {
        for (unsigned i = 0; i < spatial; i++) {
            args->dx[i] = tow_f32(exec_texture_lane32(w, form->dx[i], l));
            args->dy[i] = tow_f32(exec_texture_lane32(w, form->dy[i], l));
        }
    }
}

OP(run_texture)
{
    const struct texture_form *form = o->ext;
    const uint64_t *handles = tow_ptx_row(w, form->handle);
    struct lookup last = {0};
    FOR_LANES(l, w->exec)
    {
        const struct tow_ptx_texture *texture = look_up(w, o, l, handles[l], &last);
        struct tow_ptx_tex_args args;
        uint32_t texel[4];
        if (!texture) {
            return HALT;
        }
        fetch_args(w, form, l, &args);
        if (form->gather) {
            tow_ptx_texture_gather(texture, &args, form->component, texel);
        } else {
            tow_ptx_texture_fetch(texture, &args, texel);
        }
        if (form->halves) {
            texel[0] = tow_f32_to_f16(texel[0]) | tow_f32_to_f16(texel[1]) << 16;
            texel[1] = tow_f32_to_f16(texel[2]) | tow_f32_to_f16(texel[3]) << 16;
        }
        for (unsigned i = 0; i < form->results; i++) {
            texel[i] = form->narrow ? tow_f32_to_f16(texel[i]) : texel[i];
            ((uint32_t *)tow_ptx_row(w, form->d[i]))[l] = texel[i];
        }
    }
    if (form->resident != MISSING) {
        tow_ptx_set_pred(w, form->resident, FULL);
    }
    return o + 1;
}

/* ---- operands ------------------------------------------------------------------------- */

static int handle_row(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                      uint32_t *ret_ref)
{
    return tow_ptx_source(dec, operand, 'l', ret_ref);
}

/* `count` rows out of {a, b, c ...}, which may have more (PTX pads to 4), or out of one register.
 */
static int rows_of(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                   unsigned count, char kind, uint32_t *ret_refs)
{
    bool vector = operand->kind == OPD_VECTOR;
    if ((vector ? operand->count : 1) < count) {
        return tow_ptx_bad(dec, "%u coordinates are expected", count);
    }
    for (unsigned i = 0; i < count; i++) {
        int error =
            tow_ptx_source(dec, vector ? &operand->children[i] : operand, kind, &ret_refs[i]);
        if (error) {
            return error;
        }
    }
    return 0;
}

/* Layer and coordinates of {layer, x, y} or {x, y}. */
static int exec_texture_coordinates(struct tow_ptx_decoder *dec,
                                    const struct tow_ptx_operand *operand, unsigned geometry,
                                    char kind, uint32_t *ret_coord, uint32_t *ret_layer)
{
    uint32_t refs[4];
    unsigned count = geometries[geometry].coords;
    if (!geometries[geometry].layered) {
        return rows_of(dec, operand, count, kind, ret_coord);
    }
    /* the layer is an integer, the rest of the type written */
    if (operand->kind != OPD_VECTOR || operand->count < count + 1) {
        return tow_ptx_bad(dec, "a layer and %u coordinates are expected", count);
    }
    struct tow_ptx_operand rest = *operand;
    rest.children++;
    rest.count--;
    int error = tow_ptx_source(dec, &operand->children[0], 'w', ret_layer);
    if (error == 0 && (error = rows_of(dec, &rest, count, kind, refs)) == 0) {
        memcpy(ret_coord, refs, count * sizeof refs[0]);
    }
    return error;
}

/* [texture, {coordinates}] or [texture, sampler, {coordinates}] */
static const struct tow_ptx_operand *address_parts(const struct tow_ptx_operand *operand)
{
    if (operand->kind != OPD_ADDRESS || operand->count < 2 || operand->count > 3) {
        return NULL;
    }
    return &operand->children[operand->count - 1];
}

/* ---- tex, tld4 ------------------------------------------------------------------------ */

static int texture_words(struct tow_ptx_decoder *dec, struct texture_form *form)
{
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_type types[2] = {PT_NONE, PT_NONE};
    unsigned type_count = 0, vector = 0;
    int geometry = -1;
    static const char components[] = "rgba";
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_type type = tow_ptx_mod_type(mod);
        if (geometry_of(mod) >= 0) {
            geometry = geometry_of(mod);
        } else if (type && type_count < 2) {
            types[type_count++] = type;
        } else if (strcmp(mod, "v4") == 0 || strcmp(mod, "v2") == 0) {
            vector = (unsigned)(mod[1] - '0');
        } else if (strcmp(mod, "level") == 0) {
            form->lod_kind = TOW_PTX_TEX_LOD_LEVEL;
        } else if (strcmp(mod, "grad") == 0) {
            form->lod_kind = TOW_PTX_TEX_LOD_GRAD;
        } else if (form->gather && strlen(mod) == 1 && strchr(components, *mod)) {
            form->component = (uint8_t)(strchr(components, *mod) - components);
        } else if (strcmp(mod, "base") != 0) {
            return tow_ptx_unsupported(dec);
        }
    }
    form->halves = types[0] == PT_F16X2;
    form->narrow = types[0] == PT_F16;
    bool value = types[0] == PT_U32 || types[0] == PT_S32 || types[0] == PT_F32 || form->narrow;
    if (geometry < 0 || type_count != 2 || (types[1] != PT_S32 && types[1] != PT_F32) ||
        !(form->halves ? vector == 2 : value && vector == 4)) {
        return tow_ptx_unsupported(dec);
    }
    form->geometry = (uint8_t)geometry;
    form->integer = types[1] == PT_S32;
    form->results = (uint8_t)vector;
    bool cube = geometry == GEOM_CUBE || geometry == GEOM_ACUBE;
    if ((form->integer && (cube || form->gather || form->lod_kind == TOW_PTX_TEX_LOD_GRAD)) ||
        (form->gather && geometry != GEOM_2D && geometry != GEOM_A2D && !cube)) {
        return tow_ptx_unsupported(dec);
    }
    return 0;
}

/* tex.geom.v4.dtype.ctype d, [a, c]{, lod | dx, dy}{, offset}   tld4.comp.geom.v4.dtype.f32 */
static int decode_fetch(struct tow_ptx_decoder *dec, bool gather)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct texture_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    form->gather = gather;
    form->resident = form->offset[0] = MISSING;
    int error = texture_words(dec, form);
    if (error) {
        return error;
    }
    unsigned extra = form->lod_kind == TOW_PTX_TEX_LOD_GRAD    ? 2
                     : form->lod_kind == TOW_PTX_TEX_LOD_LEVEL ? 1
                                                               : 0;
    if ((error = tow_ptx_want_operands(dec, 2 + extra, 3 + extra))) {
        return error;
    }
    const struct tow_ptx_operand *d = &insn->operands[0], *address = &insn->operands[1];
    const struct tow_ptx_operand *coord = address_parts(address);
    unsigned spatial = geometries[form->geometry].spatial;
    if (!coord) {
        return tow_ptx_bad(dec, "[texture, {coordinates}] is expected");
    }
    if (d->kind != OPD_VECTOR || d->count != form->results) {
        return tow_ptx_bad(dec, "%u results in braces are expected", form->results);
    }
    char kind = form->integer ? 'w' : 'f';
    if ((error = handle_row(dec, &address->children[0], &form->handle)) ||
        (error = exec_texture_coordinates(dec, coord, form->geometry, kind, form->coord,
                                          &form->layer))) {
        return error;
    }
    for (unsigned i = 0; i < form->results; i++) {
        if ((error = tow_ptx_dest(dec, &d->children[i], 'w', &form->d[i]))) {
            return error;
        }
    }
    if (d->second && (error = tow_ptx_dest(dec, d->second, 'p', &form->resident))) {
        return error;
    }
    if (extra == 1 && (error = tow_ptx_source(dec, &insn->operands[2], kind, &form->lod))) {
        return error;
    }
    if (extra == 2 && ((error = rows_of(dec, &insn->operands[2], spatial, 'f', form->dx)) ||
                       (error = rows_of(dec, &insn->operands[3], spatial, 'f', form->dy)))) {
        return error;
    }
    if (insn->operand_count == 3 + extra) {
        const struct tow_ptx_operand *offset = &insn->operands[2 + extra];
        if (offset->kind != OPD_VECTOR) { /* one value is what a depth texture is compared with */
            return tow_ptx_unsupported(dec);
        }
        if ((error = rows_of(dec, offset, spatial, 'w', form->offset))) {
            return error;
        }
    }
    struct tow_ptx_op op = {.run = run_texture, .ext = form};
    return tow_ptx_emit(dec, &op);
}

static int decode_tex(struct tow_ptx_decoder *dec)
{
    return decode_fetch(dec, false);
}

static int decode_tld4(struct tow_ptx_decoder *dec)
{
    return decode_fetch(dec, true);
}

/* ---- txq, suq ------------------------------------------------------------------------- */

OP(run_query)
{
    const uint64_t *handles = tow_ptx_row(w, o->a);
    uint32_t *d = tow_ptx_row(w, o->d);
    struct lookup last = {0};
    FOR_LANES(l, w->exec)
    {
        const struct tow_ptx_texture *texture = look_up(w, o, l, handles[l], &last);
        if (!texture) {
            return HALT;
        }
        uint32_t level = o->b == MISSING ? 0 : exec_texture_lane32(w, o->b, l);
        uint32_t value = tow_ptx_texture_query(texture, (enum tow_ptx_tex_query)o->imm, level);
        /* a texture of one dimension is one row high, a surface none */
        bool row = o->c && o->imm == TOW_PTX_TEX_Q_HEIGHT && value == 0;
        d[l] = row ? 1 : value;
    }
    return o + 1;
}

/* txq{.level}.query.b32 d, [a]{, level} */
static int decode_query(struct tow_ptx_decoder *dec)
{
    static const struct {
        const char *name;
        enum tow_ptx_tex_query query;
    } queries[] = {
        {"width", TOW_PTX_TEX_Q_WIDTH},
        {"height", TOW_PTX_TEX_Q_HEIGHT},
        {"depth", TOW_PTX_TEX_Q_DEPTH},
        {"channel_data_type", TOW_PTX_TEX_Q_CHANNEL_DATA_TYPE},
        {"channel_order", TOW_PTX_TEX_Q_CHANNEL_ORDER},
        {"normalized_coords", TOW_PTX_TEX_Q_NORMALIZED_COORDS},
        {"force_unnormalized_coords", TOW_PTX_TEX_Q_FORCE_UNNORMALIZED_COORDS},
        {"filter_mode", TOW_PTX_TEX_Q_FILTER_MODE},
        {"addr_mode_0", TOW_PTX_TEX_Q_ADDR_MODE_0},
        {"addr_mode_1", TOW_PTX_TEX_Q_ADDR_MODE_1},
        {"addr_mode_2", TOW_PTX_TEX_Q_ADDR_MODE_2},
        {"array_size", TOW_PTX_TEX_Q_ARRAY_SIZE},
        {"num_mipmap_levels", TOW_PTX_TEX_Q_NUM_MIPMAP_LEVELS},
        {"num_samples", TOW_PTX_TEX_Q_NUM_SAMPLES},
        {"memory_layout", TOW_PTX_TEX_Q_MEMORY_LAYOUT},
    };
    const struct tow_ptx_insn *insn = dec->insn;
    bool level = tow_ptx_has_mod(dec, "level");
    int error = tow_ptx_want_operands(dec, level ? 3 : 2, level ? 3 : 2);
    if (error) {
        return error;
    }
    struct tow_ptx_op op = {.run = run_query, .imm = -1, .b = MISSING, .c = insn->name[0] == 't'};
    for (unsigned i = 0; i < insn->mod_count; i++) {
        for (unsigned k = 0; k < sizeof queries / sizeof queries[0]; k++) {
            if (strcmp(insn->mods[i], queries[k].name) == 0) {
                op.imm = queries[k].query;
            }
        }
    }
    if (op.imm < 0) {
        return tow_ptx_unsupported(dec);
    }
    const struct tow_ptx_operand *a = &insn->operands[1];
    if (a->kind != OPD_ADDRESS || a->count != 1) {
        return tow_ptx_bad(dec, "a texture in brackets is expected");
    }
    if ((error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (error = handle_row(dec, &a->children[0], &op.a)) ||
        (level && (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.b)))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- surfaces ------------------------------------------------------------------------- */

enum surface_red {
    RED_ADD,
    RED_MIN,
    RED_MAX,
    RED_AND,
    RED_OR,
};

struct surface_form {
    uint8_t geometry, mode, element, count; /* element: bytes */
    bool formatted;                         /* .p */
    bool is_signed;
    uint8_t red;
    uint32_t handle, coord[3], layer;
    uint32_t data[4];
};

/* Where a lane's access lands. 1: `*ret_at` set; 0: nowhere; -1: a fault was reported. */
static int surface_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                        const struct surface_form *form, const struct tow_ptx_texture *surface,
                        unsigned l, int32_t x, void **ret_at)
{
    unsigned coords = geometries[form->geometry].coords;
    int32_t y = coords > 1 ? (int32_t)exec_texture_lane32(w, form->coord[1], l) : 0;
    int32_t z = coords > 2 ? (int32_t)exec_texture_lane32(w, form->coord[2], l) : 0;
    uint32_t layer =
        geometries[form->geometry].layered ? exec_texture_lane32(w, form->layer, l) : 0;
    int r = tow_ptx_surface_at(surface, (enum tow_ptx_surf_mode)form->mode, x, y, z, layer,
                               (uint32_t)form->element * form->count, ret_at);
    if (r == -EFAULT) {
        tow_ptx_fault(w, o, TOW_PTX_FAULT_ADDRESS, l, (uint32_t)x,
                      "surface access at (%d bytes, %d, %d) layer %u is outside the surface", x, y,
                      z, layer);
    } else if (r < 0) {
        tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, l, (uint32_t)x,
                      "surface access of %u bytes at the misaligned offset %d",
                      form->element * form->count, x);
    }
    return r < 0 ? -1 : *ret_at != NULL;
}

OP(run_surface_load)
{
    const struct surface_form *form = o->ext;
    const uint64_t *handles = tow_ptx_row(w, form->handle);
    struct lookup last = {0};
    FOR_LANES(l, w->exec)
    {
        const struct tow_ptx_texture *surface = look_up(w, o, l, handles[l], &last);
        void *at;
        int found = -1;
        if (!surface ||
            (found = surface_lane(w, o, form, surface, l,
                                  (int32_t)exec_texture_lane32(w, form->coord[0], l), &at)) < 0) {
            return HALT;
        }
        for (unsigned i = 0; i < form->count; i++) {
            uint64_t value = 0;
            if (found) {
                memcpy(&value, (uint8_t *)at + i * form->element, form->element);
            }
            void *d = tow_ptx_row(w, form->data[i]);
            if (form->element == 8) {
                ((uint64_t *)d)[l] = value;
            } else {
                ((uint32_t *)d)[l] = (uint32_t)value;
            }
        }
    }
    return o + 1;
}

OP(run_surface_store)
{
    const struct surface_form *form = o->ext;
    const uint64_t *handles = tow_ptx_row(w, form->handle);
    struct lookup last = {0};
    FOR_LANES(l, w->exec)
    {
        const struct tow_ptx_texture *surface = look_up(w, o, l, handles[l], &last);
        int32_t x = (int32_t)exec_texture_lane32(w, form->coord[0], l);
        void *at;
        int found = -1;
        if (!surface) {
            return HALT;
        }
        if (form->formatted) {
            unsigned coords = geometries[form->geometry].coords;
            int32_t y = coords > 1 ? (int32_t)exec_texture_lane32(w, form->coord[1], l) : 0;
            int32_t z = coords > 2 ? (int32_t)exec_texture_lane32(w, form->coord[2], l) : 0;
            uint32_t layer =
                geometries[form->geometry].layered ? exec_texture_lane32(w, form->layer, l) : 0;
            uint32_t texel[4] = {0, 0, 0, 0};
            for (unsigned i = 0; i < form->count; i++) {
                texel[i] = exec_texture_lane32(w, form->data[i], l);
            }
            if (tow_ptx_surface_store(surface, (enum tow_ptx_surf_mode)form->mode, x, y, z, layer,
                                      texel)) {
                return tow_ptx_fault(w, o, TOW_PTX_FAULT_ADDRESS, l, (uint32_t)x,
                                     "surface store at (%d, %d, %d) is outside the surface", x, y,
                                     z);
            }
            continue;
        }
        if ((found = surface_lane(w, o, form, surface, l, x, &at)) < 0) {
            return HALT;
        }
        for (unsigned i = 0; found && i < form->count; i++) {
            const void *s = tow_ptx_row(w, form->data[i]);
            uint64_t value =
                form->element == 8 ? ((const uint64_t *)s)[l] : ((const uint32_t *)s)[l];
            memcpy((uint8_t *)at + i * form->element, &value, form->element);
        }
    }
    return o + 1;
}

static uint64_t exec_texture_reduce(const struct surface_form *form, bool is_signed, uint64_t old,
                                    uint64_t value)
{
    bool less;
    switch (form->red) {
    case RED_ADD:
        return old + value;
    case RED_AND:
        return old & value;
    case RED_OR:
        return old | value;
    default:
        if (is_signed) {
            unsigned shift = 64 - form->element * 8;
            less = (int64_t)(value << shift) < (int64_t)(old << shift);
        } else {
            less = value < old;
        }
        return less == (form->red == RED_MIN) ? value : old;
    }
}

/* Atomic among all threads, though not ordered with anything else. */
static void reduce_at(const struct surface_form *form, bool is_signed, void *at, uint64_t value)
{
    if (form->element == 8) {
        uint64_t *p = at, old = __atomic_load_n(p, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(p, &old,
                                            exec_texture_reduce(form, is_signed, old, value), true,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    } else {
        uint32_t *p = at, old = __atomic_load_n(p, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(
            p, &old, (uint32_t)exec_texture_reduce(form, is_signed, old, value), true,
            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
}

OP(run_surface_reduce)
{
    const struct surface_form *form = o->ext;
    const uint64_t *handles = tow_ptx_row(w, form->handle);
    const void *s = tow_ptx_row(w, form->data[0]);
    struct lookup last = {0};
    FOR_LANES(l, w->exec)
    {
        const struct tow_ptx_texture *surface = look_up(w, o, l, handles[l], &last);
        int32_t x = (int32_t)exec_texture_lane32(w, form->coord[0], l);
        bool is_signed = form->is_signed;
        void *at;
        if (!surface) {
            return HALT;
        }
        if (form->formatted) { /* x in texels, and the surface knows the sign */
            is_signed = surface->format == TOW_PTX_TEX_S8 || surface->format == TOW_PTX_TEX_S16 ||
                        surface->format == TOW_PTX_TEX_S32;
            int64_t bytes = (int64_t)x * tow_ptx_texture_texel_bytes(surface);
            x = bytes > INT32_MAX || bytes < INT32_MIN ? INT32_MIN : (int32_t)bytes;
        }
        int found = surface_lane(w, o, form, surface, l, x, &at);
        if (found < 0) {
            return HALT;
        }
        if (found && ((uintptr_t)at & (form->element - 1u))) {
            return tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, l, (uint64_t)(uintptr_t)at,
                                 "surface reduction on a misaligned row");
        }
        if (found) {
            reduce_at(form, is_signed, at,
                      form->element == 8 ? ((const uint64_t *)s)[l] : ((const uint32_t *)s)[l]);
        }
    }
    return o + 1;
}

enum surface_kind {
    SURFACE_LOAD,
    SURFACE_STORE,
    SURFACE_REDUCE,
};

static bool surface_words(struct tow_ptx_decoder *dec, struct surface_form *form,
                          enum surface_kind kind)
{
    static const char *const modes[] = {"trap", "clamp", "zero"};
    static const char *const reds[] = {"add", "min", "max", "and", "or"};
    static const char *const cached[] = {"ca", "cg", "cs", "cv", "wb", "wt"};
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_type type = PT_NONE;
    int geometry = -1;
    bool red = false, form_given = false;
    form->count = 1;
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        bool known = false;
        for (unsigned k = 0; k < 3; k++) {
            if (strcmp(mod, modes[k]) == 0) {
                form->mode = (uint8_t)k;
                known = true;
            }
        }
        for (unsigned k = 0; kind == SURFACE_REDUCE && k < 5; k++) {
            if (strcmp(mod, reds[k]) == 0) {
                form->red = (uint8_t)k;
                red = known = true;
            }
        }
        for (unsigned k = 0; k < sizeof cached / sizeof cached[0]; k++) {
            known |= strcmp(mod, cached[k]) == 0;
        }
        if (i == 0 && (strcmp(mod, "b") == 0 || strcmp(mod, "p") == 0)) {
            form->formatted = *mod == 'p';
            form_given = known = true;
        }
        if (geometry_of(mod) >= 0) {
            geometry = geometry_of(mod);
        } else if (tow_ptx_mod_type(mod)) {
            type = tow_ptx_mod_type(mod);
        } else if (strcmp(mod, "v2") == 0 || strcmp(mod, "v4") == 0) {
            form->count = (uint8_t)(mod[1] - '0');
        } else if (!known) {
            return false;
        }
    }
    form->element = (uint8_t)tow_ptx_type_bytes(type);
    form->is_signed = type == PT_S32 || type == PT_S64;
    bool bits = type == PT_B8 || type == PT_B16 || type == PT_B32 || type == PT_B64;
    if (!form_given || geometry < 0 || geometry > GEOM_A2D || !form->element) {
        return false;
    }
    form->geometry = (uint8_t)geometry;
    switch (kind) {
    case SURFACE_LOAD:
        return bits && !form->formatted;
    case SURFACE_STORE:
        return form->formatted ? form->element == 4 : bits;
    default:
        return red && form->count == 1 && (form->element == 4 || form->element == 8);
    }
}

/* suld.b.geom{.vec}.type{.mode} d, [a, c]   sust.b/p ... [a, c], s   sured.b/p.op.geom.type.mode */
static int decode_surface(struct tow_ptx_decoder *dec, enum surface_kind what)
{
    static tow_ptx_fn *const runs[] = {run_surface_load, run_surface_store, run_surface_reduce};
    const struct tow_ptx_insn *insn = dec->insn;
    struct surface_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    if (!surface_words(dec, form, what)) {
        return tow_ptx_unsupported(dec);
    }
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error) {
        return error;
    }
    bool load = what == SURFACE_LOAD;
    const struct tow_ptx_operand *address = &insn->operands[load ? 1 : 0];
    const struct tow_ptx_operand *data = &insn->operands[load ? 0 : 1];
    const struct tow_ptx_operand *coord = address_parts(address);
    if (!coord || address->count != 2) {
        return tow_ptx_bad(dec, "[surface, {coordinates}] is expected");
    }
    if ((error = handle_row(dec, &address->children[0], &form->handle)) ||
        (error = exec_texture_coordinates(dec, coord, form->geometry, 'w', form->coord,
                                          &form->layer))) {
        return error;
    }
    bool vector = data->kind == OPD_VECTOR;
    if ((vector ? data->count : 1u) != form->count) {
        return tow_ptx_bad(dec, "the operand has not as many elements as the instruction says");
    }
    char kind = form->element == 8 ? 'l' : 'w';
    for (unsigned i = 0; i < form->count; i++) {
        const struct tow_ptx_operand *one = vector ? &data->children[i] : data;
        error = load ? tow_ptx_dest(dec, one, kind, &form->data[i])
                     : tow_ptx_source(dec, one, kind, &form->data[i]);
        if (error) {
            return error;
        }
    }
    struct tow_ptx_op op = {.run = runs[what], .ext = form};
    return tow_ptx_emit(dec, &op);
}

static int decode_suld(struct tow_ptx_decoder *dec)
{
    return decode_surface(dec, SURFACE_LOAD);
}

static int decode_sust(struct tow_ptx_decoder *dec)
{
    return decode_surface(dec, SURFACE_STORE);
}

static int decode_sured(struct tow_ptx_decoder *dec)
{
    return decode_surface(dec, SURFACE_REDUCE);
}

const struct tow_ptx_special tow_ptx_specials_texture[] = {
    {"tex", decode_tex},   {"tld4", decode_tld4}, {"txq", decode_query},   {"suq", decode_query},
    {"suld", decode_suld}, {"sust", decode_sust}, {"sured", decode_sured}, {NULL, NULL},
};
