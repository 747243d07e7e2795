/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file of known servers. */
#include "transport/known_servers.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

int tow_known_servers_path(char *ret_path, char *ret_why, size_t size)
{
    if (tow_file_user_config("known_servers", ret_path, PATH_MAX) < 0) {
        snprintf(ret_why, size, "no place for the keys of known servers is known; set HOME");
        return -ENOENT;
    }
    return 0;
}

/* All of the file, ended by a NUL; nothing if it is not there. */
static int known_load(const char *path, struct tow_buf *text, char *ret_why, size_t size)
{
    tow_buf_init(text, TOW_KNOWN_SERVERS_MAX);
    int error = tow_file_read(path, text);
    if (error == -ENOENT) {
        error = 0;
    }
    if (error == 0) {
        error = tow_buf_append(text, "", 1);
    }
    if (error < 0) {
        snprintf(ret_why, size, "the keys of known servers in %s cannot be read: %s", path,
                 strerror(-error));
        tow_buf_fini(text);
    }
    return error;
}

/* The name that a line is about: how long it is, 0 if it is about none. */
static size_t known_name(const char *line)
{
    return line[0] == '#' ? 0 : strcspn(line, " \t\r\n");
}

static bool known_is_of(const char *line, const char *name)
{
    size_t n = known_name(line);
    return n > 0 && n == strlen(name) && memcmp(line, name, n) == 0;
}

static const char *known_next(const char *line)
{
    line += strcspn(line, "\n");
    return line[0] == '\n' ? line + 1 : line;
}

int tow_known_servers_find(const char *path, const char *name, struct tow_tls_print *ret_print,
                           char *ret_why, size_t size)
{
    struct tow_buf text;
    int error = known_load(path, &text, ret_why, size);
    if (error < 0) {
        return error;
    }
    error = -ENOENT;
    for (const char *line = (const char *)text.data; line[0] != '\0'; line = known_next(line)) {
        char print[TOW_TLS_PRINT_TEXT + 2] = "";
        if (known_is_of(line, name)) {
            const char *at = line + known_name(line);
            at += strspn(at, " \t");
            size_t n = strcspn(at, " \t\r\n");
            memcpy(print, at, n < sizeof print ? n : sizeof print - 1);
            error = tow_tls_print_read(print, ret_print);
            break;
        }
    }
    if (error == -EINVAL) {
        snprintf(ret_why, size,
                 "the line of %s in %s has no key that can be read; remove it, then run towline "
                 "trust",
                 name, path);
    }
    tow_buf_fini(&text);
    return error;
}

int tow_known_servers_look(const char *name, struct tow_tls_print *ret_print, char *ret_path,
                           char *ret_why, size_t size)
{
    char path[PATH_MAX];
    /* A user without a home has none of his own. */
    int error = tow_known_servers_path(path, ret_why, size);
    if (error == 0) {
        error = tow_known_servers_find(path, name, ret_print, ret_why, size);
    }
    if (error == -ENOENT) {
        snprintf(path, sizeof path, "%s", TOW_KNOWN_SERVERS_MACHINE);
        error = tow_known_servers_find(path, name, ret_print, ret_why, size);
    }
    if (error == 0 && ret_path != NULL) {
        memcpy(ret_path, path, strlen(path) + 1);
    }
    return error;
}

/* The old text without the name's lines, and the new line. */
static int known_change(const struct tow_buf *old, const char *name,
                        const struct tow_tls_print *print, struct tow_buf *text)
{
    char digits[TOW_TLS_PRINT_TEXT + 1];
    int error = 0;
    for (const char *line = (const char *)old->data; line[0] != '\0' && error == 0;) {
        const char *next = known_next(line);
        if (!known_is_of(line, name)) {
            error = tow_buf_append(text, line, (size_t)(next - line));
            if (error == 0 && next[-1] != '\n') {
                error = tow_buf_append(text, "\n", 1);
            }
        }
        line = next;
    }
    tow_tls_print_write(print, digits);
    const char *const parts[] = {name, " ", digits, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && error == 0; i++) {
        error = tow_buf_append(text, parts[i], strlen(parts[i]));
    }
    return error;
}

int tow_known_servers_put(const char *path, const char *name, const struct tow_tls_print *print,
                          char *ret_why, size_t size)
{
    struct tow_buf old, text;
    int lock = tow_file_lock(path);
    int error = lock < 0 ? lock : 0;
    if (error == 0 && (error = known_load(path, &old, ret_why, size)) < 0) {
        close(lock);
        return error;
    }
    if (error == 0) {
        tow_buf_init(&text, TOW_KNOWN_SERVERS_MAX);
        error = known_change(&old, name, print, &text);
        if (error == 0) {
            error = tow_file_write_atomic(path, text.data, text.size, 0600);
        }
        tow_buf_fini(&text);
        tow_buf_fini(&old);
        close(lock);
    }
    if (error < 0) {
        snprintf(ret_why, size, "the key of %s cannot be written to %s: %s", name, path,
                 strerror(-error));
    }
    return error;
}
