#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Running a server: sessions that are ended from outside, draining, shutting down, settings that are read again."""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
ALL = ("plain", "asan", "tsan")
STATUS, REFUSE, REPORT = 0xF00C, 0xF002, 0xF00D
END, DRAIN = 4, 8
BEGIN = "import ctypes as c; print(c.CDLL('libcuda.so.1').cuInit(0))"


def told(client, sentence, what):
    """The program ends by itself, with the error that fits and with that sentence."""
    out, err = client.communicate(timeout=60 * t.SLOW)
    t.equal(client.returncode, 3, f"{what}: the exit code ({out}{err})")
    t.check("CUDA_ERROR_DEVICE_UNAVAILABLE" in out, f"{what}: {out}")
    t.check(sentence in err, f"{what}: the sentence is {err!r}")


def end(address, *sessions):
    return t.run([t.TOWLINE, "end", "-s", address, *sessions])


def only_session(server):
    found = server.status()["sessions"]
    t.equal(len(found), 1, "sessions")
    return found[0]


def ended_in(mode, kind):
    with t.Server() as server, t.held(server, mode, kind) as client:
        number = only_session(server)["id"]
        done = end(server.address(), number)
        t.equal((done.returncode, done.stderr), (0, ""), "towline end")
        told(client, "has ended this session: ", f"{mode} over {kind}")
        t.wait_until(lambda: not server.status()["sessions"], 5, "the session is not listed any more")
        t.check(f"session {number} (" in server.log() and "asked for it (towline end)" in server.log(), server.log())
        done = t.towline_run(server.address(kind), [client.args[-2], "free"])
        t.check(done.stdout.startswith("free "), f"the next program: {done.stdout}{done.stderr}")


for _mode in ("poll", "launch", "copy", "spin"):
    # Over shared memory a launch looks at nothing but the ring: who is gone is seen by the next call that waits.
    for _kind in ("unix", "tcp", "shm") if _mode != "launch" else ("unix", "tcp"):
        t.test(60, trees=ALL if _mode in ("poll", "launch") else ("plain",), name=f"a_session_is_ended.{_mode}.{_kind}")(
            lambda mode=_mode, kind=_kind: ended_in(mode, kind))


@t.test(60, waits=True)
def a_session_whose_worker_stands_still_is_ended():
    with t.Server() as server, t.held(server, "poll") as client:
        session = only_session(server)
        os.kill(session["worker_pid"], signal.SIGSTOP)
        t.equal(end(server.address(), session["id"]).returncode, 0, "towline end")
        t.wait_until(lambda: t.gone(session["worker_pid"]), 15, "the worker is gone")
        client.communicate(timeout=60 * t.SLOW)
        t.equal(client.returncode, 3, "the program's exit code")
        t.check("does not end: it is killed" in server.log(), server.log())


@t.test(60)
def sessions_are_not_ended_over_a_network():
    """An address has many users: whoever comes from there is not known."""
    with t.Server() as server, t.held(server, "poll", "tcp") as client:
        number = only_session(server)["id"]
        said = [end(server.address("tcp"), wanted).stderr.split("refuses: ")[-1] for wanted in (number, number + 7)]
        t.equal(said[0], said[1], "what is said of a session that is there, and of one that is not")
        t.check("through its unix socket" in said[0], said)
        t.equal((len(server.status()["sessions"]), client.poll()), (1, None), "the session")
        for words in ([], ["x"], ["-1"], [number, ""]):
            t.equal(end(server.address(), *words).returncode, 2, f"the exit code of towline end {words}")


def ask(connection, topics, session=None):
    """A STATUS frame; what comes back: the frame's kind, and the rest."""
    with connection:
        connection.settimeout(30 * t.SLOW)
        body = struct.pack("<II", raw.MAGIC, topics) + (b"" if session is None else struct.pack("<Q", session))
        connection.sendall(raw.frame(STATUS, body, thread=0))
        data = b""
        while part := connection.recv(4096):
            data += part
        return struct.unpack_from("<IH", data)[1], data


@t.test(60)
def sessions_of_other_users_are_not_ended():
    if os.geteuid() != 0:
        raise t.Skip("only root can be other users")
    with t.Server("--socket-mode=0666") as server:
        server.folder.chmod(0o711)

        def connect(user):
            connection = socket.socket(socket.AF_UNIX)
            os.seteuid(user)
            try:
                connection.connect(str(server.socket))
            finally:
                os.seteuid(0)
            return connection
        with t.held(server, "poll") as client:
            number = only_session(server)["id"]
            said = [ask(connect(user), END, wanted) for user in (1000, 65534) for wanted in (number, number + 7)]
            t.equal({kind for kind, _ in said}, {REFUSE}, "what others get")
            t.check(b"you have no session" in said[0][1] and b"you have no session" in said[1][1], said)
            t.equal(ask(connect(1000), DRAIN)[0], REFUSE, "what others get who would drain it")
            t.equal((len(server.status()["sessions"]), client.poll()), (1, None), "the session")
            t.equal(ask(connect(0), END, number)[0], REPORT, "what root gets")
            told(client, "user 0 asked for it", "a session that root ended")


def root_elsewhere(*namespaces):
    if os.geteuid() != 0 or t.run(["unshare", *namespaces, "true"]).returncode != 0:
        raise t.Skip(f"namespaces of its own cannot be had (unshare {' '.join(namespaces)})")
    with t.Server() as server, t.held(server, "poll") as client:
        number = only_session(server)["id"]
        done = t.run(["unshare", *namespaces, t.TOWLINE, "end", "-s", server.address(), number])
        t.check(done.returncode == 1 and "you have no session" in done.stderr, f"towline end: {done}")
        done = t.run(["unshare", *namespaces, t.TOWLINED, "drain", f"--listen={server.address()}"])
        t.check(done.returncode == 1 and "only root, the user" in done.stderr, f"towlined drain: {done}")
        done = t.run(["unshare", *namespaces, t.TOWLINE, "status", "-s", server.address(), "--json"])
        t.check(done.returncode == 0 and '"sessions":[]' in done.stdout.replace(" ", "").replace("\n", ""), f"towline status: {done}")
        t.equal((len(server.status()["sessions"]), client.poll()), (1, None), "the session")
        t.check("draining" not in server.status(), "it is being drained")


@t.test(60)
def root_of_another_pid_namespace_does_not_rule():
    root_elsewhere("--pid", "--fork")


@t.test(60)
def root_of_another_user_namespace_does_not_rule():
    root_elsewhere("--user", "--map-root-user")


@t.test(60)
def towlined_drain_ends_with_the_last_session():
    with t.Server() as server:
        with t.held(server, "leave") as client:
            t.equal(ask(socket.create_connection(("127.0.0.1", server.port())), DRAIN)[0], REFUSE, "what a peer on a network gets")
            t.check("draining" not in server.status(), "it is being drained")
            done = t.run([t.TOWLINED, "drain", f"--listen={server.address('tcp')}", f"--listen={server.address()}"])
            t.equal((done.returncode, done.stderr), (0, ""), "towlined drain")
            t.check("the last of 1 sessions" in done.stdout, done.stdout)
            refused = t.towline_run(server.address("tcp"), ["python3", "-c", BEGIN])
            t.check("refuses: the server is being drained" in refused.stderr, refused.stderr)
            client.communicate(timeout=60 * t.SLOW)
            t.equal(client.returncode, 0, "the exit code of the program that was there")
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")


@t.test(60)
def root_rules_a_server_that_has_no_capabilities():
    """As the one of packaging/systemd, which may not look at root's processes as a debugger may."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise t.Skip("setpriv, which needs root, is how capabilities are dropped")
    server = t.Server()
    server.limit = ["setpriv", "--bounding-set=-all"]
    with server, t.held(server, "poll") as client:
        t.equal(end(server.address(), only_session(server)["id"]).returncode, 0, "towline end")
        told(client, "has ended this session: user 0 asked for it", "a session that root ended")
        done = t.run([t.TOWLINED, "drain", f"--listen={server.address()}"])
        t.equal((done.returncode, done.stderr), (0, ""), "towlined drain")
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")


@t.test(60)
def towlined_drain_says_what_is_wrong():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        for flags, words in ((["-l", f"{folder}/none"], "none"), (["-l", "tcp://127.0.0.1:1"], "127.0.0.1:1"), (["--nonsense"], "nonsense")):
            done = t.run([t.TOWLINED, "drain", *flags])
            t.check(done.returncode in (1, 2) and words in done.stderr and len(done.stderr.splitlines()) == 1, f"{flags}: {done}")
    t.check("with the flags" in t.run([t.TOWLINED, "drain", "--help"]).stdout.replace("With", "with"), "its help")


@t.test(60)
def sigterm_lets_programs_end():
    with t.Server("--grace=3600") as server:
        with t.held(server, "leave") as client:
            server.process.send_signal(signal.SIGTERM)
            t.wait_until(lambda: "is being shut down" in server.log(), 5, "the server was told")
            refused = t.towline_run(server.address("tcp"), ["python3", "-c", BEGIN])
            t.check("refuses: the server is being shut down" in refused.stderr, refused.stderr)
            client.communicate(timeout=60 * t.SLOW)
            t.equal(client.returncode, 0, "the exit code of the program that was there")
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")


def shut_down(grace, kind, signals, group=False):
    with t.Server(f"--grace={grace}") as server, t.held(server, "poll", kind) as client:
        workers = server.workers()
        for i, number in enumerate(signals):
            if i > 0:
                t.wait_until(lambda: "is being shut down" in server.log(), 5, "the server was told")
            (os.killpg if group else os.kill)(server.process.pid, number)
        told(client, "has ended this session: it is being shut down", f"{signals} over {kind}")
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")
        t.check(all(t.gone(worker) for worker in workers), "workers are left")


@t.test(60)
def a_second_sigterm_ends_programs_at_once():
    shut_down(3600, "unix", [signal.SIGTERM, signal.SIGTERM])


@t.test(60)
def sigint_ends_programs_at_once():
    shut_down(3600, "shm", [signal.SIGINT])


@t.test(60, trees=ALL)
def the_grace_time_ends():
    shut_down(1, "tcp", [signal.SIGTERM])


@t.test(60, waits=True)
def sigterm_to_the_group_lets_the_grace_time_pass():
    """As a shell's kill, a batch system or a container's init sends it."""
    shut_down(3, "unix", [signal.SIGTERM], group=True)


@t.test(60)
def a_mistake_in_the_file_keeps_the_settings():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text("max-sessions = 7\n")
        with t.Server(f"--config={config}") as server, t.held(server, "poll") as client:
            config.write_text("max-sessions = 9\n\nlanes = many\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: f"{config}:3: lanes = many" in server.log(), 5, "line and name of the mistake")
            t.equal(server.status()["max_sessions"], 7, "max-sessions")
            config.write_text("max-sessions = 1\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: server.status()["max_sessions"] == 1, 5, "the new settings are used")
            t.equal((len(server.status()["sessions"]), client.poll()), (1, None), "the session")


# ---- silence on a network ----

def stand_still(mode, kind, client_dies=False):
    """Stopped, a worker tells nobody anything: the listener has it go on for a moment, to tell its program why it ends."""
    with t.Server("--watchdog=5") as server, t.held(server, mode, kind) as client:
        session = only_session(server)
        os.kill(session["worker_pid"], signal.SIGSTOP)
        start = time.monotonic()
        if client_dies:
            client.kill()
            client.communicate()
        else:
            told(client, f"has ended this session: its worker {session['worker_pid']} has not answered for 5 s (it is stopped)", f"{mode} over {kind}")
            t.check(time.monotonic() - start > 4, "it was ended before its time")
        t.wait_until(lambda: t.gone(session["worker_pid"]), 50, "the worker is gone")
        t.wait_until(lambda: not server.status()["sessions"], 20, "the session's place is free")
        line = f"is ended: its worker {session['worker_pid']} has not answered for 5 s (it is stopped)"
        t.equal(server.log().count(line), 1, f"lines; {server.log()}")
        t.check("was ended by signal" not in server.log(), server.log())
        done = t.towline_run(server.address(kind), [client.args[-2], "free"])
        t.check(done.stdout.startswith("free "), f"the next program: {done.stdout}{done.stderr}")


for _mode, _kind in (("poll", "unix"), ("poll", "tcp"), ("poll", "shm"), ("spin", "shm"), ("copy", "unix")):
    t.test(120, waits=True, trees=ALL if (_mode, _kind) == ("poll", "shm") else ("plain",), name=f"a_worker_stands_still.{_mode}.{_kind}")(
        lambda mode=_mode, kind=_kind: stand_still(mode, kind))


@t.test(120, waits=True)
def a_worker_that_stands_still_does_not_outlive_its_client():
    stand_still("poll", "tcp", client_dies=True)


def threads(pid):
    """Their names; none once it is gone."""
    with contextlib.suppress(OSError):
        return [(task / "comm").read_text().strip() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return []


def left_behind(kind):
    """A worker that is stopped goes soon when its program has gone, and long before anybody would miss its answers."""
    if kind == "tls":
        t.need_tls()
    server = t.TlsServer("--linger=2", "--reconnect=0") if kind == "tls" else t.Server("--linger=2", "--reconnect=0")
    with server, t.held(server, "spin", kind, **(server.settings if kind == "tls" else {})) as client:
        worker = only_session(server)["worker_pid"]
        os.kill(worker, signal.SIGSTOP)
        client.kill()
        client.communicate()
        t.wait_until(lambda: t.gone(worker), 12, "the worker is gone")
        t.wait_until(lambda: not server.status()["sessions"], 20, "the session's place is free")
        line = f"is ended: its program has gone, and its worker {worker} was still there 2 s later (linger)"
        t.equal((server.log().count(line), server.log().count("has not answered")), (1, 0), f"lines; {server.log()}")


for _kind in ("unix", "tcp", "shm", "tls"):
    t.test(60, trees=ALL if _kind == "shm" else ("plain",), name=f"a_worker_that_is_stopped_does_not_stay_behind.{_kind}")(
        lambda kind=_kind: left_behind(kind))


@t.test(60)
def a_kernel_that_never_ends_ends_with_its_program():
    """By the worker itself: the listener has not to wait for it."""
    with t.Server("--linger=30") as server, t.held(server, "spin") as client:
        worker = only_session(server)["worker_pid"]
        client.kill()
        client.communicate()
        t.wait_until(lambda: t.gone(worker), 12, "the worker is gone")
        t.wait_until(lambda: "its program's connection ended" in server.log(), 20, "the audit line says how it ended")


@t.test(120)
def a_worker_that_is_stopped_while_its_driver_opens_is_replaced():
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    with tempfile.TemporaryDirectory() as folder:
        slow = pathlib.Path(folder) / "slow"
        with t.Server("--watchdog=5", device=str(driver), env={"TOWLINE_PRINTER_SLOW": str(slow)}) as server:
            first = server.workers()[0]
            slow.touch()
            begin = time.monotonic()
            os.kill(first, signal.SIGKILL)
            t.wait_until(lambda: any("tow-alive" in threads(pid) for pid in server.workers() if pid != first), 20, "the next one starts")
            worker = next(pid for pid in server.workers() if pid != first)
            os.kill(worker, signal.SIGSTOP)
            t.check(time.monotonic() - begin < 6, "its driver was open by then")
            slow.unlink()
            t.wait_until(lambda: t.gone(worker), 50, "the worker is gone")
            t.check(f"worker {worker}, which serves nobody, has not answered for 5 s (it is stopped)" in server.log(), server.log())
            t.wait_until(lambda: server.workers() and worker not in server.workers(), 20, "there is another")


@t.test(120, waits=True)
def an_idle_worker_that_stands_still_is_replaced():
    with t.Server("--watchdog=5", "--log=debug") as server:
        worker = int(re.search(r"worker (\d+) is ready", server.log()).group(1))
        os.kill(worker, signal.SIGSTOP)
        t.wait_until(lambda: t.gone(worker), 50, "the worker is gone")
        t.check(f"worker {worker}, which serves nobody, has not answered for 5 s (it is stopped)" in server.log(), server.log())
        t.wait_until(lambda: server.log().count(" is ready ") == 2, 20, "another is ready")


@t.test(120, waits=True)
def a_worker_that_a_debugger_has_is_not_ended():
    """walls = 0: a worker hides from debuggers otherwise."""
    seize, interrupt, detach = 0x4206, 0x4207, 17
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    with t.Server("--watchdog=5", "--walls=0") as server, t.held(server, "poll") as client:
        worker = only_session(server)["worker_pid"]
        threads = [int(path.name) for path in pathlib.Path(f"/proc/{worker}/task").iterdir()]
        if libc.ptrace(seize, threads[0], None, None) != 0:
            raise t.Skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
        for thread in threads[1:]:
            t.equal(libc.ptrace(seize, thread, None, None), 0, f"ptrace of thread {thread}")
        for thread in threads:
            t.equal(libc.ptrace(interrupt, thread, None, None), 0, f"ptrace of thread {thread}")
            os.waitpid(thread, 0x40000000)  # __WALL
        goes_on(server, client, 12)
        t.check("has not answered" not in server.log(), server.log())
        for thread in threads:
            t.equal(libc.ptrace(detach, thread, None, None), 0, f"ptrace of thread {thread}")
        os.kill(client.pid, 0)
        t.equal(len(server.status()["sessions"]), 1, "sessions")


@t.test(120, waits=True)
def without_a_watchdog_nobody_is_ended():
    with t.Server("--watchdog=0") as server, t.held(server, "poll") as client:
        worker = only_session(server)["worker_pid"]
        os.kill(worker, signal.SIGSTOP)
        goes_on(server, client, 4)
        os.kill(worker, signal.SIGCONT)
        t.equal(client.poll(), None, "the program")


def goes_on(server, client, seconds):
    """So long, which is more than the heartbeat's time, nobody gives anybody up."""
    time.sleep(seconds)
    t.equal((client.poll(), len(server.status()["sessions"])), (None, 1), f"the program and its session\n{server.log()}")


@t.test(60, trees=ALL)
def a_long_kernel_is_no_silence_and_does_not_stand_still():
    with t.Server("--heartbeat=5", "--watchdog=5") as server, t.held(server, "spin", "tcp") as client:
        goes_on(server, client, 12)
        t.check("has not answered" not in server.log(), server.log())


@t.test(60, waits=True)
def a_program_that_makes_no_calls_keeps_its_session():
    with t.Server("--heartbeat=5") as server, t.held(server, "leave", "tcp") as client:
        goes_on(server, client, 12)
        client.communicate(timeout=60 * t.SLOW)
        t.equal(client.returncode, 0, "the program's exit code")


def unsent(server):
    """Bytes that stand in the server's ends of its connections over the network."""
    rows = [row.split() for row in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[0], 16) for row in rows if int(row[1].split(":")[1], 16) == server.port())


def stop_in_a_copy(server, client):
    def stopped_in_a_copy():
        os.kill(client.pid, signal.SIGCONT)
        time.sleep(0.05)
        os.kill(client.pid, signal.SIGSTOP)
        time.sleep(0.5)  # the window closes
        return unsent(server) > 0
    t.wait_until(stopped_in_a_copy, 30, "the server stands in a send")


@t.test(120, waits=True)
def a_program_that_is_stopped_keeps_its_session():
    with t.Server("--heartbeat=5", "--lanes=0") as server, t.held(server, "fetch", "tcp") as client:
        stop_in_a_copy(server, client)
        goes_on(server, client, 18)  # of the kernel's probes some are then further apart than the heartbeat
        calls = only_session(server)["calls"]
        os.kill(client.pid, signal.SIGCONT)
        t.wait_until(lambda: only_session(server)["calls"] > calls + 1, 20, "it goes on")


def ended_while_stopped(flags, killed):
    with t.Server("--lanes=0", *flags) as server, t.held(server, "fetch", "tcp") as client:
        stop_in_a_copy(server, client)
        session = only_session(server)
        if killed:
            client.kill()
            server.stop()
        else:
            t.equal(end(server.address(), session["id"]).returncode, 0, "towline end")
            t.wait_until(lambda: t.gone(session["worker_pid"]), 15, "the worker is gone")
        log = server.log()
        t.check("it is killed" not in log and "signal 9" not in log, log)


for _name, _flags in (("that_lasts", ()), ("that_does_not", ("--reconnect=0",))):
    for _killed in (False, True):
        t.test(120, trees=ALL, waits=True, name=f"in_a_copy_a_session_is_ended_over_a_line_{_name}" + ("_and_its_program_killed" if _killed else ""))(
            lambda flags=_flags, killed=_killed: ended_while_stopped(flags, killed))


def idle_times(pid, port):
    """TCP_KEEPIDLE of each connection that a process has with this port at one end."""
    syscall, found = ctypes.CDLL(None, use_errno=True).syscall, []
    watched = os.pidfd_open(pid)
    for entry in os.listdir(f"/proc/{pid}/fd"):
        fd = syscall(438, watched, int(entry), 0)  # pidfd_getfd
        if fd < 0 and ctypes.get_errno() == errno.EPERM:
            raise t.Skip("descriptors of other processes cannot be had (pidfd_getfd)")
        if fd < 0:
            continue
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.close(fd)
            continue
        with socket.socket(fileno=fd) as end, contextlib.suppress(OSError):  # which is not connected
            if end.family == socket.AF_INET and end.type == socket.SOCK_STREAM and port in (end.getsockname()[1], end.getpeername()[1]):
                found.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
    os.close(watched)
    return found


@t.test(60)
def the_heartbeat_is_that_of_all_connections():
    # Without walls: an ordinary user cannot look into a worker.
    with t.Server("--heartbeat=300", "--walls=0") as server, t.held(server, "copy", "tcp", TOWLINE_LANES="4") as client:
        # The worker asks nothing on the connection that only tells of the program's end: it has the kernel's own two hours.
        for pid, leash in ((client.pid, set()), (only_session(server)["worker_pid"], {7200})):
            t.wait_until(lambda: len(idle_times(pid, server.port())) > 4 and set(idle_times(pid, server.port())) == {120} | leash, 20,
                         "all of several connections have two fifths of the heartbeat")


@t.test(60)
def a_heartbeat_that_is_too_small_is_refused():
    done = t.run([t.TOWLINED, "--heartbeat=4"])
    t.check(done.returncode != 0 and "heartbeat = 4 is too small; the least is 5" in done.stderr, done.stderr)


@t.test(120, waits=True)
def a_network_that_is_cut_is_noticed_by_both():
    if t.run(["unshare", "--net", "true"]).returncode != 0:
        raise t.Skip("a network of its own cannot be had (unshare --net)")
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    done = t.run(["unshare", "--net", sys.executable, HELPERS / "cut_network.py", program], 100)
    t.check(done.returncode == 0, f"{done.stdout}{done.stderr}")


# ---- what is said, and to whom ----

@t.test(60)
def strangers_do_not_learn_paths():
    with t.Server() as server:
        reports = [json.loads(t.run([t.TOWLINE, "status", "-s", server.address(kind), "--json"]).stdout)[0]["report"] for kind in ("unix", "tcp")]
        t.check("listen" in reports[0] and "pid" in reports[0], f"{reports[0]}")
        for command in ("status", "devices"):
            done = [t.run([t.TOWLINE, command, "-s", server.address(kind)]) for kind in ("unix", "tcp")]
            t.equal((done[1].returncode, len(done[1].stdout.splitlines())), (0, len(done[0].stdout.splitlines())), f"{command} for strangers")
        t.check("listen" not in reports[1] and "pid" not in reports[1] and str(server.folder) not in str(reports[1]), f"{reports[1]}")


@t.test(60)
def strangers_do_not_learn_why_a_worker_fails():
    """The reason names files of the server's machine: its user reads it, everybody else is sent to the log."""
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    with t.Server("--idle-workers=0", device=str(driver)) as server:
        path = server.folder / driver.name
        path.unlink()
        idle = server.workers()
        os.kill(idle[0], signal.SIGKILL)
        t.wait_until(lambda: not server.workers(), 20, "the worker that was ready is gone")
        said = {kind: t.towline_run(server.address(kind), [sys.executable, "-c", BEGIN], env={"TOWLINE_TRANSPORT": "auto"}).stderr
                for kind in ("unix", "tcp")}
        report = json.loads(t.run([t.TOWLINE, "status", "-s", server.address("tcp"), "--json"]).stdout)[0]["report"]
        t.equal((report["failure"], str(server.folder) in str(report)), ("the server's log says why", False), "the status")
        t.check(f"could not start a worker: The driver library {path} cannot be opened" in said["unix"], said)
        t.check("could not start a worker: the server's log says why" in said["tcp"] and str(server.folder) not in said["tcp"], said)
        t.check(f"a worker could not start: The driver library {path} cannot be opened" in server.log(), server.log())


@t.test(60, waits=True)
def a_program_that_ends_says_for_whom_it_waits():
    """The listener stands still, so nobody tells that the worker is gone: after 3 of the 10 s there is a word, and it is true."""
    with t.Server() as server, t.held(server, "exit", TOWLINE_TRANSPORT="unix") as client:
        worker = only_session(server)["worker_pid"]
        listener = server.listener
        os.kill(listener, signal.SIGSTOP)
        try:
            client.stdin.close()
            client.stdin = None
            line = client.stderr.readline()
        finally:
            os.kill(listener, signal.SIGCONT)
        t.check(f"the server {server.address()} does not say that this program's GPU memory is free; waiting for it, " in line, line)
        seconds = int(line.split("waiting for it, ")[1].split(" s at most")[0])
        t.check(1 <= seconds <= 7, f"{seconds} s of the 10 s are left when 3 s have passed")
        client.communicate(timeout=60 * t.SLOW)
        t.equal(client.returncode, 0, "the program's exit code")
        t.wait_until(lambda: t.gone(worker), 20, "the worker is gone")


if __name__ == "__main__":
    t.main()
