/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp: which system calls a worker can make. */
#ifndef TOW_SERVER_SECCOMP_H
#define TOW_SERVER_SECCOMP_H

#include <stdbool.h>

/* Whether this kernel, and this architecture, can filter. */
bool tows_seccomp_known(void);

/* For all threads of this process, from now on: what is not in syscalls.def fails with EPERM.
 * `accepts`: it may accept connections; `connects`: to sockets of this machine. no_new_privs must
 * be set. 0, or -Exxx.
 *
 * *ret_refused: a descriptor, the caller's, for refused.h; refused calls wait until somebody there
 * answers, and fail with ENOSYS once it is closed everywhere. -1: this kernel answers itself. */
int tows_seccomp_enter(bool accepts, bool connects, int *ret_refused);

#endif
