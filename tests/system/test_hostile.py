#!/usr/bin/env python3
"""Clients that do what no program does: they get an error or lose their session, and nobody else notices."""

import pathlib
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

ALL = ("plain", "asan", "tsan")
BOTH = ("plain", "asan")


@t.test(60, trees=BOTH)
def workers_of_many_kinds_are_not_started_beyond_the_limit():
    with t.Server("--max-sessions=3") as server:
        most, clients = 0, []
        for slot in range(1, 16):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(server.socket))
            client.sendall(raw.hello(slot=slot))
            clients.append(client)
        start = time.monotonic()
        while time.monotonic() - start < 2 * t.SLOW:
            most = max(most, len(server.workers()))
            time.sleep(0.01)
        for client in clients:
            client.close()
        t.check(most <= 5, f"there were {most} workers for 3 sessions")
        t.wait_until(lambda: len(server.workers()) == 1, 5, "the other workers have ended")


@t.test(trees=BOTH)
def names_do_not_write_the_log_or_break_the_report():
    with t.Server() as server:
        with raw.Client(server, name=b"x\ntowlined: forged\x1b[2J\xff"):
            t.equal(server.status()["sessions"][0]["client"], "x?towlined: forged?[2J\ufffd", "the name")
        t.wait_until(lambda: "the session of x" in server.log(), 5, "a line of the end")
        t.check("\ntowlined: forged" not in server.log() and "\x1b" not in server.log(), server.log())


@t.test(trees=BOTH)
def failing_calls_do_not_fill_the_log():
    with t.Server() as server, raw.Client(server).begin() as client:
        wrong = raw.frame(raw.FUNCTIONS["cuStreamWaitEvent"], struct.pack("<QQI", 77, 88, 0), 1, 1)
        for _ in range(200):
            client.socket.sendall(wrong * 100)
        t.equal(client.call("cuCtxSynchronize")[0] != 0, True, "an error is told")
        lines = len(server.log().splitlines())
        t.check(10 < lines < 2000, f"{lines} lines in the log")


@t.test(trees=BOTH)
def the_memory_that_runs_out_is_a_workers():
    with t.Server() as server:
        own = int(pathlib.Path(f"/proc/{server.process.pid}/oom_score_adj").read_text())
        worker = server.workers()[0]
        t.check(int(pathlib.Path(f"/proc/{worker}/oom_score_adj").read_text()) > own, "the listener would go first")


if __name__ == "__main__":
    t.main()
