/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the order to where the server listens. */
#include "server/daemon/drain.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json_read.h"
#include "server/config/config.h"
#include "transport/address.h"
#include "transport/choose.h"
#include "wire/control.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char help[] =
    "towlined drain [FLAGS]: the server of this machine serves no new programs, and ends with the\n"
    "last of its sessions.\n"
    "\n"
    "  towlined drain\n"
    "  towlined drain -l /run/user/1000/gpu.sock\n"
    "\n"
    "With the flags that the server was started with: where it listens by -l or the config file\n"
    "it is asked; without any on the default socket, for who is not root that of one's own "
    "server.\n"
    "Root may, the user who runs the server, and its admin-users, by a unix socket.\n";

/* What the server said: how many sessions go on, or -1. */
static double read_count(const struct tow_buf *report)
{
    struct tow_json_doc doc = {0};
    double count = -1;
    if (tow_json_doc_parse((const char *)report->data, report->size, &doc) == 0 &&
        tow_json_member(&doc, doc.values, "drain") != NULL) {
        count = tow_json_number(&doc, doc.values, "drain");
    }
    tow_json_doc_fini(&doc);
    return count;
}

/* Sends the order to where a server listens; on a network it is refused. */
static int drain_one(const char *listen, char *why, size_t why_size)
{
    char address[TOW_ADDRESS_MAX];
    int error = tow_address_read(listen, address, why, why_size);
    if (error < 0) {
        return error;
    }
    struct tow_buf report;
    tow_buf_init(&report, TOW_FRAME_MAX);
    error = tow_ask(address, &(struct tow_status){.topics = TOW_STATUS_DRAIN},
                    tow_time_deadline(TOW_CONNECT_TIMEOUT_NS), &report, why, why_size);
    double left = error < 0 ? -1 : read_count(&report);
    tow_buf_fini(&report);
    if (error == 0 && left < 0) {
        snprintf(why, why_size, "%s does not know this order: it is older; send SIGUSR1 to it",
                 address);
        return -ENOTSUP;
    }
    if (error == 0) {
        printf("%s serves no new programs and ends with the last of %.0f sessions.\n", address,
               left);
    }
    return error;
}

int tows_drain_main(int argc, char **argv)
{
    static struct tows_config config;
    char why[TOW_WHY_MAX] = "", ignored[TOW_WHY_MAX], path[TOW_CONFIG_TEXT_MAX];
    int outcome = tows_config_load(argc, argv, &config, why, sizeof why);
    if (outcome < 0) {
        fprintf(stderr, "towlined: %s.\n", why);
        return EXIT_USAGE;
    }
    if (outcome != TOW_CONFIG_GO) {
        fputs(help, stdout);
        return 0;
    }
    int error = -ENOENT;
    for (unsigned i = 0; i < config.listen_count && error < 0; i++) {
        error = drain_one(config.listen[i], i == 0 ? why : ignored, sizeof why);
    }
    if (config.listen_count == 0 && tow_file_default_socket(path, sizeof path) == 0) {
        error = drain_one(path, why, sizeof why);
    } else if (config.listen_count == 0) {
        snprintf(
            why, sizeof why,
            "no server of this user is known; name its socket, as -l " TOW_FILE_MACHINE_SOCKET);
    }
    if (error < 0) {
        fprintf(stderr, "towlined: %s.\n", why);
    }
    return error < 0 ? EXIT_FAILED : 0;
}
