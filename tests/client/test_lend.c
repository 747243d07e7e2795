/* Memory that changes from private to shared and back while threads write it; and what the system
 * says of mappings.
 */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/gang.h"
#include "client/move.h"
#include "client/share.h"
#include "client/vma.h"

/* More than what is copied at a time. */
enum { PAGE = 4096, SIZE = 9 << 20, WORDS = SIZE / PAGE, WRITERS = 2 };

struct memory {
    uint8_t *own, *alias;
    int memfd;
};

static struct memory make(uint64_t file_size)
{
    struct memory m = {.memfd = -1};
    m.own = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m.own != MAP_FAILED);
    assert_int_equal(tow_share_make_memory(file_size, &m.memfd), 0);
    m.alias = mmap(NULL, file_size, PROT_READ | PROT_WRITE, MAP_SHARED, m.memfd, 0);
    assert_true(m.alias != MAP_FAILED);
    return m;
}

static void drop(struct memory *m, uint64_t file_size)
{
    munmap(m->own, SIZE);
    munmap(m->alias, file_size);
    close(m->memfd);
}

/* ---- writers ---- */

static atomic_bool over;

struct writer {
    pthread_t thread;
    volatile unsigned *words; /* one on every page */
    unsigned turns;
};

static void *write_everywhere(void *user)
{
    struct writer *writer = user;
    while (!atomic_load(&over)) {
        for (int i = 0; i < WORDS; i++) {
            writer->words[i * (PAGE / 4)] += 1;
        }
        writer->turns++;
    }
    return NULL;
}

static void begin_writing(struct writer *writers, uint8_t *own)
{
    atomic_store(&over, false);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.words = (volatile unsigned *)own + i};
        pthread_create(&writers[i].thread, NULL, write_everywhere, &writers[i]);
    }
}

static unsigned end_writing(struct writer *writers)
{
    unsigned lost = 0;
    atomic_store(&over, true);
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(writers[i].thread, NULL);
        for (int k = 0; k < WORDS; k++) {
            lost += writers[i].words[k * (PAGE / 4)] != writers[i].turns;
        }
    }
    return lost;
}

static void no_write_is_lost_on_the_way(void **state)
{
    (void)state;
    struct writer writers[WRITERS];
    struct memory m = make(SIZE);
    uint64_t low = (uint64_t)(uintptr_t)m.own;
    begin_writing(writers, m.own);
    for (int round = 0; round < 8; round++) {
        /* In three parts, as memory is that was moved in pieces before. */
        struct tow_move_part parts[] = {{.low = low, .size = PAGE},
                                        {.low = low + PAGE, .size = SIZE / 2},
                                        {.low = low + PAGE + SIZE / 2, .size = SIZE / 2 - PAGE}};
        assert_int_equal(tow_move_in(parts, 3, m.memfd), 0);
        assert_int_equal(tow_move_out(low, SIZE, m.alias, PROT_READ | PROT_WRITE), 0);
        assert_int_equal(m.alias[SIZE - PAGE], 0);
    }
    assert_int_equal(end_writing(writers), 0);
    drop(&m, SIZE);
}

/* The file cannot take all of it: what has gone comes back. */
static void what_cannot_be_moved_is_as_it_was(void **state)
{
    (void)state;
    enum { LESS = 8 << 20 };
    struct writer writers[WRITERS];
    struct memory m = make(LESS);
    uint64_t low = (uint64_t)(uintptr_t)m.own;
    begin_writing(writers, m.own);
    for (int round = 0; round < 8; round++) {
        struct tow_move_part part = {.low = low, .size = SIZE};
        assert_true(tow_move_in(&part, 1, m.memfd) < 0);
    }
    assert_int_equal(end_writing(writers), 0);
    memset(m.alias, 1, LESS);
    assert_int_not_equal(m.own[100], 1);
    /* A hole in the middle. */
    munmap(m.own + SIZE / 2, PAGE);
    struct tow_move_part parts[] = {{.low = low, .size = SIZE / 2}, {low + SIZE / 2, PAGE}};
    assert_true(tow_move_in(parts, 2, m.memfd) < 0);
    m.own[7] = 7;
    assert_int_equal(m.own[7], 7);
    drop(&m, LESS);
}

static void protection_stays(void **state)
{
    (void)state;
    struct memory m = make(SIZE);
    uint64_t low = (uint64_t)(uintptr_t)m.own;
    struct tow_move_part part = {.low = low, .size = SIZE};
    m.own[3] = 3;
    assert_int_equal(tow_move_in(&part, 1, m.memfd), 0);
    assert_int_equal(tow_move_out(low, PAGE, m.alias, PROT_READ), 0);
    assert_int_equal(m.own[3], 3);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(ends[0], m.own, 1), -1); /* cannot be written */
    close(ends[0]);
    close(ends[1]);
    drop(&m, SIZE);
}

/* Beyond a limit of the program's the system would end it. */
static void limits_are_kept(void **state)
{
    (void)state;
    struct rlimit before, little;
    int memfd = -1;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = (struct rlimit){PAGE, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    assert_int_equal(tow_share_make_memory(SIZE, &memfd), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(tow_share_make_memory(SIZE, &memfd), 0);
    close(memfd);
}

/* ---- mappings ---- */

static void lines_are_parsed(void **state)
{
    (void)state;
    struct tow_vma vma;
    assert_true(tow_vma_parse("7f00a000-7f00c000 rw-s 00003000 00:1a 77    /dev/shm/a b", &vma));
    assert_int_equal(vma.low, 0x7f00a000);
    assert_int_equal(vma.high, 0x7f00c000);
    assert_string_equal(vma.access, "rw-s");
    assert_int_equal(vma.offset, 0x3000);
    assert_int_equal(vma.device, makedev(0, 0x1a));
    assert_int_equal(vma.inode, 77);
    assert_string_equal(vma.path, "/dev/shm/a b");
    assert_true(tow_vma_parse("1000-2000 rw-p 00000000 00:00 0 ", &vma));
    assert_int_equal(vma.inode, 0);
    assert_string_equal(vma.path, "");
    assert_false(tow_vma_parse("", &vma));
    assert_false(tow_vma_parse("2000-1000 rw-p 00000000 00:00 0", &vma));
    assert_false(tow_vma_parse("1000-2000 rw-p 00000000", &vma));
}

struct sought {
    uint64_t low;
    int fd; /* its file, opened */
};

static bool seek(const struct tow_vma *vma, void *user)
{
    struct sought *sought = user;
    if (vma->low == sought->low) {
        sought->fd = tow_vma_open(vma);
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
    assert_int_equal(tow_vma_visit(seek, &sought), 0);
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

int main(void)
{
    const struct CMUnitTest mappings[] = {
        cmocka_unit_test(lines_are_parsed),
        cmocka_unit_test(files_are_opened_again),
        cmocka_unit_test(limits_are_kept),
    };
    const struct CMUnitTest moves[] = {
        cmocka_unit_test(no_write_is_lost_on_the_way),
        cmocka_unit_test(what_cannot_be_moved_is_as_it_was),
        cmocka_unit_test(protection_stays),
    };
    tow_gang_set_size(3);
    int failed = cmocka_run_group_tests(mappings, NULL, NULL);
    if (failed == 0 && !tow_move_ready()) {
        puts("userfaultfd is not permitted here");
        return 77;
    }
    return failed != 0 ? failed : cmocka_run_group_tests(moves, NULL, NULL);
}
