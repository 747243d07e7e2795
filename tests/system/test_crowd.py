#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many programs at once: what an idle one costs, and that each of many busy ones has its own results.

    test_crowd.py idle COUNT [KIND ...]     so many of each kind of line; the memory of one
    test_crowd.py busy COUNT SECONDS        so many, over all kinds of lines in turn; TOWLINE_BUILD names the build
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = pathlib.Path(__file__).resolve().parent / "helpers"
IDLE_MIB = 2  # the most that an idle session may cost the server


class Crowd(t.TlsServer if "tls" in t.kinds() else t.Server):
    """A server with room for many, on every kind of line."""

    def __init__(self, count, *flags):
        room = 2 * count + 8
        super().__init__(f"--max-sessions={room}", f"--sessions-per-peer={room}", f"--threads={room * 64}", *flags)

    def client(self, kind):
        # A unix socket stays one: without this the client goes over to shared memory there.
        return t.clean_environment(TOWLINE_SERVER=self.address(kind), LD_LIBRARY_PATH=str(t.LIBCUDA.parent), TOWLINE_TRANSPORT="unix",
                                   **getattr(self, "settings", {}))

    @contextlib.contextmanager
    def program(self, kind, helper, *arguments):
        program = t.build_c(HELPERS / helper, ["-lcuda"])
        with subprocess.Popen([program, *map(str, arguments)], env=self.client(kind), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


def pages(pid):
    """Bytes of a process, shared ones by their part; None for one that is gone."""
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        return int(found[1]) << 10 if found else None
    return None


def idle(count, kind):
    """MiB that a session costs while its program does nothing: its worker, and its part of the listener's growth."""
    with Crowd(count, *t.SEEN) as server, server.program(kind, "crowd.c", 1) as first:
        t.equal(first.stdout.readline(), "ready\n", "what the first says")
        before = pages(server.listener)
        if before is None:
            raise t.Skip("the memory of the listener is not shown here")
        with server.program(kind, "crowd.c", count) as crowd:
            said = crowd.stdout.readline()
            t.equal(said, "ready\n", f"what the crowd says ({'' if said else crowd.stderr.read()})")
            sessions = [session["worker_pid"] for session in server.status()["sessions"]]
            t.equal(len(sessions), count + 1, "sessions")
            sizes = [size for size in map(pages, sessions) if size is not None]
            t.equal(len(sizes), len(sessions), "workers whose memory is shown")
            each = (sum(sizes) / len(sizes) + (pages(server.listener) - before) / count) / (1 << 20)
    print(f"{count} idle sessions over {kind}: {each:.2f} MiB each")
    return each


def busy(count, seconds):
    """So many at once, each over the next kind of line: every number of every round is looked at by the program itself."""
    with Crowd(count) as server, contextlib.ExitStack() as stack:
        crowd = [(kind, stack.enter_context(server.program(kind, "rounds.c"))) for kind in (t.kinds() * count)[:count]]
        for kind, process in crowd:
            said = process.stdout.readline()
            t.equal(said, "ready\n", f"what a program says over {kind} ({'' if said else process.stderr.read()})")
        time.sleep(seconds)
        total = 0
        for _, process in crowd:
            process.stdin.close()  # all end at once
        for kind, process in crowd:
            out, err = process.stdout.read(), process.stderr.read()
            code = process.wait(timeout=120 * t.SLOW)
            t.check(code == 0 and re.fullmatch(r"\d+ rounds\n", out), f"over {kind}: exit code {code}, {out}{err}")
            total += int(out.split()[0])
        t.wait_until(lambda: not server.status()["sessions"], 30, "all sessions have ended")
    print(f"{count} programs at once: {total} rounds, each with right results")


@t.test(300 if t.LONG else 120)
def an_idle_session_costs_little_over_any_line():
    for kind in t.kinds():
        each = idle(200 if t.LONG else 12, kind)
        t.check(each <= IDLE_MIB, f"an idle session over {kind} costs {each:.2f} MiB")


@t.test(120)
def a_launch_over_tls_takes_no_more_system_calls_than_over_tcp():
    """A send takes what came together, up to what a socket takes; so does a record."""
    t.need_tls()
    program, count = t.build_c(HELPERS / "counts.c", ["-lcuda"], "counts"), 20000

    def sends(server, kind):
        path = server.folder / "stats"
        done = t.run([program, "launches", count], env=dict(server.client(kind), TOWLINE_STATS=str(path)))
        t.equal(done.returncode, 0, f"the exit code of {count} launches over {kind} ({done.stderr})")
        return json.loads(path.read_text())["sends"]
    with Crowd(1) as server:
        found = {kind: min(sends(server, kind) for _ in range(3)) for kind in ("tcp", "tls")}
    print(f"{count} launches: {found} system calls that sent")
    for kind, calls in found.items():
        t.check(0 < calls <= count / 8, f"{count} launches over {kind} took {calls} system calls")


@t.test(300 if t.LONG else 120, trees=("plain", "asan"))
def many_busy_programs_have_their_own_results():
    busy(64 if t.LONG else 12, 20 if t.LONG else 1)


if __name__ == "__main__":
    os.environ.pop("TOWLINE_SERVER", None)
    if sys.argv[1:2] == ["idle"]:
        for name in sys.argv[3:] or t.kinds():
            idle(int(sys.argv[2]), name)
    elif sys.argv[1:2] == ["busy"]:
        busy(int(sys.argv[2]), float(sys.argv[3]))
    else:
        t.main()
