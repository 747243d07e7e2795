/* SPDX-License-Identifier: Apache-2.0 */
/* `towline bench`: how fast a server is, seen from here; with --native beside this machine's own
 * driver. The measuring is done by a program of its own (bench/measure.c), which knows nothing of
 * Towline, in a fresh process each time; example programs are timed from start to end. */
#include "cli/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "base/json_read.h"

enum { LINE_MAX_BYTES = 4096, ARGS_MAX = 32 };

struct plan {
    const char *server, *plot, *max_bytes;
    int plot_fd;              /* owned: the file of `plot`; -1: there is none */
    bool plot_made;           /* it was not there before */
    long round;               /* that goes on, from 0 */
    const char *examples_dir; /* as the user named it; NULL: beside the tools */
    const char *parts[8];     /* that towline-measure takes */
    unsigned part_count;
    bool native, json, quick, with_examples;
    long rounds;
    struct tow_bench_examples examples;
    char servers[TOW_CLI_ADDRESS_MAX];
    char self[PATH_MAX + 16], measure[PATH_MAX + 32], lib_dir[PATH_MAX];
};

/* The figure of that name (and memory, direction, size, program); NULL if there are too many. */
static struct tow_bench_figure *figure_of(struct tow_bench *bench,
                                          const struct tow_bench_figure *like)
{
    for (unsigned i = 0; i < bench->figure_count; i++) {
        struct tow_bench_figure *f = &bench->figures[i];
        if (strcmp(f->name, like->name) == 0 && strcmp(f->memory, like->memory) == 0 &&
            strcmp(f->direction, like->direction) == 0 && f->bytes == like->bytes &&
            strcmp(f->program, like->program) == 0) {
            return f;
        }
    }
    if (bench->figure_count == TOW_BENCH_FIGURES_MAX) {
        return NULL;
    }
    struct tow_bench_figure *f = &bench->figures[bench->figure_count++];
    *f = *like;
    return f;
}

static void add_value(struct tow_bench *bench, enum tow_bench_driver driver,
                      const struct tow_bench_figure *like, double value, double p99)
{
    struct tow_bench_figure *f = figure_of(bench, like);
    if (f != NULL && f->count[driver] < TOW_BENCH_ROUNDS_MAX) {
        f->value[driver][f->count[driver]] = value;
        f->p99[driver][f->count[driver]] = p99;
        f->count[driver]++;
    }
}

/* What was measured; NULL: nothing. */
static const char *take_line(struct tow_bench *bench, enum tow_bench_driver driver,
                             const char *line)
{
    static char what[96];
    struct tow_json_doc doc;
    what[0] = '\0';
    if (tow_json_doc_parse(line, strlen(line), &doc) < 0) {
        return NULL;
    }
    const struct tow_json_value *all = &doc.values[0];
    if (tow_json_member(&doc, all, "device") != NULL) {
        snprintf(bench->device[driver], sizeof bench->device[driver], "%s",
                 tow_json_text(&doc, all, "device"));
    } else if (tow_json_member(&doc, all, "value") != NULL) {
        struct tow_bench_figure like = {.bytes = (uint64_t)tow_json_number(&doc, all, "bytes")};
        snprintf(like.name, sizeof like.name, "%s", tow_json_text(&doc, all, "name"));
        snprintf(like.unit, sizeof like.unit, "%s", tow_json_text(&doc, all, "unit"));
        snprintf(like.memory, sizeof like.memory, "%s", tow_json_text(&doc, all, "memory"));
        snprintf(like.direction, sizeof like.direction, "%s",
                 tow_json_text(&doc, all, "direction"));
        add_value(bench, driver, &like, tow_json_number(&doc, all, "value"),
                  tow_json_number(&doc, all, "p99"));
        char size[16] = "";
        snprintf(what, sizeof what, "%s %s %s %s", like.name, like.memory, like.direction,
                 like.bytes != 0 ? tow_cli_bytes((double)like.bytes, size) : "");
    }
    tow_json_doc_fini(&doc);
    return what[0] != '\0' ? what : NULL;
}

/* The loader must find the machine's own driver: our folder leaves LD_LIBRARY_PATH. */
static void forget_towline(const char *lib_dir)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    char kept[8192] = "";
    size_t used = 0;
    while (path != NULL && *path != '\0') {
        size_t length = strcspn(path, ":");
        bool ours = length == strlen(lib_dir) && strncmp(path, lib_dir, length) == 0;
        if (!ours && length > 0 && used + length + 2 < sizeof kept) {
            used += (size_t)snprintf(kept + used, sizeof kept - used, "%s%.*s", used > 0 ? ":" : "",
                                     (int)length, path);
        }
        path += length + (path[length] == ':');
    }
    if (used > 0) {
        setenv("LD_LIBRARY_PATH", kept, 1);
    } else {
        unsetenv("LD_LIBRARY_PATH");
    }
}

/* What goes on, for somebody who waits at a terminal. */
static void show_progress(const struct plan *plan, enum tow_bench_driver driver, const char *what)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[Kround %ld of %ld%s: %.60s", plan->round + 1, plan->rounds,
                !plan->native                ? ""
                : driver == TOW_BENCH_NATIVE ? ", natively"
                                             : ", through Towline",
                what);
    }
}

/* Becomes a program on a side; does not return. */
static void bench_become(const struct plan *plan, enum tow_bench_driver driver,
                         const char *const *program)
{
    const char *args[ARGS_MAX];
    unsigned n = 0;
    if (driver == TOW_BENCH_REMOTE) {
        args[n++] = plan->self;
        args[n++] = "run";
        args[n++] = "-q";
        if (plan->server != NULL) {
            args[n++] = "-s";
            args[n++] = plan->server;
        }
        args[n++] = "--";
    } else {
        forget_towline(plan->lib_dir);
    }
    while (*program != NULL && n < ARGS_MAX - 1) {
        args[n++] = *program++;
    }
    args[n] = NULL;
    execv(args[0], (char *const *)args);
    tow_cli_say("%s cannot be run: %s", args[0], strerror(errno));
    _exit(TOW_EXIT_NOT_EXECUTABLE);
}

static void become_measure(const struct plan *plan, enum tow_bench_driver driver, int out)
{
    const char *args[ARGS_MAX];
    char began[32];
    unsigned n = 0;
    snprintf(began, sizeof began, "%lld", (long long)tow_time_now_ns());
    args[n++] = plan->measure;
    args[n++] = "--began";
    args[n++] = began;
    args[n++] = "--max-bytes";
    args[n++] = plan->max_bytes;
    if (plan->quick) {
        args[n++] = "--quick";
    }
    for (unsigned i = 0; i < plan->part_count; i++) {
        args[n++] = plan->parts[i];
    }
    args[n] = NULL;
    dup2(out, STDOUT_FILENO);
    bench_become(plan, driver, args);
}

/* What it prints is not shown, but what it complains of. */
static void become_example(const struct plan *plan, enum tow_bench_driver driver, const char *path)
{
    const char *args[] = {path, NULL};
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
        dup2(nothing, STDOUT_FILENO);
    }
    bench_become(plan, driver, args);
}

/* A server that has just served needs a moment until its next worker is ready; what is to be seen
 * is a start with one. Natively the same pause, so that both sides start from the same rest. */
static void bench_rest(const struct plan *plan)
{
    for (unsigned i = 0; i < plan->part_count; i++) {
        if (strcmp(plan->parts[i], "startup") == 0) {
            tow_time_sleep(plan->quick ? 200 * TOW_TIME_MS : TOW_TIME_S);
            return;
        }
    }
}

/* How a child has ended, as of waitpid; -1 if there is none. */
static int wait_for(pid_t child)
{
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static bool ended_well(int status)
{
    return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run_once(const struct plan *plan, struct tow_bench *bench, enum tow_bench_driver driver)
{
    int ends[2];
    bench_rest(plan);
    if (pipe(ends) != 0) {
        tow_cli_say("a pipe cannot be made: %s", strerror(errno));
        return -EIO;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become_measure(plan, driver, ends[1]);
    }
    close(ends[1]);
    FILE *lines = child > 0 ? fdopen(ends[0], "r") : NULL;
    char line[LINE_MAX_BYTES];
    while (lines != NULL && fgets(line, sizeof line, lines) != NULL) {
        const char *what = take_line(bench, driver, line);
        if (what != NULL) {
            show_progress(plan, driver, what);
        }
    }
    if (lines != NULL) {
        fclose(lines);
    } else {
        close(ends[0]);
    }
    int status = wait_for(child);
    if (!ended_well(status)) {
        tow_cli_say(driver == TOW_BENCH_NATIVE
                        ? "the native measurement failed; --native needs this machine's own GPU "
                          "and driver"
                        : "the measurement through Towline failed; `towline devices` shows whether "
                          "the server answers");
        return -EIO;
    }
    return 0;
}

/* An example from its start to its end, as someone who runs it sees it. */
static int run_example(const struct plan *plan, struct tow_bench *bench,
                       enum tow_bench_driver driver, const char *name)
{
    struct tow_bench_figure like = {.name = "example", .unit = "ms"};
    char path[sizeof plan->examples.folder + sizeof like.program + 1];
    snprintf(like.program, sizeof like.program, "%s", name);
    snprintf(path, sizeof path, "%s/%s", plan->examples.folder, name);
    show_progress(plan, driver, name);
    /* As in bench_rest(); there are many of them, so it is shorter. */
    tow_time_sleep(plan->quick ? 100 * TOW_TIME_MS : 500 * TOW_TIME_MS);
    int64_t begin = tow_time_now_ns();
    pid_t child = fork();
    if (child == 0) {
        become_example(plan, driver, path);
    }
    int status = wait_for(child);
    double ms = (double)(tow_time_now_ns() - begin) / TOW_TIME_MS;
    if (!ended_well(status)) {
        const char *where =
            driver == TOW_BENCH_NATIVE ? "on this machine's own driver" : "through Towline";
        if (status != -1 && WIFSIGNALED(status)) {
            tow_cli_say("the example %s was ended by signal %d %s", name, WTERMSIG(status), where);
        } else {
            tow_cli_say("the example %s failed with exit code %d %s", name,
                        status != -1 ? WEXITSTATUS(status) : -1, where);
        }
        return -EIO;
    }
    add_value(bench, driver, &like, ms, 0);
    return 0;
}

static int run_round(const struct plan *plan, struct tow_bench *bench)
{
    int error = 0;
    if (plan->part_count > 0 && plan->native) {
        error = run_once(plan, bench, TOW_BENCH_NATIVE);
    }
    if (plan->part_count > 0 && error == 0) {
        error = run_once(plan, bench, TOW_BENCH_REMOTE);
    }
    for (unsigned i = 0; i < plan->examples.count && error == 0; i++) {
        if (plan->native) {
            error = run_example(plan, bench, TOW_BENCH_NATIVE, plan->examples.names[i]);
        }
        if (error == 0) {
            error = run_example(plan, bench, TOW_BENCH_REMOTE, plan->examples.names[i]);
        }
    }
    return error;
}

/* Checks the parts that were named, or takes all; `examples` is none of towline-measure's. */
static int take_parts(struct plan *plan)
{
    static const char *const known[] = {"startup", "latency", "launches", "bandwidth", "examples"};
    for (unsigned i = 0; i < plan->part_count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            found |= strcmp(plan->parts[i], known[k]) == 0;
        }
        if (!found) {
            tow_cli_say("--part is startup, latency, launches, bandwidth or examples");
            return -EINVAL;
        }
    }
    if (plan->part_count == 0) {
        memcpy(plan->parts, known, sizeof known);
        plan->part_count = sizeof known / sizeof *known;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < plan->part_count; i++) {
        if (strcmp(plan->parts[i], "examples") == 0) {
            plan->with_examples = true;
        } else {
            plan->parts[kept++] = plan->parts[i];
        }
    }
    plan->part_count = kept;
    return 0;
}

static const struct tow_flag bench_flags[] = {
    {"-s", "--server", "ADDRESS", 's'}, {NULL, "--native", NULL, 'n'},
    {NULL, "--rounds", "N", 'r'},       {NULL, "--part", "NAME", 'p'},
    {NULL, "--examples", "DIR", 'e'},   {NULL, "--max-bytes", "N", 'm'},
    {NULL, "--quick", NULL, 'q'},       {NULL, "--json", NULL, 'j'},
    {NULL, "--plot", "FILE.svg", 'o'},  {NULL, NULL, NULL, 0},
};

/* One flag; those that take no value are wished for by being there. */
static void take_flag(struct plan *plan, int key, const char *value, const char **ret_rounds)
{
    switch (key) {
    case 's':
        plan->server = value;
        break;
    case 'r':
        *ret_rounds = value;
        break;
    case 'e':
        plan->examples_dir = value;
        break;
    case 'm':
        plan->max_bytes = value;
        break;
    case 'o':
        plan->plot = value;
        break;
    case 'p':
        if (plan->part_count < sizeof plan->parts / sizeof *plan->parts) {
            plan->parts[plan->part_count++] = value;
        }
        break;
    default:
        plan->native |= key == 'n';
        plan->quick |= key == 'q';
        plan->json |= key == 'j';
        break;
    }
}

/* 0, or what tow_flags_next() or errno says; *ret_code is the exit code then. */
static int take_flags(int argc, char **argv, struct plan *plan, int *ret_code)
{
    struct tow_flags flags = {.command = &tow_command_bench, .argc = argc, .argv = argv, .at = 1};
    const char *rounds = NULL, *value;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        take_flag(plan, key, value, &rounds);
    }
    *ret_code = TOW_EXIT_USAGE;
    if (key == TOW_FLAG_STOP) {
        *ret_code = flags.code;
        return key;
    }
    if (!tow_flags_no_words(&flags)) {
        return -EINVAL;
    }
    plan->rounds = rounds != NULL ? strtol(rounds, NULL, 10) : plan->native ? 7 : 3;
    if (plan->rounds < 1 || plan->rounds > TOW_BENCH_ROUNDS_MAX) {
        tow_cli_say("--rounds is a number from 1 to %d", TOW_BENCH_ROUNDS_MAX);
        return -EINVAL;
    }
    if (plan->max_bytes == NULL) {
        plan->max_bytes = "268435456";
    }
    return take_parts(plan);
}

static int find_programs(struct plan *plan)
{
    char bin_dir[PATH_MAX];
    if (tow_cli_find_folders(bin_dir, plan->lib_dir) < 0) {
        tow_cli_say("Towline's libcuda.so.1 is not beside this program; build it with make, or "
                    "install it again");
        return -ENOENT;
    }
    snprintf(plan->self, sizeof plan->self, "%s/towline", bin_dir);
    /* PREFIX/lib/towline; build/bench. */
    snprintf(plan->measure, sizeof plan->measure, "%s/towline-measure", plan->lib_dir);
    if (access(plan->measure, X_OK) != 0) {
        snprintf(plan->measure, sizeof plan->measure, "%s/../bench/towline-measure", bin_dir);
    }
    if (access(plan->measure, X_OK) != 0) {
        tow_cli_say("towline-measure is not beside Towline's libraries in %s; build it with make, "
                    "or install it again",
                    plan->lib_dir);
        return -ENOENT;
    }
    return 0;
}

/* One ssh for all that is run, if the server wants one: its login is not to be measured each time.
 */
static int open_way(struct plan *plan)
{
    char why[TOW_WHY_MAX];
    int choice = tow_choose_server(plan->server, plan->servers, why, sizeof why);
    if (choice < 0) {
        tow_cli_say("%s", why);
        return choice;
    }
    if (choice != TOW_CHOICE_NONE) {
        plan->server = plan->servers;
    }
    return 0;
}

/* Before anything is measured: for nothing, if it could not be written. What was there stays until
 * then. */
static int open_plot(struct plan *plan)
{
    bool copies = false;
    plan->plot_fd = -1;
    if (plan->plot == NULL) {
        return 0;
    }
    for (unsigned i = 0; i < plan->part_count; i++) {
        copies |= strcmp(plan->parts[i], "bandwidth") == 0;
    }
    if (!copies) {
        tow_cli_say("there is nothing to draw: --plot wants --part bandwidth");
        return -EINVAL;
    }
    plan->plot_made = access(plan->plot, F_OK) != 0;
    plan->plot_fd = open(plan->plot, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (plan->plot_fd < 0) {
        int error = -errno;
        tow_cli_say("%s cannot be written: %s", plan->plot, strerror(-error));
        return error;
    }
    return 0;
}

/* Nothing was measured for it. */
static void forget_plot(struct plan *plan)
{
    if (plan->plot_fd >= 0) {
        close(plan->plot_fd);
        if (plan->plot_made) {
            unlink(plan->plot);
        }
    }
    plan->plot_fd = -1;
}

static int write_plot(const struct tow_bench *bench, struct plan *plan)
{
    const char *path = plan->plot;
    FILE *file = ftruncate(plan->plot_fd, 0) == 0 ? fdopen(plan->plot_fd, "w") : NULL;
    int error = file == NULL ? -errno : tow_bench_plot(bench, file);
    if (file != NULL) {
        plan->plot_fd = -1; /* the stream's */
    }
    if (file != NULL && fclose(file) != 0 && error == 0) {
        error = -errno;
    }
    if (error < 0) {
        tow_cli_say("%s cannot be written: %s", path, strerror(-error));
    }
    return error;
}

static int bench_main(int argc, char **argv)
{
    struct plan plan = {0};
    int code;
    if (take_flags(argc, argv, &plan, &code) < 0) {
        return code;
    }
    const char *named = plan.server != NULL ? plan.server : "the server that towline run finds";
    if (open_plot(&plan) < 0) {
        return TOW_EXIT_FAILED;
    }
    if (find_programs(&plan) < 0 || open_way(&plan) < 0 ||
        (plan.with_examples &&
         tow_bench_examples_find(plan.examples_dir, plan.lib_dir, &plan.examples) < 0)) {
        forget_plot(&plan);
        return TOW_EXIT_FAILED;
    }
    struct tow_bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL) {
        forget_plot(&plan);
        tow_cli_say("memory is used up");
        return TOW_EXIT_FAILED;
    }
    bench->server = named;
    bench->native = plan.native;
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) != NULL) {
        strftime(bench->date, sizeof bench->date, "%Y-%m-%d %H:%M UTC", &parts);
    }
    int error = 0;
    for (; plan.round < plan.rounds && error == 0; plan.round++) {
        error = run_round(&plan, bench);
        bench->rounds++;
    }
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K");
    }
    if (error == 0 && plan.json) {
        error = tow_bench_json(bench, stdout);
    } else if (error == 0) {
        tow_bench_show(bench, stdout);
    }
    if (error == 0 && plan.plot != NULL) {
        error = write_plot(bench, &plan);
    }
    forget_plot(&plan); /* unless it was written */
    free(bench);
    return error < 0 ? TOW_EXIT_FAILED : 0;
}

const struct tow_command tow_command_bench = {
    .name = "bench",
    .summary = "measure a server: latency, launches, bandwidth, start-up, examples",
    .help =
        "towline bench [-s ADDRESS] [--native] [--examples DIR] [--json] [--plot FILE.svg] "
        "[--quick]\n"
        "\n"
        "Measures what programs will see of a server from this machine.\n"
        "\n"
        "  towline bench -s tcp://gpuhost:4837                a server\n"
        "  towline bench -s unix:///run/towline.sock --native  beside this machine's own driver\n"
        "  towline bench --plot copies.svg                    with curves\n"
        "\n"
        "  -s, --server ADDRESS  as in towline run; without it the same server is found\n"
        "  --native              each round also runs without Towline, in turns, and the ratios "
        "are\n"
        "                        printed; needs a GPU and its driver here\n"
        "  --rounds N            default 3, with --native 7; the medians of the rounds are shown\n"
        "  --part NAME           startup, latency, launches, bandwidth or examples; repeat it for "
        "several\n"
        "  --examples DIR        the programs whose times are taken: every executable file in it. "
        "Default:\n"
        "                        those that examples/run has built beside this program\n"
        "  --max-bytes N         the largest copy, default 268435456\n"
        "  --quick               a tenth of the repetitions\n"
        "  --json                everything, with each round's values\n"
        "  --plot FILE.svg       bandwidth and time of copies by size\n"
        "\n"
        "How to read it: `enqueue` is how long the call takes, which is what a busy program sees; "
        "`+ sync`\n"
        "is until the GPU has done it, so one round trip is in it. `drained` is the time per "
        "launch of many\n"
        "in a row until all are done. A ratio below 1 means that Towline is faster (for GB/s: "
        "above 1).\n"
        "Latencies have a median and a 99th percentile. Start-up begins with the program: a "
        "server with\n"
        "idle workers answers faster than a driver that has to start. An example's time is that "
        "of its\n"
        "process from start to end; it must end with exit code 0.\n",
    .flags = bench_flags,
    .run = bench_main,
};
