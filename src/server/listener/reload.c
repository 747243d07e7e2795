/* SPDX-License-Identifier: Apache-2.0 */
/* The settings and lists of who may, read again while sessions go on. */
#include "server/listener/reload.h"

#include <stdio.h>

#include "base/log.h"
#include "server/config/logging.h"
#include "server/listener/settings.h"
#include "server/beside/systemd.h"
#include "server/door/pending_conn.h"
#include "server/pool/usage.h"

void tows_reload_look_again(struct tows_server *server)
{
    server->login.changed = false;
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        conn->allowed = false;
    }
    struct tows_worker *worker = server->login.broken ? NULL : server->pool.workers;
    for (; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_BUSY && worker->end_ns == 0 &&
            !tows_login_knows(&server->login, &worker->who)) {
            tows_worker_pool_dismiss(&server->pool, worker, "its token was revoked");
        }
    }
}

/* Its daemon is started with the server. */
static bool is_other_scheduler(const struct tows_config *config, const struct tows_config *old,
                               char *why, size_t why_size)
{
    bool other = (config->scheduler == TOW_CONFIG_MPS) != (old->scheduler == TOW_CONFIG_MPS);
    if (other) {
        snprintf(why, why_size, "scheduler = mps begins and ends with the server: restart it");
    }
    return other;
}

/* Nothing takes effect before all was understood: what is read last changes nothing if it fails. */
void tows_reload_settings(struct tows_server *server)
{
    struct tows_config config;
    struct tows_shaker shaker = {.starter = &server->pool.starter};
    char why[TOW_WHY_MAX];
    int folder;
    tows_systemd_notify("RELOADING=1");
    int error = tows_settings_read(server->login.line, server->argc, server->argv, &config, &folder,
                                   why, sizeof why);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the settings stay as they were: %s", why);
    } else if (is_other_scheduler(&config, &server->config, why, sizeof why) ||
               tows_policy_check_swap(&config, server->pool.backend, why, sizeof why) < 0 ||
               tows_listen_check(&config, server->listeners, server->listener_count, why,
                                 sizeof why) < 0 ||
               tows_logging_read(&config, why, sizeof why) < 0 ||
               tows_shaker_begin(&shaker, &config, server->listeners, server->listener_count, false,
                                 why, sizeof why) < 0 ||
               tows_login_read(&config, &server->login, why, sizeof why) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the settings stay as they were: %s", why);
        tows_shaker_stop(&shaker);
        tows_settings_decide(server->login.line, &server->pool.writer, false, folder);
    } else {
        tows_shaker_stop(&server->shaker);
        server->shaker = shaker;
        tows_settings_decide(server->login.line, &server->pool.writer, true, folder);
        if (tows_config_keep(&config, &server->config)) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                    "other addresses, http-name, http-dcgm, other permissions of sockets, another "
                    "user, another file of ended sessions, another restart-dir and other walls "
                    "need a restart: these "
                    "stay");
        }
        tows_usage_defaults(&config);
        server->config = config;
        tows_reload_look_again(server);
        tows_logging_apply(&config);
        /* Workers that were started ahead have the old settings. */
        for (struct tows_worker *worker = server->pool.workers; worker != NULL;
             worker = worker->next) {
            if (worker->state != TOW_WORKER_BUSY) {
                tows_worker_pool_end(&server->pool, worker);
            }
        }
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the settings were read again");
    }
    tows_systemd_notify("READY=1");
}
