/* SPDX-License-Identifier: Apache-2.0 */
/* `towline version`: the version of Towline and of its protocol. */
#include "cli/cli.h"

#include <stdio.h>

#include "wire/limits.h"

static int version_main(int argc, char **argv)
{
    printf("towline %s, protocol %u\n", TOWLINE_VERSION, TOW_PROTOCOL_MAX);
    return 0;
}

const struct tow_command tow_command_version = {
    .name = "version",
    .summary = "print the version of Towline and of its protocol",
    .help = "towline version: prints the version of Towline and of its protocol.\n"
            "A server tells its own in `towline status --json`.\n",
    .run = version_main,
};
