/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener makes of a worker's word about descriptors, also of one that its client has
 * taken over: it answers or does not, never waits, and keeps nothing that nobody can ask for. */
#include "cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/pool/worker_pool.h"
#include "server/worker/worker_msg.h"
#include "transport/transport.h"

static struct tows_worker_pool pool;
static struct tows_worker worker, other;
static int theirs, others; /* the workers' ends */
static int before;         /* descriptors */

static int count_open(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void begin(struct tows_worker *made, int *ret_theirs)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    memset(made, 0, sizeof *made);
    made->control = pair[0];
    made->state = TOW_WORKER_BUSY;
    *ret_theirs = pair[1];
}

static int setup(void **state)
{
    static const struct tows_config config;
    (void)state;
    tows_worker_pool_init(&pool, &config);
    begin(&worker, &theirs);
    begin(&other, &others);
    before = count_open();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tows_export_registry_end(&pool.exports, &worker, &worker.exports);
    tows_export_registry_end(&pool.exports, &other, &other.exports);
    assert_int_equal(count_open(), before - (worker.control < 0));
    close(worker.control);
    close(other.control);
    close(theirs);
    close(others);
    return 0;
}

/* Says it, and gives back our end of the socket for the answer. */
static int say(int sock, struct tows_worker *from, const struct tows_worker_msg *msg, int fd)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    int fds[2] = {pair[1], fd};
    assert_int_equal(tow_fds_send(sock, msg, sizeof *msg, fds, fd >= 0 ? 2 : 1), 0);
    close(pair[1]);
    assert_int_equal(tows_worker_pool_hear(&pool, from), 0);
    return pair[0];
}

static int ask(int sock, struct tows_worker *from, const struct tows_worker_msg *msg, int fd,
               struct tows_worker_msg_answer *ret_answer)
{
    int got = -1, count;
    int answers = say(sock, from, msg, fd);
    memset(ret_answer, 0, sizeof *ret_answer);
    assert_int_equal(tow_fds_recv(answers, ret_answer, sizeof *ret_answer,
                                  tow_time_deadline(TOW_TIME_S), &got, 1, &count),
                     0);
    close(answers);
    return got;
}

static void a_descriptor_goes_from_worker_to_worker(void **state)
{
    struct tows_worker_msg keep = {.what = TOW_WORKER_MSG_KEEP};
    struct tows_worker_msg get = {.what = TOW_WORKER_MSG_GET};
    struct tows_worker_msg forget = {.what = TOW_WORKER_MSG_FORGET};
    struct tows_worker_msg_answer answer;
    int file[2];
    (void)state;
    assert_int_equal(pipe(file), 0);
    assert_int_equal(ask(theirs, &worker, &keep, file[1], &answer), -1);
    assert_int_equal(answer.error, 0);
    close(file[1]);
    get.token = forget.token = answer.token;
    int got = ask(others, &other, &get, -1, &answer);
    assert_true(got >= 0 && answer.error == 0);
    char byte = 0;
    assert_int_equal(write(got, "x", 1), 1);
    assert_int_equal(read(file[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(got);
    ask(others, &other, &forget, -1, &answer); /* which is not its own */
    got = ask(others, &other, &get, -1, &answer);
    assert_true(got >= 0);
    close(got);
    ask(theirs, &worker, &forget, -1, &answer);
    assert_int_equal(read(file[0], &byte, 1), 0); /* the last one is closed */
    assert_int_equal(ask(others, &other, &get, -1, &answer), -1);
    assert_int_equal(answer.error, -ENOENT);
    close(file[0]);
}

static void half_questions_are_answered_or_not(void **state)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_KEEP};
    struct tows_worker_msg_answer answer;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)state;
    ask(theirs, &worker, &msg, -1, &answer); /* nothing to keep */
    assert_int_equal(answer.error, -EINVAL);
    assert_int_equal(send(theirs, &msg, sizeof msg, 0), sizeof msg); /* nowhere to answer */
    assert_int_equal(tows_worker_pool_hear(&pool, &worker), 0);
    int fds[3] = {null, null, null}; /* no socket, and one too many */
    assert_int_equal(tow_fds_send(theirs, &msg, sizeof msg, fds, 3), 0);
    assert_int_equal(tows_worker_pool_hear(&pool, &worker), 0);
    msg.what = TOW_WORKER_MSG_READY; /* what has none with it */
    assert_int_equal(tow_fds_send(theirs, &msg, sizeof msg, fds, 2), 0);
    assert_int_equal(tows_worker_pool_hear(&pool, &worker), 0);
    worker.state = TOW_WORKER_IDLE; /* no session, no exports */
    msg.what = TOW_WORKER_MSG_KEEP;
    close(say(theirs, &worker, &msg, null));
    assert_int_equal(worker.exports, 1);                       /* that of three descriptors */
    assert_int_equal(tow_fds_send(theirs, "x", 1, fds, 2), 0); /* no message at all */
    assert_int_equal(tows_worker_pool_hear(&pool, &worker), 0);
    assert_int_equal(worker.control, -1);
    close(null);
}

static void a_socket_that_is_full_gets_no_answer(void **state)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_KEEP};
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    while (send(pair[1], &msg, sizeof msg, MSG_DONTWAIT) > 0) {
    }
    while (send(pair[1], &msg, 1, MSG_DONTWAIT) > 0) {
    }
    int fds[2] = {pair[1], pair[0]};
    assert_int_equal(tow_fds_send(theirs, &msg, sizeof msg, fds, 2), 0);
    int64_t start = tow_time_now_ns();
    assert_int_equal(tows_worker_pool_hear(&pool, &worker), 0);
    assert_true(tow_time_now_ns() - start < 20 * TOW_TIME_S);
    close(pair[0]);
    close(pair[1]);
}

/* One that says so of itself would not pay for its memory. */
static void who_was_not_suspended_is_not_believed(void **state)
{
    static const enum tows_suspension wanted[2][4] = {
        {TOW_SUSPENSION_NONE, TOW_SUSPENSION_NONE, TOW_SUSPENSION_NONE, TOW_SUSPENSION_NONE},
        {TOW_SUSPENSION_NONE, TOW_SUSPENSION_BEGINS, TOW_SUSPENSION_AWAY, TOW_SUSPENSION_ENDS}};
    (void)state;
    for (unsigned told = 0; told < 2; told++) {
        for (uint32_t phase = 0; phase < 6; phase++) {
            struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_HERE, .line = phase};
            int fds[2] = {memfd_create("stats", MFD_CLOEXEC | MFD_ALLOW_SEALING), -1};
            struct tows_worker taken = {.state = TOW_WORKER_BUSY, .control = -1, .client = -1};
            taken.join_ns = TOW_TIME_FOREVER;
            taken.suspend.wanted = told != 0;
            taken.stats = mmap(NULL, sizeof *taken.stats, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            assert_true(taken.stats != MAP_FAILED);
            assert_int_equal(ftruncate(fds[0], sizeof *taken.stats), 0);
            assert_int_equal(fcntl(fds[0], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                             0);
            tows_meeting_hear(&pool, &taken, &msg, fds);
            assert_int_equal(taken.join_ns, 0); /* it is here, whatever it says */
            assert_int_equal(taken.suspend.phase,
                             phase < 4 ? wanted[told][phase] : TOW_SUSPENSION_NONE);
            munmap(taken.stats, sizeof *taken.stats);
            close(fds[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_descriptor_goes_from_worker_to_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(who_was_not_suspended_is_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(half_questions_are_answered_or_not, setup, teardown),
        cmocka_unit_test_setup_teardown(a_socket_that_is_full_gets_no_answer, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
