#!/usr/bin/env python3
"""Two devices in one program: of one server, and of two."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


def run(program, servers, **environment):
    done = t.run([t.TOWLINE, "run", "-s", servers, "--", t.BUILD / "tests" / "api" / f"api_{program}"],
                 env=t.clean_environment(**environment))
    t.check(done.returncode == 0, done.stdout + done.stderr)
    t.check("OK" in done.stdout, done.stdout)


@t.test()
def devices_of_one_server_are_peers():
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        for kind in ("unix", "tcp"):
            run("peer", server.address(kind))


@t.test()
def devices_of_two_servers_exchange_memory():
    with t.Server(memory="1G") as one, t.Server(memory="1G") as two:
        run("peer", f"{one.address()},{two.address('tcp')}")


@t.test()
def places_are_the_programs_own_numbers():
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        run("places", server.address(), CUDA_VISIBLE_DEVICES="1,0")


if __name__ == "__main__":
    t.main()
