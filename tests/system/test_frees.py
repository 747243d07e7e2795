#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuMemFree waits for its reply, and keeps no other thread waiting."""

import json
import contextlib
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
KINDS = ("unix", "tcp", "shm")
ALL_ALIKE = "--idle-workers=0"
ROUNDS = 40
ALL = ("plain", "asan", "tsan")


def program():
    return t.build_c(HELPERS / "frees.c", ["-lcuda", "-ldl"], "frees")


def frees(server, kind, what, rounds=ROUNDS):
    """All of them wait for a reply: then others, NVML among them, can have the memory."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "stats"
        done = t.towline_run(server.address(kind), [program(), what, str(rounds)], env={"TOWLINE_STATS": str(path)})
        t.check(done.returncode == 0, f"{kind} {what}: {done.stdout}{done.stderr}")
        calls = json.loads(path.read_text())["calls"]["cuMemFree_v2"]
        t.check(calls["sync"] >= rounds and calls["async"] == 0, f"{kind} {what}: {calls}")


@t.test(240)
def a_free_waits_whatever_the_device_has_to_do():
    with t.Server(ALL_ALIKE) as server:
        for kind in KINDS:
            for what in ("idle", "launch", "fill", "upload", "download", "record", "value", "graph", "function", "module", "second",
                         "capture"):
                frees(server, kind, what)


@t.test(120, trees=ALL)
def a_free_that_waits_keeps_no_other_thread_waiting():
    with t.Server() as server:
        for kind in KINDS:
            frees(server, kind, "beside", 10)


def times_of_threads(pid):
    """Nanoseconds that each has run; some may end meanwhile."""
    if not pathlib.Path("/proc/self/schedstat").exists():
        raise t.Skip("this kernel does not tell how long a thread has run (/proc/PID/schedstat)")
    times = {}
    for task in pathlib.Path("/proc", str(pid), "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            times[task.name] = int((task / "schedstat").read_text().split()[0])
    return times


@t.test(60)
def memory_of_an_idle_context_is_taken_and_freed_by_the_leading_thread():
    """To hand the lead over costs more than the call, and NVIDIA's driver is slow where two threads take turns."""
    with t.Server() as server:
        for kind in KINDS:
            with subprocess.Popen([t.TOWLINE, "run", "-s", server.address(kind), "--", program(), "turns", "2000"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
                for round in ("nothing has been done", "a stream was synchronised"):
                    t.equal(running.stdout.readline(), "ready\n", f"{kind}: its words")
                    pid = server.status()["sessions"][0]["worker_pid"]
                    before = times_of_threads(pid)
                    running.stdin.write("\n")
                    running.stdin.flush()
                    if round == "nothing has been done":
                        continue
                t.equal(running.stdout.readline(), "ready\n", f"{kind}: its words")
                after = times_of_threads(pid)
                took = sorted((after[task] - before.get(task, 0) for task in after), reverse=True) + [0, 0]
                running.communicate("\n")
                t.equal(running.returncode, 0, kind)
                # The line's own thread sends and receives over sockets; threads that take turns have half each.
                t.check(took[2 if kind != "shm" else 1] < took[0] / 4, f"{kind}: nanoseconds of the worker's threads: {took}")


@t.test(120, trees=ALL)
def what_was_freed_is_refused_and_its_address_used_again():
    with t.Server() as server:
        for kind in KINDS:
            frees(server, kind, "mistakes", 20)


@t.test(240, trees=ALL)
def threads_take_and_free_memory_at_once():
    with t.Server() as server:
        for kind in KINDS:
            frees(server, kind, "threads", 100)


@t.test(120, trees=ALL)
def nvml_sees_what_the_program_has_freed():
    for kind in ("tcp", "shm"):
        with t.Server() as server:  # of its own: what a program has goes a moment after it
            frees(server, kind, "seen", 100)


@t.test(120, trees=ALL)
def a_server_that_is_lost_between_frees_is_noticed():
    for kind in ("tcp", "shm"):
        with t.Server() as server:
            with subprocess.Popen([t.TOWLINE, "run", "-s", server.address(kind), "--", program(), "lost", "1"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                t.equal(running.stdout.readline(), "ready\n", f"{kind}: its first words")
                session = server.status()["sessions"][0]
                out, err = running.communicate(f"{session['worker_pid']}\n")
                t.equal(running.returncode, 0, f"{kind}: {out}{err}")


if __name__ == "__main__":
    t.main()
