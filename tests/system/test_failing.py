#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allocations and system calls of a session fail in turn, in the program, the listener, the worker or the process with the TLS key.

The program ends with an error or with right results, in time; the server serves the next one, and has nothing more than before.

    test_failing.py all [SECONDS [STEP [FIRST]]]    all of them, or as many as fit; TOWLINE_BUILD names the build

In CI every 50th, beginning with one that the commit's name gives.
"""

import mmap
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = pathlib.Path(__file__).resolve().parent / "helpers"
ROLES = ("client", "listener", "worker", "shaker")  # as failing.c numbers them
KINDS = t.kinds()
TRIED = [(role, kind) for role in ROLES for kind in KINDS if role != "shaker" or kind == "tls"]
STEP = 50
NEVER = 1 << 40
END = 60 * t.SLOW  # a program has ended by then: it waits for 20 s for a server that has no room


class Orders:
    """What is to fail, in a file that all processes map (struct order in failing.c)."""

    FORM = struct.Struct("4q32s12Q96s")

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(len(ROLES) * self.FORM.size))
        path.chmod(0o666)
        with open(path, "r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)

    def give(self, role, at, soft=0):
        place = ROLES.index(role) * self.FORM.size
        self.bytes[place:place + self.FORM.size] = self.FORM.pack(0, 0, soft, 0, b"", *[0] * 12, b"")
        self.bytes[place:place + 8] = struct.pack("q", at)

    def take_back(self, role):
        """How many calls there were, and which of them failed: None, or where from."""
        place = ROLES.index(role) * self.FORM.size
        self.bytes[place:place + 8] = bytes(8)
        _, count, _, fired, call, *frames, file = self.FORM.unpack(self.bytes[place:place + self.FORM.size])
        if not fired:
            return count, None
        call, file = (word.split(b"\0")[0].decode() for word in (call, file))
        return count, f"{call} of {where(file, [frame for frame in frames if frame])}"


def where(file, frames):
    """The functions that called, innermost first."""
    if file == "/proc/self/exe" or not os.path.exists(file):
        file = str(t.TOWLINED)
    done = subprocess.run(["addr2line", "-f", "-s", "-e", file, *[hex(frame - 1) for frame in frames]], capture_output=True, text=True)
    lines = done.stdout.split("\n")
    return f"{os.path.basename(file)}: " + " < ".join(f"{name} {line}" for name, line in zip(lines[0::2], lines[1::2]))


class Stand:
    """A server whose processes and programs can be made to fail. Nothing is kept warm: all of a worker belongs to one session."""

    def __init__(self, folder):
        self.library = t.build_c(HELPERS / "failing.c", ["-shared", "-fPIC", "-fno-builtin", "-ldl"], "failing.so")
        self.varied = t.build_c(HELPERS / "varied.c", ["-lcuda"])
        self.session = t.build_c(HELPERS / "session.c", ["-lcuda"])
        self.orders = Orders(folder / "orders")
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.failing = {"LD_PRELOAD": str(self.library), "FAIL_ORDERS": str(self.orders.path), "TMPDIR": str(self.temporary)}
        # Without walls the environment reaches the workers, and all processes may be looked into.
        self.server = (t.TlsServer if "tls" in KINDS else t.Server)("--walls=0", "--idle-workers=0", env=self.failing)
        self.calls, self.usual = {}, None

    def run(self, program, kind, env):
        """How the program ended, and what it said."""
        env = {"TMPDIR": str(self.temporary), "TOWLINE_SERVER": self.server.address(kind), "TOWLINE_TRANSPORT": "unix",
               "LD_LIBRARY_PATH": str(t.LIBCUDA.parent), **getattr(self.server, "settings", {}), **env}
        with subprocess.Popen([program], env=t.clean_environment(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as process:
            try:
                out, _ = process.communicate(timeout=END)
                return process.returncode, out
            except subprocess.TimeoutExpired:
                process.kill()
                return f"no end after {END} s", process.communicate()[0]

    def held(self):
        """Descriptors, threads and workers of the listener, and files that should be gone."""
        proc = pathlib.Path(f"/proc/{self.server.listener}")
        return (len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")), len(self.server.workers()),
                os.listdir(self.temporary))

    def serve_one(self, kind):
        """Of a whole session nothing is left, either: then what is held is what it was."""
        code, text = self.run(self.session, kind, {})
        t.equal((code, text), (0, "OK\n"), "how the next program ends")
        t.wait_until(lambda: self.held() == self.usual, 20, f"the listener has what it had: {self.usual}, not {self.held()}")

    def begin(self):
        """Counts the calls of each role, and what is held when nobody is served."""
        self.usual = self.held()
        for kind in KINDS:  # what is made once is there then
            t.equal(self.run(self.varied, kind, {})[0], 0, "how a program ends")
        seen = []

        def same():
            seen.append(self.held())
            shakers = 1 if "tls" in KINDS else 0
            return len(seen) > 10 and len(set(map(str, seen[-10:]))) == 1 and seen[-1][2] == shakers
        t.wait_until(same, 20, "the listener rests")
        self.usual = seen[-1]
        for role, kind in TRIED:
            for soft in (0, 1):
                self.calls[role, kind, soft], _, code, text = self.try_one(role, kind, NEVER, soft)
                t.equal((code, text), (0, "OK\n"), "how a program ends whose calls are counted")

    def try_one(self, role, kind, at, soft):
        """One session in which a call fails: how many calls there were, which one failed and how the program ended."""
        self.orders.give(role, at, soft)
        code, text = self.run(self.varied, kind, self.failing if role == "client" else {})
        count, failed = self.orders.take_back(role)
        return count, failed, code, text

    def check_one(self, role, kind, at, soft):
        """Right or an error, and the server is as before."""
        _, failed, code, text = self.try_one(role, kind, at, soft)
        what = f"call {at} of the {role} over {kind} ({failed}): {'interrupted' if soft else 'failed'}"
        t.check(code in (0, 1), f"{what}: the program ended with {code}:\n{text}")
        t.check(code == 0 or not soft, f"{what}: the program failed:\n{text}")
        t.check(code == 0 or "FAILED: " in text, f"{what}: the program said nothing of it:\n{text}")
        t.check(self.server.process.poll() is None, f"{what}: the listener has ended:\n{self.server.log()}")
        if self.held() != self.usual or role in ("listener", "shaker"):
            try:
                self.serve_one(kind)
            except AssertionError as problem:
                raise AssertionError(f"{what}: {problem}\n{text}") from None


def draw(stand, step, seed):
    """Every so manieth call of each role over each kind of line."""
    for (role, kind, soft), count in sorted(stand.calls.items()):
        for at in range(1 + seed % step, count + 1, step):
            yield role, kind, at, soft


def fail_some(step, seed, seconds=None):
    start, tried, wrong = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory(prefix="towline-test-") as folder:
        stand = Stand(pathlib.Path(folder))
        with stand.server:
            stand.begin()
            for role, kind, at, soft in draw(stand, step, seed):
                if seconds is not None and time.monotonic() - start > seconds:
                    break
                tried += 1
                try:
                    stand.check_one(role, kind, at, soft)
                except AssertionError as problem:
                    wrong.append(str(problem))
                    print(problem, flush=True)
                    t.check(stand.server.process.poll() is None, "the listener has ended")
            stand.serve_one("unix")
    print(f"{tried} of {sum(stand.calls.values())} calls failed in turn, {len(wrong)} of them harmed; from seed {seed} on, {stand.calls}")
    t.check(not wrong, "\n".join(wrong))


@t.test(600 if t.LONG else 120)
def whatever_call_fails_a_program_ends_with_an_error_and_the_server_goes_on():
    fail_some(5 if t.LONG else STEP, t.commit_seed())


if __name__ == "__main__":
    if sys.argv[1:2] == ["all"]:
        numbers = [float(word) for word in sys.argv[2:]]
        fail_some(int(numbers[1]) if len(numbers) > 1 else 1, int(numbers[2]) if len(numbers) > 2 else 0, numbers[0] if numbers else None)
    else:
        t.main()
