/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to connections that want no session: reports, and orders to end or drain. */
#ifndef TOW_SERVER_LISTENER_ANSWER_H
#define TOW_SERVER_LISTENER_ANSWER_H

#include "server/listener/server.h"

/* For a connection in state TOW_CONN_ASKED: now, or at a later call, when a report has its numbers.
 */
void tows_answer(struct tows_server *server, struct tows_pending_conn *conn);

#endif
