/* SPDX-License-Identifier: Apache-2.0 */
/* Lasting lines: connections that are cut anywhere, and streams that go on at the same byte.
 *
 * The two ends are connected through a thread that passes their bytes on, and cuts where it is
 * told to. Run with "tcp" or "tls". */
#include "lines.h"

#include "base/clock.h"
#include "base/thread.h"
#include "transport/keep_impl.h"
#include "transport/sock.h"
#include "transport/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct tow_grant grant = {"a session's id", "a secret of thirty-two bytes...."};
static bool tls;

#define LIMIT_NS (100 * TOW_TIME_S) /* of a cut, where it is not what is tested */
#define NEVER UINT64_MAX

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CUTS = 100, CUTS_LONG = 300 };
#else
enum { CUTS = 500, CUTS_LONG = 2000 };
#endif

/* ---- the way between the two ends ---- */

struct way {
    int fds[2];                 /* the client's side, the server's side; owned by the thread */
    uint64_t cut_at[2];         /* so many bytes that come from that side still pass */
    _Atomic uint64_t passed[2]; /* of each side */
    bool resets;                /* a cut is a reset, else an end */
    _Atomic bool *cut;          /* another's: cut at once */
    pthread_t thread;
    bool started;
};

static void way_close(struct way *way)
{
    for (int i = 0; i < 2; i++) {
        const struct linger at_once = {1, 0};
        if (way->resets) {
            setsockopt(way->fds[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        }
        close(way->fds[i]);
    }
}

static bool send_whole(int fd, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* One direction of it: false at its end. */
static bool way_pass(struct way *way, int from)
{
    uint8_t bytes[65536];
    uint64_t left = way->cut_at[from] - way->passed[from];
    if (left == 0) {
        return false;
    }
    ssize_t n =
        recv(way->fds[from], bytes, left < sizeof bytes ? left : sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        return true;
    }
    if (n <= 0 || !send_whole(way->fds[1 - from], bytes, (size_t)n)) {
        return false;
    }
    way->passed[from] += (uint64_t)n;
    return way->passed[from] < way->cut_at[from];
}

/* A direction whose receiver takes nothing does not hold up the other one. */
static void *way_run(void *arg)
{
    struct way *way = arg;
    bool goes_on = way->cut_at[0] > 0 && way->cut_at[1] > 0;
    while (goes_on) {
        struct pollfd in[2] = {{way->fds[0], POLLIN, 0}, {way->fds[1], POLLIN, 0}};
        struct pollfd out[2] = {{way->fds[0], POLLOUT, 0}, {way->fds[1], POLLOUT, 0}};
        poll(in, 2, 10);
        if (atomic_exchange(way->cut, false)) {
            break;
        }
        poll(out, 2, 0);
        bool passed = false;
        for (int i = 0; i < 2 && goes_on; i++) {
            if (in[i].revents != 0 && out[1 - i].revents != 0) {
                goes_on = way_pass(way, i);
                passed = true;
            }
        }
        if (!passed && (in[0].revents | in[1].revents) != 0) {
            poll(NULL, 0, 1);
        }
    }
    way_close(way);
    return NULL;
}

/* ---- the two ends ---- */

struct world {
    struct tow_line *client, *server;
    int listener;
    struct way way;
    /* The server's end of a new connection. */
    pthread_t server_thread;
    bool server_started;
    int server_fd;
    _Atomic int refused; /* what redial gives, if not 0 */
    /* Where the next connections are cut, by number; behind these at random while `random`. */
    uint64_t cuts[4][2];
    _Atomic bool random;
    uint64_t seed;
    _Atomic unsigned dials;
    _Atomic bool cut;
    uint64_t shaken[2]; /* bytes that passed before the first connection was a line */
};
static struct world world;

static uint64_t draw(struct world *at)
{
    at->seed ^= at->seed << 13;
    at->seed ^= at->seed >> 7;
    at->seed ^= at->seed << 17;
    return at->seed * 0x2545f4914f6cdd1du >> 16;
}

static int listen_socket(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static int socket_pair(int listener, int ret[2])
{
    struct sockaddr_in to;
    socklen_t size = sizeof to;
    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (getsockname(listener, (struct sockaddr *)&to, &size) != 0 ||
        connect(ret[0], (struct sockaddr *)&to, sizeof to) != 0) {
        return -errno;
    }
    ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return ret[1] < 0 ? -errno : 0;
}

static int bare_line(int fd, bool server, struct tow_line **ret_line)
{
    char why[TOW_WHY_MAX];
    return tls ? tow_tls_line(fd, server, &grant, tow_time_deadline(20 * TOW_TIME_S), why,
                              sizeof why, ret_line)
               : tow_sock_line(fd, true, ret_line);
}

/* A connection with a new way in between; the one before is over. */
static void open_way(struct world *at, int *ret_client, int *ret_server)
{
    int one[2], other[2];
    if (at->way.started) {
        pthread_join(at->way.thread, NULL);
    }
    unsigned number = atomic_fetch_add(&at->dials, 1);
    uint64_t cut[2] = {NEVER, NEVER};
    if (number < 4 && !atomic_load(&at->random)) {
        memcpy(cut, at->cuts[number], sizeof cut);
    } else if (atomic_load(&at->random)) {
        /* In one direction, most within some records, a few within heads. */
        uint64_t most = draw(at) % 4 == 0 ? 100 : draw(at) % 8 == 0 ? 2000000 : 100000;
        cut[draw(at) % 2] = draw(at) % most;
    }
    if (socket_pair(at->listener, one) != 0 || socket_pair(at->listener, other) != 0) {
        abort();
    }
    at->way = (struct way){.fds = {one[1], other[0]},
                           .cut_at = {cut[0], cut[1]},
                           .resets = draw(at) % 2 == 0,
                           .cut = &at->cut,
                           .started = true};
    if (tow_thread_start("way", way_run, &at->way, &at->way.thread) != 0) {
        abort();
    }
    *ret_client = one[0];
    *ret_server = other[1];
}

static void *server_mend(void *arg)
{
    struct world *at = arg;
    struct tow_line *fresh;
    if (bare_line(at->server_fd, true, &fresh) == 0) {
        tow_keep_mend(at->server, fresh, tow_time_deadline(20 * TOW_TIME_S));
    }
    return NULL;
}

static int redial(void *arg, int64_t deadline_ns, struct tow_line **ret_line)
{
    struct world *at = arg;
    int fd, refused = atomic_load(&at->refused);
    if (refused != 0) {
        return refused;
    }
    if (at->server_started) {
        pthread_join(at->server_thread, NULL);
    }
    open_way(at, &fd, &at->server_fd);
    if (tow_thread_start("mend", server_mend, at, &at->server_thread) != 0) {
        abort();
    }
    at->server_started = true;
    return bare_line(fd, false, ret_line);
}

static void *first_server(void *arg)
{
    struct world *at = arg;
    return bare_line(at->server_fd, true, &at->server) == 0 ? at : NULL;
}

static void begin(struct world *at, int64_t limit_ns, uint64_t ack_every)
{
    int fd;
    void *done;
    at->listener = listen_socket();
    at->seed = at->seed != 0 ? at->seed : 88172645463325252u;
    const struct tow_keep_setup client = {
        .redial = redial, .arg = at, .limit_ns = limit_ns, .ack_every = ack_every};
    const struct tow_keep_setup server = {.limit_ns = limit_ns, .ack_every = ack_every};
    open_way(at, &fd, &at->server_fd);
    assert_int_equal(tow_thread_start("server", first_server, at, &at->server_thread), 0);
    assert_int_equal(bare_line(fd, false, &at->client), 0);
    pthread_join(at->server_thread, &done);
    assert_non_null(done);
    at->shaken[0] = atomic_load(&at->way.passed[0]);
    at->shaken[1] = atomic_load(&at->way.passed[1]);
    assert_int_equal(tow_keep_line(at->server, &server, &at->server), 0);
    assert_int_equal(tow_keep_line(at->client, &client, &at->client), 0);
}

static void end(struct world *at)
{
    tow_line_close(at->client); /* and nobody redials any more */
    if (at->server_started) {
        pthread_join(at->server_thread, NULL);
    }
    tow_line_close(at->server);
    pthread_join(at->way.thread, NULL);
    close(at->listener);
}

static int setup(void **state)
{
    memset(&world, 0, sizeof world);
    memset(world.cuts, 0xff, sizeof world.cuts);
    return 0;
}

/* The connection that there is breaks, or the next one. */
static void cut_now(struct world *at)
{
    atomic_store(&at->cut, true);
}

/* ---- everything at once, cut at random ---- */

struct side {
    struct tow_line *line;
    uint64_t out, in; /* seeds */
    _Atomic uint64_t frames;
};

struct head {
    uint32_t size, kind; /* of what follows; 0: small, 1: payload, 2: the last frame */
    uint64_t number;
};

static _Atomic bool enough, wrong;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0xff51afd7ed558ccdu;
    return x ^ x >> 29;
}

static void paint(uint8_t *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = seed + i * 0x9e3779b97f4a7c15u;
        memcpy(bytes + i, &word, 8);
    }
}

static bool painted(const uint8_t *bytes, size_t n, uint64_t seed)
{
    uint64_t differs = 0;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, bytes + i, 8);
        differs |= word ^ (seed + i * 0x9e3779b97f4a7c15u);
    }
    return differs == 0;
}

#define PAYLOAD_MAX (3u << 20)

static struct head frame_of(uint64_t seed, uint64_t number, bool last)
{
    uint64_t x = mix(seed + number * 0x9e3779b97f4a7c15u);
    struct head head = {.number = number, .kind = last ? 2 : x % 16 == 0};
    if (last) {
        return head;
    }
    uint64_t most = head.kind == 0 ? 300 : x % 64 == 0 ? PAYLOAD_MAX : 100000;
    head.size = (uint32_t)((x >> 20) % most / 8 * 8);
    return head;
}

/* Memory that is lent in turn, payload behind payload, and taken back together or one by one. */
enum { LENDS = 4 };
struct lender {
    struct head heads[LENDS];
    uint64_t places[LENDS];
    uint8_t *bytes; /* LENDS * PAYLOAD_MAX of them */
    unsigned first, next;
};

/* Until so many are left. */
static int take_back(struct side *side, struct lender *lender, unsigned left)
{
    if (lender->next - lender->first <= left) {
        return 0;
    }
    unsigned until = lender->next - left;
    int error = left == 0
                    ? tow_line_take_back(side->line)
                    : tow_line_take_back_until(side->line, lender->places[(until - 1) % LENDS]);
    for (; lender->first < until; lender->first++) { /* it may be used for something else */
        memset(&lender->heads[lender->first % LENDS], 0xee, sizeof *lender->heads);
        memset(lender->bytes + lender->first % LENDS * PAYLOAD_MAX, 0xee, 200000);
    }
    return error;
}

static int produce(struct side *side, struct lender *lender, struct head head)
{
    uint64_t seed = mix(side->out ^ head.number);
    uint8_t *at;
    if (head.kind == 1) {
        unsigned free = lender->next % LENDS;
        uint8_t *bytes = lender->bytes + free * PAYLOAD_MAX;
        struct head *own = &lender->heads[free];
        *own = head;
        paint(bytes, head.size, seed);
        /* The last part is what makes a payload of any size a frame: zeros, elsewhere. */
        size_t half = head.size / 16 * 8, pad = head.size > 8 ? head.number % 8 : 0;
        const struct iovec parts[4] = {{own, sizeof *own},
                                       {bytes, half},
                                       {bytes + half, head.size - half - pad},
                                       {bytes + head.size - pad, pad}};
        int error;
        if (head.number % 4 < 3) {
            error = tow_line_lend(side->line, parts, 4);
            lender->places[free] = tow_line_place(side->line);
            lender->next++;
            return error < 0 ? error
                             : take_back(side, lender, head.number % 64 < 48 ? LENDS - 1 : 0);
        }
        error = tow_line_send_direct(side->line, parts, 4);
        memset(bytes, 0xee, head.size);
        *own = (struct head){0};
        return error;
    }
    int error = tow_line_reserve(side->line, sizeof head + head.size, &at);
    if (error < 0) {
        return error;
    }
    if ((uintptr_t)at % 8 != 0) {
        return -EFAULT; /* frames are encoded in place */
    }
    memcpy(at, &head, sizeof head);
    paint(at + sizeof head, head.size, seed);
    if (head.number % 3 == 0) {
        tow_line_commit_now(side->line, sizeof head + head.size);
    } else {
        tow_line_commit(side->line, sizeof head + head.size);
    }
    return 0;
}

static void *produce_all(void *arg)
{
    struct side *side = arg;
    struct lender lender = {.bytes = malloc(LENDS * PAYLOAD_MAX)};
    int error = 0;
    for (uint64_t number = 0; error == 0; number++) {
        bool last = atomic_load(&enough);
        error = produce(side, &lender, frame_of(side->out, number, last));
        if (last) {
            break;
        }
        if (number % 512 == 511) {
            tow_line_drain(side->line, tow_time_deadline(TOW_TIME_S));
        }
    }
    int given = take_back(side, &lender, 0);
    free(lender.bytes);
    return (void *)(intptr_t)(error < 0 ? error : given);
}

/* The frames in their order, each of them whole. 0, or what was wrong. */
static void *consume_all(void *arg)
{
    struct side *side = arg;
    uint8_t *bytes = malloc(PAYLOAD_MAX);
    int error = 0;
    for (uint64_t number = 0; error == 0; number++) {
        const uint8_t *at;
        size_t available;
        struct head head;
        error = tow_line_peek(side->line, sizeof head, TOW_TIME_FOREVER, &at, &available);
        if (error < 0) {
            break;
        }
        memcpy(&head, at, sizeof head);
        struct head expected = frame_of(side->in, number, head.kind == 2);
        if (memcmp(&head, &expected, sizeof head) != 0) {
            error = -EBADMSG;
        } else if (head.kind == 1) {
            tow_line_consume(side->line, sizeof head);
            error = tow_line_recv_into(side->line, bytes, head.size);
            at = bytes;
        } else {
            error = tow_line_peek(side->line, sizeof head + head.size, TOW_TIME_FOREVER, &at,
                                  &available);
            at += sizeof head;
        }
        if (error == 0 && !painted(at, head.size, mix(side->in ^ number))) {
            error = -EBADMSG;
        }
        if (error == 0 && head.kind != 1) {
            tow_line_consume(side->line, sizeof head + head.size);
        }
        atomic_store(&side->frames, number);
        if (head.kind == 2) {
            break;
        }
    }
    free(bytes);
    atomic_store(&wrong, atomic_load(&wrong) || error < 0);
    return (void *)(intptr_t)error;
}

static pthread_t start(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    assert_int_equal(tow_thread_start("test", run, arg, &thread), 0);
    return thread;
}

static intptr_t finish(pthread_t thread)
{
    void *result;
    pthread_join(thread, &result);
    return (intptr_t)result;
}

static void everything_comes_once_through_many_cuts(void **state)
{
    /* As many as there is time for: make check-long has more. */
    unsigned all = getenv("TOW_TESTS_LONG") != NULL ? CUTS_LONG : CUTS;
    unsigned cuts = tls ? all / 4 : all;
    atomic_store(&world.random, true);
    atomic_store(&enough, false);
    begin(&world, LIMIT_NS, 0);
    struct side client = {.line = world.client, .out = 1, .in = 2};
    struct side server = {.line = world.server, .out = 2, .in = 1};
    pthread_t threads[] = {start(produce_all, &client), start(produce_all, &server),
                           start(consume_all, &client), start(consume_all, &server)};
    bool waits;
    /* One that makes no frame of progress for long has hung. */
    uint64_t before = 0;
    int64_t moved = tow_time_now_ns();
    while (tow_keep_mends(world.client, &waits) < cuts) {
        uint64_t now = atomic_load(&client.frames) + atomic_load(&server.frames) +
                       tow_keep_mends(world.client, &waits);
        moved = now != before ? tow_time_now_ns() : moved;
        before = now;
        assert_true(tow_time_now_ns() - moved < 60 * TOW_TIME_S);
        assert_false(atomic_load(&wrong));
        tow_time_sleep(TOW_TIME_MS);
    }
    atomic_store(&world.random, false);
    atomic_store(&enough, true);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(finish(threads[i]), 0);
    }
    print_message("%u cuts, %llu and %llu frames\n", tow_keep_mends(world.client, &waits),
                  (unsigned long long)client.frames, (unsigned long long)server.frames);
    assert_true(client.frames > cuts / 10 && server.frames > cuts / 10);
    /* Each line behind has sent and received at least how far its end was. */
    struct tow_line_stats stats;
    tow_line_get_stats(world.client, &stats);
    assert_true(stats.sends > cuts && stats.receives > cuts);
    end(&world);
}

/* ---- each byte ---- */

#define PAYLOAD 20000u

static int put(struct tow_line *line, const char *text, size_t n)
{
    uint8_t *at;
    int error = tow_line_reserve(line, n, &at);
    if (error == 0) {
        memcpy(at, text, n);
        tow_line_commit_now(line, n);
    }
    return error;
}

static bool get(struct tow_line *line, const char *text, size_t n)
{
    const uint8_t *at;
    size_t available;
    if (tow_line_peek(line, n, tow_time_deadline(60 * TOW_TIME_S), &at, &available) < 0 ||
        memcmp(at, text, n) != 0) {
        return false;
    }
    tow_line_consume(line, n);
    return true;
}

static const char question[] = "what is asked, in forty-eight bytes, no fewer..";
static const char answer[] = "what is answered, in forty-eight bytes, not more";

static _Atomic bool drained;

static void *answer_all(void *arg)
{
    struct tow_line *line = arg;
    static uint8_t bytes[PAYLOAD];
    for (int i = 0; i < 2; i++) {
        if (!get(line, question, 48)) {
            return "the question";
        }
        memset(bytes, 0, sizeof bytes);
        if (tow_line_recv_into(line, bytes, PAYLOAD) < 0 || !painted(bytes, PAYLOAD, 7 + i)) {
            return "the payload";
        }
        if (put(line, answer, 48) < 0) {
            return "the answer";
        }
    }
    bool ended = get(line, "end.....", 8);
    /* Who drains wants to know that it came: that is answered by who reads. */
    const uint8_t *at;
    size_t available;
    while (!atomic_load(&drained)) {
        tow_line_peek(line, 1, tow_time_deadline(TOW_TIME_MS), &at, &available);
    }
    return ended ? NULL : "the end";
}

/* Frames, payloads, acknowledgements with and without data, questions for them: both ways. */
static void talk(void)
{
    static uint8_t bytes[PAYLOAD];
    begin(&world, LIMIT_NS, 40);
    atomic_store(&drained, false);
    pthread_t thread = start(answer_all, world.server);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(put(world.client, question, 48), 0);
        paint(bytes, PAYLOAD, 7 + (uint64_t)i);
        const struct iovec part = {bytes, PAYLOAD};
        assert_int_equal(tow_line_send_direct(world.client, &part, 1), 0);
        memset(bytes, 0xee, PAYLOAD);
        assert_true(get(world.client, answer, 48));
    }
    assert_int_equal(put(world.client, "end.....", 8), 0);
    assert_int_equal(tow_line_drain(world.client, tow_time_deadline(60 * TOW_TIME_S)), 0);
    atomic_store(&drained, true);
    void *failed;
    pthread_join(thread, &failed);
    if (failed != NULL) {
        fail_msg("%s did not come", (const char *)failed);
    }
}

static void a_cut_at_any_byte_loses_nothing(void **state)
{
    /* How much passes, and how much of it before there are lines. */
    talk();
    end(&world);
    const uint64_t passed[2] = {world.way.passed[0], world.way.passed[1]};
    const uint64_t shaken[2] = {world.shaken[0], world.shaken[1]};
    assert_true(passed[0] > 2 * PAYLOAD && passed[1] - shaken[1] > 96);
    assert_true(tls == (shaken[0] > 0 && shaken[1] > 0));
    unsigned talks = 0, mends = 0;
    for (int side = 0; side < 2; side++) {
        for (uint64_t byte = shaken[side] + (tls ? 1 : 0); byte < passed[side];) {
            bool waits;
            setup(NULL);
            world.seed = 77 + byte;
            world.cuts[0][side] = byte;
            talk();
            talks++;
            mends += tow_keep_mends(world.client, &waits);
            end(&world);
            /* Within a payload every byte is alike, and within a sealed record, too. */
            bool within = side == 0 && (byte - shaken[0]) % (PAYLOAD + 100) > 300;
            byte += within ? 1 + PAYLOAD / 9 : tls ? 5 : 1;
        }
    }
    print_message("%u cuts in %u talks\n", mends, talks);
    assert_true(mends > talks * 3 / 4 && talks > (tls ? 50 : 300));
}

/* The second connection is cut, too, within what both say first, or just behind. */
static void a_cut_within_a_resumption_loses_nothing(void **state)
{
    unsigned talks = 0, dials = 0;
    for (int side = 0; side < 2; side++) {
        for (uint64_t byte = 0; byte < (tls ? 700 : 60); byte += tls ? 23 : 1) {
            setup(NULL);
            world.seed = 1 + byte;
            world.cuts[0][0] = 5000;
            world.cuts[1][side] = byte;
            world.cuts[2][1 - side] = byte + 3;
            talk();
            talks++;
            dials += atomic_load(&world.dials);
            end(&world);
        }
    }
    assert_true(dials > talks * 5 / 2);
}

/* ---- what a line does while it is cut ---- */

/* All that comes, until the end. */
static void *reads(void *arg)
{
    const uint8_t *at;
    size_t available;
    int error;
    while ((error = tow_line_peek(arg, 8, TOW_TIME_FOREVER, &at, &available)) == 0) {
        tow_line_consume(arg, available);
    }
    return (void *)(intptr_t)error;
}

static void *writes(void *arg)
{
    static uint8_t bytes[1 << 20];
    const struct iovec part = {bytes, sizeof bytes};
    int error = 0;
    while (error == 0) {
        error = tow_line_send_direct(arg, &part, 1);
    }
    return (void *)(intptr_t)error;
}

static void who_is_not_mended_in_time_learns_the_end(void **state)
{
    const int64_t limit = 200 * TOW_TIME_MS;
    begin(&world, limit, 0);
    atomic_store(&world.refused, -ECONNREFUSED);
    pthread_t threads[] = {start(reads, world.client), start(writes, world.client),
                           start(reads, world.server), start(writes, world.server)};
    int64_t began = tow_time_now_ns();
    cut_now(&world);
    assert_int_equal(finish(threads[0]), -ECONNRESET);
    assert_int_equal(finish(threads[1]), -EPIPE);
    assert_true(tow_time_now_ns() - began >= limit);
    assert_int_equal(finish(threads[2]), -ECONNRESET);
    assert_int_equal(finish(threads[3]), -EPIPE);
    assert_true(tow_time_now_ns() - began < 60 * TOW_TIME_S);
    uint8_t *at;
    assert_int_equal(tow_line_reserve(world.client, 8, &at), -EPIPE);
    assert_int_equal(tow_line_wait_readable(world.client, TOW_TIME_FOREVER), 0);
    assert_int_equal(tow_line_await_end(world.client, TOW_TIME_FOREVER), 0);
    assert_int_equal(tow_line_drain(world.client, TOW_TIME_FOREVER), -EPIPE);
    end(&world);
}

/* Each new line is cut as soon as it is there. */
static void who_is_cut_again_and_again_learns_the_end(void **state)
{
    const int64_t limit = 300 * TOW_TIME_MS;
    begin(&world, limit, 0);
    pthread_t thread = start(reads, world.client);
    int64_t began = tow_time_now_ns();
    uint8_t *at;
    while (tow_line_reserve(world.client, 8, &at) == 0) {
        assert_true(tow_time_now_ns() - began < 60 * TOW_TIME_S);
        cut_now(&world);
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_true(tow_time_now_ns() - began >= limit);
    assert_int_equal(finish(thread), -ECONNRESET);
    end(&world);
}

/* The other end is gone for good, and whoever answers for it knows that. */
static void a_stale_line_ends_at_once(void **state)
{
    begin(&world, LIMIT_NS, 0);
    atomic_store(&world.refused, -ESTALE);
    pthread_t thread = start(reads, world.client);
    cut_now(&world);
    int64_t began = tow_time_now_ns();
    assert_int_equal(finish(thread), -ECONNRESET);
    assert_true(tow_time_now_ns() - began < LIMIT_NS / 2);
    end(&world);
}

static void a_shutdown_ends_the_waiting_for_a_new_line(void **state)
{
    begin(&world, LIMIT_NS, 0);
    atomic_store(&world.refused, -ECONNREFUSED);
    cut_now(&world);
    pthread_t threads[] = {start(reads, world.client), start(writes, world.client),
                           start(reads, world.server), start(writes, world.server)};
    bool waits = false;
    while (!waits) {
        tow_keep_mends(world.client, &waits);
        tow_time_sleep(TOW_TIME_MS);
    }
    int64_t began = tow_time_now_ns();
    tow_line_shutdown(world.client);
    tow_line_shutdown(world.server);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(finish(threads[i]), -ESHUTDOWN);
    }
    assert_true(tow_time_now_ns() - began < LIMIT_NS / 2);
    end(&world);
}

/* Nobody sends or receives: the end that connects notices it all the same. */
static void a_cut_is_mended_while_nobody_looks(void **state)
{
    begin(&world, LIMIT_NS, 0);
    for (unsigned i = 0; i < 3; i++) {
        cut_now(&world);
        bool waits = true;
        while (tow_keep_mends(world.server, &waits) <= i || waits ||
               tow_keep_mends(world.client, &waits) <= i || waits) {
            tow_time_sleep(TOW_TIME_MS);
        }
    }
    assert_int_equal(put(world.client, question, 48), 0);
    assert_true(get(world.server, question, 48));
    end(&world);
}

/* Whoever shuts a line down may hold a lock over which nobody waits for a peer. */
static void a_shutdown_waits_for_no_peer(void **state)
{
    struct tow_mutex lock;
    const uint8_t *at;
    size_t available;
    begin(&world, LIMIT_NS, 0);
    tow_mutex_init(&lock, LINE_LANES);
    tow_mutex_lock(&lock);
    tow_line_shutdown(world.client);
    tow_mutex_unlock(&lock);
    tow_mutex_fini(&lock);
    int64_t deadline = tow_time_deadline(LIMIT_NS / 2);
    assert_int_equal(tow_line_peek(world.server, 8, deadline, &at, &available), -ECONNRESET);
    end(&world);
}

/* ---- acknowledgements ---- */

enum { SENT = 64 << 20 };

static void *swallow(void *arg)
{
    static uint8_t bytes[1 << 20];
    int error = 0;
    for (int64_t got = 0; got < SENT && error == 0; got += (int64_t)sizeof bytes) {
        error = tow_line_recv_into(arg, bytes, sizeof bytes);
    }
    return (void *)(intptr_t)error;
}

static void who_only_sends_needs_no_reader(void **state)
{
    begin(&world, LIMIT_NS, 0);
    pthread_t thread = start(swallow, world.server);
    for (int sent = 0; sent < SENT; sent += 4096) {
        uint8_t *at;
        assert_int_equal(tow_line_reserve(world.client, 4096, &at), 0);
        memset(at, 1, 4096);
        tow_line_commit(world.client, 4096);
    }
    assert_int_equal(finish(thread), 0);
    end(&world);
}

/* An acknowledgement is nothing that the program could read. */
static void an_acknowledgement_makes_nothing_readable(void **state)
{
    begin(&world, LIMIT_NS, 8);
    assert_int_equal(put(world.client, question, 48), 0);
    assert_true(get(world.server, question, 48));
    int64_t deadline = tow_time_deadline(200 * TOW_TIME_MS);
    assert_int_equal(tow_line_wait_readable(world.client, deadline), -ETIMEDOUT);
    assert_true(tow_time_passed(deadline));
    assert_int_equal(put(world.server, answer, 48), 0);
    assert_int_equal(tow_line_wait_readable(world.client, TOW_TIME_FOREVER), 0);
    assert_true(get(world.client, answer, 48));
    end(&world);
}

struct sends {
    struct tow_line *line;
    _Atomic uint64_t done;
};

static void *send_payloads(void *arg)
{
    struct sends *sends = arg;
    uint8_t *bytes = calloc(1, 64 << 10);
    int error = 0;
    while (error == 0 && atomic_load(&sends->done) < SENT) {
        const struct iovec part = {bytes, 64 << 10};
        error = tow_line_send_direct(sends->line, &part, 1);
        atomic_fetch_add(&sends->done, 64 << 10);
    }
    free(bytes);
    return (void *)(intptr_t)error;
}

/* While the line is cut nothing is acknowledged: so much is copied, and no more. */
static void copies_have_a_limit(void **state)
{
    begin(&world, LIMIT_NS, 0);
    atomic_store(&world.refused, -ECONNREFUSED);
    struct sends sends = {.line = world.client};
    pthread_t thread = start(send_payloads, &sends);
    uint64_t before = 0;
    for (int quiet = 0; quiet < 20;) {
        tow_time_sleep(20 * TOW_TIME_MS);
        uint64_t now = atomic_load(&sends.done);
        quiet = now == before && now > 0 ? quiet + 1 : 0;
        before = now;
    }
    assert_in_range(before, 64 << 10, 8 << 20);
    atomic_store(&world.refused, 0);
    cut_now(&world);
    assert_int_equal((intptr_t)swallow(world.server), 0);
    assert_int_equal(finish(thread), 0);
    end(&world);
}

/* ---- a peer that says what cannot be ---- */

static void nonsense_ends_the_line(void **state)
{
    const struct tow_keep_setup setup = {.limit_ns = LIMIT_NS};
    const struct {
        uint32_t size;
        uint32_t kind;
        uint64_t taken;
    } said[] = {
        {0, 0, 0},            /* no kind */
        {0, KEEP_END + 1, 0}, /* one that nobody knows */
        {8, KEEP_ACK, 0},     /* it has no data */
        {0, KEEP_DATA, 0},    /* it must have some */
        {KEEP_RECORD_MAX + 1, KEEP_DATA, 0},
        {8, KEEP_DATA, 49},  /* more than was sent */
        {0, KEEP_RESUME, 0}, /* only at the beginning */
    };
    int listener = listen_socket();
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        int fds[2];
        struct tow_line *line;
        uint8_t head[KEEP_HEAD];
        const uint8_t *at;
        size_t available;
        assert_int_equal(socket_pair(listener, fds), 0);
        assert_int_equal(tow_sock_line(fds[0], true, &line), 0);
        assert_int_equal(tow_keep_line(line, &setup, &line), 0);
        assert_int_equal(put(line, question, 48), 0);
        keep_put_head(head, said[i].size, said[i].kind, said[i].taken);
        assert_int_equal(send(fds[1], head, sizeof head, 0), sizeof head);
        int64_t deadline = tow_time_deadline(20 * TOW_TIME_S);
        assert_int_equal(tow_line_peek(line, 8, deadline, &at, &available), -EPROTO);
        uint8_t *to;
        assert_int_equal(tow_line_reserve(line, 8, &to), -EPROTO);
        tow_line_close(line);
        close(fds[1]);
    }
    close(listener);
}

/* Who resumes cannot have more than was sent, nor less than he has acknowledged. */
static void a_resumption_that_cannot_be_is_refused(void **state)
{
    const struct tow_keep_setup setup = {.limit_ns = LIMIT_NS};
    int listener = listen_socket(), fds[2];
    struct tow_line *line, *fresh;
    uint8_t head[KEEP_HEAD], heads[2 * KEEP_HEAD + 48];
    const uint8_t *at;
    size_t available;
    assert_int_equal(socket_pair(listener, fds), 0);
    assert_int_equal(tow_sock_line(fds[0], true, &line), 0);
    assert_int_equal(tow_keep_line(line, &setup, &line), 0);
    assert_int_equal(put(line, question, 48), 0);
    keep_put_head(head, 0, KEEP_ACK, 20);
    assert_int_equal(send(fds[1], head, sizeof head, 0), sizeof head);
    assert_int_equal(tow_line_peek(line, 8, tow_time_deadline(100 * TOW_TIME_MS), &at, &available),
                     -ETIMEDOUT);
    close(fds[1]);
    const uint64_t takens[] = {19, 49, 24};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(socket_pair(listener, fds), 0);
        assert_int_equal(tow_sock_line(fds[0], true, &fresh), 0);
        keep_put_head(head, 0, KEEP_RESUME, takens[i]);
        assert_int_equal(send(fds[1], head, sizeof head, 0), sizeof head);
        assert_int_equal(tow_keep_mend(line, fresh, tow_time_deadline(20 * TOW_TIME_S)),
                         i < 2 ? -EPROTO : 0);
        bool waits;
        tow_keep_mends(line, &waits);
        assert_int_equal(waits, i < 2);
        if (i < 2) {
            close(fds[1]);
        }
    }
    /* What it has not taken comes again, and nothing else. */
    size_t expected = 2 * KEEP_HEAD + 48 - 24;
    assert_int_equal(recv(fds[1], heads, expected, MSG_WAITALL), expected);
    assert_memory_equal(heads + 2 * KEEP_HEAD, question + 24, 24);
    tow_line_close(line);
    close(fds[1]);
    close(listener);
}

#define CASE(test) cmocka_unit_test_setup(test, setup)

int main(int argc, char **argv)
{
    tls = argc > 1 && strcmp(argv[1], "tls") == 0;
    lines_kind = tls ? "tls" : "tcp";
    if (lines_missing()) {
        return LINES_SKIP;
    }
    if (argc > 2) {
        cmocka_set_test_filter(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        CASE(everything_comes_once_through_many_cuts),
        CASE(a_cut_at_any_byte_loses_nothing),
        CASE(a_cut_within_a_resumption_loses_nothing),
        CASE(who_is_not_mended_in_time_learns_the_end),
        CASE(who_is_cut_again_and_again_learns_the_end),
        CASE(a_stale_line_ends_at_once),
        CASE(a_shutdown_ends_the_waiting_for_a_new_line),
        CASE(a_shutdown_waits_for_no_peer),
        CASE(a_cut_is_mended_while_nobody_looks),
        CASE(who_only_sends_needs_no_reader),
        CASE(an_acknowledgement_makes_nothing_readable),
        CASE(copies_have_a_limit),
        CASE(nonsense_ends_the_line),
        CASE(a_resumption_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name(lines_kind, tests, NULL, NULL);
}
