/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, limits and removes the control groups of workers. */
#include "server/pool/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/log.h"
#include "server/config/config.h"
#include "server/pool/machine.h"

#define CGROUP2_MAGIC 0x63677270 /* CGROUP2_SUPER_MAGIC */
#define MIB (UINT64_C(1) << 20)
#define ALLOWANCE_MIN (64 * MIB)
#define PINNED_MAX (UINT64_C(1) << 30) /* TOW_PINNED_TOTAL, of which the kernel may count all */
#define SOFT_MAX (UINT64_C(16) << 30)  /* as src/backend/soft/entry/open.c */

enum {
    NAME_SIZE = 64,       /* of a group's folder and a file in it */
    THREADS_DRIVER = 256, /* a driver's own, with its compiler */
};

/* ---- files of groups ---- */

static int cgroup_write(int folder, const char *name, const char *text)
{
    int fd = openat(folder, name, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -errno;
    }
    ssize_t written = write(fd, text, strlen(text));
    int error = written < 0 ? -errno : 0;
    close(fd);
    return error;
}

/* Whether a list of words with spaces between them has this one. */
static bool cgroup_lists(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == list || at[-1] == ' ') && strchr(" \n", at[length]) != NULL) {
            return true; /* strchr finds the end of the list, too */
        }
    }
    return false;
}

/* "worker-P-N", and a file in it if there is one to be named. */
static const char *cgroup_name(const struct tows_cgroups *groups, unsigned number, const char *file,
                               char ret_name[NAME_SIZE])
{
    const struct tows_cgroup_other *other = groups->others;
    while (other != NULL && other->number != number) {
        other = other->next;
    }
    pid_t listener = other != NULL ? other->listener : groups->listener;
    unsigned named = other != NULL ? other->theirs : number;
    int length = number == 0 ? snprintf(ret_name, NAME_SIZE, "listener-%d", (int)listener)
                             : snprintf(ret_name, NAME_SIZE, "worker-%d-%u", (int)listener, named);
    if (file != NULL) {
        snprintf(ret_name + length, NAME_SIZE - (size_t)length, "/%s", file);
    }
    return ret_name;
}

static int cgroup_set(const struct tows_cgroups *groups, unsigned number, const char *file,
                      uint64_t value)
{
    char name[NAME_SIZE], text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return cgroup_write(groups->folder, cgroup_name(groups, number, file, name), text);
}

/* ---- the server's own group ---- */

/* Empty groups of servers that ended without removing them. */
static void cgroups_sweep(const struct tows_cgroups *groups)
{
    int again = openat(groups->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again >= 0 ? fdopendir(again) : NULL;
    if (folder == NULL) {
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int pid = 0;
        bool ours = sscanf(entry->d_name, "listener-%d", &pid) == 1 ||
                    sscanf(entry->d_name, "worker-%d-", &pid) == 1;
        if (ours && pid > 0 && (pid == groups->listener || (kill(pid, 0) != 0 && errno == ESRCH))) {
            unlinkat(groups->folder, entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(folder);
}

/* Switches a controller on for the groups in this one. */
static int cgroups_enable(struct tows_cgroups *groups, const char *controller)
{
    char text[TOW_MACHINE_TEXT], word[16];
    int error = tows_machine_read(groups->folder, "cgroup.subtree_control", text);
    if (error < 0 || cgroup_lists(text, controller)) {
        return error;
    }
    snprintf(word, sizeof word, "+%s", controller);
    error = cgroup_write(groups->folder, "cgroup.subtree_control", word);
    if (error == 0) {
        size_t length = strlen(groups->enabled);
        snprintf(groups->enabled + length, sizeof groups->enabled - length, "%s-%s",
                 length > 0 ? " " : "", controller);
    }
    return error;
}

/* Back to where the server was started. */
static void cgroups_leave(struct tows_cgroups *groups)
{
    char name[NAME_SIZE];
    int error = cgroup_write(groups->folder, "cgroup.procs", "0");
    if (error == -EBUSY) {
        cgroup_write(groups->folder, "cgroup.subtree_control",
                     groups->on ? "-memory -pids -cpu" : groups->enabled);
        cgroup_write(groups->folder, "cgroup.procs", "0");
    }
    unlinkat(groups->folder, cgroup_name(groups, 0, NULL, name), AT_REMOVEDIR);
    close(groups->folder);
    while (groups->others != NULL) {
        struct tows_cgroup_other *other = groups->others;
        groups->others = other->next;
        free(other);
    }
    *groups = (struct tows_cgroups){0};
}

static int cgroups_fail(struct tows_cgroups *groups, int error, const char *path, char *why,
                        size_t size)
{
    cgroups_leave(groups);
    if (error == -EBUSY) {
        snprintf(why, size,
                 "other processes are in the control group %s; start towlined in one of its own, "
                 "with systemd by Delegate=memory pids cpu",
                 path);
    } else {
        snprintf(why, size,
                 "the control group %s cannot be changed (%s); systemd allows it by "
                 "Delegate=memory pids cpu",
                 path, strerror(-error));
    }
    return error;
}

int tows_cgroups_open_at(struct tows_cgroups *groups, const char *path, char *why, size_t size)
{
    char text[TOW_MACHINE_TEXT], name[NAME_SIZE];
    *groups = (struct tows_cgroups){.listener = getpid()};
    groups->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error =
        groups->folder < 0 ? -errno : tows_machine_read(groups->folder, "cgroup.controllers", text);
    if (error < 0 || !cgroup_lists(text, "memory") || !cgroup_lists(text, "pids")) {
        snprintf(why, size, "the control group %s has no controllers memory and pids of version 2",
                 path);
        if (groups->folder >= 0) {
            close(groups->folder);
        }
        *groups = (struct tows_cgroups){0};
        return -ENOTSUP;
    }
    groups->cpu = cgroup_lists(text, "cpu");
    cgroups_sweep(groups);
    if (mkdirat(groups->folder, cgroup_name(groups, 0, NULL, name), 0755) != 0 && errno != EEXIST) {
        return cgroups_fail(groups, -errno, path, why, size);
    }
    error = cgroup_write(groups->folder, cgroup_name(groups, 0, "cgroup.procs", name), "0");
    error = error < 0 ? error : cgroups_enable(groups, "memory");
    error = error < 0 ? error : cgroups_enable(groups, "pids");
    if (error < 0) {
        return cgroups_fail(groups, error, path, why, size);
    }
    groups->cpu = groups->cpu && cgroups_enable(groups, "cpu") == 0;
    groups->next = 1;
    groups->on = true;
    return 0;
}

/* The folder of this process's group. */
static int cgroups_find(char ret_path[PATH_MAX], char *why, size_t size)
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char text[TOW_MACHINE_TEXT];
    struct statfs system;
    const char *mount = NULL;
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts && mount == NULL; i++) {
        mount =
            statfs(mounts[i], &system) == 0 && system.f_type == CGROUP2_MAGIC ? mounts[i] : NULL;
    }
    int error = tows_machine_read(AT_FDCWD, "/proc/self/cgroup", text);
    const char *own = error < 0                      ? NULL
                      : strncmp(text, "0::", 3) == 0 ? text
                                                     : strstr(text, "\n0::");
    if (mount == NULL || own == NULL) {
        snprintf(why, size, "this machine has no cgroup v2");
        return -ENOTSUP;
    }
    own = strchr(own, '/');
    int length = own == NULL
                     ? -1
                     : snprintf(ret_path, PATH_MAX, "%s%.*s", mount, (int)strcspn(own, "\n"), own);
    if (length < 0 || length >= PATH_MAX) {
        snprintf(why, size, "the control group of this server has no path");
        return -ENOENT;
    }
    return 0;
}

void tows_cgroups_open(struct tows_cgroups *groups, const struct tows_config *config,
                       char *ret_said, size_t size)
{
    char path[PATH_MAX], why[PATH_MAX + 200];
    *groups = (struct tows_cgroups){0};
    ret_said[0] = '\0';
    if (config->cgroups == 0 || config->private_dir[0] != '\0') {
        return;
    }
    int error = cgroups_find(path, why, sizeof why);
    error = error < 0 ? error : tows_cgroups_open_at(groups, path, why, sizeof why);
    if (error < 0) {
        snprintf(ret_said, size,
                 "no worker has a control group of its own, so that only what this server looks at "
                 "is limited: %s",
                 why);
    } else {
        snprintf(ret_said, size, "workers have control groups (memory, pids%s) in %s",
                 groups->cpu ? ", cpu" : "", path);
    }
}

void tows_cgroups_close(struct tows_cgroups *groups)
{
    if (groups->on) {
        cgroups_sweep(groups);
        cgroups_leave(groups);
    }
}

/* ---- a worker's ---- */

unsigned tows_cgroup_make(struct tows_cgroups *groups)
{
    char name[NAME_SIZE];
    if (!groups->on) {
        return 0;
    }
    unsigned number = groups->next++;
    if (mkdirat(groups->folder, cgroup_name(groups, number, NULL, name), 0755) != 0 &&
        errno != EEXIST) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a worker gets no control group: %s: %s", name,
                strerror(errno));
        return 0;
    }
    /* All of it ends, not one of its threads; and nothing of it goes to the disk uncounted. */
    cgroup_set(groups, number, "memory.oom.group", 1);
    cgroup_set(groups, number, "memory.swap.max", 0);
    return number;
}

/* Each of these groups has one process. */
static bool cgroup_has(const struct tows_cgroups *groups, const char *group, pid_t pid)
{
    char name[NAME_SIZE + 16], text[TOW_MACHINE_TEXT];
    snprintf(name, sizeof name, "%.*s/cgroup.procs", NAME_SIZE - 1, group);
    return tows_machine_read(groups->folder, name, text) == 0 && strtol(text, NULL, 10) == pid;
}

unsigned tows_cgroup_find(struct tows_cgroups *groups, pid_t pid)
{
    int again = groups->on ? openat(groups->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *folder = again >= 0 ? fdopendir(again) : NULL;
    struct tows_cgroup_other *other = folder != NULL ? calloc(1, sizeof *other) : NULL;
    bool found = false;
    for (struct dirent *entry; other != NULL && !found && (entry = readdir(folder)) != NULL;) {
        found = sscanf(entry->d_name, "worker-%d-%u", &other->listener, &other->theirs) == 2 &&
                cgroup_has(groups, entry->d_name, pid);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    if (!found) {
        free(other);
        return 0;
    }
    other->number = groups->next++;
    other->next = groups->others;
    groups->others = other;
    return other->number;
}

void tows_cgroup_enter(const struct tows_cgroups *groups, unsigned number)
{
    char name[NAME_SIZE];
    if (number != 0) {
        cgroup_write(groups->folder, cgroup_name(groups, number, "cgroup.procs", name), "0");
    }
}

void tows_cgroup_limit(const struct tows_cgroups *groups, unsigned number, uint64_t memory,
                       uint64_t threads)
{
    if (number != 0) {
        int error = cgroup_set(groups, number, "memory.max", memory);
        error = error < 0 ? error : cgroup_set(groups, number, "pids.max", threads);
        if (error < 0) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "worker-%d-%u: its limits cannot be set: %s",
                    (int)groups->listener, number, strerror(-error));
        }
    }
}

bool tows_cgroup_weigh(const struct tows_cgroups *groups, unsigned number, unsigned weight)
{
    return number != 0 && groups->cpu && cgroup_set(groups, number, "cpu.weight", weight) == 0;
}

bool tows_cgroup_was_full(const struct tows_cgroups *groups, unsigned number)
{
    char text[TOW_MACHINE_TEXT], name[NAME_SIZE];
    if (number == 0 ||
        tows_machine_read(groups->folder, cgroup_name(groups, number, "memory.events", name),
                          text) < 0) {
        return false;
    }
    /* "oom" counts how often this group was full; the kernel may kill for a larger one's sake. */
    const char *full = strncmp(text, "oom ", 4) == 0 ? text : strstr(text, "\noom ");
    const char *killed = strstr(text, "\noom_kill ");
    return full != NULL && killed != NULL && strtoull(strchr(full, ' '), NULL, 10) > 0 &&
           strtoull(strchr(killed, ' '), NULL, 10) > 0;
}

static bool cgroup_try(const struct tows_cgroups *groups, unsigned number)
{
    char name[NAME_SIZE];
    return unlinkat(groups->folder, cgroup_name(groups, number, NULL, name), AT_REMOVEDIR) == 0 ||
           errno == ENOENT;
}

void tows_cgroup_remove(struct tows_cgroups *groups, unsigned number)
{
    unsigned left = 0;
    if (number == 0) {
        return;
    }
    for (unsigned i = 0; i < groups->stay_count; i++) {
        if (!cgroup_try(groups, groups->stays[i])) {
            groups->stays[left++] = groups->stays[i];
        }
    }
    groups->stay_count = left;
    if (!cgroup_try(groups, number) && left < TOW_CGROUP_STAYS_MAX) {
        groups->stays[groups->stay_count++] =
            number; /* what is too many goes when the server ends */
    }
}

/* ---- how much ---- */

uint64_t tows_cgroup_memory(const struct tows_config *config, uint64_t own, bool soft, bool local)
{
    uint64_t most = own + (own / 4 > ALLOWANCE_MIN ? own / 4 : ALLOWANCE_MIN);
    if (soft) {
        uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
        uint64_t each = config->soft_memory != 0 ? config->soft_memory
                        : half < SOFT_MAX        ? half
                                                 : SOFT_MAX;
        most += config->soft_devices * each;
    } else {
        most += PINNED_MAX;
    }
    return local ? most + config->memory : most;
}

uint64_t tows_cgroup_threads(const struct tows_config *config)
{
    long cores = sysconf(_SC_NPROCESSORS_CONF);
    uint64_t own = config->soft_threads != 0 ? config->soft_threads : (uint64_t)cores;
    return config->session_threads + own * config->soft_devices + THREADS_DRIVER;
}
