/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is to be run: its file, what belongs to this towline, and the environment it gets.
 */
#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int tow_cli_find_folders(char *bin_dir, char *lib_dir)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return -ENOENT;
    }
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    if (slash == NULL) {
        return -ENOENT;
    }
    *slash = '\0';
    memcpy(bin_dir, self, (size_t)(slash - self) + 1);
    /* build/bin beside build/lib; PREFIX/bin beside PREFIX/lib/towline. */
    static const char *const places[] = {"../lib/towline", "../lib"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char folder[PATH_MAX + 32], library[PATH_MAX + 64];
        snprintf(folder, sizeof folder, "%s/%s", bin_dir, places[i]);
        snprintf(library, sizeof library, "%s/libcuda.so.1", folder);
        if (access(library, R_OK) == 0 && realpath(folder, lib_dir) != NULL) {
            return 0;
        }
    }
    return -ENOENT;
}

static bool is_program(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

int tow_cli_find_program(const char *name, char *ret_path, char *why, size_t why_size)
{
    if (strchr(name, '/') != NULL) {
        snprintf(ret_path, PATH_MAX, "%s", name);
        if (is_program(name)) {
            return 0;
        }
        bool there = access(name, F_OK) == 0;
        snprintf(why, why_size,
                 there ? "%s cannot be run: it is not an executable file"
                       : "%s cannot be run: there is no such file",
                 name);
        return there ? TOW_EXIT_NOT_EXECUTABLE : TOW_EXIT_NOT_FOUND;
    }
    const char *path = getenv("PATH");
    for (const char *at = path == NULL ? "/usr/bin:/bin" : path; at != NULL;) {
        size_t length = strcspn(at, ":");
        snprintf(ret_path, PATH_MAX, "%.*s/%s", length == 0 ? 1 : (int)length,
                 length == 0 ? "." : at, name);
        if (is_program(ret_path)) {
            return 0;
        }
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    snprintf(why, why_size, "%s cannot be run: it is in none of the folders of PATH", name);
    return TOW_EXIT_NOT_FOUND;
}

int tow_cli_set_environment(const char *lib_dir, const char *server)
{
    const char *before = getenv("LD_LIBRARY_PATH");
    size_t size = strlen(lib_dir) + (before == NULL ? 0 : strlen(before)) + 2;
    char *path = malloc(size);
    if (path == NULL) {
        return -ENOMEM;
    }
    snprintf(path, size, before == NULL || before[0] == '\0' ? "%s" : "%s:%s", lib_dir, before);
    int error = setenv("LD_LIBRARY_PATH", path, 1);
    free(path);
    /* Triton looks for the driver by itself. */
    if (error == 0) {
        error = setenv("TRITON_LIBCUDA_PATH", lib_dir, 1);
    }
    if (error == 0 && server != NULL) {
        error = setenv("TOWLINE_SERVER", server, 1);
    }
    return error;
}
