/* Asking a server how it is: STATUS, and its REPORT. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/doc.h"
#include "wire/handshake.h"

/* Reads the answer into `report`; `why` gets a sentence if it is none. */
static int read_answer(struct tow_line *line, const char *address, int64_t deadline_ns,
                       struct tow_buf *report, char *why, size_t why_size)
{
    const uint8_t *at;
    size_t available;
    int error = tow_line_peek(line, 1, deadline_ns, &at, &available);
    while (error == 0) {
        error = tow_handshake_sniff(TOW_SIDE_CLIENT, at, available, address, why, why_size);
        if (error != -EAGAIN) {
            break;
        }
        error = tow_line_peek(line, available + 1, deadline_ns, &at, &available);
    }
    if (error == -EPROTO) {
        return error;
    }
    struct tow_frame frame;
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    if (error == 0) {
        error = tow_line_peek(line, frame.length, deadline_ns, &at, &available);
    }
    if (error == -ETIMEDOUT) {
        snprintf(why, why_size,
                 "%s took the connection and then said nothing for 5 s; is it towlined that "
                 "listens there?",
                 address);
        return error;
    }
    if (error < 0) {
        snprintf(
            why, why_size,
            "%s closed the connection without an answer (%s); is it towlined that listens there?",
            address, strerror(-error));
        return error;
    }
    struct tow_report answer;
    struct tow_refuse refuse;
    if (tow_report_decode(at, &frame, &answer) == 0) {
        return tow_buf_append(report, answer.text, answer.size);
    }
    if (tow_refuse_decode(at, &frame, &refuse) == 0) {
        snprintf(why, why_size, "%s refuses: %s", address, refuse.sentence);
        return -ECONNREFUSED;
    }
    snprintf(
        why, why_size,
        "%s answered with a %s frame that this towline cannot read; install the same version on "
        "both sides",
        address, tow_control_name(frame.kind) == NULL ? "foreign" : tow_control_name(frame.kind));
    return -EPROTO;
}

static int ask_report(const char *address, struct tow_buf *report, char *why, size_t why_size)
{
    int64_t deadline = tow_time_deadline(TOW_CONNECT_TIMEOUT_NS);
    struct tow_line *line;
    char unix_address[TOW_ADDRESS_MAX];
    if (strncmp(address, "shm:", 4) == 0) {
        /* The same socket; memory is not needed for one question. */
        snprintf(unix_address, sizeof unix_address, "unix:%s", address + 4);
        address = unix_address;
    }
    int error = tow_transport_connect(address, deadline, why, why_size, &line);
    if (error < 0) {
        return error;
    }
    uint8_t *at;
    uint32_t length;
    error = tow_line_reserve(line, 64, &at);
    if (error == 0) {
        error = tow_status_encode(&(struct tow_status){0}, at, 64, &length);
    }
    if (error == 0) {
        tow_line_commit_now(line, length);
        error = read_answer(line, address, deadline, report, why, why_size);
    } else {
        snprintf(why, why_size, "%s: %s", address, strerror(-error));
    }
    tow_line_close(line);
    return error;
}

static int ask_each(const char *addresses, bool json, tow_ask_show *show)
{
    int failures = 0;
    bool first = true;
    if (json) {
        printf("[");
    }
    for (const char *at = addresses; *at != '\0';) {
        size_t length = strcspn(at, ",");
        char address[TOW_ADDRESS_MAX];
        snprintf(address, sizeof address, "%.*s", (int)length, at);
        at += length + (at[length] == ',');
        struct tow_buf report;
        tow_buf_init(&report, TOW_FRAME_MAX);
        char why[TOW_WHY_MAX] = "";
        struct tow_json_doc doc = {0};
        int error = ask_report(address, &report, why, sizeof why);
        if (error == 0) {
            error = tow_json_doc_parse((const char *)report.data, report.size, &doc);
            if (error < 0) {
                snprintf(why, sizeof why, "%s sent a report that cannot be read", address);
            }
        }
        if (error < 0) {
            tow_cli_say("%s", why);
            failures++;
        } else if (json) {
            printf("%s{\"address\":\"%s\",\"report\":%.*s}", first ? "" : ",", address,
                   (int)report.size, (const char *)report.data);
            first = false;
        } else {
            show(address, &doc);
        }
        tow_json_doc_fini(&doc);
        tow_buf_fini(&report);
    }
    if (json) {
        printf("]\n");
    }
    return failures == 0 ? 0 : TOW_EXIT_FAILED;
}

int tow_ask_main(int argc, char **argv, tow_ask_show *show)
{
    struct tow_flags flags = {argc, argv, 1};
    const char *server = NULL;
    bool json = false;
    while (flags.at < argc) {
        if (tow_flags_take(&flags, "-s", "--server", &server) && server != NULL) {
            continue;
        }
        if (tow_flags_take(&flags, NULL, "--json", NULL)) {
            json = true;
            continue;
        }
        tow_cli_say("its flags are not understood; see towline %s --help", argv[0]);
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
            argv[0]);
        return TOW_EXIT_FAILED;
    }
    return ask_each(address, json, show);
}
