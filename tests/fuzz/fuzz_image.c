/* SPDX-License-Identifier: Apache-2.0 */
/* Code images: their form and length, bundles of them, how the software GPU gets PTX out of fat
 * binaries (also compressed) and linked texts. */
#include "fuzz.h"

#include "backend/soft/code/image.h"
#include "backend/soft/ground/state.h"
#include "backend/unpack.h"
#include "wire/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef TOW_HAVE_ZSTD
#include <zstd.h>
#endif

static const char text[] = ".version 8.8\n.target sm_120\n.address_size 64\n"
                           ".visible .entry k() { ret; }\n.visible .entry l() { ret; }\n";

/* What a decoder hands on is read to its last byte. */
static void touch(const void *bytes, size_t n)
{
    static volatile uint8_t sum;
    for (size_t i = 0; i < n; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tow_image_memory memory = {.base = bytes, .size = n, .readable = tow_image_within};
    enum tow_image_form form;
    size_t length;
    if (tow_image_measure(&memory, &form, &length) == 0) {
        if (length > n) {
            abort();
        }
        touch(bytes, length);
    }
    const void *parts[4];
    int count = tow_image_bundle_read(bytes, n, parts, 4);
    for (int i = 0; i < count && i < 4; i++) {
        size_t left = n - (size_t)((const uint8_t *)parts[i] - bytes);
        memory = (struct tow_image_memory){parts[i], left, tow_image_within};
        if (tow_image_measure(&memory, &form, &length) < 0) {
            abort(); /* it was measured when the bundle was read */
        }
        touch(parts[i], length);
    }
    for (int dry = 0; dry < 2; dry++) {
        struct tow_soft_texts texts = {0};
        char why[640];
        tow_soft.dry = dry;
        if (tow_soft_image_texts(bytes, n, &texts, why, sizeof why) == CUDA_SUCCESS) {
            for (size_t i = 0; i < texts.count; i++) {
                if (strlen(texts.texts[i].text) != texts.texts[i].length) {
                    abort();
                }
            }
        }
        tow_soft_texts_fini(&texts);
    }
    uint8_t out[512];
    int64_t got = tow_lz4_decode(bytes, n, out, sizeof out);
    if (got > (int64_t)sizeof out) {
        abort();
    }
    touch(out, got > 0 ? (size_t)got : 0);
    return 0;
}

static void put(uint8_t *at, uint64_t value, unsigned bytes)
{
    memcpy(at, &value, bytes);
}

/* One entry: `flags` 0 plain, 0x2000 LZ4, 0x8000 Zstandard. */
static size_t entry(uint8_t *at, unsigned kind, unsigned sm, uint64_t flags, const void *payload,
                    size_t size, size_t unpacked)
{
    size_t padded = (size + 7) & ~(size_t)7;
    memset(at, 0, 64 + padded);
    put(at, kind, 2);
    put(at + 2, 0x101, 2);
    put(at + 4, 64, 4);
    put(at + 8, padded, 8);
    put(at + 16, flags ? size : 0, 4);
    put(at + 28, sm, 4);
    put(at + 40, flags, 8);
    put(at + 56, unpacked, 8);
    memcpy(at + 64, payload, size);
    return 64 + padded;
}

static size_t fatbin(uint8_t *at, uint64_t flags)
{
    uint8_t packed[1024];
    size_t size = sizeof text;
    memcpy(packed, text, sizeof text);
    if (flags ==
        0x2000) { /* literals, then a match of what stands 29 bytes before, then literals */
        size_t head = sizeof text - 1 - 20;
        uint8_t *to = packed;
        *to++ = 0xff;
        for (size_t left = head - 15;; left -= 255) {
            *to++ = (uint8_t)(left < 255 ? left : 255);
            if (left < 255) {
                break;
            }
        }
        memcpy(to, text, head);
        to += head;
        put(to, 29, 2);
        to[2] = 0;    /* a match of 15 + 4 bytes */
        to[3] = 0x20; /* two literals */
        memcpy(to + 4, "}\n", 2);
        size = (size_t)(to + 6 - packed);
    }
#ifdef TOW_HAVE_ZSTD
    if (flags == 0x8000) {
        size = ZSTD_compress(packed, sizeof packed, text, sizeof text, 3);
    }
#endif
    size_t body = entry(at + 16, 2, 90, 0,
                        "\x7f"
                        "ELF",
                        4, 0);
    body += entry(at + 16 + body, 1, 75, 0, text, sizeof text, 0);
    body += entry(at + 16 + body, 1, 120, flags, packed, size, sizeof text);
    put(at, TOW_IMAGE_FATBIN_MAGIC, 4);
    put(at + 4, 1, 2);
    put(at + 6, 16, 2);
    put(at + 8, body, 8);
    return 16 + body;
}

/* A kernel k with two parameters and a variable v. */
static size_t cubin(uint8_t *at)
{
    static const char names[] = "\0.nv.info.k\0k\0.text.k\0.nv.global\0v";
    enum {
        NAMES = 64,
        SYMBOLS = 112,
        INFO = 184,
        SECTIONS = 224,
        COUNT = 6,
        END = SECTIONS + 64 * COUNT
    };
    static const struct {
        unsigned name, type, offset, size, link, info;
    } sections[COUNT] = {
        {0},
        {0, 3, NAMES, sizeof names, 0, 0},
        {0, 2, SYMBOLS, 72, 1, 0},
        {1, 0x70000000, INFO, 36, 0, 4},
        {14, 1, NAMES, 4, 0, 1},
        {22, 8, NAMES, 1 << 20, 0, 0},
    };
    memset(at, 0, END + 56);
    put(at, TOW_IMAGE_ELF_MAGIC, 4);
    at[4] = 2;
    at[5] = 1;
    at[0x10] = 2;
    put(at + 0x12, 190, 2);
    put(at + 0x20, END, 8); /* program headers, last */
    put(at + 0x28, SECTIONS, 8);
    put(at + 0x36, 56, 2);
    put(at + 0x38, 1, 2);
    put(at + 0x3a, 64, 2);
    put(at + 0x3c, COUNT, 2);
    put(at + 0x3e, 1, 2);
    memcpy(at + NAMES, names, sizeof names);
    for (unsigned i = 1; i < 3; i++) { /* after the empty symbol: k and v */
        uint8_t *symbol = at + SYMBOLS + 24 * (size_t)i;
        put(symbol, i == 1 ? 12 : 33, 4);
        symbol[4] = i == 1 ? 0x12 : 0x11;
        symbol[5] = i == 1 ? 0x10 : 0;
        put(symbol + 6, i == 1 ? 4 : 5, 2);
        put(symbol + 16, i == 1 ? 4 : 100, 8);
    }
    for (unsigned i = 0; i < 2; i++) { /* parameters of 8 and 4 bytes */
        uint8_t *record = at + INFO + 16 * (size_t)i;
        put(record, 0x000c1704, 4);
        put(record + 8, i, 2);
        put(record + 10, i * 8, 2);
        put(record + 12, (uint64_t)(i == 0 ? 8 : 4) << 18, 4);
    }
    put(at + INFO + 32, 0x000c1903, 4); /* 12 bytes together */
    for (unsigned i = 0; i < COUNT; i++) {
        uint8_t *section = at + SECTIONS + (size_t)i * 64;
        put(section, sections[i].name, 4);
        put(section + 4, sections[i].type, 4);
        put(section + 0x18, sections[i].offset, 8);
        put(section + 0x20, sections[i].size, 8);
        put(section + 0x28, sections[i].link, 4);
        put(section + 0x2c, sections[i].info, 4);
    }
    return END + 56;
}

size_t fuzz_seed(unsigned number, uint8_t *ret_bytes, size_t size)
{
    static const uint64_t flags[] = {0, 0x2000, 0x8000};
    if (number < 3) {
        return fatbin(ret_bytes, flags[number]);
    }
    switch (number) {
    case 3:
        return cubin(ret_bytes);
    case 4: {
        uint8_t one[2048], two[2048];
        const void *parts[] = {one, two};
        size_t sizes[] = {fatbin(one, 0), fatbin(two, 0x2000)};
        size_t all = tow_image_bundle_size(sizes, 2);
        if (all > size) {
            return 0;
        }
        tow_image_bundle_write(ret_bytes, parts, sizes, 2);
        return all;
    }
    case 5: /* what a link gives */
        return (size_t)snprintf((char *)ret_bytes, size, "// towline linked %zu %zu\n%s%s",
                                sizeof text - 1, sizeof text - 1, text, text) +
               1;
    case 6: { /* points at memory: only a program's own may be followed */
        put(ret_bytes, TOW_IMAGE_WRAPPER_MAGIC, 4);
        put(ret_bytes + 4, 1, 4);
        put(ret_bytes + 8, 0x1000, 8);
        put(ret_bytes + 16, 0, 8);
        return 24;
    }
    default:
        return 0;
    }
}
