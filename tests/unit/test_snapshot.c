/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: round trip, every cut, limits. */
#include "cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/snapshot.h"

static uint8_t *encoded(size_t *ret_size)
{
    struct tow_snapshot snapshot;
    assert_int_equal(tow_snapshot_init(&snapshot, 2), 0);
    snapshot.version = 12080;
    snapshot.flags = TOW_SNAPSHOT_SOFT;
    for (int i = 0; i < 2; i++) {
        struct tow_snapshot_device *device = &snapshot.devices[i];
        strcpy(device->name, i == 0 ? "first" : "second");
        memset(device->uuid, 0xa0 + i, 16);
        memset(device->uuid_v2, 0xb0 + i, 16);
        device->memory = UINT64_C(80) << 30;
        device->affinity = 1;
        tow_snapshot_set(device, 1, 1024);
        tow_snapshot_set(device, 64, -1);
        tow_snapshot_set(device, 255, i);
        tow_snapshot_set(device, 256, 7); /* too new: not kept */
    }
    snapshot.peers[1] = (struct tow_snapshot_peer){1, 2, {0, 42}};
    snapshot.texts[0] = strdup("no error");
    snapshot.texts[700] = strdup("");
    snapshot.texts[999] = strdup("unknown error");
    *ret_size = tow_snapshot_size(&snapshot);
    uint8_t *bytes = malloc(*ret_size);
    assert_int_equal(tow_snapshot_encode(&snapshot, bytes, *ret_size), 0);
    assert_int_equal(tow_snapshot_encode(&snapshot, bytes, *ret_size - 1), -EMSGSIZE);
    assert_int_equal(tow_snapshot_encode(&snapshot, bytes, *ret_size), 0);
    tow_snapshot_fini(&snapshot);
    return bytes;
}

static void what_goes_in_comes_out(void **state)
{
    size_t size = 0;
    int32_t value = 0;
    uint8_t *bytes = encoded(&size);
    struct tow_snapshot snapshot;
    assert_int_equal(tow_snapshot_decode(bytes, size, &snapshot), 0);
    assert_int_equal(snapshot.count, 2);
    assert_int_equal(snapshot.version, 12080);
    assert_int_equal(snapshot.flags, TOW_SNAPSHOT_SOFT);
    assert_string_equal(snapshot.devices[1].name, "second");
    assert_int_equal(snapshot.devices[1].uuid[15], 0xa1);
    assert_int_equal(snapshot.devices[1].uuid_v2[15], 0xb1);
    assert_true(tow_snapshot_get(&snapshot.devices[1], 64, &value));
    assert_int_equal(value, -1);
    assert_true(tow_snapshot_get(&snapshot.devices[1], 255, &value));
    assert_int_equal(value, 1);
    assert_false(tow_snapshot_get(&snapshot.devices[1], 2, &value));
    assert_false(tow_snapshot_get(&snapshot.devices[1], 256, &value));
    assert_int_equal(snapshot.peers[1].attribute[1], 42);
    assert_string_equal(snapshot.texts[0], "no error");
    assert_string_equal(snapshot.texts[700], "");
    assert_string_equal(snapshot.texts[999], "unknown error");
    assert_null(snapshot.texts[1]);
    tow_snapshot_fini(&snapshot);
    free(bytes);
}

static void every_truncation_is_refused(void **state)
{
    size_t size = 0;
    uint8_t *bytes = encoded(&size);
    for (size_t cut = 0; cut < size; cut++) {
        /* A copy of that size, so that reading beyond it is noticed. */
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, bytes, cut);
        struct tow_snapshot snapshot;
        assert_int_equal(tow_snapshot_decode(copy, cut, &snapshot), -EPROTO);
        free(copy);
    }
    free(bytes);
}

static void corruption_is_refused_or_harmless(void **state)
{
    size_t size = 0;
    uint8_t *bytes = encoded(&size);
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit += 7) {
            bytes[at] ^= (uint8_t)(1 << bit);
            struct tow_snapshot snapshot;
            if (tow_snapshot_decode(bytes, size, &snapshot) == 0) {
                assert_true(snapshot.count <= TOW_SNAPSHOT_DEVICES_MAX);
                assert_true(strlen(snapshot.devices[0].name) < TOW_SNAPSHOT_NAME_SIZE);
                tow_snapshot_fini(&snapshot);
            }
            bytes[at] ^= (uint8_t)(1 << bit);
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(corruption_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
