/* SPDX-License-Identifier: Apache-2.0 */
/* Asking servers how they are, and showing what they say. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_read.h"
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

static int ask_each(char *addresses, bool json, tow_ask_show *show)
{
    int failures = 0;
    bool first = true;
    if (json) {
        printf("[");
    }
    char *rest = addresses;
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
            show(shown, &doc);
        }
        tow_json_doc_fini(&doc);
        tow_buf_fini(&report);
    }
    if (json) {
        printf("]\n");
    }
    return failures == 0 ? 0 : TOW_EXIT_FAILED;
}

const struct tow_flag tow_ask_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, "--json", NULL, 'j'},
    {NULL, NULL, NULL, 0},
};

int tow_ask_main(const struct tow_command *command, int argc, char **argv, tow_ask_show *show)
{
    struct tow_flags flags = {.command = command, .argc = argc, .argv = argv, .at = 1};
    const char *server = NULL, *value;
    bool json = false;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        server = key == 's' ? value : server;
        json |= key == 'j';
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (!tow_flags_no_words(&flags)) {
        return TOW_EXIT_USAGE;
    }
    char address[TOW_CLI_ADDRESS_MAX];
    char why[TOW_WHY_MAX];
    int choice = tow_choose_server(server, address, why, sizeof why);
    if (choice < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    if (choice == TOW_CHOICE_NONE) {
        tow_cli_say(
            "no server was named and none listens on the default socket; start towlined, or name "
            "one: towline %s -s tcp://HOST:4837",
            command->name);
        return TOW_EXIT_FAILED;
    }
    return ask_each(address, json, show);
}
