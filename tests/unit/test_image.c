/* SPDX-License-Identifier: Apache-2.0 */
/* Code images: recognised, measured, and never read beyond what is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/code/image.h"

/* Puts bytes at the very end of a page; the next one may not be touched. */
struct edge {
    uint8_t *map;
    size_t pages;
    uint8_t *bytes;
};

static struct edge edge_make(const void *bytes, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct edge edge = {.pages = (size + page - 1) / page};
    edge.map = mmap(NULL, (edge.pages + 1) * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(edge.map, MAP_FAILED);
    assert_int_equal(munmap(edge.map + edge.pages * page, page), 0);
    edge.bytes = edge.map + edge.pages * page - size;
    memcpy(edge.bytes, bytes, size);
    return edge;
}

static void edge_free(struct edge *edge)
{
    munmap(edge->map, edge->pages * (size_t)sysconf(_SC_PAGESIZE));
}

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    memcpy(at, &value, bytes);
}

enum { CUBIN_SIZE = 64 + 100 + 2 * 64 + 56 };

/* A cubin in small: header, 100 bytes of content, two section headers, one program header at the
 * end. */
static void make_cubin(uint8_t cubin[CUBIN_SIZE])
{
    memset(cubin, 0, CUBIN_SIZE);
    memcpy(cubin, "\177ELF\2\1\1", 7);
    put(cubin + 0x12, 190, 2);
    put(cubin + 0x20, 64 + 100 + 128, 8); /* program headers */
    put(cubin + 0x28, 64 + 100, 8);       /* section headers */
    put(cubin + 0x36, 56, 2);
    put(cubin + 0x38, 1, 2);
    put(cubin + 0x3a, 64, 2);
    put(cubin + 0x3c, 2, 2);
    uint8_t *section = cubin + 64 + 100;
    put(section + 4, 1, 4);
    put(section + 0x18, 64, 8);
    put(section + 0x20, 100, 8);
    section += 64;
    put(section + 4, 8, 4); /* takes no place in the file */
    put(section + 0x18, 64, 8);
    put(section + 0x20, 1 << 20, 8);
}

static void make_fatbin(uint8_t *fatbin, size_t body)
{
    memset(fatbin, 7, 16 + body);
    put(fatbin, TOW_IMAGE_FATBIN_MAGIC, 4);
    put(fatbin + 4, 1, 2);
    put(fatbin + 6, 16, 2);
    put(fatbin + 8, body, 8);
}

static void text_ends_with_its_nul(void **state)
{
    const char *ptx = ".version 8.0\n.target sm_80\n";
    struct towc_image image;
    assert_int_equal(towc_image_open(ptx, &image), 0);
    assert_int_equal(image.form, TOW_IMAGE_PTX);
    assert_int_equal(image.size, strlen(ptx) + 1);
    uint8_t hash[TOW_SHA256_SIZE];
    tow_sha256_of(ptx, strlen(ptx) + 1, hash);
    assert_memory_equal(hash, image.hash, sizeof hash);
    towc_image_close(&image);
}

static void text_without_end_is_no_image(void **state)
{
    char *text = malloc(10000);
    memset(text, 'x', 10000);
    struct edge edge = edge_make(text, 10000);
    struct towc_image image;
    assert_int_equal(towc_image_open(edge.bytes, &image), -ENOEXEC);
    edge_free(&edge);
    free(text);
}

static void cubin_ends_with_its_program_headers(void **state)
{
    uint8_t cubin[CUBIN_SIZE];
    make_cubin(cubin);
    struct edge edge = edge_make(cubin, sizeof cubin);
    struct towc_image image;
    assert_int_equal(towc_image_open(edge.bytes, &image), 0);
    assert_int_equal(image.form, TOW_IMAGE_CUBIN);
    assert_int_equal(image.size, CUBIN_SIZE);
    towc_image_close(&image);
    edge_free(&edge);
}

static void elf_of_another_machine_is_no_image(void **state)
{
    uint8_t cubin[CUBIN_SIZE];
    struct towc_image image;
    make_cubin(cubin);
    put(cubin + 0x12, 183, 2);
    assert_int_equal(towc_image_open(cubin, &image), -ENOEXEC);
}

static void cubin_without_a_section_table_has_no_sections(void **state)
{
    uint8_t cubin[64];
    uint8_t whole[CUBIN_SIZE];
    make_cubin(whole);
    memcpy(cubin, whole, sizeof cubin);
    put(cubin + 0x28, 0, 8);
    put(cubin + 0x38, 0, 2);
    put(cubin + 0x20, 0, 8);
    put(cubin + 0x3a, 1, 2); /* sixty sections of a byte are not read as sections */
    put(cubin + 0x3c, 60, 2);
    struct edge edge = edge_make(cubin, sizeof cubin);
    struct towc_image image;
    assert_int_equal(towc_image_open(edge.bytes, &image), 0);
    assert_int_equal(image.size, sizeof cubin);
    towc_image_close(&image);
    edge_free(&edge);
}

static void cubin_cut_anywhere_is_no_image(void **state)
{
    uint8_t cubin[CUBIN_SIZE];
    make_cubin(cubin);
    for (size_t size = 4; size < CUBIN_SIZE; size++) {
        struct tow_image_memory memory = {
            .base = cubin, .size = size, .readable = tow_image_within};
        enum tow_image_form form;
        size_t measured;
        assert_int_equal(tow_image_measure(&memory, &form, &measured), -ENOEXEC);
        struct edge edge = edge_make(cubin, size);
        struct towc_image image;
        assert_int_equal(towc_image_open(edge.bytes, &image), -ENOEXEC);
        edge_free(&edge);
    }
}

static void corrupt_cubins_are_never_overrun(void **state)
{
    for (size_t at = 4; at < CUBIN_SIZE; at++) {
        for (unsigned value = 0; value < 256; value += 51) {
            uint8_t cubin[CUBIN_SIZE];
            make_cubin(cubin);
            cubin[at] = (uint8_t)value;
            struct tow_image_memory memory = {
                .base = cubin, .size = sizeof cubin, .readable = tow_image_within};
            enum tow_image_form form;
            size_t measured = 0;
            if (tow_image_measure(&memory, &form, &measured) == 0) {
                assert_true(measured <= sizeof cubin);
            }
        }
    }
}

static void fatbin_says_its_length(void **state)
{
    uint8_t fatbin[16 + 48];
    make_fatbin(fatbin, 48);
    struct edge edge = edge_make(fatbin, sizeof fatbin);
    struct towc_image image;
    assert_int_equal(towc_image_open(edge.bytes, &image), 0);
    assert_int_equal(image.form, TOW_IMAGE_FATBIN);
    assert_int_equal(image.size, sizeof fatbin);
    towc_image_close(&image);
    put(edge.bytes + 8, 49, 8); /* one byte more than there is */
    edge_free(&edge);
    put(fatbin + 8, UINT64_MAX - 3, 8);
    assert_int_equal(towc_image_open(fatbin, &image), -ENOEXEC);
}

static void wrapper_is_followed(void **state)
{
    uint8_t fatbin[16 + 48];
    make_fatbin(fatbin, 48);
    struct tow_image_wrapper wrapper = {TOW_IMAGE_WRAPPER_MAGIC, 1, fatbin, NULL};
    struct towc_image image;
    assert_int_equal(towc_image_open(&wrapper, &image), 0);
    assert_int_equal(image.form, TOW_IMAGE_FATBIN);
    assert_ptr_equal(image.data, fatbin);
    towc_image_close(&image);
    wrapper.data = &wrapper;
    assert_int_equal(towc_image_open(&wrapper, &image), -ENOEXEC);
    wrapper.data = NULL;
    assert_int_equal(towc_image_open(&wrapper, &image), -ENOEXEC);
}

static void linked_wrapper_becomes_a_bundle(void **state)
{
    uint8_t linked[16 + 40], first[16 + 3], second[16 + 64];
    make_fatbin(linked, 40);
    make_fatbin(first, 3);
    make_fatbin(second, 64);
    first[17] = 1;
    const void *extra[] = {first, second, NULL};
    struct tow_image_wrapper wrapper = {TOW_IMAGE_WRAPPER_MAGIC, 2, linked, extra};
    struct towc_image image;
    assert_int_equal(towc_image_open(&wrapper, &image), 0);
    assert_int_equal(image.form, TOW_IMAGE_BUNDLE);
    const void *parts[3];
    assert_int_equal(tow_image_bundle_read(image.data, image.size, parts, 3), 3);
    assert_memory_equal(parts[0], linked, sizeof linked);
    assert_memory_equal(parts[1], first, sizeof first);
    assert_memory_equal(parts[2], second, sizeof second);
    for (size_t size = 0; size < image.size; size++) {
        assert_int_equal(tow_image_bundle_read(image.data, size, NULL, 0), -ENOEXEC);
    }
    uint8_t *damaged = malloc(image.size);
    for (size_t at = 0; at < 32 + 16; at++) {
        memcpy(damaged, image.data, image.size);
        damaged[at] ^= 0x81;
        int count = tow_image_bundle_read(damaged, image.size, parts, 3);
        assert_true(count < 0 || count <= 3);
    }
    free(damaged);
    towc_image_close(&image);
}

static void file_with_text_is_an_image(void **state)
{
    char path[] = "/tmp/test_image_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, ".version 8.0\n", 13), 13);
    close(fd);
    struct towc_image image;
    assert_int_equal(towc_image_open_file(path, &image), 0);
    assert_int_equal(image.form, TOW_IMAGE_PTX);
    assert_int_equal(image.size, 14);
    towc_image_close(&image);
    unlink(path);
    assert_int_equal(towc_image_open_file(path, &image), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ends_with_its_nul),
        cmocka_unit_test(text_without_end_is_no_image),
        cmocka_unit_test(cubin_ends_with_its_program_headers),
        cmocka_unit_test(elf_of_another_machine_is_no_image),
        cmocka_unit_test(cubin_without_a_section_table_has_no_sections),
        cmocka_unit_test(cubin_cut_anywhere_is_no_image),
        cmocka_unit_test(corrupt_cubins_are_never_overrun),
        cmocka_unit_test(fatbin_says_its_length),
        cmocka_unit_test(wrapper_is_followed),
        cmocka_unit_test(linked_wrapper_becomes_a_bundle),
        cmocka_unit_test(file_with_text_is_an_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
