/* SPDX-License-Identifier: Apache-2.0 */
/* A CUPTI without a GPU: what the test says that was done comes as records when all is flushed. */
#include "fake_cupti.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct {
    uint64_t (*now)(void);
    void (*wanted)(uint8_t **, size_t *, size_t *);
    void (*full)(void *, uint32_t, uint8_t *, size_t, size_t);
    void (*called)(void *, uint32_t, uint32_t, const void *);
    uint32_t kinds, functions;
    uint8_t records[FAKE_CUPTI_ROOM];
    size_t used, dropped;
} fake;

EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*now)(void))
{
    fake.now = now;
    return fake.kinds == 0 ? 0 : 1; /* too late */
}

EXPORT int cuptiActivityRegisterCallbacks(void (*wanted)(uint8_t **, size_t *, size_t *),
                                          void (*full)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    fake.wanted = wanted;
    fake.full = full;
    return 0;
}

EXPORT int cuptiSubscribe(void **subscriber,
                          void (*called)(void *, uint32_t, uint32_t, const void *), void *user)
{
    (void)user;
    if (getenv("FAKE_CUPTI_TAKEN") != NULL) {
        return 39; /* another profiler has it */
    }
    fake.called = called;
    *subscriber = &fake;
    return 0;
}

EXPORT int cuptiUnsubscribe(void *subscriber)
{
    (void)subscriber;
    return 0;
}

EXPORT int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t number)
{
    (void)subscriber;
    (void)number;
    fake.functions += enable == 1 && domain == 1;
    return 0;
}

EXPORT int cuptiActivityEnable(uint32_t kind)
{
    fake.kinds |= 1u << kind;
    return 0;
}

EXPORT int cuptiActivityDisable(uint32_t kind)
{
    fake.kinds &= ~(1u << kind);
    return 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    uint8_t *buffer = NULL;
    size_t size = 0, most = 1;
    (void)flag;
    if (fake.used == 0) {
        return 0;
    }
    fake.wanted(&buffer, &size, &most);
    if (buffer == NULL || size < fake.used || most != 0 || (uintptr_t)buffer % 8 != 0) {
        return 1;
    }
    memcpy(buffer, fake.records, fake.used);
    size_t used = fake.used;
    fake.used = 0;
    fake.full(NULL, 0, buffer, size, used);
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + FAKE_CUPTI_RECORD;
    if (next + FAKE_CUPTI_RECORD > buffer + valid) {
        return 12; /* there is no more */
    }
    *record = next;
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = fake.dropped;
    fake.dropped = 0;
    return 0;
}

/* ---- for the test ---- */

EXPORT void fake_cupti_call(uint32_t site, uint32_t correlation)
{
    const struct tow_cupti_call call = {.site = site, .correlation = correlation};
    fake.called(NULL, TOW_CUPTI_DRIVER_API, 307, &call);
}

EXPORT void fake_cupti_record(const void *record, size_t size)
{
    memset(fake.records + fake.used, 0, FAKE_CUPTI_RECORD);
    memcpy(fake.records + fake.used, record, size);
    fake.used += FAKE_CUPTI_RECORD;
}

EXPORT void fake_cupti_drop(size_t count)
{
    fake.dropped += count;
}

EXPORT uint64_t fake_cupti_now(void)
{
    return fake.now();
}

EXPORT uint32_t fake_cupti_kinds(void)
{
    return fake.kinds;
}

EXPORT uint32_t fake_cupti_functions(void)
{
    return fake.functions;
}
