/* SPDX-License-Identifier: Apache-2.0 */
/* Reads numbers and their units. */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tow_number_parse(const char *text, int base, uint64_t *ret_number, const char **ret_rest)
{
    char *rest;
    if (!isdigit((unsigned char)*text)) {
        return -EINVAL; /* neither a sign nor a space */
    }
    errno = 0;
    unsigned long long value = strtoull(text, &rest, base);
    if (errno != 0) {
        return -EINVAL;
    }
    *ret_number = value;
    *ret_rest = rest;
    return 0;
}

int tow_size_parse(const char *text, uint64_t *ret_size)
{
    const char *rest;
    uint64_t value;
    if (tow_number_parse(text, 10, &value, &rest) < 0) {
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

int tow_duration_parse(const char *text, uint64_t *ret_seconds)
{
    static const struct {
        char letter;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    const char *rest;
    uint64_t value, seconds = 1;
    if (tow_number_parse(text, 10, &value, &rest) < 0) {
        return -EINVAL;
    }
    if (*rest != '\0') {
        seconds = 0;
        for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
            seconds = units[i].letter == *rest ? units[i].seconds : seconds;
        }
        rest++;
    }
    if (seconds == 0 || *rest != '\0' || value > UINT64_MAX / seconds) {
        return -EINVAL;
    }
    *ret_seconds = value * seconds;
    return 0;
}
