/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes whole files, and finds the folders and sockets that Towline uses by default. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int tow_file_read(const char *path, struct tow_buf *buf)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    size_t before = buf->size;
    int result = 0;
    for (;;) {
        /* One byte more than the maximum is asked for elsewhere: see the probe below. */
        size_t room = buf->max - buf->size;
        size_t chunk = room < 65536 ? room : 65536;
        uint8_t probe;
        uint8_t *at = &probe;
        if (chunk > 0) {
            result = tow_buf_reserve(buf, chunk);
            if (result < 0) {
                break;
            }
            at = buf->data + buf->size;
        }
        ssize_t got = read(fd, at, chunk > 0 ? chunk : 1);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            result = -errno;
            break;
        }
        if (got == 0) {
            break;
        }
        if (chunk == 0) {
            result = -E2BIG;
            break;
        }
        buf->size += (size_t)got;
    }
    close(fd);
    if (result < 0) {
        buf->size = before;
    }
    return result;
}

int tow_file_write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        ssize_t written = write(fd, at, n);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        at += written;
        n -= (size_t)written;
    }
    return 0;
}

int tow_file_write_atomic(const char *path, const void *bytes, size_t n, mode_t mode)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        return -ENAMETOOLONG;
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int result = tow_file_write_all(fd, bytes, n);
    if (result == 0 && fchmod(fd, mode) != 0) {
        result = -errno;
    }
    if (close(fd) != 0 && result == 0) {
        result = -errno;
    }
    if (result == 0 && rename(temporary, path) != 0) {
        result = -errno;
    }
    if (result < 0) {
        unlink(temporary);
    }
    return result;
}

int tow_file_mkdir_all(const char *path, bool private)
{
    char copy[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0) {
        return -EINVAL;
    }
    if (length >= sizeof copy) {
        return -ENAMETOOLONG;
    }
    memcpy(copy, path, length + 1);
    while (length > 1 && copy[length - 1] == '/') {
        copy[--length] = '\0';
    }
    for (char *at = copy + 1; *at != '\0'; at++) {
        if (*at != '/') {
            continue;
        }
        *at = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST) {
            return -errno;
        }
        *at = '/';
    }
    if (mkdir(copy, private ? 0700 : 0755) != 0) {
        if (errno != EEXIST) {
            return -errno;
        }
        struct stat status;
        if (stat(copy, &status) != 0) {
            return -errno;
        }
        if (!S_ISDIR(status.st_mode)) {
            return -ENOTDIR;
        }
    }
    return 0;
}

int tow_file_mkdir_for(const char *path, bool private)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) : 0;
    if (length == 0) {
        return 0; /* the root, or where we are */
    }
    if (length >= sizeof folder) {
        return -ENAMETOOLONG;
    }
    memcpy(folder, path, length);
    folder[length] = '\0';
    return tow_file_mkdir_all(folder, private);
}

int tow_file_lock(const char *path)
{
    char lock[PATH_MAX];
    int length = snprintf(lock, sizeof lock, "%s.lock", path);
    if (length < 0 || (size_t)length >= sizeof lock) {
        return -ENAMETOOLONG;
    }
    tow_file_mkdir_for(path, true); /* open's own error says more */
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return -errno;
    }
    while (flock(fd, LOCK_EX) != 0) {
        if (errno != EINTR) {
            int error = -errno;
            close(fd);
            return error;
        }
    }
    return fd;
}

static int file_fits(int length, size_t size)
{
    return length >= 0 && (size_t)length < size ? 0 : -ENAMETOOLONG;
}

int tow_file_cache_dir(bool daemon, char *ret_path, size_t size)
{
    if (daemon && geteuid() == 0) {
        return file_fits(snprintf(ret_path, size, "/var/cache/towline"), size);
    }
    const char *base = getenv("XDG_CACHE_HOME");
    /* The XDG rule: a relative path there is to be ignored. */
    if (base != NULL && base[0] == '/') {
        return file_fits(snprintf(ret_path, size, "%s/towline", base), size);
    }
    const char *home = getenv("HOME");
    if (home == NULL || home[0] != '/') {
        return -ENOENT;
    }
    return file_fits(snprintf(ret_path, size, "%s/.cache/towline", home), size);
}

int tow_file_user_config(const char *name, char *ret_path, size_t size)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config != NULL && config[0] == '/') {
        return file_fits(snprintf(ret_path, size, "%s/towline/%s", config, name), size);
    }
    if (home == NULL || home[0] != '/') {
        return -ENOENT;
    }
    return file_fits(snprintf(ret_path, size, "%s/.config/towline/%s", home, name), size);
}

int tow_file_default_socket(char *ret_path, size_t size)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0) {
        return file_fits(snprintf(ret_path, size, "%s", TOW_FILE_MACHINE_SOCKET), size);
    }
    if (run == NULL || run[0] != '/') {
        return -ENOENT;
    }
    return file_fits(snprintf(ret_path, size, "%s/towline.sock", run), size);
}

int tow_file_of_process(const char *name, char *ret_path)
{
    size_t used = 0;
    for (; *name != '\0' && used < PATH_MAX - 16; name++) {
        if (name[0] == '%' && name[1] == 'p') {
            used += (size_t)snprintf(ret_path + used, PATH_MAX - used, "%d", (int)getpid());
            name++;
        } else {
            ret_path[used++] = *name;
        }
    }
    ret_path[used] = '\0';
    return *name == '\0' ? 0 : -ENAMETOOLONG;
}
