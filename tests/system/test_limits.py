#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one program may take of the server's machine, and what all of a peer and all together may: docs/inside/limits.md."""

import contextlib
import os
import pathlib
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

BOTH = ("plain", "asan")
MIB = 1 << 20
OUT_OF_MEMORY = 2
NOT_READY = 600
BYE = 0xF009


class Grown:
    """A session that streams are made in, which the worker has to remember, until it is ended or `enough` says so."""

    def __init__(self, server, source=None):
        self.client = raw.Client(server, source=source).begin()
        self.made = 0
        self.farewell = None  # the server's last sentence
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.over = threading.Event()

    def _read(self):
        with contextlib.suppress(OSError):
            while True:
                kind, _, _, body = self.client.receive()
                if kind == BYE:
                    self.farewell = body[8:].split(b"\0")[0].decode()
        self.over.set()

    def grow(self, enough):
        """Makes more of them; false: the server has ended the session."""
        self.reader.is_alive() or self.reader.start()
        create = raw.FUNCTIONS["cuStreamCreate"]
        while not enough() and not self.over.is_set():
            frames = (raw.frame(create, struct.pack("<QI", raw.handle("STREAM", self.made + i), 0), 1, 1) for i in range(1000))
            with contextlib.suppress(OSError):
                self.client.socket.sendall(b"".join(frames))
            self.made += 1000
        return not self.over.is_set()


def base():
    """Host memory of a worker that does nothing: sanitizers need much."""
    with t.Server() as server, raw.Client(server).begin():
        return server.status()["sessions"][0]["limits"]["session-memory"]["used"]


def used(server, name="session-memory", session=0):
    """What `towline status` shows: use and limit."""
    limit = server.status()["sessions"][session]["limits"][name]
    return limit["used"], limit["limit"]


@t.test(trees=BOTH)
def images_on_their_way_count():
    """H4: 64 images of 1 GiB could be announced, and sent, and none loaded."""
    most = 64 * MIB + base()
    with t.Server(f"--session-memory={most}", "--code-cache=0") as server, raw.Client(server).begin() as client:
        def announce(index, size):
            body = struct.pack("<Q", raw.handle("LIBRARY", index))
            return client.call("cuLibraryLoadData", body + bytes([index]) * 32 + struct.pack("<Q4I", size, raw.PTX, 0, index, 0) +
                               raw.NO_OPTIONS)[0]
        used(server)
        t.equal([announce(1, 40 * MIB), announce(2, most - 40 * MIB + 1), announce(3, 2 * most)], [0, OUT_OF_MEMORY, OUT_OF_MEMORY],
                "images that are announced")
        t.equal(announce(4, 10 * MIB), 0, "a smaller one")


@t.test(trees=BOTH)
def mirrored_memory_counts():
    """H4: two commands of 56 bytes, and a worker of 6 GiB."""
    with t.Server(f"--session-memory={64 * MIB + base()}") as server, raw.Client(server).begin() as client:
        def share(index, size):
            return client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", 0x550000000000 + index * (1 << 30), size, 0))[0]
        t.equal(share(1, 1 << 30), OUT_OF_MEMORY, "what is larger than all that the session may have")
        t.equal([share(index, 16 * MIB) for index in (1, 2)], [0, 0], "two pieces, each there twice")
        rest = []
        while len(rest) < 100 and (not rest or rest[-1] == 0):
            rest.append(share(len(rest) + 3, 16 * MIB))
        t.equal(rest[-1], OUT_OF_MEMORY, f"the last of {len(rest)} more")
        t.check(len(rest) <= 3 + base() // (32 * MIB), f"{len(rest)} more fitted")
        t.equal(client.call("cuMemHostUnregister", struct.pack("<QQ", 0x550000000000 + (1 << 30), 0))[0], 0, "the end of a piece")
        t.equal(share(1, 16 * MIB), 0, "a piece in its place")
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the session")


@t.test(trees=BOTH)
def who_grows_beyond_session_memory_ends():
    """H4: whatever it is made of; a neighbour notices nothing."""
    most = 48 * MIB + base()
    with t.Server(f"--session-memory={most}") as server, raw.Client(server).begin() as neighbour:
        before, limit = used(server)
        t.check(before < most == limit, f"{before} of {limit} are used")
        grown = Grown(server)
        t.check(not grown.grow(lambda: grown.made > 2_000_000), f"{grown.made} streams were made")
        t.check(f"and a session may have {most >> 20} MiB (session-memory)" in grown.farewell, f"it was told {grown.farewell!r}")
        t.check("(session-memory)" in server.log(), server.log())
        t.equal(neighbour.call("cuCtxSynchronize")[0], 0, "the neighbour")
        t.wait_until(lambda: len(server.status()["sessions"]) == 1, 10, "only the neighbour is left")


def crowd(server, size, peers=False):
    """An honest session of a certain size, then small ones that come after it, of the same peer or each of another, until the server
    has ended some: these."""
    def sizes():
        found = {s["id"]: s["limits"]["session-memory"]["used"] for s in server.status()["sessions"]}
        return [found[number] for number in sorted(found)]

    honest = Grown(server)
    honest.grow(lambda: sizes()[0] > 2 * size)
    small = []
    while sum(one.over.is_set() for one in small) < 4:
        t.check(len(small) < 24, f"24 small ones have room: {sizes()}")
        small.append(Grown(server, f"127.0.0.{2 + len(small)}" if peers else None))
        small[-1].grow(lambda: sizes()[-1] > size)
    t.check(not honest.over.is_set(), f"the honest one was told {honest.farewell!r}")
    t.equal(honest.client.socket.send(raw.frame(raw.FUNCTIONS["cuCtxSynchronize"], b"", 1, 1)), 16, "bytes of a further command")
    return [one.farewell for one in small if one.over.is_set()]


@t.test(trees=("plain",))
def many_small_ones_do_not_end_the_one_before_them():
    """The review's twelve, each smaller than an honest session: without a limit the kernel ended the honest ones."""
    with t.Server("--memory=96M", "--memory-per-peer=1G") as server:
        for farewell in crowd(server, 12 * MIB):
            t.check("and may have 96 MiB (memory); user" in farewell, f"it was told {farewell!r}")
        shown = server.status()["limits"]["memory"]
        t.check(0 < shown["used"] <= shown["limit"] == 96 * MIB, f"the status shows {shown}")


@t.test(trees=("plain",))
def many_small_peers_do_not_end_the_one_before_them():
    """Each from an address of its own, and each smaller than the honest one, which so has most of all."""
    with t.Server("--memory=96M", "--memory-per-peer=1G") as server:
        for farewell in crowd(server, 12 * MIB, peers=True):
            t.check("and may have 96 MiB (memory); 127.0.0." in farewell and "at least half of an equal part" in farewell, f"it was told {farewell!r}")


@t.test(trees=("plain",))
def a_peer_has_a_limit_of_its_own():
    with t.Server("--memory=1G", "--memory-per-peer=96M") as server:
        for farewell in crowd(server, 12 * MIB):
            t.check("sessions of user" in farewell and "and may have 96 MiB (memory-per-peer)" in farewell, f"it was told {farewell!r}")


def crowded(server, count):
    """A session of which so many threads wait for a stream that stands, until the server ends it: its last sentence."""
    with raw.Client(server).begin() as client:
        stream, word = raw.handle("STREAM", 1), client.alloc(4096)
        client.send("cuStreamCreate", struct.pack("<QI", stream, 1))
        client.send("cuStreamWaitValue32_v2", struct.pack("<QQII", stream, word, 7, 1))
        frames = (raw.frame(raw.FUNCTIONS["cuStreamSynchronize"], struct.pack("<Q", stream), 1, 1, 100 + i) for i in range(count))
        client.socket.sendall(b"".join(frames))
        with contextlib.suppress(ConnectionResetError):
            while True:
                kind, _, _, body = client.receive()
                if kind == BYE:
                    return body[8:].split(b"\0")[0].decode()
    return None


@t.test(trees=BOTH)
def who_makes_too_many_threads_ends():
    """H5: a command of 24 bytes, a thread; 32 sessions, and the machine had none left."""
    with t.Server("--session-threads=16") as server, raw.Client(server).begin() as neighbour:
        t.equal(crowded(server, 20), "the program needs more than 16 threads there at once (session-threads)", "what it was told")
        t.equal(neighbour.call("cuCtxSynchronize")[0], 0, "the neighbour")
        t.equal(used(server, "session-threads")[1], 16, "the limit that the status shows")
        links = [struct.pack("<Q", raw.handle("LINKSTATE", index)) for index in range(1, 21)]
        results = [neighbour.call("cuLinkCreate_v2", link + raw.NO_OPTIONS)[0] for link in links]
        # Of 16 threads 12 may be links'. Those of calls come and go, and the session goes on.
        t.check(results[:4] == [0] * 4 and results[-1] == OUT_OF_MEMORY, f"the results of cuLinkCreate: {results}")
        t.check(4 <= used(server, "session-threads")[0] <= 16, f"{used(server, 'session-threads')} threads")
        for link in links[:4]:
            t.equal(neighbour.call("cuLinkDestroy", link)[0], 0, "the result of cuLinkDestroy")
        t.equal(neighbour.call("cuLinkCreate_v2", links[-1] + raw.NO_OPTIONS)[0], 0, "a link in the place of four")


@t.test(trees=BOTH, waits=True)
def all_sessions_share_the_threads():
    """However few are left, 64 are for each."""
    with t.Server("--threads=1") as server:
        t.equal(crowded(server, 80), "the program needs more than 64 threads there at once (threads)", "what it was told")
        t.equal(server.status()["limits"]["threads"]["limit"], 1, "the limit that the status shows")
    with t.Server("--threads=4000") as server, raw.Client(server):
        t.check(crowded(server, 2000).endswith("than 512 threads there at once (session-threads)"), "of many threads a session gets all its own")


@t.test(trees=BOTH)
def commands_that_wait_are_limited():
    """In all streams together: one has room for 1,024, and of streams there may be many. Host functions count, too."""
    with t.Server("--session-commands=100") as server, raw.Client(server).begin() as client:
        def fill(stream):
            return client.call("cuMemsetD8Async", struct.pack("<3QI", word, 4, stream, 0))[0]
        word, streams = client.alloc(4096), [raw.handle("STREAM", 1 + i) for i in range(3)]
        for stream in streams:
            client.send("cuStreamCreate", struct.pack("<QI", stream, 1))
        t.equal([fill(stream) for stream in streams * 100], [0] * 300, "what need not wait")
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
        client.send("cuStreamWaitValue32_v2", struct.pack("<QQII", streams[0], word, 7, 1))
        client.send("cuEventCreate", struct.pack("<QI", raw.handle("EVENT", 1), 0))
        client.send("cuEventRecordWithFlags", struct.pack("<QQI", raw.handle("EVENT", 1), streams[0], 0))
        for stream in streams[1:]:
            client.send("cuStreamWaitEvent", struct.pack("<QQI", stream, raw.handle("EVENT", 1), 0))
        client.alloc(4)  # a call behind them
        t.equal(used(server, "session-commands"), (4, 100), "what the status shows of four that wait")
        functions = [client.call("cuLaunchHostFunc", struct.pack("<QQ", streams[0], 1 + i))[0] for i in range(6)]
        t.equal(functions, [0] * 6, "host functions")
        t.equal([fill(stream) for stream in streams * 32], [0] * 90 + [OUT_OF_MEMORY] * 6, "fills that wait")
        t.equal(client.call("cuLaunchHostFunc", struct.pack("<QQ", streams[0], 7))[0], OUT_OF_MEMORY, "one more host function")
        t.equal(used(server, "session-commands"), (100, 100), "what the status shows of all")
        # A record that were refused would count as done, and let others go first.
        client.send("cuEventRecordWithFlags", struct.pack("<QQI", raw.handle("EVENT", 1), streams[0], 0))
        t.equal(client.call("cuEventQuery", struct.pack("<Q", raw.handle("EVENT", 1)))[0], NOT_READY, "an event behind them")
        t.check("100 commands of the program wait in its streams, and it may have no more (session-commands)" in server.log(), server.log())
        with raw.Client(server).begin() as neighbour:
            there = neighbour.alloc(4)
            t.equal(neighbour.call("cuMemsetD8Async", struct.pack("<3QI", there, 4, 0, 0))[0], 0, "a neighbour's")


@t.test()
def descriptors_of_a_worker_are_limited():
    with t.Server("--session-descriptors=200") as server, raw.Client(server).begin():
        count, limit = used(server, "session-descriptors")
        t.check(limit == 200 and count < 200, f"{count} of {limit}")
        worker = server.status()["sessions"][0]["worker_pid"]
        with contextlib.suppress(PermissionError):
            t.check("Max open files            200 " in pathlib.Path(f"/proc/{worker}/limits").read_text(), "the worker's limit")


@t.test(trees=BOTH, waits=True)
def who_is_idle_for_too_long_ends():
    """Who waits is not idle, nor who calls now and then."""
    with t.Server("--session-idle=5") as server, raw.Client(server).begin() as idle, raw.Client(server).begin() as waits, \
            raw.Client(server).begin() as calls:
        stream, word = raw.handle("STREAM", 1), waits.alloc(4096)
        waits.send("cuStreamCreate", struct.pack("<QI", stream, 1))
        waits.send("cuStreamWaitValue32_v2", struct.pack("<QQII", stream, word, 7, 1))
        waits.socket.sendall(raw.frame(raw.FUNCTIONS["cuStreamSynchronize"], struct.pack("<Q", stream), 1, 1, 100))
        idle.socket.setblocking(False)
        begin, data = time.monotonic(), b""
        while b"(session-idle)" not in data:
            t.check(time.monotonic() - begin < 50 * t.SLOW, f"the idle one was told {data!r}")
            t.equal(calls.call("cuCtxSynchronize")[0], 0, "one that calls now and then")
            with contextlib.suppress(BlockingIOError):
                data += idle.socket.recv(65536)
            time.sleep(0.05)
        t.check(time.monotonic() - begin > 3, "it was ended too early")
        t.check(b"and may be idle for 5 s (session-idle)" in data, f"the idle one was told {data!r}")
        t.wait_until(lambda: len(server.status()["sessions"]) == 2, 10, "the others are there")
        shown = [session["limits"]["session-idle"] for session in server.status()["sessions"]]
        t.check(all(one["used"] < one["limit"] == 5 for one in shown), f"the status shows {shown}")


def nices(worker):
    """The nice values of a process's threads."""
    found = set()
    for task in pathlib.Path(f"/proc/{worker}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(int((task / "stat").read_text().rsplit(")", 1)[1].split()[16]))
    return found


@t.test(trees=BOTH, waits=True)
def peers_share_the_cores():
    """M2: with each session of its own a peer had more of the cores. Where nobody else is, nobody yields."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with t.Server() as server, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(raw.Client(server).begin())
        workers = [session["worker_pid"] for session in sorted(server.status()["sessions"], key=lambda one: one["id"])]
        time.sleep(2)  # two looks
        t.equal([nices(worker) for worker in workers], [{own}] * 3, "the nice values of a peer that is alone")
        other = stack.enter_context(socket.create_connection(("127.0.0.1", server.port()), 60 * t.SLOW))
        other.sendall(raw.hello())
        t.wait_until(lambda: [nices(worker) for worker in workers] == [{min(own + n, 19)} for n in (0, 3, 5)], 20, "a peer's later sessions yield")
        shown = sorted((session["id"], session["nice"]) for session in server.status()["sessions"])
        t.equal([nice for _, nice in shown], [0, 3, 5, 0], "the nice values that the status shows")


@t.test(trees=BOTH, waits=True)
def who_comes_too_often_waits_its_turn():
    """Of 10 that come at once 4 are answered, then 2 in each second; others need not wait for them."""
    question = raw.frame(0xF00C, struct.pack("<II", raw.MAGIC, 1))

    def ask(stack, source):
        line = stack.enter_context(socket.create_connection(("127.0.0.1", server.port()), 60 * t.SLOW, (source, 0)))
        line.sendall(question)
        return line

    with t.Server("--connections-per-second=2") as server, contextlib.ExitStack() as stack:
        begin = time.monotonic()
        hasty = [ask(stack, "127.0.0.2") for _ in range(10)]
        t.check(ask(stack, "127.0.0.3").recv(1), "another peer is not answered")
        answers = [bool(line.recv(1)) for line in hasty]
        seconds = time.monotonic() - begin
        t.equal(answers, [True] * 10, "who was answered")
        t.check(seconds > 2.4, f"10 were answered in {seconds:.1f} s")
        t.equal(server.log().count("127.0.0.2 makes more than 2 connections in a second"), 1, "lines in the log")
        # All that come at once beyond that are closed.
        many = [ask(stack, "127.0.0.4") for _ in range(40)]
        t.check(not all(answered(line) for line in many), "40 were answered")


def answered(line):
    with contextlib.suppress(ConnectionResetError):
        return bool(line.recv(1))
    return False


@t.test()
def disk_for_code_is_shown():
    """As of the last image that was written, also when its session has ended."""
    def shown():
        limit = server.status()["limits"]["code-cache"]
        t.equal(limit["limit"], 64 * MIB, "code-cache")
        return limit["used"]
    with t.Server("--code-cache=64M") as server:
        t.equal(shown(), 0, "disk for code that nobody has sent")
        with raw.Client(server).begin() as client:
            text = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry f() { ret; }\n" + b"// much\n" * 10000 + b"\0"
            t.equal(raw.library(client, 1, text)[0], 0, "the result of cuLibraryLoadData")
            t.wait_until(lambda: 80000 <= shown() < MIB, 20, "the image is on disk, and shown")
            mine = server.status()["limits"]["code-cache-per-peer"]
            t.check(mine["limit"] == 48 * MIB and 80000 <= mine["used"] < MIB, f"what its peer is charged: {mine}")
        t.wait_until(lambda: not server.status()["sessions"], 20, "the session has gone")
        t.check(80000 <= shown() < MIB, f"{shown()} bytes of disk after its session")


@t.test()
def lines_of_the_log_have_a_limit():
    """A program whose calls fail again and again fills no disk. The limit can be changed while the server runs."""
    with tempfile.TemporaryDirectory(prefix="towline-") as folder:
        config = pathlib.Path(folder, "towlined.conf")
        config.write_text("log-lines = 60\nsession-log-lines = 6\n")
        with t.Server("--config", str(config)) as server, raw.Client(server).begin() as client:
            def shown():
                status = server.status()
                return status["limits"]["log-lines"], status["sessions"][0]["limits"]["session-log-lines"]
            t.equal([one["limit"] for one in shown()], [60, 6], "the limits")
            for i in range(100):
                raw.library(client, 1 + i, b".version 7.0\n.target sm_50\nmistake_%d\0" % i)
            all_lines, mine = shown()
            told = server.log().count("mistake_")
            t.check(1 <= told <= 30, f"{told} lines of the log about 100 mistakes")
            t.check(told <= all_lines["used"] <= 60 and 1 <= mine["used"] <= 6, f"log-lines {all_lines}, session-log-lines {mine}")
            config.write_text("log-lines = 9000\nsession-log-lines = 500\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: shown()[1] == {"used": 0, "limit": 500}, 20, "the worker may write more")
            for i in range(100):
                raw.library(client, 201 + i, b".version 7.0\n.target sm_50\nerror_%d\0" % i)
            t.wait_until(lambda: server.log().count("error_") == 100, 20, "the log has a line about each further mistake")
            t.check("lines were left out here: too many at once" in server.log(), "nothing says that lines are missing")


@t.test()
def defaults_are_shares_of_the_machine():
    with t.Server() as server, raw.Client(server).begin():
        limits = server.status()["limits"]
        memory, peer, session = limits["memory"]["limit"], limits["memory-per-peer"]["limit"], used(server)[1]
        t.check(memory > 0 and abs(peer - memory * 3 / 4) < MIB, f"memory {memory}, memory-per-peer {peer}")
        t.check(session == max(4 << 30, session) and (session == 4 << 30 or abs(session - memory * 5 / 8) < MIB), f"session-memory {session}")
        t.equal([limits["sessions-per-peer"], limits["places"]["limit"]], [{"used": 1, "limit": 192}, 1024], "sessions-per-peer, places")
        t.check(limits["places-per-peer"]["limit"] == 64 and 1 <= limits["places-per-peer"]["used"] <= limits["places"]["used"], f"{limits}")
        text = t.run([t.TOWLINE, "status", "-s", server.address()]).stdout
        t.check("sessions of yours: 1 of 192; code cache: 0 B of 4.0 GiB; yours: 0 B of 3.0 GiB\n" in text, text)
        t.check("host memory: " in text and "HOST MEMORY" in text and " of 512  " in text and text.count(" of ") >= 6, text)


if __name__ == "__main__":
    t.main()
