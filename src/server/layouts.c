#include "server/layouts.h"

#include <string.h>

#include "backend/unpack.h"
#include "server/cubin.h"

enum {
    CAPABILITY_MIN = 70,      /* what is said below of registers holds from here on */
    CAPABILITY_VARIANTS = 90, /* from here on there is code for one GPU only (sm_90a) */
    REGISTERS = 65536,        /* that the warps of a block share */
    REGISTERS_STEP = 8,       /* a thread gets a multiple of it */
    WARP = 32,
    WARPS_STEP = 4, /* a multiple of it shares them evenly */
    THREADS_MAX = 1024,
    SHARED_MAX = 48 << 10,     /* without a wish for more, static and dynamic together */
    SHARED_RESERVED = 1 << 10, /* more than what the driver takes for itself */
};

/* ---- which code is taken ---- */

/* The entry with the newest code that the GPU can run, if there is only one. */
static bool choose(const uint8_t *image, size_t size, unsigned capability,
                   struct tow_entry *ret_entry)
{
    struct tow_entry entry, best = {0};
    unsigned alike = 0;
    bool others = false; /* what can be compiled instead */
    size_t at = 0;
    uint64_t body;
    int more = tow_entry_first(image, size, &at, &body);
    while (more >= 0 && (more = tow_entry_next(image, size, &at, &entry)) > 0) {
        if (entry.kind != TOW_ENTRY_ELF) {
            others = true;
        } else if (entry.sm / 10 == capability / 10 && entry.sm <= capability) {
            alike = entry.sm == best.sm ? alike + 1 : entry.sm > best.sm ? 1 : alike;
            best = entry.sm > best.sm ? entry : best;
        }
    }
    *ret_entry = best;
    return more == 0 && alike == 1 &&
           (best.sm == capability || best.sm < CAPABILITY_VARIANTS || !others);
}

int tow_layouts_code(const uint8_t *image, size_t size, enum tow_image_form form,
                     unsigned capability, const uint8_t **ret_bytes, size_t *ret_size,
                     uint8_t **ret_owned)
{
    struct tow_entry entry;
    *ret_owned = NULL;
    if (capability < CAPABILITY_MIN) {
        return 0;
    }
    if (form == TOW_IMAGE_CUBIN) {
        *ret_bytes = image;
        *ret_size = size;
        return 1;
    }
    if (form != TOW_IMAGE_FATBIN || !choose(image, size, capability, &entry)) {
        return 0;
    }
    *ret_bytes = entry.payload;
    *ret_size = entry.size;
    if (entry.is_packed) {
        int error = tow_entry_unpack(&entry, ret_owned, ret_size);
        if (error < 0) {
            return error;
        }
        *ret_bytes = *ret_owned;
    }
    return 1;
}

size_t tow_layouts_packed(const uint8_t *image, size_t size, enum tow_image_form form,
                          unsigned capability)
{
    struct tow_entry entry;
    return form == TOW_IMAGE_FATBIN && choose(image, size, capability, &entry) && entry.is_packed
               ? (size_t)entry.unpacked_size
               : 0;
}

/* ---- what it says ---- */

struct reading {
    struct tow_buf *into;
    int count;
};

/* The driver's own bounds may be higher, never lower. */
static uint16_t threads_of(const struct tow_cubin_kernel *kernel)
{
    unsigned step = REGISTERS_STEP, each = (kernel->registers + step - 1) / step * step;
    unsigned warps = REGISTERS / (each * WARP) / WARPS_STEP * WARPS_STEP;
    unsigned threads = warps * WARP < THREADS_MAX ? warps * WARP : THREADS_MAX;
    return (uint16_t)(kernel->threads != 0 && kernel->threads < threads ? kernel->threads
                                                                        : threads);
}

static bool add(void *user, const struct tow_cubin_kernel *kernel)
{
    struct reading *reading = user;
    uint64_t taken = kernel->shared + SHARED_RESERVED;
    struct tow_kernel_layout layout = {
        .params = (uint16_t)kernel->param_count,
        .threads = threads_of(kernel),
        .shared =
            kernel->shared < SHARED_MAX && taken < SHARED_MAX ? (uint32_t)(SHARED_MAX - taken) : 0,
    };
    size_t room = sizeof layout + kernel->param_count * sizeof *kernel->params + 8;
    size_t before = reading->into->size;
    uint8_t *at;
    reading->count++;
    if (tow_buf_extend(reading->into, room, &at) < 0) {
        return false;
    }
    struct tow_enc enc = tow_enc_init(at, room);
    tow_kernel_layout_write(&enc, kernel->name, &layout, kernel->params);
    reading->into->size = before + (size_t)(enc.at - at);
    return true;
}

int tow_layouts_read(const uint8_t *cubin, size_t size, struct tow_buf *layouts)
{
    struct reading reading = {.into = layouts};
    int error = tow_cubin_kernels(cubin, size, add, &reading);
    return error < 0 ? error : reading.count;
}
