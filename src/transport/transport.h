/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, connecting, listening: one ops table per transport, nothing else knows their names.
 * People may write them shorter (address.h).
 *
 *     unix:///run/towline.sock    unix://@name (abstract)
 *     tcp://host:4837             tcp://[::1]:4837, tcp://0.0.0.0:4837 to listen everywhere
 *     tls://host:4838             the same addresses, encrypted; a client knows the server's key
 *     shm:///run/towline.sock     shared memory, arranged over that unix socket
 *     ssh://host                  a unix socket elsewhere, by an ssh that towline started (ssh.h)
 *     self:                       both ends in this process: made with tow_line_pair
 *     hook:delay=1ms,cut=N,trace=FILE:ADDRESS    any of them, with something in between
 *
 * A function that fails for a reason that a user must act on writes one sentence into ret_why (no
 * newline, always terminated); pass TOW_WHY_MAX bytes.
 */
#ifndef TOW_TRANSPORT_TRANSPORT_H
#define TOW_TRANSPORT_TRANSPORT_H

#include "transport/line.h"
#include "transport/patience.h"

#include <sys/types.h>

#define TOW_WHY_MAX 512
#define TOW_ADDRESS_MAX 512
#define TOW_DEFAULT_PORT 4837
#define TOW_DEFAULT_TLS_PORT 4838
/* How long a server may be silent, from the first attempt to connect to its welcome; a user is to
 * have an answer within 5 s. */
#define TOW_CONNECT_TIMEOUT_S 4
#define TOW_CONNECT_TIMEOUT_NS (TOW_CONNECT_TIMEOUT_S * INT64_C(1000000000))

/* What the client will say first on the line. A transport that must arrange something before a line
 * can carry anything shows it to the server then, who may have to know it in order to choose who
 * answers; the client says it on the line all the same. The transports do not look inside. */
struct tow_preface {
    const void *bytes; /* borrowed */
    size_t size;
};
#define TOW_PREFACE_MAX (60u << 10)

enum tow_transport_kind {
    TOW_TRANSPORT_SELF,
    TOW_TRANSPORT_UNIX,
    TOW_TRANSPORT_TCP,
    TOW_TRANSPORT_SHM,
    TOW_TRANSPORT_SSH,
    TOW_TRANSPORT_HOOK,
    TOW_TRANSPORT_TLS,
    TOW_TRANSPORT_COUNT,
};

/* One transport. `rest` is the address behind the prefix. */
struct tow_transport_ops {
    const char *name;
    const char *prefix;
    bool in_process; /* tow_transport_is_in_process */
    bool spreads;    /* tow_transport_spreads */
    bool encrypts;   /* tow_transport_encrypts */
    bool lasts;      /* tow_transport_lasts */
    /* The transports of tow_transport_further and tow_transport_faster, whose address has the same
     * rest; NULL: there is none. */
    const struct tow_transport_ops *further, *faster;
    /* Whether `rest` can be read: 0, or an error with a sentence. Nothing is looked up. */
    int (*check)(const char *rest, char *ret_why, size_t size);
    /* `preface` may be NULL. One that wraps has none. */
    int (*connect)(const char *rest, const struct tow_preface *preface,
                   struct tow_patience *patience, char *ret_why, size_t size,
                   struct tow_line **ret_line);
    /* tow_transport_connect_beside; NULL: as connect does. */
    int (*beside)(const char *rest, const struct tow_grant *grant, int64_t deadline_ns,
                  char *ret_why, size_t size, struct tow_line **ret_line);
    /* Gives a listening, non-blocking socket, and its address as one can connect to it. */
    int (*listen)(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                  char *ret_address);
    /* Makes the server's end of an accepted connection; owns the fd in any case. */
    int (*adopt)(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                 struct tow_line **ret_line);
    /* tow_transport_explain; NULL: nobody is in between. */
    bool (*explain)(const char *rest, int64_t since_ns, char *ret_why, size_t size);
    /* Of one that stands before another address, OPTIONS:ADDRESS: puts itself before the line to
     * it, which it owns in any case. NULL: its rest is an address of its own. */
    int (*wrap)(const char *rest, struct tow_line *inner, char *ret_why, size_t size,
                struct tow_line **ret_line);
};

extern const struct tow_transport_ops tow_transport_self;
extern const struct tow_transport_ops tow_transport_unix;
extern const struct tow_transport_ops tow_transport_tcp;
extern const struct tow_transport_ops tow_transport_shm;
extern const struct tow_transport_ops tow_transport_ssh;
extern const struct tow_transport_ops tow_transport_hook;
extern const struct tow_transport_ops tow_transport_tls;

/* The transport of an address that has a scheme: its kind, or -EINVAL. */
int tow_transport_find(const char *address, const char **ret_rest);
/* Whether such an address can be read; with a sentence. */
int tow_transport_check(const char *address, char *ret_why, size_t size);

/* The address behind hook:, if it is one; else itself. */
const char *tow_transport_behind_hook(const char *address);

/* What the transport of such an address is like: asked, so that only this folder knows them. */

/* Whether the server is to be in this process; made with tow_line_pair, as `ret_rest` says. */
bool tow_transport_is_in_process(const char *address, const char **ret_rest);
/* Whether several lines to one server carry more than one. */
bool tow_transport_spreads(const char *address);
/* Whether a line to there can go on over another connection. */
bool tow_transport_lasts(const char *address);
/* Where a further line to the same server is opened: 0, or -ENOTSUP. `ret_address` has
 * TOW_ADDRESS_MAX bytes. */
int tow_transport_further(const char *address, char *ret_address);
/* A faster way to the same server, which it may refuse: the same. */
int tow_transport_faster(const char *address, char *ret_address);

/* Whether an ssh must be started first; then `ret_target` says where to (ssh.h). */
struct tow_ssh_target;
bool tow_transport_wants_ssh(const char *address, struct tow_ssh_target *ret_target);
/* The address of the same server, now that ssh forwards `socket` to it: 0, or -ENAMETOOLONG. */
int tow_transport_through(const char *address, const char *socket, char *ret_address);

/* The address as its user wrote it, without the socket: `ret_address` has TOW_ADDRESS_MAX bytes. */
void tow_transport_as_written(const char *address, char *ret_address);

/* A connection that was begun at `since_ns` was closed without a word, or has been lost: true and a
 * sentence if whoever is in between knows why. */
bool tow_transport_explain(const char *address, int64_t since_ns, char *ret_why, size_t size);

/* Connects to a server. Fails within the deadline (use tow_time_deadline(TOW_CONNECT_TIMEOUT_NS)
 * where nobody said otherwise); only name resolution may take longer, and a server that asks for
 * patience. */
int tow_transport_connect(const char *address, int64_t deadline_ns, char *ret_why, size_t size,
                          struct tow_line **ret_line);

/* The same, for a caller with more to do within the same patience. `preface` may be NULL: then any
 * of the server's workers will do. */
int tow_transport_connect_by(const char *address, const struct tow_preface *preface,
                             struct tow_patience *patience, char *ret_why, size_t size,
                             struct tow_line **ret_line);

/* A further line of a session that has a line there, with that one's grant; NULL: it has none. */
int tow_transport_connect_beside(const char *address, const struct tow_grant *grant,
                                 int64_t deadline_ns, char *ret_why, size_t size,
                                 struct tow_line **ret_line);

/* Whether a connection of that kind begins with a TLS handshake. */
bool tow_transport_encrypts(enum tow_transport_kind kind);
/* Whether the line of one can go on over another connection. */
bool tow_transport_kind_lasts(enum tow_transport_kind kind);

struct tow_listener {
    int fd; /* owned: poll it for reading */
    enum tow_transport_kind kind;
    char address[TOW_ADDRESS_MAX]; /* as a client writes it; the real port where 0 was asked for */
    char path[TOW_ADDRESS_MAX];    /* of the socket file to remove; "" if there is none */
};

/* Listens. `mode`: permissions of a socket file, for example 0660. A stale socket file is
 * replaced, one that somebody listens on is not. */
int tow_listener_open(const char *address, mode_t mode, char *ret_why, size_t size,
                      struct tow_listener **ret_listener);

/* The same for a socket that listens already, which it owns from now on: systemd made it, for
 * example. -EINVAL if it is none; then it stays the caller's. */
int tow_listener_adopt(int fd, struct tow_listener **ret_listener);

/* Accepts one connection, not blocking: -EAGAIN when there is none. Hand the fd to
 * tow_line_from_fd, here or in another process, with the listener's kind. `ret_peer`
 * (TOW_ADDRESS_MAX) describes it. */
int tow_listener_accept(struct tow_listener *listener, int *ret_fd, char *ret_peer);

/* Who is at the other end of a connection, as above. */
void tow_transport_peer(int fd, char *ret_peer);

/* Stops listening and removes the socket file. NULL is fine. */
void tow_listener_close(struct tow_listener *listener);

/* The server's end of an accepted connection, which it owns in any case. A client on a unix socket
 * that asks for shared memory gets it, whether the listener was called unix or shm; finding out
 * waits for the client's first bytes, until the deadline. */
int tow_line_from_fd(int fd, enum tow_transport_kind kind, int64_t deadline_ns, char *ret_why,
                     size_t size, struct tow_line **ret_line);

/* Wraps a line as `hook:` does; `spec` is "delay=1ms,cut=N,trace=FILE". Owns `inner` in any case.
 */
int tow_line_hook(struct tow_line *inner, const char *spec, char *ret_why, size_t size,
                  struct tow_line **ret_line);

/* Descriptors over a unix socket, with `n` bytes (at least 1) beside them. */
#define TOW_FDS_MAX 16
int tow_fds_send(int sock, const void *bytes, size_t n, const int *fds, int count);
/* The same in one piece and at once, or not at all: -EAGAIN. */
int tow_fds_try_send(int sock, const void *bytes, size_t n, const int *fds, int count);
/* Receives one such message of exactly `n` bytes. The descriptors (CLOEXEC) are the caller's;
 * *ret_count of them, at most `max`. -EPROTO if more came or bytes are missing. */
int tow_fds_recv(int sock, void *bytes, size_t n, int64_t deadline_ns, int *ret_fds, int max,
                 int *ret_count);

#endif
