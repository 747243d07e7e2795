#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Waiting in line: where there is no room programs wait in order, say where they stand, and go when they are told to."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402
from towtest import configured  # noqa: E402

FULL = "it serves as many programs as it may"
# Python notes SIGINT, and looks at the note when the call is over.
INIT = "import ctypes as c, sys; cu = c.CDLL('libcuda.so.1'); print('begun', cu.cuInit(0), flush=True); sys.stdin.read()"


class Waiter:
    """A program that wants a session; it lasts until its input ends."""

    def __init__(self, server, *flags, kind="unix", command=None, **env):
        command = command or ["python3", "-c", INIT]
        self.process = subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(kind), *flags, "--", *t.preloaded(), *command], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            end.close()

    def rest(self):
        """What else it says until it ends."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=60 * t.SLOW)
        return self.process.stdout.read(), self.process.stderr.read()

    def stands(self, place, of, why):
        said = ""
        while f"place {place} of {of} ({why})" not in said:
            said = self.process.stderr.readline()
            t.check("waits in line at " in said, f"place {place} of {of} is not said: {said!r}")

    def begins(self):
        t.equal(self.process.stdout.readline(), "begun 0\n", "what it says when it has a session")

    def ends(self):
        self.process.stdin.close()
        self.process.wait(timeout=60 * t.SLOW)


def line_of(server):
    return [(one["place"], one["of"], one["for"], one["priority"]) for one in server.status()["line"]]


@t.test(120, trees=("plain", "asan"))
def programs_wait_in_order_and_say_where():
    with t.Server("--max-sessions=1") as server, contextlib.ExitStack() as stack:
        holder = stack.enter_context(Waiter(server))
        holder.begins()
        low = stack.enter_context(Waiter(server, "--priority", "low", kind="tcp"))
        low.stands(1, 1, FULL)
        first = stack.enter_context(Waiter(server, kind="shm"))
        first.stands(1, 2, FULL)
        low.stands(2, 2, FULL)
        second = stack.enter_context(Waiter(server))
        second.stands(2, 3, FULL)
        low.stands(3, 3, FULL)
        t.equal(line_of(server), [(1, 3, "max-sessions", "normal"), (2, 3, "max-sessions", "normal"), (3, 3, "max-sessions", "low")], "the line in the report")
        shown = t.run([t.TOWLINE, "status", "-s", server.address()]).stdout
        t.check(re.search(r"IN LINE .*\n +1 +user \d+ .*\n +2 .*\n +3 +127.0.0.1 +- +low", shown), shown)
        # One that dies leaves at once, however it dies.
        first.process.kill()
        low.stands(2, 2, FULL)
        second.stands(1, 2, FULL)
        holder.ends()
        second.begins()
        low.stands(1, 1, FULL)
        second.ends()
        low.begins()
        low.ends()
        t.equal(server.status()["line"], [], "the line at the end")


@t.test(120)
def who_does_not_wait_is_told_so_at_once():
    with t.Server("--max-sessions=1") as server, t.held(server, "poll"):
        for kind in ("unix", "tcp", "shm"):
            start = time.monotonic()
            with Waiter(server, "--no-wait", kind=kind) as one:
                out, err = one.rest()
                t.check("refuses: the server is full: it serves 1 programs already" in err and "waits in line" not in err, f"{kind}: {err}")
                t.check(time.monotonic() - start < 8 * t.SLOW, f"{kind}: it took {time.monotonic() - start} s")
            with Waiter(server, "--wait", "1s", kind=kind) as one:
                out, err = one.rest()
                t.check("place 1 of 1" in err and "(it has waited in line for " in err and "trying again" not in err, f"{kind}: {err}")


@t.test(120)
def ctrl_c_ends_the_wait_at_once():
    """Of a program without a handler, and of Python, which has one: it must not wait for the call to end."""
    begin = "import ctypes as c, numbers; cu = c.CDLL('libcuda.so.1')\ntry: print('begun', cu.cuInit(0))\nexcept KeyboardInterrupt: print('kept')"
    hold = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "hold.c", ["-lcuda"], "hold")
    with t.Server("--max-sessions=1") as server, t.held(server, "poll"):
        kinds = ("unix", "tcp", "shm")
        for kind in kinds:
            for command in ([str(hold), "poll"], ["python3", "-c", begin], ["python3", "-c", "import threading as h; "
                            "h.Thread(target=h.Event().wait, daemon=True).start()\n" + begin]):
                with Waiter(server, kind=kind, command=command) as one:
                    one.stands(1, 1, FULL)
                    start = time.monotonic()
                    one.process.send_signal(signal.SIGINT)
                    out, err = one.rest()
                    took = time.monotonic() - start
                    t.check(took < 2 * t.SLOW, f"{kind} {command}: it took {took} s")
                    if command[0] == "python3":
                        t.check("kept" in out and "was interrupted while it waited in line" in err, f"{kind}: {out!r} {err!r}")
                    else:
                        t.equal(one.process.returncode, -signal.SIGINT, "the exit code")
                t.wait_until(lambda: not server.status()["line"], 10, "it has left the line")


@t.test(120)
def the_gpu_is_had_alone():
    with configured("exclusive = may\n") as server:
        for kind in ("unix", "tcp", "shm"):
            with Waiter(server) as beside:
                beside.begins()
                with Waiter(server, "--exclusive", kind=kind) as alone:
                    alone.stands(1, 1, "others use the GPU, which this program wants alone")
                    with Waiter(server, kind=kind) as behind:
                        behind.stands(2, 2, "others wait before you")
                        beside.ends()
                        alone.begins()
                        behind.stands(1, 1, "somebody has the GPU alone")
                        t.equal(len(server.status()["sessions"]), 1, "sessions")
                        alone.ends()
                        behind.begins()
    with t.Server() as server, Waiter(server, "--exclusive") as one:
        out, err = one.rest()
        t.check("may not have the GPU for itself alone" in err and "exclusive = may above the classes" in err, err)
    done = t.run([t.TOWLINE, "run", "--device", "soft", "-q", "--exclusive", "--", "python3", "-c", INIT], env=t.clean_environment())
    t.equal((done.stdout, done.stderr), ("begun 0\n", ""), "of one's own server one has all")


@t.test(120)
def a_line_over_tls():
    t.need_tls()
    with t.TlsServer("--max-sessions=1") as server, Waiter(server, **server.settings) as holder:
        holder.begins()
        with Waiter(server, kind="tls", **server.settings) as one:
            one.stands(1, 1, FULL)
            holder.ends()
            one.begins()


@t.test(120)
def promised_memory_is_waited_for():
    config = "overcommit = no\ngpu-memory = 768M\n[class all]\nnetworks = 127.0.0.1\ngpu-memory = 0\n"
    with configured(config) as server, contextlib.ExitStack() as stack:
        one, two = [stack.enter_context(Waiter(server)) for _ in range(2)]
        one.begins(), two.begins()
        three = stack.enter_context(Waiter(server))
        three.stands(1, 1, "the GPU's memory is promised to others")
        less = stack.enter_context(Waiter(server, "--gpu-memory", "256M", "--no-wait"))
        t.check("other programs wait in line already" in less.rest()[1], "nobody is overtaken")
        one.ends()
        three.begins()
        # One without a quota gets what is left of 2 GiB.
        seen = t.towline_run(server.address("tcp"), ["python3", "-c", "import ctypes as c; cu = c.CDLL('libcuda.so.1'); n = c.c_size_t(); cu.cuInit(0);"
                             "cu.cuDeviceTotalMem_v2(c.byref(n), 0); print(n.value >> 20)"])
        t.equal(seen.stdout, "512\n", f"what is left: {seen.stderr}")


@t.test(120)
def a_lease_ends_for_who_waits():
    with configured("[class default]\nmax-sessions = 1\nlease = 2s\n") as server, Waiter(server) as one:
        one.begins()
        time.sleep(2.5)
        t.equal(one.process.poll(), None, "one that nobody waits for")
        with Waiter(server) as two:
            two.stands(1, 1, "as many programs of your class run as may")
            two.begins()
            t.check(re.search("ended: others wait, and it has had the GPU for longer than the 2 s", server.log()), server.log())


@t.test(120)
def classes_change_while_programs_wait():
    with configured("[class default]\nmax-sessions = 1\n") as server, Waiter(server) as one, Waiter(server) as two:
        t.wait_until(lambda: len(server.status()["line"]) == 1, 20, "one of them waits")
        server.config.write_text("[class default]\nmax-sessions = 2\n")
        server.process.send_signal(signal.SIGHUP)
        one.begins(), two.begins()
        with Waiter(server) as three:
            three.stands(1, 1, "as many programs of your class run as may")
            server.config.write_text("[class default]\nmax-sessions = 0\n")
            server.process.send_signal(signal.SIGHUP)
            out, err = three.rest()
            t.check("class default is closed" in err, err)
        t.equal((one.process.poll(), two.process.poll()), (None, None), "who has a session keeps it")


@t.test(60)
def what_is_asked_for_is_understood_or_named():
    for flags, env, said in ((["--wait", "soon"], {}, "--wait=soon is no time; write for example --wait 10m"),
                             (["--priority", "urgent"], {}, "--priority=urgent is none; write low, normal or high"),
                             ([], {"TOWLINE_WAIT": "1w"}, "TOWLINE_WAIT=1w is not understood; write 90, 10m, 2h or 1d; 0: not at all"),
                             ([], {"TOWLINE_EXCLUSIVE": "yes"}, "TOWLINE_EXCLUSIVE=yes is not understood; write 1 or 0")):
        done = t.run([t.TOWLINE, "run", *flags, "--", "true"], env=t.clean_environment(**env))
        t.check(done.returncode == 2 and said in done.stderr, f"{flags} {env}: {done.stderr}")


# ---- the guide ----

def guide_config(title):
    """The config of a situation, for a GPU that has 25 MiB where the guide's has 1 GiB, and with sockets of the test's own."""
    page = (t.ROOT / "docs" / "guide" / "sharing.md").read_text()
    block = page.split(f"## {title}\n")[1].split("    # /etc/towline/towlined.conf\n")[1]
    block = re.match(r"(?:    [^\n]*\n|\n)+", block)[0]
    lines = [line[4:] for line in block.splitlines() if not re.match(" *(listen|usage-file) =", line)]
    return re.sub(r"(gpu-memory = )(\d+)G", lambda match: f"{match[1]}{int(match[2]) * 25}M", "\n".join(lines) + "\n")


@t.test(120)
def the_lab_of_the_guide_works():
    text = guide_config("A lab of eight")
    t.check("gpu-memory = 450M" in text and "lease = 12h" in text, text)
    with configured(text.replace("sessions-per-peer = 2", "sessions-per-peer = 8"), "--soft-memory=2000M") as server, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(Waiter(server)).begins()
        fifth = stack.enter_context(Waiter(server, kind="tcp"))
        fifth.stands(1, 1, "the GPU's memory is promised to others")
    with configured(text, "--soft-memory=2000M") as server, Waiter(server) as one, Waiter(server) as two:
        one.begins(), two.begins()
        with Waiter(server) as three, Waiter(server, "--exclusive", kind="tcp") as alone:
            three.stands(1, 1, "as many programs of yours run as may")
            alone.stands(1, 1, "others use the GPU, which this program wants alone")


@t.test(120)
def the_build_farm_of_the_guide_works():
    text = guide_config("A build farm")
    t.check("[class bench]" in text and "gpu-memory = 50M" in text, text)
    with tempfile.TemporaryDirectory(prefix="tow") as folder, configured(text, f"--token-file={folder}/tokens", "--soft-memory=2000M") as server:
        def token(name):
            made = t.run([t.TOWLINED, "token", "create", "--user", f"ci-{name}", "--class", name, "--token-file", f"{folder}/tokens"])
            t.equal(made.returncode, 0, made.stderr)
            return {"TOWLINE_TOKEN": made.stdout.strip()}
        tests, release, bench = token("tests"), token("release"), token("bench")
        with contextlib.ExitStack() as stack:
            test = stack.enter_context(Waiter(server, kind="tcp", **tests))
            test.begins()
            alone = stack.enter_context(Waiter(server, kind="tcp", **bench))
            alone.stands(1, 1, "others use the GPU, which this program wants alone")
            with Waiter(server, kind="tcp", **tests) as more, Waiter(server, kind="tcp", **release) as urgent:
                urgent.begins()  # it goes before the benchmark
                more.stands(2, 2, "others wait before you")
                urgent.ends()
                test.ends()
                alone.begins()
                t.equal(len(server.status()["sessions"]), 1, "sessions beside the benchmark")
                alone.ends()
                more.begins()


if __name__ == "__main__":
    t.main()
