/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without libFuzzer: the files named, or a fixed walk around its seeds.
 * FUZZ_RUNS is how many inputs each seed gives (3000), FUZZ_START where another walk begins. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % below);
}

/* In memory of exactly its size, so that a sanitizer sees a byte too many. */
static void run(const uint8_t *bytes, size_t n)
{
    uint8_t *exact = malloc(n > 0 ? n : 1);
    memcpy(exact, bytes, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static size_t mutate(uint8_t *bytes, size_t n, size_t size)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, 4, 8, 16};
    for (uint32_t times = 1 + next(4); times > 0 && n > 0; times--) {
        uint32_t at = next((uint32_t)n);
        switch (next(5)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << next(8));
            break;
        case 1:
            bytes[at] = telling[next(sizeof telling)];
            break;
        case 2: /* a word of ones or zeros */
            for (size_t i = at & ~3u; i < n && i < (at & ~3u) + 4; i++) {
                bytes[i] = times % 2 ? 0xff : 0;
            }
            break;
        case 3:
            n = at + 1;
            break;
        default: { /* something twice */
            size_t more = 1 + next(32);
            more = more < n - at ? more : n - at;
            if (n + more <= size) {
                memmove(bytes + at + more, bytes + at, n - at);
                n += more;
            }
            break;
        }
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t bytes[2 * FUZZ_SEED_MAX];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        run(bytes, n);
    }
    if (argc > 1) {
        return 0;
    }
    const char *more = getenv("FUZZ_RUNS"), *start = getenv("FUZZ_START");
    unsigned long inputs = more ? strtoul(more, NULL, 10) : 3000;
    state ^= start ? strtoull(start, NULL, 10) << 24 : 0;
    unsigned seeds = 0;
    unsigned long runs = 0;
    for (size_t n; (n = fuzz_seed(seeds, bytes, FUZZ_SEED_MAX)) > 0; seeds++) {
        run(bytes, n);
        for (unsigned long i = 0; i < inputs; i++) {
            n = fuzz_seed(seeds, bytes, FUZZ_SEED_MAX);
            n = mutate(bytes, n, sizeof bytes);
            run(bytes, n);
            runs++;
        }
    }
    printf("%lu inputs around %u seeds\n", runs, seeds);
    return seeds == 0;
}
