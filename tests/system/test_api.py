#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of tests/api over tcp, where no memory is shared with the worker (meson runs them over a local socket); and
those with host functions on a software GPU that makes callers wait as NVIDIA's driver does (--soft-strict)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


STRICT = ("boxes", "downloads", "graph", "hostmem", "ipc", "late", "managed", "polls", "share", "uploads")


def run(name, lanes, kind="tcp", flags=(), **env):
    with t.Server("--soft-devices=2", *flags) as server:
        done = t.towline_run(server.address(kind), [t.BUILD / "tests" / "api" / f"api_{name}"], 140,
                             env={"TOWLINE_LANES": lanes, **env})
        if done.returncode == 77:
            raise t.Skip(done.stdout.strip())
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
                f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


for _source in sorted((t.ROOT / "tests" / "api").glob("test_*.c")):
    _name = _source.stem.removeprefix("test_")
    t.test(150, trees=("plain", "asan"), name=f"{_name}_tcp", matrix="api")(lambda name=_name: run(name, "3"))
    for _kind in ("shm", "unix") if _name == "late" else ():
        t.test(150, name=f"{_name}_{_kind}", matrix="api")(lambda name=_name, kind=_kind: run(name, "3", kind))
    for _kind in t.ways(("shm", "unix", "tcp"), f"{_name} strict") if _name in STRICT else ():
        # ThreadSanitizer does not see that the other process's write of a word orders things in this one.
        _trees = ("plain", "tsan") if _name == "late" and _kind != "shm" else ("plain",)
        t.test(150, trees=_trees, name=f"{_name}_strict_{_kind}", matrix="api")(
            lambda name=_name, kind=_kind: run(name, "3", kind, ["--soft-strict=1"]))


@t.test(60)
def towline_sync_is_launch_blocking():
    for kind in ("shm", "unix", "tcp"):
        run("blocking", "3", kind, TOWLINE_SYNC="1")


if __name__ == "__main__":
    t.main()
