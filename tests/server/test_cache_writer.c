/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of code, as the listener writes it for workers that may lie. */
#include "cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/code/codecache.h"
#include "server/pool/cache_writer.h"
#include "server/worker/worker_msg.h"
#include "transport/transport.h"

enum { SIZE = 100000, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

static struct tows_config config;
static struct tows_cache_writer writer;
static char base[] = "/tmp/towline-cache-XXXXXX", folder[64];
static uint8_t image[SIZE], hash[TOW_SHA256_SIZE];

static int setup(void **state)
{
    (void)state;
    strcpy(base + sizeof base - 7, "XXXXXX");
    assert_non_null(mkdtemp(base));
    snprintf(folder, sizeof folder, "%s/code", base);
    memset(&config, 0, sizeof config);
    snprintf(config.cache_dir, sizeof config.cache_dir, "%s", base);
    config.code_cache = 10 * SIZE;
    memset(image, 7, sizeof image);
    tow_sha256_of(image, sizeof image, hash);
    tows_cache_writer_init(&writer, &config);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    tows_cache_writer_fini(&writer);
    snprintf(command, sizeof command, "rm -r %s", base);
    return system(command);
}

static int made(int seals)
{
    int fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, image, sizeof image), sizeof image);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* What becomes of an image under this name; 1: it is on its way, and *ret_answer gets the rest. */
static int begin(uint64_t session, int seals, const uint8_t name[TOW_SHA256_SIZE], int *ret_answer)
{
    int pair[2], fd = made(seals);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    int error = tows_cache_writer_store(&writer, session, "ann", name, fd, pair[1]);
    close(fd);
    close(pair[1]);
    *ret_answer = pair[0];
    if (error < 0) {
        close(pair[0]);
    }
    return error == 0 ? 1 : error;
}

static int answered(int fd)
{
    struct tows_worker_msg_answer answer;
    int none, count;
    assert_int_equal(tow_fds_recv(fd, &answer, sizeof answer, tow_time_deadline(20 * TOW_TIME_S),
                                  &none, 1, &count),
                     0);
    close(fd);
    return answer.error;
}

static void reap_all(void)
{
    for (pid_t pid; (pid = waitpid(-1, NULL, 0)) > 0;) {
        tows_cache_writer_reaped(&writer, pid);
    }
}

static int is_there(const uint8_t name[TOW_SHA256_SIZE])
{
    struct tows_codecache *cache;
    uint8_t *bytes = NULL;
    assert_int_equal(tows_codecache_open(folder, config.code_cache, 0, &cache), 0);
    int error = tows_codecache_get(cache, name, SIZE, &bytes);
    free(bytes);
    tows_codecache_close(cache);
    return error;
}

static void an_image_is_kept_under_its_own_hash_only(void **state)
{
    uint8_t another[TOW_SHA256_SIZE];
    int answer;
    (void)state;
    memcpy(another, hash, sizeof another);
    another[0] ^= 1;
    assert_int_equal(begin(1, SEALS, another, &answer), 1);
    assert_int_equal(answered(answer), -EBADMSG);
    assert_int_equal(is_there(another), -ENOENT);
    assert_int_equal(begin(1, SEALS, hash, &answer), 1);
    assert_int_equal(answered(answer), 0);
    assert_int_equal(is_there(hash), 0);
    reap_all();
}

/* The same descriptor, above the numbers that a test is about. */
static int raised(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    assert_true(high >= 0);
    close(fd);
    return high;
}

/* One image, by these two numbers, while somebody else has the folder: a connection that closes
 * here closes, though who writes is still there. */
static void check_descriptors(int image_at, int answer_at)
{
    int pair[2], other[2];
    int fd = raised(made(SEALS)), lock = raised(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pair[0] = raised(pair[0]);
    pair[1] = raised(pair[1]);
    assert_int_equal(pipe2(other, O_CLOEXEC), 0);
    other[0] = raised(other[0]);
    other[1] = raised(other[1]);
    assert_int_equal(dup2(fd, image_at), image_at);
    assert_int_equal(dup2(pair[1], answer_at), answer_at);
    assert_int_equal(tows_cache_writer_store(&writer, 1, "ann", hash, image_at, answer_at), 0);
    const int given[] = {fd, pair[1], image_at, answer_at, other[1]};
    for (unsigned i = 0; i < sizeof given / sizeof *given; i++) {
        close(given[i]);
    }
    struct pollfd seen = {.fd = other[0], .events = POLLIN};
    assert_int_equal(poll(&seen, 1, 20000), 1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);
    close(other[0]);
    close(lock);
    assert_int_equal(answered(pair[0]), 0);
    reap_all();
}

static void who_writes_keeps_no_other_connection_open(void **state)
{
    int kept[2];
    (void)state;
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < 2; i++) {
        kept[i] = fcntl(3 + i, F_DUPFD_CLOEXEC, 100); /* whose they may be here */
    }
    check_descriptors(3, 4);
    check_descriptors(4, 3);
    check_descriptors(50, 60);
    check_descriptors(60, 50);
    for (int i = 0; i < 2; i++) {
        if (kept[i] >= 0) {
            dup2(kept[i], 3 + i);
            close(kept[i]);
        }
    }
}

static void a_small_image_is_the_same_without_a_process(void **state)
{
    int pair[2], fd = memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    (void)state;
    assert_int_equal(write(fd, image, 1000), 1000);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALS), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(tows_cache_writer_store(&writer, 1, "ann", hash, fd, pair[1]), 0);
    tow_sha256_of(image, 1000, hash);
    assert_int_equal(tows_cache_writer_store(&writer, 1, "ann", hash, fd, pair[1]), 0);
    close(fd);
    assert_int_equal(answered(dup(pair[0])), -EBADMSG);
    assert_int_equal(answered(pair[0]), 0);
    close(pair[1]);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void an_image_that_can_change_is_not_looked_at(void **state)
{
    int answer;
    (void)state;
    assert_int_equal(begin(1, 0, hash, &answer), -EINVAL);
    assert_int_equal(begin(1, F_SEAL_GROW | F_SEAL_WRITE, hash, &answer), -EINVAL);
    assert_int_equal(begin(1, F_SEAL_GROW | F_SEAL_SHRINK, hash, &answer), -EINVAL);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(tows_cache_writer_store(&writer, 1, "ann", hash, pipes[0], pipes[1]), -EINVAL);
    close(pipes[0]);
    close(pipes[1]);
}

static void one_session_does_not_take_all_places(void **state)
{
    int answers[TOW_STORES_SESSION_MAX + 1], answer;
    (void)state;
    for (int i = 0; i < TOW_STORES_SESSION_MAX; i++) {
        assert_int_equal(begin(1, SEALS, hash, &answers[i]), 1);
    }
    assert_int_equal(begin(1, SEALS, hash, &answer), -EBUSY);
    assert_int_equal(begin(2, SEALS, hash, &answers[TOW_STORES_SESSION_MAX]), 1);
    for (int i = 0; i <= TOW_STORES_SESSION_MAX; i++) {
        assert_int_equal(answered(answers[i]), 0);
    }
    reap_all();
    assert_int_equal(begin(1, SEALS, hash, &answer), 1);
    assert_int_equal(answered(answer), 0);
    reap_all();
}

static uint64_t used(void)
{
    char command[128], text[32] = "";
    snprintf(command, sizeof command, "du -sB1 --apparent-size %s | cut -f1", folder);
    FILE *told = popen(command, "r");
    assert_non_null(fgets(text, sizeof text, told));
    pclose(told);
    return strtoull(text, NULL, 10);
}

static void all_together_keep_the_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int answer;
        image[0] = (uint8_t)i;
        tow_sha256_of(image, sizeof image, hash);
        assert_int_equal(begin((uint64_t)i, SEALS, hash, &answer), 1);
        assert_int_equal(answered(answer), 0);
        reap_all();
    }
    assert_int_equal(is_there(hash), 0);
    assert_true(used() <= config.code_cache + 8192); /* the folder itself */
}

static void facts_are_a_tenants_own(void **state)
{
    struct tows_codecache *cache;
    struct tow_buf facts;
    (void)state;
    tows_cache_writer_facts(&writer, "user 1000", hash, 5, "fact", 4);
    assert_int_equal(tows_codecache_open(folder, config.code_cache, 0, &cache), 0);
    tow_buf_init(&facts, 4096);
    assert_int_equal(tows_codecache_get_facts(cache, hash, "user 1001", 5, &facts), -ENOENT);
    assert_int_equal(tows_codecache_get_facts(cache, hash, NULL, 5, &facts), -ENOENT);
    assert_int_equal(tows_codecache_get_facts(cache, hash, "user 1000", 5, &facts), 0);
    assert_int_equal(facts.size, 4);
    tow_buf_fini(&facts);
    tows_codecache_close(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_image_is_kept_under_its_own_hash_only, setup, teardown),
        cmocka_unit_test_setup_teardown(who_writes_keeps_no_other_connection_open, setup, teardown),
        cmocka_unit_test_setup_teardown(a_small_image_is_the_same_without_a_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_image_that_can_change_is_not_looked_at, setup, teardown),
        cmocka_unit_test_setup_teardown(one_session_does_not_take_all_places, setup, teardown),
        cmocka_unit_test_setup_teardown(all_together_keep_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_are_a_tenants_own, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
