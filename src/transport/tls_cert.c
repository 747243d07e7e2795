/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, reads and judges certificates with OpenSSL. */
#include "transport/tls_cert.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "transport/tls_shake.h"

/* x509.h, ssl.h, asn1.h */
#define X509_VERSION_3 2
#define STRING_ASCII 0x1001
#define FILE_PEM 1
#define VERIFY_PEER 1
#define ERROR_REJECTED 28 /* X509_V_ERR_CERT_REJECTED */

enum { KEY_MAX = 8 << 10, PEM_MAX = 16 << 10 };

/* ---- fingerprints ---- */

static const char print_prefix[] = "sha256:";
#define PREFIX_SIZE (sizeof print_prefix - 1)

void tow_tls_print_write(const struct tow_tls_print *print, char ret_text[TOW_TLS_PRINT_TEXT + 1])
{
    memcpy(ret_text, print_prefix, PREFIX_SIZE);
    tow_sha256_hex(print->bytes, ret_text + PREFIX_SIZE);
}

int tow_tls_print_read(const char *text, struct tow_tls_print *ret_print)
{
    struct tow_tls_print print;
    if (strlen(text) != TOW_TLS_PRINT_TEXT || memcmp(text, print_prefix, PREFIX_SIZE) != 0 ||
        !tow_hex_read(text + PREFIX_SIZE, print.bytes, sizeof print.bytes)) {
        return -EINVAL;
    }
    *ret_print = print;
    return 0;
}

static int cert_print(const struct tow_tls_lib *lib, const X509 *cert,
                      struct tow_tls_print *ret_print)
{
    uint8_t key[KEY_MAX], *at = key;
    X509_PUBKEY *public = cert == NULL ? NULL : lib->X509_get_X509_PUBKEY(cert);
    int size = public == NULL ? -1 : lib->i2d_X509_PUBKEY(public, NULL);
    if (size <= 0 || (size_t)size > sizeof key || lib->i2d_X509_PUBKEY(public, &at) != size) {
        return -EINVAL;
    }
    tow_sha256_of(key, (size_t)size, ret_print->bytes);
    return 0;
}

/* ---- the server's ---- */

static X509 *cert_sign(const struct tow_tls_lib *lib, EVP_PKEY *key)
{
    static const unsigned char name[] = "towlined";
    uint64_t serial;
    X509 *cert = lib->X509_new_ex(lib->context, NULL);
    if (cert == NULL || getrandom(&serial, sizeof serial, 0) != (ssize_t)sizeof serial) {
        lib->X509_free(cert);
        return NULL;
    }
    X509_NAME *subject = lib->X509_get_subject_name(cert);
    if (lib->X509_set_version(cert, X509_VERSION_3) != 1 ||
        lib->ASN1_INTEGER_set_uint64(lib->X509_get_serialNumber(cert), serial >> 1 | 1) != 1 ||
        lib->ASN1_TIME_set_string(lib->X509_getm_notBefore(cert), "20000101000000Z") != 1 ||
        lib->ASN1_TIME_set_string(lib->X509_getm_notAfter(cert), "99991231235959Z") != 1 ||
        lib->X509_NAME_add_entry_by_txt(subject, "CN", STRING_ASCII, name, -1, -1, 0) != 1 ||
        lib->X509_set_issuer_name(cert, subject) != 1 || lib->X509_set_pubkey(cert, key) != 1 ||
        lib->X509_sign(cert, key, lib->EVP_sha256()) <= 0) {
        lib->X509_free(cert);
        return NULL;
    }
    return cert;
}

/* The whole file; how many bytes it has, or an error. */
static int cert_write(const struct tow_tls_lib *lib, uint8_t bytes[PEM_MAX])
{
    EVP_PKEY *key = lib->EVP_PKEY_Q_keygen(lib->context, NULL, "EC", "P-256");
    X509 *cert = key == NULL ? NULL : cert_sign(lib, key);
    BIO *out = lib->BIO_new(lib->BIO_s_mem());
    int size = -EIO;
    if (cert != NULL && out != NULL &&
        lib->PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1 &&
        lib->PEM_write_bio_X509(out, cert) == 1 && lib->BIO_ctrl_pending(out) < PEM_MAX) {
        size = lib->BIO_read(out, bytes, PEM_MAX);
    }
    lib->BIO_free(out);
    lib->X509_free(cert);
    lib->EVP_PKEY_free(key);
    lib->ERR_clear_error();
    return size > 0 ? size : -EIO;
}

/* Never half written, and never in place of one that another server made meanwhile. */
static int cert_place(const char *path, const uint8_t *bytes, size_t n)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return -ENAMETOOLONG;
    }
    int error = tow_file_write_atomic(temporary, bytes, n, 0600);
    if (error == 0 && link(temporary, path) != 0 && errno != EEXIST) {
        error = -errno;
    }
    unlink(temporary);
    return error;
}

int tow_tls_cert_make(const struct tow_tls_lib *lib, const char *path, char *ret_why, size_t size)
{
    uint8_t bytes[PEM_MAX];
    if (access(path, F_OK) == 0) {
        return 0;
    }
    tow_file_mkdir_for(path, true); /* the file's own error will say more */
    int n = cert_write(lib, bytes);
    if (n < 0) {
        snprintf(ret_why, size, "this system's OpenSSL cannot make a key (EC P-256)");
        return n;
    }
    int error = cert_place(path, bytes, (size_t)n);
    explicit_bzero(bytes, sizeof bytes);
    if (error < 0) {
        snprintf(ret_why, size, "the server's key cannot be written to %s: %s", path,
                 strerror(-error));
    }
    return error;
}

/* Whether the file can be read, and by nobody else if it is secret. */
static int cert_check_file(const char *path, bool secret, char *ret_why, size_t size)
{
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 || fstat(fd, &file) != 0 ? -errno : 0;
    if (fd >= 0) {
        close(fd);
    }
    if (error < 0) {
        snprintf(ret_why, size, "%s cannot be read: %s", path, strerror(-error));
    } else if (!S_ISREG(file.st_mode)) {
        snprintf(ret_why, size, "%s is not a file", path);
        error = -EINVAL;
    } else if (secret && (file.st_mode & 027) != 0) {
        snprintf(ret_why, size,
                 "others can read or change the key in %s; run chmod 600 %s, and make another key "
                 "if others use this machine",
                 path, path);
        error = -EPERM;
    }
    return error;
}

int tow_tls_cert_serve(const struct tow_tls_lib *lib, const char *certificate, const char *key,
                       char *ret_why, size_t size, SSL_CTX **ret_context,
                       struct tow_tls_print *ret_print)
{
    int error = cert_check_file(certificate, false, ret_why, size);
    if (error == 0) {
        error = cert_check_file(key, true, ret_why, size);
    }
    if (error < 0) {
        return error;
    }
    SSL_CTX *context = tow_tls_context(lib);
    if (context == NULL) {
        snprintf(ret_why, size, "this system's OpenSSL cannot serve TLS 1.3");
        return -ENOTSUP;
    }
    if (lib->SSL_CTX_use_certificate_chain_file(context, certificate) != 1) {
        snprintf(ret_why, size, "%s has no certificate in PEM that OpenSSL takes", certificate);
        error = -EINVAL;
    } else if (lib->SSL_CTX_use_PrivateKey_file(context, key, FILE_PEM) != 1 ||
               lib->SSL_CTX_check_private_key(context) != 1) {
        snprintf(ret_why, size, "%s has no key in PEM, without a password, that is the one of %s",
                 key, certificate);
        error = -EINVAL;
    } else {
        error = cert_print(lib, lib->SSL_CTX_get0_certificate(context), ret_print);
        if (error < 0) {
            snprintf(ret_why, size, "the key of %s is too long", certificate);
        }
    }
    lib->ERR_clear_error();
    if (error < 0) {
        lib->SSL_CTX_free(context);
        return error;
    }
    *ret_context = context;
    return 0;
}

/* ---- the client's ---- */

/* In OpenSSL's handshake, which itself looks whether the server has the certificate's key: 1 if it
 * is the right server. */
static int trust_judge(X509_STORE_CTX *store, void *arg)
{
    struct tow_tls_trust *trust = arg;
    const struct tow_tls_lib *lib;
    char why[64];
    bool right = false;
    if (tow_tls_lib(&lib, why, sizeof why) == 0 &&
        cert_print(lib, lib->X509_STORE_CTX_get0_cert(store), &trust->seen) == 0) {
        trust->met = true;
        if (trust->pin != NULL) {
            right = tow_hash_equal(trust->pin->bytes, trust->seen.bytes);
        } else if (trust->authorities != NULL) {
            right = lib->X509_verify_cert(store) == 1;
            int error = lib->X509_STORE_CTX_get_error(store);
            trust->doubt = right ? NULL : lib->X509_verify_cert_error_string(error);
        } else {
            right = true;
        }
        if (!right && trust->authorities == NULL) {
            lib->X509_STORE_CTX_set_error(store, ERROR_REJECTED);
        }
    }
    return right ? 1 : 0;
}

int tow_tls_cert_trust(const struct tow_tls_lib *lib, struct tow_tls_trust *trust, char *ret_why,
                       size_t size, SSL_CTX **ret_context)
{
    SSL_CTX *context = tow_tls_context(lib);
    if (context == NULL) {
        snprintf(ret_why, size, "this system's OpenSSL has no TLS 1.3");
        return -ENOTSUP;
    }
    trust->met = false;
    trust->doubt = NULL;
    if (trust->authorities != NULL) {
        int error = cert_check_file(trust->authorities, false, ret_why, size);
        if (error == 0 && lib->SSL_CTX_load_verify_file(context, trust->authorities) != 1) {
            snprintf(ret_why, size, "%s has no certificates in PEM", trust->authorities);
            error = -EINVAL;
        }
        lib->ERR_clear_error();
        if (error < 0) {
            lib->SSL_CTX_free(context);
            return error;
        }
    }
    lib->SSL_CTX_set_verify(context, VERIFY_PEER, NULL);
    lib->SSL_CTX_set_cert_verify_callback(context, trust_judge, trust);
    *ret_context = context;
    return 0;
}
