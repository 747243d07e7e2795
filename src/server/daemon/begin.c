/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's begin and end: what needs rights, the split, then the loop. */
#include "server/daemon/begin.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/beside/mps.h"
#include "server/beside/systemd.h"
#include "server/daemon/split.h"
#include "server/listener/listen.h"
#include "server/listener/listener.h"
#include "server/listener/login.h"
#include "server/login/policy.h"
#include "server/pool/fetch.h"
#include "server/pool/usage.h"
#include "server/walls/devices.h"
#include "server/walls/walls.h"

enum {
    BEGIN_STARTS_MIN = 4, /* workers that may start at once; more where there are more cores */
};

static int begin_signals(struct tows_server *server)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return -errno;
    }
    signal(SIGPIPE, SIG_IGN);
    server->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return server->signals < 0 ? -errno : 0;
}

/* Where sessions wait for the next server. */
static int open_meeting(struct tows_meeting *meeting, const struct tows_config *config,
                        const struct tows_split *split, char *why, size_t why_size)
{
    if (split->on && config->restart_dir[0] != '\0' && config->tenant_users.count == 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "restart-dir does nothing where tenants have no users of their own: by these the "
                "next server's parent would know its workers");
        return 0;
    }
    return tows_meeting_open(meeting, config, split->on ? split->group : 0, why, why_size);
}

/* What needs rights: the server's sockets, the groups of workers. Then it is split, where it can
 * be. 1: this was the parent, and all is over, with the program's exit code. */
static int begin_server(struct tows_server *server, int *ret_code, char *why, size_t why_size)
{
    static struct tows_parent parent;
    struct tows_config *config = &server->config;
    struct tows_cgroups groups = {.on = false};
    struct tows_split split = {.on = false};
    struct tows_records records = {.fd = -1, .older = -1};
    struct tows_meeting meeting = {.folder = -1, .lock = -1};
    int line = -1, folder = -1;
    int error = tows_split_choose(config, &split, why, why_size);
    if (error == 0) {
        tows_walls_choose_users(config);
        tows_cgroups_open(&groups, config, server->groups_said, sizeof server->groups_said);
        error = tows_listen_start(config, server->listeners, &server->listener_count);
    }
    if (error == 0) {
        error = open_meeting(&meeting, config, &split, why, why_size);
    }
    if (error == 0) {
        error = tows_records_open(&records, config, why, why_size); /* while it may */
    }
    if (error == 0) {
        error = tows_web_host_listen(config, &server->http, why, why_size);
    }
    error = error < 0 ? error
                      : tows_listen_check(config, server->listeners, server->listener_count, why,
                                          why_size);
    if (error == 0 && split.on) {
        tows_parent_init(&parent, config, -1);
        parent.starter.groups = groups;
        parent.argc = server->argc;
        parent.argv = server->argv;
        server->listeners[server->listener_count] = server->http; /* for the parent to close */
        error = tows_split_do(&split, &parent, config, server->listeners,
                              server->listener_count + (server->http != NULL), server->signals,
                              &line, &folder, ret_code, why, why_size);
    }
    if (error > 0) {
        return error;
    }
    tows_worker_pool_init(&server->pool, config);
    server->pool.records = records;
    server->pool.meeting = meeting;
    if (line < 0) {
        server->pool.starter.groups = groups;
        return error;
    }
    if (groups.on) {
        close(groups.folder); /* the parent's */
    }
    tows_parent_line_init(&server->line, line);
    server->pool.starter.line = server->login.line = &server->line;
    tows_cache_writer_move(&server->pool.writer, folder);
    tows_systemd_relay(&server->line);
    return 0;
}

int tows_begin_main(const struct tows_config *config, int argc, char **argv)
{
    static struct tows_server server;
    char why[TOW_WHY_MAX] = "";
    server.config = *config;
    tows_usage_defaults(&server.config);
    server.argc = argc;
    server.argv = argv;
    server.monitored = -1;
    server.started_ns = tow_time_now_ns();
    server.watchdog_every_ns = tows_systemd_watchdog();
    int error = begin_signals(&server);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "signals cannot be received: %s", strerror(-error));
        return 1;
    }
    if (config->watch_pid != 0) {
        server.monitored = (int)syscall(SYS_pidfd_open, (pid_t)config->watch_pid, 0);
    }
    server.owner = geteuid();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    server.starts = cores > BEGIN_STARTS_MIN / 2 ? 2 * (unsigned)cores : BEGIN_STARTS_MIN;
    tows_door_init(&server.door);
    tows_devices_make(config);
    error = tows_policy_check_mps(config, why, sizeof why);
    error = error < 0 ? error : tows_mps_start(config, why, sizeof why);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
        tows_listen_tell(&server.config, "failed", why);
        return 1;
    }
    if (config->walls != 0) {
        tows_walls_hide();
    }
    int code = 0;
    error = begin_server(&server, &code, why, sizeof why);
    if (error > 0) {
        tows_mps_stop();
        return code;
    }
    if (error == 0) {
        server.login.authorities = server.shaker.authorities;
        server.login.owner = server.owner;
        server.shaker.starter = &server.pool.starter;
        server.web =
            (struct tows_web_host){.starter = &server.pool.starter, .listener = server.http};
        error = tows_login_read(&server.config, &server.login, why, sizeof why);
        error = error < 0 ? error
                          : tows_shaker_begin(&server.shaker, &server.config, server.listeners,
                                              server.listener_count, true, why, sizeof why);
    }
    if (error < 0 && why[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
    }
    if (error < 0) {
        tows_listen_tell(&server.config, "failed", "it cannot listen");
    } else {
        /* Before anybody is heard: what they have counts. */
        server.login.changed = tows_fetch_sessions(&server.pool) > 0;
        if (server.login.changed) {
            tows_systemd_notify("READY=1\nSTATUS=Serves sessions of the server before on");
        }
        tows_usage_allow_threads(&server.pool);
        tows_listener_run(&server);
    }
    tows_systemd_notify("STOPPING=1");
    /* First the sockets, so that nobody new comes; then the sessions. */
    for (unsigned i = 0; i < server.listener_count; i++) {
        tow_listener_close(server.listeners[i]);
    }
    tows_door_fini(&server.door);
    tows_queue_fini(&server.queue);
    tows_worker_pool_fini(&server.pool,
                          server.leaving ? "it is being started again" : "it is being shut down",
                          server.leaving);
    tows_records_close(&server.pool.records);
    tows_gauge_stop(&server.gauge);
    tows_shaker_stop(&server.shaker);
    tows_web_host_stop(&server.web);
    tow_listener_close(server.http);
    tows_cgroups_close(&server.pool.starter.groups);
    if (config->private_dir[0] != '\0') {
        rmdir(config->private_dir);
    }
    tows_mps_stop();
    tows_login_fini(&server.login);
    tow_log_flush(true);
    free(server.polls);
    free(server.sources);
    close(server.signals);
    if (server.monitored >= 0) {
        close(server.monitored);
    }
    bool left = server.leaving && tows_server_has_parent(&server);
    return error < 0 || server.failed ? 1 : left ? TOW_PARENT_LEFT : 0;
}
