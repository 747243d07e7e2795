/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of memory: packed, unpacked, cut. */
#include "cmocka_all.h"

#include <string.h>

#include "client/link/host_rect.h"

enum { ROOM = 1 << 16, TURNS = 3000 };

static uint8_t memory[ROOM], packed[ROOM], model[ROOM];
static uint32_t seed = 1;

static size_t below(size_t limit)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % limit;
}

static struct towc_host_rect any_rect(void)
{
    struct towc_host_rect rect = {
        .width = 1 + below(40), .rows = 1 + below(9), .planes = 1 + below(5)};
    rect.pitch = rect.width + below(4);
    rect.plane = rect.pitch * (rect.rows + below(3));
    rect.first = memory + below(100);
    return rect;
}

static size_t offset_in(const struct towc_host_rect *rect, size_t x, size_t y, size_t z)
{
    return (size_t)(rect->first - memory) + z * rect->plane + y * rect->pitch + x;
}

/* Byte by byte. */
static size_t pack_all(const struct towc_host_rect *rect, const uint8_t *from, uint8_t *to)
{
    size_t n = 0;
    for (size_t z = 0; z < rect->planes; z++) {
        for (size_t y = 0; y < rect->rows; y++) {
            for (size_t x = 0; x < rect->width; x++) {
                to[n++] = from[offset_in(rect, x, y, z)];
            }
        }
    }
    return n;
}

static void any_piece_of_the_packed_bytes_is_gathered(void **state)
{
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        struct towc_host_rect rect = any_rect();
        for (size_t i = 0; i < ROOM; i++) {
            memory[i] = (uint8_t)(i * 31 + (i >> 8));
        }
        size_t size = pack_all(&rect, memory, model);
        assert_int_equal(size, towc_host_rect_size(&rect));
        size_t offset = below(size), n = 1 + below(size - offset);
        memset(packed, 0xee, sizeof packed);
        towc_host_rect_gather(&rect, offset, packed, n);
        assert_memory_equal(packed, model + offset, n);
        assert_int_equal(packed[n], 0xee);
    }
}

static void any_piece_of_them_is_scattered(void **state)
{
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        struct towc_host_rect rect = any_rect();
        size_t size = towc_host_rect_size(&rect), offset = below(size),
               n = 1 + below(size - offset);
        memset(memory, 0xee, sizeof memory);
        for (size_t i = 0; i < n; i++) {
            packed[i] = (uint8_t)(i % 200);
        }
        towc_host_rect_scatter(&rect, offset, packed, n);
        pack_all(&rect, memory, model);
        assert_memory_equal(model + offset, packed, n);
        size_t written = 0;
        for (size_t i = 0; i < ROOM; i++) {
            written += memory[i] != 0xee;
        }
        assert_int_equal(written, n);
    }
}

/* Each byte is in one part, and no part is larger than it may be. */
static void parts_make_up_the_rect(void **state)
{
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        struct towc_host_rect rect = any_rect();
        size_t most = 1 + below(towc_host_rect_size(&rect) * 2);
        struct towc_cut cut = towc_cut_make(&rect, most);
        size_t each = towc_part_size(&cut.each);
        assert_true(each <= most);
        memset(memory, 0, sizeof memory);
        for (size_t i = 0; i < cut.count; i++) {
            struct towc_part part = towc_cut_part(&cut, i);
            struct towc_host_rect here = towc_host_rect_part(&rect, &part);
            assert_ptr_equal(here.first, memory + offset_in(&rect, part.x, part.y, part.z));
            assert_true(towc_host_rect_size(&here) > 0 && towc_host_rect_size(&here) <= each);
            for (size_t z = 0; z < here.planes; z++) {
                for (size_t y = 0; y < here.rows; y++) {
                    for (size_t x = 0; x < here.width; x++) {
                        memory[offset_in(&here, x, y, z)]++;
                    }
                }
            }
        }
        size_t size = pack_all(&rect, memory, model), once = 0, touched = 0;
        for (size_t i = 0; i < size; i++) {
            once += model[i] == 1;
        }
        for (size_t i = 0; i < ROOM; i++) {
            touched += memory[i] != 0;
        }
        assert_int_equal(once, size);
        assert_int_equal(touched, size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_piece_of_the_packed_bytes_is_gathered),
        cmocka_unit_test(any_piece_of_them_is_scattered),
        cmocka_unit_test(parts_make_up_the_rect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
