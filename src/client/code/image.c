/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises what a program hands to a load and finds out how long it is. */
#include "client/code/image.h"

#include "base/buf.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LOOK_PAGES = 512, /* pages asked about at once */
};

/* The program's memory: nobody says how much there is, so the kernel is asked what is mapped. */
struct mapped {
    struct tow_image_memory memory;
    size_t known; /* [0, known) is mapped */
};

static bool range_mapped(const uint8_t *base, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)base & ~(page - 1);
    uintptr_t end = (uintptr_t)base + size;
    unsigned char pages[LOOK_PAGES];
    if (end < (uintptr_t)base) {
        return false;
    }
    while (at < end) {
        size_t step = end - at < LOOK_PAGES * page ? end - at : LOOK_PAGES * page;
        if (mincore((void *)at, step, pages) != 0 && errno == ENOMEM) {
            return false;
        }
        at += step;
    }
    return true;
}

static bool mapped_readable(const struct tow_image_memory *memory, size_t offset, size_t n)
{
    struct mapped *mapped = (struct mapped *)memory;
    if (offset > SIZE_MAX - n) {
        return false;
    }
    size_t end = offset + n;
    if (end <= mapped->known) {
        return true;
    }
    /* Look ahead, so that a long text does not cost a question for each of its pages. */
    const size_t ahead = (size_t)1 << 20;
    if (range_mapped(memory->base + mapped->known, end - mapped->known + ahead)) {
        mapped->known = end + ahead;
        return true;
    }
    if (!range_mapped(memory->base + mapped->known, end - mapped->known)) {
        return false;
    }
    mapped->known = end;
    return true;
}

static int image_measure(const void *code, enum tow_image_form *ret_form, size_t *ret_size)
{
    struct mapped mapped = {
        .memory = {.base = code, .size = SIZE_MAX, .readable = mapped_readable},
    };
    return tow_image_measure(&mapped.memory, ret_form, ret_size);
}

/* Packs the linked fatbin and the relocatable ones of a version 2 wrapper. */
static int open_bundle(const struct tow_image_wrapper *wrapper, struct towc_image *image)
{
    const void *const *extra = wrapper->extra;
    uint32_t count = 1;
    while (range_mapped((const uint8_t *)&extra[count - 1], sizeof *extra) &&
           extra[count - 1] != NULL) {
        if (++count > TOW_IMAGE_PARTS_MAX) {
            return -E2BIG;
        }
    }
    const void **parts = calloc(count, sizeof *parts);
    size_t *sizes = calloc(count, sizeof *sizes);
    int error = -ENOMEM;
    if (parts == NULL || sizes == NULL) {
        goto free_lists;
    }
    for (uint32_t i = 0; i < count; i++) {
        enum tow_image_form form;
        parts[i] = i == 0 ? wrapper->data : extra[i - 1];
        error = image_measure(parts[i], &form, &sizes[i]);
        if (error == 0 && form != TOW_IMAGE_FATBIN) {
            error = -ENOEXEC;
        }
        if (error < 0) {
            goto free_lists;
        }
    }
    error = -E2BIG;
    size_t total = tow_image_bundle_size(sizes, count);
    if (total == 0) {
        goto free_lists;
    }
    error = -ENOMEM;
    image->owned = malloc(total);
    if (image->owned == NULL) {
        goto free_lists;
    }
    tow_image_bundle_write(image->owned, parts, sizes, count);
    image->form = TOW_IMAGE_BUNDLE;
    image->data = image->owned;
    image->size = total;
    error = 0;
free_lists:
    free(parts);
    free(sizes);
    return error;
}

int towc_image_open(const void *code, struct towc_image *ret_image)
{
    struct towc_image image = {.data = code};
    int error = image_measure(code, &image.form, &image.size);
    if (error < 0) {
        return error;
    }
    if (image.form == TOW_IMAGE_WRAPPER) {
        struct tow_image_wrapper wrapper;
        memcpy(&wrapper, code, sizeof wrapper);
        if (wrapper.data == NULL) {
            return -ENOEXEC;
        }
        if (wrapper.version == 2 && wrapper.extra != NULL) {
            error = open_bundle(&wrapper, &image);
        } else {
            image.data = wrapper.data;
            error = image_measure(wrapper.data, &image.form, &image.size);
            if (error == 0 && image.form == TOW_IMAGE_WRAPPER) {
                error = -ENOEXEC;
            }
        }
        if (error < 0) {
            return error;
        }
    }
    tow_sha256_of(image.data, image.size, image.hash);
    *ret_image = image;
    return 0;
}

int towc_image_open_file(const char *path, struct towc_image *ret_image)
{
    struct tow_buf content;
    tow_buf_init(&content, TOW_IMAGE_MAX);
    int error = tow_file_read(path, &content);
    /* A text in a file has no NUL; a driver takes it up to the file's end. */
    if (error == 0) {
        error = tow_buf_append(&content, "", 1);
    }
    if (error < 0) {
        tow_buf_fini(&content);
        return error;
    }
    size_t size = content.size;
    struct towc_image image = {.owned = tow_buf_steal(&content)};
    struct tow_image_memory memory = {
        .base = image.owned,
        .size = size,
        .readable = tow_image_within,
    };
    image.data = image.owned;
    error = tow_image_measure(&memory, &image.form, &image.size);
    if (error == 0 && image.form == TOW_IMAGE_WRAPPER) {
        error = -ENOEXEC;
    }
    if (error < 0) {
        free(image.owned);
        return error;
    }
    tow_sha256_of(image.data, image.size, image.hash);
    *ret_image = image;
    return 0;
}

void towc_image_open_raw(const void *bytes, size_t size, struct towc_image *ret_image)
{
    struct towc_image image = {.form = TOW_IMAGE_RAW, .data = bytes, .size = size};
    tow_sha256_of(bytes, size, image.hash);
    *ret_image = image;
}

void towc_image_close(struct towc_image *image)
{
    free(image->owned);
    image->owned = NULL;
}
