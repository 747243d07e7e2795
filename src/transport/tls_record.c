/* SPDX-License-Identifier: Apache-2.0 */
/* Seals and opens records of TLS 1.3. */
#include "transport/tls_record.h"

#include <errno.h>
#include <string.h>

/* evp.h */
#define CTRL_GET_TAG 0x10
#define CTRL_SET_TAG 0x11

#define KEY_SIZE 16

int tow_tls_expand(const struct tow_tls_lib *lib, const uint8_t secret[TOW_TLS_SECRET],
                   const char *label, uint8_t *ret, size_t size)
{
    /* struct { uint16 length; opaque label<7..255> = "tls13 " + label; opaque context<0..255>; },
     * and HKDF-Expand's counter. */
    uint8_t info[64], out[32];
    size_t label_size = strlen(label), out_size = 0, n = 0;
    if (size > sizeof out || label_size > 32) {
        return -EINVAL;
    }
    info[n++] = 0;
    info[n++] = (uint8_t)size;
    info[n++] = (uint8_t)(6 + label_size);
    memcpy(info + n, "tls13 ", 6);
    memcpy(info + n + 6, label, label_size);
    n += 6 + label_size;
    info[n++] = 0;
    info[n++] = 1;
    lib->ERR_set_mark();
    bool done = lib->EVP_Q_mac(lib->context, "HMAC", NULL, "SHA256", NULL, secret, TOW_TLS_SECRET,
                               info, n, out, sizeof out, &out_size) != NULL;
    lib->ERR_pop_to_mark();
    if (!done || out_size != sizeof out) {
        return -ENOMEM;
    }
    memcpy(ret, out, size);
    explicit_bzero(out, sizeof out);
    return 0;
}

/* Nothing is sealed or opened with it any more. */
static void key_kill(struct tow_tls_key *key)
{
    key->lib->EVP_CIPHER_CTX_free(key->cipher); /* clears its keys */
    key->cipher = NULL;
}

/* Takes key->secret into use; after a failure the key is dead, since numbers that were used with
 * the old one must not be used again. */
static int key_use(struct tow_tls_key *key)
{
    uint8_t bytes[KEY_SIZE];
    int error = tow_tls_expand(key->lib, key->secret, "key", bytes, sizeof bytes);
    if (error == 0) {
        error = tow_tls_expand(key->lib, key->secret, "iv", key->iv, sizeof key->iv);
    }
    if (error == 0 && key->lib->EVP_CipherInit_ex(key->cipher, key->lib->cipher, NULL, bytes, NULL,
                                                  key->seals ? 1 : 0) != 1) {
        error = -ENOMEM;
    }
    explicit_bzero(bytes, sizeof bytes);
    if (error < 0) {
        key_kill(key);
        return error;
    }
    key->records = 0;
    key->bytes = 0;
    return 0;
}

int tow_tls_key_init(struct tow_tls_key *key, const struct tow_tls_lib *lib, bool seals,
                     const uint8_t secret[TOW_TLS_SECRET])
{
    *key = (struct tow_tls_key){.lib = lib, .seals = seals};
    key->cipher = lib->EVP_CIPHER_CTX_new();
    if (key->cipher == NULL) {
        return -ENOMEM;
    }
    memcpy(key->secret, secret, TOW_TLS_SECRET);
    return key_use(key);
}

int tow_tls_key_update(struct tow_tls_key *key)
{
    uint8_t next[TOW_TLS_SECRET];
    int error = tow_tls_expand(key->lib, key->secret, "traffic upd", next, sizeof next);
    if (error == 0) {
        memcpy(key->secret, next, sizeof next);
        error = key_use(key);
    } else {
        key_kill(key); /* the peer was told that it is the last of this key */
    }
    explicit_bzero(next, sizeof next);
    return error;
}

void tow_tls_key_fini(struct tow_tls_key *key)
{
    if (key->cipher != NULL) {
        key_kill(key);
    }
    explicit_bzero(key, sizeof *key);
}

/* Begins the next record: its nonce, and its head as what is authenticated beside it. */
static int key_next(struct tow_tls_key *key, const uint8_t *head)
{
    uint8_t nonce[TOW_TLS_IV];
    int ignored;
    if (key->cipher == NULL) {
        return -ENOKEY;
    }
    memcpy(nonce, key->iv, sizeof nonce);
    for (unsigned i = 0; i < 8; i++) {
        nonce[sizeof nonce - 1 - i] ^= (uint8_t)(key->records >> (8 * i));
    }
    key->records++;
    if (key->lib->EVP_CipherInit_ex(key->cipher, NULL, NULL, NULL, nonce, -1) != 1 ||
        key->lib->EVP_CipherUpdate(key->cipher, NULL, &ignored, head, TOW_TLS_HEAD) != 1) {
        return -ENOMEM;
    }
    return 0;
}

static int key_seal(struct tow_tls_key *key, enum tow_tls_type type, const struct iovec *iov,
                    size_t size, uint8_t *ret)
{
    const struct tow_tls_lib *lib = key->lib;
    size_t body = size + 1 + TOW_TLS_TAG;
    /* Outside it always says that it is application data of TLS 1.2. */
    ret[0] = TOW_TLS_DATA;
    ret[1] = 3;
    ret[2] = 3;
    ret[3] = (uint8_t)(body >> 8);
    ret[4] = (uint8_t)body;
    int error = key_next(key, ret);
    if (error < 0) {
        return error;
    }
    uint8_t *to = ret + TOW_TLS_HEAD;
    int written;
    for (size_t left = size; left > 0; iov++) {
        size_t n = iov->iov_len < left ? iov->iov_len : left;
        if (n > 0 && lib->EVP_CipherUpdate(key->cipher, to, &written, iov->iov_base, (int)n) != 1) {
            return -ENOMEM;
        }
        to += n;
        left -= n;
    }
    uint8_t type_byte = (uint8_t)type;
    if (lib->EVP_CipherUpdate(key->cipher, to, &written, &type_byte, 1) != 1 ||
        lib->EVP_CipherFinal_ex(key->cipher, to + 1, &written) != 1 ||
        lib->EVP_CIPHER_CTX_ctrl(key->cipher, CTRL_GET_TAG, TOW_TLS_TAG, to + 1) != 1) {
        return -ENOMEM;
    }
    key->bytes += size;
    return 0;
}

/* What OpenSSL writes to this thread's errors is ours; what was there before is the program's. */
int tow_tls_seal(struct tow_tls_key *key, enum tow_tls_type type, const struct iovec *iov,
                 size_t size, uint8_t *ret)
{
    key->lib->ERR_set_mark();
    int error = key_seal(key, type, iov, size, ret);
    key->lib->ERR_pop_to_mark();
    return error;
}

int tow_tls_record_size(const uint8_t *at)
{
    unsigned body = (unsigned)at[3] << 8 | at[4];
    if (at[0] != TOW_TLS_DATA || at[1] != 3 || at[2] != 3 || body < TOW_TLS_BODY_MIN ||
        body > TOW_TLS_BODY_MAX) {
        return -EPROTO;
    }
    return (int)(TOW_TLS_HEAD + body);
}

static int key_open(struct tow_tls_key *key, const uint8_t *at, uint8_t *ret, size_t *ret_size,
                    uint8_t *ret_type)
{
    const struct tow_tls_lib *lib = key->lib;
    size_t body = (size_t)at[3] << 8 | at[4];
    size_t n = body - TOW_TLS_TAG - 1; /* of content, if there is no padding */
    const uint8_t *from = at + TOW_TLS_HEAD;
    uint8_t type, none[16], tag[TOW_TLS_TAG];
    int written;
    int error = key_next(key, at);
    if (error < 0) {
        return error;
    }
    memcpy(tag, from + n + 1, sizeof tag);
    if ((n > 0 && lib->EVP_CipherUpdate(key->cipher, ret, &written, from, (int)n) != 1) ||
        lib->EVP_CipherUpdate(key->cipher, &type, &written, from + n, 1) != 1 ||
        lib->EVP_CIPHER_CTX_ctrl(key->cipher, CTRL_SET_TAG, TOW_TLS_TAG, tag) != 1) {
        return -ENOMEM;
    }
    if (lib->EVP_CipherFinal_ex(key->cipher, none, &written) != 1) {
        return -EBADMSG;
    }
    while (type == 0 && n > 0) { /* padding: the type is the last byte that is not zero */
        type = ret[--n];
    }
    if (type == 0 || n > TOW_TLS_PLAIN_MAX) {
        return -EPROTO;
    }
    key->bytes += n;
    *ret_size = n;
    *ret_type = type;
    return 0;
}

int tow_tls_open(struct tow_tls_key *key, const uint8_t *at, uint8_t *ret, size_t *ret_size,
                 uint8_t *ret_type)
{
    key->lib->ERR_set_mark();
    int error = key_open(key, at, ret, ret_size, ret_type);
    key->lib->ERR_pop_to_mark();
    if (error < 0) {
        memset(ret, 0, ((size_t)at[3] << 8 | at[4]) - TOW_TLS_TAG - 1);
    }
    return error;
}
