/* SPDX-License-Identifier: Apache-2.0 */
/* Deliberate mistakes against the driver API, and what each is answered.
 *
 *   errors list                the names of all cases
 *   errors [CASE...]           these cases, or all
 *     --jobs N                 so many processes at a time (1)
 *     --limit SECONDS          how long a case may take (10)
 *
 * One line per case, in the order of this file: `name: RESULT`, or `name: RESULT / RESULT` where a
 * call that needs no reply (a launch, a copy to the device, a memset, a record ...) is followed by
 * a synchronisation: a remote driver may report the first's error there. `name: crashes` for a case
 * that ends its process, `name: hangs` for one that is not done in time: what NVIDIA's driver may
 * do with a handle that is gone or a pointer that it does not check. errors.expected holds what it
 * answers.
 *
 * Starting a process with CUDA takes a real GPU's driver a good part of a second, one at a time; so
 * cases that leave nothing behind share processes, and only what must be ALONE is. */
#include "kernels_ptx.h"

#include <cuda.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum level { NOTHING, INIT, CONTEXT, MODULE, RUINED };

struct error_case {
    const char *name;
    enum level level; /* what is set up before it */
    bool alone;       /* needs a process of its own: it ends, ruins or changes something */
    void (*run)(void);
    int order;
};

/* The linker collects the cases. */
#define ENTRY(name, level, alone)                                                                  \
    static void case_##name(void);                                                                 \
    static const struct error_case entry_##name = {#name, level, alone, case_##name, __COUNTER__}; \
    static const struct error_case *const pointer_##name                                           \
        __attribute__((section("error_cases"), used)) = &entry_##name;                             \
    static void case_##name(void)

#define CASE(name, level) ENTRY(name, level, false)
#define ALONE(name, level) ENTRY(name, level, true)

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
static CUstream stream; /* and event: of RUINED only */
static CUevent event;
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

/* The cases; their order is the order of the output. */
#include "errors_context.h"
#include "errors_memory.h"
#include "errors_launch.h"
#include "errors_stream.h"
#include "errors_kernel.h"

static enum level level_now = NOTHING;

/* A process only gains: from where the last case left it to where this one begins. */
static void set_up(enum level level)
{
    if (level_now < INIT && level >= INIT) {
        NEED(cuInit(0));
        NEED(cuDeviceGet(&device, 0));
    }
    if (level_now < CONTEXT && level >= CONTEXT) {
        NEED(cuDevicePrimaryCtxRetain(&context, device));
        NEED(cuCtxSetCurrent(context));
        NEED(cuMemAlloc(&memory, SIZE));
    }
    if (level_now < MODULE && level >= MODULE) {
        NEED(cuModuleLoadData(&module, kernels_ptx));
        NEED(cuModuleGetFunction(&scale, module, "scale"));
        NEED(cuModuleGetFunction(&poke, module, "poke"));
        NEED(cuModuleGetFunction(&nothing, module, "nothing"));
    }
    if (level_now < RUINED && level >= RUINED) {
        NEED(cuStreamCreate(&stream, 0));
        NEED(cuEventCreate(&event, 0));
        ruin();
    }
    level_now = level;
}

/* Whether the next case finds what a fresh process would have. */
static bool is_clean(void)
{
    CUcontext current = NULL;
    CUdeviceptr base = 0;
    size_t size = 0;
    if (level_now == NOTHING || level_now == RUINED) {
        return true;
    }
    if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) {
        return false;
    }
    return level_now == INIT || (cuCtxSynchronize() == CUDA_SUCCESS &&
                                 cuMemGetAddressRange(&base, &size, memory) == CUDA_SUCCESS &&
                                 base == memory && size == SIZE);
}

/* One case after the other, until one leaves something behind: the rest is for a new process. */
static int run_here(const struct error_case *const *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        printf("%s:", cases[i]->name);
        fflush(stdout);
        set_up(cases[i]->level);
        /* Cases use these as outputs, too. */
        CUcontext kept_context = context;
        CUmodule kept_module = module;
        CUdeviceptr kept_memory = memory;
        CUfunction kept_poke = poke;
        CUstream kept_stream = stream;
        CUevent kept_event = event;
        CUdevice kept_device = device;
        cases[i]->run();
        printf("\n");
        fflush(stdout);
        context = kept_context;
        module = kept_module;
        memory = kept_memory;
        poke = kept_poke;
        stream = kept_stream;
        event = kept_event;
        device = kept_device;
        if (i + 1 < count && !is_clean()) {
            break;
        }
    }
    _exit(0); /* a ruined or half-built session has nothing to tidy up */
}

/* ---- processes ---- */

enum { CASES_MAX = 512, JOBS_MAX = 64, TEXT_MAX = 512 };

/* What was chosen, in the order of the output. */
static struct {
    const struct error_case *this;
    char text[TEXT_MAX]; /* its line; empty until it is done */
} runs[CASES_MAX];
static size_t run_count;

/* A process and the cases that it is still to do. */
struct job {
    size_t cases[CASES_MAX];   /* positions in `runs` */
    size_t count, done, first; /* `first`: how many were done when the process began */
    pid_t child;               /* 0: none */
    int output;                /* what it prints */
    bool again;                /* a case that hung among others, by itself */
    double deadline;
    size_t length;
    char text[TEXT_MAX - 2]; /* of the case under way */
};

static struct job *jobs[2 * CASES_MAX + JOBS_MAX]; /* owned */
static size_t job_count;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* CUDA does not survive a fork, so the child starts this program anew. */
static void start(struct job *job, double limit)
{
    const char *args[CASES_MAX + 3] = {"errors", "--here"};
    for (size_t i = job->done; i < job->count; i++) {
        args[2 + i - job->done] = runs[job->cases[i]].this->name;
    }
    int ends[2];
    if (pipe(ends) != 0) {
        perror("errors: pipe");
        exit(1);
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    job->child = fork();
    if (job->child < 0) {
        perror("errors: fork");
        exit(1);
    }
    if (job->child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[1]);
        execv("/proc/self/exe", (char *const *)args);
        _exit(127);
    }
    close(ends[1]);
    job->output = ends[0];
    job->length = 0;
    job->first = job->done;
    job->deadline = now() + limit;
}

/* The case under way is done, with its own line or, if it came to no end, with `instead`. */
static void settle(struct job *job, const char *instead)
{
    size_t at = job->cases[job->done++];
    if (instead != NULL) {
        snprintf(runs[at].text, TEXT_MAX, "%s: %s\n", runs[at].this->name, instead);
    } else {
        snprintf(runs[at].text, TEXT_MAX, "%s\n", job->text);
    }
    job->length = 0;
}

static void take_output(struct job *job, double limit)
{
    char byte;
    while (job->done < job->count && read(job->output, &byte, 1) == 1) {
        if (byte == '\n') {
            job->text[job->length] = '\0';
            settle(job, NULL);
            job->deadline = now() + limit;
        } else if (job->length < sizeof job->text - 1) {
            job->text[job->length++] = byte;
        }
    }
}

static struct job *add_job(void)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        abort();
    }
    return jobs[job_count++] = job;
}

/* 1 if it went wrong. A case that hangs gets a second chance when nothing else runs: a driver with
 * many processes may just be slow. What a process did not come to is left for another one. */
static int look_after(struct job *job, double limit)
{
    int status = 0, failed = 0;
    bool ended = waitpid(job->child, &status, WNOHANG) == job->child;
    take_output(job, limit);
    if (ended) {
        failed = WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
        if (job->done < job->count && WIFSIGNALED(status)) {
            settle(job, "crashes");
        } else if (job->done < job->count &&
                   (job->length > 0 || failed || job->done == job->first)) {
            settle(job, "no answer");
            failed = 1;
        }
    } else if (now() > job->deadline) {
        /* One that is stuck inside the kernel's driver does not even die now: it is left behind. */
        kill(job->child, SIGKILL);
        failed = job->again || job->done == job->count;
        if (job->again && job->done < job->count) {
            settle(job, "hangs");
        } else if (job->done < job->count) {
            struct job *again = add_job();
            again->again = true;
            again->cases[again->count++] = job->cases[job->done++];
        }
        ended = true;
    }
    if (ended) {
        close(job->output);
        job->child = 0;
    }
    return failed;
}

/* Those that share are dealt out to a few processes, lower levels first; each of the others gets
 * its own. What runs in a ruined context has a process beside these. */
static void plan(unsigned children)
{
    size_t sharing = 0;
    for (size_t i = 0; i < run_count; i++) {
        sharing += !runs[i].this->alone && runs[i].this->level < RUINED;
    }
    for (unsigned i = 0; i < children + 1; i++) {
        add_job();
    }
    size_t dealt = 0;
    for (int level = NOTHING; level <= RUINED; level++) {
        for (size_t i = 0; i < run_count; i++) {
            if ((int)runs[i].this->level != level) {
                continue;
            }
            struct job *job = runs[i].this->alone ? add_job()
                              : level == RUINED   ? jobs[children]
                                                  : jobs[dealt++ * children / sharing];
            job->cases[job->count++] = i;
        }
    }
}

static int run_all(unsigned limit_jobs, double limit)
{
    int failed = 0;
    size_t shown = 0;
    plan(limit_jobs > 1 ? limit_jobs / 2 : 1);
    while (shown < run_count) {
        unsigned running = 0;
        for (size_t i = 0; i < job_count; i++) {
            if (jobs[i]->child != 0) {
                failed |= look_after(jobs[i], limit);
            }
            running += jobs[i]->child != 0;
        }
        for (size_t i = 0; i < job_count && running < limit_jobs; i++) {
            if (jobs[i]->child == 0 && jobs[i]->done < jobs[i]->count &&
                (!jobs[i]->again || running == 0)) {
                start(jobs[i], limit);
                running++;
            }
        }
        for (; shown < run_count && runs[shown].text[0] != '\0'; shown++) {
            fputs(runs[shown].text, stdout);
            fflush(stdout);
        }
        usleep(2000);
    }
    for (size_t i = 0; i < job_count; i++) {
        free(jobs[i]);
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
    unsigned at_a_time = 1;
    double limit = 10;
    bool here = false;
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
        if (strcmp(word, "--here") == 0) {
            here = true;
            continue;
        }
        if (word[0] == '-' && i + 1 < argc) {
            const char *value = argv[++i];
            if (strcmp(word, "--jobs") == 0 && atoi(value) > 0 && atoi(value) <= JOBS_MAX) {
                at_a_time = (unsigned)atoi(value);
                continue;
            }
            if (strcmp(word, "--limit") == 0 && atof(value) > 0) {
                limit = atof(value);
                continue;
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
    if (here) {
        for (size_t c = 0; c < run_count; c++) {
            cases[c] = runs[c].this;
        }
        return run_here(cases, run_count);
    }
    for (size_t c = 0; run_count == 0 && c < count; c++) {
        runs[c].this = cases[c];
    }
    run_count = run_count == 0 ? count : run_count;
    return run_all(at_a_time, limit);
}
