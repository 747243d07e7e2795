/* SPDX-License-Identifier: Apache-2.0 */
/* Who is whose peer, and who gives a place away when all are taken. */
#include "cmocka_all.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/door/door.h"

static struct tows_door door;

static struct tows_who at(const char *text)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        return tows_who_at((const struct sockaddr *)&in);
    }
    assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return tows_who_at((const struct sockaddr *)&in6);
}

static bool same(const char *one, const char *other)
{
    struct tows_who a = at(one), b = at(other);
    return tows_who_same(&a, &b);
}

static void assert_text(struct tows_who who, const char *wanted)
{
    char text[TOW_WHO_TEXT_MAX];
    assert_string_equal(tows_who_text(&who, text), wanted);
}

static void addresses_are_peers(void **state)
{
    (void)state;
    assert_true(same("192.0.2.7", "192.0.2.7"));
    assert_false(same("192.0.2.7", "192.0.2.8"));
    assert_true(same("192.0.2.7", "::ffff:192.0.2.7"));
    assert_true(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
    assert_false(same("2001:db8:0:1::1", "2001:db8:0:2::1"));
    assert_false(same("0.0.0.0", "::"));
    assert_text(at("192.0.2.7"), "192.0.2.7");
    assert_text(at("::ffff:192.0.2.7"), "192.0.2.7");
    assert_text(at("2001:db8:0:1:5::1"), "2001:db8:0:1::/64");
}

static void users_are_peers(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct tows_who who = tows_who_of(pair[0]);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(who.kind, TOW_WHO_USER);
    assert_int_equal(who.user, geteuid());
    struct tows_who root = {.kind = TOW_WHO_USER}, ann = {.kind = TOW_WHO_USER, .user = 1000};
    struct tows_who nobody = tows_who_of(-1), machine = at("127.0.0.1");
    assert_true(tows_who_rules(&root, 1000));
    assert_true(tows_who_rules(&ann, 1000));
    assert_false(tows_who_rules(&ann, 1001));
    assert_false(tows_who_rules(&ann, 0));
    assert_false(tows_who_rules(&nobody, 0));
    assert_false(tows_who_rules(&machine, 0));
    assert_text(ann, "user 1000");
}

static bool may_end(struct tows_who who, struct tows_who whose, uid_t owner)
{
    return tows_who_may_end(&who, &whose, owner);
}

static void users_end_their_sessions_and_addresses_none(void **state)
{
    (void)state;
    const uid_t server = 990;
    struct tows_who root = {.kind = TOW_WHO_USER}, other_root = {.kind = TOW_WHO_OTHER_ROOT};
    struct tows_who ann = {.kind = TOW_WHO_USER, .user = 1000};
    struct tows_who bob = {.kind = TOW_WHO_USER, .user = 1001};
    struct tows_who owner = {.kind = TOW_WHO_USER, .user = server};
    struct tows_who nobody = {.kind = TOW_WHO_NOBODY};
    struct tows_who all[] = {
        root, other_root, ann, bob, owner, nobody, at("127.0.0.1"), at("2001:db8::1")};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_true(may_end(root, all[i], server));
        assert_true(may_end(root, all[i], 0));
        assert_true(may_end(owner, all[i], server));
        assert_int_equal(may_end(ann, all[i], server), i == 2);
        assert_int_equal(may_end(other_root, all[i], server), i == 1);
        assert_int_equal(may_end(other_root, all[i], 0), i == 1);
        assert_false(may_end(nobody, all[i], server));
        assert_false(may_end(nobody, all[i], 0));
        assert_false(may_end(at("127.0.0.1"), all[i], server));
        assert_false(may_end(at("2001:db8::2"), all[i], 0));
    }
    assert_false(tows_who_rules(&other_root, 0));
    assert_false(tows_who_same(&root, &other_root));
    assert_text(other_root, "root of a container");
}

/* A connection of that peer, in that state; NULL if there is no place. */
static struct tows_pending_conn *come(const char *peer, enum tows_pending_conn_state state,
                                      unsigned places, unsigned each)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);
    struct tows_pending_conn *conn = tows_pending_conn_create(pair[0], TOW_TRANSPORT_UNIX, peer);
    assert_non_null(conn);
    conn->who = at(peer);
    conn->state = state;
    int error = tows_door_admit(&door, conn, places, each);
    assert_true(error == 0 || error == -EBUSY);
    return error == 0 ? conn : NULL;
}

static bool is_there(const struct tows_pending_conn *wanted)
{
    for (const struct tows_pending_conn *conn = door.conns; conn != NULL; conn = conn->next) {
        if (conn == wanted) {
            return true;
        }
    }
    return false;
}

#define A "192.0.2.1"
#define B "192.0.2.2"
#define C "192.0.2.3"

static void a_peer_takes_its_own_places(void **state)
{
    (void)state;
    tows_door_init(&door);
    struct tows_pending_conn *other = come(B, TOW_CONN_LEAVING, 100, 4);
    struct tows_pending_conn *program = come(A, TOW_CONN_PROGRAM, 100, 4);
    struct tows_pending_conn *silent = come(A, TOW_CONN_STRANGER, 100, 4);
    struct tows_pending_conn *answered = come(A, TOW_CONN_ANSWERED, 100, 4);
    struct tows_pending_conn *leaving = come(A, TOW_CONN_LEAVING, 100, 4);
    come(A, TOW_CONN_PROGRAM, 100, 4);
    assert_false(is_there(leaving));
    assert_true(is_there(answered));
    come(A, TOW_CONN_PROGRAM, 100, 4);
    assert_false(is_there(answered));
    assert_true(is_there(silent));
    come(A, TOW_CONN_PROGRAM, 100, 4);
    assert_false(is_there(silent));
    assert_null(come(A, TOW_CONN_STRANGER, 100, 4));
    assert_true(is_there(program) && is_there(other));
    assert_int_equal(door.count, 5);
    assert_non_null(come(C, TOW_CONN_STRANGER, 100, 4));
    tows_door_fini(&door);
    assert_null(door.callers);
}

static void all_places_are_taken(void **state)
{
    (void)state;
    tows_door_init(&door);
    struct tows_pending_conn *first = come(A, TOW_CONN_STRANGER, 7, 0);
    struct tows_pending_conn *second = come(A, TOW_CONN_STRANGER, 7, 0);
    struct tows_pending_conn *third = come(A, TOW_CONN_STRANGER, 7, 0);
    come(A, TOW_CONN_PROGRAM, 7, 0);
    struct tows_pending_conn *alone = come(B, TOW_CONN_STRANGER, 7, 0);
    struct tows_pending_conn *asked = come(C, TOW_CONN_ANSWERED, 7, 0);
    come(C, TOW_CONN_PROGRAM, 7, 0);
    /* Whoever was answered goes, whosever it is; then the peer that has most gives one. */
    come(B, TOW_CONN_STRANGER, 7, 0);
    assert_false(is_there(asked));
    come(B, TOW_CONN_PROGRAM, 7, 0);
    assert_false(is_there(first));
    assert_true(is_there(second) && is_there(third) && is_there(alone));
    /* Now B would have as many as A: what it brings takes its own. */
    come(B, TOW_CONN_PROGRAM, 7, 0);
    assert_false(is_there(alone));
    assert_int_equal(door.count, 7);
    tows_door_fini(&door);
}

static void programs_that_wait_stay(void **state)
{
    (void)state;
    tows_door_init(&door);
    struct tows_pending_conn *one = come(A, TOW_CONN_PROGRAM, 2, 0);
    struct tows_pending_conn *two = come(A, TOW_CONN_PROGRAM, 2, 0);
    assert_null(come(B, TOW_CONN_STRANGER, 2, 0));
    assert_false(tows_door_make_room(&door));
    one->state = TOW_CONN_GONE;
    tows_door_sweep(&door);
    assert_int_equal(door.count, 1);
    assert_int_equal(two->caller->places, 1);
    assert_non_null(come(B, TOW_CONN_STRANGER, 2, 0));
    two->state = TOW_CONN_GONE;
    tows_door_sweep(&door);
    assert_non_null(come(A, TOW_CONN_STRANGER, 2, 0));
    assert_int_equal(door.count, 2);
    tows_door_fini(&door);
}

/* However many one peer has, it is each peer's turn, and of each the oldest one's. */
static void handshakes_begin_peer_by_peer(void **state)
{
    (void)state;
    tows_door_init(&door);
    assert_null(tows_door_next_shake(&door));
    struct tows_pending_conn *all[] = {
        come(A, TOW_CONN_SHAKE, 100, 0), come(A, TOW_CONN_SHAKE, 100, 0),
        come(A, TOW_CONN_SHAKE, 100, 0), come(B, TOW_CONN_STRANGER, 100, 0),
        come(B, TOW_CONN_SHAKE, 100, 0), come(C, TOW_CONN_SHAKE, 100, 0),
        come(C, TOW_CONN_SHAKE, 100, 0)};
    static const int wanted[] = {0, 4, 5, 1, 6, 2};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct tows_pending_conn *next = tows_door_next_shake(&door);
        assert_ptr_equal(next, all[wanted[i]]);
        next->state = TOW_CONN_SHAKING;
        tows_door_shook(&door, next);
    }
    assert_null(tows_door_next_shake(&door));
    tows_door_fini(&door);
}

/* As a silent one does: a flood of handshakes takes its own peer's places. */
static void a_handshake_that_waits_gives_its_place_away(void **state)
{
    (void)state;
    tows_door_init(&door);
    struct tows_pending_conn *waits = come(A, TOW_CONN_SHAKE, 100, 2);
    struct tows_pending_conn *program = come(A, TOW_CONN_PROGRAM, 100, 2);
    assert_non_null(come(A, TOW_CONN_STRANGER, 100, 2));
    assert_false(is_there(waits));
    assert_true(is_there(program));
    tows_door_fini(&door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_peers),
        cmocka_unit_test(users_are_peers),
        cmocka_unit_test(users_end_their_sessions_and_addresses_none),
        cmocka_unit_test(a_peer_takes_its_own_places),
        cmocka_unit_test(all_places_are_taken),
        cmocka_unit_test(programs_that_wait_stay),
        cmocka_unit_test(handshakes_begin_peer_by_peer),
        cmocka_unit_test(a_handshake_that_waits_gives_its_place_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
