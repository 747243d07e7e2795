/* SPDX-License-Identifier: Apache-2.0 */
/* Helper threads, shared by all launches of the process. */
#ifndef TOW_PTX_POOL_H
#define TOW_PTX_POOL_H

/* Calls work(user) in the calling thread and in up to `threads` - 1 helpers at the same time;
 * returns when all calls have returned. A helper that is not free in time does not take part. */
void tow_ptx_pool_run(void (*work)(void *user), void *user, unsigned threads);

#endif
