#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a program ends: without a word about a server that hangs up because the program said goodbye."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))

import towtest as t  # noqa: E402


@t.test(limit=180)
def nothing_is_said_about_a_server_that_hangs_up():
    """A program with host functions has a thread that listens until the very end."""
    program = t.BUILD / "tests" / "api" / "api_graph"
    with t.Server() as server:
        for transport in ("unix", "tcp", "shm"):
            for _ in range(8):
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


if __name__ == "__main__":
    t.main()
