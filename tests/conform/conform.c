/* Lists and runs cases: one in this process, or all of them, each in a process of its own. */
#define _GNU_SOURCE
#include "conform.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 20, JOBS_MAX = 64 };

static struct conform_case *list; /* borrowed: static objects of the program */
static struct conform_case *current;
static int wrong_count;

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
    _exit(wrong_count == 0 ? 0 : 1); /* a ruined or half-built session has nothing to tidy up */
}

void conform_stop(void)
{
    wrong_count++;
    finish();
    abort();
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

static int run_here(struct conform_case *one)
{
    current = one;
    alarm(LIMIT_S);
    conform_set_up(one->level);
    one->run();
    finish();
    return 1;
}

struct job {
    pid_t pid; /* 0: not started */
    int fd;    /* owned: a memory file with the child's output */
};

/* CUDA does not survive a fork, so the child starts this program anew. */
static void start(struct job *job, const char *name)
{
    job->fd = memfd_create("output", MFD_CLOEXEC);
    fflush(stdout);
    job->pid = fork();
    if (job->pid < 0 || job->fd < 0) {
        perror("conform: cannot start a case");
        exit(2);
    }
    if (job->pid == 0) {
        dup2(job->fd, 1);
        execl("/proc/self/exe", "conform", name, (char *)NULL);
        _exit(127);
    }
}

/* The output of a child that has ended; whether it passed. */
static bool show(struct job *job, const char *name, int status)
{
    char bytes[65536];
    off_t at = 0;
    for (ssize_t got; (got = pread(job->fd, bytes, sizeof bytes, at)) > 0; at += got) {
        fwrite(bytes, 1, (size_t)got, stdout);
    }
    close(job->fd);
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGALRM) {
            printf("%s: FAILED, no end within %d s\n", name, LIMIT_S);
        } else {
            printf("%s: FAILED, killed by signal %d\n", name, WTERMSIG(status));
        }
    } else if (WEXITSTATUS(status) > 1) {
        printf("%s: FAILED, exit code %d\n", name, WEXITSTATUS(status));
    }
    fflush(stdout);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Shows them in the order of the table, whatever order they end in. */
static int run_all(struct conform_case **table, size_t count, size_t jobs)
{
    struct job running[JOBS_MAX];
    size_t started = 0, passed = 0;
    for (size_t next = 0; next < count; next++) {
        while (started < count && started < next + jobs) {
            start(&running[started % jobs], table[started]->name);
            started++;
        }
        struct job *job = &running[next % jobs];
        int status = 0;
        while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR) {
        }
        passed += show(job, table[next]->name, status);
    }
    printf("%zu passed, %zu failed\n", passed, count - passed);
    return passed == count ? 0 : 1;
}

int conform_main(int argc, char **argv)
{
    size_t count, chosen = 0, jobs = 1;
    struct conform_case **table = sorted(&count);
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "list") == 0) {
        for (size_t i = 0; i < count; i++) {
            printf("%-44s %s\n", table[i]->name, table[i]->sentence);
        }
        return 0;
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
            wanted |= strcmp(argv[k], "all") == 0 || strstr(table[i]->name, argv[k]) != NULL;
        }
        if (wanted) {
            table[chosen++] = table[i];
        }
    }
    if (chosen == 0) {
        fprintf(stderr,
                "usage: conform list | NAME | all [--jobs N] | PART-OF-NAMES... [--jobs N]\n");
        return 2;
    }
    return run_all(table, chosen, jobs < 1 ? 1 : jobs > JOBS_MAX ? JOBS_MAX : jobs);
}
