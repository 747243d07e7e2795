#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a program ends: without a word about a server that hangs up because the program said goodbye."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))

import towtest as t  # noqa: E402

t.same_for_all_users()


@t.test(limit=180)
def nothing_is_said_about_a_server_that_hangs_up():
    """A program with host functions has a thread that listens until the very end."""
    program = t.BUILD / "tests" / "api" / "api_graph"
    with t.Server() as server:
        for transport in ("unix", "tcp", "shm"):
            for _ in range(8 if t.WHOLE else 3):
                done = t.towline_run(server.address(transport), [program], env={"TOWLINE_LOG": "error"})
                t.equal(done.returncode, 0, f"exit code over {transport}: {done.stdout}{done.stderr}")
                t.equal(done.stderr, "", f"stderr over {transport}")


@t.test(limit=60)
def calls_at_the_end_of_the_program_return():
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "ends.c", ["-lcuda"], "ends")
    calls = ("cuCtxGetCurrent", "cuMemAlloc", "cuMemcpyDtoH", "cuMemsetD8Async", "cuStreamSynchronize", "cuStreamDestroy",
             "cuMemFree", "cuInit")
    wanted = "".join(f"{when}: {' '.join(f'{call} {result}' for call in calls)}; CUDA_ERROR_DEINITIALIZED 1\n"
                     for when, result in (("handler", 0), ("last", 4)))
    with t.Server() as server:
        for transport in ("unix", "tcp", "shm"):
            done = t.towline_run(server.address(transport), [program])
            t.equal(done.stdout, wanted, f"what it called over {transport} ({done.stderr})")
            t.equal((done.returncode, done.stderr), (5, ""), f"exit code and stderr over {transport}")


@t.test(limit=60)
def a_context_that_is_released_at_exit_ends_with_its_worker():
    """The CUDA runtime releases its context in an exit handler: nobody empties it, and the program ends behind its worker."""
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "ends.c", ["-lcuda"], "ends")
    with t.Server("--idle-workers=1") as server, tempfile.TemporaryDirectory() as folder:
        stats = pathlib.Path(folder, "stats")
        for transport in ("unix", "tcp", "shm"):
            for _ in range(3):
                done = t.towline_run(server.address(transport), [program, "release"], env={"TOWLINE_STATS": str(stats)})
                t.equal((done.returncode, done.stderr), (5, ""), f"the end over {transport}")
                t.equal(done.stdout, "release 0\n", "what it printed")
                t.equal(json.loads(stats.read_text())["calls"]["cuDevicePrimaryCtxRelease_v2"]["sync"], 0,
                        "the releases that were waited for")
                sessions = re.findall(r"session \d+: .*, worker (\d+)", server.log())
                t.check(not pathlib.Path("/proc", sessions[-1]).exists(), f"the worker is there when the program has ended, over {transport}")
            done = t.towline_run(server.address(transport), [program, "again"])
            t.equal(done.stdout, "release 0\nold memory 709 retain 0 current 0 alloc 0 fill 0 copy 0 has 7\n",
                    f"what works behind it over {transport} ({done.stderr})")


@t.test(limit=120, waits=True)
def a_thread_that_waits_does_not_hold_up_the_end():
    """The worker's own thread may stand in the driver for good: its watcher ends it."""
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "ends.c", ["-lcuda", "-pthread"], "ends")
    with t.Server() as server:
        for transport in ("unix", "tcp", "shm"):
            with subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(transport), "--", str(program), "inside"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
                t.equal(client.stdout.readline(), "waits\n", f"what it printed over {transport}")
                time.sleep(0.3)  # the call that waits has come; were it still on its way, the end would only be easier
                begin = time.monotonic()
                client.communicate("\n", timeout=60 * t.SLOW)
                took = time.monotonic() - begin
            t.check(took < 8, f"the end took {took:.1f} s over {transport}")
            t.wait_until(lambda: not server.status()["sessions"], 10, "the session has ended")


if __name__ == "__main__":
    t.main()
