/* SPDX-License-Identifier: Apache-2.0 */
/* Judges certificates of clients, and shows the user's own, with OpenSSL. */
#include "transport/tls_client_cert.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "transport/secret_page.h"

/* ssl.h, x509_vfy.h, objects.h, asn1.h */
#define VERIFY_PEER 1
#define CTRL_CHAIN_CERT 89
#define VERIFY_OK 0
#define VERIFY_NOT_YET_VALID 9
#define VERIFY_EXPIRED 10
#define VERIFY_INVALID_PURPOSE 26
#define VERIFY_REJECTED 28
#define COMMON_NAME 13
#define STRING_UTF8 12
#define STRING_PRINTABLE 19
#define STRING_IA5 22

enum {
    PEM_MAX = 64 << 10,
    CHAIN_MAX = 8,         /* certificates of a client */
    KEY_BITS_MAX = 4096,   /* of a key that nobody vouches for */
    EXPONENT_BITS_MAX = 32 /* 65,537 has 17 */
};

/* ---- the server's part ---- */

/* Whether a signature by this key takes much longer to check than to make up. */
static bool client_cert_is_costly(const struct tow_tls_lib *lib, X509 *cert)
{
    EVP_PKEY *key = cert == NULL ? NULL : lib->X509_get0_pubkey(cert);
    BIGNUM *exponent = NULL;
    bool costly = key == NULL || lib->EVP_PKEY_get_bits(key) > KEY_BITS_MAX ||
                  (lib->EVP_PKEY_get_bn_param(key, "e", &exponent) == 1 &&
                   lib->BN_num_bits(exponent) > EXPONENT_BITS_MAX);
    lib->BN_free(exponent);
    return costly;
}

/* Keeps what was found, and lets the handshake go on: see the header. OpenSSL itself looks whether
 * the client has the certificate's key; what a stranger shows must not make that dear. */
static int client_cert_judge(X509_STORE_CTX *store, void *arg)
{
    const struct tow_tls_lib *lib = arg;
    if (lib->X509_verify_cert(store) == 1) {
        return 1;
    }
    if (lib->X509_STORE_CTX_get_error(store) == VERIFY_OK) {
        lib->X509_STORE_CTX_set_error(store, VERIFY_REJECTED);
    }
    return client_cert_is_costly(lib, lib->X509_STORE_CTX_get0_cert(store)) ? 0 : 1;
}

int tow_tls_client_cert_ask(const struct tow_tls_lib *lib, SSL_CTX *context,
                            const char *authorities, char *ret_why, size_t size)
{
    int loaded = lib->SSL_CTX_load_verify_file(context, authorities);
    lib->ERR_clear_error();
    if (loaded != 1) {
        snprintf(ret_why, size,
                 "%s, which is to have authorities for clients, has no certificates in PEM",
                 authorities);
        return -EINVAL;
    }
    lib->SSL_CTX_set_verify(context, VERIFY_PEER, NULL);
    lib->SSL_CTX_set_cert_verify_callback(context, client_cert_judge, (void *)lib);
    return 0;
}

/* The one common name, if it is text. Two could be read as either. */
static void client_cert_name(const struct tow_tls_lib *lib, const X509 *cert,
                             char ret_name[TOW_TLS_CERT_NAME_MAX + 1])
{
    const X509_NAME *subject = lib->X509_get_subject_name(cert);
    int at = subject == NULL ? -1 : lib->X509_NAME_get_index_by_NID(subject, COMMON_NAME, -1);
    if (at < 0 || lib->X509_NAME_get_index_by_NID(subject, COMMON_NAME, at) >= 0) {
        return;
    }
    const ASN1_STRING *text = lib->X509_NAME_ENTRY_get_data(lib->X509_NAME_get_entry(subject, at));
    int type = text == NULL ? -1 : lib->ASN1_STRING_type(text);
    int length = text == NULL ? 0 : lib->ASN1_STRING_length(text);
    if ((type == STRING_UTF8 || type == STRING_PRINTABLE || type == STRING_IA5) && length > 0 &&
        length <= TOW_TLS_CERT_NAME_MAX &&
        memchr(lib->ASN1_STRING_get0_data(text), '\0', (size_t)length) == NULL) {
        memcpy(ret_name, lib->ASN1_STRING_get0_data(text), (size_t)length);
    }
}

void tow_tls_client_cert_read(const struct tow_tls_lib *lib, const SSL *ssl,
                              struct tow_tls_client_cert *ret_cert)
{
    *ret_cert = (struct tow_tls_client_cert){.state = TOW_TLS_CERT_NONE};
    X509 *cert = lib->SSL_get1_peer_certificate(ssl);
    if (cert == NULL) {
        return;
    }
    long result = lib->SSL_get_verify_result(ssl);
    ret_cert->state = result == VERIFY_OK                ? TOW_TLS_CERT_GOOD
                      : result == VERIFY_NOT_YET_VALID   ? TOW_TLS_CERT_NOT_YET
                      : result == VERIFY_EXPIRED         ? TOW_TLS_CERT_EXPIRED
                      : result == VERIFY_INVALID_PURPOSE ? TOW_TLS_CERT_NOT_FOR_CLIENTS
                                                         : TOW_TLS_CERT_FOREIGN;
    if (result != VERIFY_OK) {
        snprintf(ret_cert->doubt, sizeof ret_cert->doubt, "%s",
                 lib->X509_verify_cert_error_string(result));
    }
    client_cert_name(lib, cert, ret_cert->name);
    lib->X509_free(cert);
}

/* ---- the client's part ---- */

/* A password is asked for by nobody: the program has the terminal. */
static int own_no_password(char *ret, int size, int writing, void *user)
{
    return -1;
}

/* All of a file. -ENOENT without a sentence: it is not there. */
static int own_read(const char *path, bool secret, char text[PEM_MAX], int *ret_size, char *why,
                    size_t why_size)
{
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 || fstat(fd, &file) != 0 ? -errno : 0;
    ssize_t n = 0;
    if (error == -ENOENT) {
        return error;
    }
    if (error < 0) {
        snprintf(why, why_size, "your certificate in %s cannot be read: %s", path,
                 strerror(-error));
    } else if (!S_ISREG(file.st_mode) || file.st_size > PEM_MAX) {
        snprintf(why, why_size,
                 "%s, which is to have your certificate, is not a file of at most %d bytes", path,
                 PEM_MAX);
        error = -EINVAL;
    } else if (secret && (file.st_mode & 077) != 0) {
        snprintf(why, why_size,
                 "others can read the key of your certificate in %s; run chmod 600 %s, and have "
                 "another certificate made if others use this machine",
                 path, path);
        error = -EPERM;
    } else if ((n = read(fd, text, PEM_MAX)) < 0) {
        error = -errno;
        snprintf(why, why_size, "your certificate in %s cannot be read: %s", path,
                 strerror(-error));
    }
    if (fd >= 0) {
        close(fd);
    }
    *ret_size = (int)n;
    return error;
}

/* The first certificate is the user's; the others vouch for it. -E2BIG: there are too many. */
static int own_use_certificate(const struct tow_tls_lib *lib, SSL *ssl, BIO *in)
{
    for (int count = 0;; count++) {
        X509 *cert = lib->X509_new_ex(lib->context, NULL);
        if (cert == NULL || lib->PEM_read_bio_X509(in, &cert, own_no_password, NULL) == NULL) {
            lib->X509_free(cert);
            return count > 0 ? 0 : -EINVAL;
        }
        int used = count == 0          ? lib->SSL_use_certificate(ssl, cert)
                   : count < CHAIN_MAX ? (int)lib->SSL_ctrl(ssl, CTRL_CHAIN_CERT, 1, cert)
                                       : 0;
        lib->X509_free(cert); /* who uses it has a reference of its own */
        if (used != 1) {
            return count < CHAIN_MAX ? -EINVAL : -E2BIG;
        }
    }
}

static int own_use_key(const struct tow_tls_lib *lib, SSL *ssl, BIO *in)
{
    EVP_PKEY *key =
        lib->PEM_read_bio_PrivateKey_ex(in, NULL, own_no_password, NULL, lib->context, NULL);
    bool used = key != NULL && lib->SSL_use_PrivateKey(ssl, key) == 1 &&
                lib->SSL_check_private_key(ssl) == 1;
    lib->EVP_PKEY_free(key);
    return used ? 0 : -EINVAL;
}

/* One file's part of it; `page` is for its text. */
static int own_use(const struct tow_tls_lib *lib, SSL *ssl, const char *path, bool key, bool secret,
                   char page[PEM_MAX], char *why, size_t why_size)
{
    int size = 0;
    int error = own_read(path, secret, page, &size, why, why_size);
    if (error < 0) {
        return error;
    }
    BIO *in = lib->BIO_new_mem_buf(page, size);
    error = in == NULL ? -ENOMEM
            : key      ? own_use_key(lib, ssl, in)
                       : own_use_certificate(lib, ssl, in);
    lib->BIO_free(in);
    explicit_bzero(page, PEM_MAX);
    if (error == -E2BIG) {
        snprintf(why, why_size,
                 "%s has more than %d certificates; leave those out that the server "
                 "has itself",
                 path, CHAIN_MAX);
    } else if (error < 0) {
        snprintf(why, why_size,
                 key ? "%s has no key in PEM, without a password, that is the one of your "
                       "certificate"
                     : "%s has no certificate in PEM that OpenSSL takes",
                 path);
    }
    return error;
}

static int own_load(const struct tow_tls_lib *lib, SSL *ssl, char page[PEM_MAX], char *why,
                    size_t why_size)
{
    char usual[PATH_MAX];
    const char *certificate = getenv("TOWLINE_TLS_CERT"), *key = getenv("TOWLINE_TLS_KEY");
    bool named = certificate != NULL && certificate[0] != '\0';
    if (named && strcmp(certificate, "none") == 0) {
        return 0;
    }
    bool apart = key != NULL && key[0] != '\0';
    if (!named && tow_file_user_config("client.pem", usual, sizeof usual) < 0) {
        return 0;
    }
    certificate = named ? certificate : usual;
    int error = own_use(lib, ssl, certificate, false, !apart, page, why, why_size);
    if (error == -ENOENT && !named) {
        return 0; /* who has none shows none */
    }
    const char *missing = certificate;
    if (error == 0) {
        missing = apart ? key : certificate;
        error = own_use(lib, ssl, missing, true, true, page, why, why_size);
    }
    if (error == -ENOENT) {
        snprintf(why, why_size, "your certificate in %s cannot be read: %s", missing,
                 strerror(ENOENT));
    }
    return error;
}

/* In the handshake, when the server has asked. */
static int own_show(SSL *ssl, void *arg)
{
    struct tow_tls_own *own = arg;
    const struct tow_tls_lib *lib;
    if (tow_tls_lib(&lib, own->why, sizeof own->why) < 0) {
        return 0;
    }
    char *page = tow_secret_page_make(PEM_MAX);
    if (page == NULL) {
        snprintf(own->why, sizeof own->why, "memory is used up");
        return 0;
    }
    int error = own_load(lib, ssl, page, own->why, sizeof own->why);
    tow_secret_page_forget(page, PEM_MAX);
    lib->ERR_clear_error(); /* the end of a file is one, and the handshake would take it for its own
                             */
    return error < 0 ? 0 : 1;
}

void tow_tls_own_show(const struct tow_tls_lib *lib, SSL_CTX *context, struct tow_tls_own *own)
{
    own->why[0] = '\0';
    lib->SSL_CTX_set_cert_cb(context, own_show, own);
}
