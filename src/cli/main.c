/* SPDX-License-Identifier: Apache-2.0 */
/* towline: runs programs on GPUs that are elsewhere, and shows what servers do. One file per
 * subcommand. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/guess.h"

static const struct tow_command command_help; /* below: it knows the others */

static const struct tow_command *const commands[] = {
    &tow_command_run,     &tow_command_devices, &tow_command_status,   &tow_command_top,
    &tow_command_check,   &tow_command_doctor,  &tow_command_usage,    &tow_command_end,
    &tow_command_suspend, &tow_command_resume,  &tow_command_trust,    &tow_command_cdi,
    &tow_command_bench,   &tow_command_stats,   &tow_command_timeline, &tow_command_version,
    &command_help,
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
        fprintf(out, "  %s%-10s%s %s\n", tow_cli_colour(out, TOW_BOLD), commands[i]->name,
                tow_cli_colour(out, TOW_PLAIN), commands[i]->summary);
    }
    fprintf(out, "\n`towline COMMAND --help` tells more. Manual: man towline.\n");
}

static const struct tow_command *main_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static int main_refuse(const char *word)
{
    struct tow_guess guess;
    tow_guess_init(&guess, word);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        tow_guess_offer(&guess, commands[i]->name);
    }
    if (guess.best != NULL) {
        tow_cli_say("there is no command \"%s\"; did you mean towline %s?", word, guess.best);
    } else {
        tow_cli_say("there is no command \"%s\"; towline --help lists them. To run a program: "
                    "towline run -- %s",
                    word, word);
    }
    return TOW_EXIT_USAGE;
}

static int main_help(int argc, char **argv)
{
    struct tow_flags flags = {.command = &command_help, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    if (tow_flags_next(&flags, &value) == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (flags.words == 0) {
        print_help(stdout);
        return 0;
    }
    const struct tow_command *command = main_find(argv[1]);
    if (command == NULL) {
        return main_refuse(argv[1]);
    }
    if (flags.words > 1) {
        tow_cli_say("name one command: towline help %s", argv[1]);
        return TOW_EXIT_USAGE;
    }
    tow_cli_help(command);
    return 0;
}

static const struct tow_command command_help = {
    .name = "help",
    .summary = "tell more of a command",
    .help = "towline help [COMMAND]: lists the commands, or tells more of one.\n"
            "\n"
            "  towline help run\n"
            "\n"
            "The same as towline --help and towline COMMAND --help.\n",
    .run = main_help,
};

/* A flag that stands before the command, whichever command has it. */
static const struct tow_flag *main_find_flag(const char *word)
{
    const struct tow_flag *flag = NULL;
    for (size_t i = 0; i < COMMAND_COUNT && flag == NULL; i++) {
        flag = tow_flags_find(commands[i]->flags, word);
    }
    return flag;
}

static int main_refuse_flag(const char *word)
{
    struct tow_guess guess;
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(word, "="), word);
    tow_guess_init(&guess, typed + strspn(typed, "-"));
    for (size_t i = 0; i < COMMAND_COUNT && typed[1] == '-'; i++) {
        for (const struct tow_flag *flag = commands[i]->flags; flag != NULL && flag->name != NULL;
             flag++) {
            tow_guess_offer(&guess, flag->name + 2);
        }
    }
    tow_guess_offer(&guess, "help");
    tow_guess_offer(&guess, "version");
    if (typed[1] == '-' && guess.best != NULL) {
        tow_cli_say("towline has no flag %s; did you mean --%s?", typed, guess.best);
    } else {
        tow_cli_say("towline has no flag %s; towline --help lists its commands, and towline "
                    "COMMAND --help their flags",
                    typed);
    }
    return TOW_EXIT_USAGE;
}

/* Where the command stands, behind flags of its own; argc: there is none. */
static int main_find_command(int argc, char **argv)
{
    int at = 1;
    while (at < argc && argv[at][0] == '-') {
        const struct tow_flag *flag = main_find_flag(argv[at]);
        if (flag == NULL) {
            break;
        }
        at += tow_flags_stands_alone(flag, argv[at]) ? 1 : 2;
    }
    return at < argc ? at : argc;
}

int main(int argc, char **argv)
{
    tow_log_set_program("towline");
    if (argc < 2) {
        print_help(stderr);
        return TOW_EXIT_USAGE;
    }
    int at = main_find_command(argc, argv);
    if (at == argc) {
        tow_cli_say("say which command comes behind %s; towline --help lists them", argv[1]);
        return TOW_EXIT_USAGE;
    }
    char *word = argv[at];
    bool helps = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    bool tells = strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0;
    const struct tow_command *command = helps   ? &command_help
                                        : tells ? &tow_command_version
                                                : main_find(word);
    if (command == NULL && word[0] == '-') {
        return main_refuse_flag(word);
    }
    if (command == NULL) {
        return main_refuse(word);
    }
    if (helps || tells) {
        return command->run(argc - at, argv + at);
    }
    /* Flags that stood before the command go behind it. */
    memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
    argv[1] = word;
    return command->run(argc - 1, argv + 1);
}
