# SPDX-License-Identifier: Apache-2.0
"""In a network of its own: the loopback goes down under two programs, one that waits for calls and one that makes none. Both they and
the server notice. Run by test_operation.py."""

import fcntl
import pathlib
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "lib"))
import towtest as t  # noqa: E402


def loopback(flags):
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", flags))  # SIOCSIFFLAGS


def hold(server, mode):
    process = subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address("tcp"), "--", sys.argv[1], mode],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    t.check(line == "ready\n", f"hold {mode} said {line!r} {process.stderr.read() if not line else ''}")
    return process


loopback(0x41)  # IFF_UP | IFF_RUNNING
with t.Server("--heartbeat=2") as server:
    waits, quiet = hold(server, "poll"), hold(server, "leave")
    t.equal(len(server.status()["sessions"]), 2, "sessions")
    loopback(0)
    out, err = waits.communicate(timeout=60)
    t.equal(waits.returncode, 3, f"the exit code of the program that waits ({out}{err})")
    t.check("is lost (" in err, err)
    seconds = t.wait_until(lambda: not server.status()["sessions"], 20, "the server has given both up")
    print(f"the server had given both up {seconds:.1f} s after the first program")
    quiet.kill()
    quiet.communicate()
