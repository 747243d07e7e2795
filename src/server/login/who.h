/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a connection belongs to, as far as the kernel knows: a user on a unix socket, an address on
 * a network. Places, sessions and what may be seen are counted by it. */
#ifndef TOW_SERVER_WHO_H
#define TOW_SERVER_WHO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sockaddr;

enum tows_who_kind {
    TOW_WHO_NOBODY, /* not known, as users are who have no number here: all of these are one */
    TOW_WHO_USER,   /* of this machine, by a unix socket */
    TOW_WHO_IPV4,
    TOW_WHO_IPV6, /* the first 64 bits: whoever has one address there has them all */
    /* Root, by a unix socket, in other namespaces than this server's, or /proc does not tell: all
     * of these are one, and no more than a user. */
    TOW_WHO_OTHER_ROOT,
    /* The user of a token, from wherever he comes. Who has a certificate in that name is he, too.
     */
    TOW_WHO_TOKEN,
    /* The process that answers over HTTP, for those who have no token: it sees nobody's sessions.
     */
    TOW_WHO_WEB,
};

/* Of users and classes of tokens. */
enum { TOW_WHO_NAME_MAX = 32 };

struct tows_who {
    uint32_t kind;
    uint32_t user;                    /* USER */
    uint8_t address[8];               /* IPV4: the first 4 bytes; IPV6 */
    char name[TOW_WHO_NAME_MAX + 1];  /* TOKEN: the user's */
    uint64_t token;                   /* TOKEN: its id; two of one user are the same peer */
    bool certificate;                 /* TOKEN: has none, but a certificate; the same of it */
    char class[TOW_WHO_NAME_MAX + 1]; /* TOKEN: its class, "": none; the same of it */
};

enum { TOW_WHO_TEXT_MAX = 64 };

/* Of a connected socket. Right after it was accepted: the process that connected may end, and its
 * number become another's. */
struct tows_who tows_who_of(int fd);
/* Of a peer's address; a unix socket's is NOBODY. */
struct tows_who tows_who_at(const struct sockaddr *address);

/* Whether a connected socket is no unix socket; what cannot be told is none. */
bool tows_who_is_by_network(int fd);

/* Whether all that is known is an address: no user, no token. */
bool tows_who_is_address(const struct tows_who *who);

bool tows_who_same(const struct tows_who *one, const struct tows_who *other);

/* Whether it is known which person it is: a user on a unix socket, or a token's. Only these may
 * end sessions: an address has many. */
bool tows_who_is_user(const struct tows_who *who);
/* Root, and the user who runs this server; admin-users names more (tows_allow_rules). */
bool tows_who_rules(const struct tows_who *who, uid_t owner);
/* Who may end a session of `whose`: the user whose it is, and those who rule. */
bool tows_who_may_end(const struct tows_who *who, const struct tows_who *whose, uid_t owner);

/* "user 1000", "192.0.2.7", "2001:db8:0:1::/64". */
const char *tows_who_text(const struct tows_who *who, char ret_text[TOW_WHO_TEXT_MAX]);
/* What a user of this machine is called in /etc/passwd, or a token's user; "": nobody is named.
 * Nobody else is asked, as he may be slow to answer: users of a directory have their number. */
const char *tows_who_name(const struct tows_who *who, char ret_name[TOW_WHO_TEXT_MAX]);

#endif
