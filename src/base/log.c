/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: reads TOWLINE_LOG once and writes whole lines. */
#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const area_names[TOW_AREA_COUNT] = {
    "client", "server", "backend", "soft", "nvml",
};
static const char *const level_names[] = {"off", "error", "warn", "info", "debug"};

static atomic_uchar levels[TOW_AREA_COUNT];
static const char *program = "towline";
static atomic_int log_fd = STDERR_FILENO;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What others can cause (a client's failing calls, strangers at the door) must not fill a disk: so
 * many lines at once, and one in so much time from then on. Details are only for who asks. */
#define LINES_AT_ONCE 1000
#define LINE_NS (100 * TOW_TIME_MS)
static _Atomic int64_t spent_until; /* each line adds LINE_NS */
static _Atomic uint64_t left_out;   /* lines that were not written */

static bool may_write(enum tow_log_level level)
{
    int64_t now = tow_time_now_ns(), spent = atomic_load(&spent_until), after;
    if (level > TOW_LOG_INFO) {
        return true;
    }
    do {
        after = (spent > now ? spent : now) + LINE_NS;
        if (after - now > LINES_AT_ONCE * LINE_NS) {
            atomic_fetch_add(&left_out, 1);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&spent_until, &spent, after));
    return true;
}

static int find_level(const char *word, size_t length)
{
    for (int i = 0; i <= TOW_LOG_DEBUG; i++) {
        if (strlen(level_names[i]) == length && memcmp(level_names[i], word, length) == 0) {
            return i;
        }
    }
    return -EINVAL;
}

static int log_parse(const char *spec, unsigned char ret_levels[TOW_AREA_COUNT])
{
    memset(ret_levels, TOW_LOG_WARN, TOW_AREA_COUNT);
    while (*spec != '\0') {
        size_t length = strcspn(spec, ",");
        const char *equals = memchr(spec, '=', length);
        if (equals == NULL) {
            int level = find_level(spec, length);
            if (level < 0) {
                return level;
            }
            memset(ret_levels, level, TOW_AREA_COUNT);
        } else {
            size_t name = (size_t)(equals - spec);
            int level = find_level(equals + 1, length - name - 1);
            int area = 0;
            while (area < TOW_AREA_COUNT && (strlen(area_names[area]) != name ||
                                             memcmp(area_names[area], spec, name) != 0)) {
                area++;
            }
            if (level < 0 || area == TOW_AREA_COUNT) {
                return -EINVAL;
            }
            ret_levels[area] = (unsigned char)level;
        }
        spec += length;
        if (*spec == ',') {
            spec++;
        }
    }
    return 0;
}

static void log_store(const unsigned char from[TOW_AREA_COUNT])
{
    for (int i = 0; i < TOW_AREA_COUNT; i++) {
        atomic_store_explicit(&levels[i], from[i], memory_order_relaxed);
    }
}

static void log_start(void)
{
    unsigned char chosen[TOW_AREA_COUNT];
    const char *spec = getenv("TOWLINE_LOG");
    bool wrong = spec != NULL && log_parse(spec, chosen) < 0;
    if (spec == NULL || wrong) {
        memset(chosen, TOW_LOG_WARN, sizeof chosen);
    }
    log_store(chosen);
    const char *path = getenv("TOWLINE_LOG_FILE");
    if (path != NULL && *path != '\0') {
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd >= 0) {
            log_fd = fd;
        }
    }
    if (wrong) {
        dprintf(log_fd,
                "%s: TOWLINE_LOG=%s is not understood; write for example TOWLINE_LOG=info or "
                "TOWLINE_LOG=warn,client=debug\n",
                program, spec);
    }
}

bool tow_log_on(enum tow_log_area area, enum tow_log_level level)
{
    pthread_once(&once, log_start);
    return level <= (enum tow_log_level)atomic_load_explicit(&levels[area], memory_order_relaxed);
}

void tow_logv(enum tow_log_area area, enum tow_log_level level, const char *format, va_list args)
{
    if (!tow_log_on(area, level)) {
        return;
    }
    int kept_errno = errno;
    char line[4096];
    if (!may_write(level)) {
        return;
    }
    uint64_t missing = atomic_exchange(&left_out, 0);
    if (missing > 0) {
        dprintf(log_fd, "%s: %llu lines were left out here: too many at once\n", program,
                (unsigned long long)missing);
    }
    int head = level <= TOW_LOG_WARN
                   ? snprintf(line, sizeof line, "%s: ", program)
                   : snprintf(line, sizeof line, "%s[%d] %s %s: ", program, (int)getpid(),
                              area_names[area], level_names[level]);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
    size_t length = (size_t)head + (body > 0 ? (size_t)body : 0);
    if (length > sizeof line - 2) {
        length = sizeof line - 2;
    }
    /* Names and texts of others are in it: none begins a line of its own, or moves a cursor. */
    for (size_t i = 0; i < length; i++) {
        line[i] = (unsigned char)line[i] < ' ' || line[i] == 0x7f ? ' ' : line[i];
    }
    line[length++] = '\n';
    /* One write per line, so that lines of several processes do not mix. */
    ssize_t written = write(log_fd, line, length);
    (void)written;
    errno = kept_errno;
}

void tow_log(enum tow_log_area area, enum tow_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tow_logv(area, level, format, args);
    va_end(args);
}

int tow_log_configure(const char *spec)
{
    pthread_once(&once, log_start);
    unsigned char chosen[TOW_AREA_COUNT];
    int error = log_parse(spec, chosen);
    if (error < 0) {
        return error;
    }
    log_store(chosen);
    return 0;
}

void tow_log_move(int fd)
{
    pthread_once(&once, log_start);
    int other = STDERR_FILENO;
    atomic_compare_exchange_strong(&log_fd, &other, fd);
}

void tow_log_set_program(const char *name)
{
    program = name;
}
