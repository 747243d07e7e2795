/* Which server: the flag, else what every part of Towline chooses; a default socket must answer. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

int tow_choose_server(const char *flag, char *ret_address, char *why, size_t why_size)
{
    if (flag != NULL) {
        if (strlen(flag) >= TOW_CLI_ADDRESS_MAX) {
            snprintf(why, why_size, "the server address is too long");
            return -ENAMETOOLONG;
        }
        strcpy(ret_address, flag);
        return TOW_CHOICE_FLAG;
    }
    int choice = tow_choose_servers(ret_address, why, why_size);
    if (choice == TOW_CHOICE_SOCKET) {
        char ignored[TOW_WHY_MAX];
        struct tow_line *line;
        if (tow_transport_connect(ret_address, tow_time_deadline(TOW_TIME_S), ignored,
                                  sizeof ignored, &line) < 0) {
            return TOW_CHOICE_NONE;
        }
        tow_line_close(line);
    }
    return choice;
}
