/* SPDX-License-Identifier: Apache-2.0 */
/* A server that root starts becomes two: the parent, which keeps few of root's rights and hears no
 * stranger, and the listener, its child, which hears strangers and has none. */
#ifndef TOW_SERVER_DAEMON_SPLIT_H
#define TOW_SERVER_DAEMON_SPLIT_H

#include "server/daemon/parent.h"

struct tows_split {
    bool on;              /* it is to be done */
    uint32_t user, group; /* the listener's */
    uint32_t shaker_user, web_user;
};

/* Whether this server is split: a child tries what the listener will do. Where it cannot be, the
 * log says why, and the server stays one process with the rights that it has. -EINVAL with a
 * sentence: the settings name a user whom nobody knows. */
int tows_split_choose(const struct tows_config *config, struct tows_split *ret_split, char *why,
                      size_t why_size);

/* Does it, once the server's sockets are open. In the listener: 0, with its end of the line to the
 * parent and the folder of code (-1: none). In the parent, when the listener has ended: 1, with the
 * program's exit code. Below 0 it could not be done, with a sentence. */
int tows_split_do(const struct tows_split *split, struct tows_parent *parent,
                  const struct tows_config *config, struct tow_listener *const *listeners,
                  unsigned count, int signals, int *ret_line, int *ret_folder, int *ret_code,
                  char *why, size_t why_size);

#endif
