#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Further connections of a session for large copies: they work, they end with it, and strangers get none."""

import contextlib
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = t.ROOT / "tests" / "system" / "helpers"
API = t.BUILD / "tests" / "api"
ALL = ("plain", "asan", "tsan")


def copies(server, lanes, kind="tcp", program="uploads"):
    """Runs the copies; how many further connections the client says it has (None: nothing said)."""
    env = t.clean_environment(TOWLINE_LOG="client=info", TOWLINE_LANES=str(lanes))
    done = t.run([t.TOWLINE, "run", "-s", server.address(kind), "--", API / f"api_{program}"], env=env, timeout=90)
    t.check(done.returncode == 0, f"{lanes} lanes over {kind}: {done.stdout}{done.stderr}")
    said = [line for line in done.stderr.splitlines() if "further connections" in line]
    return int(said[0].split(": ")[2].split()[0]) if said else None


@t.test(400, trees=("plain", "asan"))
def large_copies_arrive_whole_over_several_connections():
    with t.Server() as server:
        # They check every byte of large copies; test_api.py runs all of them over three lanes.
        for program in t.drawn(("uploads", "downloads", "boxes"), 1):
            for lanes in (4, 2):
                t.equal(copies(server, lanes, program=program), lanes - 1, f"{program}: further connections of {lanes} lanes")


@t.test(120)
def the_server_says_how_many():
    with t.Server("--lanes=2") as server:
        t.equal(copies(server, 8), 2, "further connections where the server allows 2")
    with t.Server("--lanes=0") as server:
        t.equal(copies(server, 4), None, "further connections where the server allows none")


@t.test(240)
def without_being_asked_there_are_none():
    with t.Server() as server:
        for program in t.drawn(("uploads", "downloads"), 1):
            t.equal(copies(server, 1, program=program), None, f"further connections of {program} by default")
        t.equal(copies(server, 4, "unix"), None, "further connections over a unix socket")


@contextlib.contextmanager
def copying(server, lanes="4", what="copy"):
    """A client that copies for ever, over several connections."""
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    env = t.clean_environment(TOWLINE_LANES=lanes, TOWLINE_LOG="client=info")
    client = subprocess.Popen([t.TOWLINE, "run", "-s", server.address("tcp"), "--", program, what],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    try:
        t.equal(client.stdout.readline(), "ready\n", "the client's first line")
        if lanes != "1":
            while "further connections" not in client.stderr.readline():
                t.check(client.poll() is None, "the client has ended")
        yield client
    finally:
        client.kill()
        client.communicate()


def kill_client(what):
    with t.Server(*t.SEEN) as server:
        before = server.settled()
        with copying(server, what=what) as client:
            worker = server.status()["sessions"][0]["worker_pid"]
            t.wait_until(lambda: server.resident() >= before + (64 << 20), 20, "the server holds 64 MiB more")
            client.kill()
            server.forgets(worker, before)


def kill_worker(what):
    with t.Server() as server, copying(server, what=what) as client:
        start = time.monotonic()
        os.kill(server.status()["sessions"][0]["worker_pid"], signal.SIGKILL)
        out, err = client.communicate(timeout=40 * t.SLOW)
        t.check("error CUDA_ERROR" in out and client.returncode == 3, f"{client.returncode}: {out}{err}")
        seconds = time.monotonic() - start
        t.check(seconds < 20 * t.SLOW, f"the client noticed only after {seconds:.1f} s")


for _what in ("copy", "rows", "fetch"):
    t.test(trees=ALL, name=f"a_killed_client_leaves_nothing_{_what}", matrix="kills of lanes")(
        lambda what=_what: kill_client(what))
    t.test(trees=ALL, name=f"a_killed_worker_is_noticed_{_what}", matrix="kills of lanes")(
        lambda what=_what: kill_worker(what))


def lane_frame(session, key=(1, 2), length=48, magic=b"TOWL", index=1):
    return struct.pack("<IHHII4sIQQQ", length, 0xf00f, 0, 0, 0, magic, index, session, *key)


@t.test(60, trees=ALL)
def a_lane_comes_from_its_sessions_address():
    """Who has read the key of a session on the network joins it from nowhere else."""
    def connect(source, words):
        line = socket.create_connection(("127.0.0.1", server.port()), timeout=30 * t.SLOW, source_address=(source, 0))
        line.sendall(words)
        return line

    def receive(line):
        head = b""
        with contextlib.suppress(ConnectionResetError):  # closed with bytes unread
            head = line.recv(16, socket.MSG_WAITALL)
        if len(head) < 16:
            return None, b""
        length, kind = struct.unpack_from("<IH", head)
        return kind, line.recv(length - 16, socket.MSG_WAITALL)
    with t.Server() as server, connect("127.0.0.2", raw.hello(capabilities=1)) as session:
        topic = None
        while topic != 4:  # TOW_NOTICE_LANES
            kind, body = receive(session)
            topic = struct.unpack_from("<I", body)[0] if kind == raw.NOTICE else None
        lane = lane_frame(server.status()["sessions"][0]["id"], struct.unpack_from("<QQ", body, 8))
        for source in ("127.0.0.1", "127.0.0.3"):
            with connect(source, lane) as line:
                t.equal(receive(line)[0], None, f"what a lane from {source} is answered")
        with connect("127.0.0.2", lane) as line:
            t.equal(receive(line)[0], raw.LANE, "what one from the session's own address is answered")


def is_closed(server, data, wait=30):
    """True when the server closes the connection without a word."""
    with socket.create_connection(("127.0.0.1", server.port()), timeout=wait * t.SLOW) as connection:
        connection.sendall(data)
        try:
            return connection.recv(100) == b""
        except ConnectionError:
            return True


@t.test(120)
def strangers_cannot_add_connections():
    with t.Server() as server, copying(server) as client, copying(server, "1") as plain:
        numbers = [s["id"] for s in server.status()["sessions"]]
        t.equal(len(numbers), 2, "sessions")
        for session in (*numbers, 0, 77, 2**64 - 1):
            t.check(is_closed(server, lane_frame(session)), f"session {session} takes a connection with a wrong key")
            t.check(is_closed(server, lane_frame(session, key=(0, 0))), f"session {session} takes no key")
        t.check(is_closed(server, lane_frame(numbers[0], magic=b"LWOT")), "a wrong word is taken")
        t.check(is_closed(server, lane_frame(numbers[0], length=24)[:24]), "a frame without its key is taken")
        # Bytes behind it change nothing, nor do many of them at once.
        t.check(is_closed(server, lane_frame(numbers[0]) + bytes(100000)), "a wrong key with bytes behind it is taken")
        many = [socket.create_connection(("127.0.0.1", server.port())) for _ in range(150)]
        for i, connection in enumerate(many):
            with contextlib.suppress(OSError):
                connection.sendall(lane_frame(numbers[i % 2]))
        start = time.monotonic()
        t.equal(len(server.status()["sessions"]), 2, "sessions meanwhile")
        t.check(time.monotonic() - start < 30 * t.SLOW, "the listener is held up")
        for connection in many:
            connection.close()
        t.check(client.poll() is None and plain.poll() is None, "a session has ended")
        t.equal(copies(server, 3), 2, "further connections of another program")


@t.test(limit=60)
def a_stream_that_stands_still_holds_up_no_copies_of_another():
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "stalled.c", ["-lcuda"], "stalled")
    with t.Server() as server:
        for transport in ("shm", "unix", "tcp"):
            done = t.towline_run(server.address(transport), [program], 15)
            t.equal((done.returncode, done.stdout), (0, "large 1, still 600\nsmall 40\n"), f"over {transport} ({done.stderr})")


if __name__ == "__main__":
    t.main()
