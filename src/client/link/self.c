/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libtowline-server.so and connects to the server inside this process. */
#include "client/link/self.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/line.h"

typedef int start_fn(const char *device, struct tow_line *line, char *why, size_t why_size);

/* A test that links client and server into one program needs no library. */
#pragma weak tow_self_start

static start_fn *find_server(char *why, size_t why_size)
{
    if (tow_self_start != NULL) {
        return tow_self_start;
    }
    Dl_info here;
    char path[1024];
    if (dladdr((void *)(uintptr_t)towc_self_connect, &here) == 0 || here.dli_fname == NULL) {
        snprintf(why, why_size, "self: cannot find the folder that libcuda.so.1 lies in");
        return NULL;
    }
    const char *slash = strrchr(here.dli_fname, '/');
    int folder = slash != NULL ? (int)(slash - here.dli_fname) + 1 : 0;
    snprintf(path, sizeof path, "%.*slibtowline-server.so", folder, here.dli_fname);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, why_size, "self: needs the server's library beside libcuda.so.1: %s",
                 dlerror());
        return NULL;
    }
    start_fn *start = NULL;
    void *found = dlsym(library, "tow_self_start");
    memcpy(&start, &found, sizeof start);
    if (start == NULL) {
        snprintf(why, why_size, "self: %s is of another version of Towline", path);
    }
    return start;
}

int towc_self_connect(const char *rest, struct tow_line **ret_line, char *why, size_t why_size)
{
    start_fn *start = find_server(why, why_size);
    if (start == NULL) {
        return -ENOENT;
    }
    struct tow_line *ours = NULL, *theirs = NULL;
    int error = tow_line_pair(&ours, &theirs);
    if (error < 0) {
        snprintf(why, why_size, "memory is used up");
        return error;
    }
    error = start(rest, theirs, why, why_size);
    if (error < 0) {
        tow_line_close(ours);
        return error;
    }
    *ret_line = ours;
    return 0;
}
