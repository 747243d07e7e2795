/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what `towline top` knows: as a screen, which may be small, and as JSON. */
#include <string.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/top.h"

enum {
    LINE_MAX_BYTES = 4096,
    COLUMNS_MAX = 1000, /* wider screens are used so far */
    BAR = 20,
    CELL_MAX = 32,
};

enum draw_style { STYLE_PLAIN, STYLE_BOLD, STYLE_CHOSEN, STYLE_BAD };

/* Counts columns as characters of UTF-8; where one takes two, the terminal cuts the line. */
static bool draw_begins(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

/* How many bytes the first `columns` characters have. */
static size_t draw_cut(const char *text, int columns)
{
    size_t bytes = 0;
    while (text[bytes] != '\0' && (columns > 0 || !draw_begins(text[bytes]))) {
        columns -= draw_begins(text[bytes]) ? 1 : 0;
        bytes++;
    }
    return bytes;
}

static int draw_width(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++) {
        width += draw_begins(*text) ? 1 : 0;
    }
    return width;
}

struct draw {
    FILE *out;
    const struct tow_top_screen *screen;
    int left; /* lines that may still be written */
};

static void draw_line(struct draw *draw, enum draw_style style, const char *text)
{
    static const char *const codes[] = {"", "\033[1m", "\033[7m", "\033[31m"};
    bool styled = draw->screen->styled && style != STYLE_PLAIN;
    if (draw->left <= 0) {
        return;
    }
    draw->left--;
    fprintf(draw->out, "%s%.*s%s\n", styled ? codes[style] : "",
            (int)draw_cut(text, draw->screen->columns), text, styled ? "\033[0m" : "");
}

/* "[#####     ]" */
static const char *draw_bar(double part, char text[BAR + 3])
{
    int full = part <= 0 ? 0 : part >= 1 ? BAR : (int)(part * BAR + 0.5);
    snprintf(text, BAR + 3, "[%.*s%*s]", full, "####################", BAR - full, "");
    return text;
}

static void draw_gpu(struct draw *draw, const struct tow_top *top,
                     const struct tow_top_server *server, unsigned number)
{
    const struct tow_top_gpu *gpu = &server->gpus[number];
    char line[LINE_MAX_BYTES], bar[BAR + 3], used[16], memory[16], busy[48] = "", where[112] = "";
    if (gpu->busy >= 0) {
        char second[BAR + 3];
        snprintf(busy, sizeof busy, "  busy %s %3d %%", draw_bar(gpu->busy / 100.0, second),
                 gpu->busy);
    }
    if (top->server_count > 1) {
        snprintf(where, sizeof where, "  %s", server->address);
    }
    snprintf(line, sizeof line, "GPU %-3u %-28.*s memory %s %9s of %-9s%s%s",
             server->first_gpu + number, (int)draw_cut(gpu->name, 28), gpu->name,
             draw_bar(gpu->memory > 0 ? gpu->used / gpu->memory : 0, bar),
             tow_cli_bytes(gpu->used, used), tow_cli_bytes(gpu->memory, memory), busy, where);
    draw_line(draw, STYLE_PLAIN, line);
}

static void draw_servers(struct draw *draw, const struct tow_top *top)
{
    int most = draw->screen->lines > 0 ? draw->screen->lines / 3 : 0, hidden = 0;
    for (unsigned i = 0; i < top->server_count; i++) {
        const struct tow_top_server *server = &top->servers[i];
        char line[LINE_MAX_BYTES];
        if (server->why[0] != '\0') {
            draw_line(draw, STYLE_BAD, server->why);
            continue;
        }
        if (!server->known) {
            snprintf(line, sizeof line, "%s: asking", server->address);
            draw_line(draw, STYLE_PLAIN, line);
        }
        for (unsigned j = 0; j < server->gpu_count; j++) {
            if (most > 0 && draw->screen->lines - draw->left > most) {
                hidden++;
            } else {
                draw_gpu(draw, top, server, j);
            }
        }
    }
    if (hidden > 0) {
        char line[64];
        snprintf(line, sizeof line, "and %d GPUs more", hidden);
        draw_line(draw, STYLE_PLAIN, line);
    }
}

/* ---- the table ---- */

static void cell_session(const struct tow_top_row *row, char text[CELL_MAX])
{
    snprintf(text, CELL_MAX, "%llu", (unsigned long long)row->session->id);
}

/* Cut to its room, between two characters. */
static void cell_copy(const char *from, char text[CELL_MAX])
{
    size_t bytes = strnlen(from, CELL_MAX);
    if (bytes == CELL_MAX) {
        bytes--;
        while (bytes > 0 && !draw_begins(from[bytes])) {
            bytes--;
        }
    }
    memcpy(text, from, bytes);
    text[bytes] = '\0';
    if (bytes == 0) {
        snprintf(text, CELL_MAX, "-");
    }
}

static void cell_program(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_copy(row->session->program, text);
}

static void cell_pid(const struct tow_top_row *row, char text[CELL_MAX])
{
    snprintf(text, CELL_MAX, "%lld", (long long)row->session->pid);
}

static void cell_tenant(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_copy(row->session->tenant, text);
}

static void cell_class(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_copy(row->session->class, text);
}

static void cell_from(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_copy(row->session->from, text);
}

static void cell_server(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_copy(row->server->address, text);
}

static void cell_gpu(const struct tow_top_row *row, char text[CELL_MAX])
{
    if (row->session->gpu < 0) {
        snprintf(text, CELL_MAX, "-");
    } else {
        snprintf(text, CELL_MAX, "%lld", (long long)row->server->first_gpu + row->session->gpu);
    }
}

static void cell_bytes(double bytes, char text[CELL_MAX])
{
    char short_text[16];
    snprintf(text, CELL_MAX, "%s", tow_cli_bytes(bytes, short_text));
}

static void cell_memory(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_bytes(row->session->memory, text);
}

static void cell_calls(const struct tow_top_row *row, char text[CELL_MAX])
{
    snprintf(text, CELL_MAX, "%.0f", row->session->calls_rate);
}

static void cell_in(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_bytes(row->session->in_rate, text);
}

static void cell_out(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_bytes(row->session->out_rate, text);
}

static void cell_host(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_bytes(row->session->host, text);
}

static void cell_age(const struct tow_top_row *row, char text[CELL_MAX])
{
    char short_text[16];
    snprintf(text, CELL_MAX, "%s", tow_cli_age(row->session->age, short_text));
}

static void cell_state(const struct tow_top_row *row, char text[CELL_MAX])
{
    cell_copy(row->session->state, text);
}

static const struct draw_column {
    const char *head;
    int width;
    bool right; /* aligned */
    int drop;   /* where the screen is too narrow the largest go first; 0 never goes */
    int key;    /* enum tow_top_key; -1: nothing is sorted by it */
    void (*cell)(const struct tow_top_row *row, char text[CELL_MAX]);
} columns[] = {
    {"SESSION", 7, true, 0, TOW_TOP_SESSION, cell_session},
    {"PROGRAM", 18, false, 0, TOW_TOP_PROGRAM, cell_program},
    {"PID", 8, true, 5, -1, cell_pid},
    {"TENANT", 18, false, 3, TOW_TOP_TENANT, cell_tenant},
    {"CLASS", 8, false, 6, -1, cell_class},
    {"FROM", 24, false, 7, -1, cell_from},
    {"SERVER", 24, false, 2, -1, cell_server},
    {"GPU", 3, true, 0, TOW_TOP_GPU, cell_gpu},
    {"MEMORY", 9, true, 0, TOW_TOP_MEMORY, cell_memory},
    {"CALLS/S", 8, true, 1, TOW_TOP_CALLS, cell_calls},
    {"IN/S", 9, true, 4, TOW_TOP_IN, cell_in},
    {"OUT/S", 9, true, 4, TOW_TOP_OUT, cell_out},
    {"HOST MEM", 9, true, 8, TOW_TOP_HOST, cell_host},
    {"AGE", 7, true, 5, TOW_TOP_AGE, cell_age},
    {"STATE", 9, false, 1, -1, cell_state},
};
enum { COLUMN_COUNT = sizeof columns / sizeof *columns };

/* Which columns fit: those whose `drop` is at most the answer. */
static int draw_fit(const struct tow_top *top, int width)
{
    int most = 9;
    for (; most > 0; most--) {
        int wide = 0;
        for (int i = 0; i < COLUMN_COUNT; i++) {
            bool alone = columns[i].cell == cell_server && top->server_count < 2;
            wide += columns[i].drop <= most && !alone ? columns[i].width + 1 : 0;
        }
        if (wide - 1 <= width) {
            break;
        }
    }
    return most;
}

/* `row` NULL: the heads. */
static void draw_row(struct draw *draw, const struct tow_top *top, const struct tow_top_row *row,
                     int most, enum draw_style style)
{
    char line[LINE_MAX_BYTES];
    size_t used = 0;
    for (int i = 0; i < COLUMN_COUNT; i++) {
        const struct draw_column *column = &columns[i];
        if (column->drop > most || (column->cell == cell_server && top->server_count < 2)) {
            continue;
        }
        char text[CELL_MAX + 1];
        if (row == NULL) {
            snprintf(text, sizeof text, "%s%s", column->head,
                     column->key == (int)top->key ? "*" : "");
        } else {
            column->cell(row, text);
        }
        text[draw_cut(text, column->width)] = '\0';
        int gap = column->width - draw_width(text);
        int written = snprintf(line + used, sizeof line - used, "%s%*s%s%*s", used > 0 ? " " : "",
                               column->right ? gap : 0, "", text, column->right ? 0 : gap, "");
        used += (size_t)written;
    }
    while (used > 0 && line[used - 1] == ' ' && style != STYLE_CHOSEN) {
        line[--used] = '\0';
    }
    draw_line(draw, style, line);
}

static void draw_table(struct draw *draw, const struct tow_top *top, struct tow_top_screen *screen)
{
    int most = draw_fit(top, screen->columns);
    draw_row(draw, top, NULL, most, STYLE_BOLD);
    /* The last line is the foot's. */
    size_t room = draw->left > 1 ? (size_t)draw->left - 1 : 0;
    if (screen->lines == 0) {
        room = top->row_count;
    }
    if (screen->chosen >= top->row_count) {
        screen->chosen = top->row_count > 0 ? top->row_count - 1 : 0;
    }
    if (screen->chosen < screen->first) {
        screen->first = screen->chosen;
    } else if (room > 0 && screen->chosen >= screen->first + room) {
        screen->first = screen->chosen - room + 1;
    }
    if (screen->first + room > top->row_count) {
        screen->first = top->row_count > room ? top->row_count - room : 0;
    }
    for (size_t i = 0; i < room && screen->first + i < top->row_count; i++) {
        bool chosen = screen->lines > 0 && screen->first + i == screen->chosen;
        draw_row(draw, top, &top->rows[screen->first + i], most,
                 chosen ? STYLE_CHOSEN : STYLE_PLAIN);
    }
}

void tow_top_draw(const struct tow_top *top, struct tow_top_screen *screen, FILE *out)
{
    struct draw draw = {
        .out = out, .screen = screen, .left = screen->lines > 0 ? screen->lines : 1 << 30};
    screen->columns = screen->columns < COLUMNS_MAX ? screen->columns : COLUMNS_MAX;
    char line[LINE_MAX_BYTES], filter[TOW_TOP_TEXT_MAX + 16] = "", others[64] = "";
    size_t all = 0;
    double hidden = 0;
    for (unsigned i = 0; i < top->server_count; i++) {
        all += top->servers[i].session_count;
        hidden += top->servers[i].others;
    }
    if (top->filter[0] != '\0') {
        snprintf(filter, sizeof filter, ", %zu with \"%s\"", top->row_count, top->filter);
    }
    if (hidden > 0) {
        snprintf(others, sizeof others, ", and %.0f of others", hidden);
    }
    snprintf(line, sizeof line, "towline top %s  %zu session%s%s%s", screen->clock, all,
             all == 1 ? "" : "s", filter, others);
    draw_line(&draw, STYLE_BOLD, line);
    draw_servers(&draw, top);
    draw_line(&draw, STYLE_PLAIN, "");
    draw_table(&draw, top, screen);
    if (screen->lines > 0) {
        while (draw.left > 1) {
            draw_line(&draw, STYLE_PLAIN, "");
        }
        draw_line(&draw, STYLE_BOLD, screen->foot);
    }
}

static void write_session(struct tow_json *json, const struct tow_top_row *row)
{
    const struct tow_top_session *session = row->session;
    tow_json_object(json, NULL);
    tow_json_str(json, "server", row->server->address);
    tow_json_u64(json, "session", session->id);
    tow_json_str(json, "program", session->program);
    tow_json_i64(json, "pid", session->pid);
    tow_json_str(json, "tenant", session->tenant);
    tow_json_str(json, "class", session->class);
    tow_json_str(json, "from", session->from);
    tow_json_i64(json, "gpu",
                 session->gpu < 0 ? -1 : (int64_t)row->server->first_gpu + session->gpu);
    tow_json_u64(json, "memory", (uint64_t)session->memory);
    tow_json_u64(json, "host_memory", (uint64_t)session->host);
    tow_json_u64(json, "calls", (uint64_t)session->calls);
    tow_json_u64(json, "bytes_in", (uint64_t)session->in);
    tow_json_u64(json, "bytes_out", (uint64_t)session->out);
    tow_json_f64(json, "calls_per_s", session->calls_rate);
    tow_json_f64(json, "bytes_in_per_s", session->in_rate);
    tow_json_f64(json, "bytes_out_per_s", session->out_rate);
    tow_json_f64(json, "age_s", session->age);
    tow_json_str(json, "state", session->state);
    tow_json_end(json);
}

int tow_top_write(const struct tow_top *top, struct tow_buf *out)
{
    struct tow_json json;
    tow_json_init(&json, out);
    tow_json_object(&json, NULL);
    tow_json_i64(&json, "time_ms", tow_time_real_ns() / TOW_TIME_MS);
    tow_json_array(&json, "servers");
    for (unsigned i = 0; i < top->server_count; i++) {
        const struct tow_top_server *server = &top->servers[i];
        tow_json_object(&json, NULL);
        tow_json_str(&json, "address", server->address);
        if (server->why[0] != '\0') {
            tow_json_str(&json, "error", server->why);
        }
        tow_json_u64(&json, "others", (uint64_t)server->others);
        tow_json_array(&json, "gpus");
        for (unsigned j = 0; j < server->gpu_count && server->why[0] == '\0'; j++) {
            const struct tow_top_gpu *gpu = &server->gpus[j];
            tow_json_object(&json, NULL);
            tow_json_u64(&json, "number", server->first_gpu + j);
            tow_json_str(&json, "name", gpu->name);
            tow_json_u64(&json, "memory", (uint64_t)gpu->memory);
            tow_json_u64(&json, "used", (uint64_t)gpu->used);
            if (gpu->busy >= 0) {
                tow_json_i64(&json, "busy", gpu->busy);
            }
            tow_json_end(&json);
        }
        tow_json_end(&json);
        tow_json_end(&json);
    }
    tow_json_end(&json);
    tow_json_array(&json, "sessions");
    for (size_t i = 0; i < top->row_count; i++) {
        write_session(&json, &top->rows[i]);
    }
    tow_json_end(&json);
    tow_json_end(&json);
    return tow_json_finish(&json);
}
