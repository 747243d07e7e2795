/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener asks of its parent, and what the parent says: packets of one size each way over
 * a SOCK_SEQPACKET pair. The parent reads them as a stranger's. */
#ifndef TOW_SERVER_PARENT_MSG_H
#define TOW_SERVER_PARENT_MSG_H

#include <stdint.h>

enum {
    TOW_PARENT_TEXT_MAX = 1024, /* of a key, a state for systemd, a sentence */
    TOW_PARENT_FDS_MAX = 2,
};

/* Numbers of processes are the parent's own: none of another process can be named. */
enum tows_parent_ask {
    TOW_PARENT_START = 1, /* a worker for the key in `text`, with `value` lines of the log; answered
                           * with its control socket, its statistics */
    TOW_PARENT_SHAKER,    /* the process that shakes hands; answered with its control socket */
    TOW_PARENT_WEB,       /* the process that answers over HTTP; answered in the same way */
    TOW_PARENT_SIGNAL,    /* `value`: SIGKILL or SIGCONT */
    TOW_PARENT_LIMIT,     /* `memory`, `threads` */
    TOW_PARENT_WEIGH,     /* `value`: its part of the processors */
    TOW_PARENT_YIELD,     /* `value`: a nice value, as an int32_t */
    TOW_PARENT_TOKENS,    /* answered with the file of tokens, open; `text` is its name */
    TOW_PARENT_RELOAD,    /* answered with the settings, read again, and the folder of code; once
                           * after each TOW_PARENT_SIGNALS that has SIGHUP */
    TOW_PARENT_DECIDE,    /* `value` 1: they hold, 0: they do not */
    TOW_PARENT_NOTIFY,    /* `text`: for systemd */
    TOW_PARENT_TAKE,      /* the process `value`, a worker of a server that has ended: it began at
                           * `number` (machine.h); answered with its number here */
};

struct tows_parent_msg {
    uint32_t ask;
    uint32_t value;
    uint64_t number, memory, threads;
    char text[TOW_PARENT_TEXT_MAX];
};

/* The listener's exit code when it has left sessions to the next server. */
enum { TOW_PARENT_LEFT = 3 };

enum tows_parent_say {
    TOW_PARENT_ANSWER = 1, /* to the last question */
    TOW_PARENT_ENDED,      /* a process: `number`, `pid`, `status`, `full`, `unknown` */
    TOW_PARENT_SIGNALS,    /* `status`: a bit for each signal that the server was sent */
};

struct tows_parent_news {
    uint32_t say;
    int32_t error;
    uint64_t number;
    int32_t pid, status;
    uint32_t full;
    uint32_t unknown; /* 1: nobody knows the status */
    char text[TOW_PARENT_TEXT_MAX];
};

#endif
