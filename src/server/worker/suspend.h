/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's orders to suspend this worker's session and to resume it. */
#ifndef TOW_SERVER_WORKER_SUSPEND_H
#define TOW_SERVER_WORKER_SUSPEND_H

#include <stdint.h>

struct tows_session;
struct tows_worker_msg;

/* Carries out TOW_WORKER_MSG_SUSPEND or TOW_WORKER_MSG_GO_ON on a thread of its own, and answers
 * with TOW_WORKER_MSG_SUSPENDED. The listener gives no order before the last one is answered.
 * `session` NULL: it has not begun. */
void tows_worker_suspend(struct tows_session *session, const struct tows_worker_msg *msg);

/* What became of the last order: enum tows_phase. It changes before the answer is sent. */
uint32_t tows_worker_suspend_phase(void);

#endif
