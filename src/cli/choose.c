/* SPDX-License-Identifier: Apache-2.0 */
/* Which server: the flag, else what every part of Towline chooses. */
#include "cli/cli.h"

#include "transport/address.h"

int tow_choose_server(const char *flag, char *ret_address, char *why, size_t why_size)
{
    if (flag != NULL) {
        int count = tow_address_read_list(flag, ret_address, TOW_CLI_ADDRESS_MAX, why, why_size);
        return count < 0 ? count : TOW_CHOICE_FLAG;
    }
    return tow_choose_servers(ret_address, why, why_size);
}
