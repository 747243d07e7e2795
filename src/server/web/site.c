/* SPDX-License-Identifier: Apache-2.0 */
/* Answers requests. What everybody may know is asked for once, however many want to know it. */
#include "server/web/site.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "server/web/metrics.h"
#include "server/web/pages.h"

enum {
    LOGINS_MAX = 16,     /* wrong tokens are answered late: not all places are theirs */
    LOGINS_EACH_MAX = 8, /* of them, of one address */
    BODY_MAX = 4 << 20,
    REPORT_MAX = TOW_FRAME_MAX,
};
#define FRESH_NS (100 * TOW_TIME_MS) /* an answer that old is as good as a new one */

#define TYPE_TEXT "text/plain; charset=utf-8"
#define TYPE_JSON "application/json"

/* What a request is about, and its answer. */
struct site_reply {
    struct tows_site *site;
    const struct tows_http_request *request;
    struct tows_web_ask *ask;
    struct tow_buf *out;
};

int tows_site_init(struct tows_site *site, const struct tows_config *config, int control)
{
    memset(site, 0, sizeof *site);
    site->config = config;
    site->control = control;
    gethostname(site->host, sizeof site->host - 1);
    tow_buf_init(&site->report, REPORT_MAX);
    site->logins.most = LOGINS_MAX;
    site->logins.each = LOGINS_EACH_MAX;
    int error = tow_mutex_init(&site->logins.lock, SERVER_WEB_PLACES);
    error = error < 0 ? error : tow_mutex_init(&site->lock, SERVER_SITE);
    return error < 0 ? error : tow_cond_init(&site->answered);
}

/* ---- what everybody may know ---- */

/* With the lock, which it gives back meanwhile: everybody's question. */
static void site_ask(struct tows_site *site)
{
    struct tow_buf report;
    struct tows_figures figures;
    struct tows_web_ask ask;
    char why[512];
    memset(&ask, 0, sizeof ask);
    site->asking = true;
    tow_mutex_unlock(&site->lock);
    tow_buf_init(&report, REPORT_MAX);
    int error = tows_asker_ask(site->control, &ask, NULL, &(struct tow_status){.topics = 0},
                               &report, why, sizeof why);
    if (error == 0) {
        error = tows_figures_read((const char *)report.data, report.size, &figures);
    }
    tow_mutex_lock(&site->lock);
    site->asking = false;
    site->error = error;
    site->taken_ns = tow_time_now_ns();
    if (error == 0) {
        tow_buf_fini(&site->report);
        site->report = report;
        site->figures = figures;
    } else {
        tow_buf_fini(&report);
    }
    pthread_cond_broadcast(&site->answered);
}

/* With the lock: an answer to a question of now, or of a moment ago. */
static int site_know(struct tows_site *site)
{
    int64_t began_ns = tow_time_now_ns();
    while (site->taken_ns == 0 || site->taken_ns < began_ns - FRESH_NS) {
        if (site->asking) {
            tow_mutex_wait(&site->lock, &site->answered);
        } else {
            site_ask(site);
        }
    }
    return site->error;
}

void *tows_site_sample(void *arg)
{
    struct tows_site *site = arg;
    int64_t next_ns = tow_time_now_ns();
    for (;;) {
        tow_mutex_lock(&site->lock);
        int error = site_know(site);
        tows_history_add(&site->history, error == 0 ? &site->figures : NULL, site->taken_ns,
                         tow_time_real_ns() / TOW_TIME_S);
        tow_mutex_unlock(&site->lock);
        next_ns += TOW_HISTORY_EVERY_S * TOW_TIME_S;
        int64_t left = tow_time_left(next_ns);
        if (left == 0) {
            next_ns = tow_time_now_ns(); /* the machine slept */
        }
        tow_time_sleep(left);
    }
}

/* ---- answers ---- */

static int site_send(const struct site_reply *reply, int status, const char *type, const char *more,
                     const void *body, size_t size)
{
    int error = tows_http_answer(reply->out, status, type, more, size);
    bool headless = reply->request != NULL && reply->request->method == TOW_HTTP_HEAD;
    return error < 0 || headless ? error : tow_buf_append(reply->out, body, size);
}

static int site_say(const struct site_reply *reply, int status, const char *more,
                    const char *sentence)
{
    char text[1024];
    int size = snprintf(text, sizeof text, "%s\n", sentence);
    return site_send(reply, status, TYPE_TEXT, more, text,
                     (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}

int tows_site_refuse(int status, struct tow_buf *out)
{
    struct site_reply reply = {.out = out};
    return site_say(&reply, status, "", tows_http_reason(status));
}

static int answer_health(const struct site_reply *reply)
{
    struct tows_site *site = reply->site;
    tow_mutex_lock(&site->lock);
    int error = site_know(site);
    bool failing = site->figures.failing, draining = site->figures.draining;
    tow_mutex_unlock(&site->lock);
    return error < 0 ? site_say(reply, 503, "", "the server does not answer")
           : failing
               ? site_say(reply, 503, "", "the server's workers cannot start; its log says why")
               : site_say(reply, 200, "", draining ? "draining" : "ok");
}

static int answer_metrics(const struct site_reply *reply)
{
    struct tows_site *site = reply->site;
    struct tow_buf body;
    bool open = reply->request->open_metrics;
    tow_buf_init(&body, BODY_MAX);
    tow_mutex_lock(&site->lock);
    int error = site_know(site);
    if (error == 0) {
        error = tows_metrics_write(&site->figures, open, site->config->http_dcgm != 0, &body);
    }
    tow_mutex_unlock(&site->lock);
    error = error < 0 ? site_say(reply, 503, "", "the server does not answer")
                      : site_send(reply, 200, open ? TOW_METRICS_OPEN : TOW_METRICS_TEXT, "",
                                  body.data, body.size);
    tow_buf_fini(&body);
    return error;
}

/* The error of a question with a token, as a status. */
static int site_tell(const struct site_reply *reply, int error, const char *why)
{
    return error == -EACCES
               ? site_say(reply, 401, "WWW-Authenticate: Bearer realm=\"towline\"\r\n", why)
           : error == -ENOENT ? site_say(reply, 404, "", why)
                              : site_say(reply, 503, "", why);
}

/* Asks as whoever has the request's token. */
static int ask_as(const struct site_reply *reply, const struct tow_status *question,
                  struct tow_buf *ret_report, char *why, size_t why_size)
{
    struct tows_site *site = reply->site;
    struct tow_login_token token;
    const char *text = reply->request->token;
    if (tow_login_read(text, strlen(text), &token) < 0) {
        snprintf(why, why_size, "this is no token; it must be what towlined token create printed");
        return -EACCES;
    }
    int error = -EBUSY;
    snprintf(why, why_size, "too many log in at once; try again");
    struct tows_who who = tows_places_who(&reply->ask->from.any);
    if (tows_places_take(&site->logins, &who)) {
        reply->ask->has_token = 1;
        error =
            tows_asker_ask(site->control, reply->ask, &token, question, ret_report, why, why_size);
        tows_places_give(&site->logins, &who);
    }
    explicit_bzero(&token, sizeof token);
    return error;
}

/* The server's report: with a token its owner's, else everybody's. */
static int answer_status(const struct site_reply *reply)
{
    struct tows_site *site = reply->site;
    struct tow_buf report;
    char why[512] = "the server does not answer";
    int error;
    tow_buf_init(&report, REPORT_MAX);
    if (reply->request->token[0] != '\0') {
        error = ask_as(reply, &(struct tow_status){.topics = 0}, &report, why, sizeof why);
    } else {
        tow_mutex_lock(&site->lock);
        error = site_know(site);
        error = error < 0 ? error : tow_buf_append(&report, site->report.data, site->report.size);
        tow_mutex_unlock(&site->lock);
    }
    error = error < 0 ? site_tell(reply, error, why)
                      : site_send(reply, 200, TYPE_JSON, "", report.data, report.size);
    tow_buf_fini(&report);
    return error;
}

/* "" or "after=SECONDS". */
static bool read_after(const char *query, int64_t *ret_after)
{
    static const char key[] = "after=";
    char *end;
    if (query[0] == '\0') {
        *ret_after = 0;
        return true;
    }
    const char *digits = query + sizeof key - 1;
    if (strncmp(query, key, sizeof key - 1) != 0 || digits[0] < '0' || digits[0] > '9') {
        return false;
    }
    errno = 0;
    *ret_after = strtoll(digits, &end, 10);
    return errno == 0 && *end == '\0';
}

static int answer_history(const struct site_reply *reply)
{
    struct tows_site *site = reply->site;
    struct tow_buf body;
    int64_t after_s;
    if (!read_after(reply->request->query, &after_s)) {
        return site_say(reply, 400, "", "write /history.json?after=SECONDS, since 1970");
    }
    tow_buf_init(&body, BODY_MAX);
    tow_mutex_lock(&site->lock);
    int error = tows_history_write(&site->history, after_s, &body);
    tow_mutex_unlock(&site->lock);
    error = error < 0 ? error : site_send(reply, 200, TYPE_JSON, "", body.data, body.size);
    tow_buf_fini(&body);
    return error;
}

/* ---- orders ---- */

/* A page elsewhere may send a POST here, but not under this server's own name. */
static bool comes_from_here(const struct tows_http_request *request)
{
    const char *scheme = strncmp(request->origin, "https://", 8) == 0  ? "https://"
                         : strncmp(request->origin, "http://", 7) == 0 ? "http://"
                                                                       : NULL;
    return request->origin[0] == '\0' ||
           (scheme != NULL && strcmp(request->origin + strlen(scheme), request->authority) == 0);
}

/* "/sessions/NUMBER/end". */
static bool reads_end(const char *path, uint64_t *ret_session)
{
    static const char head[] = "/sessions/";
    char *end;
    const char *digits = path + sizeof head - 1;
    if (strncmp(path, head, sizeof head - 1) != 0 || digits[0] < '0' || digits[0] > '9') {
        return false;
    }
    errno = 0;
    *ret_session = strtoull(digits, &end, 10);
    return errno == 0 && strcmp(end, "/end") == 0;
}

static int answer_end(const struct site_reply *reply, uint64_t session)
{
    struct tow_buf report;
    char why[512];
    if (reply->request->token[0] == '\0') {
        return site_tell(reply, -EACCES,
                         "a token is needed: send Authorization: Bearer and what towlined token "
                         "create printed");
    }
    if (!comes_from_here(reply->request)) {
        return site_say(reply, 403, "", "the request comes from another site's page");
    }
    tow_buf_init(&report, REPORT_MAX);
    int error = ask_as(reply, &(struct tow_status){.topics = TOW_STATUS_END, .session = session},
                       &report, why, sizeof why);
    error = error < 0 ? site_tell(reply, error, why)
                      : site_send(reply, 200, TYPE_JSON, "", report.data, report.size);
    tow_buf_fini(&report);
    return error;
}

/* ---- which ---- */

static int answer_page(const struct site_reply *reply, const struct tows_web_page *page)
{
    return site_send(reply, 200, page->type, "", page->bytes, page->size);
}

static const struct tows_web_page *find_page(const char *path)
{
    for (const struct tows_web_page *page = tows_web_pages; page->path != NULL; page++) {
        if (strcmp(page->path, path) == 0) {
            return page;
        }
    }
    return NULL;
}

static const struct {
    const char *path;
    int (*answer)(const struct site_reply *reply);
} paths[] = {
    {"/metrics", answer_metrics},
    {"/healthz", answer_health},
    {"/status.json", answer_status},
    {"/history.json", answer_history},
};

int tows_site_answer(struct tows_site *site, const struct tows_http_request *request,
                     struct tows_web_ask *ask, struct tow_buf *out)
{
    struct site_reply reply = {.site = site, .request = request, .ask = ask, .out = out};
    const bool reads = request->method == TOW_HTTP_GET || request->method == TOW_HTTP_HEAD;
    const struct tows_web_page *page = find_page(request->path);
    uint64_t session = 0;
    if (!tows_http_knows_host(request->host, site->config->http_name) &&
        !tows_http_knows_host(request->host, site->host)) {
        return site_say(&reply, 421, "",
                        "this server is not called so; if it is, name it in http-name");
    }
    if (reads_end(request->path, &session)) {
        return request->method == TOW_HTTP_POST ? answer_end(&reply, session)
                                                : site_say(&reply, 405, "Allow: POST\r\n", "POST");
    }
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(paths[i].path, request->path) == 0) {
            return reads ? paths[i].answer(&reply)
                         : site_say(&reply, 405, "Allow: GET, HEAD\r\n", "GET or HEAD");
        }
    }
    if (page != NULL) {
        return reads ? answer_page(&reply, page)
                     : site_say(&reply, 405, "Allow: GET, HEAD\r\n", "GET or HEAD");
    }
    return site_say(&reply, 404, "", "there is nothing here; / is the page");
}
