/* Which server: the flag, else what every part of Towline chooses. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
    return tow_choose_servers(ret_address, why, why_size);
}
