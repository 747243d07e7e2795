/* SPDX-License-Identifier: Apache-2.0 */
/* towlined: the listener, or with --worker one session's process. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/config/config.h"
#include "server/daemon/begin.h"
#include "server/daemon/drain.h"
#include "server/config/logging.h"
#include "server/beside/shaker.h"
#include "server/daemon/token.h"
#include "server/web/web.h"
#include "server/worker/worker.h"
#include "wire/limits.h"

int main(int argc, char **argv)
{
    tow_log_set_program("towlined");
    static struct tows_config config;
    char why[1024];
    if (argc > 1 && strcmp(argv[1], "drain") == 0) {
        return tows_drain_main(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "token") == 0) {
        return tows_token_main(argc - 1, argv + 1);
    }
    int outcome = tows_config_load(argc, argv, &config, why, sizeof why);
    if (outcome < 0) {
        fprintf(stderr, "towlined: %s.\n", why);
        return 2;
    }
    if (outcome == TOW_CONFIG_HELP) {
        tows_config_print_help();
        return 0;
    }
    if (outcome == TOW_CONFIG_VERSION) {
        printf("towlined %s, protocol %u\n", TOWLINE_VERSION, TOW_PROTOCOL_MAX);
        return 0;
    }
    if (tows_logging_read(&config, why, sizeof why) < 0) {
        fprintf(stderr, "towlined: %s.\n", why);
        return 2;
    }
    tows_logging_apply(&config);
    tow_log_fold();
    return config.worker   ? tows_worker_main(&config)
           : config.shaker ? tows_shaker_main(&config)
           : config.web    ? tows_web_main(&config)
                           : tows_begin_main(&config, argc, argv);
}
