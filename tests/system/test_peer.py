#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two devices in one program: of one server, and of two."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

GPU_PROGRAMS = t.ROOT / "tests" / "gpu" / "programs"


def run(program, servers, **environment):
    """The kinds of its lines, in the servers' order."""
    done = t.run([t.TOWLINE, "run", "-s", servers, "--", t.BUILD / "tests" / "api" / f"api_{program}"],
                 env=t.clean_environment(TOWLINE_LOG="client=info", **environment))
    t.check(done.returncode == 0 and "OK\n" in done.stdout, done.stdout + done.stderr)
    return re.findall(r" connected to \S+ over (\w+)", done.stderr)


@t.test()
def devices_of_one_server_are_peers():
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        for kind in ("unix", "tcp"):
            run("peer", server.address(kind))
            run("portable", server.address(kind))


def on_two_servers(program, some=t.TREE != "plain", **environment):
    """Its two lines are of every kind, and alike or not (`some`: those that differ most). The second server's worker keeps to
    other addresses, by whichever line it is reached: the programs look at that."""
    with t.Server(memory="1G") as one, t.Server(memory="1G") as two:
        unix, tcp, shm = ((one.address(kind), two.address(kind)) for kind in ("unix", "tcp", "shm"))
        ways = [(unix, "auto", ["shm", "shm"]), ((tcp[0], unix[1]), "auto", ["tcp", "shm"]), (tcp, "auto", ["tcp", "tcp"]),
                (unix, "shm", ["shm", "shm"]), (shm, "auto", ["shm", "shm"]), (unix, "unix", ["unix", "unix"]),
                ((unix[0], tcp[1]), "auto", ["shm", "tcp"])]
        for servers, wish, kinds in ways[:2] + ([] if some else t.drawn(ways[2:], 2, program)):
            got = run(program, ",".join(servers), TOWLINE_TRANSPORT=wish, **environment)
            t.equal(got, kinds, f"with TOWLINE_TRANSPORT={wish} the way to {servers}")


@t.test(240, trees=("plain", "asan"), waits=True)
def devices_of_two_servers_exchange_memory():
    on_two_servers("peer")


@t.test(240, trees=("plain", "asan"))
def page_locked_memory_is_used_with_two_servers():
    on_two_servers("portable")


@t.test(240, trees=("plain", "asan"))
def the_second_server_alone_does_as_well_as_the_first():
    """Its worker has other addresses than that of a program's only server, and a line of its own."""
    programs = ("hostmem", "managed", "registered", "events", "graph", "late", "share", "uploads")
    programs = t.drawn(programs, 3) if t.TREE == "plain" else programs[:3]
    with t.Server(memory="1G") as one, t.Server(memory="1G") as two:
        for program in programs:
            kinds = run(program, f"{one.address()},{two.address()}", CUDA_VISIBLE_DEVICES="1")
            t.equal(kinds, ["shm", "shm"], f"{program}: the way to them")
        t.wait_until(lambda: all(server.log().count("ended after") == len(programs) for server in (one, two)), 5,
                     "the logs tell of all sessions")
        calls = [[int(count) for count in re.findall(r"ended after .*, (\d+) calls", server.log())] for server in (one, two)]
        t.check(max(calls[0]) < min(calls[1]), f"calls of {calls[0]} to the first server and {calls[1]} to the second")


@t.test()
def places_are_the_programs_own_numbers():
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        run("places", server.address(), CUDA_VISIBLE_DEVICES="1,0")


def outputs_are_equal(program):
    """On two servers, on one with two devices, and where one device plays both parts."""
    def out(servers, devices):
        done = t.run([t.TOWLINE, "run", "-s", servers, "--", program], timeout=120,
                     env=t.clean_environment(EXPECT_DEVICES=str(devices)))
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), done.stdout + done.stderr)
        return done.stdout
    with t.Server(memory="1G") as one, t.Server(memory="1G") as two, \
            t.Server("--soft-devices=2", "--soft-memory=1G") as both:
        alone = out(one.address(), 1)
        for servers in (f"{one.address()},{two.address()}", f"{one.address('tcp')},{two.address('tcp')}",
                        f"{one.address('shm')},hook:delay=100us:{two.address('shm')}", both.address()):
            got = out(servers, 2)
            t.check(got == alone, f"{servers}:\n{got}\nnot\n{alone}")


@t.test(limit=300)
def a_driver_program_uses_two_servers():
    outputs_are_equal(t.build_c(GPU_PROGRAMS / "servers_driver.c", ["-lcuda"]))


@t.test(limit=300)
def a_runtime_program_uses_two_servers():
    flags = json.loads((GPU_PROGRAMS / "programs.json").read_text())["flags"]
    outputs_are_equal(t.build_cuda([GPU_PROGRAMS / "servers_runtime.cu"], flags, [], "servers_runtime"))


if __name__ == "__main__":
    t.main()
