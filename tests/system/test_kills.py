#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs and workers that are killed at any point: all that they had is free, and a neighbour's results stay right.

    test_kills.py kills COUNT [SEED]    so many of each; TOWLINE_BUILD names the build

The test's seed is made of the commit's name, so that every commit kills at other points.
"""

import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

ROUNDS = pathlib.Path(__file__).resolve().parent / "helpers" / "rounds.c"
KINDS = t.kinds()
LATEST = 0.1 * t.SLOW  # a program has begun to compute by then
COUNT = 60 if t.LONG else 4


@contextlib.contextmanager
def rounds(server, kind):
    program = t.build_c(ROUNDS, ["-lcuda"])
    env = t.clean_environment(TOWLINE_SERVER=server.address(kind), LD_LIBRARY_PATH=str(t.LIBCUDA.parent), TOWLINE_TRANSPORT="unix",
                              **getattr(server, "settings", {}))
    with subprocess.Popen([program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def gone(pid):
    return not pathlib.Path(f"/proc/{pid}").exists()


def descriptors(server):
    """How many the listener has; None for who may not look: it is not dumpable."""
    try:
        return len(os.listdir(f"/proc/{server.listener}/fd"))
    except PermissionError:
        return None


def workers(server, client):
    return [s["worker_pid"] for s in server.status()["sessions"] if s["client_pid"] == client]


def kill_one(server, chance, target, neighbour):
    """How long it took until nothing was left of it; None if it was over before."""
    with rounds(server, chance.choice(KINDS)) as process:
        time.sleep(chance.random() * LATEST)
        worker = workers(server, process.pid)
        start = time.monotonic()
        if target == "client":
            process.kill()
        elif worker:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker[0], signal.SIGKILL)
        else:
            return None
        if target == "worker":
            out, err = process.communicate(timeout=60 * t.SLOW)
            # It may have been done, or tried again before its session had begun.
            t.check(process.returncode in (0, 1), f"a program whose worker was killed: {process.returncode}, {out}{err}")
        process.wait(timeout=60 * t.SLOW)
    # A session that was about to begin ends when its worker finds that nobody is there.
    t.wait_until(lambda: [s["client_pid"] for s in server.status()["sessions"]] == [neighbour] and all(map(gone, worker)), 2,
                 f"nothing is left of a {target} that was killed")
    return time.monotonic() - start


def kill_some(count, seed):
    chance, took = random.Random(seed), {"client": [], "worker": []}
    with (t.TlsServer if "tls" in KINDS else t.Server)() as server, rounds(server, "unix") as neighbour:
        t.equal(neighbour.stdout.readline(), "ready\n", "what the neighbour says")
        before = descriptors(server)
        for target in ["client", "worker"] * count:
            seconds = kill_one(server, chance, target, neighbour.pid)
            took[target] += [seconds] if seconds is not None else []
        out, err = neighbour.communicate("over", timeout=60 * t.SLOW)
        t.check(neighbour.returncode == 0 and re.fullmatch(r"\d+ rounds\n", out), f"the neighbour: {neighbour.returncode}, {out}{err}")
        t.wait_until(lambda: not server.status()["sessions"], 20, "all sessions have ended")
        # Some are those of workers that wait for a program: they come and go.
        t.wait_until(lambda: before is None or descriptors(server) < before + 2 * count, 20, "the listener's descriptors are closed")
    for target, seconds in took.items():
        print(f"{len(seconds)} times a {target}, from seed {seed} on: nothing left after at most {max(seconds, default=0):.2f} s")


@t.test(600 if t.LONG else 60, trees=("plain", "asan"))
def whoever_is_killed_leaves_nothing_and_harms_nobody():
    kill_some(COUNT, t.commit_seed())


if __name__ == "__main__":
    if sys.argv[1:2] == ["kills"]:
        kill_some(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else random.getrandbits(31))
    else:
        t.main()
