/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls a session's record keeps, and when they go. */
#include "cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/context.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/green.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/pool.h"
#include "gen/stream.h"
#include "gen/vmm.h"
#include "server/remake/record.h"
#include "wire/id.h"

enum { CONTEXT = 5, OTHER = 6, TEXT = 256 };

static struct tows_record *record;
static uint64_t claimed, claim_max;

static uint64_t id_of(enum tow_handle_kind kind, uint32_t index)
{
    return TOW_ID_MAKE(kind, 0, 1, index);
}

static bool claim(void *user, uint64_t size)
{
    (void)user;
    bool has_room = claimed + size <= claim_max;
    claimed += has_room ? size : 0;
    return has_room;
}

static void unclaim(void *user, uint64_t size)
{
    (void)user;
    claimed -= size;
}

static int begin(void **state)
{
    (void)state;
    const struct tows_record_room room = {claim, unclaim, NULL};
    claimed = 0;
    claim_max = UINT64_MAX;
    record = tows_record_create(&room);
    return record != NULL ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    tows_record_destroy(record);
    return claimed == 0 ? 0 : -1; /* all of it was given back */
}

/* Up to four words of a command. */
struct words {
    uint64_t at[4];
};

static int take_reply(unsigned fn, struct words body, uint64_t reply, uint64_t id)
{
    const struct tows_record_call call = {
        .fn = (uint16_t)fn,
        .context = CONTEXT,
        .id_count = id != 0,
        .ids = &id,
        .body = (const uint8_t *)body.at,
        .body_size = sizeof body.at,
        .reply = (const uint8_t *)&reply,
        .reply_size = reply != 0 ? sizeof reply : 0,
    };
    return tows_record_take(record, &call);
}

/* What is made is bound. */
static void take(unsigned fn, uint64_t first, uint64_t second, uint64_t third)
{
    bool binds = tows_record_rules[fn].what == TOW_RECORD_MAKES;
    assert_int_equal(take_reply(fn, (struct words){{first, second, third}}, 0, binds ? first : 0),
                     0);
}

/* The same of a call that binds a handle. */
static void take_id(unsigned fn, uint64_t first, uint64_t second, uint64_t id)
{
    assert_int_equal(take_reply(fn, (struct words){{first, second}}, 0, id), 0);
}

static void add_function(void *user, const struct tows_record_call *call)
{
    char *text = user;
    size_t used = strlen(text);
    snprintf(text + used, TEXT - used, "%s%s", used > 0 ? " " : "",
             tow_fn_info(call->fn)->name + 2);
}

static void assert_calls(const char *expected)
{
    char text[TEXT] = "";
    tows_record_each(record, add_function, text);
    assert_string_equal(text, expected);
}

static void make_context(void)
{
    take(TOW_FN_cuDevicePrimaryCtxRetain, id_of(TOW_H_CONTEXT, CONTEXT), 0, 0);
}

static void what_has_ended_is_not_kept(void **state)
{
    (void)state;
    uint64_t stream = id_of(TOW_H_STREAM, 1), event = id_of(TOW_H_EVENT, 1);
    uint64_t before = tows_record_size(record).bytes;
    take(TOW_FN_cuStreamCreate, stream, 0, 0);
    take(TOW_FN_cuEventCreate, event, 0, 0);
    take(TOW_FN_cuStreamSetAttribute, stream, 1, 7);
    assert_calls("StreamCreate EventCreate StreamSetAttribute");
    assert_true(tows_record_knows(record, TOW_NAME_HANDLE, stream));
    take(TOW_FN_cuStreamDestroy_v2, stream, 0, 0);
    assert_calls("EventCreate");
    assert_false(tows_record_knows(record, TOW_NAME_HANDLE, stream));
    take(TOW_FN_cuEventDestroy_v2, event, 0, 0);
    assert_int_equal(tows_record_size(record).objects, 0);
    assert_int_equal(tows_record_size(record).names, 0);
    assert_int_equal(tows_record_size(record).bytes, before);
}

static void memory_is_known_by_its_address(void **state)
{
    (void)state;
    assert_int_equal(take_reply(TOW_FN_cuMemAlloc_v2, (struct words){{4096}}, 0x7000, 0), 0);
    assert_int_equal(take_reply(TOW_FN_cuMemAlloc_v2, (struct words){{64}}, 0x9000, 0), 0);
    assert_true(tows_record_knows(record, TOW_NAME_MEMORY, 0x7000));
    take(TOW_FN_cuMemAdvise_v2, 0x7100, 16, 0); /* lies in the first */
    take(TOW_FN_cuMemFree_v2, 0, 0, 0);         /* frees nothing */
    take(TOW_FN_cuMemFree_v2, 0x7000, 0, 0);
    assert_calls("MemAlloc_v2");
    assert_false(tows_record_knows(record, TOW_NAME_MEMORY, 0x7000));
    assert_true(tows_record_knows(record, TOW_NAME_MEMORY, 0x9000));
    /* The address is answered again: what lay there has gone with something else. */
    assert_int_equal(take_reply(TOW_FN_cuMemAllocAsync, (struct words){{64}}, 0x9000, 0), 0);
    assert_calls("MemAllocAsync");
    assert_int_equal(take_reply(TOW_FN_cuMemAlloc_v2, (struct words){{64}}, 0, 0), -EPROTO);
}

static void of_settings_the_last_is_kept(void **state)
{
    (void)state;
    uint64_t module = id_of(TOW_H_MODULE, 1), function = id_of(TOW_H_FUNCTION, 2);
    take_id(TOW_FN_cuModuleLoadDataEx, module, 0, module);
    take_id(TOW_FN_cuModuleGetFunction, module, function, function);
    for (uint64_t value = 0; value < 100; value++) {
        take(TOW_FN_cuFuncSetAttribute, function, 8 | value << 32, 0);
    }
    assert_calls("ModuleLoadDataEx ModuleGetFunction FuncSetAttribute");
    take(TOW_FN_cuFuncSetAttribute, function, 9, 0); /* another attribute */
    assert_calls("ModuleLoadDataEx ModuleGetFunction FuncSetAttribute FuncSetAttribute");
    take_id(TOW_FN_cuModuleGetFunction, module, function, function); /* nothing new */
    take(TOW_FN_cuModuleUnload, module, 0, 0);
    assert_calls("");
    assert_false(tows_record_knows(record, TOW_NAME_HANDLE, function));
}

/* The server wants the image first: the command comes again. */
static void what_is_not_bound_was_not_made(void **state)
{
    (void)state;
    uint64_t module = id_of(TOW_H_MODULE, 1);
    assert_int_equal(take_reply(TOW_FN_cuModuleLoadDataEx, (struct words){{module}}, 1, 0), 0);
    assert_calls("");
    assert_false(tows_record_knows(record, TOW_NAME_HANDLE, module));
    take(TOW_FN_cuModuleLoadDataEx, module, 1, 0);
    assert_calls("ModuleLoadDataEx");
}

static void what_is_used_stays_with_its_end(void **state)
{
    (void)state;
    uint64_t graph = id_of(TOW_H_GRAPH, 1), exec = id_of(TOW_H_GRAPHEXEC, 1);
    uint64_t node = id_of(TOW_H_GRAPHNODE, 1), other = id_of(TOW_H_GRAPHNODE, 2);
    take(TOW_FN_cuGraphCreate, graph, 0, 0);
    take_id(TOW_FN_cuGraphAddEmptyNode, node, graph, node);
    take_id(TOW_FN_cuGraphAddEmptyNode, other, graph, other);
    take(TOW_FN_cuGraphDestroyNode, other, 0, 0);
    assert_false(tows_record_knows(record, TOW_NAME_HANDLE, other));
    take(TOW_FN_cuGraphInstantiateWithFlags, exec, graph, 0);
    take(TOW_FN_cuGraphDestroy, graph, 0, 0);
    assert_calls("GraphCreate GraphAddEmptyNode GraphAddEmptyNode GraphDestroyNode "
                 "GraphInstantiateWithFlags GraphDestroy");
    assert_false(tows_record_knows(record, TOW_NAME_HANDLE, node));
    take(TOW_FN_cuGraphExecDestroy, exec, 0, 0);
    assert_calls("");
    assert_int_equal(tows_record_size(record).objects, 0);
}

static void a_chain_of_uses_goes_at_once(void **state)
{
    (void)state;
    enum { LENGTH = 100000 };
    uint64_t graph = id_of(TOW_H_GRAPH, 1);
    take(TOW_FN_cuGraphCreate, graph, 0, 0);
    for (uint32_t i = 2; i <= LENGTH; i++) {
        take(TOW_FN_cuGraphClone, id_of(TOW_H_GRAPH, i), id_of(TOW_H_GRAPH, i - 1), 0);
        take(TOW_FN_cuGraphDestroy, id_of(TOW_H_GRAPH, i - 1), 0, 0);
    }
    assert_int_equal(tows_record_size(record).objects, LENGTH);
    take(TOW_FN_cuGraphDestroy, id_of(TOW_H_GRAPH, LENGTH), 0, 0);
    assert_int_equal(tows_record_size(record).objects, 0);
}

static void what_is_made_twice_ends_twice(void **state)
{
    (void)state;
    enum { HANDLE = 77 };
    assert_int_equal(take_reply(TOW_FN_cuMemCreate, (struct words){{4096}}, HANDLE, 0), 0);
    take(TOW_FN_cuMemMap, 0x10000, 4096, 0);
    assert_int_equal(
        take_reply(TOW_FN_cuMemRetainAllocationHandle, (struct words){{0x10000}}, HANDLE, 0), 0);
    take(TOW_FN_cuMemRelease, HANDLE, 0, 0);
    assert_true(tows_record_knows(record, TOW_NAME_ALLOCATION, HANDLE));
    take(TOW_FN_cuMemRelease, HANDLE, 0, 0);
    assert_false(tows_record_knows(record, TOW_NAME_ALLOCATION, HANDLE));
    assert_calls("MemMap");
}

static bool is_live(void *user, uint64_t id)
{
    (void)user;
    return TOW_ID_INDEX(id) >= OTHER;
}

static void a_context_ends_with_what_is_in_it(void **state)
{
    (void)state;
    uint64_t graph = id_of(TOW_H_GRAPH, 9);
    make_context();
    take(TOW_FN_cuCtxSetLimit, 1, 0, 0);
    take(TOW_FN_cuCtxSetLimit, 1, 0, 0);
    take(TOW_FN_cuStreamCreate, id_of(TOW_H_STREAM, 1), 0, 0);
    take(TOW_FN_cuStreamSetAttribute, 0, 1, 0); /* the context's own stream */
    assert_int_equal(take_reply(TOW_FN_cuMemAlloc_v2, (struct words){{4096}}, 0x7000, 0), 0);
    take(TOW_FN_cuGraphCreate, graph, 0, 0);
    take_id(TOW_FN_cuGraphAddEmptyNode, id_of(TOW_H_GRAPHNODE, 10), graph,
            id_of(TOW_H_GRAPHNODE, 10));
    assert_calls("DevicePrimaryCtxRetain CtxSetLimit StreamCreate StreamSetAttribute MemAlloc_v2 "
                 "GraphCreate GraphAddEmptyNode");
    take(TOW_FN_cuDevicePrimaryCtxRelease_v2, id_of(TOW_H_CONTEXT, CONTEXT), 0, 0);
    tows_record_sweep(record, is_live, NULL);
    /* The graph's node was added in the context, which stays with its end. */
    assert_calls("DevicePrimaryCtxRetain CtxSetLimit StreamSetAttribute GraphCreate "
                 "GraphAddEmptyNode DevicePrimaryCtxRelease_v2");
    assert_false(tows_record_knows(record, TOW_NAME_MEMORY, 0x7000));
    assert_int_equal(tows_record_size(record).handles, 2);
    take(TOW_FN_cuGraphDestroy, graph, 0, 0);
    assert_calls("");
}

static void a_part_can_end_alone(void **state)
{
    (void)state;
    uint64_t green = id_of(TOW_H_GREENCTX, OTHER), context = id_of(TOW_H_CONTEXT, 1);
    take(TOW_FN_cuGreenCtxCreate, green, 0, 0);
    assert_int_equal(
        take_reply(TOW_FN_cuCtxFromGreenCtx, (struct words){{context, green}}, 0, context), 0);
    assert_true(tows_record_knows(record, TOW_NAME_HANDLE, context));
    tows_record_sweep(record, is_live, NULL); /* its device's primary context has ended */
    assert_false(tows_record_knows(record, TOW_NAME_HANDLE, context));
    assert_true(tows_record_knows(record, TOW_NAME_HANDLE, green));
}

static void a_call_about_nothing_known_is_told(void **state)
{
    (void)state;
    const struct words body = {{id_of(TOW_H_STREAM, 3)}};
    assert_int_equal(take_reply(TOW_FN_cuStreamSetAttribute, body, 0, 0), -ENOENT);
    assert_int_equal(take_reply(TOW_FN_cuMemAdvise_v2, body, 0, 0), -ENOENT);
    const struct tows_record_call empty = {.fn = TOW_FN_cuStreamCreate};
    assert_int_equal(tows_record_take(record, &empty), -EPROTO);
    assert_int_equal(tows_record_size(record).calls, 0);
}

static void settings_of_the_session_are_kept_without_an_object(void **state)
{
    (void)state;
    uint64_t pool = id_of(TOW_H_MEMORYPOOL, 4);
    take_id(TOW_FN_cuDeviceGetDefaultMemPool, 0, 0, pool);
    take_id(TOW_FN_cuDeviceGetDefaultMemPool, 0, 0, pool);
    take(TOW_FN_cuMemPoolSetAttribute, pool, 1, 4);
    take(TOW_FN_cuDeviceSetMemPool, pool, 0, 0);
    take(TOW_FN_cuDeviceSetMemPool, pool, 0, 0);
    assert_calls("DeviceGetDefaultMemPool MemPoolSetAttribute DeviceSetMemPool");
}

/* Wherever room ends, what was claimed is given back. */
static void without_room_it_says_so(void **state)
{
    (void)state;
    uint64_t graph = id_of(TOW_H_GRAPH, 1);
    int error = 0;
    for (uint64_t room = claimed; error != 1; room += 8) {
        claim_max = room;
        const uint64_t calls[][2] = {{TOW_FN_cuGraphCreate, graph},
                                     {TOW_FN_cuDevicePrimaryCtxRetain, id_of(TOW_H_CONTEXT, 2)}};
        error = 1;
        for (unsigned i = 0; i < 2 && error == 1; i++) {
            int result =
                take_reply((unsigned)calls[i][0], (struct words){{calls[i][1]}}, 0, calls[i][1]);
            assert_true(result == 0 || result == -EDQUOT);
            error = result == 0 ? 1 : result;
        }
        claim_max = UINT64_MAX;
        end(NULL);
        assert_int_equal(claimed, 0);
        begin(NULL);
    }
}

static void a_record_has_a_maximum(void **state)
{
    (void)state;
    uint64_t pool = id_of(TOW_H_MEMORYPOOL, 1);
    int result = 0;
    take(TOW_FN_cuMemPoolCreate, pool, 0, 0);
    while (result == 0) {
        result = take_reply(TOW_FN_cuMemPoolSetAttribute, (struct words){{pool, 1, 2}}, 0, 0);
    }
    assert_int_equal(result, -EDQUOT);
    assert_in_range(tows_record_size(record).bytes, TOW_RECORD_MAX - 1024, TOW_RECORD_MAX);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(what_has_ended_is_not_kept),
        TEST(memory_is_known_by_its_address),
        TEST(of_settings_the_last_is_kept),
        TEST(what_is_not_bound_was_not_made),
        TEST(what_is_used_stays_with_its_end),
        TEST(a_chain_of_uses_goes_at_once),
        TEST(what_is_made_twice_ends_twice),
        TEST(a_context_ends_with_what_is_in_it),
        TEST(a_part_can_end_alone),
        TEST(a_call_about_nothing_known_is_told),
        TEST(settings_of_the_session_are_kept_without_an_object),
        TEST(without_room_it_says_so),
        TEST(a_record_has_a_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
