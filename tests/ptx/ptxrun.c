/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one kernel of a PTX file by hand:  ptxrun FILE KERNEL GRID BLOCK [ARG...]
 * ARG: a number, or iN / fN: N zeroed 32-bit words whose first values are printed at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

int main(int argc, char **argv)
{
    static struct machine m;
    if (argc < 2) {
        fprintf(stderr, "usage: ptxrun FILE [KERNEL GRID BLOCK [ARG...]]\n");
        return 2;
    }
    FILE *file = fopen(argv[1], "rb");
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(1, size + 1);
    if (fread(text, 1, size, file) != size) {
        perror(argv[1]);
        return 1;
    }
    fclose(file);
    int error = machine_load(&m, text, false);
    free(text);
    if (error) {
        printf("load failed (%d): line %u: %s\n", error, m.diag.line, m.diag.message);
        return 1;
    }
    if (argc < 5) {
        for (size_t i = 0; i < tow_ptx_kernel_count(m.module); i++) {
            struct tow_ptx_kernel_info info;
            tow_ptx_kernel_describe(tow_ptx_kernel_at(m.module, i), &info);
            printf("%s: %u parameters, %u bytes shared, %u bytes local\n", info.name,
                   info.param_count, info.static_shared, info.local_bytes);
        }
        machine_unload(&m);
        return 0;
    }
    uint64_t args[32] = {0};
    unsigned count = 0;
    for (int i = 5; i < argc && count < 32; i++) {
        if (argv[i][0] == 'i' || argv[i][0] == 'f') {
            args[count++] = ARG(machine_alloc(&m, (size_t)atol(argv[i] + 1) * 4));
        } else {
            args[count++] = strtoull(argv[i], NULL, 0);
        }
    }
    const char *coop = getenv("COOPERATIVE");
    m.cooperative = coop && *coop == '1';
    m.threads = getenv("THREADS") ? (unsigned)atoi(getenv("THREADS")) : 1;
    error =
        machine_run1(&m, argv[2], (uint32_t)atoi(argv[3]), (uint32_t)atoi(argv[4]), args, count);
    fwrite(m.output, 1, m.output_length, stdout);
    if (error) {
        printf("fault %d in %s block %u thread %u line %u: %s\n", m.fault.kind, m.fault.kernel,
               m.fault.block[0], m.fault.thread[0], m.fault.line, m.fault.message);
    }
    for (int i = 5; i < argc; i++) {
        if (argv[i][0] != 'i' && argv[i][0] != 'f') {
            continue;
        }
        long words = atol(argv[i] + 1);
        for (long k = 0; k < words && k < 40; k++) {
            if (argv[i][0] == 'i') {
                printf("%d ", ((int *)(uintptr_t)args[i - 5])[k]);
            } else {
                printf("%g ", (double)((float *)(uintptr_t)args[i - 5])[k]);
            }
        }
        printf("\n");
    }
    machine_unload(&m);
    return error ? 1 : 0;
}
