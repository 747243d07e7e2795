/* SPDX-License-Identifier: Apache-2.0 */
/* Findings in sentences. */
#include "cli/check.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "base/json_write.h"
#include "cli/cli.h"

#define JSON_MAX (64u << 20)
#define SENTENCE 4096
#define NAME_SIZE 2048

/* What happened, of a kernel's access: behind "kernel k writes 4 bytes". */
static const struct {
    const char *kind, *words;
} accesses[] = {
    {"out-of-bounds", "out of bounds"},
    {"use-after-free", "of memory that was freed"},
    {"misaligned", "at a misaligned address"},
    {"wrong-space", "at an address of another kind of memory"},
    {"no-access", "of memory that it may not use so"},
    {"uninitialized", "that nobody wrote"},
};

void tow_check_init(struct tow_check *check)
{
    memset(check, 0, sizeof *check);
    tow_buf_init(&check->json, JSON_MAX);
}

void tow_check_fini(struct tow_check *check)
{
    tow_buf_fini(&check->json);
}

struct said {
    char text[SENTENCE];
    size_t used;
};

static void say_more(struct said *said, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say_more(struct said *said, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(said->text + said->used, sizeof said->text - said->used, format, args);
    va_end(args);
    size_t left = sizeof said->text - said->used - 1;
    said->used += n < 0 ? 0 : (size_t)n < left ? (size_t)n : left;
}

/* "(1,2,3)" of an array. */
static void say_place(struct said *said, const struct tow_json_doc *doc,
                      const struct tow_json_value *array)
{
    const struct tow_json_value *at = NULL;
    const char *before = "(";
    while (array != NULL && (at = tow_json_next(doc, array, at)) != NULL) {
        say_more(said, "%s%.0f", before, at->number);
        before = ",";
    }
    say_more(said, ")");
}

static void say_allocation(struct said *said, const struct tow_json_doc *doc,
                           const struct tow_json_value *finding)
{
    const struct tow_json_value *near = tow_json_member(doc, finding, "allocation");
    if (near == NULL) {
        return;
    }
    const char *where = tow_json_text(doc, near, "where");
    double distance = tow_json_number(doc, near, "distance");
    bool freed = tow_json_number(doc, near, "freed") != 0;
    if (strcmp(where, "inside") == 0) {
        say_more(said, ", byte %.0f of", distance);
    } else if (distance == 0) {
        say_more(said, ", right %s", where);
    } else {
        say_more(said, ", %.0f bytes %s", distance, where);
    }
    say_more(said, " the %.0f bytes at %s", tow_json_number(doc, near, "bytes"),
             tow_json_text(doc, near, "address"));
    const char *call = tow_json_text(doc, near, "call");
    if (strcmp(call, "cuModuleLoad") == 0) {
        say_more(said, " of a module's variable");
    } else if (call[0] != '\0') {
        say_more(said, " that %s made", call);
    }
    if (tow_json_number(doc, near, "number") > 0) {
        say_more(said, " (allocation %.0f%s)", tow_json_number(doc, near, "number"),
                 freed ? ", freed since" : "");
    }
}

static void say_access(struct said *said, const struct tow_json_doc *doc,
                       const struct tow_json_value *finding, const char *words)
{
    const char *access = tow_json_text(doc, finding, "access");
    const char *space = tow_json_text(doc, finding, "space");
    say_more(said, "kernel %s %s %.0f bytes %s", tow_json_text(doc, finding, "kernel"),
             strcmp(access, "write") == 0 ? "writes" : "reads",
             tow_json_number(doc, finding, "bytes"), words);
    if (strcmp(space, "global") != 0) {
        say_more(said, ", %s memory", space);
    }
}

/* One access: "at app.cu:20, line 26 of the PTX", and who. */
static void say_place_of(struct said *said, const struct tow_json_doc *doc,
                         const struct tow_json_value *access, const char *kernel)
{
    const char *file = tow_json_text(doc, access, "file");
    const char *function = tow_json_text(doc, access, "function");
    double line = tow_json_number(doc, access, "line");
    say_more(said, "at ");
    if (file[0] != '\0' && line > 0) {
        say_more(said, "%s:%.0f, ", file, line);
    }
    say_more(said, "line %.0f of the PTX", tow_json_number(doc, access, "ptx_line"));
    if (function[0] != '\0' && strcmp(function, kernel) != 0) {
        say_more(said, ", in function %s", function);
    }
}

/* Where in the program, and who. */
static void say_where(struct said *said, const struct tow_json_doc *doc,
                      const struct tow_json_value *finding)
{
    double threads = tow_json_number(doc, finding, "threads");
    say_more(said, "\n    ");
    say_place_of(said, doc, finding, tow_json_text(doc, finding, "kernel"));
    say_more(said, "\n    block ");
    say_place(said, doc, tow_json_member(doc, finding, "block"));
    say_more(said, ", thread ");
    say_place(said, doc, tow_json_member(doc, finding, "thread"));
    if (threads > 1) {
        say_more(said, ", and %.0f more", threads - 1);
    }
}

static const char *say_deed(const struct tow_json_doc *doc, const struct tow_json_value *access)
{
    return strcmp(tow_json_text(doc, access, "access"), "write") == 0 ? "writes" : "reads";
}

static void say_race(struct said *said, const struct tow_json_doc *doc,
                     const struct tow_json_value *finding)
{
    const struct tow_json_value *other = tow_json_member(doc, finding, "other");
    const char *kernel = tow_json_text(doc, finding, "kernel");
    const struct tow_json_value *both[] = {finding, other};
    double times = tow_json_number(doc, finding, "threads");
    say_more(said, "kernel %s: two threads use the same shared memory with nothing between them",
             kernel);
    for (unsigned i = 0; i < 2; i++) {
        say_more(said, "\n    thread ");
        say_place(said, doc, tow_json_member(doc, both[i], "thread"));
        say_more(said, " %s it ", say_deed(doc, both[i]));
        say_place_of(said, doc, both[i], kernel);
    }
    say_more(said, "\n    block ");
    say_place(said, doc, tow_json_member(doc, finding, "block"));
    say_more(said, ", %.0f bytes at %s", tow_json_number(doc, finding, "bytes"),
             tow_json_text(doc, finding, "address"));
    if (times > 1) {
        say_more(said, ", and %.0f times more", times - 1);
    }
}

static void say_kernel(struct said *said, const struct tow_json_doc *doc,
                       const struct tow_json_value *finding, const char *kind)
{
    const char *words = NULL;
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        if (strcmp(kind, accesses[i].kind) == 0) {
            words = accesses[i].words;
        }
    }
    if (words == NULL) {
        say_more(said, "kernel %s: %s", tow_json_text(doc, finding, "kernel"),
                 tow_json_text(doc, finding, "message"));
    } else {
        say_access(said, doc, finding, words);
    }
    say_where(said, doc, finding);
    if (words == NULL) {
        return;
    }
    say_more(said, "\n    address %s", tow_json_text(doc, finding, "address"));
    double room = tow_json_number(doc, finding, "room");
    if (room > 0) {
        bool shared = strcmp(tow_json_text(doc, finding, "space"), "shared") == 0;
        say_more(said, "; the %s has %.0f bytes", shared ? "block" : "thread", room);
    }
    say_allocation(said, doc, finding);
}

static void say_finding(struct said *said, const struct tow_json_doc *doc,
                        const struct tow_json_value *finding)
{
    const char *kind = tow_json_text(doc, finding, "kind");
    if (strcmp(kind, "leak") == 0) {
        say_more(said, "%.0f bytes were never freed\n    address %s",
                 tow_json_number(doc, finding, "bytes"),
                 tow_json_text(doc, tow_json_member(doc, finding, "allocation"), "address"));
        say_allocation(said, doc, finding);
    } else if (strcmp(kind, "double-free") == 0 || strcmp(kind, "bad-free") == 0) {
        say_more(said, "%s is given %s\n    address %s", tow_json_text(doc, finding, "call"),
                 kind[0] == 'd' ? "memory that was freed before" : "what is no allocation of its",
                 tow_json_text(doc, finding, "address"));
        say_allocation(said, doc, finding);
    } else if (strcmp(kind, "more") == 0) {
        say_more(said, "kernel %s has more mistakes than are told, at other places: %.0f times",
                 tow_json_text(doc, finding, "kernel"), tow_json_number(doc, finding, "threads"));
    } else if (strcmp(kind, "race") == 0) {
        say_race(said, doc, finding);
    } else {
        say_kernel(said, doc, finding, kind);
    }
}

/* What patterns are compared with: "memcheck:out-of-bounds:KERNEL:FILE:LINE". */
static bool is_suppressed(const struct tow_check *check, const struct tow_json_doc *doc,
                          const struct tow_json_value *finding)
{
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "%s:%s:%s:%s:%.0f", tow_json_text(doc, finding, "tool"),
             tow_json_text(doc, finding, "kind"), tow_json_text(doc, finding, "kernel"),
             tow_json_text(doc, finding, "file"), tow_json_number(doc, finding, "line"));
    for (unsigned i = 0; i < check->suppress_count; i++) {
        if (fnmatch(check->suppress[i], name, 0) == 0) {
            return true;
        }
    }
    return false;
}

void tow_check_take(struct tow_check *check, const char *line, size_t size)
{
    struct tow_json_doc doc;
    if (tow_json_doc_parse(line, size, &doc) < 0) {
        return;
    }
    const struct tow_json_value *finding = doc.values;
    const char *kind = tow_json_text(&doc, finding, "kind");
    const char *session = tow_json_text(&doc, finding, "session");
    check->sessions += strcmp(session, "begins") == 0;
    check->sessions -= strcmp(session, "ends") == 0 && check->sessions > 0;
    if (kind[0] == '\0' || (!check->leaks && strcmp(kind, "leak") == 0)) {
        tow_json_doc_fini(&doc);
        return;
    }
    if (strcmp(kind, "not-looked-at") == 0) {
        fprintf(stderr, "towline check: kernel %s: %s; with --soft-threads=1 fewer run at a time\n",
                tow_json_text(&doc, finding, "kernel"), tow_json_text(&doc, finding, "message"));
        check->unseen++;
        tow_json_doc_fini(&doc);
        return;
    }
    if (is_suppressed(check, &doc, finding)) {
        check->suppressed++;
        tow_json_doc_fini(&doc);
        return;
    }
    struct said said = {.used = 0};
    say_finding(&said, &doc, finding);
    check->found++;
    fprintf(stderr, "towline check: %s%s%s\n", tow_cli_colour(stderr, TOW_RED), said.text,
            tow_cli_colour(stderr, TOW_PLAIN));
    /* Beyond the maximum they are only printed and counted. */
    if (tow_buf_reserve(&check->json, size + 1) == 0) {
        if (check->json.size > 0) {
            tow_buf_append(&check->json, ",", 1);
        }
        tow_buf_append(&check->json, line, size);
    }
    tow_json_doc_fini(&doc);
}

void tow_check_sum_up(const struct tow_check *check)
{
    char suppressed[64] = "";
    if (check->suppressed > 0) {
        snprintf(suppressed, sizeof suppressed, ", %u suppressed", check->suppressed);
    }
    if (check->found == 0) {
        fprintf(stderr, "towline check: no mistake was found%s\n", suppressed);
    } else {
        fprintf(stderr, "towline check: %u mistake%s found%s\n", check->found,
                check->found == 1 ? " was" : "s were", suppressed);
    }
}

int tow_check_write_json(const struct tow_check *check, const char *path, const char *tool,
                         char **program, int code)
{
    struct tow_buf out;
    struct tow_json json;
    tow_buf_init(&out, JSON_MAX + (1u << 20));
    tow_json_init(&json, &out);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "tool", tool);
    tow_json_array(&json, "program");
    for (; *program != NULL; program++) {
        tow_json_str(&json, NULL, *program);
    }
    tow_json_end(&json);
    tow_json_i64(&json, "exit_code", code);
    tow_json_u64(&json, "found", check->found);
    tow_json_u64(&json, "suppressed", check->suppressed);
    tow_json_u64(&json, "not_looked_at", check->unseen);
    tow_json_array(&json, "findings");
    if (check->json.size > 0) {
        char nul = '\0';
        struct tow_buf text = {.max = JSON_MAX + 1};
        if (tow_buf_append(&text, check->json.data, check->json.size) == 0 &&
            tow_buf_append(&text, &nul, 1) == 0) {
            tow_json_raw(&json, NULL, (const char *)text.data);
        }
        tow_buf_fini(&text);
    }
    tow_json_end(&json);
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    FILE *file = error == 0 ? fopen(path, "we") : NULL;
    if (error == 0 && file == NULL) {
        error = -errno;
    }
    if (file != NULL) {
        bool wrote = fwrite(out.data, 1, out.size, file) == out.size && fputc('\n', file) != EOF;
        if (fclose(file) != 0 || !wrote) {
            error = -EIO;
        }
    }
    tow_buf_fini(&out);
    return error;
}
