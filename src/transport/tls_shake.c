/* SPDX-License-Identifier: Apache-2.0 */
/* OpenSSL reads from and writes to memory; the socket is ours, since its own writes would end a
 * program by SIGPIPE. When the handshake is done we keep the two traffic secrets, which it tells as
 * it would tell them to a key log, and it is freed. */
#include "transport/tls_shake.h"

#include "base/clock.h"
#include "base/number.h"
#include "transport/sock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* ssl.h */
#define CTRL_CACHE_MODE 44
#define CTRL_GROUPS 92
#define CTRL_MIN_VERSION 123
#define CTRL_MAX_VERSION 124
#define TLS_1_3 0x0304
#define ERROR_WANT_READ 2
#define SECURITY_LEVEL 2 /* 112 bits: RSA keys of 2,048 */
#define VERIFY_PEER 1
#define NO_TICKET UINT64_C(0x00004000)
#define NO_RENEGOTIATION UINT64_C(0x40000000)

#define CIPHER "TLS_AES_128_GCM_SHA256"
static const unsigned char cipher_number[2] = {0x13, 0x01};

/* What the callbacks of one handshake need. */
struct shake {
    const struct tow_tls_lib *lib;
    const struct tow_grant *grant;
    struct tow_tls_shaken *ret;
    unsigned secrets; /* bits: the client's, the server's */
};

static struct {
    pthread_once_t once;
    SSL_CTX *context; /* for ever; NULL: there was no memory */
} client_side = {PTHREAD_ONCE_INIT, NULL}, server_side = {PTHREAD_ONCE_INIT, NULL};

/* ---- what OpenSSL asks and tells ---- */

static struct shake *shake_of(const SSL *ssl)
{
    const struct tow_tls_lib *lib;
    char why[64];
    return tow_tls_lib(&lib, why, sizeof why) < 0 ? NULL : lib->SSL_get_ex_data(ssl, 0);
}

/* "LABEL random secret", in hexadecimal digits. */
static void take_secret(const SSL *ssl, const char *line)
{
    struct shake *shake = shake_of(ssl);
    bool client = strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0;
    bool server = strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) == 0;
    const char *text = strrchr(line, ' ');
    if (shake == NULL || (!client && !server) || strlen(text + 1) != 2 * TOW_TLS_SECRET) {
        return;
    }
    uint8_t *to = client ? shake->ret->client : shake->ret->server;
    for (unsigned i = 0; i < TOW_TLS_SECRET; i++) {
        int high = tow_hex_digit(text[1 + 2 * i]), low = tow_hex_digit(text[2 + 2 * i]);
        if (high < 0 || low < 0) {
            return;
        }
        to[i] = (uint8_t)(high << 4 | low);
    }
    shake->secrets |= client ? 1 : 2;
}

/* The grant's secret, as a session to go on with. */
static int make_session(struct shake *shake, SSL *ssl, SSL_SESSION **ret_session)
{
    const struct tow_tls_lib *lib = shake->lib;
    SSL_SESSION *session = lib->SSL_SESSION_new();
    const SSL_CIPHER *cipher = lib->SSL_CIPHER_find(ssl, cipher_number);
    if (session == NULL || cipher == NULL ||
        lib->SSL_SESSION_set1_master_key(session, shake->grant->secret, TOW_GRANT_SECRET) != 1 ||
        lib->SSL_SESSION_set_cipher(session, cipher) != 1 ||
        lib->SSL_SESSION_set_protocol_version(session, TLS_1_3) != 1) {
        lib->SSL_SESSION_free(session);
        return 0;
    }
    *ret_session = session;
    return 1;
}

static int use_grant(SSL *ssl, const void *digest, const unsigned char **ret_id,
                     size_t *ret_id_size, SSL_SESSION **ret_session)
{
    struct shake *shake = shake_of(ssl);
    if (shake == NULL) {
        return 0;
    }
    *ret_id = shake->grant->id;
    *ret_id_size = TOW_GRANT_ID;
    return make_session(shake, ssl, ret_session);
}

static int find_grant(SSL *ssl, const unsigned char *id, size_t id_size, SSL_SESSION **ret_session)
{
    struct shake *shake = shake_of(ssl);
    *ret_session = NULL; /* not known: and there is no other way in */
    if (shake == NULL || id_size != TOW_GRANT_ID ||
        memcmp(id, shake->grant->id, TOW_GRANT_ID) != 0) {
        return 1;
    }
    return make_session(shake, ssl, ret_session);
}

/* ---- settings ---- */

/* X25519, and P-256 where the other end has no other; that alone where OpenSSL has no other.
 * Without it each version offers what it thinks best, and the size of a handshake with it. */
static bool set_groups(const struct tow_tls_lib *lib, SSL_CTX *context)
{
    static char both[] = "X25519:P-256", one[] = "P-256";
    return lib->SSL_CTX_ctrl(context, CTRL_GROUPS, 0, both) == 1 ||
           lib->SSL_CTX_ctrl(context, CTRL_GROUPS, 0, one) == 1;
}

SSL_CTX *tow_tls_context(const struct tow_tls_lib *lib)
{
    SSL_CTX *context = lib->SSL_CTX_new_ex(lib->context, NULL, lib->TLS_method());
    if (context == NULL) {
        return NULL;
    }
    /* The system's configuration may have set each of them. */
    lib->SSL_CTX_set_security_level(context, SECURITY_LEVEL);
    if (lib->SSL_CTX_ctrl(context, CTRL_MAX_VERSION, TLS_1_3, NULL) != 1 ||
        lib->SSL_CTX_ctrl(context, CTRL_MIN_VERSION, TLS_1_3, NULL) != 1 ||
        lib->SSL_CTX_set_ciphersuites(context, CIPHER) != 1 || !set_groups(lib, context) ||
        lib->SSL_CTX_set_num_tickets(context, 0) != 1) {
        lib->SSL_CTX_free(context);
        return NULL;
    }
    lib->SSL_CTX_ctrl(context, CTRL_CACHE_MODE, 0, NULL);
    lib->SSL_CTX_set_options(context, NO_TICKET | NO_RENEGOTIATION);
    lib->SSL_CTX_set_keylog_callback(context, take_secret);
    return context;
}

static SSL_CTX *make_context(bool server)
{
    const struct tow_tls_lib *lib;
    char why[64];
    SSL_CTX *context = tow_tls_lib(&lib, why, sizeof why) < 0 ? NULL : tow_tls_context(lib);
    if (context != NULL && server) {
        lib->SSL_CTX_set_psk_find_session_callback(context, find_grant);
    } else if (context != NULL) {
        lib->SSL_CTX_set_psk_use_session_callback(context, use_grant);
        /* No certificate will do: a server that has one instead of the secret is another one. */
        lib->SSL_CTX_set_verify(context, VERIFY_PEER, NULL);
    }
    return context;
}

static void make_client(void)
{
    client_side.context = make_context(false);
}

static void make_server(void)
{
    server_side.context = make_context(true);
}

static SSL_CTX *context_of(bool server)
{
    pthread_once(server ? &server_side.once : &client_side.once,
                 server ? make_server : make_client);
    return server ? server_side.context : client_side.context;
}

/* ---- the handshake ---- */

static int send_written(const struct tow_tls_lib *lib, int fd, BIO *out, int64_t deadline_ns)
{
    uint8_t bytes[2048];
    int n;
    while (lib->BIO_ctrl_pending(out) > 0 && (n = lib->BIO_read(out, bytes, sizeof bytes)) > 0) {
        int error = tow_sock_send_all(fd, bytes, (size_t)n, deadline_ns);
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

static int receive_some(const struct tow_tls_lib *lib, int fd, BIO *in, int64_t deadline_ns,
                        uint8_t *ret_first)
{
    uint8_t bytes[2048];
    for (;;) {
        ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) {
            *ret_first = bytes[0];
            return lib->BIO_write(in, bytes, (int)got) == (int)got ? 0 : -ENOMEM;
        }
        if (got == 0) {
            return -ECONNRESET;
        }
        if (errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        int error = errno == EINTR ? 0 : tow_sock_poll(fd, POLLIN, deadline_ns);
        if (error < 0) {
            return error;
        }
    }
}

static int shake_hands(const struct tow_tls_lib *lib, int fd, SSL *ssl, BIO *in, BIO *out,
                       bool server, int64_t deadline_ns, const char **ret_reason)
{
    size_t received = 0;
    uint8_t first = TOW_TLS_HANDSHAKE;
    for (;;) {
        lib->ERR_clear_error(); /* as the call itself does: a mark would not outlive it */
        int result = lib->SSL_do_handshake(ssl);
        bool wants = result != 1 && lib->SSL_get_error(ssl, result) == ERROR_WANT_READ;
        if (result != 1 && !wants) {
            *ret_reason = lib->ERR_reason_error_string(lib->ERR_get_error());
        }
        /* An alert too, if it went wrong. */
        int error = send_written(lib, fd, out, deadline_ns);
        if (result == 1 || !wants) {
            return result == 1 ? error : -EACCES;
        }
        size_t before = lib->BIO_ctrl_pending(in);
        if (error == 0) {
            error = received > TOW_TLS_EARLY_MAX - 2048
                        ? -EMSGSIZE
                        : receive_some(lib, fd, in, deadline_ns, &first);
        }
        if (error == 0 && received == 0 && !server && first != TOW_TLS_HANDSHAKE &&
            first != TOW_TLS_ALERT) {
            error = -EPROTONOSUPPORT;
        }
        if (error < 0) {
            return error;
        }
        received += lib->BIO_ctrl_pending(in) - before;
    }
}

/* What the socket has not, and the grant not either. */
static int shake_setup(const struct tow_tls_lib *lib, const struct tow_tls_shake_by *by,
                       struct shake *shake, SSL **ret_ssl, BIO **ret_in, BIO **ret_out)
{
    SSL_CTX *context = by->context != NULL ? by->context : context_of(by->server);
    SSL *ssl = context == NULL ? NULL : lib->SSL_new(context);
    BIO *in = lib->BIO_new(lib->BIO_s_mem()), *out = lib->BIO_new(lib->BIO_s_mem());
    X509_VERIFY_PARAM *checks = ssl != NULL && by->host != NULL ? lib->SSL_get0_param(ssl) : NULL;
    if (ssl == NULL || in == NULL || out == NULL || lib->SSL_set_ex_data(ssl, 0, shake) != 1 ||
        (checks != NULL && lib->X509_VERIFY_PARAM_set1_ip_asc(checks, by->host) != 1 &&
         lib->X509_VERIFY_PARAM_set1_host(checks, by->host, 0) != 1)) {
        lib->BIO_free(in);
        lib->BIO_free(out);
        lib->SSL_free(ssl);
        return -ENOMEM;
    }
    lib->SSL_set_bio(ssl, in, out); /* which owns both now */
    if (by->server) {
        lib->SSL_set_accept_state(ssl);
    } else {
        lib->SSL_set_connect_state(ssl);
    }
    *ret_ssl = ssl;
    *ret_in = in;
    *ret_out = out;
    return 0;
}

int tow_tls_shake(const struct tow_tls_lib *lib, int fd, const struct tow_tls_shake_by *by,
                  int64_t deadline_ns, const char **ret_reason, struct tow_tls_shaken *ret)
{
    struct shake shake = {.lib = lib, .grant = by->grant, .ret = ret};
    SSL *ssl = NULL;
    BIO *in = NULL, *out = NULL;
    int error = shake_setup(lib, by, &shake, &ssl, &in, &out);
    if (error < 0) {
        return error;
    }
    error = shake_hands(lib, fd, ssl, in, out, by->server, deadline_ns, ret_reason);
    if (error == 0 &&
        ((by->grant != NULL && lib->SSL_session_reused(ssl) != 1) || shake.secrets != 3 ||
         lib->SSL_export_keying_material(ssl, ret->binding, sizeof ret->binding,
                                         TOW_TLS_BINDING_LABEL, strlen(TOW_TLS_BINDING_LABEL), NULL,
                                         0, 0) != 1)) {
        error = -EACCES;
    }
    if (error == 0) {
        /* It takes whole records and no more: the rest is the line's. */
        size_t early = lib->BIO_ctrl_pending(in);
        int got = early == 0 ? 0 : lib->BIO_read(in, ret->early, (int)sizeof ret->early);
        error = early > sizeof ret->early || got != (int)early ? -EMSGSIZE : 0;
        ret->early_size = early;
    }
    if (error == 0 && by->ret_cert != NULL) {
        tow_tls_client_cert_read(lib, ssl, by->ret_cert);
    }
    lib->ERR_clear_error();
    lib->SSL_free(ssl);
    return error;
}
