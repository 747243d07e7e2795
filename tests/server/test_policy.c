/* SPDX-License-Identifier: Apache-2.0 */
/* Which class a peer is of, whether its program may start and with which limits, and when its
 * session ends: no worker, no socket, and a clock that is a number. */
#include "cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/config/config.h"
#include "server/login/policy.h"

#define GIB (UINT64_C(1) << 30)

static struct tows_config config;
static struct tows_policy policy;
static char why[512];

/* Reads a config file of that text. */
static int read_file(const char *text)
{
    char path[] = "/tmp/towline-test-policy-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    tows_config_defaults(&config);
    snprintf(config.file, sizeof config.file, "%s", path);
    int error = tows_config_read_file(&config, path, why, sizeof why);
    if (error == 0) {
        error = tows_policy_read(&config, &policy, why, sizeof why);
    }
    unlink(path);
    return error;
}

static bool in_no_group(void *user, const uint32_t *groups, unsigned count)
{
    (void)user;
    (void)groups;
    (void)count;
    return false;
}

static bool in_group_7(void *user, const uint32_t *groups, unsigned count)
{
    ++*(int *)user;
    for (unsigned i = 0; i < count; i++) {
        if (groups[i] == 7) {
            return true;
        }
    }
    return false;
}

static const char *class_of(struct tows_who who)
{
    const struct tows_policy_class *class = tows_policy_class_of(&policy, &who, in_no_group, NULL);
    return class == NULL ? "" : class->name;
}

static struct tows_who user(uint32_t number)
{
    return (struct tows_who){.kind = TOW_WHO_USER, .user = number};
}

static struct tows_who token(const char *class, bool certificate)
{
    struct tows_who who = {.kind = TOW_WHO_TOKEN, .name = "ann", .certificate = certificate};
    snprintf(who.class, sizeof who.class, "%s", class);
    return who;
}

static struct tows_who address(const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        return tows_who_at((struct sockaddr *)&in);
    }
    assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return tows_who_at((struct sockaddr *)&in6);
}

static const char room[] = "gpu-memory = 8G\n"
                           "session-idle = 100\n"
                           "reconnect = 7\n"
                           "session-memory = 1G\n"
                           "[class teachers]  # of the machine\n"
                           "users = 1001,1002\n"
                           "groups = 7\n"
                           "certificates = eve, ann\n"
                           "gpu-memory = 0\n"
                           "session-idle = 0\n"
                           "reconnect = 0\n"
                           "[class students]\n"
                           "users = 1001, 2000\n"
                           "networks = 10.1.0.0/16, 10.2.3.4\n"
                           "networks = 2001:db8:8000::/33\n"
                           "gpu-memory = 2G\n"
                           "max-sessions = 3\n"
                           "sessions-per-peer = 2\n"
                           "session-memory = 512M\n";

static void peers_are_in_the_first_class_that_names_them(void **state)
{
    (void)state;
    assert_int_equal(read_file(room), 0);
    assert_string_equal(class_of(user(1001)), "teachers");
    assert_string_equal(class_of(user(2000)), "students");
    assert_string_equal(class_of(user(3000)), "");
    assert_string_equal(class_of(token("students", false)), "students");
    assert_string_equal(class_of(token("gold", false)), "");
    assert_string_equal(class_of(token("", false)), "");
    /* What a certificate is called counts, and nothing that a peer says of itself. */
    assert_string_equal(class_of(token("students", true)), "teachers");
    assert_string_equal(class_of(address("10.1.255.255")), "students");
    assert_string_equal(class_of(address("10.2.3.4")), "students");
    assert_string_equal(class_of(address("10.2.3.5")), "");
    assert_string_equal(class_of(address("2001:db8:8000::1")), "students");
    assert_string_equal(class_of(address("2001:db8:ffff:1::1")), "students");
    assert_string_equal(class_of(address("2001:db8:7fff::1")), "");
    assert_string_equal(class_of((struct tows_who){.kind = TOW_WHO_NOBODY}), "");
    assert_string_equal(class_of((struct tows_who){.kind = TOW_WHO_OTHER_ROOT}), "");
}

static void groups_are_asked_for_where_some_are_named(void **state)
{
    (void)state;
    int asked = 0;
    assert_int_equal(read_file(room), 0);
    struct tows_who member = user(2000);
    assert_string_equal(tows_policy_class_of(&policy, &member, in_group_7, &asked)->name,
                        "teachers");
    assert_int_equal(asked, 1);
    struct tows_who from = address("10.1.0.1");
    assert_string_equal(tows_policy_class_of(&policy, &from, in_group_7, &asked)->name, "students");
    assert_int_equal(asked, 1);
}

static void everybody_else_is_in_the_default_class(void **state)
{
    (void)state;
    assert_int_equal(read_file("[class a]\nusers = 5\n[class default]\nmax-sessions = 1\n"), 0);
    assert_string_equal(class_of(user(5)), "a");
    assert_string_equal(class_of(user(6)), "default");
    assert_string_equal(class_of(token("gold", false)), "default");
    assert_string_equal(class_of(address("::1")), "default");
}

static void what_is_wrong_is_named_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *wanted[3];
    } wrong[] = {
        {"[klass a]\n", {":1: ", "[klass a]", "[class NAME]"}},
        {"\n[class]\n", {":2: ", "[class NAME]", "letters"}},
        {"[class a b]\n", {":1: ", "\"a b\"", "letters"}},
        {"[class a]\n\n[class a]\n", {":3: ", "class a", "line 1"}},
        {"[class a]\ngpu-memroy = 1G\n", {":2: ", "\"gpu-memroy\"", "gpu-memory"}},
        {"[class a]\nlanes = 1\n", {":2: ", "\"lanes\"", "above the first section"}},
        {"[class a]\ngpu-memory = much\n", {":2: ", "gpu-memory = much", "--help"}},
        {"[class a]\nsession-idle = 2\n", {":2: ", "session-idle = 2", "the least is 5"}},
        {"[class a]\nwait = soon\n", {":2: ", "wait = soon", "10m, 2h or 1d"}},
        {"lease = 1w\n", {":1: ", "lease = 1w", "10m, 2h or 1d"}},
        {"wait = 366d\n", {":1: ", "wait = 366d", "the most is 31536000"}},
        {"[class a]\npriority = urgent\n", {":2: ", "priority = urgent", "low|normal|high"}},
        {"exclusive = yes\n", {":1: ", "exclusive = yes", "no|may|always"}},
        {"[class a]\novercommit = no\n", {":2: ", "\"overcommit\"", "above the first section"}},
        {"overcommit = maybe\n", {":1: ", "overcommit = maybe", "no|yes"}},
        {"scheduler = mps\n", {"all programs share one user", "mps-shared = yes", "a fault"}},
        {"scheduler = mps\nmps-shared = yes\n", {"one user", "tenant-users = 0", "mps"}},
        {"scheduler = mps\nmps-shared = yes\ntenant-users = 0\novercommit = swap\n",
         {"put out", "overcommit = no", "scheduler = time"}},
        {"scheduler = mps\nmps-shared = yes\ntenant-users = 0\nrestart-dir = /run/x\n",
         {"sessions end with", "restart-dir", "scheduler = time"}},
        {"mps-shared = yes\n", {"mps-shared", "scheduler = mps", "MPS"}},
        {"scheduler = mps\nmps-shared = yes\ntenant-users = 0\n[class a]\nshare = 3\n",
         {":4: ", "share holds only", "scheduler = time"}},
        {"[class a]\nusers = no-such-user-here\n", {":1: ", "users", "\"no-such-user-here\""}},
        {"[class a]\ngroups = ,\n", {":1: ", "groups", "no group is named"}},
        {"[class a]\nnetworks = 10.0.0.0/33\n", {":1: ", "\"10.0.0.0/33\"", "10.1.0.0/16"}},
        {"[class a]\nnetworks = 2001:db8::/65\n", {":1: ", "\"2001:db8::/65\"", "64 at most"}},
        {"[class a]\nnetworks = here\n", {":1: ", "\"here\"", "2001:db8::/32"}},
        {"[class a]\nnetworks = 10.0.0.0/\n", {":1: ", "\"10.0.0.0/\"", "networks"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(read_file(wrong[i].text), -EINVAL);
        for (size_t k = 0; k < 3; k++) {
            if (strstr(why, wrong[i].wanted[k]) == NULL) {
                fail_msg("%s: no \"%s\"", why, wrong[i].wanted[k]);
            }
        }
    }
    char many[1024] = "";
    for (int i = 0; i <= TOW_CONFIG_CLASSES_MAX; i++) {
        snprintf(many + strlen(many), sizeof many - strlen(many), "[class c%d]\n", i);
    }
    assert_int_equal(read_file(many), -EINVAL);
    assert_non_null(strstr(why, "16 classes at most"));
}

static struct tows_limits limits_of(const char *class, uint64_t asked)
{
    static const struct tow_wish nothing;
    return tows_policy_limits(&config, tows_policy_find(&policy, class), asked, &nothing);
}

static void nobody_gets_more_than_his_class_has(void **state)
{
    (void)state;
    assert_int_equal(read_file(room), 0);
    assert_true(limits_of("students", 0).gpu_memory == 2 * GIB);
    assert_string_equal(limits_of("students", 0).gpu_memory_from, "gpu-memory of class students");
    assert_true(limits_of("students", GIB).gpu_memory == GIB);
    assert_non_null(strstr(limits_of("students", GIB).gpu_memory_from, "TOWLINE_GPU_MEMORY"));
    assert_true(limits_of("students", 3 * GIB).gpu_memory == 2 * GIB);
    assert_true(limits_of("students", UINT64_MAX).gpu_memory == 2 * GIB);
    /* Whoever has all of it may ask for less, too. */
    assert_true(limits_of("teachers", 0).gpu_memory == 0);
    assert_true(limits_of("teachers", 3 * GIB).gpu_memory == 3 * GIB);
    assert_true(limits_of("", 0).gpu_memory == 8 * GIB);
    assert_string_equal(limits_of("", 0).gpu_memory_from, "gpu-memory");
    assert_true(limits_of("students", 0).session_memory == GIB / 2);
    assert_true(limits_of("teachers", 0).session_memory == GIB);
    assert_int_equal(limits_of("students", 0).session_idle, 100);
    assert_int_equal(limits_of("teachers", 0).session_idle, 0);
    assert_int_equal(limits_of("students", 0).reconnect, 7);
    assert_int_equal(limits_of("teachers", 0).reconnect, 0);
    /* Of one's own server one has all. */
    snprintf(config.private_dir, sizeof config.private_dir, "/tmp/x");
    assert_int_equal(tows_policy_read(&config, &policy, why, sizeof why), 0);
    assert_int_equal(policy.count, 0);
    assert_true(limits_of("students", 0).gpu_memory == 0);
    assert_true(limits_of("students", GIB).gpu_memory == GIB);
}

static void sessions_end_when_their_time_has_come(void **state)
{
    (void)state;
    assert_int_equal(read_file(room), 0);
    struct tows_limits limits = limits_of("students", 0);
    struct tows_policy_use use = {.host_memory = GIB / 2, .moved_ns = 1000 * TOW_TIME_S};
    int64_t now = use.moved_ns;
    assert_false(tows_policy_must_end(&limits, &use, now - TOW_TIME_S, why)); /* it moved since */
    for (; now < use.moved_ns + 100 * TOW_TIME_S; now += TOW_TIME_S) {
        assert_false(tows_policy_must_end(&limits, &use, now, why));
    }
    assert_true(tows_policy_must_end(&limits, &use, now, why));
    assert_non_null(strstr(why, "no command for 100 s"));
    use.moved_ns = now;
    assert_false(tows_policy_must_end(&limits, &use, now + 99 * TOW_TIME_S, why));
    use.host_memory++;
    assert_true(tows_policy_must_end(&limits, &use, now, why));
    assert_non_null(strstr(why, "session-memory"));
    limits = limits_of("teachers", 0);
    assert_false(tows_policy_must_end(&limits, &use, now + 1000000 * TOW_TIME_S, why));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_are_in_the_first_class_that_names_them),
        cmocka_unit_test(groups_are_asked_for_where_some_are_named),
        cmocka_unit_test(everybody_else_is_in_the_default_class),
        cmocka_unit_test(what_is_wrong_is_named_with_file_and_line),
        cmocka_unit_test(nobody_gets_more_than_his_class_has),
        cmocka_unit_test(sessions_end_when_their_time_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
