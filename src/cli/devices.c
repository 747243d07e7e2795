/* SPDX-License-Identifier: Apache-2.0 */
/* `towline devices`: the GPUs that a server has. */
#include "cli/cli.h"

#include <stdio.h>

#include "wire/report.h"

static void devices_show(const char *address, const struct tow_json_doc *doc, unsigned first_gpu)
{
    const struct tow_json_value *root = doc->values;
    const char *failure = tow_json_text(doc, root, "failure"), *driver = tow_report_driver(doc);
    printf("%s%s%s: %s%s%s\n", tow_cli_colour(stdout, TOW_BOLD), address,
           tow_cli_colour(stdout, TOW_PLAIN), tow_json_text(doc, root, "description"),
           driver[0] != '\0' ? ", driver " : "", driver);
    struct tow_report_gpu gpu;
    unsigned count = 0;
    while (tow_report_gpu(doc, count, &gpu)) {
        char memory[16], free_memory[16];
        printf("  %u  %s, capability %s, %s (%s free), %.0f multiprocessors\n     %s  %s\n",
               first_gpu + count, gpu.name, gpu.capability, tow_cli_bytes(gpu.memory, memory),
               tow_cli_bytes(gpu.memory - gpu.used, free_memory), gpu.multiprocessors, gpu.uuid,
               gpu.pci);
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
    .help =
        "towline devices [-s ADDRESS] [--json] [--watch]: lists the GPUs that a server offers.\n"
        "\n"
        "  towline devices -s tcp://gpuhost:4837\n"
        "  towline devices -s tcp://one:4837,tcp://two:4837\n"
        "\n"
        "They are numbered as a program sees them that names the same servers. What is free is "
        "what the\n"
        "server's driver says, or what no session holds. --watch shows it anew every 2 s.\n"
        "Without -s: TOWLINE_SERVER, then the config file, then this machine's own socket.\n",
    .flags = tow_ask_flags,
    .run = devices_main,
};
