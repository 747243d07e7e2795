/* SPDX-License-Identifier: Apache-2.0 */
/* Copies more than any line keeps to the device and back, and looks at every word.
 *
 *     large ROUNDS MIB
 */
#include "check.h"

#include <string.h>

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    size_t words = ((size_t)(argc > 2 ? atoi(argv[2]) : 1) << 20) / sizeof(uint64_t);
    uint64_t *there = malloc(words * sizeof *there), *back = malloc(words * sizeof *back);
    CUcontext context;
    CUdeviceptr device;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&device, words * sizeof *there));
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t i = 0; i < words; i++) {
            there[i] = (i + 1) * 0x9e3779b97f4a7c15u + round;
        }
        CHECK(cuMemcpyHtoD(device, there, words * sizeof *there));
        memset(back, 0xee, words * sizeof *back);
        CHECK(cuMemcpyDtoH(back, device, words * sizeof *back));
        for (size_t i = 0; i < words; i++) {
            if (back[i] != there[i]) {
                printf("wrong: word %zu of round %u\n", i, round);
                return 2;
            }
        }
    }
    CHECK(cuMemFree(device));
    free(there);
    free(back);
    puts("right");
    return 0;
}
