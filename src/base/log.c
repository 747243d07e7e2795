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

static _Atomic(_Atomic uint32_t *) allowed; /* another process says how many; NULL: this one */

unsigned tow_log_take(unsigned n)
{
    int64_t now = tow_time_now_ns(), spent = atomic_load(&spent_until), from;
    unsigned taken;
    do {
        from = spent > now ? spent : now;
        int64_t room = (LINES_AT_ONCE * LINE_NS - (from - now)) / LINE_NS;
        taken = room < (int64_t)n ? (room > 0 ? (unsigned)room : 0) : n;
    } while (!atomic_compare_exchange_weak(&spent_until, &spent, from + taken * LINE_NS));
    return taken;
}

void tow_log_give_back(unsigned n)
{
    atomic_fetch_sub(&spent_until, n * LINE_NS);
}

void tow_log_allow(_Atomic uint32_t *lines)
{
    atomic_store(&allowed, lines);
}

static bool may_write(enum tow_log_level level)
{
    _Atomic uint32_t *lines = atomic_load(&allowed);
    if (level > TOW_LOG_INFO) {
        return true;
    }
    bool may = lines == NULL && tow_log_take(1) == 1;
    if (lines != NULL) {
        uint32_t left = atomic_load(lines);
        while (left > 0 && !atomic_compare_exchange_weak(lines, &left, left - 1)) {
        }
        may = left > 0;
    }
    if (!may) {
        atomic_fetch_add(&left_out, 1);
    }
    return may;
}

/* The last line, so that one that comes again and again is only counted. Whoever finds another
 * thread there writes its line: nobody waits. */
#define FOLD_NS TOW_TIME_S
#define FOLD_AFTER 10 /* so often it is written */
static struct {
    atomic_bool on;
    atomic_flag used; /* guards the rest */
    char last[256];   /* as much of it as is compared */
    int64_t since_ns; /* when it was written */
    unsigned times;   /* so often it came */
} folding = {.used = ATOMIC_FLAG_INIT};

static atomic_uint repeated; /* so often a line came again that was not written, nor told yet */

/* With the flag: what was counted is to be told. */
static void folding_ends(void)
{
    if (folding.times > FOLD_AFTER) {
        atomic_fetch_add(&repeated, folding.times - FOLD_AFTER);
        folding.times = FOLD_AFTER;
    }
}

/* Whether this line is counted instead. */
static bool log_folds(const char *line, size_t length)
{
    if (!atomic_load(&folding.on) || atomic_flag_test_and_set(&folding.used)) {
        return false;
    }
    int64_t now = tow_time_now_ns();
    size_t compared = length < sizeof folding.last - 1 ? length : sizeof folding.last - 1;
    bool same = strlen(folding.last) == compared && memcmp(folding.last, line, compared) == 0 &&
                now - folding.since_ns < FOLD_NS;
    bool folds = same && folding.times >= FOLD_AFTER;
    if (same) {
        folding.times++;
    } else {
        folding_ends();
        folding.times = 1;
        folding.since_ns = now;
        memcpy(folding.last, line, compared);
        folding.last[compared] = '\0';
    }
    atomic_flag_clear(&folding.used);
    return folds;
}

void tow_log_fold(void)
{
    atomic_store(&folding.on, true);
}

static void tell_repeated(void)
{
    unsigned more = atomic_exchange(&repeated, 0);
    if (more > 0) {
        dprintf(log_fd, "%s: the line above came %u more times\n", program, more);
    }
}

void tow_log_flush(bool last)
{
    if (!atomic_load(&folding.on) || atomic_flag_test_and_set(&folding.used)) {
        return;
    }
    if (last || tow_time_now_ns() - folding.since_ns >= FOLD_NS) {
        folding_ends();
    }
    atomic_flag_clear(&folding.used);
    tell_repeated();
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
    if ((level <= TOW_LOG_INFO && log_folds(line, length)) || !may_write(level)) {
        errno = kept_errno;
        return;
    }
    tell_repeated();
    uint64_t missing = atomic_exchange(&left_out, 0);
    if (missing > 0) {
        dprintf(log_fd, "%s: %llu lines were left out here: too many at once\n", program,
                (unsigned long long)missing);
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
