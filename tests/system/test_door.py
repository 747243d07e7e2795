#!/usr/bin/env python3
"""The first moments of a session: a server that is slow, full, or not there."""

import concurrent.futures
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
import towtest as t  # noqa: E402
from rawclient import MAGIC, frame  # noqa: E402


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
        out, rest = program.communicate(timeout=20)
        t.equal((out, rest), ("begun 0\n", ""), "what the program says then")


for _kind in ("unix", "tcp", "shm"):
    t.test(60, name=f"a_program_waits_for_a_worker_that_stands_still_{_kind}")(
        lambda kind=_kind: wait_for_a_stopped_worker(kind))


@t.test(60)
def a_listener_that_stands_still_is_given_up():
    """Its socket takes connections all the same; and it is asked, too."""
    with t.Server("--idle-workers=1", "--soft-devices=2", "--soft-memory=64M") as server:
        with stopped(server.process.pid):
            def run(kind, command, words):
                start = time.monotonic()
                done = t.run([t.TOWLINE, *command, "-s", server.address(kind), "--", "python3", "-c", BEGINS])
                t.check(time.monotonic() - start < 6, f"{kind}: it took {time.monotonic() - start:.1f} s")
                t.equal(done.stdout, "begun 100\n" if "--no-check" in command else "", f"{kind}: what comes of {command}")
                t.check(words in done.stderr, f"{kind}: {done.stderr}")
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                for done in [pool.submit(run, kind, *rest) for kind in ("unix", "tcp", "shm") for rest in (
                        (["run", "--no-check"], "says nothing within 4 seconds" if kind != "shm" else "in time"),
                        (["run"], "said nothing for 4 s"))]:
                    done.result()


@t.test(60)
def a_program_that_finds_all_places_taken_tries_again():
    """A listener has 256 places for connections that no worker has, and closes what is more without a word."""
    status = frame(0xF00C, struct.pack("<II", MAGIC, 1))
    with t.Server() as server, contextlib.ExitStack() as stack:
        for kind in ("unix", "tcp", "shm"):
            taken = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port()))) for _ in range(256)]
            for one in taken:
                one.sendall(status)
            for one in taken:  # each was answered, and keeps its place for 2 s as it does not go
                t.check(one.recv(16), "no answer")
            with socket.create_connection(("127.0.0.1", server.port())) as more:
                more.settimeout(10)
                with contextlib.suppress(ConnectionResetError):
                    t.equal(more.recv(16), b"", "what one more gets")
            for flags in (["--no-check"], []):
                done = t.run([t.TOWLINE, "run", *flags, "-s", server.address(kind), "--", "python3", "-c", BEGINS])
                t.equal((done.stdout, done.stderr), ("begun 0\n", ""), f"{kind}: what comes")
            for one in taken:
                one.close()


if __name__ == "__main__":
    t.main()
