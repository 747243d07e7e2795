/* SPDX-License-Identifier: Apache-2.0 */
/* Asking servers how they are, and showing what they say. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_read.h"
#include "wire/report.h"
#include "transport/address.h"

/* Control characters are spaces in JSON, or a server's that wants to move the cursor. */
static void ask_print(const char *address, const struct tow_buf *report)
{
    printf("{\"address\":\"%s\",\"report\":", address);
    for (size_t i = 0; i < report->size; i++) {
        putchar(report->data[i] < ' ' || report->data[i] == 0x7f ? ' ' : report->data[i]);
    }
    printf("}");
}

/* How many GPUs a server has. */
static unsigned ask_gpus(const struct tow_json_doc *doc)
{
    struct tow_report_gpu gpu;
    unsigned count = 0;
    while (tow_report_gpu(doc, count, &gpu)) {
        count++;
    }
    return count;
}

static int ask_each(const char *addresses, bool json, tow_ask_show *show)
{
    int failures = 0;
    unsigned first_gpu = 0;
    bool first = true;
    char list[TOW_CLI_ADDRESS_MAX];
    snprintf(list, sizeof list, "%s", addresses);
    if (json) {
        printf("[");
    }
    char *rest = list;
    const char *address;
    while ((address = tow_address_next(&rest)) != NULL) {
        char shown[TOW_ADDRESS_MAX];
        tow_transport_as_written(address, shown);
        struct tow_buf report;
        tow_buf_init(&report, TOW_FRAME_MAX);
        char why[TOW_WHY_MAX] = "";
        struct tow_json_doc doc = {0};
        int error = tow_ask_report(address, 0, &report, why, sizeof why);
        if (error == 0) {
            error = tow_json_doc_parse((const char *)report.data, report.size, &doc);
            if (error < 0) {
                snprintf(why, sizeof why, "%s sent a report that cannot be read", shown);
            }
        }
        if (error < 0) {
            tow_cli_say("%s", why);
            failures++;
        } else if (json) {
            printf("%s", first ? "" : ",");
            ask_print(shown, &report);
            first = false;
        } else {
            show(shown, &doc, first_gpu);
            first_gpu += ask_gpus(&doc);
        }
        tow_json_doc_fini(&doc);
        tow_buf_fini(&report);
    }
    if (json) {
        printf("]\n");
    }
    return failures == 0 ? 0 : TOW_EXIT_FAILED;
}

/* Until somebody ends it, or nobody reads. */
static int ask_watch(const char *addresses, bool json, tow_ask_show *show)
{
    bool clears = !json && tow_cli_colour(stdout, TOW_BOLD)[0] != '\0';
    do {
        fputs(clears ? "\033[H\033[2J" : "", stdout);
        ask_each(addresses, json, show);
        if (!clears && !json) {
            printf("\n");
        }
        if (fflush(stdout) != 0) {
            return TOW_EXIT_FAILED;
        }
        tow_time_sleep(2 * TOW_TIME_S);
    } while (true);
}

const struct tow_flag tow_ask_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, "--json", NULL, 'j'},
    {"-w", "--watch", NULL, 'w'},
    {NULL, NULL, NULL, 0},
};

bool tow_choose_to_ask(const struct tow_command *command, const char *flag,
                       char ret_address[TOW_CLI_ADDRESS_MAX])
{
    char why[TOW_WHY_MAX];
    int choice = tow_choose_server(flag, ret_address, why, sizeof why);
    if (choice < 0) {
        tow_cli_say("%s", why);
    } else if (choice == TOW_CHOICE_NONE) {
        tow_cli_say(
            "no server was named and none listens on the default socket; start towlined, or name "
            "one: towline %s -s tcp://HOST:4837",
            command->name);
    }
    return choice >= 0 && choice != TOW_CHOICE_NONE;
}

int tow_ask_main(const struct tow_command *command, int argc, char **argv, tow_ask_show *show)
{
    struct tow_flags flags = {.command = command, .argc = argc, .argv = argv, .at = 1};
    const char *server = NULL, *value;
    bool json = false, watch = false;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        server = key == 's' ? value : server;
        json |= key == 'j';
        watch |= key == 'w';
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (!tow_flags_no_words(&flags)) {
        return TOW_EXIT_USAGE;
    }
    char address[TOW_CLI_ADDRESS_MAX];
    if (!tow_choose_to_ask(command, server, address)) {
        return TOW_EXIT_FAILED;
    }
    return watch ? ask_watch(address, json, show) : ask_each(address, json, show);
}
