/* SPDX-License-Identifier: Apache-2.0 */
/* What a line of the log looks like, in each format. Nothing here allocates or writes. */
#ifndef TOW_BASE_LOG_LINE_H
#define TOW_BASE_LOG_LINE_H

#include "base/log.h"

#include <stddef.h>
#include <stdint.h>

/* As much as a pipe takes in one piece (PIPE_BUF): lines of several processes do not mix. */
enum { TOW_LOG_LINE_MAX = 4096, TOW_LOG_STAMP_MAX = 32 };

/* All of a line but its message. */
struct tow_log_head {
    const char *program; /* borrowed, as all texts here */
    const char *area;
    enum tow_log_level level;
    struct tow_log_about about;
    bool says_session; /* the message does: text does not say it once more */
    int pid;
    int64_t realtime_ns; /* since 1970 */
};

/* "error", "warn", ... */
const char *tow_log_level_name(enum tow_log_level level);

/* RFC 3339 in UTC, with microseconds. Without the C library's time zones, which lock and allocate.
 */
void tow_log_stamp(int64_t realtime_ns, char ret_stamp[TOW_LOG_STAMP_MAX]);

/* What stands before a message; returns its length. Not for TOW_LOG_JSON. */
size_t tow_log_line_begin(enum tow_log_format format, const struct tow_log_head *head, char *line,
                          size_t size);

/* The whole line as a JSON object, with its newline; returns its length. A message that does not
 * fit is cut. */
size_t tow_log_line_json(const struct tow_log_head *head, char *message,
                         char ret_line[TOW_LOG_LINE_MAX]);

#endif
