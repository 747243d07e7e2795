# SPDX-License-Identifier: Apache-2.0
"""In a network of its own: the loopback goes down under three programs: one waits for calls, one copies over several connections,
one makes no calls. They and the server notice. Where connections last, the first goes on when it is up again. Run by
test_operation.py."""

import fcntl
import os
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
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TOWLINE_LANES": "4"})
    line = process.stdout.readline()
    t.check(line == "ready\n", f"hold {mode} said {line!r} {process.stderr.read() if not line else ''}")
    return process


loopback(0x41)  # IFF_UP | IFF_RUNNING
with t.Server("--heartbeat=5", "--reconnect=0") as server:
    waits, copies, quiet = (hold(server, mode) for mode in ("poll", "copy", "leave"))
    t.equal(len(server.status()["sessions"]), 3, "sessions")
    loopback(0)
    for process in (waits, copies):
        out, err = process.communicate(timeout=60)
        t.equal(process.returncode, 3, f"the exit code of a program that waits ({out}{err})")
        t.check("is lost (" in err, err)
    seconds = t.wait_until(lambda: not server.status()["sessions"], 40, "the server has given all up")
    print(f"the server had given all up {seconds:.1f} s after the programs")
    quiet.kill()
    quiet.communicate()

loopback(0x41)
with t.Server("--heartbeat=5") as server:
    process = hold(server, "poll")
    loopback(0)
    t.wait_until(lambda: "detached_s" in server.status()["sessions"][0], 20, "the server notices that the network is down")
    seen = server.status()["sessions"][0]["calls"]
    loopback(0x41)
    seconds = t.wait_until(lambda: server.status()["sessions"][0]["calls"] > seen + 10, 20, "the program goes on")
    print(f"the program went on {seconds:.1f} s after the network was back")
    t.check("detached_s" not in server.status()["sessions"][0], "it is shown as detached")
    process.kill()
    err = process.communicate()[1]
    t.check("is back after" in err or "and is back" in err, err)
