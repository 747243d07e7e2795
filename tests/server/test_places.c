/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a place by HTTP: an address has its part, and what is one peer's counts as one. */
#include "cmocka_all.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/web/places.h"

static struct tows_who who_at(const char *text)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address;
    memset(&address, 0, sizeof address);
    if (inet_pton(AF_INET, text, &address.four.sin_addr) == 1) {
        address.any.sa_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &address.six.sin6_addr), 1);
        address.any.sa_family = AF_INET6;
    }
    return tows_places_who(&address.any);
}

/* How many it gets until there is none for it. */
static unsigned take_all(struct tows_places *places, const char *text)
{
    unsigned taken = 0;
    for (struct tows_who who = who_at(text); tows_places_take(places, &who);) {
        taken++;
    }
    return taken;
}

static void an_address_has_its_part(void **state)
{
    (void)state;
    struct tows_places places = {.most = 16, .each = 8, .lock = TOW_MUTEX(SERVER_WEB_PLACES)};
    struct tows_who first = who_at("192.0.2.1");
    assert_int_equal(take_all(&places, "192.0.2.1"), 8);
    assert_int_equal(take_all(&places, "192.0.2.2"), 8);
    assert_int_equal(take_all(&places, "192.0.2.3"), 0);
    tows_places_give(&places, &first);
    assert_int_equal(take_all(&places, "192.0.2.2"), 0);
    assert_int_equal(take_all(&places, "192.0.2.3"), 1);
}

static void one_peers_addresses_are_one(void **state)
{
    (void)state;
    struct tows_places places = {
        .most = TOW_WEB_PLACES_MAX, .each = 8, .lock = TOW_MUTEX(SERVER_WEB_PLACES)};
    assert_int_equal(take_all(&places, "127.0.0.1"), 8);
    assert_int_equal(take_all(&places, "127.9.9.9"), 0);
    assert_int_equal(take_all(&places, "::ffff:127.0.0.2"), 0);
    assert_int_equal(take_all(&places, "2001:db8::1"), 8);
    assert_int_equal(take_all(&places, "2001:db8::2:3:4:5"), 0);
    assert_int_equal(take_all(&places, "2001:db8:0:1::1"), 8);
}

static void nobody_has_none(void **state)
{
    (void)state;
    struct tows_places places = {.most = 16, .each = 8, .lock = TOW_MUTEX(SERVER_WEB_PLACES)};
    const struct tows_who nobody = {.kind = TOW_WHO_NOBODY};
    assert_false(tows_places_take(&places, &nobody));
}

/* A connection, of which the test looks whether it was shut. */
static bool is_shut(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

static void who_has_not_asked_makes_room(void **state)
{
    (void)state;
    struct tows_places places = {.most = 4, .each = 2, .lock = TOW_MUTEX(SERVER_WEB_PLACES)};
    struct tows_who one = who_at("192.0.2.1"), two = who_at("192.0.2.2"), new = who_at("192.0.2.3");
    int fds[8][2];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[i]), 0);
    }
    assert_true(tows_places_enter(&places, &one, fds[0][0]));
    assert_true(tows_places_enter(&places, &one, fds[1][0]));
    assert_true(tows_places_heard(&places, fds[0][0]));
    assert_true(tows_places_enter(&places, &one, fds[2][0])); /* instead of the second */
    assert_true(is_shut(fds[1][0]) && !is_shut(fds[0][0]) && !is_shut(fds[2][0]));
    assert_false(tows_places_heard(&places, fds[1][0]));
    tows_places_leave(&places, fds[1][0]); /* not its own any more */
    assert_true(tows_places_heard(&places, fds[2][0]));
    assert_false(tows_places_enter(&places, &one, fds[3][0])); /* both have asked */
    assert_true(tows_places_enter(&places, &two, fds[4][0]));
    assert_true(tows_places_enter(&places, &two, fds[5][0]));
    assert_true(tows_places_enter(&places, &new, fds[6][0])); /* all four are taken */
    assert_true(is_shut(fds[4][0]) && !is_shut(fds[5][0]) && !is_shut(fds[2][0]));
    tows_places_give(&places, &one);
    assert_true(tows_places_enter(&places, &one, fds[7][0]));
    tows_places_leave(&places, fds[7][0]);
    assert_true(tows_places_take(&places, &one));
    for (int i = 0; i < 8; i++) {
        close(fds[i][0]);
        close(fds[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_its_part),
        cmocka_unit_test(one_peers_addresses_are_one),
        cmocka_unit_test(nobody_has_none),
        cmocka_unit_test(who_has_not_asked_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
