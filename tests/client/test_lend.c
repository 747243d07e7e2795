/* SPDX-License-Identifier: Apache-2.0 */
/* What the system says of mappings, and memory that is made to be shared. */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/link/share.h"
#include "client/hostmem/vma.h"

enum { PAGE = 4096, SIZE = 9 << 20 };

/* Beyond a limit of the program's the system would end it. */
static void limits_are_kept(void **state)
{
    (void)state;
    struct rlimit before, little;
    int memfd = -1;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){PAGE, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(towc_share_make_memory(SIZE, &memfd), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(towc_share_make_memory(SIZE, &memfd), 0);
    close(memfd);
}

/* ---- mappings ---- */

static void lines_are_parsed(void **state)
{
    (void)state;
    struct towc_vma vma;
    assert_true(towc_vma_parse("7f00a000-7f00c000 rw-s 00003000 00:1a 77    /dev/shm/a b", &vma));
    assert_int_equal(vma.low, 0x7f00a000);
    assert_int_equal(vma.high, 0x7f00c000);
    assert_string_equal(vma.access, "rw-s");
    assert_int_equal(vma.offset, 0x3000);
    assert_int_equal(vma.device, makedev(0, 0x1a));
    assert_int_equal(vma.inode, 77);
    assert_string_equal(vma.path, "/dev/shm/a b");
    assert_true(towc_vma_parse("1000-2000 rw-p 00000000 00:00 0 ", &vma));
    assert_int_equal(vma.inode, 0);
    assert_string_equal(vma.path, "");
    assert_false(towc_vma_parse("", &vma));
    assert_false(towc_vma_parse("2000-1000 rw-p 00000000 00:00 0", &vma));
    assert_false(towc_vma_parse("1000-2000 rw-p 00000000", &vma));
}

struct sought {
    uint64_t low;
    int fd; /* its file, opened */
};

static bool seek(const struct towc_vma *vma, void *user)
{
    struct sought *sought = user;
    if (vma->low == sought->low) {
        sought->fd = towc_vma_open(vma);
    }
    return vma->low != sought->low;
}

static void expect_same_file(int fd, bool held)
{
    struct stat one, other;
    void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct sought sought = {(uint64_t)(uintptr_t)at, -1};
    assert_int_equal(fstat(fd, &one), 0);
    if (!held) {
        close(fd);
    }
    assert_int_equal(towc_vma_visit(seek, &sought), 0);
    assert_true(sought.fd >= 0);
    assert_int_equal(fstat(sought.fd, &other), 0);
    assert_int_equal(one.st_ino, other.st_ino);
    close(sought.fd);
    munmap(at, PAGE);
    if (held) {
        close(fd);
    }
}

static void files_are_opened_again(void **state)
{
    (void)state;
    char name[] = "/dev/shm/towline-test-XXXXXX";
    int fd = memfd_create("test", 0); /* has no name, but is held open */
    assert_int_equal(ftruncate(fd, PAGE), 0);
    expect_same_file(fd, true);
    fd = mkstemp(name);
    if (fd >= 0) {
        assert_int_equal(ftruncate(fd, PAGE), 0);
        expect_same_file(fd, false);
        unlink(name);
    }
}

struct walk {
    uint64_t low[3]; /* of the first mappings */
    int count, most;
};

static bool step(const struct towc_vma *vma, void *user)
{
    struct walk *walk = user;
    if (walk->count < 3) {
        walk->low[walk->count] = vma->low;
    }
    return ++walk->count < walk->most;
}

/* From the first one on, and no further than somebody wants. */
static void all_mappings_are_visited(void **state)
{
    (void)state;
    struct walk some = {.most = 3}, all = {.most = 1 << 20};
    char line[512];
    uint64_t wanted[3];
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    for (int i = 0; i < 3; i++) {
        assert_non_null(fgets(line, sizeof line, maps));
        wanted[i] = strtoull(line, NULL, 16);
    }
    fclose(maps);
    assert_int_equal(towc_vma_visit(step, &some), 0);
    assert_int_equal(some.count, 3);
    assert_memory_equal(some.low, wanted, sizeof wanted);
    assert_int_equal(towc_vma_visit(step, &all), 0);
    assert_true(all.count > 3);
    assert_memory_equal(all.low, wanted, sizeof wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_parsed),
        cmocka_unit_test(all_mappings_are_visited),
        cmocka_unit_test(files_are_opened_again),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
