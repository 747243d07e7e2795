#!/usr/bin/env python3
"""cuMemFree waits for its reply where somebody could tell the difference, and only there."""

import json
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


def waited(server, kind, what, rounds=ROUNDS):
    """How many of the frees waited for a reply."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "stats"
        done = t.towline_run(server.address(kind), [program(), what, str(rounds)], env={"TOWLINE_STATS": str(path)})
        t.check(done.returncode == 0, f"{kind} {what}: {done.stdout}{done.stderr}")
        calls = json.loads(path.read_text())["calls"]["cuMemFree_v2"]
        t.check(calls["sync"] + calls["async"] >= rounds, f"{kind} {what}: {calls}")
        return calls["sync"]


@t.test(120)
def small_memory_of_an_idle_context_is_freed_without_a_reply():
    with t.Server(ALL_ALIKE) as server:
        for kind in KINDS:
            for what in ("idle", "piece", "sync", "fetch", "blocking", "thread"):
                t.equal(waited(server, kind, what), 0, f"{kind}: frees that waited: {what}")


@t.test(120)
def what_others_miss_is_less_than_2_mib_and_few_pieces():
    with t.Server(ALL_ALIKE) as server:
        for kind in KINDS:
            for what in ("many", "between"):
                # Every 32nd, and from then on nothing is left to wait for.
                t.equal(waited(server, kind, what, 320), 10, f"{kind}: frees that waited of 320: {what}")
            t.equal(waited(server, kind, "large"), ROUNDS, f"{kind}: frees of 2 MiB that waited")


@t.test(240)
def a_free_waits_where_the_device_may_have_something_to_do():
    with t.Server(ALL_ALIKE) as server:
        for kind in KINDS:
            for what in ("launch", "fill", "upload", "download", "record", "value", "graph", "function", "module", "aside",
                         "none", "exported", "second", "capture"):
                t.equal(waited(server, kind, what), ROUNDS, f"{kind}: frees that waited: {what}")


@t.test(120, trees=ALL)
def what_was_freed_is_refused_and_its_address_used_again():
    with t.Server() as server:
        for kind in KINDS:
            waited(server, kind, "mistakes", 20)


@t.test(240, trees=ALL)
def threads_take_and_free_memory_at_once():
    with t.Server() as server:
        for kind in KINDS:
            waited(server, kind, "threads", 100)


@t.test(120, trees=ALL)
def nvml_sees_what_the_program_has_freed():
    for kind in ("tcp", "shm"):
        with t.Server() as server:  # of its own: what a program has goes a moment after it
            waited(server, kind, "seen", 100)


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
