/* SPDX-License-Identifier: Apache-2.0 */
/* Servers' keys: made, read, pinned, forged; and what a ClientHello says without any key. */
#include "lines.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"
#include "transport/known_servers.h"
#include "transport/tls_cert.h"
#include "transport/tls_hello.h"
#include "transport/tls_shake.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *in_folder(char path[PATH_MAX], const char *name)
{
    snprintf(path, PATH_MAX, "%s/%s", lines_folder(), name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(tow_file_write_atomic(path, text, strlen(text), 0600), 0);
}

static SSL_CTX *serve(const char *path, struct tow_tls_print *ret_print)
{
    char why[TOW_WHY_MAX] = "";
    SSL_CTX *context = NULL;
    if (tow_tls_cert_make(lines_tls_lib(), path, why, sizeof why) < 0 ||
        tow_tls_cert_serve(lines_tls_lib(), path, path, why, sizeof why, &context, ret_print) < 0) {
        fail_msg("%s", why);
    }
    return context;
}

/* ---- handshakes ---- */

struct end {
    int fd;
    struct tow_tls_shake_by by;
    pthread_t thread;
    int error;
    struct tow_tls_shaken shaken;
};

static void *end_run(void *arg)
{
    struct end *end = arg;
    const char *reason = NULL;
    end->error = tow_tls_shake(lines_tls_lib(), end->fd, &end->by,
                               tow_time_deadline(20 * TOW_TIME_S), &reason, &end->shaken);
    shutdown(end->fd, SHUT_WR);
    return NULL;
}

/* What the client's end says; -1000 if the two ends do not have the same binding. */
static int shake(SSL_CTX *server_context, struct tow_tls_trust *trust, const char *host)
{
    static struct end server, client;
    char why[TOW_WHY_MAX] = "";
    int fds[2];
    SSL_CTX *context = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    int error = tow_tls_cert_trust(lines_tls_lib(), trust, why, sizeof why, &context);
    if (error < 0) {
        fail_msg("%s", why);
    }
    server = (struct end){.fd = fds[0], .by = {.context = server_context, .server = true}};
    client = (struct end){.fd = fds[1], .by = {.context = context, .host = host}};
    assert_int_equal(tow_thread_start("end", end_run, &server, &server.thread), 0);
    end_run(&client);
    pthread_join(server.thread, NULL);
    close(fds[0]);
    close(fds[1]);
    lines_tls_lib()->SSL_CTX_free(context);
    if (client.error == 0) {
        assert_int_equal(server.error, 0);
        if (memcmp(client.shaken.binding, server.shaken.binding, TOW_TLS_BINDING) != 0) {
            return -1000;
        }
    }
    return client.error;
}

static void a_made_key_stays_and_is_the_owners(void **state)
{
    char path[PATH_MAX], folder[PATH_MAX];
    struct tow_tls_print first, second;
    struct stat file;
    in_folder(folder, "made");
    in_folder(path, "made/tls.pem"); /* with its folder */
    lines_tls_lib()->SSL_CTX_free(serve(path, &first));
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_int_equal(stat(folder, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0700);
    lines_tls_lib()->SSL_CTX_free(serve(path, &second));
    assert_memory_equal(&first, &second, sizeof first);
}

static void another_key_is_another_server(void **state)
{
    char path[PATH_MAX];
    struct tow_tls_print right, wrong;
    SSL_CTX *server = serve(in_folder(path, "right.pem"), &right);
    SSL_CTX *other = serve(in_folder(path, "wrong.pem"), &wrong);
    assert_true(memcmp(&right, &wrong, sizeof right) != 0);
    struct tow_tls_trust trust = {.pin = &right};
    assert_int_equal(shake(server, &trust, NULL), 0);
    assert_int_equal(shake(other, &trust, NULL), -EACCES);
    assert_true(trust.met); /* so that one can say which it has */
    assert_memory_equal(&trust.seen, &wrong, sizeof wrong);
    struct tow_tls_trust anyone = {.pin = NULL}; /* who asks which key it is */
    assert_int_equal(shake(server, &anyone, NULL), 0);
    assert_memory_equal(&anyone.seen, &right, sizeof right);
    lines_tls_lib()->SSL_CTX_free(server);
    lines_tls_lib()->SSL_CTX_free(other);
}

/* The certificate is public: who shows it must have its key. */
static void a_certificate_without_its_key_is_refused(void **state)
{
    char right[PATH_MAX], wrong[PATH_MAX], why[TOW_WHY_MAX] = "";
    struct tow_tls_print print;
    SSL_CTX *context;
    lines_tls_lib()->SSL_CTX_free(serve(in_folder(right, "one.pem"), &print));
    lines_tls_lib()->SSL_CTX_free(serve(in_folder(wrong, "two.pem"), &print));
    assert_int_equal(
        tow_tls_cert_serve(lines_tls_lib(), right, wrong, why, sizeof why, &context, &print),
        -EINVAL);
    assert_non_null(strstr(why, "has no key"));
}

static void authorities_and_names_are_looked_at(void **state)
{
    char path[PATH_MAX], other[PATH_MAX];
    struct tow_tls_print print;
    SSL_CTX *server = serve(in_folder(path, "own.pem"), &print);
    lines_tls_lib()->SSL_CTX_free(serve(in_folder(other, "foreign.pem"), &print));
    /* One that signed itself is its own authority; its name is "towlined". */
    struct tow_tls_trust trust = {.authorities = path};
    assert_int_equal(shake(server, &trust, "towlined"), 0);
    assert_null(trust.doubt);
    assert_int_equal(shake(server, &trust, "gpuhost"), -EACCES);
    assert_non_null(trust.doubt);
    assert_int_equal(shake(server, &trust, "127.0.0.1"), -EACCES);
    struct tow_tls_trust foreign = {.authorities = other};
    assert_int_equal(shake(server, &foreign, "towlined"), -EACCES);
    assert_non_null(foreign.doubt);
    lines_tls_lib()->SSL_CTX_free(server);
}

static void files_that_are_none_are_sentences(void **state)
{
    char path[PATH_MAX], missing[PATH_MAX], why[TOW_WHY_MAX] = "";
    struct tow_tls_print print;
    SSL_CTX *context;
    struct tow_tls_trust trust = {.authorities = path};
    lines_tls_lib()->SSL_CTX_free(serve(in_folder(path, "readable.pem"), &print));
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(
        tow_tls_cert_serve(lines_tls_lib(), path, path, why, sizeof why, &context, &print), -EPERM);
    assert_non_null(strstr(why, "chmod 600"));
    in_folder(missing, "missing.pem");
    assert_int_equal(
        tow_tls_cert_serve(lines_tls_lib(), missing, missing, why, sizeof why, &context, &print),
        -ENOENT);
    assert_non_null(strstr(why, "cannot be read"));
    in_folder(path, "text.pem");
    write_text(path, "nothing that could be read\n");
    assert_int_equal(
        tow_tls_cert_serve(lines_tls_lib(), path, path, why, sizeof why, &context, &print),
        -EINVAL);
    assert_non_null(strstr(why, "no certificate"));
    assert_int_equal(tow_tls_cert_trust(lines_tls_lib(), &trust, why, sizeof why, &context),
                     -EINVAL);
    assert_non_null(strstr(why, "no certificates"));
    in_folder(path, "text.pem/below");
    assert_true(tow_tls_cert_make(lines_tls_lib(), path, why, sizeof why) < 0);
    assert_non_null(strstr(why, "cannot be written"));
}

/* ---- fingerprints and known servers ---- */

static void fingerprints_are_read_as_they_are_written(void **state)
{
    struct tow_tls_print print, again;
    char text[TOW_TLS_PRINT_TEXT + 2];
    for (size_t i = 0; i < sizeof print.bytes; i++) {
        print.bytes[i] = (uint8_t)(37 * i + 11);
    }
    tow_tls_print_write(&print, text);
    assert_int_equal(strlen(text), TOW_TLS_PRINT_TEXT);
    assert_int_equal(tow_tls_print_read(text, &again), 0);
    assert_memory_equal(&print, &again, sizeof print);
    for (size_t i = 0; i < TOW_TLS_PRINT_TEXT; i++) {
        char changed[sizeof text];
        memcpy(changed, text, sizeof text);
        changed[i] = 'G';
        assert_int_equal(tow_tls_print_read(changed, &again), -EINVAL);
        changed[i] = '\0';
        assert_int_equal(tow_tls_print_read(changed, &again), -EINVAL);
    }
    text[TOW_TLS_PRINT_TEXT] = '0';
    text[TOW_TLS_PRINT_TEXT + 1] = '\0';
    assert_int_equal(tow_tls_print_read(text, &again), -EINVAL);
}

static void known_servers_are_found_and_replaced(void **state)
{
    char path[PATH_MAX], why[TOW_WHY_MAX] = "";
    struct tow_tls_print one = {{1}}, two = {{2}}, found;
    struct stat file;
    in_folder(path, "config/known_servers");
    assert_int_equal(tow_known_servers_find(path, "a:1", &found, why, sizeof why), -ENOENT);
    assert_int_equal(tow_known_servers_put(path, "a:1", &one, why, sizeof why), 0);
    assert_int_equal(tow_known_servers_put(path, "a:11", &two, why, sizeof why), 0);
    assert_int_equal(tow_known_servers_find(path, "a:1", &found, why, sizeof why), 0);
    assert_memory_equal(&found, &one, sizeof one);
    assert_int_equal(tow_known_servers_put(path, "a:1", &two, why, sizeof why), 0);
    assert_int_equal(tow_known_servers_find(path, "a:1", &found, why, sizeof why), 0);
    assert_memory_equal(&found, &two, sizeof two);
    assert_int_equal(tow_known_servers_find(path, "a:", &found, why, sizeof why), -ENOENT);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
}

static void what_else_is_in_the_file_stays(void **state)
{
    char path[PATH_MAX], why[TOW_WHY_MAX] = "";
    struct tow_tls_print one = {{1}}, found;
    struct tow_buf text;
    in_folder(path, "edited");
    write_text(path, "# of the lab\n\nb:2 nonsense\nlast:3 sha256:0"); /* and no newline */
    assert_int_equal(tow_known_servers_find(path, "b:2", &found, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "towline trust"));
    assert_int_equal(tow_known_servers_put(path, "b:2", &one, why, sizeof why), 0);
    assert_int_equal(tow_known_servers_find(path, "b:2", &found, why, sizeof why), 0);
    tow_buf_init(&text, 4096);
    assert_int_equal(tow_file_read(path, &text), 0);
    assert_int_equal(tow_buf_append(&text, "", 1), 0);
    const char *start = "# of the lab\n\nlast:3 sha256:0\nb:2 sha256:01";
    assert_memory_equal(text.data, start, strlen(start));
    tow_buf_fini(&text);
}

/* ---- the first record of a client ---- */

/* What a client with the grant, or with certificates, says first. */
static size_t record_hello(const struct tow_grant *grant, uint8_t *ret_bytes, size_t most)
{
    static struct end client;
    int fds[2];
    struct tow_tls_trust trust = {.pin = NULL};
    char why[TOW_WHY_MAX];
    SSL_CTX *context = NULL;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    if (grant == NULL) {
        assert_int_equal(tow_tls_cert_trust(lines_tls_lib(), &trust, why, sizeof why, &context), 0);
    }
    client = (struct end){.fd = fds[1], .by = {.context = context, .grant = grant}};
    assert_int_equal(tow_thread_start("end", end_run, &client, &client.thread), 0);
    ssize_t n = recv(fds[0], ret_bytes, most, 0); /* one write of a socket pair */
    close(fds[0]);
    pthread_join(client.thread, NULL);
    close(fds[1]);
    if (context != NULL) {
        lines_tls_lib()->SSL_CTX_free(context);
    }
    assert_true(n > 5);
    return (size_t)n;
}

static const struct tow_grant grant = {"one session's id", "a secret of thirty-two bytes...."};

static void a_hello_names_its_grant(void **state)
{
    static uint8_t bytes[TOW_TLS_HELLO_MAX];
    uint8_t id[TOW_GRANT_ID] = {0};
    bool names = false;
    size_t n = record_hello(&grant, bytes, sizeof bytes);
    assert_int_equal(tow_tls_hello_read(bytes, n, &names, id), 0);
    assert_true(names);
    assert_memory_equal(id, grant.id, sizeof id);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tow_tls_hello_read(bytes, i, &names, id), -EAGAIN);
    }
    n = record_hello(NULL, bytes, sizeof bytes);
    assert_int_equal(tow_tls_hello_read(bytes, n, &names, id), 0);
    assert_false(names);
}

/* Every bit of it changed: an answer, and nothing read beyond the end (a copy of its own size). */
static void a_changed_hello_is_read_within_its_bounds(void **state)
{
    static uint8_t bytes[TOW_TLS_HELLO_MAX];
    uint8_t id[TOW_GRANT_ID];
    bool names;
    size_t n = record_hello(&grant, bytes, sizeof bytes);
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        memcpy(copy, bytes, n);
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int error = tow_tls_hello_read(copy, n, &names, id);
        assert_true(error == 0 || error == -EAGAIN || error == -EPROTO);
        memset(copy + bit / 8, 0xff, n - bit / 8);
        tow_tls_hello_read(copy, n, &names, id);
    }
    free(copy);
}

static void plain_words_are_no_hello(void **state)
{
    static const char *const words[] = {
        "GET / HTTP/1.1\r\n",       "TOWL\1\0\0\0", "\x16\x02\x01", "\x16\x03\x01\xff\xff",
        "\x16\x03\x01\x10\x10\x02", "\x15\x03\x03"};
    uint8_t id[TOW_GRANT_ID];
    bool names;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(
            tow_tls_hello_read((const uint8_t *)words[i], strlen(words[i]), &names, id), -EPROTO);
    }
    assert_int_equal(tow_tls_hello_read((const uint8_t *)"", 0, &names, id), -EAGAIN);
}

int main(void)
{
    lines_kind = "tls";
    if (lines_missing()) {
        return LINES_SKIP;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_made_key_stays_and_is_the_owners),
        cmocka_unit_test(another_key_is_another_server),
        cmocka_unit_test(a_certificate_without_its_key_is_refused),
        cmocka_unit_test(authorities_and_names_are_looked_at),
        cmocka_unit_test(files_that_are_none_are_sentences),
        cmocka_unit_test(fingerprints_are_read_as_they_are_written),
        cmocka_unit_test(known_servers_are_found_and_replaced),
        cmocka_unit_test(what_else_is_in_the_file_stays),
        cmocka_unit_test(a_hello_names_its_grant),
        cmocka_unit_test(a_changed_hello_is_read_within_its_bounds),
        cmocka_unit_test(plain_words_are_no_hello),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
