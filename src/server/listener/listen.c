/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the sockets that a server listens on. */
#include "server/listener/listen.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "server/beside/systemd.h"
#include "server/login/allow.h"

static int listen_add(struct tows_config *config, const char *address,
                      struct tow_listener *listeners[TOW_LISTEN_MAX], unsigned *count)
{
    char why[TOW_WHY_MAX];
    struct tow_listener *listener;
    int error = tow_listener_open(address, (mode_t)config->socket_mode, why, sizeof why, &listener);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
        return error;
    }
    listeners[(*count)++] = listener;
    config->tls |= tow_transport_encrypts(listener->kind);
    return 0;
}

/* A socket that systemd opened for us; its file is systemd's to remove. */
static int listen_adopt(int fd, struct tow_listener *listeners[TOW_LISTEN_MAX], unsigned *count)
{
    struct tow_listener *listener = NULL;
    int error = tow_listener_adopt(fd, &listener);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "descriptor %d, which LISTEN_FDS names, is not a socket", fd);
        return error;
    }
    listeners[(*count)++] = listener;
    return 0;
}

int tows_listen_start(struct tows_config *config, struct tow_listener *listeners[TOW_LISTEN_MAX],
                      unsigned *count)
{
    int inherited = tows_systemd_sockets();
    for (int i = 0; i < inherited; i++) {
        int error = listen_adopt(3 + i, listeners, count);
        if (error < 0) {
            return error;
        }
    }
    if (config->private_dir[0] != '\0') {
        char address[TOW_CONFIG_TEXT_MAX + 16];
        snprintf(address, sizeof address, "unix://%s/sock", config->private_dir);
        return listen_add(config, address, listeners, count);
    }
    for (unsigned i = 0; i < config->listen_count; i++) {
        int error = listen_add(config, config->listen[i], listeners, count);
        if (error < 0) {
            return error;
        }
    }
    if (config->listen_count > 0 || inherited > 0) {
        return 0;
    }
    /* Nobody said where: this machine only. */
    char path[TOW_CONFIG_TEXT_MAX];
    char address[TOW_CONFIG_TEXT_MAX + 16];
    if (tow_file_default_socket(path, sizeof path) == 0) {
        snprintf(address, sizeof address, "unix://%s", path);
        int error = listen_add(config, address, listeners, count);
        if (error < 0) {
            return error;
        }
    }
    snprintf(address, sizeof address, "tcp://127.0.0.1:%d", TOW_DEFAULT_PORT);
    return listen_add(config, address, listeners, count);
}

int tows_listen_check(const struct tows_config *config, struct tow_listener *const *listeners,
                      unsigned count, char *why, size_t why_size)
{
    int error = 0;
    for (unsigned i = 0; i < count && error == 0; i++) {
        const struct tow_listener *listener = listeners[i];
        error = tows_allow_listen(config, listener->fd, listener->address,
                                  tow_transport_encrypts(listener->kind), why, why_size);
    }
    return error;
}

void tows_listen_tell(struct tows_config *config, const char *word, const char *text)
{
    if (config->ready_fd == 0) {
        return;
    }
    char line[1024];
    int length = snprintf(line, sizeof line, "%s %s\n", word, text);
    if (length > 0) {
        tow_file_write_all((int)config->ready_fd, line,
                           (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
    }
    close((int)config->ready_fd);
    config->ready_fd = 0;
}
