#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The record of what a session has made: conformance cases and examples, in which it is compared with the session's handles after
every call that is recorded. A session of which it is wrong ends, and says so."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test_conform  # noqa: E402
import test_examples  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

t._tests.clear()  # theirs run from their own files

KINDS = ("unix", "shm", "tcp")
# What the table gives for a reason (tools/apigen/record.py).
REASONS = {"it has captured work of a stream into a graph", "it uses multicast objects",
           "it shares GPU memory or events with other programs", "it maps memory into sparse arrays"}


# A mipmapped array's levels keep their ids when it is destroyed, and nobody can use them.
LEVELS = "mipmap_levels"


def recording(*flags):
    return t.Server("--soft-record=1", "--log=debug", *flags)


def check_log(server):
    log = server.log()
    t.check("the record is wrong" not in log, "\n".join(line for line in log.splitlines() if "record is wrong" in line)[:3000])
    reasons = set(re.findall(r"the session stays where it is: (.*)", log))
    t.equal(reasons - REASONS, set(), "why sessions had no record any more")


def conform(kind, names):
    """A session for each case: one that captures has no record from then on."""
    with recording() as server:
        done = t.towline_run(server.address(kind), [test_conform.build_driver(), *names, "--jobs", "2", "--alone"], 280)
        check_log(server)
        t.check("passed," in done.stdout, f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        test_conform.compare(done.stdout, test_conform.expected(False), False)


for _kind in t.drawn(KINDS, 1):
    @t.test(300, trees=("plain", "asan"), matrix="record", name=f"conformance_cases_{_kind}")
    def cases(kind=_kind):
        conform(kind, [name for name in test_conform.expected(False) if name != LEVELS])


for _name, _kind in t.drawn([(_name, _kind) for _name in test_examples.names() for _kind in KINDS], 4):
    @t.test(250, matrix="record", name=f"example_{_name}_{_kind}")
    def example(name=_name, kind=_kind):
        if not t.find_nvcc():
            raise t.Skip("nvcc is not installed")
        with recording() as server:
            done = t.run([test_examples.RUN, "--towline", t.TOWLINE, "--nvcc", t.find_nvcc(), "-s", server.address(kind), "--build-dir",
                          t.BUILD / "examples", "--only", name], 240)
            check_log(server)
            t.check(done.returncode == 0 and "1 passed, 0 failed" in done.stdout,
                    f"{name} over {kind}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


@t.test(60)
def a_record_that_is_full_is_given_up():
    """A program that changes more than an eighth of session-memory has room for goes on: its session stays where it is."""
    with recording("--session-memory=16M") as server:
        program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "many_changes.c", ["-lcuda"], "many_changes")
        done = t.towline_run(server.address(), [program], 50)
        t.equal(done.returncode, 0, f"exit code: {done}\n{server.log()[-2000:]}")
        t.check("its objects are too many to be remembered (cuMemPoolSetAttribute)" in server.log(), server.log()[-2000:])


if __name__ == "__main__":
    t.main()
