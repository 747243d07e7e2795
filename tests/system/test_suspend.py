#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions that are suspended and resumed: programs go on as if nothing were, their GPU memory is others' meanwhile, and what runs
for too long goes on. Conformance cases and examples, with their memory put out and in every few commands."""

import contextlib
import errno
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test_conform  # noqa: E402
import test_examples  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

t._tests.clear()  # theirs run from their own files

HELPERS = t.ROOT / "tests" / "system" / "helpers"
KINDS = ("unix", "shm", "tcp")
WAITS = "is suspended, and goes on when it is resumed: "
# Its kernel has failed before the callback is given, so that the callback is refused, as by any driver.
TOO_LATE = "stream_error_reaches_callbacks"


class Program:
    """One that does something for each line it is sent."""

    def __init__(self, server, *words, kind="unix", env=None, source="suspended", ready=True):
        program = t.build_c(HELPERS / f"{source}.c", ["-lcuda"], source)
        self.server = server
        self.process = subprocess.Popen([t.TOWLINE, "run", "-s", server.address(kind), "--no-check", "--", program, *map(str, words)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=t.clean_environment(**(env or {})))
        if ready:
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

    def say(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def expect(self, line):
        got = self.process.stdout.readline()
        t.equal(got, line + "\n", f"what the program says ({self.server.log()[-2000:]})")

    def shown(self):
        return next(session for session in self.server.status()["sessions"] if session["id"] == self.session)

    def finish(self):
        """The rest of its stderr; it ends well."""
        self.process.stdin.close()
        self.process.stdin = None
        _, err = self.process.communicate(timeout=60 * t.SLOW)
        t.equal(self.process.returncode, 0, f"exit code: {err}")
        return err


def order(server, what, session, *words, address=None):
    return t.run([t.TOWLINE, what, "-s", address or server.address(), *map(str, words), str(session)], 100)


def suspend(server, session, *words):
    done = order(server, "suspend", session, *words)
    t.check(done.returncode == 0 and f"has suspended session {session}" in done.stdout, f"{done}\n{server.log()[-2000:]}")


def resume(server, session):
    done = order(server, "resume", session)
    t.check(done.returncode == 0 and f"has resumed session {session}" in done.stdout, f"{done}\n{server.log()[-2000:]}")


def refused(done, *words):
    t.equal(done.returncode, 1, f"exit code: {done}")
    t.check(done.stderr.count("\n") == 1 and all(word in done.stderr for word in words), done.stderr)


def used(server):
    return sum(sum(session["used"]) for session in server.status()["sessions"])


for _kind in KINDS:
    @t.test(100, trees=("plain", "asan", "tsan"), name=f"its_memory_is_free_and_then_as_before_{_kind}")
    def memory(kind=_kind):
        with t.Server() as server, Program(server, "hold", 96, kind=kind) as program:
            before = program.shown()
            t.equal((before["state"], before["memory"], before["suspends"]), ("running", 96 << 20, 0), "the session before")
            for round in range(1, 4):
                suspend(server, program.session)
                shown = program.shown()
                t.equal((shown["state"], shown["memory"], sum(shown["used"]), shown["saved"], shown["suspends"]),
                        ("suspended", 0, 0, 96 << 20, round), "the session while it is suspended")
                t.check("user " in shown["suspended_by"] and shown["suspended_s"] >= 0, shown)
                program.say()
                resume(server, program.session)
                program.expect("right")
                shown = program.shown()
                t.equal((shown["state"], shown["memory"], shown["used"]), ("running", before["memory"], before["used"]), "the session after")
            program.finish()


@t.test(60)
def the_program_is_told_when_it_waits():
    with t.Server() as server, Program(server, "hold", 2) as program:
        suspend(server, program.session)
        text = t.run([t.TOWLINE, "status", "-s", server.address()]).stdout
        t.check(re.search(r"suspended for \d+ s: user \d+ asked for it \(towline suspend\); 2\.0 MiB are kept for it", text), text)
        top = t.run([t.TOWLINE, "top", "-s", server.address(), "--json", "--once", "--delay", "0.1"])
        t.check('"state":"suspended"' in top.stdout, top)
        program.say()
        line = program.process.stderr.readline()
        t.check(line.startswith(f"towline: session {program.session} {WAITS}user "), line)
        resume(server, program.session)
        program.expect("right")
        t.check(f"session {program.session} is resumed: the program goes on\n" in program.finish(), "it says that it goes on")


@t.test(60)
def one_that_waits_for_nothing_is_told_nothing():
    with t.Server() as server, Program(server, "hold", 2) as program:
        suspend(server, program.session)
        resume(server, program.session)
        program.say()
        program.expect("right")
        t.equal(program.finish(), "", "what the program has said on stderr")


@t.test(200, trees=("plain", "asan"))
def a_program_that_checks_everything_goes_on():
    """It is suspended at any moment, also in copies and host functions."""
    seed = t.commit_seed()
    draw = random.Random(seed)
    done = 0
    for kind in KINDS:
        with t.Server() as server, Program(server, 40, seed % 1000, kind=kind, source="checks", ready=False,
                                           env={"TOWLINE_LANES": "1"} if kind == "tcp" else None) as program:
            out = []
            reader = threading.Thread(target=lambda: out.append(program.process.communicate()))
            reader.start()
            while reader.is_alive():
                reader.join(draw.random() * 0.05)
                ids = [session["id"] for session in server.status()["sessions"]]
                if ids:
                    one = order(server, "suspend", ids[0], "--limit", 20)
                    done += one.returncode == 0
                    t.check(one.returncode == 0 or any(words in one.stderr for words in (
                        "it has ended", "you have no session", "has just come", "about to end")), one.stderr)
                    if one.returncode == 0:
                        order(server, "resume", ids[0])
            reader.join()
            wanted = "".join(f"round {i}\n" for i in range(40)) + "done\n"
            t.check(program.process.returncode == 0 and out[0][0] == wanted, f"{kind}, seed {seed}: {out}\n{server.log()[-2000:]}")
    t.check(done >= 6, f"it was suspended {done} times")
    print(f"suspended {done} times")


for _what, _name in (("kernel", "kernel spin runs"), ("hostfn", "a host function in a stream has not ended"),
                     ("value", "a stream waits for a value in memory")):
    @t.test(60, trees=("plain", "asan", "tsan"), name=f"what_keeps_it_is_named_and_it_goes_on_{_what}")
    def keeps(what=_what, name=_name):
        for kind in KINDS:
            with t.Server() as server, Program(server, what, kind=kind) as program:
                refused(order(server, "suspend", program.session, "--limit", 0), f"session {program.session} is not suspended: {name}")
                t.equal(program.shown()["state"], "running", "its state")
                program.say()
                program.expect("ended")
                program.expect("ready")
                # The order waits for what runs, and the program lets it end meanwhile.
                with subprocess.Popen([t.TOWLINE, "suspend", "-s", server.address(), str(program.session)]) as waiting:
                    t.wait_until(lambda: program.shown()["state"] == "suspending", 20, "the session is to be suspended")
                    refused(order(server, "resume", program.session), "being suspended or resumed just now")
                    program.say()
                    if what == "hostfn":
                        t.equal(waiting.wait(), 0, "exit code of towline suspend")
                        resume(server, program.session)
                        program.expect("ended")
                    else:
                        # The end is a command of the program's: it comes when the order has been given up.
                        waiting.terminate()
                        waiting.wait()


@t.test(120)
def memory_of_others_fits_meanwhile_and_it_comes_back_when_it_is_free():
    with t.Server("--gpu-memory=1200M", "--overcommit=no", memory="2G") as server, Program(server, "hold", 64) as first:
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--no-wait", "--", t.build_c(HELPERS / "suspended.c", ["-lcuda"], "suspended"),
                      "hold", "64"], 60)
        t.check(done.returncode != 0 and "promised to other programs" in done.stdout + done.stderr, done)
        suspend(server, first.session)
        with Program(server, "hold", 64) as other:
            refused(order(server, "resume", first.session), f"session {first.session} is not resumed: the GPU's memory is promised to other")
            t.equal(first.shown()["state"], "suspended", "the state of one that could not be resumed")
            suspend(server, other.session)
            t.equal(used(server), 0, "what is used of the GPU")
            resume(server, first.session)
            refused(order(server, "resume", other.session), "promised to other")
            first.say()
            first.expect("right")
            first.finish()
            t.wait_until(lambda: len(server.status()["sessions"]) == 1, 10, "the first one has ended")
            resume(server, other.session)
            other.say()
            other.expect("right")
            other.finish()


@t.test(60)
def who_has_it_alone_comes_back_alone():
    with t.Server("--exclusive=may") as server:
        program = t.build_c(HELPERS / "suspended.c", ["-lcuda"], "suspended")
        process = subprocess.Popen([t.TOWLINE, "run", "-s", server.address(), "--exclusive", "--", program, "hold", "1"], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=t.clean_environment())
        with process:
            t.equal(process.stdout.readline(), "ready\n", "what the first says")
            suspend(server, 1)
            with Program(server, "hold", 1) as other:
                refused(order(server, "resume", 1), "it had the GPU for itself alone (exclusive), and other programs use it")
                other.finish()
            t.wait_until(lambda: len(server.status()["sessions"]) == 1, 10, "the other one has ended")
            resume(server, 1)
            process.stdin.close()
        t.equal(process.returncode, 0, "exit code")


@t.test(60, waits=True)
def a_suspended_session_is_not_idle():
    with t.Server("--session-idle=5") as server, Program(server, "hold", 1) as program:
        suspend(server, program.session)
        t.wait_until(lambda: program.shown()["suspended_s"] > 7, 20, "more than the limit has passed")
        t.check(program.shown()["limits"]["session-idle"]["used"] <= 1, program.shown())
        resume(server, program.session)
        program.say()
        program.expect("right")


@t.test(100, trees=("plain", "asan"))
def its_end_leaves_nothing():
    for kind in KINDS:
        with t.Server() as server:
            for way in ("kill", "end", "interrupt", "worker", "resumed"):
                with Program(server, "hold", 32, kind=kind) as program:
                    suspend(server, program.session)
                    worker = program.shown()["worker_pid"]
                    program.say()  # it waits in a call
                    if way == "end":
                        t.equal(order(server, "end", program.session).returncode, 0, "exit code of towline end")
                        _, err = program.process.communicate(timeout=30 * t.SLOW)
                        t.check("asked for it (towline end)" in err, err)
                    elif way == "worker":
                        os.kill(worker, signal.SIGKILL)
                        program.process.communicate(timeout=30 * t.SLOW)
                    elif way == "resumed":
                        resume(server, program.session)
                        program.expect("right")
                        program.finish()
                    else:
                        # towline run becomes the program.
                        program.process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGINT)
                        program.process.wait(5 * t.SLOW)
                    t.wait_until(lambda: not server.status()["sessions"] and t.gone(worker), 10, f"{kind}, {way}: the session has ended")
                    refused(order(server, "resume", program.session), "you have no session")


@t.test(60)
def orders_meet_each_other():
    with t.Server() as server, Program(server, "hold", 64) as program:
        refused(order(server, "resume", program.session), "it is not suspended")
        orders = [subprocess.Popen([t.TOWLINE, "suspend", "-s", server.address(), str(program.session)], stderr=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True) for _ in range(5)]
        results = [one.communicate() + (one.returncode,) for one in orders]
        t.equal(sum(code == 0 for _, _, code in results), 1, f"orders that were carried out: {results}")
        t.check(all(code == 0 or "it is suspended already" in err or "just now" in err for _, err, code in results), results)
        refused(order(server, "suspend", program.session), "it is suspended already")
        resume(server, program.session)
        program.say()
        program.expect("right")
        # Whoever asks and goes away has asked.
        asked = subprocess.Popen([t.TOWLINE, "suspend", "-s", server.address(), str(program.session)])
        t.wait_until(lambda: program.shown()["state"] != "running", 10, "the order was taken")
        asked.kill()
        asked.wait()
        t.wait_until(lambda: program.shown()["state"] == "suspended", 10, "the session is suspended")
        order(server, "end", program.session)


@t.test(60)
def only_owner_and_administrators_may():
    with t.Server() as server, Program(server, "hold", 1, kind="tcp") as program:
        for what in ("suspend", "resume"):
            done = order(server, what, program.session, address=server.address("tcp"))
            refused(done, "on its machine, through its unix socket; run towline " + what + " there")
            refused(order(server, what, 77), f"you have no session 77; towline status shows those that you may {what}")
        if os.geteuid() == 0:
            def strange():
                if order(server, "suspend", program.session).returncode == 0:
                    raise PermissionError(errno.EPERM, "it was allowed")
            t.check(t.as_user(65534, strange) != "EPERM", "a stranger has suspended it")
        t.equal(program.shown()["state"], "running", "its state")
    done = t.run([t.TOWLINE, "suspend", "--limit", "x", "3"])
    t.check(done.returncode == 2 and "--limit is a number of seconds" in done.stderr, done)


@t.test(60)
def memory_that_others_have_is_not_put_out():
    with t.Server() as server:
        program = t.build_c(HELPERS / "suspended.c", ["-lcuda"], "suspended")
        process = subprocess.Popen([t.TOWLINE, "run", "-s", server.address(), "--", program, "shared"], text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=t.clean_environment())
        with process:
            t.equal(process.stdout.readline(), "ready\n", "what it says")
            refused(order(server, "suspend", 1), "session 1 is not suspended: it shares GPU memory with other programs")
            process.stdin.close()
        t.equal(process.returncode, 0, "exit code")


@t.test(60)
def on_an_old_driver_it_is_refused_with_a_sentence():
    """A driver of our own that has no checkpoints, as NVIDIA's before 570."""
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    with t.Server(device=str(driver)) as server, Program(server, "idle") as program:
        refused(order(server, "suspend", program.session), "the server's driver cannot suspend programs; NVIDIA's can from 570 on")
        t.equal(program.shown()["state"], "running", "its state")
        program.finish()


def suspends(server):
    return server.status()["totals"]["suspends"]


def conform(kind, every, names):
    with t.Server(f"--soft-suspend={every}") as server:
        done = t.towline_run(server.address(kind), [test_conform.build_driver(), *names, "--jobs", "2"], 280)
        t.check("passed," in done.stdout, f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        wanted = test_conform.expected(False)
        text = "".join(line for line in done.stdout.splitlines(True) if not line.startswith(TOO_LATE + ":"))
        test_conform.compare(text, wanted, False)
        t.check("were found" not in server.log(), server.log()[-3000:])
        t.check(suspends(server) > 100, f"{suspends(server)} times")
        print(f"{suspends(server)} times")


for _kind in t.drawn(KINDS, 1):
    @t.test(300, matrix="suspend", name=f"conformance_cases_{_kind}")
    def cases(kind=_kind):
        """The distance is drawn, and half of the families."""
        families = t.drawn(test_conform.QUICK, 2, "suspended")
        conform(kind, 2 + t.commit_seed() % 7, ("all",) if kind == "unix" and t.WHOLE else families)


@t.test(60)
def a_stream_that_is_held_for_long_costs_little_time():
    """In front of each second of 600 commands: the case holds the stream for 15 s at most."""
    conform("unix", 2, ("event_many_in_flight",))


# As test_examples.py does: it has them built.
for _name, _kind in [(_name, _kind) for _name in t.drawn(test_examples.names(), 2) for _kind in t.drawn(KINDS, 1, _name)]:
    @t.test(250, matrix="suspend", name=f"example_{_name}_{_kind}")
    def example(name=_name, kind=_kind):
        if not t.find_nvcc():
            raise t.Skip("nvcc is not installed")
        with t.Server(f"--soft-suspend={5 + t.commit_seed() % 11}") as server:
            done = t.run([test_examples.RUN, "--towline", t.TOWLINE, "--nvcc", t.find_nvcc(), "-s", server.address(kind), "--build-dir",
                          t.BUILD / "examples", "--only", name], 240)
            t.check(done.returncode == 0 and "1 passed, 0 failed" in done.stdout,
                    f"{name} over {kind}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")
            t.check(suspends(server) > 0, "it was never suspended")


if __name__ == "__main__":
    t.main()
