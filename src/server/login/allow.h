/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use this server: lists of users and groups for its unix sockets, and whether anybody may
 * who reaches a port. */
#ifndef TOW_SERVER_ALLOW_H
#define TOW_SERVER_ALLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/login/who.h"

struct tows_config;

enum { TOW_ALLOW_MAX = 256 };

struct tows_allow {
    uint32_t users[TOW_ALLOW_MAX];
    uint32_t groups[TOW_ALLOW_MAX];
    uint32_t admins[TOW_ALLOW_MAX];
    unsigned user_count, group_count, admin_count;
    bool anyone; /* who comes over a network, too */
};

/* The lists of the settings, names looked up. -EINVAL with one sentence in `why`: a name that this
 * machine does not know must neither let somebody in nor be forgotten. May wait for a directory
 * server: for the start and SIGHUP, not for connections. */
int tows_allow_read(const struct tows_config *config, struct tows_allow *ret_allow, char *why,
                    size_t why_size);

/* Names or numbers of users, or of groups, into numbers; `setting` is for the sentence. "": none.
 */
int tows_allow_read_list(const char *text, const char *setting, bool of_groups,
                         uint32_t ret_numbers[TOW_ALLOW_MAX], unsigned *ret_count, char *why,
                         size_t why_size);

/* Whether the peer of a unix socket is in one of these groups: the kernel has kept its own since it
 * connected. */
bool tows_allow_in_groups(int fd, const uint32_t *groups, unsigned count);

/* Who sees and ends everything: root, the user who runs the server, and those in admin-users. */
bool tows_allow_rules(const struct tows_allow *allow, const struct tows_who *who, uid_t owner);

/* Whether the peer of a connection may use the server. Without lists all may who can connect. With
 * them: the users and the members of groups that are named, and those who rule; an address only
 * where anyone may. `fd` is asked for the peer's groups. */
bool tows_allow_lets_in(const struct tows_allow *allow, int fd, const struct tows_who *who,
                        uid_t owner);

/* The sentence for one who may not. */
void tows_allow_explain(const struct tows_who *who, char *ret_sentence, size_t size);

/* Whether a listening socket can be reached from other machines: it is no unix socket, and its
 * address not of the loopback. */
bool tows_allow_is_open(int fd);

/* -EPERM with one sentence if others can reach `fd`, need neither a token nor (if it is encrypted)
 * a certificate, and nobody said that anyone may. */
int tows_allow_listen(const struct tows_config *config, int fd, const char *address, bool encrypted,
                      char *why, size_t why_size);

#endif
