/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables. */
#include "transport/limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

enum { SHARE_MAX = 1000 };

int tow_limit_gpu_memory(uint64_t *ret_bytes, char *why, size_t why_size)
{
    const char *name = "TOWLINE_GPU_MEMORY", *value = getenv("TOWLINE_GPU_MEMORY");
    *ret_bytes = 0;
    if (value == NULL || value[0] == '\0') {
        name = "CUDA_DEVICE_MEMORY_LIMIT";
        value = getenv("CUDA_DEVICE_MEMORY_LIMIT");
    }
    if (value == NULL || value[0] == '\0') {
        return 0;
    }
    uint64_t bytes;
    if (tow_size_parse(value, &bytes) < 0) {
        snprintf(
            why, why_size,
            "%s=%.64s is not understood; write a number of bytes, or one with K, M, G or T, as "
            "8G",
            name, value);
        return -EINVAL;
    }
    *ret_bytes = bytes;
    return 0;
}

int tow_limit_parse_wait(const char *text, uint32_t *ret_wait_s)
{
    uint64_t seconds;
    if (tow_duration_parse(text, &seconds) < 0) {
        return -EINVAL;
    }
    *ret_wait_s = seconds == 0              ? TOW_WAIT_NONE
                  : seconds < TOW_WAIT_LONG ? (uint32_t)seconds
                                            : TOW_WAIT_LONG;
    return 0;
}

int tow_limit_parse_priority(const char *text, uint32_t *ret_priority)
{
    static const char *const words[] = {"", "low", "normal", "high"};
    for (uint32_t i = TOW_PRIORITY_LOW; i <= TOW_PRIORITY_HIGH; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret_priority = i;
            return 0;
        }
    }
    return -EINVAL;
}

int tow_limit_parse_share(const char *text, uint32_t *ret_share)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number == 0 || number > SHARE_MAX) {
        return -EINVAL;
    }
    *ret_share = (uint32_t)number;
    return 0;
}

static int parse_exclusive(const char *text, uint32_t *ret_exclusive)
{
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        return -EINVAL;
    }
    *ret_exclusive = text[0] == '1';
    return 0;
}

int tow_limit_wish(struct tow_wish *ret_wish, char *why, size_t why_size)
{
    struct tow_wish wish = {.wait_s = TOW_WAIT_LONG};
    const struct {
        const char *name, *value;
        int (*parse)(const char *text, uint32_t *ret_number);
        uint32_t *into;
        const char *write;
    } variables[] = {
        {"TOWLINE_WAIT", getenv("TOWLINE_WAIT"), tow_limit_parse_wait, &wish.wait_s,
         "90, 10m, 2h or 1d; 0: not at all"},
        {"TOWLINE_PRIORITY", getenv("TOWLINE_PRIORITY"), tow_limit_parse_priority, &wish.priority,
         "low, normal or high"},
        {"TOWLINE_SHARE", getenv("TOWLINE_SHARE"), tow_limit_parse_share, &wish.share,
         "a number from 1 to 1000"},
        {"TOWLINE_EXCLUSIVE", getenv("TOWLINE_EXCLUSIVE"), parse_exclusive, &wish.exclusive,
         "1 or 0"},
    };
    int error = 0;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = variables[i].value;
        if (value != NULL && value[0] != '\0' && variables[i].parse(value, variables[i].into) < 0) {
            snprintf(why, why_size, "%s=%.64s is not understood; write %s", variables[i].name,
                     value, variables[i].write);
            error = -EINVAL;
        }
    }
    *ret_wish = wish;
    return error;
}
