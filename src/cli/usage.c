/* SPDX-License-Identifier: Apache-2.0 */
/* `towline usage`: sums up the sessions that have ended, from the file that the server writes. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buf.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/size.h"
#include "cli/cli.h"

#define CONFIG_FILE "/etc/towline/towlined.conf"

enum { LINE_SIZE = 16 << 10, KEY_SIZE = 160, SUMS_MAX = 10000, JSON_MAX = 8 << 20 };

struct usage_sum {
    char key[KEY_SIZE];
    double sessions, wall_s, waited_s, gpu_s, launches, calls, in, out, gpu_memory, host_memory;
};

struct usage_order {
    const char *file, *config, *by;
    time_t since, until;
    bool json;
};

/* ---- times ---- */

static time_t find_midnight(time_t now, int days_ago)
{
    struct tm day;
    localtime_r(&now, &day);
    day.tm_mday -= days_ago;
    day.tm_hour = day.tm_min = day.tm_sec = 0;
    day.tm_isdst = -1;
    return mktime(&day);
}

/* "monday": the last one, or today. */
static int read_weekday(const char *text, time_t now, time_t *ret_time)
{
    static const char *const names[] = {"sunday",   "monday", "tuesday", "wednesday",
                                        "thursday", "friday", "saturday"};
    struct tm day;
    localtime_r(&now, &day);
    for (int i = 0; i < 7; i++) {
        if (strcasecmp(text, names[i]) == 0) {
            *ret_time = find_midnight(now, (day.tm_wday - i + 7) % 7);
            return 0;
        }
    }
    return -EINVAL;
}

static int read_date(const char *text, time_t *ret_time)
{
    struct tm day = {.tm_isdst = -1};
    int end = 0;
    if (sscanf(text, "%4d-%2d-%2d%n", &day.tm_year, &day.tm_mon, &day.tm_mday, &end) != 3 ||
        text[end] != '\0' || day.tm_mon < 1 || day.tm_mon > 12 || day.tm_mday < 1 ||
        day.tm_mday > 31 || day.tm_year < 1970) {
        return -EINVAL;
    }
    day.tm_year -= 1900;
    day.tm_mon--;
    *ret_time = mktime(&day);
    return 0;
}

/* "monday", "today", "yesterday", "2026-11-30", "12h", "7d". */
static int read_moment(const char *text, time_t *ret_time)
{
    time_t now = time(NULL);
    uint64_t seconds;
    if (strcasecmp(text, "today") == 0 || strcasecmp(text, "yesterday") == 0) {
        *ret_time = find_midnight(now, strcasecmp(text, "yesterday") == 0);
        return 0;
    }
    if (read_weekday(text, now, ret_time) == 0 || read_date(text, ret_time) == 0) {
        return 0;
    }
    if (tow_duration_parse(text, &seconds) < 0 || seconds > (uint64_t)now) {
        tow_cli_say(
            "\"%s\" is no time; write a weekday, today, yesterday, a date as 2026-11-30, or "
            "12h or 7d before now",
            text);
        return -EINVAL;
    }
    *ret_time = now - (time_t)seconds;
    return 0;
}

/* ---- the file ---- */

/* "usage-file = FILE" of a server's config. */
static int find_file(const char *config, char *ret_path, size_t size)
{
    char line[1024], *value;
    FILE *file = fopen(config, "re");
    ret_path[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '[') {
        char *name = line + strspn(line, " \t");
        if (strncmp(name, "usage-file", 10) != 0 || (value = strchr(name, '=')) == NULL) {
            continue;
        }
        value += 1 + strspn(value + 1, " \t");
        for (size_t n = strlen(value); n > 0 && isspace((unsigned char)value[n - 1]); n--) {
            value[n - 1] = '\0';
        }
        snprintf(ret_path, size, "%s", value);
    }
    if (file != NULL) {
        fclose(file);
    }
    return ret_path[0] != '\0' ? 0 : -ENOENT;
}

/* ---- sums ---- */

static int compare_sums(const void *one, const void *other)
{
    const struct usage_sum *a = one, *b = other;
    return a->wall_s != b->wall_s ? (a->wall_s < b->wall_s ? 1 : -1) : strcmp(a->key, b->key);
}

static const char *find_key(const struct tow_json_doc *doc, const char *by, char ret_key[KEY_SIZE])
{
    const char *text = tow_json_text(doc, doc->values, by);
    if (strcmp(by, "day") == 0) {
        time_t began = (time_t)tow_json_number(doc, doc->values, "began_s");
        struct tm day;
        localtime_r(&began, &day);
        strftime(ret_key, KEY_SIZE, "%Y-%m-%d", &day);
    } else {
        snprintf(ret_key, KEY_SIZE, "%s", text[0] != '\0' ? text : "-");
    }
    return ret_key;
}

static struct usage_sum *find_sum(struct usage_sum **sums, unsigned *count, const char *key)
{
    for (unsigned i = 0; i < *count; i++) {
        if (strcmp((*sums)[i].key, key) == 0) {
            return &(*sums)[i];
        }
    }
    struct usage_sum *more =
        *count < SUMS_MAX ? realloc(*sums, (*count + 1) * sizeof **sums) : NULL;
    if (more == NULL) {
        return NULL;
    }
    *sums = more;
    struct usage_sum *sum = &more[(*count)++];
    *sum = (struct usage_sum){.sessions = 0};
    snprintf(sum->key, sizeof sum->key, "%s", key);
    return sum;
}

static double usage_most(double one, double other)
{
    return one > other ? one : other;
}

static bool add_session(const struct usage_order *order, const struct tow_json_doc *doc,
                        struct usage_sum **sums, unsigned *count)
{
    const struct tow_json_value *root = doc->values;
    double began = tow_json_number(doc, root, "began_s");
    char key[KEY_SIZE];
    if (began < (double)order->since || began >= (double)order->until) {
        return true;
    }
    struct usage_sum *sum = find_sum(sums, count, find_key(doc, order->by, key));
    if (sum == NULL) {
        return false;
    }
    sum->sessions++;
    sum->wall_s += tow_json_number(doc, root, "wall_s");
    sum->waited_s += tow_json_number(doc, root, "waited_s");
    sum->gpu_s += tow_json_number(doc, root, "gpu_s");
    sum->launches += tow_json_number(doc, root, "launches");
    sum->calls += tow_json_number(doc, root, "calls");
    sum->in += tow_json_number(doc, root, "bytes_in");
    sum->out += tow_json_number(doc, root, "bytes_out");
    sum->gpu_memory = usage_most(sum->gpu_memory, tow_json_number(doc, root, "gpu_memory"));
    sum->host_memory = usage_most(sum->host_memory, tow_json_number(doc, root, "host_memory"));
    return true;
}

/* Lines that cannot be read are counted, as one is that the server was killed over. */
static int add_file(const struct usage_order *order, const char *path, struct usage_sum **sums,
                    unsigned *count, unsigned *bad)
{
    static char line[LINE_SIZE];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -errno;
    }
    bool room = true;
    while (room && fgets(line, sizeof line, file) != NULL) {
        struct tow_json_doc doc;
        if (tow_json_doc_parse(line, strlen(line), &doc) < 0) {
            ++*bad;
            continue;
        }
        room = add_session(order, &doc, sums, count);
        tow_json_doc_fini(&doc);
    }
    fclose(file);
    return room ? 0 : -E2BIG;
}

/* ---- showing ---- */

static void show_table(const struct usage_order *order, const struct usage_sum *sums,
                       unsigned count)
{
    char wall[16], waited[16], computed[16], in[16], out[16], gpu[16], host[16], head[KEY_SIZE];
    snprintf(head, sizeof head, "%s", order->by);
    for (char *at = head; *at != '\0'; at++) {
        *at = (char)toupper((unsigned char)*at);
    }
    printf("%s%-24s %8s %9s %9s %9s %10s %12s %10s %10s %10s %11s%s\n",
           tow_cli_colour(stdout, TOW_BOLD), head, "SESSIONS", "TIME", "WAITED", "GPU TIME",
           "LAUNCHES", "CALLS", "IN", "OUT", "GPU MEMORY", "HOST MEMORY",
           tow_cli_colour(stdout, TOW_PLAIN));
    for (unsigned i = 0; i < count; i++) {
        const struct usage_sum *sum = &sums[i];
        printf("%-24.60s %8.0f %9s %9s %9s %10.0f %12.0f %10s %10s %10s %11s\n", sum->key,
               sum->sessions, tow_cli_age(sum->wall_s, wall), tow_cli_age(sum->waited_s, waited),
               tow_cli_age(sum->gpu_s, computed), sum->launches, sum->calls,
               tow_cli_bytes(sum->in, in), tow_cli_bytes(sum->out, out),
               tow_cli_bytes(sum->gpu_memory, gpu), tow_cli_bytes(sum->host_memory, host));
    }
}

static int show_json(const struct usage_order *order, const struct usage_sum *sums, unsigned count)
{
    struct tow_buf out;
    struct tow_json json;
    tow_buf_init(&out, JSON_MAX);
    tow_json_init(&json, &out);
    tow_json_array(&json, NULL);
    for (unsigned i = 0; i < count; i++) {
        const struct usage_sum *sum = &sums[i];
        tow_json_object(&json, NULL);
        tow_json_str(&json, order->by, sum->key);
        tow_json_u64(&json, "sessions", (uint64_t)sum->sessions);
        tow_json_f64(&json, "wall_s", sum->wall_s);
        tow_json_f64(&json, "waited_s", sum->waited_s);
        tow_json_f64(&json, "gpu_s", sum->gpu_s);
        tow_json_u64(&json, "launches", (uint64_t)sum->launches);
        tow_json_u64(&json, "calls", (uint64_t)sum->calls);
        tow_json_u64(&json, "bytes_in", (uint64_t)sum->in);
        tow_json_u64(&json, "bytes_out", (uint64_t)sum->out);
        tow_json_u64(&json, "gpu_memory", (uint64_t)sum->gpu_memory);
        tow_json_u64(&json, "host_memory", (uint64_t)sum->host_memory);
        tow_json_end(&json);
    }
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    if (error == 0) {
        printf("%.*s\n", (int)out.size, (const char *)out.data);
    }
    tow_buf_fini(&out);
    return error;
}

/* ---- the command ---- */

static const struct tow_flag usage_flags[] = {
    {NULL, "--since", "WHEN", 's'}, {NULL, "--until", "WHEN", 'u'},  {NULL, "--by", "WHAT", 'b'},
    {NULL, "--file", "FILE", 'f'},  {"-c", "--config", "FILE", 'c'}, {NULL, "--json", NULL, 'j'},
    {NULL, NULL, NULL, 0},
};

static int take_flags(int argc, char **argv, struct usage_order *order)
{
    static const char *const keys[] = {"tenant", "class", "program", "day"};
    struct tow_flags flags = {.command = &tow_command_usage, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    int key, error = 0;
    while ((key = tow_flags_next(&flags, &value)) > 0 && error == 0) {
        order->by = key == 'b' ? value : order->by;
        order->file = key == 'f' ? value : order->file;
        order->config = key == 'c' ? value : order->config;
        order->json |= key == 'j';
        error = key == 's'   ? read_moment(value, &order->since)
                : key == 'u' ? read_moment(value, &order->until)
                             : 0;
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code == 0 ? -ECANCELED : -EINVAL;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(order->by, keys[i]) == 0) {
            return error < 0 || !tow_flags_no_words(&flags) ? -EINVAL : 0;
        }
    }
    tow_cli_say("--by=%s is none; write tenant, class, program or day", order->by);
    return -EINVAL;
}

static const char *tell_remedy(int error)
{
    switch (error) {
    case -EACCES:
        return "; ask as root, or as a user who may read it";
    case -ENOENT:
        return "; towlined makes it when it starts: restart it if usage-file is new there";
    default:
        return "";
    }
}

static int usage_main(int argc, char **argv)
{
    struct usage_order order = {.config = CONFIG_FILE, .by = "tenant"};
    char path[512], older[sizeof path + 8];
    struct usage_sum *sums = NULL;
    unsigned count = 0, bad = 0;
    order.until = time(NULL) + 86400;
    int error = take_flags(argc, argv, &order);
    if (error < 0) {
        return error == -ECANCELED ? 0 : TOW_EXIT_USAGE;
    }
    if (order.file != NULL) {
        snprintf(path, sizeof path, "%s", order.file);
    } else if (find_file(order.config, path, sizeof path) < 0) {
        tow_cli_say("%s names no usage-file; write one there and restart towlined, or name a file "
                    "with --file",
                    order.config);
        return TOW_EXIT_FAILED;
    }
    snprintf(older, sizeof older, "%s.1", path);
    error = add_file(&order, older, &sums, &count, &bad);
    if (error == 0 || error == -ENOENT) {
        error = add_file(&order, path, &sums, &count, &bad);
    }
    if (error < 0) {
        tow_cli_say("%s cannot be read: %s%s", path, strerror(-error), tell_remedy(error));
        free(sums);
        return TOW_EXIT_FAILED;
    }
    if (bad > 0) {
        tow_cli_tell("%u lines of %s cannot be understood, and are left out", bad, path);
    }
    if (count > 0) {
        qsort(sums, count, sizeof *sums, compare_sums);
    }
    if (order.json) {
        error = show_json(&order, sums, count);
    } else {
        show_table(&order, sums, count);
    }
    free(sums);
    return error < 0 ? TOW_EXIT_FAILED : 0;
}

const struct tow_command tow_command_usage = {
    .name = "usage",
    .summary = "sum up what a server of this machine was used for",
    .help =
        "towline usage [--since WHEN] [--until WHEN] [--by WHAT] [--file FILE] [--json]: sums up "
        "the sessions\n"
        "that have ended.\n"
        "\n"
        "  towline usage --since monday --by tenant\n"
        "  towline usage --since 30d --by class --json\n"
        "\n"
        "On the server's machine, as a user who may read the file that towlined writes (usage-file "
        "of its\n"
        "settings).\n"
        "\n"
        "  --since WHEN       began then or later: a weekday, today, yesterday, 2026-11-30, 12h, "
        "7d\n"
        "  --until WHEN       began before\n"
        "  --by WHAT          tenant (the default), class, program or day\n"
        "  --file FILE        which file; FILE.1 is read, too\n"
        "  -c, --config FILE  whose usage-file it is (" CONFIG_FILE ")\n"
        "  --json             an array with an object for each line\n"
        "\n"
        "TIME and WAITED are of all sessions together, the memory is the most that one had.\n",
    .flags = usage_flags,
    .run = usage_main,
};
