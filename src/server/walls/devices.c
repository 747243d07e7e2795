/* SPDX-License-Identifier: Apache-2.0 */
/* Runs nvidia-modprobe for device files that are missing. */
#include "server/walls/devices.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/walls/walls.h"

enum { GPUS_MAX = 256 };

static bool has_device(const struct tows_devices_places *places, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", places->devices, name);
    return access(path, F_OK) == 0;
}

/* How many the driver knows, once its module is there. */
static unsigned count_gpus(const struct tows_devices_places *places)
{
    unsigned count = 0;
    DIR *folder = opendir(places->gpus);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        count += entry->d_name[0] != '.' && count < GPUS_MAX;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

/* What goes wrong is seen by who opens the driver. */
static void devices_run(const struct tows_devices_places *places, unsigned gpu)
{
    char number[32];
    char *args[] = {(char *)"nvidia-modprobe", (char *)"-u", number, NULL};
    char *nothing[] = {NULL};
    snprintf(number, sizeof number, "-c=%u", gpu);
    pid_t pid = fork();
    if (pid == 0) {
        tows_walls_show();
        tows_walls_close_from(STDERR_FILENO + 1);
        execve(places->program, args, nothing);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void tows_devices_make_at(const struct tows_devices_places *places)
{
    char name[32];
    if (access(places->program, X_OK) != 0) {
        return;
    }
    if (!has_device(places, "nvidiactl") || !has_device(places, "nvidia-uvm")) {
        devices_run(places, 0);
    }
    unsigned count = count_gpus(places);
    for (unsigned gpu = 0; gpu < count; gpu++) {
        snprintf(name, sizeof name, "nvidia%u", gpu);
        if (!has_device(places, name)) {
            devices_run(places, gpu);
        }
    }
}

void tows_devices_make(const struct tows_config *config)
{
    static const struct tows_devices_places usual = {"/usr/bin/nvidia-modprobe", "/dev",
                                                     "/proc/driver/nvidia/gpus"};
    if (!tows_config_wants_soft(config)) {
        tows_devices_make_at(&usual);
    }
}
