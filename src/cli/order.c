/* SPDX-License-Identifier: Apache-2.0 */
/* Orders for sessions of a server: end, suspend, resume. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "transport/address.h"

static bool order_is_known(const char *name, const struct tow_buf *report)
{
    struct tow_json_doc doc = {0};
    bool known = tow_json_doc_parse((const char *)report->data, report->size, &doc) == 0 &&
                 tow_json_member(&doc, doc.values, name) != NULL;
    tow_json_doc_fini(&doc);
    return known;
}

int tow_order_session(const char *address, const char *name, const struct tow_status *order,
                      int64_t limit_ns, char *why, size_t why_size)
{
    struct tow_buf report;
    tow_buf_init(&report, TOW_FRAME_MAX);
    int error = tow_ask(address, order, tow_time_deadline(limit_ns), &report, why, why_size);
    if (error == 0 && !order_is_known(name, &report)) {
        snprintf(why, why_size,
                 "%s is too old to %s a session; end its worker, whose number towline status "
                 "--json has, or install a newer Towline there",
                 address, name);
        error = -ENOTSUP;
    }
    tow_buf_fini(&report);
    return error;
}

static int order_one(const char *address, const struct tow_order *order,
                     const struct tow_status *status)
{
    char why[TOW_WHY_MAX], shown[TOW_ADDRESS_MAX];
    if (tow_order_session(address, order->command->name, status, order->limit_ns, why, sizeof why) <
        0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    tow_transport_as_written(address, shown);
    printf("%s %s session %llu\n", shown, order->done, (unsigned long long)status->session);
    return 0;
}

static bool read_number(const char *word, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(word, &end, 10);
    *ret_number = number;
    return errno == 0 && *end == '\0' && word[0] >= '0' && word[0] <= '9';
}

int tow_order_main(struct tow_order *order, int argc, char **argv)
{
    struct tow_flags flags = {.command = order->command, .argc = argc, .argv = argv, .at = 1};
    struct tow_status status = {.topics = order->topic};
    const char *server = NULL, *value, *name = order->command->name;
    char addresses[TOW_CLI_ADDRESS_MAX], why[TOW_WHY_MAX];
    int key;
    uint64_t seconds = order->seconds;
    bool good = true;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        if (key == 's') {
            server = value;
        } else {
            good &= read_number(value, &seconds) && seconds <= TOW_ORDER_SECONDS_MAX;
        }
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (!good) {
        tow_cli_say("--limit is a number of seconds, %d at most; see towline %s --help",
                    TOW_ORDER_SECONDS_MAX, name);
        return TOW_EXIT_USAGE;
    }
    good = flags.words > 0;
    for (int i = 1; i <= flags.words; i++) {
        good &= read_number(argv[i], &status.session);
    }
    if (!good) {
        tow_cli_say("name sessions by their numbers, as towline status shows them; see towline %s "
                    "--help",
                    name);
        return TOW_EXIT_USAGE;
    }
    status.limit_ms = (uint32_t)seconds * 1000;
    order->limit_ns += (int64_t)seconds * TOW_TIME_S;
    int choice = tow_choose_server(server, addresses, why, sizeof why);
    if (choice < 0 || choice == TOW_CHOICE_NONE || strchr(addresses, ',') != NULL) {
        if (choice >= 0) {
            snprintf(why, sizeof why, "name one server: towline %s -s ADDRESS SESSION", name);
        }
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    int code = 0;
    for (int i = 1; i <= flags.words; i++) {
        read_number(argv[i], &status.session);
        int one = order_one(addresses, order, &status);
        code = one != 0 ? one : code;
    }
    return code;
}
