/* SPDX-License-Identifier: Apache-2.0 */
/* Has a session's calls recorded.
 *
 * Recorded functions have a handler in the session's table that calls theirs, and keeps what it
 * did. The others' entries are as they were: a launch or a copy costs nothing.
 */
#ifndef TOW_SERVER_REMAKE_TAKE_H
#define TOW_SERVER_REMAKE_TAKE_H

#include <stdint.h>

struct tows_session;

/* Before the first command. For tests, for now: after every `check_every`-th recorded call the
 * record is compared with the session's handles, and the session ends if they differ. 0 or -ENOMEM.
 */
int tows_take_begin(struct tows_session *session, uint64_t check_every);
/* No command is carried out any more. */
void tows_take_end(struct tows_session *session);

#endif
