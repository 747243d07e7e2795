/* SPDX-License-Identifier: Apache-2.0 */
/* ssh: the unix socket of a server elsewhere, which an ssh client forwards to a socket here.
 *
 *     ssh://[USER@]HOST[:PORT][/PATH]             as people write it
 *     ssh://[USER@]HOST[:PORT][/PATH]?via=SOCKET  once ssh runs: SOCKET is the one here
 *
 * The `towline` command starts ssh (cli/tunnel.c). The forwarded socket is in this machine, but the
 * server is not: it takes no descriptors, so no memory is shared, and whoever is at its other end
 * is ssh, not the server.
 */
#ifndef TOW_TRANSPORT_SSH_H
#define TOW_TRANSPORT_SSH_H

#include <stdbool.h>
#include <stddef.h>

/* Beside the socket here: what ssh has said, its errors among it. */
#define TOW_SSH_SOCKET "sock"
#define TOW_SSH_SAID "said"

enum { TOW_SSH_PATH_MAX = 108 }; /* of sockaddr_un, with its end */

struct tow_ssh_target {
    char user[128]; /* "": ssh decides */
    char host[256]; /* without the brackets of IPv6 */
    char port[8];   /* "": ssh decides */
    char path[TOW_SSH_PATH_MAX];
    char via[TOW_SSH_PATH_MAX]; /* the socket here; "": ssh is not started yet */
};

/* Reads what stands behind ssh://. -EINVAL, -ENAMETOOLONG, with a sentence. */
int tow_ssh_read(const char *rest, struct tow_ssh_target *ret_target, char *ret_why, size_t size);

/* What ssh said last, without the words that say nothing; "" if it said nothing. */
void tow_ssh_last_words(const char *said_path, char *ret_words, size_t size);

#endif
