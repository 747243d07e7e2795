#include "client/greet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gen/functions.h"
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

int tow_greet_make(unsigned slot, bool lanes, struct tow_preface *ret_hello)
{
    static const uint64_t table_hash[4] = TOW_TABLE_HASH;
    struct tow_hello hello = {.version_min = TOW_PROTOCOL_MIN,
                              .version_max = TOW_PROTOCOL_MAX,
                              .capabilities = lanes ? TOW_CAN_LANES : 0,
                              .pid = (uint32_t)getpid(),
                              .slot = slot,
                              .name = program_invocation_short_name,
                              .token = getenv("TOWLINE_TOKEN"),
                              .release = TOWLINE_VERSION,
                              .functions = TOW_TABLE_FUNCTIONS};
    memcpy(hello.table_hash, table_hash, sizeof table_hash);
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

void tow_greet_free(struct tow_preface *hello)
{
    free((void *)(uintptr_t)hello->bytes);
    *hello = (struct tow_preface){0};
}
