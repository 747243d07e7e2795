/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline top` knows: takes reports, finds what changed between two, filters and sorts. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "wire/report.h"
#include "cli/top.h"

const char *const tow_top_key_names[TOW_TOP_KEYS] = {
    [TOW_TOP_SESSION] = "session", [TOW_TOP_PROGRAM] = "program", [TOW_TOP_TENANT] = "tenant",
    [TOW_TOP_GPU] = "gpu",         [TOW_TOP_MEMORY] = "memory",   [TOW_TOP_CALLS] = "calls",
    [TOW_TOP_IN] = "in",           [TOW_TOP_OUT] = "out",         [TOW_TOP_HOST] = "host",
    [TOW_TOP_AGE] = "age",
};

int tow_top_key_find(const char *name)
{
    for (int key = 0; key < TOW_TOP_KEYS; key++) {
        if (strcmp(name, tow_top_key_names[key]) == 0) {
            return key;
        }
    }
    return -1;
}

void tow_top_init(struct tow_top *top)
{
    memset(top, 0, sizeof *top);
    top->key = TOW_TOP_MEMORY;
}

void tow_top_fini(struct tow_top *top)
{
    for (unsigned i = 0; i < top->server_count; i++) {
        free(top->servers[i].sessions);
    }
    free(top->rows);
    memset(top, 0, sizeof *top);
}

/* Cut to its room, between two characters of UTF-8. */
static void view_text(char *ret_text, size_t size, const char *text)
{
    size_t length = strnlen(text, size);
    if (length == size) {
        length--;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) {
            length--;
        }
    }
    memcpy(ret_text, text, length);
    ret_text[length] = '\0';
}

bool tow_top_add(struct tow_top *top, const char *address)
{
    if (top->server_count == TOW_TOP_SERVERS_MAX) {
        return false;
    }
    struct tow_top_server *server = &top->servers[top->server_count++];
    view_text(server->address, sizeof server->address, address);
    return true;
}

/* A server's figure is believed where a whole number of 53 bits can be it. */
static double view_figure(double value)
{
    return value > 0 && value < 9e15 ? value : 0;
}

static double view_rate(double now, double before, double seconds)
{
    return seconds > 0 && now > before ? (now - before) / seconds : 0;
}

static const struct tow_top_session *view_before(const struct tow_top_server *server, uint64_t id)
{
    for (size_t i = 0; i < server->session_count; i++) {
        if (server->sessions[i].id == id) {
            return &server->sessions[i];
        }
    }
    return NULL;
}

/* `seconds`: since `server` was asked before. */
static void view_session(const struct tow_json_doc *doc, const struct tow_json_value *from,
                         const struct tow_top_server *server, double seconds,
                         struct tow_top_session *session)
{
    const struct tow_json_value *limits = tow_json_member(doc, from, "limits");
    int64_t gpu = tow_json_whole(tow_json_member(doc, from, "gpu"));
    *session = (struct tow_top_session){
        .id = (uint64_t)tow_json_whole(tow_json_member(doc, from, "id")),
        .pid = tow_json_whole(tow_json_member(doc, from, "client_pid")),
        .gpu = gpu >= 0 && gpu < TOW_TOP_GPUS_MAX ? gpu : -1,
        .memory = view_figure(tow_json_number(doc, from, "memory")),
        .host = view_figure(
            tow_json_number(doc, tow_json_member(doc, limits, "session-memory"), "used")),
        .age = view_figure(tow_json_number(doc, from, "age_s")),
        .calls = view_figure(tow_json_number(doc, from, "calls")),
        .in = view_figure(tow_json_number(doc, from, "bytes_in")),
        .out = view_figure(tow_json_number(doc, from, "bytes_out")),
    };
    view_text(session->program, sizeof session->program, tow_json_text(doc, from, "client"));
    view_text(session->tenant, sizeof session->tenant, tow_json_text(doc, from, "tenant"));
    view_text(session->class, sizeof session->class, tow_json_text(doc, from, "class"));
    view_text(session->from, sizeof session->from, tow_json_text(doc, from, "peer"));
    /* Of a session that is new all that it has done was done since it began. */
    const struct tow_top_session *before = view_before(server, session->id);
    static const struct tow_top_session nothing;
    double span = before != NULL ? seconds : session->age;
    before = before != NULL ? before : &nothing;
    session->calls_rate = view_rate(session->calls, before->calls, span);
    session->in_rate = view_rate(session->in, before->in, span);
    session->out_rate = view_rate(session->out, before->out, span);
    const char *state = tow_json_text(doc, from, "state");
    view_text(session->state, sizeof session->state,
              state[0] != '\0' && strcmp(state, "running") != 0 ? state
              : session->calls_rate > 0                         ? "running"
                                                                : "idle");
}

static int view_sessions(const struct tow_json_doc *doc, struct tow_top_server *server,
                         double seconds)
{
    const struct tow_json_value *list = tow_json_member(doc, doc->values, "sessions");
    const struct tow_json_value *from = NULL;
    size_t count = 0, i = 0;
    while ((from = tow_json_next(doc, list, from)) != NULL) {
        count++;
    }
    struct tow_top_session *sessions = calloc(count + 1, sizeof *sessions);
    if (sessions == NULL) {
        return -ENOMEM;
    }
    while ((from = tow_json_next(doc, list, from)) != NULL) {
        view_session(doc, from, server, seconds, &sessions[i++]);
    }
    free(server->sessions);
    server->sessions = sessions;
    server->session_count = count;
    return 0;
}

/* A program that names all servers in this order has their GPUs one after another. */
static void view_number(struct tow_top *top)
{
    unsigned next = 0;
    for (unsigned i = 0; i < top->server_count; i++) {
        top->servers[i].first_gpu = next;
        next += top->servers[i].gpu_count;
    }
}

int tow_top_take(struct tow_top *top, unsigned nth, const char *report, size_t size, int64_t now_ns)
{
    struct tow_top_server *server = &top->servers[nth];
    struct tow_json_doc doc = {0};
    int error = tow_json_doc_parse(report, size, &doc);
    if (error < 0) {
        return error == -ENOMEM ? error : -EPROTO;
    }
    double seconds = (double)(now_ns - server->taken_ns) / (double)TOW_TIME_S;
    error = view_sessions(&doc, server, seconds);
    if (error == 0) {
        struct tow_report_gpu gpu;
        server->gpu_count = 0;
        while (server->gpu_count < TOW_TOP_GPUS_MAX &&
               tow_report_gpu(&doc, server->gpu_count, &gpu)) {
            struct tow_top_gpu *shown = &server->gpus[server->gpu_count++];
            view_text(shown->name, sizeof shown->name, gpu.name);
            shown->memory = view_figure(gpu.memory);
            shown->used = view_figure(gpu.used);
            shown->busy = gpu.busy;
        }
        const struct tow_json_value *others = tow_json_member(&doc, doc.values, "others");
        server->others = view_figure(tow_json_number(&doc, others, "sessions"));
        server->known = true;
        server->taken_ns = now_ns;
        server->why[0] = '\0';
        view_number(top);
    }
    tow_json_doc_fini(&doc);
    return error;
}

void tow_top_lose(struct tow_top *top, unsigned nth, const char *why)
{
    struct tow_top_server *server = &top->servers[nth];
    view_text(server->why, sizeof server->why, why);
    free(server->sessions);
    server->sessions = NULL;
    server->session_count = 0;
    server->others = 0;
}

static bool view_has(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text != '\0'; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) {
            i++;
        }
        if (i == length) {
            return true;
        }
    }
    return length == 0;
}

static bool view_shows(const struct tow_top *top, const struct tow_top_session *session)
{
    const char *part = top->filter;
    return view_has(session->program, part) || view_has(session->tenant, part) ||
           view_has(session->class, part) || view_has(session->from, part) ||
           view_has(session->state, part);
}

static double view_number_of(const struct tow_top_row *row, enum tow_top_key key)
{
    const struct tow_top_session *session = row->session;
    switch (key) {
    case TOW_TOP_GPU:
        return session->gpu < 0 ? -1 : (double)row->server->first_gpu + (double)session->gpu;
    case TOW_TOP_MEMORY:
        return session->memory;
    case TOW_TOP_CALLS:
        return session->calls_rate;
    case TOW_TOP_IN:
        return session->in_rate;
    case TOW_TOP_OUT:
        return session->out_rate;
    case TOW_TOP_HOST:
        return session->host;
    case TOW_TOP_AGE:
        return session->age;
    default:
        return (double)session->id;
    }
}

/* Texts and numbers of sessions and GPUs from the smallest, what is used from the largest. What is
 * equal stays in the order of servers and sessions. */
static int view_compare(const void *left, const void *right, void *user)
{
    const struct tow_top_row *a = left, *b = right;
    const struct tow_top *top = user;
    int order = 0;
    if (top->key == TOW_TOP_PROGRAM) {
        order = strcmp(a->session->program, b->session->program);
    } else if (top->key == TOW_TOP_TENANT) {
        order = strcmp(a->session->tenant, b->session->tenant);
    } else {
        double x = view_number_of(a, top->key), y = view_number_of(b, top->key);
        order = (x > y) - (x < y);
        order = top->key == TOW_TOP_SESSION || top->key == TOW_TOP_GPU ? order : -order;
    }
    if (order != 0) {
        return top->reverse ? -order : order;
    }
    if (a->server != b->server) {
        return a->server < b->server ? -1 : 1;
    }
    return (a->session->id > b->session->id) - (a->session->id < b->session->id);
}

int tow_top_arrange(struct tow_top *top)
{
    size_t count = 0;
    for (unsigned i = 0; i < top->server_count; i++) {
        count += top->servers[i].session_count;
    }
    free(top->rows);
    top->row_count = 0;
    top->rows = calloc(count + 1, sizeof *top->rows);
    if (top->rows == NULL) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < top->server_count; i++) {
        const struct tow_top_server *server = &top->servers[i];
        for (size_t j = 0; j < server->session_count; j++) {
            if (view_shows(top, &server->sessions[j])) {
                top->rows[top->row_count++] =
                    (struct tow_top_row){.server = server, .session = &server->sessions[j]};
            }
        }
    }
    qsort_r(top->rows, top->row_count, sizeof *top->rows, view_compare, top);
    return 0;
}
