/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers themselves. */
#include "client/session/modes.h"

/* Process-wide: its reasons are the environment's, and captures. */
atomic_uint towc_wait_always;

/* Process-wide: a capture in global mode forbids calls of the whole program, whatever their server.
 */
atomic_uint towc_captures;

/* Process-wide: host memory is the process's, and any server's GPU may be given its address. */
atomic_uint towc_mirror_count;
atomic_uint towc_mirror_candidates;

/* Process-wide: the same; one thread of ours watches all of it. */
atomic_uint towc_fault_count;

/* Process-wide: the timeline's file is the process's. */
_Atomic(towc_waited *) towc_wait_hook;
