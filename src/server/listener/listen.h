/* SPDX-License-Identifier: Apache-2.0 */
/* Starting to listen: the sockets of the settings, of systemd, or the usual ones. */
#ifndef TOW_SERVER_LISTENER_LISTEN_H
#define TOW_SERVER_LISTENER_LISTEN_H

#include <stddef.h>

#include "server/config/config.h"
#include "transport/transport.h"

enum { TOW_LISTEN_MAX = TOW_CONFIG_LISTEN_MAX + 16 }; /* as many may come from systemd */

/* Opens them; those that were opened before an error count, too, and are the caller's. The log says
 * what was wrong. Notes in the settings whether one is encrypted. */
int tows_listen_start(struct tows_config *config, struct tow_listener *listeners[TOW_LISTEN_MAX],
                      unsigned *count);

/* Whether all sockets may stay open with these settings. With a sentence. */
int tows_listen_check(const struct tows_config *config, struct tow_listener *const *listeners,
                      unsigned count, char *why, size_t why_size);

/* Says to who has started a private server that it listens, or why it does not; once. */
void tows_listen_tell(struct tows_config *config, const char *word, const char *text);

#endif
