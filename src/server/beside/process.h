/* SPDX-License-Identifier: Apache-2.0 */
/* Starts this program again beside the listener, with flags of its own and a line to it. */
#ifndef TOW_SERVER_BESIDE_PROCESS_H
#define TOW_SERVER_BESIDE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#include "server/config/config.h"

enum {
    TOW_PROCESS_CONTROL = 3,   /* the descriptor that leads to the listener */
    TOW_PROCESS_FLAGS_MAX = 6, /* of its own */
};

/* `flags`: the first says which process it is; up to NULL. They stand behind the settings that
 * workers get. `user`: whom it becomes; 0: nobody else. It is not waited for. */
int tows_process_fork(const struct tows_config *config, const char *const *flags, uint32_t user,
                      int *ret_control, pid_t *ret_pid);

#endif
