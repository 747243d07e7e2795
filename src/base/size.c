/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a number and its unit. */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tow_size_parse(const char *text, uint64_t *ret_size)
{
    char *rest;
    if (!isdigit((unsigned char)*text)) {
        return -EINVAL;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &rest, 10);
    if (errno != 0) {
        return -EINVAL;
    }
    static const char units[] = "KMGT";
    unsigned shift = 0;
    if (*rest != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*rest));
        if (unit == NULL) {
            return -EINVAL;
        }
        shift = 10 * (unsigned)(unit - units + 1);
        rest++;
        if (rest[0] == 'i' && (rest[1] == 'B' || rest[1] == 'b')) {
            rest += 2;
        } else if (*rest == 'B' || *rest == 'b') {
            rest++;
        }
    }
    if (*rest != '\0' || value > UINT64_MAX >> shift) {
        return -EINVAL;
    }
    *ret_size = value << shift;
    return 0;
}
