/* SPDX-License-Identifier: Apache-2.0 */
/* towline: runs programs on GPUs that are elsewhere, and shows what servers do. One file per
 * subcommand. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"

static const struct tow_command *const commands[] = {
    &tow_command_run,   &tow_command_devices, &tow_command_status,  &tow_command_end,
    &tow_command_trust, &tow_command_bench,   &tow_command_version,
};
#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static void print_help(FILE *out)
{
    fprintf(out, "towline: unmodified CUDA programs on a GPU that is somewhere else.\n"
                 "\n"
                 "On the machine with the GPU:\n"
                 "  towlined -l tcp://0.0.0.0:4837 --allow-anyone\n"
                 "On the machine without:\n"
                 "  towline run -s gpuhost -- python3 train.py\n"
                 "No GPU anywhere? This runs on the software GPU:\n"
                 "  towline run -- ./vectoradd\n"
                 "\n"
                 "Commands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(out, "\n`towline COMMAND --help` tells more. Manual: man towline.\n");
}

int main(int argc, char **argv)
{
    tow_log_set_program("towline");
    if (argc < 2) {
        print_help(stderr);
        return TOW_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        if (argc < 3) {
            print_help(stdout);
            return 0;
        }
        word = argv[2];
        for (size_t i = 0; i < COMMAND_COUNT; i++) {
            if (strcmp(word, commands[i]->name) == 0) {
                fputs(commands[i]->help, stdout);
                return 0;
            }
        }
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        return tow_command_version.run(argc - 1, argv + 1);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(word, commands[i]->name) == 0) {
            if (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
                fputs(commands[i]->help, stdout);
                return 0;
            }
            return commands[i]->run(argc - 1, argv + 1);
        }
    }
    tow_cli_say("there is no command \"%s\"; towline --help lists them. To run a program: towline "
                "run -- %s",
                word, word);
    return TOW_EXIT_USAGE;
}
