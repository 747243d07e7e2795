/* SPDX-License-Identifier: Apache-2.0 */
/* What a server says about its devices, once, in the welcome: everything that programs ask of a
 * device hundreds of times and that does not change.
 *
 * Layout (little-endian, every part a multiple of 8 bytes):
 *
 *     u32 format = 2, u32 driver version, u32 devices, u32 flags (TOW_SNAPSHOT_...)
 *     per device: 256 bytes name, 16 uuid, 16 uuid (v2), 8 luid, u32 luid node mask, u32 affinity
 * bits, u64 memory, u32 attributes, u32 0, then per attribute u32 id, i32 value per pair of devices
 * (row by row): u32 may access, u32 valid bits, i32 attribute[6]
 *     u32 texts, u32 0, then per text u32 result, u32 length, its bytes, and zeros up to 8 bytes
 */
#ifndef TOW_WIRE_SNAPSHOT_H
#define TOW_WIRE_SNAPSHOT_H

#include "wire/cursor.h"

enum {
    TOW_SNAPSHOT_FORMAT = 2,
    TOW_SNAPSHOT_DEVICES_MAX = 64,
    /* The driver knows 148 attributes in CUDA 13.0; a newer one may know more. */
    TOW_SNAPSHOT_ATTRIBUTES_MAX = 256,
    TOW_SNAPSHOT_NAME_SIZE = 256,
    TOW_SNAPSHOT_PEER_ATTRIBUTES = 6,
    TOW_SNAPSHOT_RESULTS = 1024, /* CUresult ends with 999 */
    TOW_SNAPSHOT_TEXT_MAX = 255,
};

/* The devices are software: code without PTX cannot run there. */
#define TOW_SNAPSHOT_SOFT 1u

struct tow_snapshot_device {
    char name[TOW_SNAPSHOT_NAME_SIZE];
    uint8_t uuid[16];
    uint8_t uuid_v2[16];
    uint8_t luid[8];
    uint32_t luid_mask;
    uint32_t affinity; /* bit i: CUexecAffinityType i is supported */
    uint64_t memory;
    uint64_t known[TOW_SNAPSHOT_ATTRIBUTES_MAX / 64]; /* which of the values are there */
    int32_t value[TOW_SNAPSHOT_ATTRIBUTES_MAX];
};

struct tow_snapshot_peer {
    uint32_t may_access;
    uint32_t known; /* bit i: attribute[i] is there */
    int32_t attribute[TOW_SNAPSHOT_PEER_ATTRIBUTES];
};

struct tow_snapshot {
    uint32_t version; /* of the driver: 13000 = 13.0 */
    uint32_t flags;
    uint32_t count;
    struct tow_snapshot_device *devices; /* owned */
    struct tow_snapshot_peer *peers;     /* owned: [row * count + column] */
    char *texts[TOW_SNAPSHOT_RESULTS];   /* owned: how the driver describes each result, or NULL */
};

/* Zeroed room for `count` devices; -E2BIG, -ENOMEM. */
int tow_snapshot_init(struct tow_snapshot *snapshot, uint32_t count);
void tow_snapshot_fini(struct tow_snapshot *snapshot);

static inline void tow_snapshot_set(struct tow_snapshot_device *device, unsigned id, int32_t value)
{
    if (id < TOW_SNAPSHOT_ATTRIBUTES_MAX) {
        device->known[id / 64] |= UINT64_C(1) << id % 64;
        device->value[id] = value;
    }
}

static inline bool tow_snapshot_get(const struct tow_snapshot_device *device, unsigned id,
                                    int32_t *ret_value)
{
    if (id >= TOW_SNAPSHOT_ATTRIBUTES_MAX || (device->known[id / 64] >> id % 64 & 1) == 0) {
        return false;
    }
    *ret_value = device->value[id];
    return true;
}

/* Bytes that tow_snapshot_encode writes. */
size_t tow_snapshot_size(const struct tow_snapshot *snapshot);
/* -EMSGSIZE if it does not fit. */
int tow_snapshot_encode(const struct tow_snapshot *snapshot, void *at, size_t size);
/* Fills an uninitialised snapshot, to be ended with tow_snapshot_fini. -EPROTO for bytes that are
 * not one. */
int tow_snapshot_decode(const void *at, size_t size, struct tow_snapshot *ret_snapshot);

#endif
