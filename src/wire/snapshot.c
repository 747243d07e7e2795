/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the snapshot of a server's devices. */
#include "wire/snapshot.h"

#include <errno.h>
#include <stdlib.h>

int tow_snapshot_init(struct tow_snapshot *snapshot, uint32_t count)
{
    memset(snapshot, 0, sizeof *snapshot);
    if (count > TOW_SNAPSHOT_DEVICES_MAX) {
        return -E2BIG;
    }
    snapshot->devices = calloc(count + 1, sizeof *snapshot->devices);
    snapshot->peers = calloc((size_t)count * count + 1, sizeof *snapshot->peers);
    if (snapshot->devices == NULL || snapshot->peers == NULL) {
        tow_snapshot_fini(snapshot);
        return -ENOMEM;
    }
    snapshot->count = count;
    return 0;
}

void tow_snapshot_fini(struct tow_snapshot *snapshot)
{
    free(snapshot->devices);
    free(snapshot->peers);
    for (unsigned i = 0; i < TOW_SNAPSHOT_RESULTS; i++) {
        free(snapshot->texts[i]);
    }
    memset(snapshot, 0, sizeof *snapshot);
}

static uint32_t count_known(const struct tow_snapshot_device *device)
{
    uint32_t count = 0;
    for (size_t i = 0; i < TOW_SNAPSHOT_ATTRIBUTES_MAX / 64; i++) {
        count += (uint32_t)__builtin_popcountll(device->known[i]);
    }
    return count;
}

enum {
    HEAD_SIZE = 16,
    DEVICE_SIZE = TOW_SNAPSHOT_NAME_SIZE + 16 + 16 + 8 + 4 + 4 + 8 + 4 + 4,
    ATTRIBUTE_SIZE = 8,
    PEER_SIZE = 8 + 4 * TOW_SNAPSHOT_PEER_ATTRIBUTES,
    TEXT_SIZE = 8, /* and what it says */
};

/* Of a text with its zeros. */
static size_t snapshot_padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

static size_t length_of(const char *text)
{
    return strnlen(text, TOW_SNAPSHOT_TEXT_MAX);
}

size_t tow_snapshot_size(const struct tow_snapshot *snapshot)
{
    size_t size = HEAD_SIZE + (size_t)snapshot->count * snapshot->count * PEER_SIZE + 8;
    for (unsigned i = 0; i < TOW_SNAPSHOT_RESULTS; i++) {
        const char *text = snapshot->texts[i];
        size += text != NULL ? TEXT_SIZE + snapshot_padded(length_of(text)) : 0;
    }
    for (uint32_t i = 0; i < snapshot->count; i++) {
        size += DEVICE_SIZE + (size_t)count_known(&snapshot->devices[i]) * ATTRIBUTE_SIZE;
    }
    return size;
}

static void encode_texts(const struct tow_snapshot *snapshot, struct tow_enc *enc)
{
    static const uint8_t zeros[8];
    uint32_t count = 0;
    for (unsigned i = 0; i < TOW_SNAPSHOT_RESULTS; i++) {
        count += snapshot->texts[i] != NULL;
    }
    tow_enc_u32(enc, count);
    tow_enc_u32(enc, 0);
    for (uint32_t i = 0; i < TOW_SNAPSHOT_RESULTS; i++) {
        const char *text = snapshot->texts[i];
        if (text != NULL) {
            size_t length = length_of(text);
            tow_enc_u32(enc, i);
            tow_enc_u32(enc, (uint32_t)length);
            tow_enc_bytes(enc, text, length);
            tow_enc_bytes(enc, zeros, snapshot_padded(length) - length);
        }
    }
}

static int decode_texts(struct tow_snapshot *snapshot, struct tow_dec *dec)
{
    uint32_t count = tow_dec_count(dec, TOW_SNAPSHOT_RESULTS, TEXT_SIZE);
    tow_dec_u32(dec);
    for (uint32_t i = 0; i < count && !dec->bad; i++) {
        uint32_t result = tow_dec_u32(dec), length = tow_dec_u32(dec);
        if (result >= TOW_SNAPSHOT_RESULTS || length > TOW_SNAPSHOT_TEXT_MAX ||
            snapshot->texts[result] != NULL) {
            return -EPROTO;
        }
        const uint8_t *bytes = tow_dec_bytes(dec, snapshot_padded(length));
        if (bytes != NULL) {
            snapshot->texts[result] = strndup((const char *)bytes, length);
            if (snapshot->texts[result] == NULL) {
                return -ENOMEM;
            }
            for (char *c = snapshot->texts[result]; *c != '\0'; c++) {
                if ((unsigned char)*c < ' ' || *c == 0x7f) {
                    *c = ' '; /* programs print them: they move no cursor */
                }
            }
        }
    }
    return dec->bad ? -EPROTO : 0;
}

int tow_snapshot_encode(const struct tow_snapshot *snapshot, void *at, size_t size)
{
    struct tow_enc enc = tow_enc_init(at, size);
    tow_enc_u32(&enc, TOW_SNAPSHOT_FORMAT);
    tow_enc_u32(&enc, snapshot->version);
    tow_enc_u32(&enc, snapshot->count);
    tow_enc_u32(&enc, snapshot->flags);
    for (uint32_t i = 0; i < snapshot->count; i++) {
        const struct tow_snapshot_device *device = &snapshot->devices[i];
        tow_enc_bytes(&enc, device->name, sizeof device->name);
        tow_enc_bytes(&enc, device->uuid, sizeof device->uuid);
        tow_enc_bytes(&enc, device->uuid_v2, sizeof device->uuid_v2);
        tow_enc_bytes(&enc, device->luid, sizeof device->luid);
        tow_enc_u32(&enc, device->luid_mask);
        tow_enc_u32(&enc, device->affinity);
        tow_enc_u64(&enc, device->memory);
        tow_enc_u32(&enc, count_known(device));
        tow_enc_u32(&enc, 0);
        for (unsigned id = 0; id < TOW_SNAPSHOT_ATTRIBUTES_MAX; id++) {
            int32_t value;
            if (tow_snapshot_get(device, id, &value)) {
                tow_enc_u32(&enc, id);
                tow_enc_i32(&enc, value);
            }
        }
    }
    for (size_t i = 0; i < (size_t)snapshot->count * snapshot->count; i++) {
        const struct tow_snapshot_peer *peer = &snapshot->peers[i];
        tow_enc_u32(&enc, peer->may_access);
        tow_enc_u32(&enc, peer->known);
        tow_enc_bytes(&enc, peer->attribute, sizeof peer->attribute);
    }
    encode_texts(snapshot, &enc);
    return enc.overflow ? -EMSGSIZE : 0;
}

int tow_snapshot_decode(const void *at, size_t size, struct tow_snapshot *ret_snapshot)
{
    struct tow_dec dec = tow_dec_init(at, size);
    uint32_t format = tow_dec_u32(&dec);
    uint32_t version = tow_dec_u32(&dec);
    uint32_t count = tow_dec_count(&dec, TOW_SNAPSHOT_DEVICES_MAX, DEVICE_SIZE);
    uint32_t flags = tow_dec_u32(&dec);
    if (dec.bad || format != TOW_SNAPSHOT_FORMAT) {
        return -EPROTO;
    }
    struct tow_snapshot snapshot;
    int error = tow_snapshot_init(&snapshot, count);
    if (error < 0) {
        return error;
    }
    snapshot.version = version;
    snapshot.flags = flags;
    for (uint32_t i = 0; i < count && !dec.bad; i++) {
        struct tow_snapshot_device *device = &snapshot.devices[i];
        tow_dec_copy(&dec, device->name, sizeof device->name);
        device->name[sizeof device->name - 1] = '\0';
        tow_dec_copy(&dec, device->uuid, sizeof device->uuid);
        tow_dec_copy(&dec, device->uuid_v2, sizeof device->uuid_v2);
        tow_dec_copy(&dec, device->luid, sizeof device->luid);
        device->luid_mask = tow_dec_u32(&dec);
        device->affinity = tow_dec_u32(&dec);
        device->memory = tow_dec_u64(&dec);
        uint32_t attributes = tow_dec_count(&dec, TOW_SNAPSHOT_ATTRIBUTES_MAX, ATTRIBUTE_SIZE);
        tow_dec_u32(&dec);
        for (uint32_t a = 0; a < attributes && !dec.bad; a++) {
            unsigned id = tow_dec_u32(&dec);
            tow_snapshot_set(device, id, tow_dec_i32(&dec));
        }
    }
    for (size_t i = 0; i < (size_t)count * count && !dec.bad; i++) {
        struct tow_snapshot_peer *peer = &snapshot.peers[i];
        peer->may_access = tow_dec_u32(&dec);
        peer->known = tow_dec_u32(&dec);
        tow_dec_copy(&dec, peer->attribute, sizeof peer->attribute);
    }
    error = decode_texts(&snapshot, &dec);
    if (error < 0) {
        tow_snapshot_fini(&snapshot);
        return error;
    }
    *ret_snapshot = snapshot;
    return 0;
}
