/* SPDX-License-Identifier: Apache-2.0 */
/* Users of tenants: one each, the same again, never one that another live tenant has. */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "server/pool/tenant_users.h"
#include "server/pool/worker_pool.h"

enum { FIRST = 5000, COUNT = 10, LIVE = 11 };

static struct tows_config config;
static struct tows_worker_pool pool;
static struct tows_worker workers[LIVE];

static int setup(void **state)
{
    (void)state;
    memset(&config, 0, sizeof config);
    memset(&pool, 0, sizeof pool);
    memset(workers, 0, sizeof workers);
    config.tenant_users = (struct tows_config_range){FIRST, COUNT};
    pool.config = &config;
    return 0;
}

static struct tows_who person(uint32_t user)
{
    return (struct tows_who){.kind = TOW_WHO_USER, .user = user};
}

/* A worker that serves this tenant from now on. */
static uint32_t serve(unsigned place, uint32_t who)
{
    struct tows_worker *worker = &workers[place];
    struct tows_who tenant = person(who);
    worker->who = tenant;
    worker->user = tows_tenant_users_pick(&pool, &tenant);
    worker->next = pool.workers;
    pool.workers = worker;
    return worker->user;
}

static void a_tenant_has_one_user(void **state)
{
    uint32_t user = serve(0, 1000);
    assert_in_range(user, FIRST, FIRST + COUNT - 1);
    assert_int_equal(serve(1, 1000), user);
    pool.workers = NULL;
    assert_int_equal(serve(2, 1000), user); /* it is by his name, also tomorrow */
}

static void a_token_and_a_certificate_are_of_one_tenant(void **state)
{
    struct tows_who one = {.kind = TOW_WHO_TOKEN, .name = "ann"}, other = one;
    other.certificate = true;
    assert_true(tows_who_same(&one, &other));
    assert_int_equal(tows_tenant_users_hash(&one, UINT32_MAX),
                     tows_tenant_users_hash(&other, UINT32_MAX));
    snprintf(other.name, sizeof other.name, "bob");
    assert_int_not_equal(tows_tenant_users_hash(&one, UINT32_MAX),
                         tows_tenant_users_hash(&other, UINT32_MAX));
}

static void two_live_tenants_never_have_the_same(void **state)
{
    bool has[COUNT] = {false}, moved = false;
    for (unsigned i = 0; i < COUNT; i++) {
        struct tows_who tenant = person(1000 + i);
        uint32_t user = serve(i, 1000 + i);
        assert_in_range(user, FIRST, FIRST + COUNT - 1);
        assert_false(has[user - FIRST]);
        has[user - FIRST] = true;
        moved |= user != FIRST + tows_tenant_users_hash(&tenant, COUNT);
    }
    assert_true(moved); /* or no two were alike: nothing is shown */
    assert_int_equal(serve(COUNT, 2000), 0);
}

static void who_came_second_keeps_his_while_he_is_there(void **state)
{
    struct tows_who one = person(1000), other = person(1001);
    while (tows_tenant_users_hash(&one, COUNT) != tows_tenant_users_hash(&other, COUNT)) {
        other.user++;
    }
    uint32_t first = serve(0, one.user), second = serve(1, other.user);
    assert_int_not_equal(first, second);
    workers[0].user = 0; /* the first is gone */
    assert_int_equal(serve(2, other.user), second);
    assert_int_equal(serve(3, one.user), first);
}

static void without_a_range_there_are_none(void **state)
{
    config.tenant_users.count = 0;
    assert_int_equal(serve(0, 1000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_tenant_has_one_user, setup),
        cmocka_unit_test_setup(a_token_and_a_certificate_are_of_one_tenant, setup),
        cmocka_unit_test_setup(two_live_tenants_never_have_the_same, setup),
        cmocka_unit_test_setup(who_came_second_keeps_his_while_he_is_there, setup),
        cmocka_unit_test_setup(without_a_range_there_are_none, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
