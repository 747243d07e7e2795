/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the flags of a subcommand, and says which one is wrong and what was probably meant. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "cli/guess.h"

const struct tow_flag *tow_flags_find(const struct tow_flag *known, const char *word)
{
    for (const struct tow_flag *flag = known; flag != NULL && flag->name != NULL; flag++) {
        size_t length = strlen(flag->name);
        bool named =
            strncmp(word, flag->name, length) == 0 && (word[length] == '\0' || word[length] == '=');
        /* "-sgpuhost" is "-s gpuhost". */
        bool lettered = flag->letter != NULL && strncmp(word, flag->letter, 2) == 0 &&
                        (word[2] == '\0' || flag->value != NULL);
        if (named || lettered) {
            return flag;
        }
    }
    return NULL;
}

bool tow_flags_stands_alone(const struct tow_flag *flag, const char *word)
{
    bool whole =
        strcmp(word, flag->name) == 0 || (flag->letter != NULL && strcmp(word, flag->letter) == 0);
    return flag->value == NULL || !whole;
}

static int flags_stop(struct tow_flags *flags, int code)
{
    flags->code = code;
    return TOW_FLAG_STOP;
}

static int flags_refuse(struct tow_flags *flags, const char *word)
{
    const char *name = flags->command->name;
    struct tow_guess guess;
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(word, "="), word);
    tow_guess_init(&guess, typed + strspn(typed, "-"));
    for (const struct tow_flag *flag = flags->command->flags; flag != NULL && flag->name != NULL;
         flag++) {
        tow_guess_offer(&guess, flag->name + 2);
    }
    tow_guess_offer(&guess, "help");
    if (word[1] == '-' && guess.best != NULL) {
        tow_cli_say("towline %s has no flag %s; did you mean --%s?", name, typed, guess.best);
    } else {
        tow_cli_say("towline %s has no flag %s; towline %s --help lists those that it has%s", name,
                    typed, name,
                    flags->command->leads ? ", and those of the program come behind its name" : "");
    }
    return flags_stop(flags, TOW_EXIT_USAGE);
}

/* The value of `flag`, which `word` names; the walk stands behind that word. */
static int flags_value(struct tow_flags *flags, const struct tow_flag *flag, const char *word,
                       const char **ret_value)
{
    size_t length = strlen(flag->name);
    bool named = strncmp(word, flag->name, length) == 0;
    if (flag->value == NULL) {
        if (named && word[length] == '=') {
            tow_cli_say("%s takes no value; write %s", flag->name, flag->name);
            return flags_stop(flags, TOW_EXIT_USAGE);
        }
        *ret_value = NULL;
        return flag->key;
    }
    if (tow_flags_stands_alone(flag, word)) {
        *ret_value = named ? word + length + 1 : word + 2;
        return flag->key;
    }
    if (flags->at >= flags->argc) {
        tow_cli_say("%s wants a value; write %s %s", word, word, flag->value);
        return flags_stop(flags, TOW_EXIT_USAGE);
    }
    *ret_value = flags->argv[flags->at++];
    return flag->key;
}

int tow_flags_next(struct tow_flags *flags, const char **ret_value)
{
    bool leads = flags->command->leads;
    while (flags->at < flags->argc) {
        char *word = flags->argv[flags->at];
        if (!flags->words_only && strcmp(word, "--") == 0) {
            flags->words_only = true;
            flags->at++;
        } else if (flags->words_only || word[0] != '-' || word[1] == '\0') {
            if (leads) {
                return TOW_FLAG_END;
            }
            /* Behind those before it: flags that come later are still found. */
            flags->argv[1 + flags->words++] = word;
            flags->at++;
        } else {
            const struct tow_flag *flag = tow_flags_find(flags->command->flags, word);
            if (flag != NULL) {
                flags->at++;
                return flags_value(flags, flag, word, ret_value);
            }
            if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
                tow_cli_help(flags->command);
                return flags_stop(flags, 0);
            }
            return flags_refuse(flags, word);
        }
    }
    return TOW_FLAG_END;
}

bool tow_flags_no_words(const struct tow_flags *flags)
{
    if (flags->words == 0) {
        return true;
    }
    const char *name = flags->command->name, *word = flags->argv[1];
    if (tow_flags_find(flags->command->flags, "-s") != NULL) {
        tow_cli_say("towline %s does not know what to do with \"%s\"; to name a server: towline %s "
                    "-s %s",
                    name, word, name, word);
    } else {
        tow_cli_say("towline %s does not know what to do with \"%s\"; see towline %s --help", name,
                    word, name);
    }
    return false;
}
