/* SPDX-License-Identifier: Apache-2.0 */
/* The server's first process, where root starts it and users can be changed: it keeps the right to
 * change users, to signal and to slow down processes of all users, starts what has rights to give
 * up, opens root's files, and hears nobody but the listener, its child, which has no rights.
 *
 * It reads the listener's questions as a stranger's. What the listener can have it do: start
 * workers, as a client's hello may, and the process that shakes hands, a bounded number and not too
 * often; end, wake, limit and slow down those, by numbers; get the file of tokens, and after SIGHUP
 * the settings; tell systemd how the server is.
 */
#ifndef TOW_SERVER_DAEMON_PARENT_H
#define TOW_SERVER_DAEMON_PARENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/config/config.h"
#include "server/pool/parent_msg.h"
#include "server/pool/starter.h"
#include "transport/transport.h"

enum {
    TOW_PARENT_SPARE = 64,        /* workers beyond sessions and those that are ready */
    TOW_PARENT_SHAKERS_MAX = 16,  /* processes that shake hands: old ones that are about to end */
    TOW_PARENT_ENDED_MAX = 8192,  /* more than there can be processes */
    TOW_PARENT_STARTS_MAX = 4096, /* at once */
    TOW_PARENT_STARTS_SECOND = 250,
    TOW_PARENT_THREADS_MAX = 1 << 22, /* that the kernel has numbers for */
};

struct tows_parent {
    struct tows_config config,
        next;        /* that hold; that were read again and nobody has decided on yet */
    bool pending;    /* there is a next one */
    bool may_reload; /* a SIGHUP was told, and not asked about yet */
    bool shook;      /* the process that shakes hands was started once */
    bool broken;     /* it was asked what it may not be asked: the log has it */
    struct tows_starter starter;
    uint64_t workers_most; /* that the settings have allowed so far: sessions outlive them */
    uint64_t shakers[TOW_PARENT_SHAKERS_MAX]; /* numbers of those that live, and of those that
                                               * answer over HTTP; 0: none */
    uint32_t group;                           /* the listener's */
    uint32_t shaker_user, web_user;           /* 0: root's, without rights */
    int argc;
    char **argv; /* borrowed: for SIGHUP */
    int line;    /* owned: to the listener */
    pid_t listener;
    bool done; /* the listener has ended, with that status */
    int status;
    uint32_t signals; /* to be told, as bits */
    struct tows_ended ended[TOW_PARENT_ENDED_MAX];
    unsigned ended_first, ended_count;
    bool answering; /* an answer that the socket did not take */
    uint32_t asked; /* the question that it is for */
    int send_error; /* why what is left to say could not be sent */
    struct tows_parent_news answer;
    int answer_fds[TOW_PARENT_FDS_MAX]; /* owned */
    unsigned starts;                    /* that may be had at once */
    int64_t starts_ns;                  /* when more were given */
};

/* Takes the settings over. `line`, its end of a SOCK_SEQPACKET pair, may come later. */
void tows_parent_init(struct tows_parent *parent, const struct tows_config *config, int line);
void tows_parent_fini(struct tows_parent *parent);

/* No descriptor can be sent to this end any more: who closes the last one of a socket may have to
 * wait. False: the kernel has no such rule (Linux 6.16, SO_PASSRIGHTS). */
bool tows_parent_refuse_descriptors(int line);

/* Something came from the listener: 0, or -ECONNRESET: it has closed its end. */
int tows_parent_hear(struct tows_parent *parent);
/* A signal of the server's: what the listener is to be told. */
void tows_parent_signal(struct tows_parent *parent, int signal);
/* What has ended. */
void tows_parent_reap(struct tows_parent *parent);
/* Says what is to be said, as far as the socket takes it. */
void tows_parent_tell(struct tows_parent *parent);

/* Until the listener has ended: the program's exit code. `signals` is a signalfd. */
int tows_parent_run(struct tows_parent *parent, int signals);

/* The folder of the code cache, made so that the listener's group can write there: a descriptor;
 * -1: none, and the log says why. */
int tows_parent_code(const struct tows_config *config, uint32_t group);

#endif
