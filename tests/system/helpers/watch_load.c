/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: counts what a library does while it is loaded. `watch_load_on` is set around a dlopen;
 * in between every file, folder, socket, library, shared memory and new thread that is asked for
 * from outside libc is told. Both spellings of a call are here, with and without 64. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int watch_load_on;
int watch_load_count;
const char *watch_load_library; /* borrowed: the one that is to be loaded */

static void seen(const char *what, const char *detail)
{
    if (watch_load_on) {
        watch_load_count++;
        fprintf(stderr, "while loading: %s(%s)\n", what, detail == NULL ? "" : detail);
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        int mode = va_arg(args, int);                                                              \
        va_end(args);                                                                              \
        seen(#name, path);                                                                         \
        return NEXT(name)(path, flags, mode);                                                      \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    int name(int folder, const char *path, int flags, ...)                                         \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        int mode = va_arg(args, int);                                                              \
        va_end(args);                                                                              \
        seen(#name, path);                                                                         \
        return NEXT(name)(folder, path, flags, mode);                                              \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode)                                                 \
    {                                                                                              \
        seen(#name, path);                                                                         \
        return NEXT(name)(path, mode);                                                             \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define MKOSTEMP(name)                                                                             \
    int name(char *path, int flags)                                                                \
    {                                                                                              \
        seen(#name, path);                                                                         \
        return NEXT(name)(path, flags);                                                            \
    }
MKOSTEMP(mkostemp)
MKOSTEMP(mkostemp64)

DIR *opendir(const char *path)
{
    seen("opendir", path);
    return NEXT(opendir)(path);
}

int memfd_create(const char *name, unsigned flags)
{
    seen("memfd_create", name);
    return NEXT(memfd_create)(name, flags);
}

void *dlopen(const char *path, int mode)
{
    if (path != watch_load_library) {
        seen("dlopen", path);
    }
    return NEXT(dlopen)(path, mode);
}

int socket(int domain, int type, int protocol)
{
    seen("socket", NULL);
    return NEXT(socket)(domain, type, protocol);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    seen("pthread_create", NULL);
    return NEXT(pthread_create)(thread, attr, run, arg);
}
