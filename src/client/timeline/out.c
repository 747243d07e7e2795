/* SPDX-License-Identifier: Apache-2.0 */
/* The file: an array of events, one on each line, so that what a killed program leaves can be read.
 * Chrome's format lets the array's end be missing. */
#include "client/timeline/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/log.h"

enum { BUFFER = 128 << 10, EVENT_MAX = 4096, NAMES_TRIED = 100 };

/* ---- which file ---- */

/* A file of that name that nobody has written into; -EEXIST if somebody has, or is about to. */
static int open_empty(const char *path)
{
    struct stat status;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return -errno;
    }
    int error = 0;
    if (fstat(fd, &status) != 0) {
        error = -errno;
    } else if (S_ISREG(status.st_mode) && (flock(fd, LOCK_EX | LOCK_NB) != 0 ||
                                           fstat(fd, &status) != 0 || status.st_size != 0)) {
        error = -EEXIST;
    }
    if (error < 0) {
        close(fd);
        return error;
    }
    return fd;
}

int towc_out_open(struct towc_out *out, const char *path, int64_t zero_ns)
{
    char first[PATH_MAX];
    int error = tow_file_of_process(path, first);
    int fd = error < 0 ? error : open_empty(first);
    snprintf(out->path, sizeof out->path, "%s", first);
    for (int i = 1; fd == -EEXIST && i < NAMES_TRIED; i++) {
        char more[24] = "";
        if (i > 1) {
            snprintf(more, sizeof more, ".%d", i);
        }
        int length = snprintf(out->path, sizeof out->path, "%s.%d%s", first, (int)getpid(), more);
        fd = length < (int)sizeof out->path ? open_empty(out->path) : -ENAMETOOLONG;
    }
    if (fd < 0) {
        return fd;
    }
    if (strcmp(out->path, first) != 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "%s is written already: this process's timeline is in %s", first, out->path);
    }
    char *buffer = malloc(BUFFER);
    if (buffer == NULL) {
        close(fd);
        return -ENOMEM;
    }
    out->fd = fd;
    out->buffer = buffer;
    out->used = 0;
    out->size = out->left_out = 0;
    out->error = 0;
    out->zero_ns = zero_ns;
    return 0;
}

int towc_out_flush(struct towc_out *out)
{
    int error = 0;
    if (out->used > 0 && out->error == 0) {
        error = tow_file_write_all(out->fd, out->buffer, out->used);
        out->error = error;
    }
    out->used = 0;
    if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR,
                "the timeline %s cannot be written any more: %s; it has what came before",
                out->path, strerror(-error));
    }
    return error;
}

/* ---- events ---- */

/* An event is written here before it is known whether there is room for it. */
struct line {
    char text[EVENT_MAX];
    size_t used;
};

static void put_bytes(struct line *line, const char *bytes, size_t n)
{
    n = n < sizeof line->text - line->used ? n : sizeof line->text - line->used;
    memcpy(line->text + line->used, bytes, n);
    line->used += n;
}

#define PUT_WORD(line, word) put_bytes(line, word, sizeof(word) - 1)

static void put_text(struct line *line, const char *text)
{
    put_bytes(line, text, strlen(text));
}

static void put_number(struct line *line, uint64_t value)
{
    char digits[24], *end = digits + sizeof digits, *at = end;
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put_bytes(line, at, (size_t)(end - at));
}

static void put_hex(struct line *line, uint64_t value)
{
    char digits[16], *end = digits + sizeof digits, *at = end;
    do {
        *--at = "0123456789abcdef"[value % 16];
        value /= 16;
    } while (value > 0);
    put_bytes(line, at, (size_t)(end - at));
}

/* Microseconds, to the nanosecond. */
static void put_us(struct line *line, int64_t ns)
{
    uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    unsigned rest = (unsigned)(value % 1000);
    char parts[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                     (char)('0' + rest % 10)};
    put_number(line, value / 1000);
    put_bytes(line, parts, sizeof parts);
}

/* What is true of all of it has room even then. */
static void keep_line(struct towc_out *out, const struct line *line, bool must)
{
    if (out->error != 0 || line->used == sizeof line->text ||
        (!must && out->size + line->used > TOW_TIMELINE_FILE_MAX)) {
        out->left_out++;
        return;
    }
    if (out->used + line->used + 2 > BUFFER) {
        towc_out_flush(out);
    }
    const char *between = out->size == 0 ? "[" : ",\n";
    size_t n = strlen(between);
    memcpy(out->buffer + out->used, between, n);
    memcpy(out->buffer + out->used + n, line->text, line->used);
    out->used += n + line->used;
    out->size += n + line->used;
}

static void put_args(struct line *line, const struct towc_out_event *event)
{
    for (unsigned i = 0; i < event->arg_count; i++) {
        put_text(line, i == 0 ? ",\"args\":{\"" : ",\"");
        put_text(line, event->args[i].name);
        PUT_WORD(line, "\":");
        if (event->args[i].is_us) {
            put_us(line, (int64_t)event->args[i].value);
        } else {
            put_number(line, event->args[i].value);
        }
    }
    put_text(line, event->arg_count > 0 ? "}}" : "}");
}

void towc_out_span(struct towc_out *out, const struct towc_out_event *event)
{
    struct line line;
    int64_t began = event->began_ns - out->zero_ns, ended = event->ended_ns - out->zero_ns;
    began = began > 0 ? began : 0;
    line.used = 0;
    PUT_WORD(&line, "{\"ph\":\"X\",\"pid\":");
    put_number(&line, event->process);
    PUT_WORD(&line, ",\"tid\":");
    put_number(&line, event->thread);
    PUT_WORD(&line, ",\"ts\":");
    put_us(&line, began);
    PUT_WORD(&line, ",\"dur\":");
    put_us(&line, ended - began);
    PUT_WORD(&line, ",\"cat\":\"");
    put_text(&line, event->kind);
    PUT_WORD(&line, "\",\"name\":");
    put_text(&line, event->name);
    if (event->flow != 0) {
        PUT_WORD(&line, ",\"bind_id\":\"0x");
        put_hex(&line, event->flow);
        put_text(&line, event->kind[0] == 'c' && event->kind[1] == 'a' ? "\",\"flow_out\":true"
                                                                       : "\",\"flow_in\":true");
    }
    put_args(&line, event);
    keep_line(out, &line, false);
}

void towc_out_count(struct towc_out *out, const struct towc_out_event *event)
{
    struct line line;
    line.used = 0;
    PUT_WORD(&line, "{\"ph\":\"C\",\"pid\":");
    put_number(&line, event->process);
    PUT_WORD(&line, ",\"ts\":");
    put_us(&line, event->began_ns - out->zero_ns);
    PUT_WORD(&line, ",\"name\":");
    put_text(&line, event->name);
    put_args(&line, event);
    keep_line(out, &line, false);
}

void towc_out_fact(struct towc_out *out, uint32_t process, uint32_t thread, const char *name,
                   const char *text)
{
    struct line line;
    line.used = 0;
    PUT_WORD(&line, "{\"ph\":\"M\",\"pid\":");
    put_number(&line, process);
    if (thread != 0) {
        PUT_WORD(&line, ",\"tid\":");
        put_number(&line, thread);
    }
    PUT_WORD(&line, ",\"name\":\"");
    put_text(&line, name);
    PUT_WORD(&line, "\",\"args\":");
    put_text(&line, text);
    PUT_WORD(&line, "}");
    keep_line(out, &line, true);
}

void towc_out_name(struct towc_out *out, uint32_t process, uint32_t thread, const char *name)
{
    char memory[EVENT_MAX / 2];
    struct tow_buf text;
    struct tow_json json;
    tow_buf_init_on(&text, memory, sizeof memory);
    tow_json_init(&json, &text);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "name", name);
    tow_json_end(&json);
    if (tow_json_finish(&json) == 0 && tow_buf_append(&text, "", 1) == 0) {
        towc_out_fact(out, process, thread, thread != 0 ? "thread_name" : "process_name", memory);
    }
}

void towc_out_close(struct towc_out *out)
{
    static const char end[] = "\n]\n";
    towc_out_flush(out);
    if (out->error == 0 && out->size > 0) {
        memcpy(out->buffer, end, sizeof end - 1);
        out->used = sizeof end - 1;
        towc_out_flush(out);
    }
    close(out->fd);
    free(out->buffer);
    out->fd = -1;
    out->buffer = NULL;
}
