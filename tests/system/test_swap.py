#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""More GPU memory than there is (overcommit = swap): sessions that want nothing make room, and have theirs again when they call; those
that work take turns; host memory for it is limited; ends, orders and leases meanwhile."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = t.ROOT / "tests" / "system" / "helpers"


class Program:
    """One that does what each line says."""

    def __init__(self, server, *words, kind="unix"):
        program = t.build_c(HELPERS / "swapped.c", ["-lcuda"], "swapped")
        self.server = server
        self.process = subprocess.Popen([t.TOWLINE, "run", "-s", server.address(kind), "--no-check", *words, "--", program],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=t.clean_environment())
        self.expect("ready")
        self.session = max(session["id"] for session in server.status()["sessions"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            if end and not end.closed:
                with contextlib.suppress(BrokenPipeError):
                    end.close()

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def expect(self, line):
        got = self.process.stdout.readline()
        t.equal(got, line + "\n", f"what the program says ({self.server.log()[-3000:]})")

    def do(self, line, said):
        self.say(line)
        self.expect(said)

    def shown(self):
        return next(session for session in self.server.status()["sessions"] if session["id"] == self.session)

    def is_out(self):
        return self.shown()["state"] == "suspended"

    def finish(self):
        self.process.stdin.close()
        self.process.stdin = None
        _, err = self.process.communicate(timeout=60 * t.SLOW)
        t.equal(self.process.returncode, 0, f"exit code: {err}")
        return err


def serve(*flags, memory="200M", **more):
    return t.Server("--overcommit=swap", "--swap-quantum=1", *flags, memory=memory, **more)


def order(server, what, session, *words):
    return t.run([t.TOWLINE, what, "-s", server.address(), *words, str(session)], 100)


def used(server):
    return sum(sum(session["used"]) for session in server.status()["sessions"])


@contextlib.contextmanager
def programs(server, count, kind="unix"):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Program(server, kind=kind)) for _ in range(count)]


for _kind in ("unix", "shm", "tcp"):
    @t.test(200, trees=("plain", "asan", "tsan"), name=f"six_of_30_percent_work_one_after_the_other_{_kind}")
    def six(kind=_kind):
        with serve() as server, programs(server, 6, kind) as all:
            for round in range(3):
                for program in all:
                    if round == 0:
                        program.do("take 60", "has")
                    program.do("check", "right")
                    program.do("work 50", "worked")
                    t.check(used(server) <= 200 << 20, f"{used(server)} bytes of 200 MiB are in use")
            shown = server.status()
            t.check(shown["limits"]["swap-memory"]["used"] >= 3 * (60 << 20), shown["limits"])
            t.check(all[0].shown()["swaps"] >= 2, all[0].shown())
            t.check("another program needed the GPU's memory (overcommit = swap)" in server.log(), server.log()[-2000:])
            for program in all:
                program.do("check", "right")
                program.finish()
            t.wait_until(lambda: server.status()["limits"]["swap-memory"]["used"] == 0, 10, "nothing is kept any more")


@t.test(200, trees=("plain", "tsan"))
def two_that_work_at_once_take_turns_by_the_quantum():
    with serve() as server, programs(server, 2) as both:
        for program in both:
            program.do("take 120", "has")
        began = time.monotonic()
        for program in both:
            program.say("work 6000")
        for program in both:
            program.expect("worked")
        took = time.monotonic() - began
        swaps = sum(program.shown()["swaps"] for program in both)
        # One exchange in a quantum, and not more; each has been out some times.
        t.check(3 <= swaps <= took + 3, f"{swaps} times in {took:.1f} s")
        for program in both:
            program.do("check", "right")
            t.check("is suspended, and goes on when it is resumed: another program needed" in program.finish(), "its user is told")


@t.test(100)
def who_wants_more_than_is_free_gets_it_from_one_that_is_idle():
    with serve() as server, programs(server, 3) as (first, second, third):
        first.do("take 90", "has")
        second.do("take 90", "has")
        time.sleep(0.3)
        second.do("check", "right")
        third.do("take 90", "has")  # the first one is idle for longest
        t.equal([program.is_out() for program in (first, second, third)], [True, False, False], "who is out")
        third.do("free", "freed")
        first.do("check", "right")
        t.equal([program.is_out() for program in (first, second, third)], [False, False, False], "who is out when there is room")
        # What a pool keeps is not there for others.
        third.do("pool 90", "kept")
        t.check(sum(program.is_out() for program in (first, second)) == 1, "one made room for what the pool keeps")
        first.do("check", "right")
        second.do("check", "right")


@t.test(100)
def what_does_not_fit_the_gpu_is_refused_and_seen():
    with serve("--gpu-memory=1G") as server, programs(server, 2) as (first, second):
        first.do("take 150", "has")
        second.do("take 220", "full")
        t.equal(first.is_out(), False, "nobody goes for what never fits")
        second.do("take 180", "has")
        first.do("check", "right")
        t.equal(second.shown()["limits"]["gpu-memory"]["limit"], 200 << 20, "the quota")


@t.test(100)
def host_memory_for_it_is_limited():
    with serve("--swap-memory=100M") as server, programs(server, 3) as (first, second, third):
        first.do("take 90", "has")
        second.do("take 90", "has")
        third.do("take 80", "has")
        t.equal(server.status()["limits"]["swap-memory"], {"used": 90 << 20, "limit": 100 << 20}, "swap-memory")
        third.do("take 30", "full")
        t.check("cannot be put out (overcommit = swap)" in server.log(), server.log()[-2000:])
        # Those that are there go on, and whoever is out comes back for another.
        for program in (first, second, third):
            program.do("check", "right")
        t.check("were refused: other programs have it" in third.finish(), "its user is told")


@t.test(200, trees=("plain", "asan"))
def the_end_of_any_of_them_leaves_nothing():
    with serve() as server:
        for way in ("kill", "worker", "end"):
            for which in ("in", "out", "waits"):
                with programs(server, 2) as (first, second):
                    first.do("take 150", "has")
                    second.do("take 150", "has")
                    t.wait_until(first.is_out, 10, "the first one is out")
                    victim = second if which == "in" else first
                    if which == "waits":
                        second.say("work 1500")
                        first.say("check")
                        time.sleep(0.1)
                    if way == "kill":
                        victim.process.send_signal(signal.SIGKILL)
                    elif way == "worker":
                        os.kill(victim.shown()["worker_pid"], signal.SIGKILL)
                    else:
                        t.equal(order(server, "end", victim.session).returncode, 0, "exit code of towline end")
                    t.wait_until(lambda: len(server.status()["sessions"]) == 1, 10, f"{way} {which}: one session is left")
                    rest = first if victim is second else second
                    if which == "waits":
                        rest.expect("worked")
                    rest.do("check", "right")
                    rest.finish()
                t.wait_until(lambda: not server.status()["sessions"], 10, "none is left")
                t.equal(server.status()["limits"]["swap-memory"]["used"], 0, "what is kept")


@t.test(100)
def orders_meet_it():
    with serve() as server, programs(server, 2) as (first, second):
        first.do("take 150", "has")
        second.do("take 150", "has")
        t.wait_until(first.is_out, 10, "the first one is out")
        # Whoever asks for it keeps it out.
        done = order(server, "suspend", first.session)
        t.check(done.returncode == 0 and "has suspended" in done.stdout, done)
        t.check("towline suspend" in first.shown()["suspended_by"], first.shown())
        first.say("check")
        time.sleep(1.5)
        t.equal(first.is_out(), True, "it is not called back")
        done = order(server, "resume", first.session)
        t.check(done.returncode == 0 and "has resumed" in done.stdout, done)
        first.expect("right")
        t.wait_until(second.is_out, 10, "the second one made room for it")
        done = order(server, "resume", second.session)
        t.check(done.returncode == 0, done)
        t.equal(second.is_out(), False, "it is back")


@t.test(100)
def one_with_a_lease_gives_way_while_it_is_out():
    with serve("--max-sessions=2", "--lease=1") as server, programs(server, 2) as (first, second):
        first.do("take 150", "has")
        second.do("take 150", "has")
        t.wait_until(first.is_out, 10, "the first one is out")
        with Program(server, "--wait", "20") as third:
            t.equal(len(server.status()["sessions"]), 2, "sessions")
            third.do("take 100", "has")
            third.do("check", "right")


@t.test(100)
def nobody_has_the_gpu_alone_while_others_are_only_out():
    with serve("--exclusive=may") as server, programs(server, 2) as (first, second):
        first.do("take 150", "has")
        second.do("take 150", "has")
        t.wait_until(first.is_out, 10, "the first one is out")
        second.finish()
        t.wait_until(lambda: len(server.status()["sessions"]) == 1, 10, "one session is left")
        program = t.build_c(HELPERS / "swapped.c", ["-lcuda"], "swapped")
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--exclusive", "--no-wait", "--", program], 60)
        t.check(done.returncode != 0 and "cannot be had alone" in done.stdout + done.stderr, done)
        first.do("check", "right")


@t.test(60, waits=True)
def one_that_is_out_ends_when_it_was_idle_for_too_long():
    with serve("--session-idle=5") as server, programs(server, 2) as (first, second):
        first.do("take 150", "has")
        second.do("take 150", "has")
        t.wait_until(first.is_out, 10, "the first one is out")
        t.wait_until(lambda: "may be idle for 5 s" in server.log(), 20, "it has ended")


@t.test(60)
def drained_servers_serve_those_that_are_out():
    with serve() as server, programs(server, 2) as (first, second):
        first.do("take 150", "has")
        second.do("take 150", "has")
        t.wait_until(first.is_out, 10, "the first one is out")
        t.equal(t.run([t.TOWLINED, "drain", f"--listen={server.address()}"], 30).returncode, 0, "exit code of towlined drain")
        first.do("check", "right")
        second.do("check", "right")
        first.finish()
        second.finish()
        t.wait_until(lambda: server.process.poll() is not None, 20, "the server has ended")


if __name__ == "__main__":
    t.main()
