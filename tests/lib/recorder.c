/* SPDX-License-Identifier: Apache-2.0 */
/* Which code a test ran, for tests/mutate: linked into everything that is built with
 * -fsanitize-coverage=trace-pc. Each program and library has a file of its own in $RECORD, a byte
 * for each address of its code. The file is shared, so what a process ran is known however it ends.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t *hits; /* NULL: nobody asks */
static uintptr_t base;
static size_t span;

void __sanitizer_cov_trace_pc(void);

/* A block of code begins: the compiler calls it. */
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t at = (uintptr_t)__builtin_return_address(0) - 1 - base;
    if (hits != NULL && at < span) {
        hits[at] = 1;
    }
}

/* Where the file that holds this function is mapped, and its name. */
static int find_own(char *ret_path, size_t room)
{
    uintptr_t own = (uintptr_t)__sanitizer_cov_trace_pc, end = 0, first = 0;
    char line[4352], path[4096], wanted[4096] = "";
    FILE *maps = fopen("/proc/self/maps", "re");
    for (int pass = 0; maps != NULL && pass < 2; pass++) {
        rewind(maps);
        while (fgets(line, sizeof line, maps) != NULL) {
            unsigned long low, high;
            if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &low, &high, path) != 3) {
                continue;
            }
            if (pass == 0 && own >= low && own < high) {
                strcpy(wanted, path);
            } else if (pass == 1 && strcmp(path, wanted) == 0) {
                first = first == 0 ? low : first;
                end = high;
            }
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    base = first;
    span = end - first;
    return wanted[0] == '/' && snprintf(ret_path, room, "%s", wanted) < (int)room ? 0 : -1;
}

__attribute__((constructor(101))) static void begin(void)
{
    char own[4096], file[8192];
    const char *folder = getenv("RECORD");
    if (folder == NULL || find_own(own, sizeof own) < 0) {
        return;
    }
    for (char *c = own; *c != '\0'; c++) {
        *c = *c == '/' ? '%' : *c;
    }
    snprintf(file, sizeof file, "%s/%s", folder, own);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return;
    }
    fchmod(fd, 0666); /* a test may run programs as another user */
    void *at = MAP_FAILED;
    if (ftruncate(fd, (off_t)span) == 0) {
        at = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    hits = at == MAP_FAILED ? NULL : at;
}
