/* SPDX-License-Identifier: Apache-2.0 */
/* What a client destroys nobody finds any more before the driver destroys it, and one thread does;
 * what the driver keeps means what it meant. */
#include "cmocka_all.h"

#include <stdlib.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "gen/event.h"
#include "gen/graph_server.h"
#include "gen/green.h"
#include "gen/module.h"
#include "gen/pool.h"
#include "gen/server_api.h"
#include "gen/stream.h"
#include "gen/texture.h"
#include "fake_session.h"
#include "server/session/session.h"
#include "wire/id.h"

enum { CONTEXT = 5 };
#define HANDLE ((void *)(uintptr_t)0x5000)

static struct tows_session *session;
static struct tow_driver driver;
static unsigned destroyed;
static CUresult answer; /* the driver's */
static uint64_t being_destroyed;

/* All functions of the API that end one handle and are given nothing else. */
static const struct {
    uint16_t fn;
    enum tow_handle_kind kind;
    CUresult error; /* of a handle that means nothing */
} endings[] = {
    {TOW_FN_cuEventDestroy_v2, TOW_H_EVENT, CUDA_ERROR_INVALID_HANDLE},
    {TOW_FN_cuStreamDestroy_v2, TOW_H_STREAM, CUDA_ERROR_INVALID_HANDLE},
    {TOW_FN_cuArrayDestroy, TOW_H_ARRAY, CUDA_ERROR_INVALID_HANDLE},
    {TOW_FN_cuMipmappedArrayDestroy, TOW_H_MIPMAPPEDARRAY, CUDA_ERROR_INVALID_HANDLE},
    {TOW_FN_cuMemPoolDestroy, TOW_H_MEMORYPOOL, CUDA_ERROR_INVALID_HANDLE},
    {TOW_FN_cuGreenCtxDestroy, TOW_H_GREENCTX, CUDA_ERROR_INVALID_HANDLE},
    {TOW_FN_cuGraphDestroy, TOW_H_GRAPH, CUDA_ERROR_INVALID_VALUE},
    {TOW_FN_cuGraphDestroyNode, TOW_H_GRAPHNODE, CUDA_ERROR_INVALID_VALUE},
    {TOW_FN_cuGraphExecDestroy, TOW_H_GRAPHEXEC, CUDA_ERROR_INVALID_VALUE},
};
enum { ENDINGS = sizeof endings / sizeof endings[0] };
/* These carry more: {id, whether it is the last, how many were made of it}. */
static const struct {
    uint16_t fn;
    enum tow_handle_kind kind;
} unloadings[] = {{TOW_FN_cuModuleUnload, TOW_H_MODULE}, {TOW_FN_cuLibraryUnload, TOW_H_LIBRARY}};

static CUresult serve(uint16_t fn, uint64_t id)
{
    uint64_t body[2] = {id, 1};
    struct tows_serve call = {.session = session,
                              .driver = &driver,
                              .frame = {.kind = fn, .context = CONTEXT, .thread = 1, .seq = 1}};
    call.in = tow_dec_init(body, sizeof body);
    call.out_start = (uint8_t *)call.small;
    call.out = tow_enc_init(call.small, sizeof call.small);
    session->table[fn](&call);
    assert_false(call.malformed);
    return call.status;
}

static CUresult fake_destroy(void *handle)
{
    assert_ptr_equal(handle, HANDLE);
    assert_null(tows_handles_find(&session->handles, being_destroyed));
    destroyed++;
    return answer;
}

/* ---- graphs ---- */

#define CHILD ((CUgraph)(uintptr_t)0x6000)
#define CHILD_NODE ((CUgraphNode)(uintptr_t)0x7000)

static CUresult fake_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    if (nodes != NULL) {
        nodes[0] = graph == CHILD ? CHILD_NODE : (CUgraphNode)(uintptr_t)0x8000;
    }
    *count = 1;
    return CUDA_SUCCESS;
}

static CUresult fake_type(CUgraphNode node, CUgraphNodeType *ret)
{
    assert_null(tows_handles_find(&session->handles, being_destroyed));
    *ret = node == CHILD_NODE ? CU_GRAPH_NODE_TYPE_EMPTY : CU_GRAPH_NODE_TYPE_GRAPH;
    return CUDA_SUCCESS;
}

static CUresult fake_child(CUgraphNode node, CUgraph *ret)
{
    (void)node;
    *ret = CHILD;
    return CUDA_SUCCESS;
}

static int begin(void **state)
{
    (void)state;
    destroyed = 0;
    answer = CUDA_SUCCESS;
    tow_driver_fill_stubs(&driver);
    for (unsigned i = 0; i < ENDINGS; i++) {
        driver.fn[endings[i].fn] = (tow_driver_fn *)fake_destroy;
    }
    for (unsigned i = 0; i < 2; i++) {
        driver.fn[unloadings[i].fn] = (tow_driver_fn *)fake_destroy;
    }
    tow_driver_set(&driver, cuGraphGetNodes, fake_nodes);
    tow_driver_set(&driver, cuGraphNodeGetType, fake_type);
    tow_driver_set(&driver, cuGraphChildGraphNodeGetGraph, fake_child);
    session = fake_session_make(&driver, NULL);
    tows_serve_add_all(session->table);
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake_session_end(session);
    return 0;
}

static uint64_t make(enum tow_handle_kind kind, bool of_server)
{
    being_destroyed = TOW_ID_MAKE(kind, 0, 1, 9);
    if (of_server) {
        being_destroyed = tows_handles_export(&session->handles, kind, HANDLE, CONTEXT);
    } else {
        assert_int_equal(
            tows_handles_bind(&session->handles, being_destroyed, HANDLE, CUDA_SUCCESS, CONTEXT),
            0);
    }
    return being_destroyed;
}

static void an_id_ends_before_what_it_stands_for(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ENDINGS; i++) {
        uint64_t id = make(endings[i].kind, false);
        assert_int_equal(serve(endings[i].fn, id), CUDA_SUCCESS);
        assert_int_equal(destroyed, i + 1);
        assert_int_equal(serve(endings[i].fn, id), endings[i].error);
        assert_int_equal(destroyed, i + 1);
    }
}

static void code_ends_after_its_id(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t id = make(unloadings[i].kind, false);
        assert_int_equal(serve(unloadings[i].fn, id), CUDA_SUCCESS);
        assert_int_equal(destroyed, i + 1);
        assert_int_equal(serve(unloadings[i].fn, id), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(destroyed, i + 1);
    }
}

static void an_id_means_what_it_meant_if_the_driver_refuses(void **state)
{
    (void)state;
    answer = CUDA_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < 2 * ENDINGS; i++) {
        uint64_t id = make(endings[i / 2].kind, i % 2 == 1);
        assert_int_equal(serve(endings[i / 2].fn, id), CUDA_ERROR_NOT_SUPPORTED);
        const struct tows_handle_entry *entry = tows_handles_find(&session->handles, id);
        assert_non_null(entry);
        assert_ptr_equal(entry->handle, HANDLE);
        assert_int_equal(entry->context, CONTEXT);
        /* Others do not get it. */
        uint64_t other = tows_handles_export(&session->handles, TOW_H_EVENT, &driver, CONTEXT);
        assert_int_not_equal(other, id);
        assert_non_null(tows_handles_find(&session->handles, id));
        assert_true(tows_handles_unbind(&session->handles, other));
        assert_true(tows_handles_unbind(&session->handles, id));
    }
}

/* The client had retired the id before it asked, and has given its index to another. */
static CUresult refuse_late(void *handle)
{
    (void)handle;
    uint64_t heir = TOW_ID_MAKE(TOW_H_EVENT, 0, 9, TOW_ID_INDEX(being_destroyed));
    assert_int_equal(tows_handles_bind(&session->handles, heir, CHILD, CUDA_SUCCESS, CONTEXT), 0);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void an_index_that_another_has_meanwhile_is_not_taken_back(void **state)
{
    (void)state;
    uint64_t id = make(TOW_H_GRAPHEXEC, false);
    driver.fn[TOW_FN_cuGraphExecDestroy] = (tow_driver_fn *)refuse_late;
    assert_int_equal(serve(TOW_FN_cuGraphExecDestroy, id), CUDA_ERROR_NOT_SUPPORTED);
    uint64_t heir = TOW_ID_MAKE(TOW_H_EVENT, 0, 9, TOW_ID_INDEX(id));
    assert_non_null(tows_handles_find(&session->handles, heir));
    assert_null(tows_handles_find(&session->handles, id));
}

/* A thread that looked it up before another destroyed it. */
static CUresult serve_twice(void *handle)
{
    driver.fn[TOW_FN_cuGraphExecDestroy] = (tow_driver_fn *)fake_destroy;
    assert_int_equal(serve(TOW_FN_cuGraphExecDestroy, being_destroyed), CUDA_ERROR_INVALID_VALUE);
    return fake_destroy(handle);
}

static void one_thread_destroys_it(void **state)
{
    (void)state;
    uint64_t id = make(TOW_H_GRAPHEXEC, false);
    driver.fn[TOW_FN_cuGraphExecDestroy] = (tow_driver_fn *)serve_twice;
    assert_int_equal(serve(TOW_FN_cuGraphExecDestroy, id), CUDA_SUCCESS);
    assert_int_equal(destroyed, 1);
}

/* Of graphs within others the driver keeps what a client asks it to destroy. */
static void what_is_in_a_graph_lives_as_long_as_it_does(void **state)
{
    (void)state;
    uint64_t graph = make(TOW_H_GRAPH, false);
    struct tows_handles *handles = &session->handles;
    uint64_t child = tows_handles_export(handles, TOW_H_GRAPH, CHILD, CONTEXT);
    uint64_t node = tows_handles_export(handles, TOW_H_GRAPHNODE, CHILD_NODE, CONTEXT);
    tows_handles_spoil(handles, graph, CUDA_ERROR_OUT_OF_MEMORY);
    answer = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(serve(TOW_FN_cuGraphDestroy, graph), CUDA_ERROR_INVALID_VALUE);
    assert_ptr_equal(tows_handles_find(handles, child)->handle, CHILD);
    assert_ptr_equal(tows_handles_find(handles, node)->handle, CHILD_NODE);
    assert_int_equal(tows_handles_find(handles, graph)->error, CUDA_ERROR_OUT_OF_MEMORY);
    answer = CUDA_SUCCESS;
    assert_int_equal(serve(TOW_FN_cuGraphDestroy, graph), CUDA_SUCCESS);
    assert_null(tows_handles_find(handles, child));
    assert_null(tows_handles_find(handles, node));
    assert_null(tows_handles_find(handles, graph));
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(an_id_ends_before_what_it_stands_for),
        CASE(code_ends_after_its_id),
        CASE(an_id_means_what_it_meant_if_the_driver_refuses),
        CASE(an_index_that_another_has_meanwhile_is_not_taken_back),
        CASE(one_thread_destroys_it),
        CASE(what_is_in_a_graph_lives_as_long_as_it_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
