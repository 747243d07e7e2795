/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of users and groups, and which sockets other machines can reach. */
#include "cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/login/allow.h"

static struct tows_config config;
static char why[512];

static int read_lists(const char *users, const char *groups, struct tows_allow *ret_allow)
{
    tows_config_defaults(&config);
    snprintf(config.allow_users, sizeof config.allow_users, "%s", users);
    snprintf(config.allow_groups, sizeof config.allow_groups, "%s", groups);
    return tows_allow_read(&config, ret_allow, why, sizeof why);
}

static void names_and_numbers_are_read(void **state)
{
    (void)state;
    struct tows_allow allow;
    assert_int_equal(read_lists("root, 1000 ,4294967294,", "0", &allow), 0);
    assert_int_equal(allow.user_count, 3);
    assert_int_equal(allow.users[0], 0);
    assert_int_equal(allow.users[1], 1000);
    assert_int_equal(allow.users[2], 4294967294);
    assert_int_equal(allow.group_count, 1);
    assert_int_equal(read_lists("", "", &allow), 0);
    assert_int_equal(allow.user_count + allow.group_count, 0);
}

static void what_nobody_is_called_is_no_list(void **state)
{
    (void)state;
    struct tows_allow allow;
    static const char *const wrong[] = {"no-such-user-here",
                                        "1000,no-such-user-here",
                                        "4294967295",
                                        "99999999999999999999",
                                        "-1",
                                        ",",
                                        " , ,",
                                        "\"root\""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(read_lists(wrong[i], "", &allow), -EINVAL);
        assert_non_null(strstr(why, "allow-users: "));
        assert_int_equal(read_lists("", wrong[i], &allow), -EINVAL);
        assert_non_null(strstr(why, "allow-groups: "));
    }
    char many[TOW_CONFIG_WORDS_MAX] = "";
    for (int i = 0; i <= TOW_ALLOW_MAX; i++) {
        strcat(many, "1,");
    }
    assert_int_equal(read_lists(many, "", &allow), -EINVAL);
    assert_non_null(strstr(why, "at most 256"));
}

static bool lets_in(const struct tows_allow *allow, uint32_t kind, uint32_t user, uid_t owner)
{
    struct tows_who who = {.kind = kind, .user = user};
    return tows_allow_lets_in(allow, -1, &who, owner);
}

static void a_list_lets_in_those_it_names(void **state)
{
    (void)state;
    struct tows_allow allow;
    assert_int_equal(read_lists("", "", &allow), 0);
    for (uint32_t kind = TOW_WHO_NOBODY; kind <= TOW_WHO_OTHER_ROOT; kind++) {
        assert_true(lets_in(&allow, kind, 7, 0));
    }
    assert_int_equal(read_lists("0,1000", "", &allow), 0);
    assert_true(lets_in(&allow, TOW_WHO_USER, 1000, 5));
    assert_false(lets_in(&allow, TOW_WHO_USER, 1001, 5));
    assert_true(lets_in(&allow, TOW_WHO_USER, 5, 5));
    assert_true(lets_in(&allow, TOW_WHO_USER, 0, 5));
    /* Neither has the number that it seems to have. */
    assert_false(lets_in(&allow, TOW_WHO_OTHER_ROOT, 0, 0));
    assert_false(lets_in(&allow, TOW_WHO_NOBODY, 0, 0));
    assert_false(lets_in(&allow, TOW_WHO_IPV4, 0, 0));
    assert_false(lets_in(&allow, TOW_WHO_IPV6, 0, 0));
    allow.anyone = true;
    assert_true(lets_in(&allow, TOW_WHO_IPV4, 0, 0));
    assert_false(lets_in(&allow, TOW_WHO_USER, 1001, 5));
}

static void administrators_rule(void **state)
{
    (void)state;
    struct tows_allow allow;
    struct tows_who who = {.kind = TOW_WHO_USER, .user = 1000};
    assert_int_equal(read_lists("7", "", &allow), 0);
    assert_false(tows_allow_rules(&allow, &who, 5));
    snprintf(config.admin_users, sizeof config.admin_users, "no-such-user-here,");
    assert_int_equal(tows_allow_read(&config, &allow, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "admin-users: "));
    snprintf(config.admin_users, sizeof config.admin_users, "1000,1001,");
    assert_int_equal(tows_allow_read(&config, &allow, why, sizeof why), 0);
    assert_true(tows_allow_rules(&allow, &who, 5));
    assert_true(lets_in(&allow, TOW_WHO_USER, 1000, 5));
    /* The number is that of a user of this machine, and of nobody else. */
    for (uint32_t kind = TOW_WHO_NOBODY; kind <= TOW_WHO_TOKEN; kind++) {
        who.kind = kind;
        assert_int_equal(tows_allow_rules(&allow, &who, 5), kind == TOW_WHO_USER);
    }
    who = (struct tows_who){.kind = TOW_WHO_USER, .user = 1002};
    assert_false(tows_allow_rules(&allow, &who, 5));
    assert_true(tows_allow_rules(&allow, &who, 1002));
}

static void a_group_is_asked_of_the_socket(void **state)
{
    (void)state;
    struct tows_allow allow;
    char group[16];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct tows_who who = {.kind = TOW_WHO_USER, .user = 4000000};
    snprintf(group, sizeof group, "%u", (unsigned)getegid());
    assert_int_equal(read_lists("", group, &allow), 0);
    assert_true(tows_allow_lets_in(&allow, pair[0], &who, 4000001));
    assert_int_equal(read_lists("", "3999999", &allow), 0);
    assert_false(tows_allow_lets_in(&allow, pair[0], &who, 4000001));
    close(pair[0]);
    close(pair[1]);
}

static void a_private_server_has_no_lists(void **state)
{
    (void)state;
    struct tows_allow allow;
    tows_config_defaults(&config);
    snprintf(config.allow_users, sizeof config.allow_users, "no-such-user-here,");
    snprintf(config.private_dir, sizeof config.private_dir, "/tmp/x");
    assert_int_equal(tows_allow_read(&config, &allow, why, sizeof why), 0);
    assert_true(lets_in(&allow, TOW_WHO_OTHER_ROOT, 0, 0));
}

/* Whether a socket that is bound there can be reached from other machines; -1: this machine has no
 * such address. */
static int is_open(int family, const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    bool v4 = family == AF_INET;
    int off = 0;
    assert_int_equal(inet_pton(family, text, v4 ? (void *)&in.sin_addr : (void *)&in6.sin6_addr),
                     1);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (!v4) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    int bound = v4 ? bind(fd, (struct sockaddr *)&in, sizeof in)
                   : bind(fd, (struct sockaddr *)&in6, sizeof in6);
    int open = bound == 0 ? tows_allow_is_open(fd) : -1;
    close(fd);
    return open;
}

static void sockets_beyond_the_loopback_are_open(void **state)
{
    (void)state;
    assert_int_equal(is_open(AF_INET, "127.0.0.1"), false);
    assert_int_equal(is_open(AF_INET, "127.8.9.1"), false);
    assert_int_equal(is_open(AF_INET, "0.0.0.0"), true);
    assert_int_not_equal(is_open(AF_INET6, "::1"), true);
    assert_int_not_equal(is_open(AF_INET6, "::ffff:127.0.0.1"), true);
    assert_int_not_equal(is_open(AF_INET6, "::"), false);
    assert_int_not_equal(is_open(AF_INET6, "::ffff:0.0.0.0"), false);
    assert_true(tows_allow_is_open(-1));
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_false(tows_allow_is_open(pair[0]));
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers_are_read),
        cmocka_unit_test(what_nobody_is_called_is_no_list),
        cmocka_unit_test(a_list_lets_in_those_it_names),
        cmocka_unit_test(administrators_rule),
        cmocka_unit_test(a_group_is_asked_of_the_socket),
        cmocka_unit_test(a_private_server_has_no_lists),
        cmocka_unit_test(sockets_beyond_the_loopback_are_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
