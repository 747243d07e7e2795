/* SPDX-License-Identifier: Apache-2.0 */
/* Does NVIDIA's driver keep what it compiled in a tenant's folder, as src/server/walls does it?
 *
 * By hand, as root, on the real driver and without Towline:
 *
 *     cc compile_cache.c -lcuda -o compile_cache && ./compile_cache
 *
 * CUDA_CACHE_PATH names a descriptor when the driver starts and makes a context. Then the process
 * becomes another user, and the descriptor another folder. It prints what is in both folders after
 * PTX was loaded. "yes" at the end: the tenant's folder has the code, and the other one nothing.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER = 0x70000001 };

static const char text[] = ".version 7.0\n"
                           ".target sm_75\n"
                           ".address_size 64\n"
                           ".visible .entry twice(.param .u64 at)\n"
                           "{\n"
                           "    .reg .b64 %rd<2>;\n"
                           "    .reg .b32 %r<2>;\n"
                           "    ld.param.u64 %rd1, [at];\n"
                           "    ld.global.u32 %r1, [%rd1];\n"
                           "    add.u32 %r1, %r1, %r1;\n"
                           "    st.global.u32 [%rd1], %r1;\n"
                           "    ret;\n"
                           "}\n";

#define TRY(call)                                                                                  \
    do {                                                                                           \
        long result_ = (long)(call);                                                               \
        if (result_ != 0) {                                                                        \
            fprintf(stderr, "%s: %ld\n", #call, result_);                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* How many entries a folder has; their names are printed. */
static int list(const char *what, int folder)
{
    int count = 0;
    DIR *entries = fdopendir(dup(folder));
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] != '.') {
            printf("%s: %s\n", what, entry->d_name);
            count++;
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return count;
}

int main(void)
{
    char base[] = "/tmp/compile-cache-XXXXXX", path[64];
    CUcontext context;
    CUmodule module;
    CUdevice device;
    TRY(mkdtemp(base) == NULL);
    int users = open(base, O_RDONLY | O_DIRECTORY);
    TRY(fchmod(users, S_ISVTX | 0733));
    TRY(mkdirat(users, "own", 0700));
    TRY(fchownat(users, "own", USER, USER, 0));
    snprintf(path, sizeof path, "/proc/self/fd/%d", users);
    TRY(setenv("CUDA_CACHE_PATH", path, 1));
    int first = dup(users);
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    TRY(setgroups(0, NULL));
    TRY(setresgid(USER, USER, USER));
    TRY(setresuid(USER, USER, USER));
    int own = openat(users, "own", O_RDONLY | O_DIRECTORY);
    TRY(own < 0 || dup3(own, users, O_CLOEXEC) != users);
    TRY(cuModuleLoadData(&module, text));
    TRY(cuModuleUnload(module));
    int kept = list("own", own), elsewhere = list("first", first) - 1; /* "own" itself */
    printf("%s\n", kept > 0 && elsewhere <= 0 ? "yes" : "no");
    return 0;
}
