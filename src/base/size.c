/* SPDX-License-Identifier: Apache-2.0 */
/* Reads numbers and their units. */
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

int tow_duration_parse(const char *text, uint64_t *ret_seconds)
{
    static const struct {
        char letter;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *rest;
    if (!isdigit((unsigned char)*text)) {
        return -EINVAL;
    }
    errno = 0;
    unsigned long long value = strtoull(text, &rest, 10);
    if (errno != 0) {
        return -EINVAL;
    }
    uint64_t seconds = 1;
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
