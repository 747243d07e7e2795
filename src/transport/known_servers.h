/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that a user has seen his servers have: ~/.config/towline/known_servers, as ssh keeps its
 * hosts'. A line for each address: "HOST:PORT sha256:DIGITS"; empty ones and those that begin with
 * # are skipped. */
#ifndef TOW_TRANSPORT_KNOWN_SERVERS_H
#define TOW_TRANSPORT_KNOWN_SERVERS_H

#include <stddef.h>

#include "transport/tls_cert.h"

#define TOW_KNOWN_SERVERS_MAX (1u << 20) /* of the file */

/* Those that an administrator knows, for every user: looked at behind the user's own. */
#define TOW_KNOWN_SERVERS_MACHINE "/etc/towline/known_servers"

/* Where it is, below XDG_CONFIG_HOME or HOME. `ret_path` has PATH_MAX bytes. With a sentence. */
int tow_known_servers_path(char *ret_path, char *ret_why, size_t size);

/* The key of HOST:PORT: 0, -ENOENT if there is none; else with a sentence. */
int tow_known_servers_find(const char *path, const char *name, struct tow_tls_print *ret_print,
                           char *ret_why, size_t size);

/* The same in the user's file, else in the machine's. `ret_path` (PATH_MAX bytes; may be NULL) is
 * the file that has it. */
int tow_known_servers_look(const char *name, struct tow_tls_print *ret_print, char *ret_path,
                           char *ret_why, size_t size);

/* Writes it there, in place of another; the rest of the file stays. With a sentence. */
int tow_known_servers_put(const char *path, const char *name, const struct tow_tls_print *print,
                          char *ret_why, size_t size);

#endif
