/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the listener, as any client does: STATUS, and the proof of a token where there is one. The
 * listener gets one end of a new connection over the socket that leads to it. Any thread. */
#ifndef TOW_SERVER_WEB_ASKER_H
#define TOW_SERVER_WEB_ASKER_H

#include <netinet/in.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/control.h"
#include "wire/login.h"

/* What the listener is told of a connection that comes with it. */
struct tows_web_ask {
    uint32_t has_token; /* 1: it will log in; 0: it is told what everybody may know */
    char peer[96];      /* who asks, for the log; "": this process does */
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } from; /* with a token: who asks */
};

/* 0 and the report. -EACCES: the token is not valid; -ENOENT: what was wanted is refused; another
 * error: the listener does not answer. `why`: one sentence. */
int tows_asker_ask(int control, const struct tows_web_ask *ask, const struct tow_login_token *token,
                   const struct tow_status *question, struct tow_buf *ret_report, char *why,
                   size_t why_size);

#endif
