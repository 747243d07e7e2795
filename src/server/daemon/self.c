/* SPDX-License-Identifier: Apache-2.0 */
/* Serves a program from inside its own process. */
#include "server/daemon/self.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/config/config.h"
#include "server/pool/export_registry.h"
#include "server/run/run.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

struct self {
    struct tow_line *line; /* owned */
    struct tow_backend backend;
    struct tows_config config;
};

/* Descriptors that this program exports to itself. */
static struct {
    struct tow_mutex lock; /* guards the rest */
    struct tows_export_registry table;
    unsigned count;
} exports = {.lock = TOW_MUTEX(SERVER_SELF)};

static int self_keep(int fd, struct tow_token *ret_token)
{
    tow_mutex_lock(&exports.lock);
    if (exports.table.max == 0) {
        tows_export_registry_init(&exports.table);
    }
    int error = tows_export_registry_add(&exports.table, &exports, &exports.count, fd, ret_token);
    tow_mutex_unlock(&exports.lock);
    return error;
}

static int self_get(const struct tow_token *token)
{
    tow_mutex_lock(&exports.lock);
    int fd = tows_export_registry_find(&exports.table, token);
    int own = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : fd;
    int error = fd >= 0 && own < 0 ? -errno : own;
    tow_mutex_unlock(&exports.lock);
    return error;
}

static void self_forget(const struct tow_token *token)
{
    tow_mutex_lock(&exports.lock);
    tows_export_registry_forget(&exports.table, &exports, &exports.count, token);
    tow_mutex_unlock(&exports.lock);
}

static const struct tows_export_ops export_ops = {self_keep, self_get, self_forget};

static void *self_serve(void *arg)
{
    struct self *self = arg;
    char code_cache[TOW_CONFIG_TEXT_MAX + 16];
    tows_worker_code_cache(&self->config, code_cache, sizeof code_cache);
    struct tows_session_options options = {
        .id = 1,
        .code_cache = code_cache[0] == '\0' ? NULL : code_cache,
        .code_cache_max = self->config.code_cache,
        .suspend_every = self->config.soft_suspend,
        .record_every = self->config.soft_record,
        .in_process = true,
        .exports = &export_ops,
    };
    int error = tows_session_run(self->line, &self->backend, &options);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the session inside this program ended: %s",
                strerror(-error));
    }
    tow_mutex_lock(&exports.lock);
    tows_export_registry_end(&exports.table, &exports, &exports.count);
    tow_mutex_unlock(&exports.lock);
    tow_line_close(self->line);
    self->backend.close(&self->backend);
    free(self);
    return NULL;
}

__attribute__((visibility("default"))) int tow_self_start(const char *what, struct tow_line *line,
                                                          char *why, size_t why_size)
{
    struct self *self = calloc(1, sizeof *self);
    if (self == NULL) {
        tow_line_close(line);
        snprintf(why, why_size, "out of memory");
        return -ENOMEM;
    }
    self->line = line;
    tows_config_defaults(&self->config);
    const char *device = getenv("TOWLINE_DEVICE");
    bool settings = strchr(what, '=') != NULL;
    if (!settings && what[0] != '\0') {
        device = what;
    }
    if (device != NULL && strlen(device) < sizeof self->config.device) {
        snprintf(self->config.device, sizeof self->config.device, "%s", device);
    }
    int error = tows_config_apply(&self->config, settings ? what : "", "self:", why, why_size);
    if (error == 0) {
        error = tows_worker_open(&self->config, &self->backend, why, why_size);
    }
    if (error < 0) {
        tow_line_close(line);
        free(self);
        return error;
    }
    pthread_t thread;
    error = tow_thread_start("tow-self", self_serve, self, &thread);
    if (error < 0) {
        snprintf(why, why_size, "no thread can be had: %s", strerror(-error));
        self->backend.close(&self->backend);
        tow_line_close(line);
        free(self);
        return error;
    }
    pthread_detach(thread);
    return 0;
}
