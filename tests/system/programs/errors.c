/* Deliberate mistakes against the driver API, and what each is answered.
 *
 *   errors list                the names of all cases
 *   errors [CASE...]           these cases, or all, each in a process of its own
 *     --jobs N                 so many at a time (1)
 *     --limit SECONDS          how long a case may take (10)
 *
 * One line per case, in the order of this file: `name: RESULT`, or `name: RESULT / RESULT` where a
 * call that needs no reply (a launch, a copy to the device, a memset, a record ...) is followed by
 * a synchronisation: a remote driver may report the first's error there. `name: crashes` for a case
 * that ends its process, `name: hangs` for one that is not done in time: what NVIDIA's driver may
 * do with a handle that is gone or a pointer that it does not check. errors.expected holds what it
 * answers. */
#include "kernels_ptx.h"

#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum level { NOTHING, INIT, CONTEXT, MODULE };

struct error_case {
    const char *name;
    enum level level; /* what is set up before it */
    void (*run)(void);
    int order;
};

/* The linker collects the cases. */
#define CASE(name, level)                                                                          \
    static void case_##name(void);                                                                 \
    static const struct error_case entry_##name = {#name, level, case_##name, __COUNTER__};        \
    static const struct error_case *const pointer_##name                                           \
        __attribute__((section("error_cases"), used)) = &entry_##name;                             \
    static void case_##name(void)

extern const struct error_case *const __start_error_cases[];
extern const struct error_case *const __stop_error_cases[];

/* What the set-up leaves for the cases. */
static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUdeviceptr memory; /* 2 MiB */
static const size_t SIZE = 2 << 20;
static char host[256];
static CUfunction scale, poke, nothing;
static const CUdeviceptr NOWHERE = 0x10;

static void say(CUresult result)
{
    const char *name = NULL;
    if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != NULL) {
        printf(" %s", name);
    } else {
        printf(" %d", result);
    }
    fflush(stdout);
}

static void then(CUresult result)
{
    printf(" /");
    say(result);
}

/* For a call that may be answered later. */
static void say_and_sync(CUresult result)
{
    say(result);
    then(cuCtxSynchronize());
}

static void need(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        printf(" [the set-up failed: %s: %d]\n", what, result);
        exit(3);
    }
}
#define NEED(call) need((call), #call)

static CUresult launch(CUfunction function, unsigned grid, unsigned block, void **params)
{
    return cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, NULL, params, NULL);
}

static CUresult launch_poke(CUdeviceptr address)
{
    void *params[] = {&address};
    return launch(poke, 1, 1, params);
}

static void set_up(enum level level)
{
    if (level >= INIT) {
        NEED(cuInit(0));
        NEED(cuDeviceGet(&device, 0));
    }
    if (level >= CONTEXT) {
        NEED(cuDevicePrimaryCtxRetain(&context, device));
        NEED(cuCtxSetCurrent(context));
        NEED(cuMemAlloc(&memory, SIZE));
    }
    if (level >= MODULE) {
        NEED(cuModuleLoadData(&module, kernels_ptx));
        NEED(cuModuleGetFunction(&scale, module, "scale"));
        NEED(cuModuleGetFunction(&poke, module, "poke"));
        NEED(cuModuleGetFunction(&nothing, module, "nothing"));
    }
}

/* The cases; their order is the order of the output. */
#include "errors_context.h"
#include "errors_memory.h"
#include "errors_launch.h"
#include "errors_stream.h"
#include "errors_kernel.h"

static int run_here(const struct error_case *this)
{
    printf("%s:", this->name);
    set_up(this->level);
    fflush(stdout);
    this->run();
    printf("\n");
    fflush(stdout);
    _exit(0); /* a ruined or half-built session has nothing to tidy up */
}

/* ---- each case in a fresh process ---- */

enum { CASES_MAX = 512, JOBS_MAX = 64, TEXT_MAX = 512 };

enum state { WAITING, RUNNING, DONE };

struct run {
    const struct error_case *this;
    enum state state;
    pid_t child;
    int output; /* what it prints */
    double deadline;
    size_t length;
    char text[TEXT_MAX];
};

static struct run runs[CASES_MAX];
static size_t run_count;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* CUDA does not survive a fork, so the child starts this program anew. */
static void start(struct run *run, double limit)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("errors: pipe");
        exit(1);
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pid_t child = fork();
    if (child < 0) {
        perror("errors: fork");
        exit(1);
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[1]);
        execl("/proc/self/exe", "errors", "--here", run->this->name, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    run->state = RUNNING;
    run->child = child;
    run->output = ends[0];
    run->deadline = now() + limit;
}

static void take_output(struct run *run)
{
    ssize_t n;
    while (run->length < TEXT_MAX - 1 &&
           (n = read(run->output, run->text + run->length, TEXT_MAX - 1 - run->length)) > 0) {
        run->length += (size_t)n;
    }
    run->text[run->length] = '\0';
}

static int finish(struct run *run, const char *instead)
{
    take_output(run);
    close(run->output);
    run->state = DONE;
    if (instead != NULL) {
        snprintf(run->text, sizeof run->text, "%s: %s\n", run->this->name, instead);
    } else if (run->length == 0) {
        snprintf(run->text, sizeof run->text, "%s: no answer\n", run->this->name);
    }
    return instead != NULL || run->length == 0;
}

/* 1 if it went wrong. */
static int look_after(struct run *run)
{
    int status = 0;
    take_output(run);
    if (waitpid(run->child, &status, WNOHANG) == run->child) {
        int failed = finish(run, WIFSIGNALED(status) ? "crashes" : NULL);
        return failed || WEXITSTATUS(status) != 0;
    }
    if (now() > run->deadline) {
        /* One that is stuck inside the kernel's driver does not even die now: it is left behind. */
        kill(run->child, SIGKILL);
        return finish(run, "hangs");
    }
    return 0;
}

static int run_all(unsigned jobs, double limit)
{
    int failed = 0;
    size_t next = 0, shown = 0;
    while (shown < run_count) {
        unsigned running = 0;
        for (size_t i = shown; i < next; i++) {
            if (runs[i].state == RUNNING) {
                failed |= look_after(&runs[i]);
            }
            running += runs[i].state == RUNNING;
        }
        for (; next < run_count && running < jobs; next++, running++) {
            start(&runs[next], limit);
        }
        for (; shown < next && runs[shown].state == DONE; shown++) {
            fputs(runs[shown].text, stdout);
            fflush(stdout);
        }
        usleep(2000);
    }
    return failed;
}

static int by_order(const void *a, const void *b)
{
    const struct error_case *const *one = a, *const *two = b;
    return (*one)->order - (*two)->order;
}

int main(int argc, char **argv)
{
    static const struct error_case *cases[CASES_MAX];
    size_t count = (size_t)(__stop_error_cases - __start_error_cases);
    if (count > CASES_MAX) {
        fprintf(stderr, "errors: CASES_MAX is too small\n");
        return 2;
    }
    memcpy(cases, __start_error_cases, count * sizeof cases[0]);
    qsort(cases, count, sizeof cases[0], by_order); /* compilers emit them as they like */
    unsigned jobs = 1;
    double limit = 10;
    const char *here = NULL;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "list") == 0) {
            for (size_t c = 0; c < count; c++) {
                puts(cases[c]->name);
            }
            return 0;
        }
        if (strcmp(word, "all") == 0) {
            continue;
        }
        if (word[0] == '-' && i + 1 < argc) {
            const char *value = argv[++i];
            if (strcmp(word, "--jobs") == 0 && atoi(value) > 0 && atoi(value) <= JOBS_MAX) {
                jobs = (unsigned)atoi(value);
                continue;
            }
            if (strcmp(word, "--limit") == 0 && atof(value) > 0) {
                limit = atof(value);
                continue;
            }
            if (strcmp(word, "--here") == 0) {
                here = word = value;
            }
        }
        size_t c = 0;
        while (c < count && strcmp(cases[c]->name, word) != 0) {
            c++;
        }
        if (c == count || run_count == CASES_MAX) {
            fprintf(stderr, "errors: there is no case \"%s\"; see `errors list`\n", word);
            return 2;
        }
        runs[run_count++].this = cases[c];
    }
    if (here != NULL) {
        return run_here(runs[0].this);
    }
    for (size_t c = 0; run_count == 0 && c < count; c++) {
        runs[c].this = cases[c];
    }
    run_count = run_count == 0 ? count : run_count;
    return run_all(jobs, limit);
}
