/* SPDX-License-Identifier: Apache-2.0 */
/* Packed bytes of an upload, in whatever pieces they come: each goes to its place. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "server/copy/copy_3d.h"

enum { EXTENT = 9, ROUNDS = 200000 };

static unsigned below(unsigned limit)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % limit;
}

static void at_most_five_boxes_have_all_bytes(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned width = 1 + below(EXTENT), rows = 1 + below(EXTENT);
        const unsigned planes = 1 + below(EXTENT), size = width * rows * planes;
        const size_t x0 = below(3), y0 = below(3), z0 = below(3);
        const struct tows_driver_copy whole = {
            .copy = {.dstXInBytes = x0,
                     .dstY = y0,
                     .dstZ = z0,
                     .dstPitch = 77,
                     .WidthInBytes = width,
                     .Height = rows,
                     .Depth = planes},
            .packed = TOW_PACKED_SOURCE,
        };
        unsigned at = below(size), end = at + 1 + below(size - at), boxes = 0;
        while (at < end) {
            struct tows_driver_copy part;
            size_t n = tows_driver_copy_part(&whole, at, end - at, &part);
            const CUDA_MEMCPY3D_PEER *p = &part.copy;
            assert_in_range(n, 1, end - at);
            assert_int_equal(n, p->WidthInBytes * p->Height * p->Depth);
            assert_int_equal(p->dstPitch, 77);
            assert_int_equal(part.packed, TOW_PACKED_SOURCE);
            /* The byte of the box at x, y, z is the next of the packed ones. */
            for (size_t i = 0; i < n; i++, at++) {
                size_t x = i % p->WidthInBytes, row = i / p->WidthInBytes;
                size_t y = row % p->Height, z = row / p->Height;
                assert_int_equal(p->dstXInBytes + x, x0 + at % width);
                assert_int_equal(p->dstY + y, y0 + at / width % rows);
                assert_int_equal(p->dstZ + z, z0 + at / width / rows);
            }
            boxes++;
        }
        assert_int_equal(at, end);
        assert_in_range(boxes, 1, 5);
    }
}

/* As a client cuts them: one call of the driver each. */
static void whole_rows_and_planes_are_one_box(void **state)
{
    const struct tows_driver_copy whole = {.copy = {.WidthInBytes = 100, .Height = 10, .Depth = 5}};
    struct tows_driver_copy part;
    assert_int_equal(tows_driver_copy_part(&whole, 0, 5000, &part), 5000);
    assert_int_equal(tows_driver_copy_part(&whole, 1000, 3000, &part), 3000);
    assert_int_equal(part.copy.dstZ, 1);
    assert_int_equal(tows_driver_copy_part(&whole, 1300, 700, &part), 700);
    assert_int_equal(part.copy.dstY, 3);
    assert_int_equal(tows_driver_copy_part(&whole, 4950, 50, &part), 50);
    assert_int_equal(part.copy.dstXInBytes, 50);
    assert_int_equal(part.copy.dstY, 9);
    assert_int_equal(part.copy.dstZ, 4);
}

static void very_large_ones_do_not_overflow(void **state)
{
    const struct tows_driver_copy whole = {
        .copy = {.WidthInBytes = (size_t)1 << 40, .Height = 1 << 12, .Depth = 1 << 11}};
    struct tows_driver_copy part;
    uint64_t last = ((uint64_t)1 << 63) - 1;
    assert_int_equal(tows_driver_copy_part(&whole, last, 1, &part), 1);
    assert_int_equal(part.copy.dstXInBytes, ((size_t)1 << 40) - 1);
    assert_int_equal(part.copy.dstY, (1 << 12) - 1);
    assert_int_equal(part.copy.dstZ, (1 << 11) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_most_five_boxes_have_all_bytes),
        cmocka_unit_test(whole_rows_and_planes_are_one_box),
        cmocka_unit_test(very_large_ones_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
