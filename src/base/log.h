/* SPDX-License-Identifier: Apache-2.0 */
/* Logging for client, server and tools.
 *
 * TOWLINE_LOG chooses what is written: a comma-separated list of LEVEL or AREA=LEVEL, for example
 * "warn", "info,wire=trace" or "off". Without it warnings and errors are written. Lines go to
 * stderr, or to the file that TOWLINE_LOG_FILE names; never to stdout, which belongs to the
 * program. With TOWLINE_LOG_FORMAT=json each is a JSON object.
 */
#ifndef TOW_BASE_LOG_H
#define TOW_BASE_LOG_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum tow_log_level {
    TOW_LOG_OFF,
    TOW_LOG_ERROR, /* the user must act */
    TOW_LOG_WARN,  /* something is not as asked, and we go on */
    TOW_LOG_INFO,
    TOW_LOG_DEBUG,
};

enum tow_log_area {
    TOW_AREA_CLIENT,
    TOW_AREA_SERVER,
    TOW_AREA_BACKEND,
    TOW_AREA_SOFT,
    TOW_AREA_NVML,
    TOW_AREA_AUDIT, /* a line for each session that has ended: never folded, never left out */
    TOW_AREA_COUNT,
};

/* base/log_line.h has what they look like. */
enum tow_log_format {
    TOW_LOG_PLAIN,   /* among what a program writes to its stderr: people read it */
    TOW_LOG_TEXT,    /* a service's: with the time, and the session where it is known */
    TOW_LOG_JOURNAL, /* the same for a journal, which adds the time and the process */
    TOW_LOG_JSON,
};

/* A further member of a line in JSON. */
struct tow_log_field {
    const char *name;
    const char *text; /* NULL: a number */
    double number;
    bool is_whole; /* it is this one */
    uint64_t whole;
};

/* Whom a line is about; what is not known is 0 or NULL. */
struct tow_log_about {
    uint64_t session;
    const char *peer;                   /* where its program is, or was connected from */
    const char *tenant;                 /* whose it is */
    const struct tow_log_field *fields; /* the last has no name; NULL: none */
};

/* True when a line of this area and level would be written: guard expensive arguments with it. */
bool tow_log_on(enum tow_log_area area, enum tow_log_level level);

/* Writes one line (a newline is added). Lines longer than about 4 KiB are cut. */
void tow_log(enum tow_log_area area, enum tow_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tow_logv(enum tow_log_area area, enum tow_log_level level, const char *format, va_list args);

/* The same, with what JSON has beside the message: the message still says it for people. */
void tow_log_about(enum tow_log_area area, enum tow_log_level level,
                   const struct tow_log_about *about, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* All lines of this process are about this; borrowed, must live on. Text has the session's number
 * in each. */
void tow_log_set_about(const struct tow_log_about *about);

/* Replaces TOWLINE_LOG by `spec`; returns -EINVAL and changes nothing if it cannot be understood.
 */
int tow_log_configure(const char *spec);
/* Whether tow_log_configure would take it. */
bool tow_log_understands(const char *spec);

/* Warnings and errors of `backend` and `soft` are told here, too, whether they are written or not:
 * why the GPU's driver refused something. Called by any thread, with its locks held: it only keeps
 * the text. */
void tow_log_overhear(void (*hear)(const char *message));

/* "plain", "text", "journal" or "json"; -EINVAL. */
int tow_log_parse_format(const char *name, enum tow_log_format *ret_format);
/* Replaces TOWLINE_LOG_FORMAT. */
void tow_log_set_format(enum tow_log_format format);
/* Whether lines go to a journal, as systemd says in JOURNAL_STREAM. */
bool tow_log_goes_to_journal(void);

/* Lines that would go to stderr go to this descriptor, for a process that gives its stderr away. */
void tow_log_move(int fd);

/* So many lines are written at once, and a hundredth of them in a second from then on; details and
 * the audit are not counted. Said before anything else is written. */
#define TOW_LOG_LINES 1000
void tow_log_set_limit(unsigned lines);
/* How many of these were used lately. */
unsigned tow_log_used(void);

/* For a server of several processes, which have one limit of lines together. Who has the limit
 * takes so many lines from it, at most `n`, and hands them to another process; unused ones come
 * back. */
unsigned tow_log_take(unsigned n);
void tow_log_give_back(unsigned n);
/* The other process: so many lines it may write, counted down there, which is shared memory and
 * must live on. Details are not counted. */
void tow_log_allow(_Atomic uint32_t *lines);

/* From now on a line that comes more than ten times within a second is counted, not written. */
void tow_log_fold(void);
/* Says how often such a line came, if it does not come any more. The next line would; call it now
 * and then, and (`last`) before the end. */
void tow_log_flush(bool last);

/* The word written before each line ("towline", "towlined"); borrowed, must live on. */
void tow_log_set_program(const char *name);

#endif
