/* SPDX-License-Identifier: Apache-2.0 */
/* Turns short addresses into whole ones. */
#include "transport/address.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOOK "hook:"
#define DIGITS "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static int say_wrong(const char *text, const char *hint, char *ret_why, size_t size)
{
    snprintf(ret_why, size,
             "%s is not an address%s; write HOST, HOST:PORT or the PATH of a socket (tcp://, "
             "tls://, ssh://, unix:// and shm:// may stand before them), for example gpuhost:%d or "
             "/run/towline.sock",
             text[0] == '\0' ? "\"\"" : text, hint, TOW_DEFAULT_PORT);
    return -EINVAL;
}

/* The scheme that an address without one means: what to put before `*text`, or NULL. */
static const char *missing_scheme(const char **text, const char **ret_hint)
{
    const char *at = *text;
    *ret_hint = "";
    if (at[0] == '/' || at[0] == '@') {
        return "unix://";
    }
    /* With fewer slashes than there should be; unix:4837 is a host with that name. */
    static const char *const schemes[] = {"unix://", "shm://", "tcp://", "tls://", "ssh://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t length = strlen(schemes[i]) - 2;
        if (strncmp(at, schemes[i], length) == 0 &&
            at[length + strspn(at + length, DIGITS)] != '\0') {
            *text = at + length;
            return schemes[i];
        }
    }
    if (at[0] == '[') {
        return "tcp://";
    }
    size_t host = strspn(at, LETTERS DIGITS ".-_");
    if (strchr(at, ':') != strrchr(at, ':') && at[strspn(at, DIGITS "abcdefABCDEF.:")] == '\0') {
        *ret_hint = " (one of IPv6 stands in brackets: [::1]:4837)";
        return NULL;
    }
    if (host > 0 && strspn(at, DIGITS) == host) {
        *ret_hint = " (a port needs its host before it)";
        return NULL;
    }
    if (host == 0 && at[0] == '*') {
        host = 1; /* to listen everywhere */
    }
    return host > 0 && at[0] != '-' && strchr(at, '/') == NULL &&
                   (at[host] == ':' || at[host] == '\0')
               ? "tcp://"
               : NULL;
}

int tow_address_read(const char *text, char *ret_address, char *ret_why, size_t size)
{
    char address[TOW_ADDRESS_MAX];
    const char *rest, *hint;
    size_t hooks = (size_t)(tow_transport_behind_hook(text) - text);
    const char *plain = text + hooks, *scheme = "";
    if (tow_transport_find(plain, &rest) < 0) {
        scheme = missing_scheme(&plain, &hint);
        if (scheme == NULL) {
            return say_wrong(text, hint, ret_why, size);
        }
    }
    int length = snprintf(address, sizeof address, "%.*s%s%s", (int)hooks, text, scheme, plain);
    if (length < 0 || (size_t)length >= sizeof address) {
        snprintf(ret_why, size, "the address %.64s... is longer than %d characters", text,
                 TOW_ADDRESS_MAX - 1);
        return -ENAMETOOLONG;
    }
    int error = tow_transport_check(address + hooks, ret_why, size);
    if (error == 0) {
        memcpy(ret_address, address, (size_t)length + 1);
    }
    return error;
}

/* Whether what follows a comma begins another address. */
static bool begins_address(const char *text)
{
    text += strspn(text, " \t");
    size_t word = strspn(text, LETTERS DIGITS ".-_");
    return text[word] == ':' || text[0] == '/' || text[0] == '[' || text[0] == '\0';
}

char *tow_address_next(char **rest)
{
    char *address = *rest;
    if (address == NULL) {
        return NULL;
    }
    address += strspn(address, " \t");
    bool options = strncmp(address, HOOK, strlen(HOOK)) == 0 || strncmp(address, "self:", 5) == 0;
    char *comma = strchr(address, ',');
    while (comma != NULL && options && !begins_address(comma + 1)) {
        comma = strchr(comma + 1, ',');
    }
    *rest = comma == NULL ? NULL : comma + 1;
    char *end = comma == NULL ? address + strlen(address) : comma;
    while (end > address && isspace((unsigned char)end[-1])) {
        end--;
    }
    *end = '\0';
    return address;
}

int tow_address_read_list(const char *text, char *ret_list, size_t list_size, char *ret_why,
                          size_t size)
{
    char *copy = strdup(text), *list = malloc(list_size);
    char *rest = copy, *one;
    size_t used = 0;
    int count = 0, error = copy == NULL || list == NULL ? -ENOMEM : 0;
    if (error < 0) {
        snprintf(ret_why, size, "memory is used up");
    }
    while (error == 0 && (one = tow_address_next(&rest)) != NULL) {
        char address[TOW_ADDRESS_MAX];
        if (one[0] == '\0') {
            continue;
        }
        error = tow_address_read(one, address, ret_why, size);
        if (error == 0) {
            int length =
                snprintf(list + used, list_size - used, "%s%s", count == 0 ? "" : ",", address);
            used += (size_t)length;
            count++;
            if (used >= list_size) {
                snprintf(ret_why, size, "the servers' addresses are longer than %zu characters",
                         list_size - 1);
                error = -ENAMETOOLONG;
            }
        }
    }
    if (error == 0 && count == 0) {
        error = say_wrong(text, "", ret_why, size);
    }
    if (error == 0) {
        memcpy(ret_list, list, used + 1);
    }
    free(list);
    free(copy);
    return error < 0 ? error : count;
}
