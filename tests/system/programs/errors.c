/* Deliberate mistakes against the driver API, and what each is answered.
 *
 *   errors list        the names of all cases
 *   errors CASE...     these cases, each in a process of its own
 *   errors all         all of them, in the order of this file
 *
 * One line per case: `name: RESULT`, or `name: RESULT / RESULT` where a call that needs no reply (a
 * launch, a copy to the device, a memset, a record ...) is followed by a synchronisation: a remote
 * driver may report the first's error there. A case that kills its process prints
 * `name: killed by signal N`. errors.expected holds what NVIDIA's driver answers. */
#include "kernels_ptx.h"

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum level { NOTHING, INIT, CONTEXT, MODULE };

struct error_case {
    const char *name;
    enum level level; /* what is set up before it */
    void (*run)(void);
};

/* The linker collects the cases in the order of this file. */
#define CASE(name, level)                                                                          \
    static void case_##name(void);                                                                 \
    static const struct error_case entry_##name = {#name, level, case_##name};                     \
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

/* Each case in a fresh process: CUDA does not survive a fork, so the child starts this program
 * anew. */
static int run_apart(const char *self, const char *name)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "--here", name, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("errors: fork");
        exit(1);
    }
    if (WIFSIGNALED(status)) {
        printf(" killed by signal %d\n", WTERMSIG(status));
        return 1;
    }
    return WEXITSTATUS(status) != 0;
}

static const struct error_case *find(const char *name)
{
    for (const struct error_case *const *c = __start_error_cases; c < __stop_error_cases; c++) {
        if (strcmp((*c)->name, name) == 0) {
            return *c;
        }
    }
    fprintf(stderr, "errors: there is no case \"%s\"; see `errors list`\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "all";
    int failed = 0;
    if (strcmp(first, "--here") == 0 && argc > 2) {
        alarm(60); /* a hang is a wrong answer, too */
        return run_here(find(argv[2]));
    }
    if (strcmp(first, "list") == 0 || strcmp(first, "all") == 0) {
        for (const struct error_case *const *c = __start_error_cases; c < __stop_error_cases; c++) {
            if (strcmp(first, "list") == 0) {
                puts((*c)->name);
            } else {
                failed |= run_apart("/proc/self/exe", (*c)->name);
            }
        }
    } else {
        for (int i = 1; i < argc; i++) {
            failed |= run_apart("/proc/self/exe", find(argv[i])->name);
        }
    }
    return failed;
}
