#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example of examples/, which checks itself, through client and server on the software GPU; and `make demo`."""

import importlib.machinery
import importlib.util
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

RUN = t.ROOT / "examples" / "run"


def names():
    loader = importlib.machinery.SourceFileLoader("examples_run", str(RUN))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("examples_run", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module.names()


def run_example(name, kind):
    if not t.find_nvcc():
        raise t.Skip("nvcc is not installed")
    with t.Server() as server:
        done = t.run([RUN, "--towline", t.TOWLINE, "--nvcc", t.find_nvcc(), "-s", server.address(kind), "--build-dir",
                      t.BUILD / "examples", "--only", name], 240)
        t.check(done.returncode == 0 and "1 passed, 0 failed" in done.stdout,
                f"{name} over {kind}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


@t.test(300)
def make_demo_ends_well():
    """What `make demo` runs once everything is built: no apt, no compiler but for its two programs."""
    t.our_include_flags()  # the header that `make` leaves there
    env = t.clean_environment()
    said = t.run(["make", "--no-print-directory", "-n", "-C", t.ROOT, "demo", f"BUILD={t.BUILD}"], env=env).stdout
    command = said.splitlines()[-1]
    t.check("examples/demo" in command, f"`make demo` runs something else: {said}")
    done = t.run(["sh", "-c", command], 240, cwd=t.ROOT, env=env)
    t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
    t.equal(done.stdout.splitlines()[-1], "demo: everything came out right", "the last line")
    # A kernel's result, which the program checks, through a server and through a private one.
    right = re.findall(r"^vectoradd: \d+ sums are right, computed on Towline Software GPU$", done.stdout, re.M)
    t.equal(len(right), 2, f"checked results ({done.stdout}); their number")


for _index, _name in enumerate(names()):
    # By turns, so that all transports see some of them.
    _kind = ("unix", "tcp", "shm")[_index % 3]
    t.test(300, name=_name, matrix="examples")(lambda name=_name, kind=_kind: run_example(name, kind))


if __name__ == "__main__":
    t.main()
