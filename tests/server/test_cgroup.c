/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of workers, in a folder that looks like one: what is written where. tests/vm has
 * the kernel's. */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/pool/cgroup.h"

static char base[] = "/tmp/towline-cgroup-XXXXXX";
static char why[512];

static const char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *at(const char *format, ...)
{
    static char path[256];
    int length = snprintf(path, sizeof path, "%s/", base);
    va_list args;
    va_start(args, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, args);
    va_end(args);
    return path;
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void expect(const char *path, const char *text)
{
    char found[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, found, sizeof found - 1) >= 0);
    close(fd);
    assert_string_equal(found, text);
}

/* The kernel makes these files with the folder; here they are there before it. */
static void make_group(const char *name, int number)
{
    static const char *const files[] = {"cgroup.procs",     "memory.max", "memory.events",
                                        "memory.oom.group", "pids.max",   "memory.swap.max",
                                        "cpu.weight"};
    char folder[64];
    snprintf(folder, sizeof folder, number == 0 ? "%s-%d" : "%s-%d-%d", name, (int)getpid(),
             number);
    assert_int_equal(mkdir(at("%s", folder), 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        put(at("%s/%s", folder, files[i]), "");
    }
}

static int setup(void **state)
{
    (void)state;
    strcpy(base + sizeof base - 7, "XXXXXX");
    assert_non_null(mkdtemp(base));
    put(at("cgroup.controllers"), "cpuset cpu io memory pids\n");
    put(at("cgroup.subtree_control"), "memory\n");
    put(at("cgroup.procs"), "");
    make_group("listener", 0);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", base);
    return system(command);
}

static void a_worker_is_limited_in_a_group_of_its_own(void **state)
{
    struct tows_cgroups groups;
    (void)state;
    make_group("worker", 1);
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), 0);
    assert_true(groups.on && groups.cpu);
    expect(at("listener-%d/cgroup.procs", (int)getpid()), "0");
    assert_string_equal(groups.enabled, "-pids -cpu"); /* memory was on already */
    unsigned number = tows_cgroup_make(&groups);
    assert_int_equal(number, 1);
    tows_cgroup_enter(&groups, number);
    tows_cgroup_limit(&groups, number, 5 << 20, 77);
    assert_true(tows_cgroup_weigh(&groups, number, 33));
    expect(at("worker-%d-1/cgroup.procs", (int)getpid()), "0");
    expect(at("worker-%d-1/memory.oom.group", (int)getpid()), "1");
    expect(at("worker-%d-1/memory.swap.max", (int)getpid()), "0");
    expect(at("worker-%d-1/memory.max", (int)getpid()), "5242880");
    expect(at("worker-%d-1/pids.max", (int)getpid()), "77");
    expect(at("worker-%d-1/cpu.weight", (int)getpid()), "33");
    tows_cgroups_close(&groups);
    assert_false(groups.on);
}

static void the_kernels_word_says_whether_its_memory_was_full(void **state)
{
    static const struct {
        const char *text;
        bool full;
    } said[] = {
        {"", false},
        {"low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\noom_group_kill 0\n", false},
        {"low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 1\n", true},
        {"oom 1\noom_kill 1\n", true},
        {"low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\noom_group_kill 1\n", false}, /* for another's */
    };
    struct tows_cgroups groups;
    (void)state;
    make_group("worker", 1);
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), 0);
    unsigned number = tows_cgroup_make(&groups);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        put(at("worker-%d-1/memory.events", (int)getpid()), said[i].text);
        assert_int_equal(tows_cgroup_was_full(&groups, number), said[i].full);
    }
    assert_false(tows_cgroup_was_full(&groups, 0));
    assert_false(tows_cgroup_was_full(&groups, 2));
    tows_cgroups_close(&groups);
}

/* A folder with files cannot be removed, as a group with a process. */
static void a_group_that_is_not_empty_yet_goes_later(void **state)
{
    struct tows_cgroups groups;
    char command[256];
    (void)state;
    make_group("worker", 1);
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), 0);
    unsigned first = tows_cgroup_make(&groups), second = tows_cgroup_make(&groups);
    assert_int_equal(access(at("worker-%d-2", (int)getpid()), F_OK), 0);
    tows_cgroup_remove(&groups, first);
    assert_int_equal(groups.stay_count, 1);
    snprintf(command, sizeof command, "rm %s/*", at("worker-%d-1", (int)getpid()));
    assert_int_equal(system(command), 0);
    tows_cgroup_remove(&groups, second);
    assert_int_equal(groups.stay_count, 0);
    assert_int_equal(access(at("worker-%d-1", (int)getpid()), F_OK), -1);
    assert_int_equal(access(at("worker-%d-2", (int)getpid()), F_OK), -1);
    tows_cgroup_remove(&groups, 0);
    tows_cgroups_close(&groups);
}

static void what_a_server_left_is_removed_by_the_next(void **state)
{
    struct tows_cgroups groups;
    (void)state;
    pid_t gone = fork();
    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    assert_int_equal(mkdir(at("worker-%d-3", (int)gone), 0700), 0);
    assert_int_equal(mkdir(at("listener-%d", (int)gone), 0700), 0);
    assert_int_equal(mkdir(at("worker-%d-3", (int)getppid()), 0700), 0);
    assert_int_equal(mkdir(at("another"), 0700), 0);
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), 0);
    assert_int_equal(access(at("worker-%d-3", (int)gone), F_OK), -1);
    assert_int_equal(access(at("listener-%d", (int)gone), F_OK), -1);
    assert_int_equal(access(at("worker-%d-3", (int)getppid()), F_OK), 0);
    assert_int_equal(access(at("another"), F_OK), 0);
    tows_cgroups_close(&groups);
}

/* Its worker outlives that server, and has its limits here. */
static void a_group_of_a_server_before_is_found_by_its_worker(void **state)
{
    struct tows_cgroups groups;
    char command[256];
    (void)state;
    make_group("worker", 7);
    snprintf(command, sizeof command, "mv %s/worker-%d-7 %s/worker-99-7", base, (int)getpid(),
             base);
    assert_int_equal(system(command), 0);
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), 0);
    assert_int_equal(tows_cgroup_find(&groups, 4321), 0);
    put(at("worker-99-7/cgroup.procs"), "4321\n");
    assert_int_equal(tows_cgroup_find(&groups, 432), 0);
    unsigned number = tows_cgroup_find(&groups, 4321);
    assert_int_equal(number, 1);
    tows_cgroup_limit(&groups, number, 5 << 20, 77);
    assert_true(tows_cgroup_weigh(&groups, number, 33));
    expect(at("worker-99-7/memory.max"), "5242880");
    expect(at("worker-99-7/pids.max"), "77");
    expect(at("worker-99-7/cpu.weight"), "33");
    assert_int_equal(tows_cgroup_make(&groups), 2);
    snprintf(command, sizeof command, "rm %s/worker-99-7/*", base);
    assert_int_equal(system(command), 0);
    tows_cgroup_remove(&groups, number);
    assert_int_equal(access(at("worker-99-7"), F_OK), -1);
    tows_cgroups_close(&groups);
}

static void what_is_missing_is_said(void **state)
{
    struct tows_cgroups groups;
    (void)state;
    assert_int_equal(tows_cgroups_open_at(&groups, "/nonexistent", why, sizeof why), -ENOTSUP);
    assert_non_null(strstr(why, "/nonexistent has no controllers memory and pids"));
    put(at("cgroup.controllers"), "memory_x cpu pids\n");
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), -ENOTSUP);
    put(at("cgroup.controllers"), "memory pids\n");
    assert_int_equal(unlink(at("listener-%d/cgroup.procs", (int)getpid())), 0);
    assert_int_equal(tows_cgroups_open_at(&groups, base, why, sizeof why), -ENOENT);
    assert_non_null(strstr(why, "cannot be changed (No such file or directory); systemd allows it "
                                "by Delegate=memory pids cpu"));
    /* Then nobody has a group, and nothing is done. */
    assert_false(groups.on);
    assert_int_equal(tows_cgroup_make(&groups), 0);
    tows_cgroup_enter(&groups, 0);
    tows_cgroup_limit(&groups, 0, 1, 1);
    assert_false(tows_cgroup_weigh(&groups, 0, 1));
    tows_cgroup_remove(&groups, 0);
    tows_cgroups_close(&groups);
}

static void limits_leave_room_for_what_nobody_counts(void **state)
{
    const uint64_t mib = 1 << 20;
    struct tows_config config = {.session_memory = 24 * mib,
                                 .soft_devices = 2,
                                 .soft_memory = 32 * mib,
                                 .memory = 500 * mib,
                                 .soft_threads = 3,
                                 .session_threads = 100};
    (void)state;
    assert_int_equal(tows_cgroup_memory(&config, config.session_memory, false, false),
                     (24 + 64 + 1024) * mib);
    assert_int_equal(tows_cgroup_memory(&config, config.session_memory, true, false),
                     (24 + 64 + 64) * mib);
    assert_int_equal(tows_cgroup_memory(&config, config.session_memory, false, true),
                     (24 + 64 + 1024 + 500) * mib);
    config.session_memory = 4096 * mib;
    assert_int_equal(tows_cgroup_memory(&config, config.session_memory, true, false),
                     (4096 + 1024 + 64) * mib);
    assert_int_equal(tows_cgroup_threads(&config), 100 + 2 * 3 + 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_worker_is_limited_in_a_group_of_its_own, setup, teardown),
        cmocka_unit_test_setup_teardown(the_kernels_word_says_whether_its_memory_was_full, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_group_that_is_not_empty_yet_goes_later, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_server_left_is_removed_by_the_next, setup, teardown),
        cmocka_unit_test_setup_teardown(a_group_of_a_server_before_is_found_by_its_worker, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_said, setup, teardown),
        cmocka_unit_test(limits_leave_room_for_what_nobody_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
