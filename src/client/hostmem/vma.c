/* SPDX-License-Identifier: Apache-2.0 */
/* Parses /proc/self/maps. */
#include "client/hostmem/vma.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { LINE = 1024 }; /* longer ones have paths that are of no use */

bool towc_vma_parse(const char *line, struct towc_vma *ret_vma)
{
    struct towc_vma vma = {0};
    unsigned major, minor;
    uint64_t inode;
    int used = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 "%n", &vma.low,
               &vma.high, vma.access, &vma.offset, &major, &minor, &inode, &used) != 7 ||
        vma.low >= vma.high) {
        return false;
    }
    vma.device = makedev(major, minor);
    vma.inode = (ino_t)inode;
    vma.path = line + used + strspn(line + used, " ");
    *ret_vma = vma;
    return true;
}

int towc_vma_visit(bool (*visit)(const struct towc_vma *vma, void *user), void *user)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char line[LINE], some[4096];
    size_t length = 0;
    bool more = true;
    if (fd < 0) {
        return -errno;
    }
    ssize_t n;
    while (more && ((n = read(fd, some, sizeof some)) > 0 || (n < 0 && errno == EINTR))) {
        for (ssize_t i = 0; more && i < n; i++) {
            struct towc_vma vma;
            if (some[i] != '\n') {
                line[length] = some[i];
                length += length < LINE - 1;
                continue;
            }
            line[length] = '\0';
            length = 0;
            more = !towc_vma_parse(line, &vma) || visit(&vma, user);
        }
    }
    int error = more && n < 0 ? -errno : 0;
    close(fd);
    return error;
}

static bool is_file(int fd, const struct towc_vma *vma)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == vma->device &&
           status.st_ino == vma->inode && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

/* A descriptor that the program still has of the file. */
static int find_open(const struct towc_vma *vma)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    int found = -1;
    while (folder != NULL && found < 0 && (entry = readdir(folder)) != NULL) {
        char *end;
        long number = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0' && is_file((int)number, vma)) {
            found = fcntl((int)number, F_DUPFD_CLOEXEC, 0);
        }
        if (found >= 0 && !is_file(found, vma)) {
            close(found); /* another thread closed it, and opened something else */
            found = -1;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

int towc_vma_open(const struct towc_vma *vma)
{
    char name[96];
    struct stat status;
    snprintf(name, sizeof name, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, vma->low, vma->high);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (!is_file(fd, vma) && vma->path[0] == '/' && stat(vma->path, &status) == 0 &&
        S_ISREG(status.st_mode) && status.st_ino == vma->inode) {
        if (fd >= 0) {
            close(fd);
        }
        fd = open(vma->path, O_RDWR | O_CLOEXEC);
    }
    if (fd >= 0 && !is_file(fd, vma)) {
        close(fd);
        fd = -1;
    }
    return fd >= 0 ? fd : find_open(vma);
}
