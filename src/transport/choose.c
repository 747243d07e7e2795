/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the servers a program is to use: environment, config files, sockets; and asks one for its
 * report. */
#include "transport/choose.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "transport/address.h"
#include "transport/line.h"
#include "transport/login.h"
#include "wire/handshake.h"

enum { CONFIG_FILE_MAX = 64 << 10 };

/* Takes what a user wrote, and if that is wrong says where. */
static int choose_keep(const char *servers, const char *where, int choice, char *ret_servers,
                       char *why, size_t why_size)
{
    char wrong[TOW_WHY_MAX];
    int count =
        tow_address_read_list(servers, ret_servers, TOW_SERVERS_TEXT_MAX, wrong, sizeof wrong);
    if (count < 0) {
        snprintf(why, why_size, "%s: %s", where, wrong);
    }
    return count < 0 ? count : choice;
}

/* ---- the config files ---- */

#define WRITE_THIS "write server = HOST:4837"

/* One line of a config file, without its end; `where` is "FILE:LINE". TOW_CHOICE_NONE if it sets
 * nothing. */
static int read_line(char *line, const char *where, char *ret_servers, char *why, size_t why_size)
{
    line += strspn(line, " \t");
    line[strcspn(line, "#\r")] = '\0';
    size_t length = strlen(line);
    while (length > 0 && strchr(" \t", line[length - 1]) != NULL) {
        line[--length] = '\0';
    }
    for (char *at = line; *at != '\0'; at++) {
        *at = iscntrl((unsigned char)*at) && *at != '\t' ? '?' : *at; /* it may be shown */
    }
    if (length == 0) {
        return TOW_CHOICE_NONE;
    }
    size_t key = strcspn(line, " \t=");
    const char *value = line + key + strspn(line + key, " \t");
    if (*value != '=') {
        snprintf(why, why_size, "%s: \"%.64s\" is not a setting; " WRITE_THIS, where, line);
        return -EINVAL;
    }
    if (key != 6 || strncmp(line, "server", 6) != 0) {
        snprintf(why, why_size,
                 "%s: \"%.*s\" is not the name of a setting, the only one is server; " WRITE_THIS,
                 where, key < 64 ? (int)key : 64, line);
        return -EINVAL;
    }
    value += 1 + strspn(value + 1, " \t");
    if (*value == '\0') {
        snprintf(why, why_size, "%s: no server is named; " WRITE_THIS ", or remove the line",
                 where);
        return -EINVAL;
    }
    return choose_keep(value, where, TOW_CHOICE_FILE, ret_servers, why, why_size);
}

static int read_lines(char *text, const char *path, char *ret_servers, char *why, size_t why_size)
{
    int found = TOW_CHOICE_NONE;
    unsigned number = 0, set = 0;
    char *line;
    while (found >= 0 && (line = strsep(&text, "\n")) != NULL) {
        char where[PATH_MAX + 16], servers[TOW_SERVERS_TEXT_MAX];
        snprintf(where, sizeof where, "%s:%u", path, ++number);
        int choice = read_line(line, where, servers, why, why_size);
        if (choice < 0) {
            return choice;
        }
        if (choice != TOW_CHOICE_NONE && set != 0) {
            snprintf(why, why_size,
                     "%s: line %u names a server already; write several in one line, with commas "
                     "between them",
                     where, set);
            return -EINVAL;
        }
        if (choice != TOW_CHOICE_NONE) {
            snprintf(ret_servers, TOW_SERVERS_TEXT_MAX, "%s", servers);
            found = choice;
            set = number;
        }
    }
    return found;
}

/* The choice of a config file: TOW_CHOICE_NONE if it is not there or names no server. A mistake is
 * an error: a program must not end up with another GPU than the one that was meant. */
static int read_config(const char *path, char *ret_servers, char *why, size_t why_size)
{
    struct tow_buf text;
    tow_buf_init(&text, CONFIG_FILE_MAX);
    int found = TOW_CHOICE_NONE;
    int error = tow_file_read(path, &text);
    if (error == 0 && memchr(text.data, 0, text.size) != NULL) {
        snprintf(why, why_size, "%s is not a text; " WRITE_THIS " there, or remove it", path);
        found = -EINVAL;
    } else if (error == 0 && (error = tow_buf_append(&text, "", 1)) == 0) {
        found = read_lines((char *)text.data, path, ret_servers, why, why_size);
    }
    /* In a folder that is closed to this user (another's HOME) there is nothing of his. */
    bool hidden = error == -EACCES && access(path, F_OK) != 0;
    if (error < 0 && error != -ENOENT && error != -ENOTDIR && !hidden) {
        snprintf(why, why_size,
                 "%s cannot be read: %s; have that changed, or name a server with TOWLINE_SERVER",
                 path, strerror(-error));
        found = error;
    }
    tow_buf_fini(&text);
    return found;
}

/* Whether somebody listens on a socket that nobody named. One that this user may not open counts:
 * whoever connects there is told so, and does not get a software GPU without a word. */
static bool choose_answers(const char *path)
{
    char address[TOW_ADDRESS_MAX], ignored[TOW_WHY_MAX];
    struct tow_line *line;
    if (access(path, F_OK) != 0 ||
        snprintf(address, sizeof address, "unix://%s", path) >= (int)sizeof address) {
        return false;
    }
    int error = tow_transport_connect(address, tow_time_deadline(TOW_TIME_S), ignored,
                                      sizeof ignored, &line);
    if (error == 0) {
        tow_line_close(line);
    }
    return error == 0 || error == -EACCES;
}

int tow_choose_servers(char *ret_servers, char *why, size_t why_size)
{
    const char *named = getenv("TOWLINE_SERVER");
    if (named != NULL && named[0] != '\0') {
        return choose_keep(named, "TOWLINE_SERVER", TOW_CHOICE_ENVIRONMENT, ret_servers, why,
                           why_size);
    }
    char path[PATH_MAX] = "";
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config != NULL && config[0] == '/') {
        snprintf(path, sizeof path, "%s/towline/towline.conf", config);
    } else if (home != NULL && home[0] == '/') {
        snprintf(path, sizeof path, "%s/.config/towline/towline.conf", home);
    }
    int found = path[0] == '\0' ? TOW_CHOICE_NONE : read_config(path, ret_servers, why, why_size);
    if (found == TOW_CHOICE_NONE) {
        found = read_config("/etc/towline/towline.conf", ret_servers, why, why_size);
    }
    if (found == TOW_CHOICE_NONE) {
        const char *socket = TOW_FILE_MACHINE_SOCKET;
        if (tow_file_default_socket(path, sizeof path) == 0 && choose_answers(path)) {
            socket = path;
        } else if (!choose_answers(socket)) {
            return found;
        }
        snprintf(ret_servers, TOW_SERVERS_TEXT_MAX, "unix://%s", socket);
        found = TOW_CHOICE_SOCKET;
    }
    return found;
}

/* ---- STATUS and REPORT ---- */

/* Reads the answer into `report`; `why` gets a sentence if it is none. */
static int read_answer(struct tow_line *line, const char *address, int64_t deadline_ns,
                       struct tow_buf *report, char *why, size_t why_size)
{
    const uint8_t *at;
    size_t available;
    int error = tow_line_peek(line, 1, deadline_ns, &at, &available);
    while (error == 0) {
        error = tow_handshake_sniff(TOW_ROLE_CLIENT, at, available, address, why, why_size);
        if (error != -EAGAIN) {
            break;
        }
        error = tow_line_peek(line, available + 1, deadline_ns, &at, &available);
    }
    if (error == -EPROTO) {
        return error;
    }
    struct tow_frame frame;
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    if (error == 0) {
        error = tow_line_peek(line, frame.length, deadline_ns, &at, &available);
    }
    if (error == -ETIMEDOUT) {
        snprintf(why, why_size,
                 "%s took the connection and then said nothing for %d s; is it towlined that "
                 "listens there?",
                 address, TOW_CONNECT_TIMEOUT_S);
        return error;
    }
    if (error < 0) {
        snprintf(
            why, why_size,
            "%s closed the connection without an answer (%s); is it towlined that listens there?",
            address, strerror(-error));
        return error;
    }
    struct tow_report answer;
    struct tow_refuse refuse;
    if (tow_report_decode(at, &frame, &answer) == 0) {
        return tow_buf_append(report, answer.text, answer.size);
    }
    if (tow_refuse_decode(at, &frame, &refuse) == 0) {
        snprintf(why, why_size, "%s refuses: %s", address, refuse.sentence);
        return -ECONNREFUSED;
    }
    snprintf(
        why, why_size,
        "%s answered with a %s frame that this towline cannot read; install the same version on "
        "both sides",
        address, tow_control_name(frame.kind) == NULL ? "foreign" : tow_control_name(frame.kind));
    return -EPROTO;
}

/* A server that demands a token asks for it first. */
static int log_in(struct tow_line *line, const char *address, const struct tow_preface *first,
                  int64_t deadline_ns, char *why, size_t why_size)
{
    const uint8_t *at;
    size_t available;
    struct tow_frame frame;
    if (tow_line_peek(line, TOW_FRAME_HEADER, deadline_ns, &at, &available) < 0 ||
        tow_frame_read(at, &frame) < 0 || frame.kind != TOW_CONTROL_CHALLENGE) {
        return 0; /* whoever reads the answer says what is wrong */
    }
    return tow_login_do(line, address, first, deadline_ns, why, why_size, NULL);
}

static int ask_once(const char *address, const struct tow_status *question, int64_t deadline_ns,
                    struct tow_buf *report, char *why, size_t why_size)
{
    struct tow_line *line;
    int64_t began_ns = tow_time_now_ns();
    int error = tow_transport_connect(address, deadline_ns, why, why_size, &line);
    if (error < 0) {
        return error;
    }
    struct tow_status asked = *question;
    _Alignas(8) uint8_t bytes[64];
    uint8_t *at;
    uint32_t length;
    asked.topics |= TOW_STATUS_LOGIN;
    error = tow_status_encode(&asked, bytes, sizeof bytes, &length);
    if (error == 0) {
        error = tow_line_reserve(line, length, &at);
    }
    if (error == 0) {
        memcpy(at, bytes, length);
        tow_line_commit_now(line, length);
        error =
            log_in(line, address, &(struct tow_preface){bytes, length}, deadline_ns, why, why_size);
        if (error < 0) {
            tow_line_close(line);
            return error;
        }
        error = read_answer(line, address, deadline_ns, report, why, why_size);
    } else {
        snprintf(why, why_size, "%s: %s", address, strerror(-error));
    }
    tow_line_close(line);
    bool closed = error == -ECONNRESET || error == -EPIPE;
    return closed && tow_transport_explain(address, began_ns, why, why_size) ? -ECONNREFUSED
                                                                             : error;
}

int tow_ask(const char *address, const struct tow_status *question, int64_t deadline_ns,
            struct tow_buf *report, char *why, size_t why_size)
{
    char unix_address[TOW_ADDRESS_MAX];
    if (strncmp(address, "shm:", 4) == 0) {
        /* The same socket; memory is not needed for one question. */
        snprintf(unix_address, sizeof unix_address, "unix:%s", address + 4);
        address = unix_address;
    }
    struct tow_retry retry = {0};
    int error;
    do {
        error = ask_once(address, question, deadline_ns, report, why, why_size);
    } while (error < 0 && tow_retry_pause(&retry, error, deadline_ns));
    return error;
}

int tow_ask_presence(const char *address, int64_t deadline_ns)
{
    const struct tow_status question = {.topics = TOW_STATUS_AT_HAND | TOW_STATUS_PRESENT};
    struct tow_buf report;
    char ignored[TOW_WHY_MAX];
    tow_buf_init(&report, TOW_FRAME_MAX);
    int error = tow_ask(address, &question, deadline_ns, &report, ignored, sizeof ignored);
    tow_buf_fini(&report);
    return error;
}

int tow_ask_report(const char *address, uint32_t topics, struct tow_buf *report, char *why,
                   size_t why_size)
{
    return tow_ask(address, &(struct tow_status){.topics = topics},
                   tow_time_deadline(TOW_CONNECT_TIMEOUT_NS), report, why, why_size);
}
