/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for the sockets of one program's life. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tow_cli_make_folder(char ret_folder[TOW_CLI_FOLDER_MAX])
{
    const char *bases[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    int error = -ENOENT;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        char folder[TOW_CLI_FOLDER_MAX];
        if (bases[i] == NULL || bases[i][0] != '/' || strlen(bases[i]) > sizeof folder - 32) {
            continue;
        }
        snprintf(folder, sizeof folder, "%s/towline-XXXXXX", bases[i]);
        if (mkdtemp(folder) != NULL) {
            memcpy(ret_folder, folder, sizeof folder);
            return 0;
        }
        error = -errno;
    }
    return error;
}
