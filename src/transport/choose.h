/* SPDX-License-Identifier: Apache-2.0 */
/* Which server a program uses, and what a server says of itself: shared by libcuda, libnvidia-ml
 * and the command line, so that they always mean the same server. */
#ifndef TOW_TRANSPORT_CHOOSE_H
#define TOW_TRANSPORT_CHOOSE_H

#include <stddef.h>

#include "base/buf.h"
#include "transport/transport.h"

/* Where the server that should be used was found. */
enum tow_choice {
    TOW_CHOICE_FLAG,
    TOW_CHOICE_ENVIRONMENT,
    TOW_CHOICE_FILE,
    TOW_CHOICE_SOCKET, /* the default socket */
    TOW_CHOICE_NONE,
};

enum { TOW_SERVERS_TEXT_MAX = 4096 };

/* Chooses in the order of the manual: TOWLINE_SERVER, the config files, the user's own default
 * socket, the machine's, if somebody listens there.
 * `ret_servers` (addresses with their schemes, separated by commas: address.h) has
 * TOW_SERVERS_TEXT_MAX bytes. A choice, or an error with a sentence in `why` if what names the
 * server is wrong: an address, or a config file, which the sentence names with the line. */
int tow_choose_servers(char *ret_servers, char *why, size_t why_size);

/* Asks a server for its report (one JSON object) and appends it; `topics` as in wire/control.h.
 * Within 5 s; else one sentence in `why`. A server whose places for strangers are all taken closes
 * the connection without a word, and is asked again for some seconds. */
int tow_ask_report(const char *address, uint32_t topics, struct tow_buf *report, char *why,
                   size_t why_size);
/* Asks anything that a STATUS frame can ask. */
struct tow_status;
int tow_ask(const char *address, const struct tow_status *question, int64_t deadline_ns,
            struct tow_buf *report, char *why, size_t why_size);
/* Whether a listener is there: 0 if it answers. */
int tow_ask_presence(const char *address, int64_t deadline_ns);

#endif
