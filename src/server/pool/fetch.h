/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of a server that has ended, for the one that has its folder now (meeting.h). */
#ifndef TOW_SERVER_FETCH_H
#define TOW_SERVER_FETCH_H

struct tows_worker_pool;

/* Those that were served from the folder are this pool's now, and count at once; those whose worker
 * has ended get their last line. Waits a moment until the workers have answered. How many. */
unsigned tows_fetch_sessions(struct tows_worker_pool *pool);

#endif
