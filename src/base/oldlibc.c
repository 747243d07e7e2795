/* SPDX-License-Identifier: Apache-2.0 */
/* stat and its kin got symbols of their own only in glibc 2.33; the client library brings its own,
 * which are the system call (the kernel's struct stat is the C library's on 64-bit machines). See
 * base/oldlibc.h. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__aarch64__)

int stat(const char *restrict path, struct stat *restrict ret_status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, 0);
}

int lstat(const char *restrict path, struct stat *restrict ret_status)
{
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *ret_status)
{
    return (int)syscall(SYS_newfstatat, fd, "", ret_status, AT_EMPTY_PATH);
}

int fstatat(int folder, const char *restrict path, struct stat *restrict ret_status, int flags)
{
    return (int)syscall(SYS_newfstatat, folder, path, ret_status, flags);
}

#endif
