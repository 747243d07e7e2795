/* SPDX-License-Identifier: Apache-2.0 */
/* The code cache: what is put in comes out, what is damaged does not, and the limit holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/code/codecache.h"

static char folder[64];

static int setup(void **state)
{
    strcpy(folder, "/tmp/test_codecache_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    return rmdir(folder);
}

static void path_of(const uint8_t *hash, char ret_path[256])
{
    char name[2 * TOW_SHA256_SIZE + 1];
    tow_sha256_hex(hash, name);
    snprintf(ret_path, 256, "%s/%s", folder, name);
}

/* An image of `size` bytes that differs by `seed`. */
static uint8_t *make(size_t size, uint8_t seed, uint8_t hash[TOW_SHA256_SIZE])
{
    uint8_t *bytes = malloc(size);
    memset(bytes, seed, size);
    tow_sha256_of(bytes, size, hash);
    return bytes;
}

static struct tows_codecache *open_cache(uint64_t max)
{
    struct tows_codecache *cache = NULL;
    assert_int_equal(tows_codecache_open(folder, max, 0, &cache), 0);
    return cache;
}

static void image_comes_back(void **state)
{
    struct tows_codecache *cache = open_cache(0);
    uint8_t hash[TOW_SHA256_SIZE];
    uint8_t *bytes = make(100000, 3, hash), *back = NULL;
    assert_int_equal(tows_codecache_get(cache, hash, 100000, &back), -ENOENT);
    assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, 100000), 0);
    tows_codecache_close(cache);
    cache = open_cache(0);
    assert_int_equal(tows_codecache_get(cache, hash, 100000, &back), 0);
    assert_memory_equal(bytes, back, 100000);
    free(back);
    free(bytes);
    tows_codecache_close(cache);
}

static void damaged_file_is_removed(void **state)
{
    struct tows_codecache *cache = open_cache(0);
    uint8_t hash[TOW_SHA256_SIZE];
    char path[256];
    uint8_t *bytes = make(5000, 4, hash), *back = NULL;
    assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, 5000), 0);
    path_of(hash, path);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "!", 1, 2500), 1);
    close(fd);
    assert_int_equal(tows_codecache_get(cache, hash, 5000, &back), -ENOENT);
    assert_int_equal(access(path, F_OK), -1);
    /* So is one that is shorter than it should be. */
    assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, 5000), 0);
    assert_int_equal(truncate(path, 4999), 0);
    assert_int_equal(tows_codecache_get(cache, hash, 5000, &back), -ENOENT);
    assert_int_equal(access(path, F_OK), -1);
    free(bytes);
    tows_codecache_close(cache);
}

static void set_age(const uint8_t *hash, time_t seconds)
{
    char path[256];
    path_of(hash, path);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct timespec times[2] = {{now.tv_sec - seconds, 0}, {now.tv_sec - seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void least_recently_used_goes_first(void **state)
{
    enum { SIZE = 4096 }; /* a block: less counts as one */
    struct tows_codecache *cache = open_cache(4 * SIZE);
    uint8_t hashes[5][TOW_SHA256_SIZE], *bytes[5], *back = NULL;
    for (unsigned i = 0; i < 4; i++) {
        bytes[i] = make(SIZE, (uint8_t)(10 + i), hashes[i]);
        assert_int_equal(tows_codecache_put(cache, hashes[i], NULL, bytes[i], SIZE), 0);
        set_age(hashes[i], 100 - (time_t)i);
    }
    /* The oldest is used again, so the second oldest has to go. */
    assert_int_equal(tows_codecache_get(cache, hashes[0], SIZE, &back), 0);
    free(back);
    bytes[4] = make(SIZE, 20, hashes[4]);
    assert_int_equal(tows_codecache_put(cache, hashes[4], NULL, bytes[4], SIZE), 0);
    assert_int_equal(tows_codecache_get(cache, hashes[1], SIZE, &back), -ENOENT);
    assert_int_equal(tows_codecache_get(cache, hashes[0], SIZE, &back), 0);
    free(back);
    assert_int_equal(tows_codecache_get(cache, hashes[4], SIZE, &back), 0);
    free(back);
    for (unsigned i = 0; i < 5; i++) {
        free(bytes[i]);
    }
    tows_codecache_close(cache);
}

/* What the files take, in whole blocks; and how many are no images. */
static uint64_t count_used(unsigned *ret_strange)
{
    uint64_t used = 0;
    DIR *dir = opendir(folder);
    *ret_strange = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        struct stat st;
        assert_int_equal(fstatat(dirfd(dir), e->d_name, &st, 0), 0);
        if (S_ISREG(st.st_mode)) {
            used += ((uint64_t)st.st_size + 4095) / 4096 * 4096;
            *ret_strange += strlen(e->d_name) != 2 * TOW_SHA256_SIZE;
        }
    }
    closedir(dir);
    return used;
}

static void limit_holds(void **state)
{
    enum { SIZE = 4096, COUNT = 40, MAX = 10 * SIZE };
    struct tows_codecache *cache = open_cache(MAX);
    for (unsigned i = 0; i < COUNT; i++) {
        uint8_t hash[TOW_SHA256_SIZE];
        uint8_t *bytes = make(SIZE, (uint8_t)i, hash);
        assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, SIZE), 0);
        free(bytes);
    }
    unsigned strange = 0;
    uint64_t used = count_used(&strange);
    assert_true(used <= MAX);
    assert_true(used >= MAX / 2);
    uint8_t hash[TOW_SHA256_SIZE];
    uint8_t *bytes = make(MAX + 1, 1, hash);
    assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, MAX + 1), -E2BIG);
    free(bytes);
    tows_codecache_close(cache);
}

static void small_images_count_as_blocks(void **state)
{
    enum { MAX = 100 * 4096 };
    struct tows_codecache *cache = open_cache(MAX);
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t hash[TOW_SHA256_SIZE];
        tow_sha256_of(&i, sizeof i, hash);
        assert_int_equal(tows_codecache_put(cache, hash, NULL, &i, sizeof i), 0);
    }
    unsigned strange = 0;
    assert_in_range(count_used(&strange), MAX / 2, MAX);
    tows_codecache_close(cache);
}

static void limit_holds_for_several_writers(void **state)
{
    enum { SIZE = 4096, MAX = 128 * SIZE, WRITERS = 8 };
    struct tows_codecache *caches[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++) {
        caches[i] = open_cache(MAX);
    }
    for (unsigned i = 0; i < 800; i++) {
        uint8_t hash[TOW_SHA256_SIZE], bytes[SIZE];
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, &i, sizeof i);
        tow_sha256_of(bytes, SIZE, hash);
        assert_int_equal(tows_codecache_put(caches[i % WRITERS], hash, NULL, bytes, SIZE), 0);
    }
    unsigned strange = 0;
    assert_in_range(count_used(&strange), MAX / 2, MAX + WRITERS * (MAX / 64));
    for (unsigned i = 0; i < WRITERS; i++) {
        tows_codecache_close(caches[i]);
    }
}

static void facts_are_within_the_limit(void **state)
{
    enum { MAX = 100 * 4096 };
    struct tows_codecache *cache = open_cache(MAX);
    char fact[2000];
    memset(fact, 'f', sizeof fact);
    for (unsigned i = 0; i < 1000; i++) {
        uint8_t hash[TOW_SHA256_SIZE];
        tow_sha256_of(&i, sizeof i, hash);
        assert_int_equal(tows_codecache_add_facts(cache, hash, NULL, 1, fact, sizeof fact), 0);
    }
    unsigned strange = 0;
    assert_in_range(count_used(&strange), 1, MAX + MAX / 64);
    tows_codecache_close(cache);
}

static void a_writer_that_is_killed_leaves_nothing(void **state)
{
    enum { SIZE = 16 << 20 };
    uint8_t hash[TOW_SHA256_SIZE];
    uint8_t *bytes = make(SIZE, 1, hash);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct tows_codecache *cache = open_cache(0);
            for (uint32_t i = 0;; i++) {
                memcpy(hash, &i, sizeof i);
                tows_codecache_put(cache, hash, NULL, bytes, SIZE);
                char path[256];
                path_of(hash, path);
                unlink(path);
            }
        }
        usleep(20000);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    free(bytes);
    unsigned strange = 0;
    count_used(&strange);
    assert_int_equal(strange, 0);
}

/* As on a disk that is full: files end early. */
static void what_could_not_be_written_is_an_error(void **state)
{
    enum { SIZE = 256 << 10 };
    struct tows_codecache *cache = open_cache(0);
    uint8_t hash[TOW_SHA256_SIZE], *back = NULL;
    uint8_t *bytes = make(SIZE, 5, hash);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit less = {.rlim_cur = SIZE / 2, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    int error = tows_codecache_put(cache, hash, NULL, bytes, SIZE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(error, -EFBIG);
    assert_int_equal(tows_codecache_get(cache, hash, SIZE, &back), -ENOENT);
    assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, SIZE), 0);
    assert_int_equal(tows_codecache_get(cache, hash, SIZE, &back), 0);
    assert_memory_equal(bytes, back, SIZE);
    free(back);
    free(bytes);
    tows_codecache_close(cache);
}

/* ---- tenants ---- */

enum { BLOCK = 4096, IMAGE = 2 * BLOCK, PEER_MAX = 40 * BLOCK, ALL_MAX = 100 * BLOCK };

static struct tows_codecache *open_for_tenants(void)
{
    struct tows_codecache *cache = NULL;
    assert_int_equal(tows_codecache_open(folder, ALL_MAX, PEER_MAX, &cache), 0);
    return cache;
}

/* The image of that number is sent by a tenant. */
static void send_image(struct tows_codecache *cache, const char *tenant, unsigned number,
                       uint8_t hash[TOW_SHA256_SIZE])
{
    uint8_t bytes[IMAGE] = {0};
    memcpy(bytes, &number, sizeof number);
    tow_sha256_of(bytes, IMAGE, hash);
    assert_int_equal(tows_codecache_put(cache, hash, tenant, bytes, IMAGE), 0);
}

static bool has(struct tows_codecache *cache, const uint8_t hash[TOW_SHA256_SIZE],
                const char *tenant)
{
    uint8_t *back = NULL;
    bool found = tows_codecache_was_sent(cache, hash, tenant) >= 0 &&
                 tows_codecache_get(cache, hash, IMAGE, &back) >= 0;
    free(back);
    return found;
}

/* All that is there was used long ago. */
static void make_old(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
        utimensat(dirfd(dir), e->d_name, times, 0);
    }
    closedir(dir);
}

static void a_tenant_who_sends_much_loses_his_own(void **state)
{
    enum { MINE = 10, MANY = 200 };
    uint8_t mine[MINE][TOW_SHA256_SIZE], hash[TOW_SHA256_SIZE];
    unsigned strange;
    struct tows_codecache *cache = open_for_tenants();
    for (unsigned i = 0; i < MINE; i++) {
        send_image(cache, "ann", i, mine[i]);
    }
    make_old();
    for (unsigned i = 0; i < MANY; i++) {
        send_image(cache, "bob", 1000 + i, hash);
        assert_true(tows_codecache_used_by(cache, "bob") <= PEER_MAX);
    }
    for (unsigned i = 0; i < MINE; i++) {
        assert_true(has(cache, mine[i], "ann"));
        assert_false(has(cache, mine[i], "bob"));
    }
    assert_true(has(cache, hash, "bob")); /* the last one */
    assert_int_equal(tows_codecache_used_by(cache, "ann"), MINE * (IMAGE + BLOCK));
    assert_true(tows_codecache_used_by(cache, "bob") >= PEER_MAX / 2);
    assert_true(count_used(&strange) <= PEER_MAX + MINE * (IMAGE + BLOCK));
    tows_codecache_close(cache);
}

static void an_image_goes_with_the_last_who_sent_it(void **state)
{
    uint8_t shared[TOW_SHA256_SIZE], hash[TOW_SHA256_SIZE], *back = NULL;
    struct tows_codecache *cache = open_for_tenants();
    send_image(cache, "ann", 1, shared);
    send_image(cache, "bob", 1, shared);
    make_old();
    for (unsigned i = 0; i < 20; i++) {
        send_image(cache, "bob", 1000 + i, hash);
    }
    assert_false(has(cache, shared, "bob"));
    assert_true(has(cache, shared, "ann"));
    make_old();
    for (unsigned i = 0; i < 20; i++) {
        send_image(cache, "ann", 2000 + i, hash);
    }
    assert_false(has(cache, shared, "ann"));
    assert_int_equal(tows_codecache_get(cache, shared, IMAGE, &back), -ENOENT);
    tows_codecache_close(cache);
}

static void facts_count_for_their_tenant(void **state)
{
    uint8_t hash[TOW_SHA256_SIZE];
    struct tow_buf facts;
    struct tows_codecache *cache = open_for_tenants();
    send_image(cache, "ann", 1, hash);
    uint64_t before = tows_codecache_used_by(cache, "ann");
    for (uint64_t key = 1; key <= 200; key++) {
        assert_int_equal(tows_codecache_add_facts(cache, hash, "bob", key, "fact", 4), 0);
        assert_true(tows_codecache_used_by(cache, "bob") <= PEER_MAX);
    }
    assert_int_equal(tows_codecache_used_by(cache, "ann"), before);
    assert_true(has(cache, hash, "ann"));
    tow_buf_init(&facts, 4096);
    assert_int_equal(tows_codecache_get_facts(cache, hash, "ann", 200, &facts), -ENOENT);
    assert_int_equal(tows_codecache_get_facts(cache, hash, NULL, 200, &facts), -ENOENT);
    assert_int_equal(tows_codecache_get_facts(cache, hash, "bob", 200, &facts), 0);
    tow_buf_fini(&facts);
    tows_codecache_close(cache);
}

static void what_is_more_than_a_tenants_part_is_not_kept(void **state)
{
    uint8_t hash[TOW_SHA256_SIZE];
    uint8_t *bytes = make(PEER_MAX + 1, 7, hash);
    struct tows_codecache *cache = open_for_tenants();
    assert_int_equal(tows_codecache_put(cache, hash, "ann", bytes, PEER_MAX + 1), -E2BIG);
    assert_int_equal(tows_codecache_put(cache, hash, NULL, bytes, PEER_MAX + 1), 0);
    free(bytes);
    tows_codecache_close(cache);
}

/* By a server that has not looked yet, at what another one has left. */
static void what_was_left_is_charged(void **state)
{
    uint8_t hash[TOW_SHA256_SIZE];
    struct tows_codecache *cache = open_for_tenants();
    for (unsigned i = 0; i < 5; i++) {
        send_image(cache, "ann", i, hash);
    }
    tows_codecache_close(cache);
    cache = open_for_tenants();
    assert_int_equal(tows_codecache_used_by(cache, "ann"), 0);
    send_image(cache, "bob", 100, hash);
    assert_int_equal(tows_codecache_used_by(cache, "ann"), 5 * (IMAGE + BLOCK));
    tows_codecache_count(cache, "ann", IMAGE);
    assert_int_equal(tows_codecache_used_by(cache, "ann"), 5 * (IMAGE + BLOCK) + IMAGE);
    tows_codecache_close(cache);
    cache = open_for_tenants();
    tows_codecache_count(cache, "ann", IMAGE);
    assert_int_equal(tows_codecache_used_by(cache, "ann"), 5 * (IMAGE + BLOCK) + IMAGE);
    tows_codecache_close(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(image_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_file_is_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(least_recently_used_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(limit_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(small_images_count_as_blocks, setup, teardown),
        cmocka_unit_test_setup_teardown(limit_holds_for_several_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_are_within_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(a_writer_that_is_killed_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(what_could_not_be_written_is_an_error, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_who_sends_much_loses_his_own, setup, teardown),
        cmocka_unit_test_setup_teardown(an_image_goes_with_the_last_who_sent_it, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_count_for_their_tenant, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_more_than_a_tenants_part_is_not_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_was_left_is_charged, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
