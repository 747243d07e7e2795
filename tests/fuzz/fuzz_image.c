/* Code images: their form and length, bundles of them, and how the software GPU gets PTX out of
 * fat binaries (also compressed) and linked texts. */
#include "fuzz.h"

#include "backend/soft/soft.h"
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
    struct tow_soft_texts texts = {0};
    char why[640];
    if (tow_soft_image_texts(bytes, n, &texts, why, sizeof why) == CUDA_SUCCESS) {
        for (size_t i = 0; i < texts.count; i++) {
            if (strlen(texts.texts[i].text) != texts.texts[i].length) {
                abort();
            }
        }
    }
    tow_soft_texts_fini(&texts);
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

static size_t cubin(uint8_t *at)
{
    memset(at, 0, 64 + 3 * 64 + 56 + 32);
    put(at, TOW_IMAGE_ELF_MAGIC, 4);
    at[4] = 2;
    at[5] = 1;
    put(at + 0x12, 190, 2);
    put(at + 0x20, 64 + 3 * 64 + 32, 8); /* program headers, last */
    put(at + 0x28, 64 + 32, 8);
    put(at + 0x36, 56, 2);
    put(at + 0x38, 1, 2);
    put(at + 0x3a, 64, 2);
    put(at + 0x3c, 3, 2);
    for (unsigned i = 1; i < 3; i++) {
        uint8_t *section = at + 96 + (size_t)i * 64;
        put(section + 4, i == 1 ? 1 : 8, 4);
        put(section + 0x18, 64, 8);
        put(section + 0x20, i == 1 ? 32 : 1 << 20, 8);
    }
    return 64 + 3 * 64 + 56 + 32;
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
