/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and runs cases: one in this process, or many in a few processes. Starting a process with
 * CUDA takes a real GPU's driver a good part of a second, one at a time; so cases that leave
 * nothing behind share a process, and only what must be alone is. */
#define _GNU_SOURCE
#include "conform.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, TIDY_LIMIT_S = 3, JOBS_MAX = 64 };

/* A shared child's output has these before and behind what a case prints. */
#define CASE_BEGINS '\1'
#define CASE_ENDS '\2'

static struct conform_case *list; /* borrowed: static objects of the program */
static struct conform_case *current;
static int wrong_count;
static bool shared; /* this process runs several cases */
static int level_now = -1;

void conform_add(struct conform_case *one)
{
    one->next = list;
    list = one;
}

void conform_sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
}

void conform_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%s: %s\n", current->name, text);
    fflush(stdout);
}

void conform_wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wrong_count++;
    conform_say("WRONG: %s", text);
}

static void finish(void)
{
    conform_say("%s", wrong_count == 0 ? "ok" : "FAILED");
    if (shared) {
        printf("%c%s\n", CASE_ENDS, current->name);
        fflush(stdout);
    }
}

void conform_stop(void)
{
    wrong_count++;
    finish();
    _exit(1); /* a ruined or half-built session has nothing to tidy up */
}

void conform_number(const char *what, long long got)
{
    conform_say("%s = %lld", what, got);
}

void conform_equal(const char *what, long long got, long long wanted)
{
    conform_number(what, got);
    if (got != wanted) {
        conform_wrong("%lld was expected", wanted);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static int compare(const void *a, const void *b)
{
    const struct conform_case *x = *(struct conform_case *const *)a;
    const struct conform_case *y = *(struct conform_case *const *)b;
    int by_file = strcmp(base_name(x->file), base_name(y->file));
    return by_file != 0 ? by_file : x->line - y->line;
}

/* All cases in the order of files' names and lines; to be freed. */
static struct conform_case **sorted(size_t *ret_count)
{
    size_t count = 0;
    for (struct conform_case *one = list; one != NULL; one = one->next) {
        count++;
    }
    struct conform_case **table = malloc((count + 1) * sizeof *table);
    if (table == NULL) {
        abort();
    }
    count = 0;
    for (struct conform_case *one = list; one != NULL; one = one->next) {
        table[count++] = one;
    }
    qsort(table, count, sizeof *table, compare);
    *ret_count = count;
    return table;
}

static void run_one(struct conform_case *one)
{
    current = one;
    wrong_count = 0;
    if (shared) {
        printf("%c%s\n", CASE_BEGINS, one->name);
        fflush(stdout);
    }
    alarm(LIMIT_S);
    if (level_now < one->level) {
        conform_set_up(level_now, one->level);
        level_now = one->level;
    }
    one->run();
    finish();
}

static int run_here(struct conform_case *one)
{
    run_one(one);
    _exit(wrong_count == 0 ? 0 : 1);
}

/* In a child: one case after the other, until one leaves something behind. The rest is for a new
 * child then. */
static void run_shared(struct conform_case **table, size_t count, char **names)
{
    shared = true;
    for (; *names != NULL; names++) {
        size_t i = 0;
        while (i < count && strcmp(table[i]->name, *names) != 0) {
            i++;
        }
        if (i == count) {
            _exit(2);
        }
        run_one(table[i]);
        alarm(TIDY_LIMIT_S);
        if (!conform_tidy(level_now)) {
            break;
        }
    }
    _exit(0);
}

/* ---- many cases: the parent ---- */

struct result {
    char *text; /* owned; NULL until the case is done */
    bool passed;
};

/* A child and what is left of the cases that it got. */
struct job {
    pid_t pid;            /* 0: none */
    int fd;               /* owned: a memory file with the child's output */
    size_t *cases, count; /* owned: positions in the table */
};

/* CUDA does not survive a fork, so the child starts this program anew. */
static void start(struct job *job, struct conform_case **table)
{
    char **args = calloc(job->count + 3, sizeof *args);
    if (args == NULL) {
        abort();
    }
    args[0] = (char *)"conform";
    args[1] = (char *)"--shared";
    for (size_t i = 0; i < job->count; i++) {
        args[2 + i] = (char *)table[job->cases[i]]->name;
    }
    job->fd = memfd_create("output", MFD_CLOEXEC);
    fflush(stdout);
    job->pid = fork();
    if (job->pid < 0 || job->fd < 0) {
        perror("conform: cannot start a case");
        exit(2);
    }
    if (job->pid == 0) {
        dup2(job->fd, 1);
        execv("/proc/self/exe", args);
        _exit(127);
    }
    free(args);
}

static char *whole_output(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    if (text == NULL || pread(fd, text, (size_t)size, 0) != size) {
        abort();
    }
    close(fd);
    return text;
}

/* What a case printed, from its begin mark to its end mark or the end of all; to be freed. */
static char *part_of(const char *text, const char *name, bool *ret_ended)
{
    char mark[160];
    *ret_ended = false;
    snprintf(mark, sizeof mark, "%c%s\n", CASE_BEGINS, name);
    const char *begin = strstr(text, mark);
    if (begin == NULL) {
        return NULL;
    }
    begin += strlen(mark);
    mark[0] = CASE_ENDS;
    const char *end = strstr(begin, mark);
    *ret_ended = end != NULL;
    return strndup(begin, end != NULL ? (size_t)(end - begin) : strlen(begin));
}

/* The case during which a child ended, with what it had printed; takes `text` over. */
static char *cut_short(char *text, const char *name, int status)
{
    char why[64] = "FAILED, exit code 0 before its end", *whole = NULL;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        snprintf(why, sizeof why, "FAILED, no end within %d s", LIMIT_S);
    } else if (WIFSIGNALED(status)) {
        snprintf(why, sizeof why, "FAILED, killed by signal %d", WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(why, sizeof why, "FAILED, exit code %d", WEXITSTATUS(status));
    }
    if (asprintf(&whole, "%s%s: %s\n", text != NULL ? text : "", name, why) < 0) {
        abort();
    }
    free(text);
    return whole;
}

/* A child has ended: takes the results of its cases; those that it did not come to stay its own. */
static void collect(struct job *job, struct conform_case **table, struct result *results,
                    int status)
{
    char *all = whole_output(job->fd);
    size_t done = 0;
    for (bool ended = true; done < job->count && ended; done++) {
        const char *name = table[job->cases[done]]->name;
        char *text = part_of(all, name, &ended);
        if (text == NULL && done > 0) {
            break;
        }
        struct result *result = &results[job->cases[done]];
        char good[160];
        snprintf(good, sizeof good, "%s: ok\n", name);
        size_t length = text != NULL ? strlen(text) : 0;
        result->passed =
            ended && length >= strlen(good) && strcmp(text + length - strlen(good), good) == 0;
        result->text = ended ? text : cut_short(text, name, status);
    }
    free(all);
    job->count -= done;
    memmove(job->cases, job->cases + done, job->count * sizeof *job->cases);
    job->pid = 0;
}

static struct job *add_job(struct job *jobs, size_t *count, size_t room)
{
    struct job *job = &jobs[(*count)++];
    *job = (struct job){.cases = calloc(room, sizeof *job->cases)};
    if (job->cases == NULL) {
        abort();
    }
    return job;
}

/* Which cases go together: those that share, dealt out, lower levels first because a process only
 * gains; and each of the others alone. */
static struct job *plan(struct conform_case **table, size_t count, size_t children, bool alone,
                        size_t *ret_count)
{
    struct job *jobs = calloc(count + children, sizeof *jobs);
    size_t made = 0;
    if (jobs == NULL) {
        abort();
    }
    for (size_t i = 0; i < children; i++) {
        add_job(jobs, &made, count);
    }
    for (int level = 0; level <= LEVEL_MAX; level++) {
        size_t sharing = 0;
        for (size_t i = 0; i < count; i++) {
            if (table[i]->level != level) {
                continue;
            }
            if (alone || table[i]->alone) {
                struct job *job = add_job(jobs, &made, 1);
                job->cases[job->count++] = i;
            } else {
                sharing++;
            }
        }
        for (size_t i = 0, n = 0; i < count && sharing > 0; i++) {
            if (table[i]->level == level && !alone && !table[i]->alone) {
                /* Neighbours stay together; what comes before FULL is little: one child has it. */
                struct job *job = &jobs[level < LEVEL_MAX ? 0 : n++ * children / sharing];
                job->cases[job->count++] = i;
            }
        }
    }
    *ret_count = made;
    return jobs;
}

/* Shows them in the order of the table, whatever order they end in. */
static int run_all(struct conform_case **table, size_t count, size_t limit, bool alone)
{
    size_t job_count, shown = 0, passed = 0, running = 0;
    struct job *jobs = plan(table, count, limit > 1 ? limit / 2 : 1, alone, &job_count);
    struct result *results = calloc(count + 1, sizeof *results);
    if (results == NULL) {
        abort();
    }
    while (shown < count) {
        for (size_t i = 0; i < job_count && running < limit; i++) {
            if (jobs[i].pid == 0 && jobs[i].count > 0) {
                start(&jobs[i], table);
                running++;
            }
        }
        int status = 0;
        pid_t ended = wait(&status);
        if (ended < 0 && errno != EINTR) {
            perror("conform: wait");
            exit(2);
        }
        for (size_t i = 0; i < job_count && ended > 0; i++) {
            if (jobs[i].pid == ended) {
                collect(&jobs[i], table, results, status);
                running--;
                break;
            }
        }
        for (; shown < count && results[shown].text != NULL; shown++) {
            fputs(results[shown].text, stdout);
            fflush(stdout);
            passed += results[shown].passed;
            free(results[shown].text);
        }
    }
    for (size_t i = 0; i < job_count; i++) {
        free(jobs[i].cases);
    }
    free(jobs);
    free(results);
    printf("%zu passed, %zu failed\n", passed, count - passed);
    return passed == count ? 0 : 1;
}

int conform_main(int argc, char **argv)
{
    size_t count, chosen = 0, jobs = 1;
    bool alone = false;
    struct conform_case **table = sorted(&count);
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "list") == 0) {
        for (size_t i = 0; i < count; i++) {
            printf("%-44s %s\n", table[i]->name, table[i]->sentence);
        }
        return 0;
    }
    if (strcmp(command, "--shared") == 0) {
        run_shared(table, count, argv + 2);
    }
    if (argc == 2 && strcmp(command, "all") != 0) {
        for (size_t i = 0; i < count; i++) {
            if (strcmp(table[i]->name, command) == 0) {
                return run_here(table[i]);
            }
        }
    }
    /* `all`, or parts of names: what contains one of them. */
    for (size_t i = 0; i < count; i++) {
        bool wanted = false;
        for (int k = 1; k < argc; k++) {
            if (strcmp(argv[k], "--jobs") == 0 && k + 1 < argc) {
                jobs = strtoul(argv[++k], NULL, 10);
                continue;
            }
            if (strcmp(argv[k], "--alone") == 0) {
                alone = true;
                continue;
            }
            wanted |= strcmp(argv[k], "all") == 0 || strstr(table[i]->name, argv[k]) != NULL;
        }
        if (wanted) {
            table[chosen++] = table[i];
        }
    }
    if (chosen == 0) {
        fprintf(stderr, "usage: conform list | NAME | all [--jobs N] [--alone] | PART-OF-NAMES... "
                        "[--jobs N]\n");
        return 2;
    }
    int result = run_all(table, chosen, jobs < 1 ? 1 : jobs > JOBS_MAX ? JOBS_MAX : jobs, alone);
    free(table);
    return result;
}
