/* SPDX-License-Identifier: Apache-2.0 */
/* `towline devices`: the GPUs that a server has. */
#include "cli/cli.h"

#include <stdio.h>

#include "base/json_read.h"

static void devices_show(const char *address, const struct tow_json_doc *doc)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *devices = tow_json_member(doc, root, "devices");
    const char *failure = tow_json_text(doc, root, "failure");
    printf("%s%s%s: %s\n", tow_cli_colour(stdout, TOW_BOLD), address,
           tow_cli_colour(stdout, TOW_PLAIN), tow_json_text(doc, root, "description"));
    const struct tow_json_value *device = NULL;
    int count = 0;
    while ((device = tow_json_next(doc, devices, device)) != NULL) {
        char memory[16];
        printf("  %lld  %s, capability %s, %s, %.0f multiprocessors\n     %s  %s\n",
               (long long)tow_json_whole(tow_json_member(doc, device, "index")),
               tow_json_text(doc, device, "name"), tow_json_text(doc, device, "capability"),
               tow_cli_bytes(tow_json_number(doc, device, "memory"), memory),
               tow_json_number(doc, device, "multiprocessors"), tow_json_text(doc, device, "uuid"),
               tow_json_text(doc, device, "pci"));
        count++;
    }
    if (count == 0) {
        printf("  no GPU%s%s\n",
               failure[0] == '\0' ? " is known yet: its first worker is starting" : ": ", failure);
    }
}

static int devices_main(int argc, char **argv)
{
    return tow_ask_main(&tow_command_devices, argc, argv, devices_show);
}

const struct tow_command tow_command_devices = {
    .name = "devices",
    .summary = "list the GPUs that a server offers",
    .help = "towline devices [-s ADDRESS] [--json]: lists the GPUs that a server offers.\n"
            "\n"
            "  towline devices -s tcp://gpuhost:4837\n"
            "  towline devices -s tcp://one:4837,tcp://two:4837\n"
            "\n"
            "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = tow_ask_flags,
    .run = devices_main,
};
