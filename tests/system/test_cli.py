#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The towline command: what it runs, what it says when something is wrong, and how fast."""

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
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402
from rawclient import MAGIC, PROTOCOL, frame  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
ALL = ("plain", "asan", "tsan")
SHM_MAGIC = b"TOWLSHM\0"


def hold_program():
    return t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")


@contextlib.contextmanager
def fake_server(answer, unix=False, late=0):
    """Listens on a free port or unix socket and answers each first bytes with `answer`: bytes, None (says nothing) or a
    function of the connection and its first bytes. `late`: the first connection gets into the queue so late."""
    kept = []
    with contextlib.ExitStack() as stack:
        if unix:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tow"))
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{folder}/s")
            listener.listen(0 if late else 8)
            address = f"unix://{folder}/s"
            if late:
                filler = stack.enter_context(socket.socket(socket.AF_UNIX))
                filler.connect(f"{folder}/s")
        else:
            listener = socket.create_server(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        stack.enter_context(listener)

        def serve():
            time.sleep(late)
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                if callable(answer):
                    threading.Thread(target=lambda: answer(connection, connection.recv(65536)), daemon=True).start()
                elif answer is not None:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
        threading.Thread(target=serve, daemon=True).start()
        yield address
    for connection in kept:
        connection.close()


def run_program(address):
    """Not asked for before: the library finds out."""
    return [t.TOWLINE, "run", "--no-check", "-s", address, "--", hold_program(), "free"]


def expect_failure(address, words, commands=None, transport="auto"):
    """A program, `towline run` before it starts one, and `towline status` all fail in time (a silent peer is given up after 4 s) with one sentence that has
    these words."""
    for command in commands or (run_program(address), [t.TOWLINE, "run", "-s", address, "--", "echo", "it was started"],
                                [t.TOWLINE, "status", "-s", address]):
        start = time.monotonic()
        done = t.run(command, 60, env=t.clean_environment(TOWLINE_TRANSPORT=transport))
        seconds = time.monotonic() - start
        text = f"{' '.join(map(str, command))}: exit code {done.returncode}, {seconds:.1f} s\n{done.stdout}{done.stderr}"
        t.check(done.returncode not in (0, None) and done.returncode > 0, f"no error code, or a crash: {text}")
        t.check(seconds < 40 * t.SLOW, f"too slow: {text}")
        t.check("it was started" not in done.stdout, text)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        t.equal(len(lines), 1, f"lines on stderr: {text}; their number")
        for word in words:
            t.check(word in lines[0], f"{word!r} is not in: {lines[0]}")


@t.test(trees=ALL)
def run_unreachable_unix_server():
    expect_failure("unix:///nonexistent/towline.sock", ["/nonexistent/towline.sock", "towlined"])


@t.test()
def a_program_may_have_a_long_name():
    """argv[0] is whatever its parent says: `exec -a`, an interpreter with its whole command line there."""
    with t.Server() as server:
        env = t.clean_environment(TOWLINE_SERVER=server.address(), LD_LIBRARY_PATH=str(t.BUILD / "lib"))
        holder = subprocess.Popen(["n" * 300, "leave"], executable=hold_program(), env=env, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            t.equal(holder.stdout.readline(), "ready\n", "what it says first")
            shown = [session["client"] for session in server.status()["sessions"]]
            t.check(len(shown) == 1 and re.fullmatch("n{20,255}", shown[0]), f"names of programs: {shown}")
        finally:
            _, said = holder.communicate()
        t.equal((holder.returncode, said), (0, ""), "how it ends, and what it says")


@t.test(trees=ALL)
def run_wrong_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    expect_failure(f"tcp://127.0.0.1:{port}", [str(port), "towlined"])


@t.test(120)
def run_host_that_does_not_answer():
    # TEST-NET-1: packets go nowhere, or are refused at once where there is no route.
    expect_failure("tcp://192.0.2.1:4837", ["192.0.2.1"])


@t.test(120)
def run_unknown_host():
    expect_failure("tcp://no-such-host.invalid:4837", ["no-such-host.invalid"])


@t.test(trees=ALL)
def run_not_an_address():
    expect_failure("gpu host", ["gpu host is not an address", "gpuhost:4837"])
    expect_failure("gpuhost:70000", ["gpuhost:70000 is not an address"])
    expect_failure("./towline.sock", ["./towline.sock is not an address", "/run/towline.sock"])


@t.test(trees=ALL)
def run_peer_that_speaks_http():
    with fake_server(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as address:
        expect_failure(address, ["HTTP"])


@t.test(trees=ALL)
def run_peer_that_speaks_nonsense():
    with fake_server(bytes(range(1, 65))) as address:
        expect_failure(address, ["does not speak Towline's protocol"])


@t.test(240, waits=True)
def run_peer_that_is_silent():
    with fake_server(None) as address:
        expect_failure(address, ["127.0.0.1"])
    with fake_server(None, unix=True) as address:
        expect_failure(address, [address])


@t.test(180, waits=True)
def run_peer_that_is_late_and_silent():
    """Connecting and the welcome have one time limit together."""
    for transport in ("auto", "unix"):
        with fake_server(None, unix=True, late=2.5) as address:
            expect_failure(address, [address], [run_program(address)], transport)

    def no_memory(connection, request):
        if request.startswith(SHM_MAGIC):
            time.sleep(2.5)
            connection.shutdown(socket.SHUT_RDWR)
    with fake_server(no_memory, unix=True) as address:
        expect_failure(address, [address], [run_program(address)])


@t.test(180, waits=True)
def run_server_that_asks_for_patience():
    """It may take as long as it says every 2 s that it is there; so does what it says over shared memory."""
    refuse = frame(0xF002, struct.pack("<III", MAGIC, 5, 5) + b"full\0")
    notice = frame(0xF00A, struct.pack("<IIQQI", 5, 0, 0, 0, 1) + b"\0")
    told = []

    def busy(connection, request):
        if request[4:6] == b"\x0c\xf0":
            return  # the client asks whether it is there: it says so itself, and that must do
        shared = request.startswith(SHM_MAGIC)
        told.append(shared)
        for _ in range(3):
            time.sleep(2)
            connection.sendall(SHM_MAGIC + bytes(24) if shared else notice)
        if not shared:
            time.sleep(2)
            connection.sendall(refuse)
        connection.shutdown(socket.SHUT_RDWR)
    with fake_server(busy, unix=True) as address:
        done = t.run(run_program(address), 30, env=t.clean_environment())
        t.check("refuses: full" in done.stderr, done.stderr)
        t.equal(told, [True, False], "shared memory was asked for, then the socket; what was asked for")


@t.test(trees=ALL)
def run_peer_with_newer_protocol():
    sentence = b"the client speaks Towline protocol 1 and the server 7; install a newer Towline on the client\0"
    refuse = frame(0xF002, struct.pack("<III", MAGIC, 1, len(sentence)) + sentence)
    with fake_server(refuse) as address:
        expect_failure(address, ["install a newer Towline on the client"])


def refusal(server, low, high):
    """What the server says to a hello of these protocol versions."""
    with socket.create_connection(("127.0.0.1", server.port())) as connection:
        connection.settimeout(10 * t.SLOW)
        body = struct.pack("<IIII", MAGIC, low, high, 1) + b"\0" * 40 + struct.pack("<II", 0xFFFFFFFF, 0)
        body += struct.pack("<I4s", 3, b"me\0\0") + struct.pack("<I", 0)
        connection.sendall(frame(0xF000, body))
        answer = b""
        while chunk := connection.recv(4096):
            answer += chunk
    t.equal(struct.unpack_from("<H", answer, 4)[0], 0xF002, "the kind of the answer")
    return answer


@t.test(trees=ALL)
def server_refuses_a_newer_client():
    with t.Server() as server:
        answer = refusal(server, 7, 9)
        t.check(b"install a newer Towline on the server" in answer, f"the sentence: {answer!r}")


@t.test(trees=ALL)
def server_refuses_an_older_client():
    with t.Server() as server:
        answer = refusal(server, 1, PROTOCOL - 1)
        t.check(b"install a newer Towline on the client" in answer, f"the sentence: {answer!r}")


@t.test(trees=ALL)
def run_gives_the_exit_code():
    with t.Server() as server:
        for code in (0, 1, 7, 255):
            done = t.run([t.TOWLINE, "run", "-s", server.address(), "--", "sh", "-c", f"exit {code}"])
            t.equal(done.returncode, code, "the exit code")
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--", "sh", "-c", "kill -TERM $$"])
        t.equal(done.returncode, -signal.SIGTERM, "the end by a signal")


@t.test()
def run_says_what_cannot_be_run():
    done = t.run([t.TOWLINE, "run", "--", "no-such-program"])
    t.equal(done.returncode, 127, "the exit code for a missing program")
    t.check("no-such-program" in done.stderr, done.stderr)
    done = t.run([t.TOWLINE, "run", "--", t.ROOT / "LICENSE"])
    t.equal(done.returncode, 126, "the exit code for a file that is no program")
    done = t.run([t.TOWLINE, "run"])
    t.equal(done.returncode, 2, "the exit code without a program")


@t.test()
def run_sets_the_environment():
    done = t.run([t.TOWLINE, "run", "--no-check", "-s", "unix:///x", "--", "env"], env=t.clean_environment(LD_LIBRARY_PATH="/before"))
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    t.equal(variables["LD_LIBRARY_PATH"], f"{t.LIBCUDA.parent}:/before", "LD_LIBRARY_PATH")
    t.equal(variables["TRITON_LIBCUDA_PATH"], str(t.LIBCUDA.parent), "TRITON_LIBCUDA_PATH")
    t.equal(variables["TOWLINE_SERVER"], "unix:///x", "TOWLINE_SERVER")


def private_folders(base):
    return list(pathlib.Path(base).glob("towline-*"))


@t.test(trees=ALL)
def run_starts_and_ends_a_private_server():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        # No default socket is found there, and HOME has no config file.
        env = t.clean_environment(XDG_RUNTIME_DIR=base, XDG_CONFIG_HOME=base, XDG_CACHE_HOME=base)
        done = t.run([t.TOWLINE, "run", "--device", "soft", "--", hold_program(), "free"], env=env)
        t.check(done.returncode == 0 and done.stdout.startswith("free "), done.stdout + done.stderr)
        t.wait_until(lambda: not private_folders(base), 5, "the private server has removed its folder")
        # Whatever ends the program.
        done = t.run([t.TOWLINE, "run", "--device", "soft", "--", "sh", "-c", "kill -9 $$"], env=env)
        t.equal(done.returncode, -signal.SIGKILL, "the end by SIGKILL")
        t.wait_until(lambda: not private_folders(base), 5, "the private server has removed its folder")


@t.test()
def run_says_that_it_starts_a_private_server():
    if os.path.exists("/run/towline.sock"):
        raise t.Skip("a server listens on this machine's default socket")
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        env = t.clean_environment(XDG_RUNTIME_DIR=base, XDG_CONFIG_HOME=base, XDG_CACHE_HOME=base)
        done = t.run([t.TOWLINE, "run", "--", "true"], env=env)
        t.equal(done.returncode, 0, "the exit code")
        t.equal(len(done.stderr.splitlines()), 1, f"lines on stderr ({done.stderr}); their number")
        t.check("private" in done.stderr, done.stderr)


@t.test()
def run_takes_the_server_in_order():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        (pathlib.Path(base) / "towline").mkdir()
        (pathlib.Path(base) / "towline" / "towline.conf").write_text("# mine\nserver = unix:///from-file # here\n")
        env = t.clean_environment(XDG_CONFIG_HOME=base)
        run = [t.TOWLINE, "run", "--no-check"]
        show = ["--", "sh", "-c", "echo $TOWLINE_SERVER"]
        t.equal(t.run([*run, *show], env=env).stdout, "unix:///from-file\n", "the file's server")
        env["TOWLINE_SERVER"] = "unix:///from-variable"
        t.equal(t.run([*run, *show], env=env).stdout, "unix:///from-variable\n", "the variable's server")
        t.equal(t.run([*run, "-s", "unix:///flag", *show], env=env).stdout, "unix:///flag\n", "the flag's")


def config_file(base, text):
    path = pathlib.Path(base) / "towline" / "towline.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def loads_and_says(env):
    """cuInit's result and what it wrote, in a program that was started without `towline run`."""
    library = t.sanitizer_library()
    more = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0:exitcode=99"} if library else {}
    program = "import ctypes as c; cu = c.CDLL('%s'); print(cu.cuInit(0), cu.cuInit(0))" % t.LIBCUDA
    return t.run(["python3", "-c", program], env=dict(env, **more))


CUDA_ERROR_SYSTEM_NOT_READY = 802


@t.test(trees=("plain", "asan"))
def a_mistake_in_the_config_file_is_an_error():
    """With file and line, from `towline run` and from the library; the program does not run elsewhere."""
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        env = t.clean_environment(XDG_CONFIG_HOME=base, XDG_RUNTIME_DIR=base)
        for text, line, words in (("sever = gpuhost\n", 1, ['"sever"', "write server = HOST:4837"]),
                                  ("# ours\n\nserver gpuhost\n", 3, ['"server gpuhost"', "write server = "]),
                                  ("server = gpu host\n", 1, ["gpu host is not an address"]),
                                  ("server = gpuhost:70000 # ours\r\n", 1, ["gpuhost:70000 is not an address"]),
                                  ("server = \n", 1, ["no server is named"]),
                                  ("server = a,b?,c\n", 1, ["b? is not an address"]),
                                  (f"server = {server.address()}\nserver = b\n", 2, ["line 1", "commas"]),
                                  (f"server = {server.address()}\n[more]\n", 2, ['"[more]"'])):
            path = config_file(base, text)
            where = f"{path}:{line}: "
            done = t.run([t.TOWLINE, "run", "--no-check", "--", "echo", "started"], env=env)
            t.equal((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), f"{text!r}: {done.stderr}: the end")
            for word in (where, *words):
                t.check(word in done.stderr, f"{word!r} is not in: {done.stderr}")
            done = loads_and_says(env)
            t.equal(done.stdout.split(), [str(CUDA_ERROR_SYSTEM_NOT_READY)] * 2, f"{text!r}: cuInit ({done.stderr})")
            t.equal(done.stderr.count("\n"), 1, f"lines on stderr: {done.stderr}; their number")
            for word in (where, *words):
                t.check(word in done.stderr, f"{word!r} is not in: {done.stderr}")
            # Whoever names a server does not need the file.
            t.equal(t.run([t.TOWLINE, "run", "-s", server.address(), "--", "echo", "started"], env=env).stdout, "started\n",
                    "a program whose server is named")
        for text in ("", "# nothing\n\n \t\r\n", f"\tserver={server.socket} # ours\n", f"server = {server.address()}"):
            config_file(base, text)
            done = t.run([t.TOWLINE, "run", "-q", "--", "echo", "started"], env=env)
            t.equal((done.stdout, done.stderr), ("started\n", ""), f"{text!r}: what it says")


@t.test(trees=("plain", "asan"))
def a_config_file_that_cannot_be_read_is_an_error():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        env = t.clean_environment(XDG_CONFIG_HOME=base, XDG_RUNTIME_DIR=base)
        path = config_file(base, "server = gpuhost\n")

        def unreadable():
            path.chmod(0)

        def folder():
            path.unlink()
            path.mkdir()

        def no_text():
            path.rmdir()
            path.write_bytes(b"server = gpu\0host\n")

        def too_long():
            path.write_bytes(b"# a comment\n" * 10000)
        for make, word in ((unreadable, "Permission denied"), (folder, "Is a directory"), (no_text, "not a text"),
                           (too_long, "cannot be read")):
            make()
            if make is unreadable and os.access(path, os.R_OK):
                continue  # root may read everything
            done = t.run([t.TOWLINE, "run", "--", "echo", "started"], env=env)
            t.equal((done.returncode, done.stdout), (1, ""), f"{word}: how it ends")
            for text in (done.stderr, loads_and_says(env).stderr):
                t.check(text.count("\n") == 1 and str(path) in text and word in text, f"{word}: it says {text}")


@t.test(trees=("plain", "asan"))
def a_wrong_address_in_the_environment_is_an_error():
    done = loads_and_says(t.clean_environment(TOWLINE_SERVER="gpu host"))
    t.equal(done.stdout.split(), [str(CUDA_ERROR_SYSTEM_NOT_READY)] * 2, f"cuInit ({done.stderr})")
    t.check("TOWLINE_SERVER: gpu host is not an address" in done.stderr, done.stderr)
    done = t.run([t.TOWLINE, "run", "--", "echo", "started"], env=t.clean_environment(TOWLINE_SERVER="gpu host"))
    t.equal((done.returncode, done.stdout), (1, ""), "how it ends")
    t.check("TOWLINE_SERVER: gpu host is not an address" in done.stderr, done.stderr)


@t.test(trees=("plain", "asan"))
def run_asks_the_server_before_the_program_starts():
    with t.Server("--max-sessions=1", "--idle-workers=1") as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        nobody = f"unix://{base}/nobody"
        start = ["--", "echo", "started"]
        run = [t.TOWLINE, "run"]
        for command, env in (([*run, "-s", nobody, *start], {}), ([*run, "-s", f"{server.socket},{nobody}", *start], {}),
                             ([*run, *start], {"TOWLINE_SERVER": nobody}), ([*run, *start], {"XDG_CONFIG_HOME": base})):
            config_file(base, f"server = {base}/nobody\n")
            done = t.run(command, env=t.clean_environment(**env))
            t.equal((done.returncode, done.stdout), (1, ""), f"{command}, {env}: how it ends ({done.stderr})")
            for word in (nobody, "start towlined", "--no-check"):
                t.check(word in done.stderr, f"{word!r} is not in: {done.stderr}")
            command.insert(2, "--no-check")
            done = t.run(command, env=t.clean_environment(**env))
            t.equal((done.stdout, done.stderr), ("started\n", ""), f"{command}: what comes")
        # No session is begun, none of the places is needed, and nobody waits for numbers of the GPUs.
        for address in (server.address(), server.address("shm"), server.address("tcp"), f"hook:cut=10:{server.address()}"):
            t.equal(t.run([*run, "-s", address, *start]).stdout, "started\n", f"with {address}, what comes")
        with subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(), "--", str(hold_program()), "poll"],
                              stdout=subprocess.PIPE, text=True) as holder:
            try:
                t.equal(holder.stdout.readline(), "ready\n", "what the program that has the place says")
                t.equal(len(server.status()["sessions"]), 1, "the number of sessions")
                t.equal(t.run([*run, "-s", server.address(), *start]).stdout, "started\n", "with a full server, what comes")
            finally:
                holder.kill()
        t.equal(server.log().count("session 2"), 0, "what the log says of a second session, as a number,")
        t.equal(t.run([*run, "-s", "self:soft", *start]).stdout, "started\n", "with self:, what comes")


@t.test()
def addresses_are_understood_everywhere():
    """The same short forms for -s, TOWLINE_SERVER, the config file and towlined's -l."""
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        with t.Server(listen=[f"{base}/sock", f"unix:{base}/other", "127.0.0.1:0"]) as server:
            t.check(f"listens on unix://{base}/sock" in server.log() and f"unix://{base}/other" in server.log(), server.log())
            port = server.port()
            both = f"127.0.0.1:{port}, {base}/sock"
            for address, full in ((f"{base}/sock", f"unix://{base}/sock"), (f"unix:{base}/other", f"unix://{base}/other"),
                                  (f"shm:{base}/sock", f"shm://{base}/sock"), (f"localhost:{port}", f"tcp://localhost:{port}"),
                                  (both, f"tcp://127.0.0.1:{port},unix://{base}/sock")):
                program = ["--", "sh", "-c", f"echo $TOWLINE_SERVER; {hold_program()} free | cut -d' ' -f1"]
                config_file(base, f"server = {address}\n")
                for flags, env in ((["-s", address], {}), ([], {"TOWLINE_SERVER": address}), ([], {"XDG_CONFIG_HOME": base})):
                    done = t.run([t.TOWLINE, "run", *flags, *program], env=t.clean_environment(**env))
                    t.equal(done.stdout, f"{full}\nfree\n", f"{flags} {env}: what comes ({done.stderr})")
                    done = t.run([t.TOWLINE, "devices", *flags], env=t.clean_environment(**env))
                    t.equal(done.returncode, 0, f"towline devices {flags} {env}: {done.stderr}")
                    # Without the wrapper.
                    if not flags:
                        t.equal(loads_and_says(t.clean_environment(**env)).stdout.split(), ["0", "0"], f"{env}: cuInit")


@t.test()
def run_finds_the_socket_of_the_machine():
    """An administrator's server is everybody's, whoever they are; one's own comes first."""
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        env = t.clean_environment(XDG_RUNTIME_DIR=base, XDG_CONFIG_HOME=base, XDG_CACHE_HOME=base)
        # A /run of our own, and then a user other than root, who may still read this tree.
        script = "mount -t tmpfs tmpfs /run && ln -s $0 /run/towline.sock && exec unshare -U --map-user=1000 -- \"$@\""
        alone = ["unshare", "-m", "sh", "-c", script, server.socket]
        if t.run([*alone, "true"], env=env).returncode != 0:
            raise t.Skip("mount and user namespaces are not permitted here")
        show = [t.TOWLINE, "run", "--", "sh", "-c", "id -u; echo $TOWLINE_SERVER"]
        t.equal(t.run([*alone, *show], env=env).stdout, "1000\nunix:///run/towline.sock\n", "the machine's server")
        os.symlink(server.socket, f"{base}/towline.sock")
        t.equal(t.run([*alone, *show], env=env).stdout, f"1000\nunix://{base}/towline.sock\n", "one's own server")
        os.unlink(f"{base}/towline.sock")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(f"{base}/towline.sock")  # and nobody listens
        t.equal(t.run([*alone, *show], env=env).stdout, "1000\nunix:///run/towline.sock\n", "the one that answers")
        # A server that this user may not use is no reason to compute on the software GPU instead.
        os.unlink(f"{base}/towline.sock")
        os.chmod(server.socket, 0)
        for command in (["run", "--", "true"], ["devices"]):
            refused = t.run([*alone, t.TOWLINE, *command], env=env)
            t.check(refused.returncode != 0 and "this user may not connect to unix:///run/towline.sock" in refused.stderr, f"{command}: {refused}")


@t.test()
def help_teaches():
    for command in ([], ["run"], ["devices"], ["status"], ["top"], ["bench"], ["version"]):
        done = t.run([t.TOWLINE, *command, "--help"])
        t.check(done.returncode == 0 and "towline" in done.stdout and not done.stderr, f"{command}: {done}")
    done = t.run([t.TOWLINED, "--help"])
    t.check(done.returncode == 0 and "--listen" in done.stdout, str(done))
    done = t.run([t.TOWLINE, "--version"])
    t.check(done.returncode == 0 and done.stdout.startswith("towline "), str(done))


@t.test(trees=ALL)
def devices_lists_what_is_served():
    with t.Server("--soft-devices=2") as server:
        done = t.run([t.TOWLINE, "devices", "-s", server.address("tcp")])
        t.check(done.returncode == 0, done.stderr)
        t.check("capability 12.1" in done.stdout, done.stdout)
        report = json.loads(t.run([t.TOWLINE, "devices", "-s", server.address(), "--json"]).stdout)[0]["report"]
        t.equal(len(report["devices"]), 2, "the number of devices")


@t.test(90)
def an_installed_copy_works():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        done = t.run(["meson", "install", "-C", t.BUILD, "--no-rebuild", "--destdir", folder])
        t.equal(done.returncode, 0, f"meson install ({done.stdout}{done.stderr})")
        towline = next(pathlib.Path(folder).rglob("bin/towline"))
        prefix = towline.parent.parent
        for file in ("bin/towlined", "lib/towline/libcuda.so.1", "lib/towline/libcuda.so", "share/man/man1/towline.1",
                     "share/man/man8/towlined.8", "share/man/man5/towlined.conf.5", "lib/systemd/system/towlined.service",
                     "lib/systemd/system/towlined.socket"):
            t.check((prefix / file).exists(), f"{file} was not installed")
        unit = (prefix / "lib/systemd/system/towlined.service").read_text()
        t.check(re.search(r"^ExecStart=/\S*/bin/towlined( |$)", unit, re.M), unit)
        done = t.run([towline, "run", "--device", "soft", "--", hold_program(), "free"],
                     env=t.clean_environment(XDG_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder))
        t.check(done.returncode == 0 and done.stdout.startswith("free "), done.stdout + done.stderr)


if __name__ == "__main__":
    t.main()
