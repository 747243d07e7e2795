/* SPDX-License-Identifier: Apache-2.0 */
/* `towline version`: the version of Towline and of its protocol. */
#include "cli/cli.h"

#include <stdio.h>

#include "wire/limits.h"

static const struct tow_flag version_flags[] = {
    {NULL, "--json", NULL, 'j'},
    {NULL, NULL, NULL, 0},
};

static int version_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_version, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    bool json = false;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        json = true;
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (!tow_flags_no_words(&flags)) {
        return TOW_EXIT_USAGE;
    }
    printf(json ? "{\"version\":\"%s\",\"protocol\":%u}\n" : "towline %s, protocol %u\n",
           TOWLINE_VERSION, TOW_PROTOCOL_MAX);
    return 0;
}

const struct tow_command tow_command_version = {
    .name = "version",
    .summary = "print the version of Towline and of its protocol",
    .help = "towline version [--json]: prints the version of Towline and of its protocol.\n"
            "\n"
            "A server tells its own in `towline status`.\n",
    .flags = version_flags,
    .run = version_main,
};
