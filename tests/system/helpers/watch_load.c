/* Preloaded: counts what a library does while it is loaded. `watch_load_begin()` and `_end()` are
 * called around a dlopen; in between every open, socket and new thread that comes from outside libc
 * is told. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int watch_load_on;
int watch_load_count;

static void seen(const char *what, const char *detail)
{
    if (watch_load_on) {
        watch_load_count++;
        fprintf(stderr, "while loading: %s(%s)\n", what, detail == NULL ? "" : detail);
    }
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = va_arg(args, int);
    va_end(args);
    seen("open", path);
    return NEXT(open)(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = va_arg(args, int);
    va_end(args);
    seen("openat", path);
    return NEXT(openat)(folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    seen("fopen", path);
    return NEXT(fopen)(path, mode);
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
