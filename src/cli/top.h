/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline top` knows of servers, and how it is shown. Nothing here asks a server or touches a
 * terminal. */
#ifndef TOW_CLI_TOP_H
#define TOW_CLI_TOP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/json_read.h"

enum {
    TOW_TOP_SERVERS_MAX = 64,
    TOW_TOP_GPUS_MAX = 64, /* of one server */
    TOW_TOP_TEXT_MAX = 96,
};

/* What the table can be sorted by; the order of its columns. */
enum tow_top_key {
    TOW_TOP_SESSION,
    TOW_TOP_PROGRAM,
    TOW_TOP_TENANT,
    TOW_TOP_GPU,
    TOW_TOP_MEMORY,
    TOW_TOP_CALLS,
    TOW_TOP_IN,
    TOW_TOP_OUT,
    TOW_TOP_HOST,
    TOW_TOP_AGE,
    TOW_TOP_KEYS,
};
/* The word for it, as --sort takes it. */
extern const char *const tow_top_key_names[TOW_TOP_KEYS];

struct tow_top_gpu {
    char name[TOW_TOP_TEXT_MAX];
    double memory, used; /* bytes */
    int busy;            /* per cent; -1: not known */
};

struct tow_top_session {
    uint64_t id;
    char program[TOW_TOP_TEXT_MAX], tenant[TOW_TOP_TEXT_MAX], class[TOW_TOP_TEXT_MAX];
    char from[TOW_TOP_TEXT_MAX];          /* where its program runs */
    char state[TOW_TOP_TEXT_MAX];         /* the server's word; else "running" or "idle" */
    int64_t pid;                          /* of the program, on its machine; 0: not known */
    int64_t gpu;                          /* -1: none yet */
    double memory, host, age;             /* bytes on the GPU, bytes on the server; seconds */
    double calls, in, out;                /* all so far */
    double calls_rate, in_rate, out_rate; /* in a second, between the last two looks */
};

struct tow_top_server {
    char address[TOW_TOP_TEXT_MAX];
    char why[256];    /* "": it answered; else a sentence */
    bool known;       /* it has answered once */
    int64_t taken_ns; /* when it did last, by the monotonic clock */
    double others;    /* sessions that are not shown */
    struct tow_top_gpu gpus[TOW_TOP_GPUS_MAX];
    unsigned gpu_count, first_gpu;    /* the number of its first GPU in a program that names all */
    struct tow_top_session *sessions; /* owned */
    size_t session_count;
};

/* A line of the table. */
struct tow_top_row {
    const struct tow_top_server *server;
    const struct tow_top_session *session;
};

struct tow_top {
    struct tow_top_server servers[TOW_TOP_SERVERS_MAX];
    unsigned server_count;
    enum tow_top_key key;
    bool reverse;                  /* smallest first, or Z before A */
    char filter[TOW_TOP_TEXT_MAX]; /* a part of program, tenant, class, place or state; "": all */
    struct tow_top_row *rows;      /* owned; made by tow_top_arrange */
    size_t row_count;
};

void tow_top_init(struct tow_top *top);
void tow_top_fini(struct tow_top *top);
/* False: there are too many. */
bool tow_top_add(struct tow_top *top, const char *address);
/* The nth server's report, taken now. -EPROTO if it cannot be read, -ENOMEM. */
int tow_top_take(struct tow_top *top, unsigned nth, const char *report, size_t size,
                 int64_t now_ns);
/* It did not answer: what was known of its sessions goes. */
void tow_top_lose(struct tow_top *top, unsigned nth, const char *why);
/* Makes the rows, filtered and sorted. -ENOMEM leaves none. */
int tow_top_arrange(struct tow_top *top);
/* The key of that name, -1 if there is none. */
int tow_top_key_find(const char *name);

/* A screen, of at most so many lines and columns. */
struct tow_top_screen {
    int lines, columns;
    size_t chosen;     /* the row that keys are about */
    size_t first;      /* the first row that is seen; drawing moves it to `chosen` */
    bool styled;       /* with bold and colours */
    const char *clock; /* the time of day */
    const char *foot;  /* the last line */
};
/* Writes the lines, each with its newline; `screen->lines` 0: as many as there are. */
void tow_top_draw(const struct tow_top *top, struct tow_top_screen *screen, FILE *out);
/* Everything as one JSON object. */
int tow_top_write(const struct tow_top *top, struct tow_buf *out);

#endif
