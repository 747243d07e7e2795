/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of a session. */
#ifndef TOW_SERVER_HELLO_H
#define TOW_SERVER_HELLO_H

struct tows_session;

/* Reads the client's hello and welcomes it, or says why it is refused (-EPROTO). Functions that
 * only one side has are taken out of the session's table. */
int tows_session_hello(struct tows_session *session);

#endif
