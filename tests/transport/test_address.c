/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, and the exact sentences a user gets when connecting or listening fails. */
#include "lines.h"

#include "base/clock.h"
#include "transport/address.h"
#include "transport/sock.h"
#include "transport/ssh.h"
#include "transport/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char why[TOW_WHY_MAX];

static int connect_to(const char *address)
{
    struct tow_line *line = NULL;
    why[0] = '\0';
    int error = tow_transport_connect(address, tow_time_deadline(300 * TOW_TIME_MS), why,
                                      sizeof why, &line);
    if (error == 0) {
        tow_line_close(line);
    }
    return error;
}

static int listen_on(const char *address, struct tow_listener **ret_listener)
{
    why[0] = '\0';
    return tow_listener_open(address, 0600, why, sizeof why, ret_listener);
}

static void wrong_addresses_are_explained(void **state)
{
    static const char *const nothing[] = {"gpu host", "./sock", "run/sock", "http://gpuhost:4837",
                                          "-s",       "",       "host?",    "::1",
                                          "4837",     "fe80::1"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        assert_int_equal(connect_to(nothing[i]), -EINVAL);
        assert_non_null(strstr(why, "is not an address"));
        assert_non_null(strstr(why, "for example gpuhost:4837 or /run/towline.sock"));
    }
    assert_int_equal(connect_to("::1"), -EINVAL);
    assert_non_null(strstr(why, "::1 is not an address (one of IPv6 stands in brackets: "
                                "[::1]:4837); write HOST, HOST:PORT or the PATH"));
    assert_int_equal(connect_to("unix://relative"), -EINVAL);
    assert_string_equal(why, "unix://relative is not an address; write unix:///PATH or "
                             "unix://@NAME");
    static const char *const wrong[] = {
        "tcp://",           "tcp://host:", "tcp://host:x", "tcp://host:1:2",
        "tcp://host:70000", "tcp://[::1",  "tcp://[::1]5", "tcp://:5",
        "host:70000",       "host:x",      "[::1",         "tcp:host:1:2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(connect_to(wrong[i]), -EINVAL);
        assert_non_null(strstr(why, "is not an address; write tcp://HOST:PORT"));
    }
    static const char *const ssh_wrong[] = {
        "ssh://",     "ssh://h:",     "ssh://h:0", "ssh://h:x",   "ssh://h:65536", "ssh://@h",
        "ssh://[::1", "ssh://[::1]5", "ssh://::1", "ssh:///path", "ssh://h?x",     "ssh://h?via=x"};
    for (size_t i = 0; i < sizeof ssh_wrong / sizeof *ssh_wrong; i++) {
        assert_int_equal(connect_to(ssh_wrong[i]), -EINVAL);
        assert_non_null(strstr(why, "; write ssh://[USER@]HOST[:PORT][/PATH], for example"));
    }
    assert_int_equal(connect_to("self:"), -EOPNOTSUPP);
    assert_int_equal(connect_to("hook:delay=1ms"), -EINVAL);
    assert_int_equal(connect_to("tcp://*:5"), -EINVAL);
    char longest[300];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "unix:///", 8);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(connect_to(longest), -ENAMETOOLONG);
    assert_non_null(strstr(why, "a socket's path has at most 107 characters"));
}

/* What ssh is told, where the line goes once it runs, and what is shown. */
static void ssh_addresses_name_a_socket_elsewhere(void **state)
{
    struct tow_ssh_target target;
    char through[TOW_ADDRESS_MAX], shown[TOW_ADDRESS_MAX];
    assert_true(tow_transport_wants_ssh("ssh://me@x@[fe80::1%e]:22/a?b", &target));
    assert_string_equal(target.user, "me@x");
    assert_string_equal(target.host, "fe80::1%e");
    assert_string_equal(target.port, "22");
    assert_string_equal(target.path, "/a?b");
    assert_true(tow_transport_wants_ssh("ssh://gpuhost/", &target));
    assert_string_equal(target.user, "");
    assert_string_equal(target.port, "");
    assert_string_equal(target.path, "/run/towline.sock");
    assert_false(tow_transport_wants_ssh("tcp://gpuhost", &target));
    assert_int_equal(connect_to("ssh://gpuhost"), -EOPNOTSUPP);
    assert_non_null(strstr(why, "towline run -s ssh://gpuhost -- PROGRAM"));

    assert_int_equal(
        tow_transport_through("hook:cut=5:ssh://gpuhost", "/nonexistent/sock", through), 0);
    assert_string_equal(through, "hook:cut=5:ssh://gpuhost?via=/nonexistent/sock");
    assert_false(tow_transport_wants_ssh(tow_transport_behind_hook(through), &target));
    tow_transport_as_written(through, shown);
    assert_string_equal(shown, "hook:cut=5:ssh://gpuhost");
    tow_transport_as_written("tcp://h?via=/s", shown);
    assert_string_equal(shown, "tcp://h?via=/s");
    assert_int_equal(connect_to(tow_transport_behind_hook(through)), -ENOENT);
    assert_string_equal(why, "the ssh to gpuhost has ended; start the program again with: towline "
                             "run -s ssh://gpuhost -- PROGRAM");
    /* The socket is here, the server is not: no shared memory, and further lines are the same way.
     */
    assert_int_equal(tow_transport_faster(tow_transport_behind_hook(through), shown), -ENOTSUP);
    assert_int_equal(tow_transport_further("ssh://h?via=/s", shown), 0);
    assert_string_equal(shown, "ssh://h?via=/s");
}

static void short_forms_mean_whole_ones(void **state)
{
    static const char *const pairs[][2] = {
        {"gpuhost", "tcp://gpuhost"},
        {"gpuhost:4837", "tcp://gpuhost:4837"},
        {"gpu_host.my-site.example:1", "tcp://gpu_host.my-site.example:1"},
        {"192.0.2.1", "tcp://192.0.2.1"},
        {"[::1]:4837", "tcp://[::1]:4837"},
        {"[fe80::1%eth0]", "tcp://[fe80::1%eth0]"},
        {"*:0", "tcp://*:0"},
        {"/run/towline.sock", "unix:///run/towline.sock"},
        {"@name", "unix://@name"},
        {"unix:/run/towline.sock", "unix:///run/towline.sock"},
        {"unix:@name", "unix://@name"},
        {"shm:/run/towline.sock", "shm:///run/towline.sock"},
        {"tcp:gpuhost:1", "tcp://gpuhost:1"},
        {"ssh:gpuhost", "ssh://gpuhost"},
        {"ssh:22", "tcp://ssh:22"},
        {"ssh://me@[::1]:22/a b%c", "ssh://me@[::1]:22/a b%c"},
        {"unix:4837", "tcp://unix:4837"},
        {"hook:delay=1ms:gpuhost", "hook:delay=1ms:tcp://gpuhost"},
        {"hook:delay=1ms:hook:cut=5:/s", "hook:delay=1ms:hook:cut=5:unix:///s"},
        {"self:", "self:"},
        {"self:soft-memory=1G", "self:soft-memory=1G"},
    };
    char full[TOW_ADDRESS_MAX], again[TOW_ADDRESS_MAX];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        assert_int_equal(tow_address_read(pairs[i][0], full, why, sizeof why), 0);
        assert_string_equal(full, pairs[i][1]);
        assert_int_equal(tow_address_read(full, again, why, sizeof why), 0);
        assert_string_equal(again, full);
    }
    char longest[2 * TOW_ADDRESS_MAX];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(tow_address_read(longest, full, why, sizeof why), -ENAMETOOLONG);
    assert_string_equal(tow_transport_behind_hook("hook:delay=1ms:hook:cut=5:tcp://h"), "tcp://h");
    assert_string_equal(tow_transport_behind_hook("hook:cut"), "hook:cut");
}

static void lists_are_cut_at_their_commas(void **state)
{
    static const struct {
        const char *text;
        int count;
        const char *list;
    } cases[] = {
        {"one,two:2", 2, "tcp://one,tcp://two:2"},
        {" one , /s ,", 2, "tcp://one,unix:///s"},
        {",,one", 1, "tcp://one"},
        {"tcp://one:1,tcp://two:2,shm:///s", 3, "tcp://one:1,tcp://two:2,shm:///s"},
        {"self:soft-memory=1G,soft-devices=2,one:1", 2,
         "self:soft-memory=1G,soft-devices=2,tcp://one:1"},
        {"hook:delay=1ms,cut=5:one:1,/s", 2, "hook:delay=1ms,cut=5:tcp://one:1,unix:///s"},
        {"one,two words", -EINVAL, NULL},
        {" , ", -EINVAL, NULL},
        {"", -EINVAL, NULL},
    };
    char list[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tow_address_read_list(cases[i].text, list, sizeof list, why, sizeof why),
                         cases[i].count);
        if (cases[i].list != NULL) {
            assert_string_equal(list, cases[i].list);
        } else {
            assert_non_null(strstr(why, "is not an address"));
        }
    }
    assert_int_equal(tow_address_read_list("one,two", list, 22, why, sizeof why), 2);
    assert_int_equal(tow_address_read_list("one,two", list, 19, why, sizeof why), -ENAMETOOLONG);
}

static void nobody_there_is_explained(void **state)
{
    char address[TOW_ADDRESS_MAX], expected[TOW_WHY_MAX];
    snprintf(address, sizeof address, "unix://%s/none", lines_folder());
    assert_int_equal(connect_to(address), -ENOENT);
    snprintf(expected, sizeof expected,
             "%.200s does not exist; start towlined with -l %.200s, or name another server",
             address, address);
    assert_string_equal(why, expected);
    struct tow_listener *listener;
    assert_int_equal(listen_on("tcp://127.0.0.1:0", &listener), 0);
    snprintf(address, sizeof address, "%s", listener->address);
    tow_listener_close(listener);
    assert_int_equal(connect_to(address), -ECONNREFUSED);
    assert_non_null(strstr(why, "refused the connection; start towlined there with -l tcp://"));
    assert_int_equal(connect_to("tcp://no-such-host.invalid:1"), -EHOSTUNREACH);
    assert_non_null(strstr(why, "cannot resolve the host name in tcp://no-such-host.invalid:1"));
}

static void a_silent_host_is_given_up_in_time(void **state)
{
    /* A listener that never accepts, with its queue filled. */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct tow_listener *listener;
    char address[TOW_ADDRESS_MAX];
    snprintf(address, sizeof address, "unix://%s/full", lines_folder());
    assert_int_equal(listen_on(address, &listener), 0);
    listen(listener->fd, 0);
    close(fd);
    struct tow_line *held[4] = {NULL};
    int error = 0;
    int64_t began = 0;
    for (int i = 0; i < 4 && error == 0; i++) {
        began = tow_time_now_ns();
        error = tow_transport_connect(address, tow_time_deadline(300 * TOW_TIME_MS), why,
                                      sizeof why, &held[i]);
    }
    assert_int_equal(error, -ETIMEDOUT);
    assert_non_null(strstr(why, "did not accept the connection in time"));
    assert_true(tow_time_now_ns() - began < 3 * TOW_TIME_S);
    for (int i = 0; i < 4; i++) {
        tow_line_close(held[i]);
    }
    /* Over shm the server's answer is waited for, too. */
    tow_listener_close(listener);
    assert_int_equal(listen_on(address, &listener), 0);
    memcpy(address, "shm:", 4);
    memmove(address + 4, address + 5, strlen(address + 5) + 1);
    assert_int_equal(connect_to(address), -ETIMEDOUT);
    assert_non_null(strstr(why, "did not answer in time"));
    tow_listener_close(listener);
}

static void every_way_to_write_an_address_connects(void **state)
{
    char abstract[64]; /* of all processes of this machine */
    snprintf(abstract, sizeof abstract, "unix://@towline-test-%d", (int)getpid());
    const char *const listening[] = {
        "tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://*:0", "tcp://[::1]:0",
        "127.0.0.1:0",       "[::1]:0",           "*:0",       abstract};
    for (size_t i = 0; i < sizeof listening / sizeof *listening; i++) {
        struct tow_listener *listener;
        int error = listen_on(listening[i], &listener);
        if (error == -EADDRNOTAVAIL || error == -EAFNOSUPPORT) {
            print_message("no IPv6 here: %s is left out\n", listening[i]);
            continue;
        }
        assert_int_equal(error, 0);
        /* What it says of itself must not sound narrower than it is: all but the port stays. */
        bool whole = strstr(listening[i], "://") != NULL;
        assert_memory_equal(listener->address + (whole ? 0 : strlen("tcp://")), listening[i],
                            strlen(listening[i]) - 1);
        char address[TOW_ADDRESS_MAX];
        const char *port = strrchr(listener->address, ':');
        if (strncmp(listener->address, "tcp://*", 7) == 0) { /* which is for listening only */
            snprintf(address, sizeof address, "tcp://localhost%s", port);
        } else {
            snprintf(address, sizeof address, "%s", listener->address);
        }
        struct tow_line *client = lines_connect(address);
        struct tow_line *server = lines_adopt(listener);
        assert_true(strlen(tow_line_peer(server)) > 0);
        tow_line_close(client);
        tow_line_close(server);
        tow_listener_close(listener);
    }
}

static void taken_addresses_are_explained_and_stale_files_replaced(void **state)
{
    char address[TOW_ADDRESS_MAX], path[TOW_ADDRESS_MAX];
    struct tow_listener *first, *second;
    snprintf(path, sizeof path, "%.200s/taken", lines_folder());
    snprintf(address, sizeof address, "unix://%.300s", path);
    assert_int_equal(listen_on(address, &first), 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(listen_on(address, &second), -EADDRINUSE);
    assert_non_null(strstr(why, "another server already listens on unix://"));
    /* Killed: the file stays. */
    first->path[0] = '\0';
    tow_listener_close(first);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(connect_to(address), -ECONNREFUSED);
    assert_int_equal(listen_on(address, &second), 0);
    tow_listener_close(second);
    assert_int_equal(stat(path, &status), -1);
    /* A file that is no socket is left alone. */
    FILE *file = fopen(path, "w");
    fclose(file);
    assert_int_equal(listen_on(address, &second), -EADDRINUSE);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(listen_on("tcp://127.0.0.1:0", &first), 0);
    assert_int_equal(listen_on(first->address, &second), -EADDRINUSE);
    assert_non_null(strstr(why, "another program already listens on tcp://"));
    tow_listener_close(first);
    assert_int_equal(listen_on("tcp://192.0.2.1:0", &first), -EADDRNOTAVAIL);
    assert_non_null(strstr(why, "that is not an address of this machine"));
    assert_int_equal(listen_on("unix:///no/such/folder/s", &first), -ENOENT);
    assert_non_null(strstr(why, "its folder does not exist"));
}

static void nothing_waiting_is_said_at_once(void **state)
{
    struct tow_listener *listener;
    char peer[TOW_ADDRESS_MAX];
    int fd;
    assert_int_equal(listen_on("tcp://127.0.0.1:0", &listener), 0);
    assert_int_equal(tow_listener_accept(listener, &fd, peer), -EAGAIN);
    tow_listener_close(listener);
}

static void descriptors_travel_with_bytes(void **state)
{
    int pair[2], pipe_fds[2], got[4], count;
    char bytes[5];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe(pipe_fds), 0);
    int before = lines_open_fds();
    assert_int_equal(tow_fds_send(pair[0], "hello", 5, pipe_fds, 2), 0);
    int64_t soon = tow_time_deadline(TOW_TIME_S);
    assert_int_equal(tow_fds_recv(pair[1], bytes, 5, soon, got, 4, &count), 0);
    assert_memory_equal(bytes, "hello", 5);
    assert_int_equal(count, 2);
    assert_int_equal(write(got[1], "x", 1), 1);
    assert_int_equal(read(pipe_fds[0], bytes, 1), 1);
    close(got[0]);
    close(got[1]);
    /* More than wanted: refused, and none is kept. */
    assert_int_equal(tow_fds_send(pair[0], "hello", 5, pipe_fds, 2), 0);
    assert_int_equal(tow_fds_recv(pair[1], bytes, 5, soon, got, 1, &count), -EPROTO);
    assert_int_equal(lines_open_fds(), before);
    assert_int_equal(
        tow_fds_recv(pair[1], bytes, 5, tow_time_deadline(TOW_TIME_MS), got, 1, &count),
        -ETIMEDOUT);
    close(pair[0]);
    assert_int_equal(tow_fds_recv(pair[1], bytes, 5, soon, got, 1, &count), -ECONNRESET);
    close(pair[1]);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void a_connection_is_handed_to_another_process_end(void **state)
{
    /* As a listener hands it to a worker: accept, pass over a socket, make the line there. */
    struct tow_listener *listener;
    int pair[2], fd, got, count;
    char peer[TOW_ADDRESS_MAX], byte;
    assert_int_equal(listen_on("tcp://127.0.0.1:0", &listener), 0);
    struct tow_line *client = lines_connect(listener->address);
    struct pollfd poll_fd = {.fd = listener->fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 5000), 1);
    assert_int_equal(tow_listener_accept(listener, &fd, peer), 0);
    assert_int_equal(strncmp(peer, "127.0.0.1:", 10), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(tow_fds_send(pair[0], "c", 1, &fd, 1), 0);
    close(fd);
    assert_int_equal(
        tow_fds_recv(pair[1], &byte, 1, tow_time_deadline(TOW_TIME_S), &got, 1, &count), 0);
    struct tow_line *server;
    assert_int_equal(
        tow_line_from_fd(got, TOW_TRANSPORT_TCP, TOW_TIME_FOREVER, why, sizeof why, &server), 0);
    const uint8_t *at;
    size_t available;
    assert_int_equal(tow_line_peek(server, 8, tow_time_deadline(5 * TOW_TIME_S), &at, &available),
                     0);
    assert_memory_equal(at, "greeting", 8);
    tow_line_close(client);
    tow_line_close(server);
    tow_listener_close(listener);
    close(pair[0]);
    close(pair[1]);
}

static void each_scheme_has_its_port(void **state)
{
    (void)state;
    static const struct {
        const char *scheme, *rest, *port;
    } some[] = {
        {"tcp://", "gpuhost", "4837"}, {"tls://", "gpuhost", "4838"},
        {"tls://", "[::1]", "4838"},   {"tls://", "gpuhost:4837", "4837"},
        {"tcp://", "[::1]:1", "1"},
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct tow_tcp_address address;
        assert_int_equal(tow_tcp_parse(some[i].scheme, some[i].rest, &address, why, sizeof why), 0);
        assert_string_equal(address.port, some[i].port);
    }
    struct tow_tcp_address none;
    assert_int_equal(tow_tcp_parse("tls://", "gpuhost:", &none, why, sizeof why), -EINVAL);
    assert_string_equal(why, "tls://gpuhost: is not an address; write tls://HOST:PORT, for example "
                             "tls://gpuhost:4838 or tls://[::1]:4838");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_addresses_are_explained),
        cmocka_unit_test(ssh_addresses_name_a_socket_elsewhere),
        cmocka_unit_test(short_forms_mean_whole_ones),
        cmocka_unit_test(lists_are_cut_at_their_commas),
        cmocka_unit_test(each_scheme_has_its_port),
        cmocka_unit_test(nobody_there_is_explained),
        cmocka_unit_test(a_silent_host_is_given_up_in_time),
        cmocka_unit_test(every_way_to_write_an_address_connects),
        cmocka_unit_test(taken_addresses_are_explained_and_stale_files_replaced),
        cmocka_unit_test(nothing_waiting_is_said_at_once),
        cmocka_unit_test(descriptors_travel_with_bytes),
        cmocka_unit_test(a_connection_is_handed_to_another_process_end),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lines_cleanup();
    return failed;
}
