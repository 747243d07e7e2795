/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that a filter of seccomp.h refused: which they were. For the listener alone. */
#ifndef TOW_SERVER_REFUSED_H
#define TOW_SERVER_REFUSED_H

/* Takes one refused call and lets it fail with EPERM. Never waits: 1 and the call's number, 0 if
 * there is none now, -EPIPE if none will come any more. Nobody else may read from the descriptor.
 */
int tows_refused_take(int fd, int *ret_number);

/* A call's name on this architecture; NULL: it has none that is known here. */
const char *tows_refused_name(int number);

#endif
