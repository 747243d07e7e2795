/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of the log: plain and text for people, one for a journal, JSON for programs. */
#include "base/log_line.h"

#include "base/buf.h"
#include "base/json_write.h"

#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};
/* As sd-daemon(3) and syslog(3) have them. */
static const char *const priorities[] = {"<3>", "<3>", "<4>", "<6>", "<7>"};

const char *tow_log_level_name(enum tow_log_level level)
{
    return level_names[level];
}

void tow_log_stamp(int64_t realtime_ns, char ret_stamp[TOW_LOG_STAMP_MAX])
{
    enum {
        DAY_S = 86400,
        ERA_DAYS = 146097 /* 400 years */,
        TO_1970 = 719468 /* from 0000-03-01 */
    };
    uint64_t us = realtime_ns > 0 ? (uint64_t)realtime_ns / 1000 : 0;
    unsigned second = (unsigned)(us / 1000000 % DAY_S);
    unsigned days = (unsigned)(us / 1000000 / DAY_S) + TO_1970;
    /* Years begin in March here: the day that some years have more is their last. */
    unsigned era = days / ERA_DAYS, day = days % ERA_DAYS;
    unsigned year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    unsigned month = (5 * day + 2) / 153; /* 0: March */
    day -= (153 * month + 2) / 5;
    year += 400 * era + (month >= 10);
    month = month < 10 ? month + 3 : month - 9;
    snprintf(ret_stamp, TOW_LOG_STAMP_MAX, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", year % 10000,
             month, day + 1, second / 3600, second / 60 % 60, second % 60,
             (unsigned)(us % 1000000));
}

size_t tow_log_line_begin(enum tow_log_format format, const struct tow_log_head *head, char *line,
                          size_t size)
{
    char stamp[TOW_LOG_STAMP_MAX] = "", session[40] = "";
    if (format == TOW_LOG_TEXT) {
        tow_log_stamp(head->realtime_ns, stamp);
    }
    if (format != TOW_LOG_PLAIN && head->about.session != 0 && !head->says_session) {
        snprintf(session, sizeof session,
                 "session %llu: ", (unsigned long long)head->about.session);
    }
    const char *space = format == TOW_LOG_TEXT ? " " : "";
    bool detail = head->level > TOW_LOG_WARN;
    int length;
    if (format == TOW_LOG_JOURNAL) {
        /* It knows the time, the program and the process itself. */
        length = snprintf(line, size, "%s%s%s%s", priorities[head->level], detail ? head->area : "",
                          detail ? ": " : "", session);
    } else if (detail) {
        length = snprintf(line, size, "%s%s%s[%d] %s %s: %s", stamp, space, head->program,
                          head->pid, head->area, level_names[head->level], session);
    } else {
        length = snprintf(line, size, "%s%s%s: %s", stamp, space, head->program, session);
    }
    return length < 0 ? 0 : (size_t)length < size ? (size_t)length : size - 1;
}

static bool json_fits(const struct tow_log_head *head, const char *stamp, const char *message,
                      struct tow_buf *out)
{
    struct tow_json json;
    tow_json_init(&json, out);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "time", stamp);
    tow_json_str(&json, "level", level_names[head->level]);
    tow_json_str(&json, "area", head->area);
    tow_json_u64(&json, "pid", (uint64_t)head->pid);
    if (head->about.session != 0) {
        tow_json_u64(&json, "session", head->about.session);
    }
    if (head->about.peer != NULL && head->about.peer[0] != '\0') {
        tow_json_str(&json, "peer", head->about.peer);
    }
    if (head->about.tenant != NULL && head->about.tenant[0] != '\0') {
        tow_json_str(&json, "tenant", head->about.tenant);
    }
    const struct tow_log_field *field = head->about.fields;
    for (; field != NULL && field->name != NULL; field++) {
        if (field->text != NULL) {
            tow_json_str(&json, field->name, field->text);
        } else if (field->is_whole) {
            tow_json_u64(&json, field->name, field->whole);
        } else {
            tow_json_f64(&json, field->name, field->number);
        }
    }
    tow_json_str(&json, "message", message);
    tow_json_end(&json);
    return tow_json_finish(&json) == 0;
}

size_t tow_log_line_json(const struct tow_log_head *head, char *message,
                         char ret_line[TOW_LOG_LINE_MAX])
{
    char stamp[TOW_LOG_STAMP_MAX];
    tow_log_stamp(head->realtime_ns, stamp);
    struct tow_buf out;
    size_t length = strlen(message);
    tow_buf_init_on(&out, ret_line, TOW_LOG_LINE_MAX - 1);
    while (!json_fits(head, stamp, message, &out) && length > 0) {
        /* A byte of it may take six here. Not within a character. */
        length -= length / 8 + 1;
        while (length > 0 && ((unsigned char)message[length] & 0xc0) == 0x80) {
            length--;
        }
        message[length] = '\0';
        tow_buf_clear(&out);
    }
    ret_line[out.size] = '\n';
    return out.size + 1;
}
