/* SPDX-License-Identifier: Apache-2.0 */
/* Expanded twice: with our ABI header and with NVIDIA's. */
#include <stddef.h>

struct abi_row {
    const char *what;
    unsigned long long value;
};

#define TOW_TYPE(type) {"sizeof " #type, sizeof(type)}, {"alignof " #type, _Alignof(type)},
#define TOW_FIELD(type, member)                                                                    \
    {"offset of " #type "." #member, offsetof(type, member)},                                      \
        {"size of " #type "." #member, sizeof(((type *)0)->member)},
#define TOW_ENUM(name) {#name, (unsigned long long)(long long)(name)},

static const struct abi_row rows[] = {
#include "gen/abi_check.h"
};

const struct abi_row *TABLE(unsigned *ret_count);
const struct abi_row *TABLE(unsigned *ret_count)
{
    *ret_count = sizeof rows / sizeof rows[0];
    return rows;
}
