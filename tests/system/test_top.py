#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`towline top`: once, as JSON, and on a terminal; what `status` and `devices` show of GPUs."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = pathlib.Path(__file__).parent / "helpers"
MIB = 1 << 20


@contextlib.contextmanager
def holding(server, mode="leave", name="hold"):
    """A program of that name that holds 256 MiB of GPU memory and is idle, or launches without end."""
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    named = server.folder / name
    if not named.exists():
        named.symlink_to(program)
    with subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(), "--", str(named), mode], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=t.clean_environment()) as process:
        try:
            t.equal(process.stdout.readline(), b"ready\n", "what the program says")
            yield process
        finally:
            process.kill()


def top(*flags):
    done = t.run([t.TOWLINE, "top", "-d", "0.2", *flags])
    return done


def look(servers, *flags, code=0):
    done = top("-s", ",".join(servers), "--once", "--json", *flags)
    t.equal(done.returncode, code, f"the exit code of towline top ({done.stderr})")
    return json.loads(done.stdout)


class Terminal:
    """`towline top` on a terminal of so many lines and columns."""

    def __init__(self, *flags, lines=24, columns=100):
        self.ours, self.its = pty.openpty()
        self.before = termios.tcgetattr(self.its)
        self.resize(lines, columns)
        self.text = ""
        self.process = subprocess.Popen([str(t.TOWLINE), "top", "-d", "0.2", *flags], stdin=self.its, stdout=self.its, stderr=self.its,
                                        env={"TERM": "xterm", **t.clean_environment()}, start_new_session=True)

    def resize(self, lines, columns):
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys):
        os.write(self.ours, keys.encode())

    def screen(self):
        """The newest screen, without styles, as lines."""
        while select.select([self.ours], [], [], 0)[0]:
            self.text += os.read(self.ours, 1 << 16).decode()
        whole = self.text.split("\033[H")
        newest = whole[-1] if whole[-1].count("\033[K") >= 6 else whole[-2] if len(whole) > 1 else ""
        return [re.sub(r"\033\[[?0-9;]*[a-zA-Z]", "", line) for line in newest.split("\r\n")]

    def wait(self, wanted, what):
        def seen():
            return wanted("\n".join(self.screen()))
        try:
            t.wait_until(seen, 20 * t.SLOW, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n" + "\n".join(self.screen())) from None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.its)


@t.test(trees=("plain", "asan"))
def once_shows_gpus_sessions_and_who_is_lost():
    with t.Server("--soft-devices=2") as one, t.Server() as two, holding(one), holding(two, "launch", "busy"):
        servers = [one.address(), two.address()]
        done = top("-s", ",".join(servers + ["/nonexistent/sock"]), "--once")
        t.equal(done.returncode, 1, f"the exit code with a server that is lost ({done.stderr})")
        lines = done.stdout.splitlines()
        t.check(re.match(r"towline top [0-9:]{8}  2 sessions$", lines[0]), lines[0])
        t.equal([line.split()[1] for line in lines if line.startswith("GPU ")], ["0", "1", "2"], "the GPUs' numbers")
        t.check("/nonexistent/sock does not exist" in done.stdout, done.stdout)
        report = look(servers)
        shown = {session["program"]: session for session in report["sessions"]}
        t.equal(sorted(shown), ["busy", "hold"], "the programs")
        state = one.status()["sessions"][0]
        hold, busy = shown["hold"], shown["busy"]
        t.equal((hold["session"], hold["pid"], hold["memory"], hold["gpu"]), (state["id"], state["client_pid"], state["memory"], 0), "hold")
        t.equal((hold["tenant"], hold["from"]), (state["tenant"], state["peer"]), "whose hold is")
        t.equal((hold["calls_per_s"], hold["state"]), (0, "idle"), "what hold does")
        t.equal((busy["gpu"], busy["state"]), (2, "running"), "what busy does")
        t.check(busy["calls_per_s"] > 0 and busy["calls"] > 0, busy)
        t.equal([len(server["gpus"]) for server in report["servers"]], [2, 1], "GPUs")
        t.equal(report["servers"][0]["gpus"][0]["used"], state["used"][0], "what is used of the first GPU")
        t.check(report["servers"][0]["gpus"][0]["used"] >= 256 * MIB, report)


@t.test()
def sessions_are_sorted_and_filtered():
    with t.Server() as server, holding(server), holding(server, "launch", "busy"):
        order = lambda *flags: [s["program"] for s in look([server.address()], *flags)["sessions"]]  # noqa: E731
        t.equal(order("--sort", "calls"), ["busy", "hold"], "by calls")
        t.equal(order("--sort", "program"), ["busy", "hold"], "by program")
        t.equal(order("--sort", "memory"), ["hold", "busy"], "by memory")
        t.equal(order("--sort", "session"), ["hold", "busy"], "by session")
        t.equal(order("--filter", "BUS"), ["busy"], "with a filter")
        t.equal(order("--filter", "idle"), ["hold"], "with a state for a filter")
        t.equal(order("--filter", "nobody"), [], "with a filter that nothing has")


@t.test()
def json_goes_on_until_somebody_ends_it():
    with t.Server() as server, subprocess.Popen([str(t.TOWLINE), "top", "-s", server.address(), "--json", "-d", "0.1"],
                                                stdout=subprocess.PIPE, env=t.clean_environment()) as process:
        times = [json.loads(process.stdout.readline())["time_ms"] for _ in range(3)]
        t.check(times[0] < times[1] < times[2], times)
        process.kill()


@t.test(trees=("plain", "asan", "tsan"))
def a_terminal_shows_chooses_and_ends():
    with t.Server() as server, holding(server) as hold, holding(server, "launch", "busy"), Terminal("-s", server.address()) as screen:
        screen.wait(lambda text: all(word in text for word in ("2 sessions", "busy", "hold", "q quit")), "both sessions are shown")
        lines = screen.screen()
        t.equal(len(lines), 24, "the lines of the screen")
        t.check(max(map(len, lines)) <= 100, lines)
        t.check(lines[-1].startswith("q quit"), lines[-1])
        screen.press("/bu")
        screen.wait(lambda text: "filter: bu_" in text and '1 with "bu"' in text and "hold" not in text, "the filter holds")
        screen.press("\033")  # forgets it
        screen.wait(lambda text: "hold" in text and "filter:" not in text.splitlines()[-1], "all are shown again")
        screen.press("en")
        screen.wait(lambda text: text.splitlines()[-1].startswith("q quit"), "no is no")
        t.equal(len(server.status()["sessions"]), 2, "sessions")
        screen.press("\033[B\033[Ae")  # down and up: the first, which holds most memory
        screen.wait(lambda text: "(hold)?" in text.splitlines()[-1], "somebody is asked")
        screen.press("y")
        screen.wait(lambda text: "1 session" in text.splitlines()[0] and "hold" not in "\n".join(text.splitlines()[1:-1]), "the session has gone")
        t.equal([s["client"] for s in server.status()["sessions"]], ["busy"], "what is left")
        t.equal(hold.poll(), None, "the program's own end")
        screen.resize(12, 60)
        os.kill(screen.process.pid, signal.SIGWINCH)
        screen.wait(lambda text: len(text.splitlines()) == 12 and max(map(len, text.splitlines())) <= 60 and "busy" in text, "a smaller screen")
        screen.press("q")
        t.equal(screen.process.wait(20), 0, "the exit code")
        screen.screen()
        t.check(screen.text.endswith("\033[?7h\033[?25h\033[?1049l"), screen.text[-40:])
        t.equal(termios.tcgetattr(screen.its), screen.before, "the terminal as it was")


@t.test(waits=True)
def a_server_that_is_lost_comes_again():
    with Terminal("-s", "/nonexistent/sock") as screen:
        screen.wait(lambda text: "/nonexistent/sock does not exist" in text, "the reason")
        os.kill(screen.process.pid, signal.SIGTERM)
        t.equal(screen.process.wait(20), 0, "the exit code after SIGTERM")
        screen.screen()
        t.check(screen.text.endswith("\033[?7h\033[?25h\033[?1049l"), screen.text[-40:])
    with t.Server() as server, Terminal("-s", server.address("tcp")) as screen:
        screen.wait(lambda text: "GPU 0" in text, "the GPU")
        os.kill(server.listener, signal.SIGSTOP)
        screen.wait(lambda text: "GPU 0" not in text and "nothing" in text, "a server that says nothing")
        os.kill(server.listener, signal.SIGCONT)
        screen.wait(lambda text: "GPU 0" in text, "the GPU again")


@t.test()
def what_is_wrong_is_said():
    for words, said in ((["--sort", "size"], '"size"'), (["-d", "0"], '"0"'), (["-d", "soon"], '"soon"'), ([], "--once")):
        done = t.run([t.TOWLINE, "top", "-s", "/nonexistent/sock", *words])
        t.equal(done.returncode, 2, f"the exit code of towline top {words}")
        t.check(said in done.stderr and done.stderr.count("\n") == 1, done.stderr)


@t.test()
def gpus_are_numbered_over_all_servers():
    with t.Server("--soft-devices=2") as one, t.Server() as two, holding(two):
        servers = f"{one.address()},{two.address()}"
        done = t.run([t.TOWLINE, "devices", "-s", servers])
        t.equal(re.findall(r"^  (\d)  Towline Software GPU.* free\)", done.stdout, re.M), ["0", "1", "2"], "the numbers")
        done = t.run([t.TOWLINE, "status", "-s", servers])
        gpus = re.findall(r"^GPU (\d), Towline Software GPU: (\S+) (\S+) of ", done.stdout, re.M)
        t.equal([gpu[0] for gpu in gpus], ["0", "1", "2"], "the numbers")
        t.check(gpus[2][2] == "MiB" and float(gpus[2][1]) >= 256, done.stdout)
        row = next(line for line in done.stdout.splitlines() if "hold" in line)
        t.equal(row.split()[2], str(two.status()["sessions"][0]["client_pid"]), "the process")


@t.test(waits=True)
def status_goes_on_with_watch():
    with t.Server() as server, subprocess.Popen([str(t.TOWLINE), "status", "-s", server.address(), "--watch"], stdout=subprocess.PIPE,
                                                text=True, env=t.clean_environment()) as process:
        seen, limit = 0, time.monotonic() + 60
        while seen < 2 and time.monotonic() < limit:
            seen += "towlined" in process.stdout.readline()
        t.equal(seen, 2, "looks")
        process.kill()


if __name__ == "__main__":
    t.main()
