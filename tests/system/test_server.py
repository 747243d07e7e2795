#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""towlined: sessions that end in every way, limits, signals, settings, systemd."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
ALL = ("plain", "asan", "tsan")


def sessions(server):
    return server.status()["sessions"]


@t.test(trees=ALL)
def status_shows_a_session():
    with t.Server() as server, t.held(server, "poll") as client:
        session = sessions(server)[0]
        t.equal(session["client_pid"], client.pid, "the client's process")
        t.check("hold" in session["client"], f"the client's name: {session}")
        t.equal(session["gpu"], 0, "the GPU")
        t.check(session["memory"] >= 256 << 20, f"the memory: {session}")
        t.check(session["calls"] > 3 and session["bytes_in"] > 100, str(session))
        t.check(session["bytes_out"] >= 16 * session["replies"] > 0, str(session))
        table = t.run([t.TOWLINE, "status", "-s", server.address()]).stdout
        t.check("hold" in table and "MiB" in table, table)


def report(sock, where):
    """A server's report, as whoever owns this socket is told it."""
    with sock:
        sock.settimeout(30 * t.SLOW)
        sock.connect(where)
        sock.sendall(raw.frame(0xF00C, struct.pack("<II", raw.MAGIC, 1)))
        data = b""
        while more := sock.recv(65536):
            data += more
    t.equal(struct.unpack_from("<H", data, 4)[0], 0xF00D, "the kind of the answer")
    return json.loads(data[data.index(b'{"'):data.rindex(b"}") + 1])  # a length before it may be a { by itself


def from_address(source):
    sock = socket.socket()
    sock.bind((source, 0))
    return sock


def as_nobody(function):
    """What a function returns, called as another user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writing, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


@t.test(60)
def a_peer_sees_its_own_sessions():
    """On a network by its address, on a unix socket by its user; root and the server's own user see all."""
    with t.Server("--socket-mode=0666") as server, contextlib.ExitStack() as stack:
        where = ("127.0.0.1", server.port())
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.2"):
            line = stack.enter_context(from_address(source))
            line.settimeout(30 * t.SLOW)
            line.connect(where)
            line.sendall(raw.hello(source))
            kind = raw.NOTICE
            while kind == raw.NOTICE:  # a server that has no worker ready asks for patience
                length, kind = struct.unpack_from("<IH", line.recv(16, socket.MSG_WAITALL))
                line.recv(length - 16, socket.MSG_WAITALL)
            t.equal(kind, raw.WELCOME, "the kind of the answer")
        with raw.Client(server, name="local"):
            def names(found):
                return sorted(session["client"] for session in found["sessions"])
            t.equal(names(server.status()), ["127.0.0.1", "127.0.0.2", "127.0.0.2", "local"], "what the server's user sees")
            t.check("others" not in server.status(), "the server's user is told that something is not shown")
            for source, wanted in (("127.0.0.1", 1), ("127.0.0.2", 2), ("127.0.0.3", 0)):
                found = report(from_address(source), where)
                t.equal(names(found), [source] * wanted, f"what {source} sees")
                t.equal(found["others"]["sessions"], 4 - wanted, f"how many {source} does not see")
                t.equal(found["workers"]["busy"], 4, f"how many are served, as {source} is told")
            table = t.run([t.TOWLINE, "status", "-s", server.address("tcp")]).stdout
            t.check("127.0.0.1:" in table and "127.0.0.2:" not in table and "3 sessions of others are not shown" in table, table)
            if os.geteuid() == 0:
                server.folder.chmod(0o755)
                t.equal(as_nobody(lambda: names(report(socket.socket(socket.AF_UNIX), str(server.socket)))), [], "what another user sees")


HELD = {"copy": 64 << 20, "poll": 256 << 20, "spin": 0}  # what hold.c has written to on the device


def kill_client(mode, kind):
    with t.Server(*t.SEEN) as server:
        before = server.settled()
        with t.held(server, mode, kind) as client:
            worker = sessions(server)[0]["worker_pid"]
            # Only when a first copy has been made is it in the midst of one.
            t.wait_until(lambda: server.resident() >= before + HELD[mode], 20, f"the server holds {HELD[mode] >> 20} MiB more")
            client.kill()
            server.forgets(worker, before)


for _mode in ("copy", "poll", "spin"):
    for _kind in ("unix", "tcp", "shm"):
        if _mode == "copy" or _kind == "unix":
            t.test(trees=ALL, name=f"kill_client_{_mode}_{_kind}", matrix="kills")(
                lambda mode=_mode, kind=_kind: kill_client(mode, kind))


def kill_worker(mode, kind):
    with t.Server() as server, t.held(server, "poll", kind) as other, t.held(server, mode, kind) as client:
        worker = next(s["worker_pid"] for s in sessions(server) if s["client_pid"] == client.pid)
        start = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        out, err = client.communicate(timeout=40 * t.SLOW)
        seconds = time.monotonic() - start
        print(f"the client had its error after {seconds:.2f} s")
        t.check(seconds < 20 * t.SLOW, f"the client noticed only after {seconds:.1f} s")
        t.equal(client.returncode, 3, f"the client's exit code ({out}{err})")
        t.check("error CUDA_ERROR" in out, f"no error code: {out}")
        t.equal(len(err.splitlines()), 1, f"lines on stderr ({err}); their number")
        t.wait_until(lambda: [s["client_pid"] for s in sessions(server)] == [other.pid], 2, "only the other session is left")
        calls = sessions(server)[0]["calls"]
        t.wait_until(lambda: sessions(server)[0]["calls"] > calls + 5, 2, "the other client goes on")
        t.check(other.poll() is None, "the other client has ended too")


for _mode in ("copy", "poll", "spin", "event", "stream"):
    for _kind in ("unix", "tcp", "shm"):
        t.test(trees=ALL, name=f"kill_worker_{_mode}_{_kind}", matrix="kills")(
            lambda mode=_mode, kind=_kind: kill_worker(mode, kind))


# After each synchronisation, both streams get a mark: the driver's text must have come before.
PRINTS = """
import ctypes as c, os
cu, libc, context = c.CDLL("libcuda.so.1"), c.CDLL(None), c.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(c.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
for mark in ("first", "second"):
    status = cu.cuCtxSynchronize()
    libc.fflush(None)
    for fd in (1, 2):
        os.write(fd, f"{mark} {status}\\n".encode())
"""


@t.test(trees=("plain", "asan"))
def what_the_driver_prints_reaches_the_client_in_time():
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    with t.Server(device=str(driver), env={"TOWLINE_LOG": "info"}) as server:
        for kind in ("unix", "tcp", "shm"):
            done = t.towline_run(server.address(kind), ["python3", "-c", PRINTS], preload=True)
            t.equal(done.stdout, "call 1: stdout by stdio\nfirst 0\ncall 2: stdout by stdio\nstdout by descriptor\n"
                    "second 710\n", f"stdout over {kind} ({done.stderr})")
            t.equal(done.stderr, "first 0\nstderr by stdio\nstderr by descriptor\nsecond 710\n", f"stderr over {kind}")
        log = server.log()
        t.check("stderr by" not in log and "the session of" in log, f"the log: {log}")


# Loads PTX that prints or does not.
LOADS = """
import ctypes as c, sys
cu, context, module = c.CDLL("libcuda.so.1"), c.c_void_p(), c.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(c.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
text = ".version 8.0\\n.target sm_80\\n.address_size 64\\n"
if sys.argv[1] == "prints":
    text += ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\\n"
text += ".visible .entry k() { ret; }\\n"
assert cu.cuModuleLoadData(c.byref(module), text.encode()) == 0
"""


@t.test()
def code_that_prints_is_known():
    """Whoever waits for such code waits for what it printed, too."""
    for kind, wanted in (("quiet", 0), ("prints", 1)):
        with t.Server(env={"TOWLINE_LOG": "server=debug"}) as server:
            done = t.towline_run(server.address(), ["python3", "-c", LOADS, kind])
            t.equal((done.returncode, done.stdout + done.stderr), (0, ""), f"code that {kind}")
            t.equal(server.log().count("the client's code prints"), wanted, f"so often the log tells of code that {kind}")


@t.test(60, trees=("plain", "asan"), waits=True)
def a_program_waits_for_a_worker_that_takes_long_to_begin():
    """Longer than the 5 s after which somebody who says nothing is taken for no server at all."""
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    slow = driver.with_name(f"slow.{os.getpid()}")
    begin = "import ctypes as c; cu = c.CDLL('libcuda.so.1'); assert cu.cuInit(0) == 0; print('begun')"
    try:
        with t.Server("--idle-workers=0", device=str(driver), env={"TOWLINE_PRINTER_SLOW": str(slow)}) as server:
            slow.touch()
            time.sleep(0.2)
            start = time.monotonic()
            t.towline_run(server.address(), ["python3", "-c", begin], preload=True)  # uses up the worker that was ready
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                runs = {kind: pool.submit(t.towline_run, server.address(kind), ["python3", "-c", begin], preload=True,
                                          env={"TOWLINE_TRANSPORT": "unix"}) for kind in ("unix", "tcp", "shm")}
            for kind, done in runs.items():
                t.equal(done.result().stdout, "begun\n", f"stdout over {kind} ({done.result().stderr})")
            t.check(time.monotonic() - start > 5, "the worker was not slow: nothing is shown")
    finally:
        slow.unlink(missing_ok=True)


def two_programs(kinds):
    """Each writes and checks its own memory while it tries the other's addresses and handles."""
    program = t.build_c(HELPERS / "apart.c", ["-lcuda"], "apart")
    with t.Server("--soft-memory=1G") as server, contextlib.ExitStack() as stack:
        both = [subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(kind), "--", str(program), str(number)],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for number, kind in enumerate(kinds)]
        for process in both:
            stack.callback(process.communicate)
            stack.callback(process.kill)
        mine = [process.stdout.readline().split() for process in both]
        t.check(all(words[:1] == ["mine"] and len(words) == 6 for words in mine), f"they said {mine}")
        t.check(not set(mine[0][1:]) & set(mine[1][1:]), f"they have values in common, so nothing can be tried: {mine}")
        t.equal(len({s["worker_pid"] for s in sessions(server)}), 2, "the number of workers")
        for process, other in zip(both, reversed(mine)):
            process.stdin.write(f"theirs {' '.join(other[1:])}\n")
            process.stdin.flush()
        t.equal([process.stdout.readline() for process in both], ["tried\n"] * 2, "what they found")
        for process in both:  # each has tried to spoil the other's
            process.stdin.write("go\n")
            process.stdin.flush()
        t.equal([process.communicate(timeout=30 * t.SLOW)[0] for process in both], ["kept\nend\n"] * 2, "how they ended")


for _kinds in (("unix", "unix"), ("tcp", "tcp"), ("shm", "shm"), ("tcp", "shm")):
    t.test(trees=ALL, name=f"two_programs_do_not_see_each_other_{'_'.join(_kinds)}", matrix="two programs")(
        lambda kinds=_kinds: two_programs(kinds))


@t.test(trees=ALL)
def memory_is_free_again():
    """After a program that ends by itself and frees nothing."""
    with t.Server(*t.SEEN) as server:
        before = server.settled()
        with t.held(server, "leave") as client:
            session = sessions(server)[0]
            t.check(session["memory"] >= HELD["poll"], f"the memory on the books: {session}")
            t.check(server.resident() >= before + HELD["poll"], "the memory is not seen: nothing can be shown")
            client.communicate(timeout=40 * t.SLOW)
            t.equal(client.returncode, 0, "the exit code")
            server.forgets(session["worker_pid"], before)


FULL = (("tcp", "auto"), ("unix", "unix"), ("unix", "auto"), ("unix", "shm"), ("shm", "auto"))


@t.test(120, trees=ALL, waits=True)
def full_server_refuses_with_a_sentence():
    """After the program has waited as long as it wants."""
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    with t.Server("--max-sessions=1") as server, t.held(server, "poll"), concurrent.futures.ThreadPoolExecutor(len(FULL)) as pool:
        def run(kind, wish):
            return t.towline_run(server.address(kind), [program, "free"], 100, env={"TOWLINE_TRANSPORT": wish, "TOWLINE_WAIT": "2"})
        runs = {how: pool.submit(run, *how) for how in FULL}
        for how, done in runs.items():
            t.check(done.result().returncode != 0, f"a second session was begun over {how}")
            t.check("refuses: the server is full" in done.result().stderr, f"over {how}: {done.result().stderr}")
            t.check("waited in line for 2 s" in done.result().stderr, f"over {how}: {done.result().stderr}")


@t.test(120, waits=True)
def a_program_waits_for_a_full_server():
    begin = "import ctypes as c; cu = c.CDLL('libcuda.so.1'); print('begun', cu.cuInit(0))"
    for kind, wish in FULL[::2]:
        with t.Server("--max-sessions=1") as server:
            with t.held(server, "poll"):
                program = subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(kind), "--", "python3", "-c", begin],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                           env=dict(os.environ, TOWLINE_TRANSPORT=wish))
                said = program.stderr.readline()
                t.check("place 1 of 1 (it serves as many programs as it may)" in said, f"over {kind}, {wish} it says {said!r}")
            out, err = program.communicate(timeout=60)
            t.equal((out, err), ("begun 0\n", ""), f"what comes over {kind}, {wish}")


@t.test(trees=ALL)
def workers_wait_ahead():
    with t.Server("--idle-workers=2") as server:
        t.wait_until(lambda: server.status()["workers"]["idle"] == 2, 10, "two workers are idle")
        with t.held(server, "poll"):
            t.wait_until(lambda: server.status()["workers"]["idle"] == 2, 10, "two workers are idle again")


@t.test(180, trees=ALL, waits=True)
def strangers_are_closed():
    with t.Server() as server:
        with socket.create_connection(("127.0.0.1", server.port())) as http:
            http.settimeout(30 * t.SLOW)
            http.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                t.equal(http.recv(100), b"", "what HTTP is answered")
        with socket.create_connection(("127.0.0.1", server.port())) as slow:
            slow.settimeout(120 * t.SLOW)
            slow.sendall(b"\x30\0\0")
            start = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                t.equal(slow.recv(100), b"", "what a silent peer is answered")
            t.check(8 < time.monotonic() - start < 100 * t.SLOW, "a silent peer is closed after 10 s")
        t.wait_until(lambda: "HTTP" in server.log(), 2, "a line in the log")
        t.equal(len(server.status()["sessions"]), 0, "sessions")


@t.test(60, trees=ALL)
def many_strangers_do_not_block_a_client():
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    with t.Server() as server:
        strangers = [socket.create_connection(("127.0.0.1", server.port())) for _ in range(300)]
        done = t.towline_run(server.address("tcp"), [program, "free"])
        t.check(done.returncode == 0, done.stderr)
        for stranger in strangers:
            stranger.close()


@t.test(trees=ALL)
def broken_hello_is_refused_or_closed():
    with t.Server() as server:
        # A hello that promises more than it holds.
        body = struct.pack("<IIII", 0x4C574F54, 1, 1, 1) + b"\xff" * 200
        with socket.create_connection(("127.0.0.1", server.port())) as connection:
            connection.settimeout(30 * t.SLOW)
            connection.sendall(struct.pack("<IHHII", 16 + len(body), 0xF000, 0, 0, 0) + body)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
        t.wait_until(lambda: not sessions(server), 5, "no session is left")


@t.test(trees=ALL)
def sigterm_ends_everything():
    with t.Server() as server, t.held(server, "poll") as client:
        workers = server.workers()
        t.check(workers, "there are no workers")
        t.equal(server.stop(), 0, "the exit code")
        t.check(not server.socket.exists(), "the socket is still there")
        t.check(all(t.gone(worker) for worker in workers), "workers are left")
        client.communicate(timeout=40 * t.SLOW)
        t.equal(client.returncode, 3, "the client's exit code")


@t.test(60)
def a_server_that_is_drained_ends_with_its_last_session():
    begin = "import ctypes as c; print(c.CDLL('libcuda.so.1').cuInit(0))"
    with t.Server() as server:
        with t.held(server, "leave") as client:
            for worker in server.workers():  # a signal to the whole unit or job reaches them too
                os.kill(worker, signal.SIGUSR1)
            server.process.send_signal(signal.SIGUSR1)
            t.wait_until(lambda: "draining" in server.status(), 10, "the server is being drained")
            for kind in ("unix", "tcp", "shm"):
                done = t.towline_run(server.address(kind), ["python3", "-c", begin])
                t.check("refuses: the server is being drained" in done.stderr and done.stdout != "0\n", f"{kind}: {done.stdout}{done.stderr}")
            t.check("is being drained" in t.run([t.TOWLINE, "status", "-s", server.address()]).stdout, "towline status does not say so")
            t.equal(server.process.poll(), None, "the exit code while a session goes on")
            client.communicate(timeout=40)
            t.equal(client.returncode, 0, "the exit code of the program that was there")
        t.equal(server.process.wait(timeout=60), 0, "the exit code")
        t.check(not server.socket.exists(), "the socket is still there")


@t.test()
def listener_killed_takes_its_workers():
    with t.Server() as server:
        workers = server.workers()
        server.process.kill()
        server.process.wait()
        t.wait_until(lambda: all(t.gone(worker) for worker in workers), 2, "the workers are gone")


def flags(pid):
    """What a process was started with; nothing if it has just ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


@t.test()
def sighup_reads_the_file_again():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text("# test\nidle-workers = 1\nsoft-devices = 1\n")
        with t.Server(f"--config={config}") as server:
            t.equal(len(server.status()["devices"]), 1, "devices")
            config.write_text("idle-workers = 2\nsoft-devices = 3\nlanes = 2\nsocket-mode = 0640\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: len(server.status()["devices"]) == 3 and server.status()["workers"]["idle"] == 2, 10,
                         "the new settings are used")
            t.wait_until(lambda: server.workers() and all("--lanes=2" in flags(worker) for worker in server.workers()), 10, "the workers before are gone")
            t.check("need a restart" in server.log(), "the log says that the socket stays as it is")
            config.write_text("nonsense\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "nonsense" in server.log(), 5, "the complaint")
            t.equal(len(server.status()["devices"]), 3, "devices after a bad file")


@t.test()
def wrong_settings_are_told():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        for given, words in ((["--listne=x"], "listne"), (["--soft-memory=many"], "soft-memory"),
                             (["--idle-workers=9999"], "idle-workers"), (["--config=/nonexistent"], "/nonexistent"),
                             (["--listen"], "listen"), (["--listen=nowhere", "--device=soft"], "nowhere"),
                             (["--device=/nonexistent.so", f"--listen=unix://{folder}/never"], "/nonexistent.so")):
            done = t.run([t.TOWLINED, *given], 20)
            t.check(done.returncode in (1, 2), f"{given}: {done}")
            t.check(words in done.stderr and len(done.stderr.splitlines()) == 1, f"{given}: {done.stderr}")


# A /run of its own and a network of its own with nothing but this machine in it.
ALONE = """
mount -t tmpfs tmpfs /run && python3 -c '
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING
' && exec "$@"
"""


@t.test()
def without_addresses_it_listens_on_this_machine_only():
    alone = ["unshare", "-m", "-n", "sh", "-c", ALONE, "sh"]
    if os.geteuid() != 0 or t.run([*alone, "true"]).returncode != 0:
        raise t.Skip("mount and network namespaces are not permitted here")
    server = t.Server(listen=[], env={"XDG_RUNTIME_DIR": "/nowhere"})
    server.limit = alone
    with server:
        inside = pathlib.Path(f"/proc/{server.process.pid}")
        words = {name: [line.split() for line in (inside / "net" / name).read_text().splitlines()[1:]]
                 for name in ("tcp", "tcp6", "udp", "udp6", "unix")}
        t.equal([w[1] for w in words["tcp"] if w[3] == "0A"], ["0100007F:12E5"], "what listens on tcp, 127.0.0.1:4837 being all,")
        t.equal([w[1] for name in ("tcp6", "udp", "udp6") for w in words[name]], [], "what is open beside")
        # The flag of those that listen; names follow after the inode.
        t.equal([w[7:] for w in words["unix"] if int(w[3], 16) & 0x10000], [["/run/towline.sock"]], "what listens on unix")
        t.equal(os.listdir(inside / "root" / "run"), ["towline.sock"], "/run")
        enter = ["nsenter", "-t", server.process.pid, "-m", "-n"]
        for address in ([], ["-s", "unix:///run/towline.sock"], ["-s", "tcp://127.0.0.1:4837"], ["-s", "tcp://127.0.0.1"],
                        ["-s", "127.0.0.1"], ["-s", "localhost"], ["-s", "/run/towline.sock"]):
            done = t.run([*enter, t.TOWLINE, "devices", *address], env=t.clean_environment())
            t.check(done.returncode == 0 and "Towline" in done.stdout, f"{address}: {done.stdout}{done.stderr}")


@t.test()
def without_a_device_it_takes_the_driver_that_works():
    """Else the software GPU: where there is no driver, none with a GPU, or none but our own client library."""
    found = "import ctypes; ctypes.CDLL('libcuda.so.1')"
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    folders = re.findall(r'^    "(/.+)",$', (t.ROOT / "src" / "backend" / "cuda" / "open.c").read_text(), re.M)
    t.check("/usr/lib64" in folders, f"open.c was not understood: {folders}")
    if t.run([sys.executable, "-c", found], env=env).returncode == 0 or any(
            pathlib.Path(folder, "libcuda.so.1").exists() for folder in folders):
        raise t.Skip("this machine has a driver of its own")
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        for name, path, more, kind in (("no", "/nowhere", {}, "soft"), ("a", folder, {}, "cuda"),
                                       ("an unusable", folder, {"TOWLINE_PRINTER_NONE": "1"}, "soft"),
                                       ("our own", str(t.LIBCUDA.parent), {}, "soft")):
            if path == folder and not os.path.lexists(f"{folder}/libcuda.so.1"):
                os.symlink(driver, f"{folder}/libcuda.so.1")
            with t.Server(device=None, env={"LD_LIBRARY_PATH": path, **more}) as server:
                t.equal(re.search(r" serves (\w+): ", server.log())[1], kind, f"what is served with {name} driver")
                device = server.status()["devices"][0]["name"]
                t.equal(device == "a printer", kind == "cuda", f"with {name} driver, that {device!r} is the driver's")


HOLD = """
import ctypes as c, sys
assert c.CDLL("libcuda.so.1").cuInit(0) == 0
print("ready", flush=True)
sys.stdin.read()
"""


@t.test()
def a_setting_of_the_driver_gets_a_worker_of_its_own():
    """The driver reads its variables when it begins, so the worker must have begun with them."""
    driver = t.build_c(HELPERS / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    names = ("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES")
    t.check(not set(names) & set(os.environ), f"one of {names} is set here")

    def environment(pid):
        try:
            pairs = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            return {}
        return {key: value for key, _, value in (pair.partition("=") for pair in pairs) if key in names}

    # The last two are what the driver does anyway, and what is for the client alone.
    both = {names[0]: "1", names[1]: "EAGER"}
    cases = (({}, {}), (both, both), ({names[0]: "2"}, {names[0]: "2"}), ({names[1]: "LAZY"}, {}), ({names[2]: "0"}, {}))
    with t.Server(*t.SEEN, device=str(driver)) as server:
        for kind, wish, over, some in (("unix", "auto", "shm", cases), ("unix", "shm", "shm", cases[1:3]),
                                       ("shm", "auto", "shm", cases[1:3]), ("unix", "unix", "unix", cases[1:3]),
                                       ("tcp", "auto", "tcp", cases[1:3])):
            with contextlib.ExitStack() as stack:
                clients = []
                for given, _ in some:
                    clients.append(subprocess.Popen(
                        [str(t.TOWLINE), "run", "-s", server.address(kind), "--", sys.executable, "-c", HOLD],
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                        env=dict(os.environ, TOWLINE_TRANSPORT=wish, TOWLINE_LOG="client=info", **given)))
                    stack.callback(clients[-1].communicate)
                said = [client.stdout.readline() for client in clients]
                t.equal(said, ["ready\n"] * len(clients), f"what they say over {kind}")
                workers = {session["client_pid"]: session["worker_pid"] for session in sessions(server)}
                t.equal(len(set(workers.values())), len(clients), "the number of workers")
                for client, (given, wanted) in zip(clients, some):
                    t.equal(environment(workers[client.pid]), wanted, f"what a worker for {given} has over {kind}")
                    said = client.communicate()[1]
                    t.check(f" over {over}\n" in said, f"with {given} it does not say \"over {over}\":\n{said}")
            t.wait_until(lambda: not sessions(server), 5, "the sessions end")
        t.wait_until(lambda: not any(map(environment, server.workers())), 5, "workers that wait ahead have no settings")


@t.test()
def second_server_does_not_steal_the_socket():
    with t.Server() as server:
        done = t.run([t.TOWLINED, f"--listen=unix://{server.socket}", "--device=soft"], 20)
        t.equal(done.returncode, 1, "the second server's exit code")
        t.equal(len(done.stderr.splitlines()), 1, f"lines ({done.stderr}); their number")
        server.status()


@t.test(trees=ALL)
def socket_mode_is_set():
    with t.Server("--socket-mode=0600") as server:
        t.equal(oct(server.socket.stat().st_mode & 0o777), "0o600", "the socket's mode")


@t.test(trees=ALL)
def systemd_sockets_and_notification():
    with tempfile.TemporaryDirectory() as folder:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(f"{folder}/notify")
        notify.settimeout(20 * t.SLOW)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/sock")
        listener.listen()
        # As systemd does: the socket is descriptor 3, and LISTEN_PID is the server itself.
        process = subprocess.Popen(
            ["sh", "-c", f"LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET={folder}/notify exec {t.TOWLINED} --device=soft "
                         f"--soft-memory=256M --cache-dir={folder} 3<&{listener.fileno()}"], pass_fds=[listener.fileno()],
            stderr=subprocess.PIPE, text=True)
        try:
            t.check(notify.recv(4096).startswith(b"READY=1"), "READY=1 was not said")
            done = t.run([t.TOWLINE, "devices", "-s", f"unix://{folder}/sock"])
            t.check(done.returncode == 0, done.stderr)
            process.terminate()
            t.check(notify.recv(4096).startswith(b"STOPPING=1"), "STOPPING=1 was not said")
        finally:
            process.terminate()
            _, err = process.communicate(timeout=40 * t.SLOW)
        t.equal(process.returncode, 0, f"the exit code ({err})")
        t.check(pathlib.Path(f"{folder}/sock").exists(), "systemd's socket was removed")
        t.check_no_report(err, "towlined's log")



@t.test()
def a_gpu_that_reaches_pageable_memory_is_warned_of():
    for env, lines in (({}, 0), ({"TOWLINE_TEST_PAGEABLE": "1"}, 1)):
        with t.Server(env=env) as server:
            t.equal(server.log().count("load nvidia-uvm with uvm_disable_hmm=1"), lines, "the number of warnings")


if __name__ == "__main__":
    t.main()
