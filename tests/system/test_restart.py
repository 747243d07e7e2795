#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that ends under running programs and is started again: they go on, and it knows them as before.
The programs compute, and look at every number. docs/inside/restart.md."""

import contextlib
import fcntl
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import cutter  # noqa: E402
import towtest as t  # noqa: E402

ROUNDS = pathlib.Path(__file__).resolve().parent / "helpers" / "rounds.c"
KINDS = ("unix", "tcp", "shm")
COUNT = 20 if t.LONG else 3
MAGIC, JOIN, HERE = 0x6e696f6a65776f74, 1, 27
FIRST = struct.Struct("QIIQQ")  # tows_rejoin_msg


class Server(t.Server):
    """One that can be killed and started again. Where it is not split, root's is one process, as another user's is."""

    def __init__(self, *flags, wait=60, split=False, **more):
        super().__init__(*([] if split else ["--user=root"]), f"--restart-wait={wait}", *flags, **more)
        self.place = self.folder / "restart"
        self.flags.append(f"--restart-dir={self.place}")
        self.logs = []

    def log(self):
        return "".join(path.read_text(errors="replace") for path in self.logs) + super().log()

    def kill(self, parent=True):
        """kill -9 of the first process, or else of the listener, which is another one where the server is split."""
        for kind in ("tcp", "tls"):
            if f"--listen={kind}://127.0.0.1:0" in self.flags:
                self.flags = [flag.replace(f"{kind}://127.0.0.1:0", self.address(kind)) for flag in self.flags]
        listener = self.listener
        os.kill(self.process.pid if parent else listener, signal.SIGKILL)
        self.process.wait(timeout=60 * t.SLOW)
        t.wait_until(lambda: t.gone(listener), 20, "the listener, which has the sockets, is gone, too")

    def leave(self):
        """SIGUSR2; the exit code."""
        self.flags = [flag.replace("tcp://127.0.0.1:0", self.address("tcp")) for flag in self.flags]
        self.process.send_signal(signal.SIGUSR2)
        return self.process.wait(timeout=60 * t.SLOW)

    def start(self):
        self.logs.append(self.log_path)
        self.log_path = self.folder / f"log{len(self.logs)}"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([str(self.towlined), *self.flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env,
                                            start_new_session=True)
        t.wait_until(lambda: " serves " in super(Server, self).log() or self.process.poll() is not None, 20, "the server serves again")
        t.check(self.process.poll() is None, f"towlined has ended:\n{self.log()}")

    def sessions(self):
        return {session["id"]: session for session in self.status()["sessions"]}


class TlsServer(Server, t.TlsServer):
    """The same, over tls, too."""


@contextlib.contextmanager
def running(server, kind, *words, **env):
    """A program that has computed its first round."""
    program = t.build_c(ROUNDS, ["-lcuda"])
    env = t.clean_environment(TOWLINE_SERVER=server.address(kind), LD_LIBRARY_PATH=str(t.LIBCUDA.parent), TOWLINE_TRANSPORT="unix",
                              ROUNDS_PAUSE_MS="20", **env)
    if kind == "shm":
        del env["TOWLINE_TRANSPORT"]
    with subprocess.Popen([program, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            t.equal(process.stdout.readline(), "ready\n", f"what a program over {kind} says")
            yield process
        finally:
            process.kill()


def finish(process, what):
    out, err = process.communicate("over", timeout=60 * t.SLOW)
    t.check(process.returncode == 0 and re.fullmatch(r"\d+ rounds\n", out), f"{what}: {process.returncode}, {out}{err}")
    return int(out.split()[0])


def same(before, after):
    for key in ("client", "client_pid", "tenant", "peer", "class", "worker_pid", "limits"):
        was, now = before[key], after[key]
        if key == "limits":
            was, now = ({name: limit["limit"] for name, limit in limits.items()} for limits in (was, now))
        t.equal(now, was, f"{key} of session {before['id']}")


@t.test(120, trees=("plain", "asan"))
def programs_go_on_when_the_listener_is_killed_and_started_again():
    with Server("--gpu-memory=64M") as server, contextlib.ExitStack() as stack:
        programs = {f"{kind} {i}": stack.enter_context(running(server, kind, "8")) for i in range(COUNT) for kind in KINDS}
        before = server.sessions()
        t.equal(len(before), len(programs), "sessions")
        server.kill()
        server.start()
        after = server.sessions()
        t.equal(set(after), set(before), "sessions of the new server")
        for number, session in after.items():
            same(before[number], session)
            t.check(session["charged"][0] >= 8 << 20 and session["calls"] >= before[number]["calls"], f"what session {number} has: {session}")
            t.check(session["age_s"] >= before[number]["age_s"], f"the age of session {number} goes on")
        t.check("are ended" not in server.log(), "nobody is ended")
        with running(server, "unix"):
            t.equal(max(server.sessions()), max(before) + 1, "the number of the next session")
        for what, process in programs.items():
            finish(process, what)
        t.wait_until(lambda: not server.sessions(), 20, "all sessions have ended")
        t.equal(sorted(path.name for path in server.place.iterdir()), ["lock"], "what is left in the folder")
        t.equal(len(re.findall("its program left", server.log())), len(programs), "last lines of sessions that left")


@contextlib.contextmanager
def split(*flags, **more):
    """A server of two processes."""
    if os.geteuid() != 0:
        raise t.Skip("only a server that root starts has a process without rights for its clients")
    with Server(*flags, split=True, **more) as server:
        if server.listener == server.process.pid:
            raise t.Skip(f"users cannot be changed here: {server.log()}")
        yield server


@t.test(120)
def of_two_processes_either_may_be_killed():
    with split("--gpu-memory=64M") as server, contextlib.ExitStack() as stack:
        programs = {kind: stack.enter_context(running(server, kind, "8")) for kind in KINDS}
        before = server.sessions()
        for parent in (True, False, True):
            server.kill(parent)
            server.start()
            t.check(server.listener != server.process.pid, "it is two processes again")
            after = server.sessions()
            t.equal(set(after), set(before), "sessions of the new server")
            for number, session in after.items():
                same(before[number], session)
                t.check(session["charged"][0] >= 8 << 20, f"what session {number} has: {session}")
        t.equal(server.place.stat().st_mode & 0o777, 0o770, "the folder's mode")
        one = programs.pop("unix")
        worker = next(session["worker_pid"] for session in before.values() if session["client_pid"] == one.pid)
        one.kill()
        t.wait_until(lambda: t.gone(worker) and len(server.sessions()) == 2, 20, "the session of a killed program has ended")
        t.equal(t.run([t.TOWLINE, "end", "-s", server.address(), str(max(server.sessions()))]).returncode, 0, "towline end")
        t.wait_until(lambda: len(server.sessions()) == 1, 20, "the session that was to end has ended")
        left = {session["client_pid"] for session in server.sessions().values()}
        for what, process in programs.items():
            if process.pid in left:
                finish(process, what)
        t.wait_until(lambda: not server.sessions(), 20, "all sessions have ended")
        t.equal(sorted(path.name for path in server.place.iterdir()), ["lock"], "what is left in the folder")


def leave_and_come_back(server):
    with contextlib.ExitStack() as stack:
        programs = {kind: stack.enter_context(running(server, kind, "8")) for kind in KINDS}
        for _ in range(2):  # the second time they are another server's
            before = server.sessions()
            others = set(server.workers()) - {session["worker_pid"] for session in before.values()}
            t.equal(server.leave(), 0, "the exit code")
            t.check("leaves 3 sessions to the next" in server.log(), server.log())
            t.check(not server.socket.exists(), "its socket is removed")
            t.wait_until(lambda: all(map(t.gone, others)), 20, "what has no session has ended")
            t.equal([session["id"] for session in before.values() if t.gone(session["worker_pid"])], [], "sessions that have ended")
            server.start()
            after = server.sessions()
            t.equal(set(after), set(before), "sessions of the new server")
            for number, session in after.items():
                same(before[number], session)
                t.check(session["charged"][0] >= 8 << 20, f"what session {number} has: {session}")
        for what, process in programs.items():
            finish(process, what)
        t.wait_until(lambda: not server.sessions(), 20, "all sessions have ended")
        t.equal(sorted(path.name for path in server.place.iterdir()), ["lock"], "what is left in the folder")
        t.check("is killed" not in server.log() and "are ended" not in server.log(), server.log())


@t.test(60, trees=("plain", "asan", "tsan"))
def a_server_that_is_to_be_started_again_leaves_its_sessions():
    with Server("--gpu-memory=64M", "--grace=5") as server:
        leave_and_come_back(server)


@t.test(60)
def one_of_two_processes_leaves_them_too():
    with split("--gpu-memory=64M", "--grace=5") as server:
        leave_and_come_back(server)


@t.test(60)
def without_a_folder_it_ends_them_with_words():
    with t.Server() as server, running(server, "unix") as process:
        server.process.send_signal(signal.SIGUSR2)
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")
        process.wait(timeout=60 * t.SLOW)
        said = process.stderr.read()
        t.check("it is being shut down" in said, f"what the program's user reads: {said}")


@t.test(60)
def places_are_taken_by_those_who_were_there():
    with Server("--max-sessions=2") as server, running(server, "unix") as one, running(server, "tcp") as two:
        for _ in range(2):  # the second time it is not its child
            server.kill()
            server.start()
        with contextlib.ExitStack() as stack:
            third = stack.enter_context(subprocess.Popen(
                [t.build_c(ROUNDS, ["-lcuda"])], env=t.clean_environment(TOWLINE_SERVER=server.address(), LD_LIBRARY_PATH=str(t.LIBCUDA.parent)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            stack.callback(third.kill)
            t.wait_until(lambda: server.status()["waiting"] == 1, 20, "a third program waits")
            t.equal(len(server.sessions()), 2, "sessions")
            finish(one, "the first")
            t.equal(third.stdout.readline(), "ready\n", "what the third says then")
            finish(third, "the third")
        finish(two, "the second")


@t.test(60)
def who_has_the_gpu_alone_keeps_it():
    with Server("--exclusive=may") as server, running(server, "unix", TOWLINE_EXCLUSIVE="1") as one:
        for end in (server.leave, server.kill):
            end()
            server.start()
            with subprocess.Popen([t.build_c(ROUNDS, ["-lcuda"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, env=t.clean_environment(TOWLINE_SERVER=server.address(),
                                                                     LD_LIBRARY_PATH=str(t.LIBCUDA.parent))) as other:
                t.wait_until(lambda: server.status()["waiting"] == 1, 20, "another program waits")
                t.equal(len(server.sessions()), 1, "sessions")
                other.kill()
        finish(one, "the program")


@t.test(60)
def a_program_that_ends_meanwhile_is_known_to_have_ended():
    with Server() as server, running(server, "unix") as left, running(server, "unix") as lost:
        workers = [session["worker_pid"] for session in server.sessions().values()]
        server.kill()
        finish(left, "a program without a server")
        lost.kill()
        lost.wait()
        t.wait_until(lambda: all(map(t.gone, workers)), 20, "both workers have ended")
        server.start()
        t.equal(server.sessions(), {}, "sessions")
        t.equal(len(re.findall("of the server before this one, has ended", server.log())), 2, "last lines")


@t.test(60)
def a_worker_that_nobody_fetches_ends():
    with Server(wait=1) as server, running(server, "unix") as process:
        worker, = (session["worker_pid"] for session in server.sessions().values())
        server.kill()
        t.wait_until(lambda: t.gone(worker), 10, "the worker ends")
        process.wait(timeout=60 * t.SLOW)
        said = process.stderr.read()
        t.check("was not started again within 1 s" in said, f"what the program's user reads: {said}")
        server.start()


def checked(server, kind):
    """A program that uses all kinds of calls, and is cut off while there is no server."""
    with cutter.Cutter(server.port(kind), scheme=kind) as proxy, contextlib.ExitStack() as stack:
        env = {}
        if kind == "tls":
            done = t.run([t.TOWLINE, "trust", proxy.address], env=t.clean_environment(**server.settings))
            t.equal(done.returncode, 0, f"towline trust: {done.stderr}")
            env = server.settings
        program = t.build_c(ROUNDS.parent / "checks.c", ["-lcuda"], "checks")
        process = stack.enter_context(subprocess.Popen(
            [str(t.TOWLINE), "run", "-s", proxy.address, "--no-check", "--", str(program), "40", "1"],
            env=t.clean_environment(TOWLINE_LANES="3", **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        t.wait_until(lambda: any(session["calls"] > 100 for session in server.sessions().values()), 20, "the program works")
        server.kill()
        proxy.cut_all()
        t.wait_until(lambda: proxy.refused > 0 or "was cut" in server.log(), 20, "the cut is seen")
        server.start()
        out, err = process.communicate(timeout=100 * t.SLOW)
        wanted = "".join(f"round {i}\n" for i in range(40)) + "done\n"
        t.check(process.returncode == 0 and out == wanted, f"{kind}: {process.returncode}, {out!r}\n{err[-3000:]}")
        t.check("the program goes on" in err, err)
        t.wait_until(lambda: not server.sessions(), 20, "the session has ended")


@t.test(120)
def a_program_that_is_cut_off_meanwhile_goes_on_too():
    with Server() as server:
        checked(server, "tcp")


@t.test(120)
def over_tls_it_does_as_well():
    t.need_tls()
    with TlsServer() as server:
        checked(server, "tls")


def say_at(place, number, version, uid=None):
    """Tells a worker that its listener is a process of that version and user; what it answers: bytes, b"" for the end."""
    def speak():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(20)
            os.chdir(place)
            sock.connect(f"{number}.socket")
            with contextlib.suppress(BrokenPipeError):
                sock.send(FIRST.pack(MAGIC, version, JOIN, 0, number))
            if sock.recv(1 << 16) == b"":
                raise ConnectionResetError(104, "closed")
    return t.as_user(os.geteuid() if uid is None else uid, speak)


@t.test(60)
def a_stranger_does_not_take_its_place():
    if os.geteuid() != 0:
        raise t.Skip("only root can be another user")
    with Server() as server, running(server, "unix") as process:
        number, = server.sessions()
        server.kill()
        t.equal(say_at(server.place, number, 1, 65534), "EACCES", "a stranger at the folder")
        for path in (server.folder, server.place, server.place / f"{number}.socket"):
            os.chmod(path, 0o777)
        t.equal(say_at(server.place, number, 1, 65534), "ECONNRESET", "a stranger at an open folder")
        t.check("was refused" in server.log(), "the log tells")
        os.chmod(server.place, 0o700)
        server.start()
        t.equal(list(server.sessions()), [number], "sessions")
        finish(process, "the program")


class Holder(cutter.Cutter):
    """Holds connections that come with a grant back until it is told to let them go."""

    def __init__(self, port):
        super().__init__(port, scheme="tls")
        self.held, self.go = threading.Event(), threading.Event()

    def _carry(self, client, server):
        if cutter.kind_of(client.recv(1 << 12, socket.MSG_PEEK)) == "granted":
            self.held.set()
            self.go.wait(60)
        super()._carry(client, server)


@t.test(60)
def no_number_is_used_twice():
    """Over tls a session has its number before it is served: others may have come and gone meanwhile."""
    t.need_tls()
    with TlsServer() as server, Holder(server.port("tls")) as holder:
        done = t.run([t.TOWLINE, "trust", holder.address], env=t.clean_environment(**server.settings))
        t.equal(done.returncode, 0, f"towline trust: {done.stderr}")
        with subprocess.Popen([t.build_c(ROUNDS, ["-lcuda"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=t.clean_environment(TOWLINE_SERVER=holder.address, LD_LIBRARY_PATH=str(t.LIBCUDA.parent),
                                                      **server.settings)) as process:
            t.check(holder.held.wait(20 * t.SLOW), "the program has its grant")
            with running(server, "unix") as other:
                last = max(server.sessions())
                holder.go.set()
                t.equal(process.stdout.readline(), "ready\n", "what the program over tls says")
                finish(other, "the program that came and went")
            t.equal(min(server.sessions()), last - 1, "the number of the session over tls")
            server.kill()
            server.start()
            with running(server, "unix"):
                t.equal(max(server.sessions()), last + 1, "the number of the next session")
            finish(process, "the program over tls")


@t.test(60)
def a_server_that_can_start_no_worker_keeps_what_it_found():
    with Server() as server, running(server, "unix") as process:
        before = server.sessions()
        server.kill()
        good = server.flags
        server.flags = [flag.replace("--device=soft", "--device=/nowhere/libcuda.so.1") for flag in good]
        server.start()
        t.wait_until(lambda: server.log().count("a worker could not start") > 1, 20, "it tries again")
        t.equal(set(server.sessions()), set(before), "sessions of the new server")
        server.kill()
        server.flags = good
        server.start()
        t.equal(set(server.sessions()), set(before), "sessions of the one after it")
        finish(process, "the program")


def order(server, what, number):
    return t.run([t.TOWLINE, what, "-s", server.address(), str(number)], 60)


@t.test(60)
def a_suspended_session_stays_suspended():
    with Server() as server, running(server, "tcp", "8") as process:
        number, = server.sessions()
        done = order(server, "suspend", number)
        t.equal(done.returncode, 0, f"towline suspend: {done.stderr}")
        before = server.sessions()[number]
        server.kill()
        server.start()
        after = server.sessions()[number]
        for key in ("state", "suspended_by"):
            t.equal(after[key], before[key], key)
        t.check(after["state"] == "suspended" and "towline suspend" in after["suspended_by"], f"{after}")
        done = order(server, "resume", number)
        t.equal(done.returncode, 0, f"towline resume: {done.stderr}")
        finish(process, "the program")


@t.test(60)
def one_that_was_swapped_out_comes_back_when_it_calls():
    with Server("--overcommit=swap", "--swap-quantum=1", memory="64M") as server, running(server, "tcp", "40") as process:
        number, = server.sessions()
        with running(server, "unix", "40") as other:
            t.wait_until(lambda: "suspended" in [one["state"] for one in server.sessions().values()], 20, "one is out")
            server.kill()
            server.start()
            finish(other, "the other program")
        finish(process, "the program")
        t.check(number and "is to be resumed" in server.log(), "it came back by itself")


@t.test(60)
def one_that_is_ended_before_its_worker_has_answered_is_told_why():
    with Server() as server, running(server, "unix") as process:
        number, = server.sessions()
        worker = server.sessions()[number]["worker_pid"]
        os.kill(worker, signal.SIGSTOP)
        try:
            server.kill()
            server.start()
            done = order(server, "suspend", number)
            t.check(done.returncode != 0 and "has not answered this server yet" in done.stderr, f"towline suspend: {done}")
            done = order(server, "end", number)
            t.equal(done.returncode, 0, f"towline end: {done.stderr}")
        finally:
            os.kill(worker, signal.SIGCONT)
        process.wait(timeout=60 * t.SLOW)
        said = process.stderr.read()
        t.check("towline end" in said, f"what the program's user reads: {said}")
        t.wait_until(lambda: not server.sessions(), 20, "the session has ended")
        t.check("is killed" not in server.log(), "its worker ends by itself")


def shared_memory(size, seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL):
    fd = os.memfd_create("lie", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def lie(place, number, fds):
    """Answers the next server in the place of a session's worker, with these descriptors: a function that ends it."""
    path = place / f"{number}.socket"
    path.unlink()
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ear.bind(str(path))
    ear.listen()
    said = []

    def answer():
        sock, _ = ear.accept()
        said.append(sock)
        t.equal(FIRST.unpack(sock.recv(FIRST.size))[0], MAGIC, "how the next server begins")
        socket.send_fds(sock, [struct.pack("<II", HERE, 0) + bytes(1 << 13)], fds)
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()

    def close():
        thread.join(20 * t.SLOW)
        for one in (ear, *said):
            one.close()
        t.check(said and not thread.is_alive(), "the next server has not come")
    return close


def stop(pid):
    """SIGSTOP, until all of its threads have heard it."""
    os.kill(pid, signal.SIGSTOP)

    def stopped():
        with contextlib.suppress(OSError):  # a thread has just ended
            return all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"))
        return False
    t.wait_until(stopped, 20, "the process is stopped")


@t.test(120)
def a_worker_that_lies_does_not_end_the_server():
    """What both share must stay as large as it is: else the server would meet its end there."""
    if os.geteuid() != 0:
        raise t.Skip("only root sees a worker's descriptors")
    for what in ("memory that can shrink", "memory that is too small", "a device", "nothing"):
        with Server() as server, running(server, "unix"):
            (number, session), = server.sessions().items()
            worker = session["worker_pid"]
            stop(worker)
            try:
                size = next(path.stat().st_size for path in pathlib.Path(f"/proc/{worker}/fd").iterdir()
                            if "towline-session" in os.readlink(path))
                fds = {"memory that can shrink": lambda: [shared_memory(size, 0)], "memory that is too small": lambda: [shared_memory(size - 8)],
                       "a device": lambda: [os.open("/dev/zero", os.O_RDWR)], "nothing": list}[what]()
                server.kill()
                close = lie(server.place, number, fds)
                server.start()
                for fd in fds:
                    with contextlib.suppress(OSError):
                        os.ftruncate(fd, 0)
                asked = server.status()["uptime_s"]
                t.wait_until(lambda: server.status()["uptime_s"] > asked + 1.5, 20, f"the server goes on looking at its sessions ({what})")
                t.equal(list(server.sessions()), [number], "sessions")
                t.check("goes on: " not in server.log(), f"it believed {what}")
            finally:
                os.kill(worker, signal.SIGKILL)
            t.wait_until(lambda: not server.sessions(), 20, "the session has ended")
            close()
            for fd in fds:
                os.close(fd)


@t.test(60)
def another_version_ends_it_with_a_sentence():
    with Server() as server, running(server, "unix") as process:
        number, = server.sessions()
        server.kill()
        t.equal(say_at(server.place, number, 77), "ECONNRESET", "a listener of another version")
        process.wait(timeout=60 * t.SLOW)
        said = process.stderr.read()
        t.check("it cannot go on with sessions of the one before" in said, f"what the program's user reads: {said}")
        server.start()
        t.equal(server.sessions(), {}, "sessions")


@t.test(60)
def a_record_of_another_version_is_sent_away():
    with Server() as server, running(server, "unix") as process:
        number, = server.sessions()
        server.kill()
        path = server.place / f"{number}.record"
        path.write_bytes(path.read_bytes()[:8] + struct.pack("I", 77) + path.read_bytes()[12:])
        server.start()
        t.equal(server.sessions(), {}, "sessions")
        t.check(f"session {number} is of another version of this server" in server.log(), "the log tells")
        process.wait(timeout=60 * t.SLOW)
        said = process.stderr.read()
        t.check("it cannot go on with sessions of the one before" in said, f"what the program's user reads: {said}")
        with running(server, "unix"):
            t.equal(list(server.sessions()), [number + 1], "the number of the next session")


@t.test(60)
def a_clean_stop_ends_sessions_with_words():
    with Server() as server, running(server, "unix") as process:
        t.equal(server.stop(), 0, "the exit code")
        process.wait(timeout=60 * t.SLOW)
        said = process.stderr.read()
        t.check("it is being shut down" in said, f"what the program's user reads: {said}")
        t.equal(sorted(path.name for path in server.place.iterdir()), ["lock"], "what is left in the folder")
        server.start()


@t.test(60)
def one_server_has_a_folder():
    with Server() as server:
        command = [str(t.TOWLINED), "--user=root", f"--listen=unix://{server.folder}/other", "--device=soft", f"--restart-dir={server.place}"]
        other = subprocess.run(command, capture_output=True, text=True, timeout=60 * t.SLOW)
        t.check(other.returncode == 1 and "another towlined has" in other.stderr, f"a second server: {other.returncode}, {other.stderr}")
        open_one = server.folder / "open"
        open_one.mkdir(mode=0o755)
        command[-1] = f"--restart-dir={open_one}"
        other = subprocess.run(command, capture_output=True, text=True, timeout=60 * t.SLOW)
        t.check(other.returncode == 1 and "open to nobody else" in other.stderr, f"an open folder: {other.returncode}, {other.stderr}")


if __name__ == "__main__":
    t.main()
