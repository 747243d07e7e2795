/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every kernel t_* of a PTX file that nvcc made of real.cu:  test_real FILE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

static char text[32 << 20];

int main(int argc, char **argv)
{
    static struct machine m;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(text, 1, sizeof text - 1, file) == 0) {
        fprintf(stderr, "usage: test_real FILE\n");
        return 2;
    }
    fclose(file);
    unsigned failures = 0, kernels = 0;
    if (machine_load(&m, text, false)) {
        printf("%s:%u: %s\n", argv[1], m.diag.line, m.diag.message);
        return 1;
    }
    size_t count = tow_ptx_kernel_count(m.module);
    machine_unload(&m);
    for (size_t i = 0; i < count; i++) {
        struct tow_ptx_kernel_info info;
        machine_load(&m, text, true); /* afresh, so that variables have their initial values */
        tow_ptx_kernel_describe(tow_ptx_kernel_at(m.module, i), &info);
        if (strncmp(info.name, "t_", 2) == 0) {
            int *bad = machine_alloc(&m, 4), *space = machine_alloc(&m, 1 << 20);
            uint64_t args[2] = {ARG(bad), ARG(space)};
            m.threads = 2;
            m.dynamic_shared = 1024;
            m.cooperative = strstr(info.name, "grid") != NULL;
            int error = machine_run1(&m, info.name, 4, 256, args, 2);
            kernels++;
            if (error) {
                printf("FAIL %s: block %u thread %u line %u: %s\n", info.name, m.fault.block[0],
                       m.fault.thread[0], m.fault.line, m.fault.message);
            } else if (*bad) {
                printf("FAIL %s: %d checks failed\n", info.name, *bad);
            } else {
                printf("ok   %s\n", info.name);
            }
            failures += error || *bad;
        }
        machine_unload(&m);
    }
    printf("%u kernels, %u failures\n", kernels, failures);
    return failures || !kernels;
}
