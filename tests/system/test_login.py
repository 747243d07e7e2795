#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may use a server: users and groups on its unix socket, and who listens for anyone."""

import os
import pathlib
import signal
import socket
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

ALL = ("plain", "asan", "tsan")
STATUS, REFUSE, REPORT, WELCOME, NOTICE = 0xF00C, 0xF002, 0xF00D, 0xF001, 0xF00A
BEGIN = [sys.executable, "-c", "import ctypes as c; print(c.CDLL('libcuda.so.1').cuInit(0))"]


def need_root():
    if os.geteuid() != 0:
        raise t.Skip("only root can be other users")


def connect(server, user=0, groups=()):
    """A connection of that user: the kernel keeps who it was that connected."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30 * t.SLOW)
    own = os.getgroups()
    os.setgroups(groups)
    os.seteuid(user)
    try:
        connection.connect(str(server.socket))
    finally:
        os.seteuid(0)
        os.setgroups(own)
    return connection


def answer(connection, words):
    """The kind of the first frame that is no asking for patience, and its body."""
    def exactly(size):
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            t.check(more, "the server has closed the line without a word")
            data += more
        return data
    with connection:
        connection.sendall(words)
        kind = NOTICE
        while kind == NOTICE:
            length, kind = struct.unpack("<IH10x", exactly(16))
            body = exactly(length - 16)
        return kind, body


def question():
    return raw.frame(STATUS, struct.pack("<II", raw.MAGIC, 1), thread=0)


def expect_refused(server, **who):
    for words in (raw.hello(), question()):
        kind, body = answer(connect(server, **who), words)
        t.equal(kind, REFUSE, f"the answer to {who}")
        t.check(f"user {who['user']} may not use this server; its administrator decides: ".encode() in body, body)


def expect_served(server, **who):
    t.equal([answer(connect(server, **who), words)[0] for words in (raw.hello(), question())], [WELCOME, REPORT], f"what {who} gets")


@t.test(60, trees=ALL)
def users_that_are_not_named_are_refused():
    need_root()
    with t.Server("--socket-mode=0666", "--allow-users=root,1000", "--allow-users=1002") as server:
        server.folder.chmod(0o711)
        expect_served(server, user=1000)
        expect_served(server, user=1002)
        expect_served(server, user=0)
        expect_refused(server, user=1001)
        t.check(" of user 1001 was refused: user 1001 may not use this server" in server.log(), server.log())
        # Neither by shared memory, nor a lane of somebody's session.
        with connect(server, 1001) as connection:
            connection.sendall(raw.shm_request(raw.hello()))
            said = b""
            while part := connection.recv(4096):
                said += part
            t.check(b"user 1001 may not use this server" in said, said)
        lane = raw.frame(raw.LANE, struct.pack("<IIQQQ", raw.MAGIC, 0, 1, 0, 0), thread=0)
        with connect(server, 1001) as connection:
            connection.sendall(lane)
            t.check(struct.unpack_from("<IH", connection.recv(4096) or bytes(6))[1] in (REFUSE, 0), "the answer to a lane")


@t.test(60)
def members_of_groups_that_are_named_are_served():
    need_root()
    with t.Server("--socket-mode=0666", "--allow-groups=3001,3002") as server:
        server.folder.chmod(0o711)
        expect_refused(server, user=1000)
        expect_refused(server, user=1000, groups=[3000, 3003])
        expect_served(server, user=1000, groups=[3000, 3002])


@t.test(60)
def root_of_a_container_is_not_on_the_list():
    need_root()
    with t.Server("--socket-mode=0666", "--allow-users=0,1000", "--allow-groups=0") as server:
        server.folder.chmod(0o711)
        done = t.run(["unshare", "--pid", "--fork", t.TOWLINE, "status", "-s", server.address()])
        if "unshare" in done.stderr:
            raise t.Skip(f"no pid namespace can be made: {done.stderr}")
        t.check("root of a container may not use this server" in done.stderr, f"{done.stdout}{done.stderr}")


@t.test(60)
def lists_let_nobody_in_over_a_port():
    """The loopback is open to every user of the machine: it must not be the way around the list."""
    with t.Server("--allow-users=0") as server:
        done = t.towline_run(server.address("tcp"), BEGIN)
        t.check("may not use this server" in done.stderr and "allow-anyone" in done.stderr, f"{done.stdout}{done.stderr}")
        t.check("127.0.0.1:" in server.log() and " was refused: 127.0.0.1 may not use this server" in server.log(), server.log())
        t.equal(t.towline_run(server.address(), BEGIN).stdout, "0\n", "cuInit over the socket")
    with t.Server("--allow-users=0", "--allow-anyone") as server:
        t.equal(t.towline_run(server.address("tcp"), BEGIN).stdout, "0\n", "cuInit where anyone may")


@t.test(60)
def lists_are_read_again():
    need_root()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"

        def reload(text, wanted):
            config.write_text(text)
            before = server.log().count(wanted)
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: server.log().count(wanted) > before, 5, wanted)
        config.write_text("allow-users = 1000\nallow-users = 1001\nsocket-mode = 0666\n")
        with t.Server(f"--config={config}") as server:
            server.folder.chmod(0o711)
            expect_served(server, user=1001)
            reload("allow-users = 1000, 1002\nsocket-mode = 0666\n", "the settings were read again")
            expect_refused(server, user=1001)
            expect_served(server, user=1002)
            # A mistake leaves the list as it was.
            reload("allow-users = 1001 no-such-user-here\nsocket-mode = 0666\n", "the settings stay as they were")
            t.check('this machine has no user "no-such-user-here"' in server.log(), server.log())
            expect_refused(server, user=1001)
            reload("socket-mode = 0666\n", "the settings were read again")
            expect_served(server, user=1001)


def start(*flags):
    return t.run([t.TOWLINED, "--device=soft", "--soft-memory=64M", *flags], 20)


@t.test(60)
def a_name_that_nobody_has_keeps_the_server_from_starting():
    with tempfile.TemporaryDirectory() as folder:
        for setting, what in (("allow-users", "user"), ("allow-groups", "group")):
            done = start(f"--listen=unix://{folder}/sock", f"--{setting}=no-such-name-here")
            t.equal(done.returncode, 1, f"the exit code of --{setting}")
            t.check(f'{setting}: this machine has no {what} "no-such-name-here"' in done.stderr, done.stderr)


@t.test(60)
def nobody_listens_for_anyone_by_accident():
    for address in ("tcp://0.0.0.0:0", "tcp://*:0"):
        done = start(f"--listen={address}")
        t.equal(done.returncode, 1, f"the exit code of -l {address}")
        for way in ("--allow-anyone", "allow-anyone = 1", "127.0.0.1", "ssh -L"):
            t.check(way in done.stderr, f"{way} is not in {done.stderr}")
    with t.Server("--allow-anyone", listen=["tcp://0.0.0.0:0"]) as server:
        done = t.run([t.TOWLINE, "status", "-s", f"tcp://127.0.0.1:{server.port()}"])
        t.equal(done.returncode, 0, f"towline status: {done.stderr}")


@t.test(60)
def who_listens_for_anyone_goes_on_doing_so():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text("allow-anyone = 1\n")
        with t.Server(f"--config={config}", listen=["tcp://0.0.0.0:0"]) as server:
            config.write_text("max-sessions = 3\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "the settings stay as they were: whoever reaches" in server.log(), 5, "the settings stay")


if __name__ == "__main__":
    t.main()
