/* SPDX-License-Identifier: Apache-2.0 */
/* What is shown over HTTP: which path answers what, to whom. */
#ifndef TOW_SERVER_WEB_SITE_H
#define TOW_SERVER_WEB_SITE_H

#include "base/mutex.h"
#include "server/config/config.h"
#include "server/web/asker.h"
#include "server/web/figures.h"
#include "server/web/history.h"
#include "server/web/http.h"
#include "server/web/places.h"

struct tows_site {
    const struct tows_config *config; /* borrowed */
    int control;                      /* borrowed: to the listener */
    char host[256];                   /* this machine's name */
    struct tows_places logins;        /* questions with a token that are under way */
    struct tow_mutex lock;            /* guards all below */
    pthread_cond_t answered;
    bool asking;           /* somebody asks the listener, for all who want to know */
    int64_t taken_ns;      /* when the last answer came; 0: none has */
    int error;             /* of it */
    struct tow_buf report; /* as everybody may see it */
    struct tows_figures figures;
    struct tows_history history;
};

int tows_site_init(struct tows_site *site, const struct tows_config *config, int control);

/* A thread for as long as the process: fills the history. */
void *tows_site_sample(void *site);

/* Writes the whole answer. `ask` says who asks; -Exxx: there is none. */
int tows_site_answer(struct tows_site *site, const struct tows_http_request *request,
                     struct tows_web_ask *ask, struct tow_buf *out);

/* The answer to what was no request. */
int tows_site_refuse(int status, struct tow_buf *out);

#endif
