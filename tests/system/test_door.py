#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first moments of a session: a server that is slow, full, or not there."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        t.wait_until(lambda: pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", 5,
                     f"{pid} has stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


BEGINS = "import ctypes as c; cu = c.CDLL('libcuda.so.1'); print('begun', cu.cuInit(0))"


def wait_for_a_stopped_worker(kind):
    """With two GPUs a worker makes no context ahead: once it is idle it stays so, and gets the next program."""
    with t.Server("--idle-workers=1", "--soft-devices=2", "--soft-memory=64M") as server:
        t.wait_until(lambda: server.status()["workers"]["idle"] == 1, 10, "a worker is idle")
        (worker,) = server.workers()
        start = time.monotonic()
        with stopped(worker):
            program = subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(kind), "--", "python3", "-c", BEGINS],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=t.clean_environment(TOWLINE_TRANSPORT="unix"))
            said = program.stderr.readline()
            t.check("is there, but has not begun to serve this program for" in said and "waiting" in said, f"it says {said!r}")
            t.check(time.monotonic() - start > 4.5, "too early to complain")
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(timeout=max(0, start + 8 - time.monotonic()))
            t.equal(program.poll(), None, "how it ended though its worker had not answered")
            t.equal(len(server.status()["sessions"]), 1, "the number of sessions, its own,")
        out, rest = program.communicate(timeout=60)
        t.equal((out, rest), ("begun 0\n", ""), "what the program says then")


for _kind in ("unix", "tcp", "shm"):
    t.test(120, waits=True, name=f"a_program_waits_for_a_worker_that_stands_still_{_kind}")(
        lambda kind=_kind: wait_for_a_stopped_worker(kind))


@t.test(180, waits=True)
def a_listener_that_stands_still_is_given_up():
    """Its socket takes connections all the same; and it is asked, too."""
    with t.Server("--idle-workers=1", "--soft-devices=2", "--soft-memory=64M") as server:
        with stopped(server.listener):
            def run(kind, command, words):
                start = time.monotonic()
                done = t.run([t.TOWLINE, *command, "-s", server.address(kind), "--", "python3", "-c", BEGINS])
                # After 4 s of silence; a server whose listener answers is given 60.
                t.check(time.monotonic() - start < 40, f"{kind}: it took {time.monotonic() - start:.1f} s")
                t.equal(done.stdout, "begun 100\n" if "--no-check" in command else "", f"{kind}: what comes of {command}")
                t.check(words in done.stderr, f"{kind}: {done.stderr}")
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                for done in [pool.submit(run, kind, *rest) for kind in ("unix", "tcp", "shm") for rest in (
                        (["run", "--no-check"], "says nothing within 4 seconds" if kind != "shm" else "in time"),
                        (["run"], "said nothing for 4 s"))]:
                    done.result()


class Closing:
    """A socket in the server's place that closes the first connections without a word; behind it is the server."""

    TIMES = 2

    def __init__(self, server, kind, folder):
        self.closed, self.server, self.kind, self.path = 0, server, kind, pathlib.Path(folder, kind)
        self.socket = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
        self.socket.bind(("127.0.0.1", 0) if kind == "tcp" else str(self.path))
        self.socket.listen()
        self.address = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}" if kind == "tcp" else f"{kind}://{self.path}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while self.closed < self.TIMES:
            connection = self.socket.accept()[0]
            self.closed += 1
            if self.closed == self.TIMES and self.kind != "tcp":
                # From now on this name is the server's socket; shared memory cannot be passed on by others.
                name = self.path.with_suffix(".link")
                name.symlink_to(self.server.socket)
                name.replace(self.path)
            connection.close()
        while self.kind == "tcp":
            ours = self.socket.accept()[0]
            theirs = socket.create_connection(("127.0.0.1", self.server.port()))
            for pair in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self.pass_on, args=pair, daemon=True).start()

    @staticmethod
    def pass_on(come, go):
        with contextlib.suppress(OSError):
            while data := come.recv(65536):
                go.sendall(data)
            go.shutdown(socket.SHUT_WR)


def try_again(kind):
    for flags in (["--no-check"], []):
        with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
            closing = Closing(server, kind, folder)
            done = t.run([t.TOWLINE, "run", *flags, "-s", closing.address, "--", "python3", "-c", BEGINS])
            t.equal((done.stdout, done.stderr), ("begun 0\n", ""), "what comes")
            t.equal(closing.closed, closing.TIMES, "connections that were closed without a word; their number")


for _kind in ("unix", "tcp", "shm"):
    t.test(60, name=f"a_program_that_finds_all_places_taken_tries_again_{_kind}")(lambda kind=_kind: try_again(kind))


if __name__ == "__main__":
    t.main()
