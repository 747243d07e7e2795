/* SPDX-License-Identifier: Apache-2.0 */
/* What all subcommands share: messages, colours, sizes and ages as people read them. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *tow_cli_colour(FILE *out, enum tow_colour colour)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[1;31m", "\033[32m", "\033[33m"};
    const char *unwanted = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool plain = (unwanted != NULL && unwanted[0] != '\0') || terminal == NULL ||
                 strcmp(terminal, "dumb") == 0 || !isatty(fileno(out));
    return plain ? "" : codes[colour];
}

static void text_say(enum tow_colour colour, const char *format, va_list args)
{
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    size_t length = strlen(line);
    for (char *at = line; *at != '\0'; at++) {
        /* A server's sentence may be in it: that moves no cursor. */
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? ' ' : *at;
    }
    bool ended = length > 0 && strchr(".?", line[length - 1]) != NULL;
    fprintf(stderr, "%stowline:%s %s%s\n", tow_cli_colour(stderr, colour),
            tow_cli_colour(stderr, TOW_PLAIN), line, ended ? "" : ".");
}

void tow_cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_say(TOW_RED, format, args);
    va_end(args);
}

void tow_cli_tell(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_say(TOW_BOLD, format, args);
    va_end(args);
}

/* The first line says how it is written. */
void tow_cli_help(const struct tow_command *command)
{
    size_t first = strcspn(command->help, "\n");
    printf("%s%.*s%s%s", tow_cli_colour(stdout, TOW_BOLD), (int)first, command->help,
           tow_cli_colour(stdout, TOW_PLAIN), command->help + first);
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
