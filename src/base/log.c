/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: reads TOWLINE_LOG once and writes whole lines. */
#include "base/log.h"

#include "base/clock.h"
#include "base/log_line.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const area_names[TOW_AREA_COUNT] = {
    "client", "server", "backend", "soft", "nvml", "audit",
};
static const char *const format_names[] = {"plain", "text", "journal", "json"};

static atomic_uchar levels[TOW_AREA_COUNT];
static const char *program = "towline";
static atomic_int log_fd = STDERR_FILENO;
static atomic_int log_format = TOW_LOG_PLAIN;
static _Atomic(const struct tow_log_about *) all_about; /* borrowed; NULL: nothing is known */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What others can cause (a client's failing calls, strangers at the door) must not fill a disk: so
 * many lines at once, and a hundredth of them in a second from then on. */
static atomic_uint at_once = TOW_LOG_LINES;
static _Atomic int64_t spent_until; /* each line adds line_ns() */
static _Atomic uint64_t left_out;   /* lines that were not written */

static _Atomic(void (*)(const char *)) overhears; /* NULL: nobody */

static _Atomic(_Atomic uint32_t *) allowed; /* another process says how many; NULL: this one */

static int64_t line_ns(void)
{
    return 100 * TOW_TIME_S / (int64_t)atomic_load(&at_once);
}

unsigned tow_log_used(void)
{
    int64_t each = line_ns(), ahead = atomic_load(&spent_until) - tow_time_now_ns();
    return ahead > 0 ? (unsigned)((ahead + each - 1) / each) : 0;
}

/* What was used stays used: else each change would be a new beginning, or the end for long. */
void tow_log_set_limit(unsigned lines)
{
    int64_t used = tow_log_used();
    atomic_store(&at_once, lines > 0 ? lines : 1);
    atomic_store(&spent_until, tow_time_now_ns() + used * line_ns());
}

unsigned tow_log_take(unsigned n)
{
    int64_t each = line_ns(), all = (int64_t)atomic_load(&at_once);
    int64_t now = tow_time_now_ns(), spent = atomic_load(&spent_until), from;
    unsigned taken;
    do {
        from = spent > now ? spent : now;
        int64_t room = (all * each - (from - now)) / each;
        taken = room < (int64_t)n ? (room > 0 ? (unsigned)room : 0) : n;
    } while (!atomic_compare_exchange_weak(&spent_until, &spent, from + taken * each));
    return taken;
}

void tow_log_give_back(unsigned n)
{
    atomic_fetch_sub(&spent_until, n * line_ns());
}

void tow_log_allow(_Atomic uint32_t *lines)
{
    atomic_store(&allowed, lines);
}

/* Details are for who asked for them. An audit that its peers could silence by a flood would be
 * none: what holds these lines down is that each is of a session. */
static bool is_counted(enum tow_log_area area, enum tow_log_level level)
{
    return level <= TOW_LOG_INFO && area != TOW_AREA_AUDIT;
}

static bool may_write(void)
{
    _Atomic uint32_t *lines = atomic_load(&allowed);
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
    char last[256];   /* as much of its message as is compared */
    enum tow_log_level level;
    enum tow_log_area area;
    int64_t since_ns; /* when it was written */
    unsigned times;   /* so often it came */
} folding = {.used = ATOMIC_FLAG_INIT};

static atomic_int repeated_area;
static atomic_uint repeated; /* so often a line came again that was not written, nor told yet */

/* With the flag: what was counted is to be told. */
static void folding_ends(void)
{
    if (folding.times > FOLD_AFTER) {
        atomic_store(&repeated_area, (int)folding.area);
        atomic_fetch_add(&repeated, folding.times - FOLD_AFTER);
        folding.times = FOLD_AFTER;
    }
}

/* Whether this line is counted instead. */
static bool log_folds(enum tow_log_area area, enum tow_log_level level, const char *message)
{
    if (!atomic_load(&folding.on) || atomic_flag_test_and_set(&folding.used)) {
        return false;
    }
    int64_t now = tow_time_now_ns();
    size_t compared = strnlen(message, sizeof folding.last - 1);
    bool same = strlen(folding.last) == compared && memcmp(folding.last, message, compared) == 0 &&
                folding.area == area && folding.level == level && now - folding.since_ns < FOLD_NS;
    bool folds = same && folding.times >= FOLD_AFTER;
    if (same) {
        folding.times++;
    } else {
        folding_ends();
        folding.times = 1;
        folding.since_ns = now;
        folding.area = area;
        folding.level = level;
        memcpy(folding.last, message, compared);
        folding.last[compared] = '\0';
    }
    atomic_flag_clear(&folding.used);
    return folds;
}

void tow_log_fold(void)
{
    atomic_store(&folding.on, true);
}

/* ---- writing ---- */

static struct tow_log_head log_head(enum tow_log_area area, enum tow_log_level level,
                                    const struct tow_log_about *about)
{
    return (struct tow_log_head){
        .program = program,
        .area = area_names[area],
        .level = level,
        .about = about != NULL ? *about : (struct tow_log_about){0},
        .pid = (int)getpid(),
        .realtime_ns = tow_time_real_ns(),
    };
}

/* One write per line, so that lines of several processes do not mix. */
static void log_put(const char *line, size_t length)
{
    ssize_t written = write(log_fd, line, length);
    (void)written;
}

/* Not inline: only who wants JSON has room for both. */
__attribute__((noinline)) static void log_put_json(const struct tow_log_head *head, char *message)
{
    char line[TOW_LOG_LINE_MAX];
    log_put(line, tow_log_line_json(head, message, line));
}

/* What the log says about itself. */
static void log_say(enum tow_log_area area, const char *sentence)
{
    char line[256];
    enum tow_log_format format = (enum tow_log_format)atomic_load(&log_format);
    struct tow_log_head head = log_head(area, TOW_LOG_WARN, atomic_load(&all_about));
    if (format == TOW_LOG_JSON) {
        snprintf(line, sizeof line, "%s", sentence);
        log_put_json(&head, line);
        return;
    }
    size_t begin = tow_log_line_begin(format, &head, line, sizeof line / 2);
    int length = snprintf(line + begin, sizeof line - begin, "%s\n", sentence);
    log_put(line, begin + (size_t)length);
}

static void tell_repeated(void)
{
    unsigned more = atomic_exchange(&repeated, 0);
    if (more > 0) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "the line above came %u more times", more);
        log_say((enum tow_log_area)atomic_load(&repeated_area), sentence);
    }
}

static void tell_left_out(enum tow_log_area area)
{
    uint64_t missing = atomic_exchange(&left_out, 0);
    if (missing > 0) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "%llu lines were left out here: too many at once",
                 (unsigned long long)missing);
        log_say(area, sentence);
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
        const char *name = tow_log_level_name((enum tow_log_level)i);
        if (strlen(name) == length && memcmp(name, word, length) == 0) {
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
    const char *format_name = getenv("TOWLINE_LOG_FORMAT");
    bool as_json = format_name != NULL && strcmp(format_name, "json") == 0;
    atomic_store(&log_format, as_json ? TOW_LOG_JSON : TOW_LOG_PLAIN);
    if (format_name != NULL && !as_json && strcmp(format_name, "text") != 0 &&
        *format_name != '\0') {
        dprintf(log_fd, "%s: TOWLINE_LOG_FORMAT=%s is not understood; write text or json\n",
                program, format_name);
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

/* Names and texts of others are in it: none begins a line of its own, or moves a cursor. */
static void log_clean(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? ' ' : *at;
    }
}

void tow_log_overhear(void (*hear)(const char *message))
{
    atomic_store(&overhears, hear);
}

/* It says why the GPU's driver does not do something. */
static bool is_reason(enum tow_log_area area, enum tow_log_level level)
{
    return level <= TOW_LOG_WARN && (area == TOW_AREA_BACKEND || area == TOW_AREA_SOFT);
}

static void log_line(enum tow_log_area area, enum tow_log_level level,
                     const struct tow_log_about *about, bool says_session, const char *words,
                     va_list args)
{
    void (*hear)(const char *) = is_reason(area, level) ? atomic_load(&overhears) : NULL;
    bool on = tow_log_on(area, level);
    if (!on && hear == NULL) {
        return;
    }
    int kept_errno = errno;
    char line[TOW_LOG_LINE_MAX];
    enum tow_log_format format = (enum tow_log_format)atomic_load(&log_format);
    struct tow_log_head head = log_head(area, level, about);
    head.says_session = says_session;
    size_t begin =
        format == TOW_LOG_JSON ? 0 : tow_log_line_begin(format, &head, line, sizeof line / 2);
    char *message = line + begin;
    message[0] = '\0';
    vsnprintf(message, sizeof line - begin - 1, words, args);
    if (format != TOW_LOG_JSON) {
        log_clean(message);
    }
    if (hear != NULL) {
        hear(message);
    }
    if (!on || (is_counted(area, level) && (log_folds(area, level, message) || !may_write()))) {
        errno = kept_errno;
        return;
    }
    tell_repeated();
    tell_left_out(area);
    if (format == TOW_LOG_JSON) {
        log_put_json(&head, message);
    } else {
        size_t length = begin + strlen(message);
        line[length] = '\n';
        log_put(line, length + 1);
    }
    errno = kept_errno;
}

void tow_logv(enum tow_log_area area, enum tow_log_level level, const char *format, va_list args)
{
    log_line(area, level, atomic_load(&all_about), false, format, args);
}

void tow_log(enum tow_log_area area, enum tow_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tow_logv(area, level, format, args);
    va_end(args);
}

void tow_log_about(enum tow_log_area area, enum tow_log_level level,
                   const struct tow_log_about *about, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line(area, level, about, true, format, args);
    va_end(args);
}

void tow_log_set_about(const struct tow_log_about *about)
{
    atomic_store(&all_about, about);
}

int tow_log_parse_format(const char *name, enum tow_log_format *ret_format)
{
    for (int i = 0; i <= TOW_LOG_JSON; i++) {
        if (strcmp(name, format_names[i]) == 0) {
            *ret_format = (enum tow_log_format)i;
            return 0;
        }
    }
    return -EINVAL;
}

void tow_log_set_format(enum tow_log_format format)
{
    pthread_once(&once, log_start);
    atomic_store(&log_format, (int)format);
}

bool tow_log_goes_to_journal(void)
{
    pthread_once(&once, log_start);
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat stat;
    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(log_fd, &stat) == 0 && stat.st_dev == device && stat.st_ino == inode;
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

bool tow_log_understands(const char *spec)
{
    unsigned char chosen[TOW_AREA_COUNT];
    return log_parse(spec, chosen) == 0;
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
