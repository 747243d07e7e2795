/* SPDX-License-Identifier: Apache-2.0 */
/* Measures ELF files, fat binaries and PTX without reading beyond what is there. */
#include "wire/image.h"

#include <errno.h>
#include <string.h>

enum {
    ELF_HEADER = 64,
    ELF_SECTION = 64,
    ELF_CLASS_64 = 2,
    ELF_MACHINE = 190, /* NVIDIA's GPUs */
    SECTION_NOBITS = 8,
    /* Readability is asked for in steps of this when the length of a text is looked for. */
    TEXT_STEP = 4096,
};

bool tow_image_within(const struct tow_image_memory *memory, size_t offset, size_t n)
{
    return offset <= memory->size && n <= memory->size - offset;
}

static uint64_t read_at(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes); /* little-endian, as everything here (wire/cursor.h checks) */
    return value;
}

static bool image_readable(const struct tow_image_memory *memory, uint64_t offset, uint64_t n)
{
    return offset <= TOW_IMAGE_MAX && n <= TOW_IMAGE_MAX && memory->readable(memory, offset, n);
}

/* Takes [offset, offset + n) into the length. */
static bool image_cover(uint64_t *end, uint64_t offset, uint64_t n)
{
    if (offset > TOW_IMAGE_MAX || n > TOW_IMAGE_MAX - offset) {
        return false;
    }
    if (offset + n > *end) {
        *end = offset + n;
    }
    return true;
}

/* The program headers are usually the last thing in a cubin, behind the section headers, so all
 * three kinds of content have to be looked at. */
static int measure_elf(const struct tow_image_memory *memory, size_t *ret_size)
{
    if (!image_readable(memory, 0, ELF_HEADER)) {
        return -ENOEXEC;
    }
    const uint8_t *header = memory->base;
    if (header[4] != ELF_CLASS_64 || header[5] != 1 || read_at(header + 0x12, 2) != ELF_MACHINE) {
        return -ENOEXEC;
    }
    uint64_t program_at = read_at(header + 0x20, 8);
    uint64_t sections_at = read_at(header + 0x28, 8);
    uint64_t program_size = read_at(header + 0x36, 2);
    uint64_t program_count = read_at(header + 0x38, 2);
    uint64_t section_size = read_at(header + 0x3a, 2);
    uint64_t section_count = read_at(header + 0x3c, 2);
    uint64_t end = ELF_HEADER;
    if (sections_at == 0) {
        section_count = 0; /* whatever the header says of them */
    } else if (section_size != ELF_SECTION) {
        return -ENOEXEC;
    }
    if (sections_at != 0 && section_count == 0) {
        /* More than 16 bits of sections: the count is in the first one. */
        if (!image_readable(memory, sections_at, ELF_SECTION)) {
            return -ENOEXEC;
        }
        section_count = read_at(memory->base + sections_at + 0x20, 8);
    }
    if (section_count > TOW_IMAGE_MAX / ELF_SECTION ||
        !image_cover(&end, sections_at, section_count * section_size) ||
        !image_cover(&end, program_at, program_count * program_size)) {
        return -ENOEXEC;
    }
    if (!image_readable(memory, sections_at, section_count * section_size)) {
        return -ENOEXEC;
    }
    for (uint64_t i = 0; i < section_count; i++) {
        const uint8_t *section = memory->base + sections_at + i * ELF_SECTION;
        if (read_at(section + 4, 4) == SECTION_NOBITS) {
            continue;
        }
        if (!image_cover(&end, read_at(section + 0x18, 8), read_at(section + 0x20, 8))) {
            return -ENOEXEC;
        }
    }
    if (!image_readable(memory, 0, end)) {
        return -ENOEXEC;
    }
    *ret_size = end;
    return 0;
}

static int measure_fatbin(const struct tow_image_memory *memory, size_t *ret_size)
{
    if (!image_readable(memory, 0, 16)) {
        return -ENOEXEC;
    }
    uint64_t header = read_at(memory->base + 6, 2);
    uint64_t body = read_at(memory->base + 8, 8);
    if (header < 16 || body > TOW_IMAGE_MAX - header || !image_readable(memory, 0, header + body)) {
        return -ENOEXEC;
    }
    *ret_size = header + body;
    return 0;
}

/* Text is looked at page by page, so that a text without end does not run into memory that is not
 * there. */
static int measure_text(const struct tow_image_memory *memory, size_t *ret_size)
{
    size_t offset = 0;
    while (offset < TOW_IMAGE_MAX) {
        size_t step = TEXT_STEP - ((uintptr_t)memory->base + offset) % TEXT_STEP;
        if (memory->size != SIZE_MAX && step > memory->size - offset) {
            step = memory->size - offset;
        }
        if (step == 0 || !memory->readable(memory, offset, step)) {
            return -ENOEXEC;
        }
        const uint8_t *nul = memchr(memory->base + offset, 0, step);
        if (nul != NULL) {
            *ret_size = (size_t)(nul - memory->base) + 1;
            return 0;
        }
        offset += step;
    }
    return -E2BIG;
}

int tow_image_measure(const struct tow_image_memory *memory, enum tow_image_form *ret_form,
                      size_t *ret_size)
{
    /* No further than a text's end: it may be shorter than a magic number, none of which has a zero
     * byte. */
    uint32_t magic = 0;
    for (unsigned i = 0; i < sizeof magic && memory->readable(memory, i, 1); i++) {
        magic |= (uint32_t)memory->base[i] << 8 * i;
        if (memory->base[i] == 0) {
            break;
        }
    }
    int error = 0;
    switch (magic) {
    case TOW_IMAGE_WRAPPER_MAGIC:
        if (!memory->readable(memory, 0, sizeof(struct tow_image_wrapper))) {
            return -ENOEXEC;
        }
        *ret_size = sizeof(struct tow_image_wrapper);
        *ret_form = TOW_IMAGE_WRAPPER;
        return 0;
    case TOW_IMAGE_FATBIN_MAGIC:
        error = measure_fatbin(memory, ret_size);
        *ret_form = TOW_IMAGE_FATBIN;
        return error;
    case TOW_IMAGE_ELF_MAGIC:
        error = measure_elf(memory, ret_size);
        *ret_form = TOW_IMAGE_CUBIN;
        return error;
    default:
        error = measure_text(memory, ret_size);
        *ret_form = TOW_IMAGE_PTX;
        return error;
    }
}

static size_t image_padded(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

size_t tow_image_bundle_size(const size_t *sizes, uint32_t count)
{
    size_t total = 8 + (size_t)count * 8;
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] > TOW_IMAGE_MAX || total > TOW_IMAGE_MAX - image_padded(sizes[i])) {
            return 0;
        }
        total += image_padded(sizes[i]);
    }
    return total;
}

void tow_image_bundle_write(void *into, const void *const *parts, const size_t *sizes,
                            uint32_t count)
{
    uint8_t *at = into;
    uint32_t head[2] = {TOW_IMAGE_BUNDLE_MAGIC, count};
    memcpy(at, head, sizeof head);
    at += sizeof head;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t size = sizes[i];
        memcpy(at, &size, sizeof size);
        at += sizeof size;
    }
    for (uint32_t i = 0; i < count; i++) {
        memcpy(at, parts[i], sizes[i]);
        memset(at + sizes[i], 0, image_padded(sizes[i]) - sizes[i]);
        at += image_padded(sizes[i]);
    }
}

int tow_image_bundle_read(const void *bytes, size_t size, const void **ret_parts, uint32_t room)
{
    const uint8_t *at = bytes;
    if (size < 8 || read_at(at, 4) != TOW_IMAGE_BUNDLE_MAGIC) {
        return -ENOEXEC;
    }
    uint64_t count = read_at(at + 4, 4);
    if (count == 0 || count > TOW_IMAGE_PARTS_MAX || count > (size - 8) / 8) {
        return -ENOEXEC;
    }
    uint64_t offset = 8 + count * 8;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t part = read_at(at + 8 + i * 8, 8);
        if (part > size - offset || image_padded(part) > size - offset) {
            return -ENOEXEC;
        }
        struct tow_image_memory memory = {
            .base = at + offset,
            .size = part,
            .readable = tow_image_within,
        };
        enum tow_image_form form;
        size_t length;
        if (tow_image_measure(&memory, &form, &length) < 0 || form != TOW_IMAGE_FATBIN) {
            return -ENOEXEC;
        }
        if (i < room) {
            ret_parts[i] = at + offset;
        }
        offset += image_padded(part);
    }
    return (int)count;
}

const char *tow_image_form_name(enum tow_image_form form)
{
    switch (form) {
    case TOW_IMAGE_PTX:
        return "PTX";
    case TOW_IMAGE_CUBIN:
        return "cubin";
    case TOW_IMAGE_FATBIN:
        return "fatbin";
    case TOW_IMAGE_BUNDLE:
        return "bundle of fatbins";
    case TOW_IMAGE_RAW:
        return "linker input";
    case TOW_IMAGE_WRAPPER:
        return "wrapper";
    }
    return "unknown image";
}
