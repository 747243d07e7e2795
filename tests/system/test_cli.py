#!/usr/bin/env python3
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
    return [t.TOWLINE, "run", "-s", address, "--", hold_program(), "free"]


def expect_failure(address, words, commands=None, transport="auto"):
    """A program and `towline status` both fail within 5 s with one sentence that has these words."""
    for command in commands or (run_program(address), [t.TOWLINE, "status", "-s", address]):
        start = time.monotonic()
        done = t.run(command, 20, env=t.clean_environment(TOWLINE_TRANSPORT=transport))
        seconds = time.monotonic() - start
        text = f"{' '.join(map(str, command))}: exit code {done.returncode}, {seconds:.1f} s\n{done.stdout}{done.stderr}"
        t.check(done.returncode not in (0, None) and done.returncode > 0, f"no error code, or a crash: {text}")
        t.check(seconds < 5 * t.SLOW, f"too slow: {text}")
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        t.equal(len(lines), 1, f"lines on stderr: {text}; their number")
        for word in words:
            t.check(word in lines[0], f"{word!r} is not in: {lines[0]}")


@t.test(trees=ALL)
def run_unreachable_unix_server():
    expect_failure("unix:///nonexistent/towline.sock", ["/nonexistent/towline.sock", "towlined"])


@t.test(trees=ALL)
def run_wrong_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    expect_failure(f"tcp://127.0.0.1:{port}", [str(port), "towlined"])


@t.test(30)
def run_host_that_does_not_answer():
    # TEST-NET-1: packets go nowhere, or are refused at once where there is no route.
    expect_failure("tcp://192.0.2.1:4837", ["192.0.2.1"])


@t.test(30)
def run_unknown_host():
    expect_failure("tcp://no-such-host.invalid:4837", ["no-such-host.invalid"])


@t.test(trees=ALL)
def run_not_an_address():
    expect_failure("gpuhost:4837", ["gpuhost:4837"])


@t.test(trees=ALL)
def run_peer_that_speaks_http():
    with fake_server(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as address:
        expect_failure(address, ["HTTP"])


@t.test(trees=ALL)
def run_peer_that_speaks_nonsense():
    with fake_server(bytes(range(1, 65))) as address:
        expect_failure(address, ["does not speak Towline's protocol"])


@t.test(60)
def run_peer_that_is_silent():
    with fake_server(None) as address:
        expect_failure(address, ["127.0.0.1"])
    with fake_server(None, unix=True) as address:
        expect_failure(address, [address])


@t.test(60)
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


@t.test(60)
def run_server_that_asks_for_patience():
    """It may take as long as it says every 2 s that it is there; so does what it says over shared memory."""
    refuse = frame(0xF002, struct.pack("<III", MAGIC, 2, 5) + b"full\0")
    notice = frame(0xF00A, struct.pack("<IIQQI", 5, 0, 0, 0, 1) + b"\0")
    told = []

    def busy(connection, request):
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


def refusal(server, low, high, tail=b""):
    """What the server says to a hello of these protocol versions and of another table; `tail`: what follows the token."""
    with socket.create_connection(("127.0.0.1", server.port())) as connection:
        connection.settimeout(10 * t.SLOW)
        body = struct.pack("<IIII", MAGIC, low, high, 1) + b"\0" * 40 + struct.pack("<II", 0xFFFFFFFF, 0)
        body += struct.pack("<I4s", 3, b"me\0\0") + struct.pack("<I", 0) + tail
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
def server_refuses_another_table():
    with t.Server() as server:
        for tail, sentence in ((b"", b"on the client"),
                               (struct.pack("<I8sI", 6, b"0.0.1\0\0\0", 5), b"the client is Towline 0.0.1"),
                               (struct.pack("<I4sI", 4, b"9.1\0", 5), b"install Towline 9.1 on the server")):
            answer = refusal(server, 1, PROTOCOL, tail)
            t.check(sentence in answer, f"{sentence!r} is not in {answer!r}")


@t.test(trees=ALL)
def run_peer_of_another_table():
    """A server that welcomes a client whose table it does not have: the client says so."""
    welcome = struct.pack("<II", MAGIC, PROTOCOL) + b"\1" * 32 + struct.pack("<QQIIQQ", 0, 1, 1 << 20, 1 << 20, 0, 0)
    welcome += struct.pack("<IIII", 0, 0, 0, 0)
    with fake_server(frame(0xF001, welcome)) as address:
        done = t.run([t.TOWLINE, "run", "-s", address, "--", hold_program(), "free"])
        t.check("was built from another table of the driver API" in done.stderr, done.stderr)
        t.check("install Towline" in done.stderr, done.stderr)


@t.test(trees=("plain",))
def run_client_of_another_table():
    """The real thing: a libcuda.so.1 with another table's hash against a server of ours."""
    words = re.search(r"TOW_TABLE_HASH \{(.*?)\}", (t.BUILD / "src" / "gen" / "functions.h").read_text()).group(1)
    ours = b"".join(struct.pack("<Q", int(word.strip().rstrip("u"), 16)) for word in words.split(","))
    library = t.LIBCUDA.read_bytes()
    if ours not in library:
        raise t.Skip("the compiler did not put the table's hash into the library as one piece")
    with t.Server() as server, tempfile.TemporaryDirectory() as folder:
        other = pathlib.Path(folder) / "libcuda.so.1"
        other.write_bytes(library.replace(ours, b"\7" * 32))
        env = t.clean_environment(TOWLINE_SERVER=server.address("tcp"), LD_LIBRARY_PATH=folder)
        done = t.run([hold_program(), "free"], env=env)
        told = [line for line in done.stderr.splitlines() if "different tables of the driver API" in line]
        t.equal(len(told), 1, f"the number of lines that say why\n{done.stderr}\n")
        t.check("refuses" in told[0] and "install the same build on both sides" in told[0], told[0])


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
    done = t.run([t.TOWLINE, "run", "-s", "unix:///x", "--", "env"], env=t.clean_environment(LD_LIBRARY_PATH="/before"))
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
        show = ["--", "sh", "-c", "echo $TOWLINE_SERVER"]
        t.equal(t.run([t.TOWLINE, "run", *show], env=env).stdout, "unix:///from-file\n", "the file's server")
        env["TOWLINE_SERVER"] = "unix:///from-variable"
        t.equal(t.run([t.TOWLINE, "run", *show], env=env).stdout, "unix:///from-variable\n", "the variable's server")
        t.equal(t.run([t.TOWLINE, "run", "-s", "unix:///flag", *show], env=env).stdout, "unix:///flag\n", "the flag's")


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


@t.test()
def help_teaches():
    for command in ([], ["run"], ["devices"], ["status"], ["bench"], ["version"]):
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
        t.check(re.search(r"^ExecStart=/\S*/bin/towlined$", unit, re.M), unit)
        done = t.run([towline, "run", "--device", "soft", "--", hold_program(), "free"],
                     env=t.clean_environment(XDG_RUNTIME_DIR=folder, XDG_CACHE_HOME=folder))
        t.check(done.returncode == 0 and done.stdout.startswith("free "), done.stdout + done.stderr)


if __name__ == "__main__":
    t.main()
