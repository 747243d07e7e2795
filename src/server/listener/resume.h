/* SPDX-License-Identifier: Apache-2.0 */
/* Programs whose connection was cut come again. */
#ifndef TOW_SERVER_LISTENER_RESUME_H
#define TOW_SERVER_LISTENER_RESUME_H

#include <sys/types.h>

#include "server/listener/login.h"
#include "server/door/pending_conn.h"
#include "server/pool/worker_pool.h"

/* A connection that says RESUME has sent its proof: the session's worker gets it if the proof is
 * right, else it is refused as somebody without a token is, as late. `owner`: whose server it is.
 */
void tows_resume_take(struct tows_login *login, struct tows_worker_pool *pool,
                      struct tows_pending_conn *conn, uid_t owner);

#endif
