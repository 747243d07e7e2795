#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that are reached through ssh: the way there, its end, and what is said when there is none. Most of it with an ssh
of ours (helpers/fake_ssh.py), one test with a real sshd."""

import contextlib
import json
import os
import pathlib
import pty
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
API = t.BUILD / "tests" / "api"
ALL = ("plain", "asan")


class Ssh:
    """A folder with a program ssh in it, and an environment that finds it and has its sockets made there."""

    def __init__(self, folder, script=None):
        self.folder = pathlib.Path(folder)
        self.log = self.folder / "log"
        self.runtime = self.folder / "run"
        for name in ("bin", "run"):
            (self.folder / name).mkdir()
        ssh = self.folder / "bin" / "ssh"
        if script:
            ssh.write_text(script)
            ssh.chmod(0o755)
        else:
            ssh.symlink_to(HELPERS / "fake_ssh.py")

    def env(self, mode="", **more):
        return t.clean_environment(PATH=f"{self.folder}/bin:{os.environ['PATH']}", FAKE_SSH=mode, FAKE_SSH_LOG=str(self.log),
                                   XDG_RUNTIME_DIR=str(self.runtime), XDG_CONFIG_HOME=f"{self.folder}/config", **more)

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def towline(self, *words, mode="", timeout=60, **more):
        return t.run([t.TOWLINE, *words], timeout, env=self.env(mode, **more))

    def is_over(self):
        """No ssh runs any more, and nothing is left of its folder."""
        t.wait_until(lambda: all(t.gone(call["pid"]) for call in self.calls()) and not list(self.runtime.iterdir()), 5,
                     f"ssh ends and its folder goes: {list(self.runtime.iterdir())}")


@contextlib.contextmanager
def fake_ssh(script=None):
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        ssh = Ssh(folder, script)
        yield ssh
        ssh.is_over()


def hold_program():
    return t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")


def one_sentence(done, *words):
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    t.check(done.returncode > 0 and len(lines) == 1 and "started" not in done.stdout, f"{done}")
    for word in words:
        t.check(word in lines[0], f"{word!r} is not in: {lines[0]}")


# ---- it works ----

@t.test(240, trees=ALL)
def a_program_runs_through_one_ssh():
    """Large copies, host functions and their side line: all connections go through one ssh, and none asks for memory."""
    with t.Server() as server, fake_ssh() as ssh:
        address = f"ssh://me@gpuhost:2200{server.socket}"
        for number, program in enumerate(("uploads", "downloads", "events"), 1):
            done = ssh.towline("run", "-s", address, "--", API / f"api_{program}", timeout=120, TOWLINE_LOG="client=info",
                               TOWLINE_LANES="4")
            t.equal(done.returncode, 0, f"{program}: {done.stdout}{done.stderr}; exit code")
            t.check("over unix" in done.stderr and "no shared memory" not in done.stderr, done.stderr)
            t.equal(len(ssh.calls()), number, "how often ssh was started")
        call = ssh.calls()[0]
        t.equal((call["named"]["-l"], call["named"]["-p"], call["host"], call["far"]), ("me", "2200", ["gpuhost"], str(server.socket)),
                "user, port, host and socket")
        t.equal((call["settings"].get("BatchMode"), call["settings"]["ExitOnForwardFailure"]), ("yes", "yes"),
                "whether ssh may ask, and whether it ends if it cannot forward")


@t.test(120, trees=ALL)
def all_commands_know_the_way():
    with t.Server() as server, fake_ssh() as ssh:
        address = f"ssh://gpuhost{server.socket}"
        for words in (["devices"], ["status"]):
            done = ssh.towline(*words, "-s", address)
            t.check(done.returncode == 0 and done.stdout.startswith(f"{address}: "), f"{done}")
        t.equal(json.loads(ssh.towline("status", "--json", "-s", address).stdout)[0]["address"], address, "the address in JSON")
        one_sentence(ssh.towline("end", "-s", address, "99"), "99")
        before = len(ssh.calls())
        done = ssh.towline("bench", "-s", address, "--quick", "--rounds", "2", "--part", "latency", timeout=120)
        t.check(done.returncode == 0 and f"by way of {address}," in done.stdout, f"{done}")
        t.equal(len(ssh.calls()) - before, 1, "how often a bench of two rounds logs in")


@t.test(120)
def it_may_be_named_as_every_server():
    """In the environment and in the config file; several at once; one that was opened is not opened again."""
    with t.Server() as one, t.Server() as two, fake_ssh() as ssh:
        first, second = f"ssh://one{one.socket}", f"ssh://two{two.socket}"
        inner = [t.TOWLINE, "run", "--", hold_program(), "free"]
        t.equal(ssh.towline("run", "--", *inner, TOWLINE_SERVER=first).returncode, 0, "by TOWLINE_SERVER; exit code")
        t.equal(len(ssh.calls()), 1, "how often ssh was started for a towline in a towline")
        config = ssh.folder / "config" / "towline"
        config.mkdir(parents=True)
        (config / "towline.conf").write_text(f"server = {first}, {second}\n")
        done = ssh.towline("devices")
        t.check(done.returncode == 0 and f"{first}: " in done.stdout and f"{second}: " in done.stdout, f"{done}")
        t.equal([call["host"] for call in ssh.calls()[1:]], [["one"], ["two"]], "who was logged in to")
        done = ssh.towline("run", "-s", f"hook:delay=1ms:{first}", "--", hold_program(), "free")
        t.equal(done.returncode, 0, f"behind a hook: {done.stderr}; exit code")


@t.test(120)
def odd_names_reach_ssh_as_they_are():
    with t.Server() as server, fake_ssh() as ssh:
        odd = server.folder / "a b%c:d\\e"
        odd.symlink_to(server.socket)
        done = ssh.towline("devices", "-s", f"ssh://[fe80::1%eth0]:22{odd}")
        t.check(done.returncode == 0, f"{done}")
        call = ssh.calls()[-1]
        t.equal((call["host"], call["named"]["-p"], call["far"]), (["fe80::1%eth0"], "22", str(odd)), "host, port and path")
        ssh.towline("devices", "-s", "ssh://-oProxyCommand=true", mode="unknown")
        t.equal(ssh.calls()[-1]["args"][-2:], ["--", "-oProxyCommand=true"], "a host that looks like an option")
        ssh.towline("devices", "-s", "ssh://gpuhost/", mode="unknown")
        t.equal(ssh.calls()[-1]["far"], "/run/towline.sock", "the socket where none is named")
        before = len(ssh.calls())
        for address, word in (("ssh://", "host"), ("ssh://gpuhost:0", "port"), ("ssh://gpuhost:x", "port"), ("ssh://::1", "brackets"),
                              ("ssh://[::1", "bracket"), ("ssh://@gpuhost", "user"), ("ssh://gpu host", "blanks"),
                              ("ssh://gpuhost/a${b}", "variable"), ("ssh://gpuhost?x", "question mark"),
                              ("ssh://gpuhost?via=x", "whole path"), (f"ssh://gpuhost/{'x' * 120}", "at most 107 characters")):
            one_sentence(ssh.towline("devices", "-s", address), word)
        t.equal(len(ssh.calls()), before, "how often ssh was started for what is no address")


@t.test(120, trees=ALL)
def an_ssh_that_is_slow_is_waited_for():
    with t.Server() as server, fake_ssh() as ssh:
        done = ssh.towline("devices", "-s", f"ssh://gpuhost{server.socket}", mode="late")
        t.equal(done.returncode, 0, f"{done}; exit code")


# ---- it does not ----

@t.test(240, trees=ALL)
def what_is_wrong_is_said_in_one_sentence():
    with t.Server() as server, fake_ssh() as ssh:
        run = ["run", "-s", f"ssh://gpuhost{server.socket}", "--", "echo", "started"]
        for mode, words in (("unknown", ["ssh to gpuhost failed: Could not resolve hostname gpuhost", "ssh gpuhost"]),
                            ("denied", ["Permission denied (publickey)", "in a terminal: ssh gpuhost"]),
                            ("changed", ["Host key verification failed", "in a terminal: ssh gpuhost"]),
                            ("taken", ["bind [127.0.0.1]:8080: Address already in use"]),
                            ("silent", ["it ended with exit code 7"]),
                            ("prohibited", ["sshd of gpuhost does not forward unix sockets", "AllowStreamLocalForwarding"])):
            one_sentence(ssh.towline(*run, mode=mode), *words)
            one_sentence(ssh.towline("status", "-s", f"ssh://gpuhost{server.socket}", mode=mode), *words)


@t.test(120, trees=ALL)
def no_server_there_is_said_at_once():
    """By `towline run`, and by the library where nobody asked before."""
    with fake_ssh() as ssh:
        words = ["gpuhost has no server at /nonexistent/sock", "start towlined there", "ssh://gpuhost/PATH"]
        one_sentence(ssh.towline("run", "-s", "ssh://gpuhost/nonexistent/sock", "--", "echo", "started"), *words)
        one_sentence(ssh.towline("run", "--no-check", "-s", "ssh://gpuhost/nonexistent/sock", "--", hold_program(), "free"), *words)


@t.test(60, trees=ALL)
def without_ssh_it_says_so():
    with fake_ssh() as ssh:
        done = t.run([t.TOWLINE, "devices", "-s", "ssh://gpuhost"], env={**ssh.env(), "PATH": str(ssh.runtime)})
        one_sentence(done, "needs the program ssh", "openssh-client")


@t.test(60)
def without_towline_run_it_says_how():
    done = t.run([hold_program(), "free"], env=t.clean_environment(TOWLINE_SERVER="ssh://gpuhost", LD_LIBRARY_PATH=str(t.BUILD / "lib")))
    one_sentence(done, "towline run -s ssh://gpuhost -- PROGRAM")
    done = t.run([t.TOWLINED, "--device=soft", "-l", "ssh://gpuhost"])
    t.check(done.returncode > 0 and "ssh://gpuhost cannot be listened on" in done.stderr, f"{done}")


@t.test(60)
def a_folder_that_cannot_be_made_is_an_error():
    """The first that can be is taken: a runtime folder that is gone is none."""
    with t.Server() as server, fake_ssh() as ssh:
        env = {**ssh.env(), "XDG_RUNTIME_DIR": "/nonexistent", "TMPDIR": str(ssh.runtime)}
        t.equal(t.run([t.TOWLINE, "devices", "-s", f"ssh://gpuhost{server.socket}"], env=env).returncode, 0, "exit code")
        t.check(ssh.calls()[0]["near"].startswith(f"{ssh.runtime}/"), ssh.calls())


# ---- its end ----

@contextlib.contextmanager
def held(ssh, server, what="leave", **more):
    holder = subprocess.Popen([t.TOWLINE, "run", "-s", f"ssh://gpuhost{server.socket}", "--", hold_program(), what], env=ssh.env(),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    try:
        t.equal(holder.stdout.readline(), "ready\n", "what it says first")
        yield holder
    finally:
        holder.kill()
        holder.communicate()


@t.test(120, trees=ALL)
def it_ends_with_the_program():
    with t.Server() as server, fake_ssh() as ssh:
        with held(ssh, server) as holder:
            folder = pathlib.Path(ssh.calls()[0]["near"]).parent
            t.equal(folder.stat().st_mode & 0o777, 0o700, "the folder's mode")
            t.check(not t.gone(ssh.calls()[0]["pid"]), "ssh runs as long as the program")
            holder.communicate("")
            t.equal(holder.returncode, 0, "exit code")
        ssh.is_over()
        with held(ssh, server) as holder:
            holder.kill()
        ssh.is_over()


@t.test(120)
def children_that_live_on_keep_it():
    with t.Server() as server, fake_ssh() as ssh:
        child = 'read line <"$1"; "$0" free >"$2" 2>&1'
        with tempfile.TemporaryDirectory() as folder:
            fifo, result = f"{folder}/fifo", pathlib.Path(folder) / "result"
            os.mkfifo(fifo)
            done = ssh.towline("run", "-s", f"ssh://gpuhost{server.socket}", "--", "sh", "-c",
                               f"(sh -c '{child}' '{hold_program()}' '{fifo}' '{result}' >/dev/null 2>&1 &); exit 5")
            t.equal(done.returncode, 5, "the parent's exit code")
            time.sleep(0.3)  # it would be gone by now
            t.check(not t.gone(ssh.calls()[0]["pid"]), "ssh runs for the child")
            pathlib.Path(fifo).write_text("go\n")
            t.wait_until(lambda: result.exists() and result.read_text().strip(), 20, "the child has run")
            t.check("error" not in result.read_text(), result.read_text())


@t.test(120, trees=ALL)
def an_ssh_that_ends_is_named():
    """While the program runs: what it said last is in the program's sentence."""
    with t.Server() as server, fake_ssh() as ssh:
        with held(ssh, server, "poll") as holder:
            os.kill(ssh.calls()[0]["pid"], signal.SIGUSR1)
            out, err = holder.communicate(timeout=40 * t.SLOW)
            t.check("is lost (ssh to gpuhost: Timeout, server gpuhost not responding)" in err and "error" in out, out + err)


# ---- a terminal ----

def read_until(terminal, word):
    text = b""
    while word not in text:
        text += os.read(terminal, 1000)


@contextlib.contextmanager
def on_a_terminal(ssh, *words):
    """A towline whose terminal is ours; its number and our end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(t.TOWLINE, [str(word) for word in (t.TOWLINE, *words)], ssh.env("ask"))
    try:
        read_until(terminal, b"password: ")
        yield pid, terminal
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)


@t.test(120)
def it_may_ask_the_terminal():
    with t.Server() as server, fake_ssh() as ssh:
        with on_a_terminal(ssh, "run", "-s", f"ssh://gpuhost{server.socket}", "--", "sh", "-c", "exit 9") as (pid, terminal):
            os.write(terminal, b"secret\n")
            t.equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9, "the program's exit code")
        t.check("BatchMode" not in ssh.calls()[0]["settings"], ssh.calls())


@t.test(120)
def signals_to_the_whole_group_leave_it():
    """As a terminal and `kill %1` send them: a program that handles them still has its server. ssh is in that group, since it
    may have to ask."""
    with t.Server() as server, fake_ssh() as ssh:
        address, script = f"ssh://gpuhost{server.socket}", 'trap "" INT TERM HUP QUIT; exec "$0" poll'
        with on_a_terminal(ssh, "run", "-s", address, "--", "sh", "-c", script, hold_program()) as (pid, terminal):
            os.write(terminal, b"secret\n")
            read_until(terminal, b"ready")
            asked = ssh.calls()[0]["pid"]
            t.equal(os.getpgid(asked), pid, "the group of ssh")
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                os.killpg(pid, number)
            os.write(terminal, b"\x03")
            calls = server.status()["sessions"][0]["calls"]
            t.wait_until(lambda: server.status()["sessions"][0]["calls"] > calls + 20, 10, "the program goes on")
            t.check(not t.gone(asked) and not t.gone(pid), "ssh or the program has ended")


@t.test(120)
def ctrl_c_ends_the_question():
    with t.Server() as server, fake_ssh() as ssh:
        with on_a_terminal(ssh, "run", "-s", f"ssh://gpuhost{server.socket}", "--", "echo", "started") as (pid, terminal):
            t.check(not termios.tcgetattr(terminal)[3] & termios.ECHO, "what is typed is not shown")
            os.write(terminal, b"\x03")
            t.equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGINT, "how towline ends")
            ssh.is_over()
            t.check(termios.tcgetattr(terminal)[3] & termios.ECHO, "what is typed is shown again")


# ---- the real one ----

@contextlib.contextmanager
def sshd(folder):
    """An sshd of an ordinary user's on a free port; the user's name, and an ssh that logs in there as gpuhost."""
    binary = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not binary or not shutil.which("ssh"):
        raise t.Skip("there is no sshd (apt install openssh-server)")
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder.chmod(0o755)
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    if os.geteuid() == 0:
        shutil.chown(folder / "host", user)
    (folder / "authorized").write_text((folder / "mine.pub").read_text())

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n")
    (folder / "ssh_config").write_text(
        f"Host gpuhost\n HostName 127.0.0.1\n Port {port}\n User {user}\n IdentityFile {folder}/mine\n IdentitiesOnly yes\n"
        f" UserKnownHostsFile {folder}/known\n StrictHostKeyChecking accept-new\n")
    with open(folder / "sshd_log", "wb") as log:
        daemon = subprocess.Popen([binary, "-D", "-e", "-f", folder / "sshd_config"], stderr=log, stdin=subprocess.DEVNULL,
                                  **({"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}))
    try:
        t.wait_until(lambda: "listening on" in (folder / "sshd_log").read_text() or daemon.poll() is not None, 20, "sshd listens")
        t.check(daemon.poll() is None, f"sshd has ended: {(folder / 'sshd_log').read_text()}")
        subprocess.run(["ssh", "-F", folder / "ssh_config", "gpuhost", "true"], capture_output=True, timeout=60)
        if "account is locked" in (folder / "sshd_log").read_text():
            raise t.Skip(f"sshd lets {user} not log in: the account is locked")
        yield user, f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n'
    finally:
        daemon.terminate()
        daemon.wait()


@t.test(240)
def a_real_sshd_says_who_it_is():
    with tempfile.TemporaryDirectory(prefix="tow") as folder, sshd(pathlib.Path(folder)) as (user, script), fake_ssh(script) as ssh, \
            t.Server("--socket-mode=0666") as server:
        server.folder.chmod(0o755)
        address = f"ssh://gpuhost{server.socket}"
        done = ssh.towline("run", "-s", address, "--", API / "api_events", timeout=180)
        t.equal(done.returncode, 0, f"{done.stdout}{done.stderr}; exit code")
        with held(ssh, server):
            peers = [session["peer"] for session in server.status()["sessions"]]
            t.check(len(peers) == 1 and f"user {pwd.getpwnam(user).pw_uid}" in peers[0], f"{peers}, not {user}")
        one_sentence(ssh.towline("run", "-s", "ssh://gpuhost/nonexistent", "--", "echo", "started"), "gpuhost has no server at /nonexistent")
        one_sentence(ssh.towline("devices", "-s", "ssh://no-such-user@gpuhost"), "Permission denied (publickey)")
        odd = server.folder / "a b%c:d\\e"
        odd.symlink_to(server.socket)
        t.equal(ssh.towline("devices", "-s", f"ssh://gpuhost{odd}").returncode, 0, "an odd path; exit code")


if __name__ == "__main__":
    t.main()
