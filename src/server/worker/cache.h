/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of code, for a worker: it cannot write there, and asks the listener to. */
#ifndef TOW_SERVER_WORKER_CACHE_H
#define TOW_SERVER_WORKER_CACHE_H

#include "server/session/session.h"

const struct tows_cache_ops *tows_cache_ops(void);

/* Waits until what was put last is kept: the next session may look for it. */
void tows_cache_wait(void);

#endif
