#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which channel the client takes to a server on its own machine."""

import contextlib
import os
import pathlib
import socket
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
ALL = ("plain", "asan", "tsan")


def run_free(address, transport):
    """A small program; its result and the log."""
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    env = t.clean_environment(TOWLINE_LOG="client=info")
    if transport:
        env["TOWLINE_TRANSPORT"] = transport
    return t.run([t.TOWLINE, "run", "-s", address, "--", program, "free"], env=env)


def check_over(done, kind):
    t.check(done.returncode == 0 and done.stdout.startswith("free "), f"{done.stdout}{done.stderr}")
    t.check(f" over {kind}" in done.stderr, f"it does not say \"over {kind}\":\n{done.stderr}")


@t.test(trees=ALL)
def a_local_server_is_reached_by_shared_memory():
    with t.Server() as server:
        done = run_free(server.address("unix"), None)
        check_over(done, "shm")
        t.check("instead" not in done.stderr, done.stderr)


@t.test(trees=ALL)
def the_choice_can_be_forced():
    with t.Server() as server:
        check_over(run_free(server.address("unix"), "unix"), "unix")
        check_over(run_free(server.address("unix"), "shm"), "shm")
        check_over(run_free(server.address("unix"), "auto"), "shm")
        check_over(run_free(server.address("tcp"), None), "tcp")
        done = run_free(server.address("unix"), "pigeon")
        t.check(done.returncode != 0 and "TOWLINE_TRANSPORT=pigeon" in done.stderr, done.stderr)


@contextlib.contextmanager
def without_shared_memory(server):
    """A socket in front of the server where asking for shared memory ends the connection."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = os.path.join(folder, "sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(8)

        def carry(source, target):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                first = client.recv(65536)
                if first.startswith(b"TOWLSHM"):
                    client.close()
                    continue
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(str(server.socket))
                upstream.sendall(first)
                threading.Thread(target=carry, args=(client, upstream), daemon=True).start()
                threading.Thread(target=carry, args=(upstream, client), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"unix://{path}"
        listener.close()


@t.test(trees=ALL, waits=True)
def without_shared_memory_the_socket_is_used_and_one_line_says_so():
    with t.Server() as server, without_shared_memory(server) as address:
        done = run_free(address, None)
        check_over(done, "unix")
        lines = [line for line in done.stderr.splitlines() if "the socket is used instead" in line]
        t.equal(len(lines), 1, f"lines that say so:\n{done.stderr}\ntheir number")
        done = run_free(address, "shm")
        t.check(done.returncode != 0 and "does not offer shared memory" in done.stderr, done.stderr)


if __name__ == "__main__":
    t.main()
