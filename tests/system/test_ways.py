#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each way of a copy is gone, not only planned: tests/client/copy_ways.c writes down who carries it out and what it sends."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


def go(address, what, server):
    done = t.run([t.BUILD / "tests" / "client" / "copy_ways", what], 30, env={**os.environ, "TOWLINE_SERVER": address})
    t.check(done.returncode == 0 and "OK" in done.stdout.split(),
            f"exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


@t.test(60)
def copies_go_each_way_over_a_line():
    with t.Server() as server:
        go(server.address("unix"), "unix", server)


@t.test(60)
def copies_go_each_way_of_shared_memory():
    with t.Server() as server:
        go(server.address("shm"), "shm", server)


@t.test(60)
def copies_between_servers_go_through_the_program():
    with t.Server() as one, t.Server() as another:
        go(f"{one.address('unix')},{another.address('unix')}", "peer", one)


if __name__ == "__main__":
    t.main()
