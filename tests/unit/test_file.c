/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: maximum, replacement, and default folders. */
#include "cmocka_all.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int setup(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/towline-test-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void a_written_file_is_read_back_up_to_the_maximum(void **state)
{
    char path[128];
    struct tow_buf buf;
    snprintf(path, sizeof path, "%s/file", folder);
    char *bytes = test_malloc(200000);
    memset(bytes, 'x', 200000);
    assert_int_equal(tow_file_write_atomic(path, "old", 3, 0600), 0);
    assert_int_equal(tow_file_write_atomic(path, bytes, 200000, 0640), 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0640);
    tow_buf_init(&buf, 200000);
    assert_int_equal(tow_file_read(path, &buf), 0);
    assert_int_equal(buf.size, 200000);
    assert_memory_equal(buf.data, bytes, 200000);
    tow_buf_fini(&buf);
    tow_buf_init(&buf, 199999);
    assert_int_equal(tow_file_read(path, &buf), -E2BIG);
    assert_int_equal(buf.size, 0);
    tow_buf_fini(&buf);
    assert_int_equal(tow_file_read("/nonexistent/file", &buf), -ENOENT);
    assert_int_equal(tow_file_write_atomic("/nonexistent/file", "x", 1, 0600), -ENOENT);
    test_free(bytes);
}

/* A folder stands where the file is to be: whoever writes there is told, and finds nothing left. */
static void what_cannot_be_replaced_is_told_and_leaves_nothing(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/taken", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(tow_file_write_atomic(path, "x", 1, 0600), -EISDIR);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0); /* the temporary file is gone as well */
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void files_without_a_size_are_read(void **state)
{
    struct tow_buf buf;
    tow_buf_init(&buf, 1 << 20);
    assert_int_equal(tow_file_read("/proc/self/status", &buf), 0);
    assert_true(buf.size > 100);
    tow_buf_fini(&buf);
}

static void missing_folders_are_made(void **state)
{
    char path[128];
    snprintf(path, sizeof path, "%s/a/b/c", folder);
    assert_int_equal(tow_file_mkdir_all(path, true), 0);
    assert_int_equal(tow_file_mkdir_all(path, true), 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(tow_file_write_atomic(path, "x", 1, 0600), 0);
    assert_int_equal(tow_file_mkdir_all(path, false), -ENOTDIR);
    snprintf(path, sizeof path, "%s/file/below", folder);
    assert_int_equal(tow_file_mkdir_all(path, false), -ENOTDIR);
}

static void the_folder_of_a_file_is_made(void **state)
{
    char path[PATH_MAX + 8];
    struct stat status;
    snprintf(path, sizeof path, "%s/a/b/file", folder);
    assert_int_equal(tow_file_mkdir_for(path, true), 0);
    assert_int_equal(stat(path, &status), -1); /* the file is not */
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    assert_int_equal(tow_file_mkdir_for("/file", true), 0);
    assert_int_equal(tow_file_mkdir_for("file", true), 0);
    memset(path, 'x', sizeof path);
    path[sizeof path - 2] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(tow_file_mkdir_for(path, true), -ENAMETOOLONG);
    assert_int_equal(tow_file_lock(path), -ENAMETOOLONG);
}

static void a_lock_beside_a_file_is_held_until_it_is_closed(void **state)
{
    char path[128], lock[160];
    snprintf(path, sizeof path, "%s/a/file", folder);
    snprintf(lock, sizeof lock, "%s.lock", path);
    int held = tow_file_lock(path);
    assert_true(held >= 0);
    assert_true((fcntl(held, F_GETFD) & FD_CLOEXEC) != 0);
    int other = open(lock, O_RDWR | O_CLOEXEC);
    assert_true(other >= 0);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    close(held);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    /* Nobody is led elsewhere by a link of that name. */
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(symlink("/dev/null", lock), 0);
    assert_int_equal(tow_file_lock(path), -ELOOP);
}

static void caches_follow_the_environment(void **state)
{
    char path[64];
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    setenv("HOME", "/home/me", 1);
    assert_int_equal(tow_file_cache_dir(false, path, sizeof path), 0);
    assert_string_equal(path, "/x/cache/towline");
    setenv("XDG_CACHE_HOME", "relative", 1);
    assert_int_equal(tow_file_cache_dir(false, path, sizeof path), 0);
    assert_string_equal(path, "/home/me/.cache/towline");
    assert_int_equal(tow_file_cache_dir(false, path, 10), -ENAMETOOLONG);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(tow_file_cache_dir(false, path, sizeof path), -ENOENT);
    if (geteuid() == 0) {
        assert_int_equal(tow_file_cache_dir(true, path, sizeof path), 0);
        assert_string_equal(path, "/var/cache/towline");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_written_file_is_read_back_up_to_the_maximum, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_replaced_is_told_and_leaves_nothing, setup,
                                        teardown),
        cmocka_unit_test(files_without_a_size_are_read),
        cmocka_unit_test_setup_teardown(missing_folders_are_made, setup, teardown),
        cmocka_unit_test_setup_teardown(the_folder_of_a_file_is_made, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lock_beside_a_file_is_held_until_it_is_closed, setup,
                                        teardown),
        cmocka_unit_test(caches_follow_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
