/* SPDX-License-Identifier: Apache-2.0 */
/* crowd COUNT: so many programs, each of which copies once and then does nothing until the input
 * ends. Says `ready` when all are there. */
#include "check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static void member(int ready)
{
    CUcontext context;
    CUdeviceptr at;
    char out[64] = "idle", back[64] = "";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK(cuInit(0));
    CHECK(cuCtxCreate(&context, NULL, 0, 0));
    CHECK(cuMemAlloc(&at, sizeof out));
    CHECK(cuMemcpyHtoD(at, out, sizeof out));
    CHECK(cuMemcpyDtoH(back, at, sizeof back));
    if (back[0] != 'i' || write(ready, "", 1) != 1) {
        exit(1);
    }
    for (;;) {
        pause();
    }
}

int main(int argc, char **argv)
{
    char byte;
    for (int i = 0, count = argc > 1 ? atoi(argv[1]) : 1; i < count;
         i++) { /* one after the other */
        int ready[2];
        if (pipe(ready) != 0) {
            return 1;
        }
        pid_t child = fork();
        if (child == 0) {
            close(ready[0]);
            member(ready[1]);
        }
        close(ready[1]);
        if (child < 0 || read(ready[0], &byte, 1) != 1) {
            fprintf(stderr, "crowd: member %d does not come\n", i);
            return 1;
        }
        close(ready[0]);
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    return 0; /* they end with this process */
}
