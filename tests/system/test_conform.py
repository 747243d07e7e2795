#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The conformance programs of tests/conform through client and server on the software GPU, line by line against
tests/conform/expected.txt and soft.txt; and the sweep of null handles, null pointers and sizes of zero, against sweep.txt.
`test_conform.py --write` adds what is observed now of cases that are new."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from towtest import *  # noqa: E402,F403
import towtest as t  # noqa: E402

t.same_for_all_users()

FOLDER = t.ROOT / "tests" / "conform"
EXPECTED = FOLDER / "expected.txt"
SOFT = FOLDER / "soft.txt"  # cases that the software GPU answers otherwise, with the reasons
QUICK = ["stream_", "event_", "capture_", "copy_"]  # what runs over tcp as well

PLACES = ["vmm_", "pool_", "mem_", "graph_alloc", "graph_memory", "green"]  # what names devices in records


def build_driver():
    sources = sorted(FOLDER.glob("*.c"))
    target = t.BUILD / "test-programs" / "conform-driver"
    with t.locked(target.with_name("conform-driver.lock")):
        command = ["gcc", "-std=gnu17", "-g", "-O1", "-pthread", *t.sanitize_flags(), *t.our_include_flags(),
                   *map(str, sources), f"-L{t.BUILD / 'lib'}", "-lcuda"]
        return t.build(command, target, [*sources, *FOLDER.glob("*.h"), t.LIBCUDA])


def build_runtime():
    sources = [*sorted(FOLDER.glob("*.cu")), FOLDER / "conform.c"]
    return t.build_cuda(sources, ["-O1", "-std=c++17", f"-I{FOLDER}", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"],
                        ["-cudart", "static"], "conform-runtime")


def by_case(text):
    """{case: its lines, in order}; comments and the summary are left out."""
    cases = {}
    for line in text.splitlines():
        name, colon, _ = line.partition(": ")
        if colon and not line.startswith("#"):
            cases.setdefault(name, []).append(line)
    return cases


# What the server says where the program's own memory, a variable on its stack for example, lies where the worker's stack is.
# Addresses are random, so this is rare, and another run has others (docs/inside/limits.md).
COLLISION = "is in use in the worker"


def run_all(program, kind, names=("all",), flags=(), env=None):
    for attempt in range(3):
        with t.Server(*flags) as server:
            done = t.towline_run(server.address(kind), [program, *names, "--jobs", "2"], 150, env=env)
            t.check("passed," in done.stdout, f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            if COLLISION not in server.log() or attempt == 2:
                return done.stdout, done.stderr


def compare(text, expected, complete):
    got = by_case(text)
    wrong = []
    for name, lines in got.items():
        wanted = expected.get(name)
        if wanted is None:
            wrong.append(f"{name} is not in expected.txt")
        elif lines != wanted:
            wrong += [f"- {line}" for line in wanted if line not in lines] + [f"+ {line}" for line in lines if line not in wanted]
            wrong.append(f"{name} differs from expected.txt")
    if complete:
        wrong += [f"{name} did not run" for name in expected if name not in got]
    t.check(not wrong, "\n".join(wrong))


def expected(runtime):
    cases = by_case(EXPECTED.read_text())
    cases.update(by_case(SOFT.read_text()))
    return {name: lines for name, lines in cases.items() if name.startswith("rt_") == runtime}


@t.test(matrix="conform", limit=240, trees=("plain", "asan"))
def driver_unix():
    compare(run_all(build_driver(), "unix")[0], expected(False), True)


@t.test(matrix="conform", limit=240)
def driver_tcp():
    compare(run_all(build_driver(), "tcp", QUICK)[0], expected(False), False)


@t.test(matrix="conform", limit=240)
def driver_shm():
    compare(run_all(build_driver(), "shm", QUICK)[0], expected(False), False)


@t.test(matrix="conform", limit=240)
def driver_strict():
    """The software GPU makes callers wait where NVIDIA's driver may: nothing stands still, and the answers are the same."""
    for kind in ("tcp", "shm"):
        compare(run_all(build_driver(), kind, flags=["--soft-strict=1"])[0], expected(False), True)


@t.test(matrix="conform", limit=120)
def driver_second_device():
    """The program's device 0 is the server's device 1: wherever devices are named, the right one is meant."""
    text = run_all(build_driver(), "unix", PLACES, ["--soft-devices=2"], {"CUDA_VISIBLE_DEVICES": "1"})[0]
    compare(text, expected(False), False)


@t.test(matrix="conform", limit=400)
def runtime_unix():
    compare(run_all(build_runtime(), "unix")[0], expected(True), True)


def sweep(kind):
    with t.Server() as server:
        done = t.towline_run(server.address(kind), [sys.executable, FOLDER / "sweep.py", "compare", FOLDER / "sweep.txt", "--known",
                                                     FOLDER / "sweep_known.txt", "-j", "2"], 120 * t.SLOW, preload=True)
        t.check(done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-2000:]}")
        t.check("ended by signal" not in server.log(), server.log())


for _kind in t.ways(("unix", "tcp", "shm"), "sweep"):
    t.test(matrix="conform", limit=150, trees=("plain", "asan") if _kind == "unix" else ("plain",), name=f"sweep_{_kind}")(
        lambda kind=_kind: sweep(kind))


def write():
    """What NVIDIA's driver said stays; a case that is new, or whose line is taken out, is added at the end."""
    observed = by_case(run_all(build_driver(), "unix")[0])
    try:
        observed.update(by_case(run_all(build_runtime(), "unix")[0]))
    except t.Skip as reason:
        print(f"{reason}: the runtime's cases stay as they were")
    known = by_case(EXPECTED.read_text())
    new = [name for name in observed if name not in known]
    with EXPECTED.open("a") as file:
        for name in new:
            file.write("\n".join(observed[name]) + "\n")
    print(f"added, not confirmed by NVIDIA's driver: {' '.join(new) or 'none'}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        t.main()
