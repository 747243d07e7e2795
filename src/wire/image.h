/* SPDX-License-Identifier: Apache-2.0 */
/* Code images: which form one has and how long it is.
 *
 * The driver API takes images without a length. The client measures what the program hands over;
 * the server measures again what came, so that no driver ever reads beyond what was sent.
 */
#ifndef TOW_WIRE_IMAGE_H
#define TOW_WIRE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tow_image_form {
    TOW_IMAGE_PTX = 1,    /* text that ends with a NUL */
    TOW_IMAGE_CUBIN = 2,  /* an ELF file */
    TOW_IMAGE_FATBIN = 3, /* a container of the two */
    TOW_IMAGE_BUNDLE =
        4,             /* what a version 2 wrapper points at, packed by us (tow_image_bundle_*) */
    TOW_IMAGE_RAW = 5, /* input of the linker: its length was given */
    TOW_IMAGE_WRAPPER = 6, /* points into the program's memory; never travels */
};

#define TOW_IMAGE_WRAPPER_MAGIC 0x466243b1u
#define TOW_IMAGE_FATBIN_MAGIC 0xba55ed50u
#define TOW_IMAGE_ELF_MAGIC 0x464c457fu
#define TOW_IMAGE_BUNDLE_MAGIC 0x424c574fu /* ours: "OWLB" */

/* No image is larger: the largest library of NVIDIA's has about 600 MB in all its images together.
 */
#define TOW_IMAGE_MAX ((size_t)1 << 30)

/* Fatbins in one version 2 wrapper: one per object file of the program. */
#define TOW_IMAGE_PARTS_MAX 65536u

/* In front of each image of the program: at `data` of a wrapper. */
struct tow_image_wrapper {
    uint32_t magic;
    uint32_t version;
    const void *data;
    const void *extra; /* version 2: NULL-terminated array of pointers to fatbins */
};

/* Memory that is measured. `readable` says whether [offset, offset+n) of it may be read. */
struct tow_image_memory {
    const uint8_t *base; /* borrowed */
    size_t size;         /* how much there is; SIZE_MAX where nobody knows */
    bool (*readable)(const struct tow_image_memory *memory, size_t offset, size_t n);
};

/* `readable` for memory whose size is known. */
bool tow_image_within(const struct tow_image_memory *memory, size_t offset, size_t n);

/* Form and length of an image. 0; -ENOEXEC if it is none (a header that makes no sense, a text
 * without end, parts outside of the memory); -E2BIG beyond TOW_IMAGE_MAX. For a wrapper the length
 * is the wrapper's own. */
int tow_image_measure(const struct tow_image_memory *memory, enum tow_image_form *ret_form,
                      size_t *ret_size);

/* A bundle: u32 magic, u32 count, count times u64 size, then the fatbins, each padded to a multiple
 * of 8. */
size_t tow_image_bundle_size(const size_t *sizes, uint32_t count); /* 0 if it would be too large */
void tow_image_bundle_write(void *into, const void *const *parts, const size_t *sizes,
                            uint32_t count);
/* The count of fatbins; `ret_parts` has room for `room` of them. -ENOEXEC if it is no proper
 * bundle. */
int tow_image_bundle_read(const void *bytes, size_t size, const void **ret_parts, uint32_t room);

/* The word for a form ("cubin"). */
const char *tow_image_form_name(enum tow_image_form form);

#endif
