/* SPDX-License-Identifier: Apache-2.0 */
/* `towline end`: ends a session of a server. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "transport/address.h"
#include "wire/control.h"

static bool end_knows(const struct tow_buf *report)
{
    struct tow_json_doc doc = {0};
    bool known = tow_json_doc_parse((const char *)report->data, report->size, &doc) == 0 &&
                 tow_json_member(&doc, doc.values, "end") != NULL;
    tow_json_doc_fini(&doc);
    return known;
}

int tow_end_session(const char *address, uint64_t session, char *why, size_t why_size)
{
    struct tow_status order = {.topics = TOW_STATUS_END, .session = session};
    struct tow_buf report;
    tow_buf_init(&report, TOW_FRAME_MAX);
    int error =
        tow_ask(address, &order, tow_time_deadline(TOW_CONNECT_TIMEOUT_NS), &report, why, why_size);
    if (error == 0 && !end_knows(&report)) {
        snprintf(why, why_size,
                 "%s is too old to end a session; end its worker, whose number towline status "
                 "--json has",
                 address);
        error = -ENOTSUP;
    }
    tow_buf_fini(&report);
    return error;
}

static int end_one(const char *address, uint64_t session)
{
    char why[TOW_WHY_MAX];
    if (tow_end_session(address, session, why, sizeof why) < 0) {
        tow_cli_say("%s", why);
        return TOW_EXIT_FAILED;
    }
    char shown[TOW_ADDRESS_MAX];
    tow_transport_as_written(address, shown);
    printf("%s ends session %llu\n", shown, (unsigned long long)session);
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

static const struct tow_flag end_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, NULL, NULL, 0},
};

static int end_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_end, .argc = argc, .argv = argv, .at = 1};
    const char *server = NULL, *value;
    int key;
    char addresses[TOW_CLI_ADDRESS_MAX], why[TOW_WHY_MAX];
    uint64_t number = 0;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        server = value;
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    bool good = flags.words > 0;
    for (int i = 1; i <= flags.words; i++) {
        good &= read_number(argv[i], &number);
    }
    if (!good) {
        tow_cli_say("name sessions by their numbers, as towline status shows them; see towline end "
                    "--help");
        return TOW_EXIT_USAGE;
    }
    int choice = tow_choose_server(server, addresses, why, sizeof why);
    if (choice < 0 || choice == TOW_CHOICE_NONE || strchr(addresses, ',') != NULL) {
        tow_cli_say("%s", choice < 0 ? why : "name one server: towline end -s ADDRESS SESSION");
        return TOW_EXIT_FAILED;
    }
    int code = 0;
    for (int i = 1; i <= flags.words; i++) {
        read_number(argv[i], &number);
        int one = end_one(addresses, number);
        code = one != 0 ? one : code;
    }
    return code;
}

const struct tow_command tow_command_end = {
    .name = "end",
    .summary = "end a session of a server",
    .help = "towline end [-s ADDRESS] SESSION...: ends sessions of a server.\n"
            "\n"
            "  towline status\n"
            "  towline end 17\n"
            "  towline end -s /run/user/1000/gpu.sock 17\n"
            "\n"
            "The program is told why, its CUDA calls fail with CUDA_ERROR_DEVICE_UNAVAILABLE, and "
            "what it had on\n"
            "the GPU is free. It goes on itself: end it there, if it does not.\n"
            "You may end your own sessions: on the server's machine, through its unix socket; with "
            "-s ssh://HOST;\n"
            "or over a network, with the token or certificate that they came with. Root, the user "
            "who runs the\n"
            "server and its admin-users may end all, through the unix socket.\n"
            "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = end_flags,
    .run = end_main,
};
