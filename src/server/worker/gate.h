/* SPDX-License-Identifier: Apache-2.0 */
/* Holds back what a session submits to a GPU while it is another's turn (login/turns.h).
 *
 * It stands in front of the driver in the driver table only while the listener says that turns are
 * taken: a session that has a GPU for itself pays nothing. While they are, at most a slice's worth
 * is submitted before some of it is done, by the times that were measured before; events behind
 * what was submitted tell when that is. What is captured uses no GPU and passes.
 *
 * The listener's word and what it is told lie in the memory that it shares with the worker. One
 * session a process.
 */
#ifndef TOW_SERVER_GATE_H
#define TOW_SERVER_GATE_H

#include "backend/backend.h"
#include "server/session/session.h"

/* From now on the listener's word holds. `tell` lets it look at what it is told. */
int tows_gate_start(struct tow_backend *backend, struct tows_session_stats *stats,
                    void (*tell)(void));
/* The session ends: nobody is held back any more. */
void tows_gate_let_go(void);
/* While it rests it does not ask the driver what is done. */
void tows_gate_rest(bool rests);

#endif
