/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc and the files of control groups. */
#include "server/pool/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_SIZE = 1024,
    THREADS_UNKNOWN = 32768, /* the kernel's own default */
};

int tows_machine_read(int folder, const char *name, char ret_text[TOW_MACHINE_TEXT])
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -errno;
    }
    ssize_t got = read(fd, ret_text, TOW_MACHINE_TEXT - 1);
    int error = got < 0 ? -errno : 0;
    close(fd);
    ret_text[got < 0 ? 0 : got] = '\0';
    return error;
}

static int machine_read(const char *path, char ret_text[TOW_MACHINE_TEXT])
{
    return tows_machine_read(AT_FDCWD, path, ret_text);
}

/* ---- control groups ---- */

/* The least of the group's and of those that it is in: `path` below `folder`. */
static uint64_t least_of(const char *folder, char *path, const char *file)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        char name[2 * PATH_SIZE + 64], text[TOW_MACHINE_TEXT];
        snprintf(name, sizeof name, "%s%s/%s", folder, path, file);
        /* "max" is no number, and as large as can be. */
        if (machine_read(name, text) == 0 && text[0] >= '0' && text[0] <= '9') {
            uint64_t bytes = strtoull(text, NULL, 10);
            least = bytes < least ? bytes : least;
        }
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            return least;
        }
        *slash = '\0';
    }
}

/* The least that the groups of a controller leave; names of its file in both versions. */
static uint64_t group_least(const char *list, const char *root, const char *controller,
                            const char *second_file, const char *first_file)
{
    char text[TOW_MACHINE_TEXT], folder[PATH_SIZE];
    uint64_t least = UINT64_MAX;
    if (machine_read(list, text) < 0) {
        return least;
    }
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        /* "0::/path", or with the first version "4:memory:/path" */
        char *kind = strchr(line, ':');
        char *path = kind != NULL ? strchr(kind + 1, ':') : NULL;
        if (path == NULL || strlen(path) >= PATH_SIZE) {
            continue;
        }
        *path++ = '\0';
        bool second = kind[1] == '\0';
        if (!second && strcmp(kind + 1, controller) != 0) {
            continue;
        }
        if (strcmp(path, "/") == 0) {
            path[0] = '\0';
        }
        snprintf(folder, sizeof folder, second ? "%s" : "%s/%s", root, controller);
        uint64_t bytes = least_of(folder, path, second ? second_file : first_file);
        least = bytes < least ? bytes : least;
    }
    return least;
}

uint64_t tows_machine_group_memory(const char *list, const char *root)
{
    return group_least(list, root, "memory", "memory.max", "memory.limit_in_bytes");
}

uint64_t tows_machine_threads(void)
{
    static const char *const files[] = {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"};
    uint64_t least =
        group_least("/proc/self/cgroup", "/sys/fs/cgroup", "pids", "pids.max", "pids.max");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char text[TOW_MACHINE_TEXT];
        uint64_t most = machine_read(files[i], text) == 0 ? strtoull(text, NULL, 10) : 0;
        least = most != 0 && most < least ? most : least;
    }
    return least != UINT64_MAX ? least : THREADS_UNKNOWN;
}

uint64_t tows_machine_memory(void)
{
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t group = tows_machine_group_memory("/proc/self/cgroup", "/sys/fs/cgroup");
    return group < all ? group : all;
}

/* ---- processes ---- */

static uint64_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

int tows_machine_look(pid_t pid, struct tows_machine_process *ret_process)
{
    char path[64], text[TOW_MACHINE_TEXT];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int error = machine_read(path, text);
    if (error < 0) {
        return error;
    }
    const char *state = strstr(text, "\nState:\t");
    *ret_process = (struct tows_machine_process){
        .state = state != NULL ? state[strlen("\nState:\t")] : '?',
        .traced = number_after(text, "\nTracerPid:") != 0,
        .anonymous = number_after(text, "\nRssAnon:") << 10,
        .shared = number_after(text, "\nRssShmem:") << 10,
        .threads = (unsigned)number_after(text, "\nThreads:"),
    };
    struct stat status;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    ret_process->descriptors = stat(path, &status) == 0 ? (unsigned)status.st_size : 0;
    return 0;
}

int tows_machine_born(pid_t pid, uint64_t *ret_ticks)
{
    char path[64], text[TOW_MACHINE_TEXT];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int error = machine_read(path, text);
    /* The second word is its name, which may hold anything; this is the 20th one behind it. */
    const char *at = error < 0 ? NULL : strrchr(text, ')');
    for (int i = 0; at != NULL && i < 20; i++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL) {
        return error < 0 ? error : -EPROTO;
    }
    *ret_ticks = strtoull(at + 1, NULL, 10);
    return 0;
}

void tows_machine_yield(pid_t pid, int nice)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (thread > 0) {
            setpriority(PRIO_PROCESS, (id_t)thread, nice);
        }
    }
    closedir(folder);
}
