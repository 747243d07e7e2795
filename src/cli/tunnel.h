/* SPDX-License-Identifier: Apache-2.0 */
/* The way to servers that are reached through ssh: one ssh process for each, for a program's life.
 */
#ifndef TOW_CLI_TUNNEL_H
#define TOW_CLI_TUNNEL_H

#include <stddef.h>

/* Starts an ssh for each server of the list (TOW_CLI_ADDRESS_MAX bytes) that wants one, and changes
 * its address to one that goes through it. Returns when they have logged in; ssh asks the terminal
 * for what it needs. Each ssh ends, and its folder goes, when this process (which may become
 * another program) has ended and nobody has the descriptor any more that its children inherit.
 * -EIO, -ENAMETOOLONG, with a sentence in `why`. */
int tow_tunnels_open(char *servers, char *why, size_t why_size);

#endif
