/* SPDX-License-Identifier: Apache-2.0 */
/* What all subcommands share: messages, flags, sizes and ages as people read them. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tow_cli_say(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t length = strlen(line);
    for (char *at = line; *at != '\0'; at++) {
        /* A server's sentence may be in it: that moves no cursor. */
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? ' ' : *at;
    }
    fprintf(stderr, "towline: %s%s\n", line, length > 0 && line[length - 1] == '.' ? "" : ".");
}

bool tow_flags_take(struct tow_flags *flags, const char *letter, const char *name,
                    const char **ret_value)
{
    if (flags->at >= flags->argc) {
        return false;
    }
    const char *word = flags->argv[flags->at];
    size_t length = strlen(name);
    if (ret_value != NULL && strncmp(word, name, length) == 0 && word[length] == '=') {
        *ret_value = word + length + 1;
        flags->at++;
        return true;
    }
    if (strcmp(word, name) != 0 && (letter == NULL || strcmp(word, letter) != 0)) {
        return false;
    }
    flags->at++;
    if (ret_value != NULL) {
        *ret_value = flags->at < flags->argc ? flags->argv[flags->at++] : NULL;
    }
    return true;
}

const char *tow_cli_bytes(double bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 16, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

const char *tow_cli_age(double seconds, char text[16])
{
    if (seconds < 120) {
        snprintf(text, 16, "%.0f s", seconds);
    } else if (seconds < 7200) {
        snprintf(text, 16, "%.0f min", seconds / 60);
    } else if (seconds < 172800) {
        snprintf(text, 16, "%.0f h", seconds / 3600);
    } else {
        snprintf(text, 16, "%.0f d", seconds / 86400);
    }
    return text;
}
