/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that sessions export: found by their tokens, closed when they should be, never too
 * many. */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/pool/export_registry.h"

static struct tows_export_registry exports;
static char ann, bob; /* sessions */
static unsigned anns, bobs;

static int setup(void **state)
{
    (void)state;
    tows_export_registry_init(&exports);
    anns = bobs = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tows_export_registry_end(&exports, &ann, &anns);
    tows_export_registry_end(&exports, &bob, &bobs);
    assert_int_equal(exports.count, 0);
    return 0;
}

static int any_fd(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void a_token_leads_to_its_descriptor_only(void **state)
{
    struct tow_token token[50];
    int fd[50];
    (void)state;
    for (int i = 0; i < 50; i++) {
        fd[i] = any_fd();
        assert_int_equal(tows_export_registry_add(&exports, i % 2 ? &ann : &bob,
                                                  i % 2 ? &anns : &bobs, fd[i], &token[i]),
                         0);
    }
    assert_int_equal(anns + bobs, 50);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(tows_export_registry_find(&exports, &token[i]), fd[i]);
        token[i].word[1] ^= 1;
        assert_int_equal(tows_export_registry_find(&exports, &token[i]), -ENOENT);
    }
}

static void only_its_session_forgets_a_descriptor(void **state)
{
    struct tow_token token;
    int fd = any_fd();
    (void)state;
    assert_int_equal(tows_export_registry_add(&exports, &ann, &anns, fd, &token), 0);
    tows_export_registry_forget(&exports, &bob, &bobs, &token);
    assert_int_equal(tows_export_registry_find(&exports, &token), fd);
    tows_export_registry_end(&exports, &bob, &bobs);
    assert_true(is_open(fd));
    tows_export_registry_forget(&exports, &ann, &anns, &token);
    assert_int_equal(tows_export_registry_find(&exports, &token), -ENOENT);
    assert_false(is_open(fd));
    tows_export_registry_forget(&exports, &ann, &anns, &token);
    assert_int_equal(anns, 0);
}

static void a_session_that_ends_takes_its_own_along(void **state)
{
    struct tow_token token;
    int fd[20];
    (void)state;
    for (int i = 0; i < 20; i++) {
        fd[i] = any_fd();
        tows_export_registry_add(&exports, i < 15 ? &ann : &bob, i < 15 ? &anns : &bobs, fd[i],
                                 &token);
    }
    tows_export_registry_end(&exports, &ann, &anns);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(is_open(fd[i]), i >= 15);
    }
    assert_int_equal(anns, 0);
    assert_int_equal(bobs, 5);
}

/* The rest of what this process may open is for connections. */
static void no_more_than_half_of_all_descriptors(void **state)
{
    struct rlimit before, few;
    struct tow_token token;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    tows_export_registry_init(&exports);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(tows_export_registry_add(&exports, &ann, &anns, any_fd(), &token), 0);
    }
    int fd = any_fd();
    assert_int_equal(tows_export_registry_add(&exports, &bob, &bobs, fd, &token), -EMFILE);
    assert_false(is_open(fd));
    tows_export_registry_end(&exports, &ann, &anns);
    assert_int_equal(tows_export_registry_add(&exports, &bob, &bobs, any_fd(), &token), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void a_session_has_a_limit_of_its_own(void **state)
{
    struct tow_token token;
    unsigned many = TOW_EXPORTS_SESSION_MAX;
    (void)state;
    assert_int_equal(tows_export_registry_add(&exports, &ann, &many, any_fd(), &token), -EMFILE);
    assert_int_equal(many, TOW_EXPORTS_SESSION_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_token_leads_to_its_descriptor_only, setup, teardown),
        cmocka_unit_test_setup_teardown(only_its_session_forgets_a_descriptor, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_that_ends_takes_its_own_along, setup, teardown),
        cmocka_unit_test_setup_teardown(no_more_than_half_of_all_descriptors, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_has_a_limit_of_its_own, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
