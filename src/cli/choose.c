/* SPDX-License-Identifier: Apache-2.0 */
/* Which server: the flag, else what every part of Towline chooses; and the way to it. */
#include "cli/cli.h"

#include "cli/tunnel.h"
#include "transport/address.h"

int tow_choose_server(const char *flag, char *ret_address, char *why, size_t why_size)
{
    int choice;
    if (flag != NULL) {
        int count = tow_address_read_list(flag, ret_address, TOW_CLI_ADDRESS_MAX, why, why_size);
        choice = count < 0 ? count : TOW_CHOICE_FLAG;
    } else {
        choice = tow_choose_servers(ret_address, why, why_size);
    }
    if (choice < 0 || choice == TOW_CHOICE_NONE) {
        return choice;
    }
    int error = tow_tunnels_open(ret_address, why, why_size);
    return error < 0 ? error : choice;
}
