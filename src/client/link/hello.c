/* SPDX-License-Identifier: Apache-2.0 */
/* The hello and the welcome: which functions both sides have, and what a refusal says. */
#include "client/link/hello.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "client/link/link.h"
#include "gen/functions.h"
#include "transport/limit.h"
#include "wire/control.h"
#include "wire/handshake.h"

/* What the server's driver is to start with, unless that is what it does anyway; else NULL. */
static const char *forwarded_value(const char *name)
{
    const char *value = getenv(name);
    if (value != NULL && strcmp(name, "CUDA_MODULE_LOADING") == 0 && strcmp(value, "LAZY") == 0) {
        return NULL;
    }
    return value;
}

/* What the program asks for, so that nobody gives it more. */
static uint64_t hello_asks(void)
{
    uint64_t bytes = 0;
    char why[TOW_WHY_MAX];
    if (tow_limit_gpu_memory(&bytes, why, sizeof why) < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "%s; the server's own limit holds", why);
    }
    return bytes;
}

/* How it waits in line, and what it asks for there. */
static struct tow_wish hello_wishes(void)
{
    struct tow_wish wish;
    char why[TOW_WHY_MAX];
    if (tow_limit_wish(&wish, why, sizeof why) < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "%s; it has no effect", why);
    }
    return wish;
}

bool towc_hello_waits(void)
{
    struct tow_wish wish;
    char why[TOW_WHY_MAX];
    tow_limit_wish(&wish, why, sizeof why);
    return wish.wait_s != TOW_WAIT_NONE;
}

void towc_hello_check_limit(const struct towc_link *link)
{
    uint64_t bytes = 0;
    char why[TOW_WHY_MAX];
    if ((link->welcome.capabilities & TOW_CAN_LIMIT) == 0 &&
        tow_limit_gpu_memory(&bytes, why, sizeof why) == 0 && bytes != 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "%s does not limit the memory of GPUs: TOWLINE_GPU_MEMORY has no effect there",
                link->address);
    }
    struct tow_wish wish;
    tow_limit_wish(&wish, why, sizeof why);
    if ((link->welcome.capabilities & TOW_CAN_LINE) == 0 &&
        (wish.exclusive != 0 || wish.priority != TOW_PRIORITY_UNSAID)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "%s is older than lines: TOWLINE_EXCLUSIVE and TOWLINE_PRIORITY have no effect "
                "there",
                link->address);
    }
}

int towc_hello_make(unsigned slot, bool lanes, bool lasts, struct tow_preface *ret_hello)
{
    char program[TOW_HELLO_NAME_MAX]; /* whoever starts a program may call it what they like */
    snprintf(program, sizeof program, "%s", program_invocation_short_name);
    struct tow_hello hello = {.version_min = TOW_PROTOCOL_MIN,
                              .version_max = TOW_PROTOCOL_MAX,
                              .capabilities = TOW_CAN_SILENCE | TOW_CAN_LOGIN |
                                              (lanes ? TOW_CAN_LANES : 0) |
                                              (lasts ? TOW_CAN_LAST : 0),
                              .pid = (uint32_t)getpid(),
                              .slot = slot,
                              .gpu_memory = hello_asks(),
                              .wish = hello_wishes(),
                              .name = program,
                              .release = TOWLINE_VERSION,
                              .functions = tow_travel_count,
                              .travels = tow_travels};
    memcpy(hello.table_hash, tow_table_hash, sizeof tow_table_hash);
    char text[TOW_DRIVER_VARIABLES_MAX][256];
    for (const char *const *name = tow_driver_variables; *name != NULL; name++) {
        const char *value = forwarded_value(*name);
        char *into = text[hello.env_count];
        if (value != NULL &&
            snprintf(into, sizeof text[0], "%s=%s", *name, value) < (int)sizeof text[0]) {
            hello.env[hello.env_count++] = into;
        }
    }
    uint32_t length = 0;
    uint8_t *bytes = malloc(TOW_PREFACE_MAX);
    int error = bytes == NULL ? -ENOMEM : tow_hello_encode(&hello, bytes, TOW_PREFACE_MAX, &length);
    if (error < 0) {
        free(bytes);
        return error;
    }
    *ret_hello = (struct tow_preface){bytes, length};
    return 0;
}

void towc_hello_free(struct tow_preface *hello)
{
    free((void *)(uintptr_t)hello->bytes);
    *hello = (struct tow_preface){0};
}

int towc_hello_take_lacking(struct towc_link *link)
{
    struct tow_welcome *welcome = &link->welcome;
    if (welcome->lacking_count == 0) {
        return 0;
    }
    link->lacking = calloc(TOW_FN_LIMIT / 8 + 1, 1);
    if (link->lacking == NULL) {
        return -ENOMEM;
    }
    const uint8_t *at = welcome->lacking;
    for (uint32_t i = 0; i < welcome->lacking_count; i++, at += sizeof(uint32_t)) {
        uint32_t number;
        memcpy(&number, at, sizeof number);
        if (number < TOW_FN_LIMIT) {
            link->lacking[number / 8] |= (uint8_t)(1u << number % 8);
        }
    }
    atomic_store(&link->room, 0);
    tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
            "%s and this client (Towline " TOWLINE_VERSION ") are of different versions: %u "
            "functions of the driver API are not available, and each is named when it is called",
            link->address, welcome->lacking_count);
    welcome->lacking = NULL; /* the frame's */
    return 0;
}

bool towc_hello_may_call(const struct towc_link *link, unsigned fn)
{
    /* Process-wide: one line for each function is enough, as in tow_refuse. */
    static atomic_uchar said[TOW_FN_LIMIT];
    if (link->lacking == NULL || fn >= TOW_FN_LIMIT ||
        (link->lacking[fn / 8] & 1u << fn % 8) == 0) {
        return true;
    }
    if (atomic_exchange_explicit(&said[fn], 1, memory_order_relaxed) == 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "%s is not supported: the server %s does not know it, or not as "
                "Towline " TOWLINE_VERSION " sends it; install the same version on both sides",
                tow_fn_info(fn)->name, link->address);
    }
    return false;
}
