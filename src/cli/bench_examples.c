/* SPDX-License-Identifier: Apache-2.0 */
/* Which programs `towline bench` takes the times of. */
#include "cli/bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static int bench_examples_compare(const void *a, const void *b)
{
    int order = strcasecmp(a, b);
    return order != 0 ? order : strcmp(a, b);
}

static bool is_program(int folder, const char *name)
{
    struct stat status;
    return fstatat(folder, name, &status, 0) == 0 && S_ISREG(status.st_mode) &&
           faccessat(folder, name, X_OK, 0) == 0;
}

/* -E2BIG: there are too many; else why the folder cannot be read. */
static int list_programs(const char *folder, struct tow_bench_examples *examples)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return -errno;
    }
    int error = 0;
    const struct dirent *entry;
    examples->count = 0;
    if (realpath(folder, examples->folder) == NULL) {
        error = -errno;
    }
    while (error == 0 && (entry = readdir(dir)) != NULL) {
        if (!is_program(dirfd(dir), entry->d_name)) {
            continue;
        }
        if (examples->count == TOW_BENCH_EXAMPLES_MAX) {
            error = -E2BIG;
            break;
        }
        snprintf(examples->names[examples->count++], sizeof *examples->names, "%s", entry->d_name);
    }
    closedir(dir);
    qsort(examples->names, examples->count, sizeof *examples->names, bench_examples_compare);
    return error;
}

int tow_bench_examples_find(const char *asked, const char *lib_dir,
                            struct tow_bench_examples *examples)
{
    char beside[PATH_MAX + 16];
    size_t length = strlen(lib_dir);
    bool built = length > 4 && strcmp(lib_dir + length - 4, "/lib") == 0;
    snprintf(beside, sizeof beside, "%.*s/examples", (int)(length - (built ? 4 : 0)), lib_dir);
    const char *folder = asked != NULL ? asked : beside;
    int error = list_programs(folder, examples);
    if (error == -ENOENT && asked == NULL) {
        error = 0;
    }
    if (error == -E2BIG) {
        tow_cli_say("%s has more than %d programs; name a folder with fewer", folder,
                    TOW_BENCH_EXAMPLES_MAX);
    } else if (error < 0) {
        tow_cli_say("the examples' folder %s cannot be read: %s", folder, strerror(-error));
    } else if (examples->count == 0) {
        tow_cli_say("no example is timed, for there is no program in %s: `examples/run "
                    "--build-only --build-dir %s` in Towline's sources builds them with nvcc; "
                    "--examples DIR takes the programs of another folder",
                    folder, folder);
    }
    return error;
}
