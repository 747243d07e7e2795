#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns at computing: what programs get of the software GPU's time, by what its threads used; who holds whom up, and who does not."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
# One thread, as a GPU is one; programs of one user do not get less of the cores than others (soft-fair).
TIME = ("--scheduler=time", "--soft-threads=1", "--soft-fair=0")
WINDOWS = 5
WITHIN = 0.06  # of what the weights say: the machine gives threads what it likes
KERNELS = ("kernels", 4000 // t.SLOW)


def program():
    return t.build_c(HELPERS / "busy.c", ["-lcuda"], "busy")


@contextlib.contextmanager
def busy(server, *flags, words=KERNELS, kind="unix", fails=False):
    """A program that computes until the end of this; its results are right."""
    command = [t.TOWLINE, "run", "-s", server.address(kind), *flags, "--", program(), *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=t.clean_environment()) as process:
        try:
            t.check(process.stdout.readline() == "ready\n", f"the program has ended:\n{server.log()[-2000:]}")
            yield process
        finally:
            process.stdin.close()
            said = process.stdout.read()
            code = process.wait(timeout=100 * t.SLOW)
        t.check(fails or (code == 0 and " done\n" in said), f"{words}: exit code {code}: {said}\n{server.log()[-2000:]}")


class Looked:
    """What sessions had between two looks, in the order of their numbers."""

    def __init__(self, server):
        self.server = server
        self.before = self.look()

    def look(self):
        return sorted(self.server.status()["sessions"], key=lambda one: one["id"])

    def until(self, gpu_s):
        """Until their GPU time is more by so much, all together."""
        def enough():
            self.after = self.look()
            return sum(self.gpu()) >= gpu_s
        t.wait_until(enough, 100, f"{gpu_s} s of GPU time have gone by")
        return self

    def grown(self, of):
        return [of(after) - of(before) for before, after in zip(self.before, self.after)]

    def gpu(self):
        return self.grown(lambda one: one["gpu_s"])

    def had(self):
        return self.grown(lambda one: one["turns"]["had_s"])

    def waited(self):
        return self.grown(lambda one: one["turns"]["waited_s"])

    def age(self):
        return self.grown(lambda one: one["age_s"])


def parts(numbers):
    return [number / sum(numbers) for number in numbers]


def take_turns(server):
    t.wait_until(lambda: all(one["turns"]["had_s"] > 0 for one in server.status()["sessions"]), 30, "all of them take turns")


def in_a_window(server, gpu_s, fits):
    """What they got fits in one of a few windows: others may keep this machine too busy in some."""
    said = []
    for _ in range(WINDOWS):
        good, text = fits(Looked(server).until(gpu_s))
        print(text)
        if good:
            return
        said.append(text)
    raise AssertionError("; ".join(said))


def near(server, gpu_s, sums, wanted, what):
    """Without turns it would be equal parts in all windows."""
    def fits(looked):
        got = parts(sums(looked))
        good = all(abs(one - other) <= WITHIN for one, other in zip(got, parts(wanted)))
        return good, f"{what}: {', '.join(f'{part:.1%}' for part in got)}, to be as {wanted}"
    in_a_window(server, gpu_s, fits)


WEIGHTS = (((1, 1), ("unix", "shm")), ((1, 3), ("tcp", "unix")), ((1, 2, 5), ("unix", "tcp", "shm")))
for _weights, _kinds in t.drawn(WEIGHTS, 1):
    @t.test(240, alone=True, name="weights_" + "_".join(map(str, _weights)))
    def weights_hold(weights=_weights, kinds=_kinds):
        with t.Server(*TIME) as server, contextlib.ExitStack() as stack:
            for weight, kind in zip(weights, kinds):
                stack.enter_context(busy(server, f"--share={10 * weight}", kind=kind))
            take_turns(server)
            near(server, 2.5, Looked.gpu, weights, f"weights {weights}")


@t.test(240, alone=True)
def graphs_count_by_their_time():
    """One gives the GPU graphs, the other waits for each kernel."""
    with t.Server(*TIME) as server, busy(server, "--share=25", words=("graphs", 4000)), busy(server, "--share=75"):
        take_turns(server)
        near(server, 2.5, Looked.gpu, (1, 3), "graphs beside kernels")


@t.test(120)
def what_runs_may_wait_for_what_is_submitted_later():
    """A kernel waits for a fill behind it; as kernels of this program took long before, no more than one is to be ahead."""
    waits = t.build_c(HELPERS / "suspended.c", ["-lcuda"], "suspended")
    command = [t.TOWLINE, "run", "-s", None, "--", waits, "kernel"]
    with t.Server(*TIME, "--soft-threads=2") as server, busy(server):
        command[3] = server.address()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=t.clean_environment()) as process:
            try:
                for _ in range(4):
                    t.equal(process.stdout.readline(), "ready\n", "what it says when its kernel waits")
                    looked = Looked(server)
                    t.wait_until(lambda: max(looked.until(0).age()) > 0.3, 20, "0.3 s have gone by")
                    process.stdin.write("\n")
                    process.stdin.flush()
                    t.equal(process.stdout.readline(), "ended\n", "what it says when its kernel has ended")
                process.stdin.close()
                t.equal(process.wait(timeout=60), 0, "its exit code")
            finally:
                process.kill()


@t.test(120, trees=("plain", "asan", "tsan"))
def copies_take_turns():
    with t.Server(*TIME) as server:
        for kind in ("unix", "tcp", "shm"):
            with busy(server, words=("copies", 8 // t.SLOW or 1), kind=kind), busy(server):
                t.wait_until(lambda: all(one["turns"]["had_s"] > 0.05 and one["turns"]["waited_s"] > 0.05 for one in server.status()["sessions"]), 60,
                             f"{kind}: copies and kernels wait for each other")


@contextlib.contextmanager
def configured(text):
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text(text)
        with t.Server(f"--config={config}", "--soft-threads=1", "--soft-fair=0") as server:
            yield server


@t.test(120, alone=True)
def a_percentage_holds_on_an_idle_card():
    with configured("scheduler = time\ncompute = 30\n") as server, busy(server):
        take_turns(server)
        def fits(looked):
            had, gpu = looked.had()[0] / looked.age()[0], looked.gpu()[0] / looked.age()[0]
            return 0.27 <= had <= 0.33 and gpu <= 0.35, f"its turns took {had:.1%}, its kernels {gpu:.1%}"
        in_a_window(server, 1.2, fits)


CLASSES = """scheduler = time
[class far]
networks = 127.0.0.0/8
%s
[class default]
%s
"""


@t.test(120, alone=True)
def a_percentage_holds_beside_others_who_get_the_rest():
    with configured(CLASSES % ("compute = 30", "share = 1")) as server, busy(server, kind="tcp"), busy(server):
        take_turns(server)
        def fits(looked):
            had = [one / age for one, age in zip(looked.had(), looked.age())]
            # Its weight is 100 times that of the other.
            return 0.27 <= had[0] <= 0.33 and had[1] >= 0.6, f"turns took {had[0]:.1%} and {had[1]:.1%}"
        in_a_window(server, 2, fits)


@t.test(120, alone=True)
def a_higher_priority_goes_first():
    """The higher one ends first: the other would not for long."""
    with configured(CLASSES % ("priority = high", "priority = low")) as server, busy(server), busy(server, kind="tcp"):
        t.wait_until(lambda: all(one["turns"]["had_s"] + one["turns"]["waited_s"] > 0 for one in server.status()["sessions"]), 30, "both are there")
        low, high = parts(Looked(server).until(2).had())
        t.check(high > 0.85 and low > 0, f"the higher one got {high:.1%}, the lower one {low:.1%}")


@t.test(120)
def who_is_alone_takes_no_turns():
    with t.Server(*TIME, "--log=server=debug") as server, busy(server):
        Looked(server).until(1)
        t.check(server.status()["sessions"][0]["turns"] == {"share": 100, "compute": 0, "had_s": 0, "waited_s": 0}, server.status()["sessions"])
        t.check("takes turns" not in server.log() and "take turns" not in server.log(), server.log())
        with busy(server):
            take_turns(server)
        t.wait_until(lambda: len(server.status()["sessions"]) == 1 and Looked(server).until(0.3).had() == [0], 60, "the one that is left takes no turns")
        t.check("nobody takes turns" in server.log(), server.log())


@t.test(120, trees=("plain", "asan", "tsan"))
def the_turn_of_one_that_is_killed_goes_on():
    with t.Server(*TIME) as server, busy(server, "--share=1") as stays:
        with busy(server, fails=True):
            take_turns(server)
            os.kill(max(server.status()["sessions"], key=lambda one: one["id"])["worker_pid"], signal.SIGKILL)
            t.wait_until(lambda: len(server.status()["sessions"]) == 1, 20, "its session has ended")
            looked = Looked(server).until(0.5)
            t.check(looked.waited()[0] < 0.25, f"the other one waited for {looked.waited()[0]:.2f} s")
        t.check(stays.poll() is None, "the other one goes on")


@t.test(120, alone=True)
def one_that_is_stopped_holds_nobody_up():
    with t.Server(*TIME) as server, busy(server, "--share=1"), busy(server):
        take_turns(server)
        stopped = max(server.status()["sessions"], key=lambda one: one["id"])["worker_pid"]
        os.kill(stopped, signal.SIGSTOP)
        try:
            looked = Looked(server).until(1)
            t.check(looked.waited()[0] < 0.3, f"the other one waited for {looked.waited()[0]:.2f} s")
        finally:
            os.kill(stopped, signal.SIGCONT)
        Looked(server).until(0.5)


@t.test(60)
def programs_ask_for_less_and_never_get_more():
    with configured("scheduler = time\nshare = 50\n") as server:
        for flags, wanted in ((("--share=20",), 20), (("--share=50",), 50), (("--share=1000",), 50), ((), 50)):
            with busy(server, *flags):
                t.equal(server.status()["sessions"][0]["turns"]["share"], wanted, f"the share with {flags}")
            t.wait_until(lambda: not server.status()["sessions"], 20, "it has ended")
    for word in ("0", "1001", "-1", "many"):
        done = t.run([t.TOWLINE, "run", f"--share={word}", "--", "true"])
        t.equal((done.returncode, done.stderr), (2, f"towline: --share={word} cannot be; write a number from 1 to 1000.\n"), "a share that cannot be")


@t.test(60)
def settings_that_cannot_be_are_named():
    for text, said in (
            ("scheduler = fair\n", ":1: scheduler = fair cannot be; write one of none|time"),
            ("scheduler = time\nshare = 0\n", ":2: share = 0 is too small; write a number from 1 to 1000"),
            ("scheduler = time\n[class a]\nshare = 1001\n", ":3: share = 1001 is too large; the most is 1000"),
            ("scheduler = time\n[class a]\ncompute = 101\n", ":3: compute = 101 is too large; the most is 100"),
            ("[class a]\ngpu-memory = 1G\nshare = 2\n",
             ":1: class a: share holds only where sessions take turns; write scheduler = time above the first section"),
            ("[class a]\ncompute = 20\n", ":1: class a: compute holds only where sessions take turns; write scheduler = time above the first section"),
            ("compute = 20\n", "compute holds only where sessions take turns; write scheduler = time")):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
            config.write(text)
            config.flush()
            done = t.run([t.TOWLINED, f"--config={config.name}", "--device=soft"])
            t.check(done.returncode != 0 and said in done.stderr, f"{text!r}: {done.stderr}")


if __name__ == "__main__":
    t.main()
