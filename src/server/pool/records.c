/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the file of ended sessions, and turns it over. */
#include "server/pool/records.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/log.h"
#include "base/log_line.h"
#include "server/config/config.h"
#include "server/pool/audit.h"
#include "server/pool/worker_pool.h"

enum { LINE_MAX_SIZE = 8 << 10, CHUNK = 64 << 10 };

static int open_one(const char *path, char *why, size_t why_size)
{
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
    struct stat file;
    int error = fd < 0 ? -errno : 0;
    if (fd >= 0 && (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))) {
        close(fd);
        error = -EINVAL;
    }
    if (error < 0) {
        snprintf(why, why_size, "usage-file: %s cannot be written: %s", path,
                 error == -EINVAL ? "it is no plain file" : strerror(-error));
        return error;
    }
    return fd;
}

int tows_records_open(struct tows_records *records, const struct tows_config *config, char *why,
                      size_t why_size)
{
    char older[sizeof config->usage_file + 8];
    *records = (struct tows_records){.fd = -1, .older = -1, .max = config->usage_size};
    if (config->usage_file[0] == '\0') {
        return 0;
    }
    tow_file_mkdir_for(config->usage_file, true); /* that it is missing is said below */
    int fd = open_one(config->usage_file, why, why_size);
    if (fd < 0) {
        return fd;
    }
    snprintf(older, sizeof older, "%s.1", config->usage_file);
    int other = open_one(older, why, why_size);
    if (other < 0) {
        close(fd);
        return other;
    }
    records->fd = fd;
    records->older = other;
    return 0;
}

/* The folder may not be ours any more: the older file gets the bytes, not the name. */
static int turn_over(const struct tows_records *records)
{
    static char bytes[CHUNK];
    off_t at = 0;
    ssize_t n;
    int error = ftruncate(records->older, 0) != 0 ? -errno : 0;
    while (error == 0 && (n = pread(records->fd, bytes, sizeof bytes, at)) > 0) {
        error = tow_file_write_all(records->older, bytes, (size_t)n);
        at += n;
    }
    return error < 0 ? error : ftruncate(records->fd, 0) != 0 ? -errno : 0;
}

static int build_line(const struct tows_worker *worker, int status, struct tow_buf *out)
{
    char tenant[TOW_WHO_TEXT_MAX], began[TOW_LOG_STAMP_MAX], end[TOW_AUDIT_END_MAX];
    const struct tows_session_stats *stats = worker->stats;
    char program[sizeof stats->client + 1] = "";
    struct tow_json json;
    /* Written by the worker at any moment: copied once and ended by ourselves. */
    if (stats->started_ns != 0) {
        memcpy(program, stats->client, sizeof stats->client);
    }
    tow_log_stamp(worker->began_ns, began);
    tows_audit_end(worker, status, end, sizeof end);
    tow_json_init(&json, out);
    tow_json_object(&json, NULL);
    tow_json_u64(&json, "session", worker->session);
    tow_json_str(&json, "began", began);
    tow_json_i64(&json, "began_s", worker->began_ns / TOW_TIME_S);
    tow_json_str(&json, "tenant", tows_who_text(&worker->who, tenant));
    tow_json_str(&json, "class", worker->who.class);
    tow_json_str(&json, "program", program);
    tow_json_str(&json, "from", worker->peer);
    tow_json_f64(&json, "wall_s",
                 (double)(tow_time_now_ns() - worker->since_ns) / (double)TOW_TIME_S);
    tow_json_f64(&json, "waited_s", (double)worker->waited_ns / (double)TOW_TIME_S);
    tow_json_i64(&json, "gpu", stats->device);
    tow_json_u64(&json, "calls", stats->calls);
    tow_json_u64(&json, "launches", stats->launches);
    tow_json_f64(&json, "gpu_s", (double)tows_gates_time(worker) / (double)TOW_TIME_S);
    tow_json_u64(&json, "bytes_in", stats->bytes_in);
    tow_json_u64(&json, "bytes_out", stats->bytes_out);
    tow_json_u64(&json, "gpu_memory", stats->memory_most);
    tow_json_u64(&json, "host_memory", worker->usage.most);
    tow_json_u64(&json, "exclusive", worker->limits.exclusive ? 1 : 0);
    tow_json_str(&json, "ended", end);
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    return error < 0 ? error : tow_buf_append(out, "\n", 1);
}

void tows_records_tell(struct tows_records *records, const struct tows_worker *worker, int status)
{
    struct tow_buf line;
    struct stat file;
    if (records->fd < 0) {
        return;
    }
    tow_buf_init(&line, LINE_MAX_SIZE);
    int error = build_line(worker, status, &line);
    if (error == 0 && records->max != 0 && fstat(records->fd, &file) == 0 && file.st_size > 0 &&
        (uint64_t)file.st_size + line.size > records->max) {
        error = turn_over(records);
    }
    if (error == 0) {
        error = tow_file_write_all(records->fd, line.data, line.size);
    }
    tow_buf_fini(&line);
    if (error < 0 && !records->told) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "usage-file cannot be written: %s; sessions are missing there until it can be",
                strerror(-error));
    }
    records->told = error < 0;
}

void tows_records_close(struct tows_records *records)
{
    if (records->fd >= 0) {
        close(records->fd);
        close(records->older);
    }
    records->fd = records->older = -1;
}
