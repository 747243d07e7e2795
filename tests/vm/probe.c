/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the kernel that it runs on. `probe WHAT`: landlock, vsock, eat MIB, burn SECONDS. Prints
 * what it found; 1: not there. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif

static int fail(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

/* The version of Landlock's interface: a flag of landlock_create_ruleset(2) asks for it. */
static int landlock(void)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (version < 0) {
        return fail("landlock");
    }
    printf("landlock %ld\n", version);
    return 0;
}

/* Through the loopback of vsock: a word there and another back. */
static int vsock(void)
{
    struct sockaddr_vm address = {
        .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = VMADDR_PORT_ANY};
    socklen_t size = sizeof(address);
    int listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        return fail("vsock: listening");
    }
    int client = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.svm_cid = VMADDR_CID_LOCAL;
    if (client < 0 || connect(client, (struct sockaddr *)&address, sizeof(address)) != 0) {
        return fail("vsock: connecting");
    }
    int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char word[8] = "";
    if (server < 0 || write(client, "there", 5) != 5 || read(server, word, sizeof(word)) != 5 ||
        memcmp(word, "there", 5) != 0 || write(server, "back", 4) != 4 ||
        read(client, word, sizeof(word)) != 4 || memcmp(word, "back", 4) != 0) {
        return fail("vsock: sending");
    }
    printf("vsock there and back\n");
    return 0;
}

static int eat(long mib)
{
    char *memory = malloc((size_t)mib << 20);
    if (memory == NULL) {
        return fail("malloc");
    }
    memset(memory, 1, (size_t)mib << 20);
    printf("ate %ld MiB, the last byte is %d\n", mib,
           ((volatile char *)memory)[((size_t)mib << 20) - 1]);
    free(memory);
    return 0;
}

/* So many seconds of a processor, and how many passed. */
static int burn(double seconds)
{
    struct timespec begin, end, used;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while ((double)used.tv_sec + (double)used.tv_nsec / 1e9 < seconds);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("burned %.2f s in %.2f s\n", seconds,
           (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "landlock") == 0) {
        return landlock();
    }
    if (strcmp(what, "vsock") == 0) {
        return vsock();
    }
    if (strcmp(what, "eat") == 0 && argc > 2) {
        return eat(atol(argv[2]));
    }
    if (strcmp(what, "burn") == 0 && argc > 2) {
        return burn(atof(argv[2]));
    }
    printf("usage: probe landlock | vsock | eat MIB | burn SECONDS\n");
    return 2;
}
