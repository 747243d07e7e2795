/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the library named on the command line and tells what that changed. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int count(const char *folder)
{
    int entries = 0;
    DIR *dir = opendir(folder);
    while (dir != NULL && readdir(dir) != NULL) {
        entries++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return entries;
}

int main(int argc, char **argv)
{
    int *on = dlsym(RTLD_DEFAULT, "watch_load_on");
    int *seen = dlsym(RTLD_DEFAULT, "watch_load_count");
    const char **library_path = dlsym(RTLD_DEFAULT, "watch_load_library");
    if (argc < 2 || on == NULL || seen == NULL || library_path == NULL) {
        fprintf(stderr, "watch_load.so must be preloaded\n");
        return 2;
    }
    int files = count("/proc/self/fd"), threads = count("/proc/self/task");
    *library_path = argv[1];
    *on = 1;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    *on = 0;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int more_files = count("/proc/self/fd") - files,
        more_threads = count("/proc/self/task") - threads;
    printf("%d descriptors, %d threads, %d calls\n", more_files, more_threads, *seen);
    return more_files != 0 || more_threads != 0 || *seen != 0;
}
