/* SPDX-License-Identifier: Apache-2.0 */
/* What control groups leave of the machine's memory, and what a process holds. */
#include "cmocka_all.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "server/pool/machine.h"

static char folder[64];

/* Files below the folder, in the order in which they were made. */
static const char *const made[] = {
    "list",
    "a/b/memory.max",
    "a/memory.max",
    "memory/job/memory.limit_in_bytes",
};

static const char *below(const char *name, char ret_path[256])
{
    snprintf(ret_path, 256, "%s/%s", folder, name);
    return ret_path;
}

static void put(const char *name, const char *text)
{
    char path[256];
    assert_int_equal(tow_file_write_atomic(below(name, path), text, strlen(text), 0600), 0);
}

static uint64_t asked(const char *list)
{
    char path[256];
    put("list", list);
    return tows_machine_group_memory(below("list", path), folder);
}

static int setup(void **state)
{
    char path[256];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/towline-machine-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tow_file_mkdir_all(below("a/b", path), false), 0);
    assert_int_equal(tow_file_mkdir_all(below("memory/job", path), false), 0);
    return 0;
}

static int teardown(void **state)
{
    static const char *const folders[] = {"a/b", "a", "memory/job", "memory", ""};
    char path[256];
    (void)state;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        unlink(below(made[i], path));
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        rmdir(below(folders[i], path));
    }
    return 0;
}

static void the_least_of_the_groups_above_counts(void **state)
{
    (void)state;
    put("a/b/memory.max", "max\n");
    put("a/memory.max", "104857600\n");
    assert_int_equal(asked("0::/a/b\n"), 104857600);
    put("a/b/memory.max", "4096\n");
    assert_int_equal(asked("0::/a/b\n"), 4096);
    assert_int_equal(asked("0::/a\n"), 104857600);
}

static void the_first_version_counts_too(void **state)
{
    (void)state;
    put("memory/job/memory.limit_in_bytes", "8192\n");
    assert_int_equal(asked("5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n"), 8192);
}

static void what_says_nothing_is_no_limit(void **state)
{
    (void)state;
    assert_true(asked("0::/elsewhere\n") == UINT64_MAX);
    assert_true(asked("5:cpu:/a\nnonsense\n\n") == UINT64_MAX);
    assert_true(tows_machine_group_memory("/nowhere", folder) == UINT64_MAX);
    assert_true(tows_machine_memory() > 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOW 16 /* times as much is written beside it, at most */
#else
#define SHADOW 0
#endif

/* Private and shared memory are told apart. */
static void memory_that_is_written_is_seen(void **state)
{
    enum { SIZE = 8 << 20 };
    struct tows_machine_process before, after;
    (void)state;
    assert_int_equal(tows_machine_look(getpid(), &before), 0);
    void *own = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *common = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(own != MAP_FAILED && common != MAP_FAILED);
    memset(own, 1, SIZE);
    memset(common, 1, SIZE / 2);
    assert_int_equal(tows_machine_look(getpid(), &after), 0);
    assert_in_range(after.anonymous - before.anonymous, SIZE * 3 / 4, SIZE * 5 / 4 + SHADOW * SIZE);
    assert_in_range(after.shared - before.shared, SIZE / 4, SIZE * 3 / 4);
    assert_true(after.threads >= 1);
    munmap(own, SIZE);
    munmap(common, SIZE);
    assert_true(tows_machine_look(-1, &after) < 0);
}

/* This thread runs, since it reads; a child that stops itself does not. */
static void a_process_that_is_stopped_is_seen(void **state)
{
    struct tows_machine_process process;
    int status;
    (void)state;
    assert_int_equal(tows_machine_look(getpid(), &process), 0);
    assert_int_equal(process.state, 'R');
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(tows_machine_look(child, &process), 0);
    assert_int_equal(process.state, 'T');
    assert_false(process.traced);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) {
            raise(SIGSTOP);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFEXITED(status)) {
        print_message("nobody may be traced here\n");
        return;
    }
    assert_int_equal(tows_machine_look(child, &process), 0);
    assert_true(process.traced);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_the_groups_above_counts),
        cmocka_unit_test(the_first_version_counts_too),
        cmocka_unit_test(what_says_nothing_is_no_limit),
        cmocka_unit_test(memory_that_is_written_is_seen),
        cmocka_unit_test(a_process_that_is_stopped_is_seen),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
