#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tls:// from the address to the session: whose key it is, who gets in, and who has the key."""

import ctypes
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

NOT_VALID = "the token is not valid here; ask the server's administrator for another"

# Enough bytes for lanes, there and back; then what the file says that is given as an argument.
COPIES = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)
def copies():
    size = 9 << 20
    out, back = os.urandom(size), ctypes.create_string_buffer(size)
    at = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    call("cuMemcpyHtoD_v2", at, out, ctypes.c_size_t(size))
    call("cuMemcpyDtoH_v2", back, at, ctypes.c_size_t(size))
    assert back.raw == out, "bytes have changed"
context = ctypes.c_void_p()
call("cuInit", 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
copies()
"""


def encrypted(*flags, listen=("tls://127.0.0.1:0", "tcp://127.0.0.1:0"), token=True):
    """A server whose key and tokens are in its own folder."""
    try:
        ctypes.CDLL("libssl.so.3")
    except OSError as error:
        raise t.Skip("OpenSSL 3 is not installed (libssl3)") from error
    server = t.Server(*(("--require-token",) if token else ()), *flags)
    server.flags = [flag for flag in server.flags if not flag.startswith("--listen=tcp:")]
    server.flags += [f"--listen={address}" for address in listen] + [f"--token-file={server.folder / 'tokens'}"]
    return server


def create(server):
    done = t.run([t.TOWLINED, "token", "create", "--user", "ann", "--token-file", server.folder / "tokens"])
    t.equal(done.returncode, 0, f"towlined token create: {done.stderr}")
    return done.stdout.strip()


def address(server):
    return re.search(r"listens on (tls://[^\s\"]+)", server.log()).group(1)


def home(server, token="", **more):
    """The environment of a user whose files are in the server's folder."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_TOKEN")}
    found.update(HOME=str(server.folder), XDG_CONFIG_HOME=str(server.folder / "config"), **more)
    return dict(found, TOWLINE_TOKEN=token) if token else found


def trust(server, *flags, where=None):
    return t.run([t.TOWLINE, "trust", *flags, where or address(server)], env=home(server))


def status(server, token="", where=None, **more):
    return t.run([t.TOWLINE, "status", "-s", where or address(server)], env=home(server, token, **more))


def program(server, token, text, **more):
    return t.towline_run(address(server), [sys.executable, "-c", text], env=home(server, token, **more), preload=True)


def expect_said(done, sentence):
    t.check(done.returncode != 0 and sentence in done.stderr, f"{sentence!r} is not in {done.stdout}{done.stderr}")


def shaker(server):
    """The process with the key: its number, and what /proc says about it."""
    for pid in server.workers():
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # a worker that has just ended
        if "Name:\ttowline-shaker" in text:
            return pid, dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    return 0, {}


def expect_log(server, pattern):
    t.wait_until(lambda: re.search(pattern, server.log()), 10, f"the log has {pattern!r}\n{server.log()}")


@t.test(60, trees=("plain", "asan"))
def a_program_runs_over_tls():
    with encrypted() as server:
        text = create(server)
        t.equal(trust(server).returncode, 0, "towline trust")
        t.equal(status(server, text).returncode, 0, "towline status")
        for lanes in ("0", "3"):
            done = program(server, text, COPIES + "print('right')", TOWLINE_LANES=lanes, TOWLINE_LOG="info")
            t.equal(done.stdout, "right\n", f"a program with {lanes} lanes: {done.stderr}")
            t.check(f"connected to {address(server)} over tls" in done.stderr, done.stderr)
            t.equal(bool(re.search(": [1-9] further connections", done.stderr)), lanes != "0", f"lanes: {done.stderr}")


@t.test(60)
def a_server_without_tokens_is_encrypted_all_the_same():
    with encrypted(token=False) as server:
        t.equal(trust(server).returncode, 0, "towline trust")
        t.equal(program(server, "", COPIES + "print('right')").stdout, "right\n", "a program")


@t.test(60)
def a_server_is_known_by_its_key():
    with encrypted() as server:
        text = create(server)
        key = re.search(r"its key for TLS is (sha256:[0-9a-f]{64})", server.log()).group(1)
        expect_said(status(server, text), f"the key of {address(server)} is not known here; run towline trust {address(server)}")
        done = trust(server)
        t.check(done.returncode == 0 and key in done.stdout, f"{done.stdout}{done.stderr}")
        t.equal(status(server, text).returncode, 0, "towline status")
        t.check("which is known already" in trust(server).stdout, "trusted once more")
        # Another key at the same address: as if somebody sat in between.
        (server.folder / "tls.pem").unlink()
        server.process.send_signal(signal.SIGHUP)
        expect_log(server, r"the settings stay as they were: \S+/tls\.pem cannot be read")  # no other is made
        t.equal(status(server, text).returncode, 0, "towline status")
        with encrypted() as second:
            shutil.copy(second.folder / "tls.pem", server.folder / "tls.pem")
        server.process.send_signal(signal.SIGHUP)
        expect_log(server, "the settings were read again")
        other = re.findall(r"its key for TLS is (sha256:[0-9a-f]{64})", server.log())[-1]
        t.check(other != key, "a key that was made anew")
        expect_said(status(server, text), "has another key than the one that is known here, and is not used")
        t.check("CUDA_ERROR" not in program(server, text, COPIES).stdout, "a program")
        expect_said(trust(server), "not the one that is known here")
        t.check(other in trust(server, "--replace").stdout, "the other key")
        t.equal(status(server, text).returncode, 0, "towline status")


@t.test(60)
def an_authority_must_vouch_for_the_name():
    with encrypted() as server:
        expect_said(status(server, create(server), TOWLINE_TLS_CA=str(server.folder / "tls.pem")), "does not vouch for")
        expect_said(status(server, TOWLINE_TLS_CA="/nowhere"), "/nowhere cannot be read")


@t.test(60)
def a_wrong_token_is_refused():
    with encrypted() as server:
        text = create(server)
        t.equal(trust(server).returncode, 0, "towline trust")
        expect_said(status(server), "needs a token")
        wrong = text[:-1] + ("1" if text[-1] == "0" else "0")
        expect_said(status(server, wrong), NOT_VALID)
        expect_said(program(server, wrong, COPIES), NOT_VALID)
        expect_log(server, r"127\.0\.0\.1:\d+ was refused: with token")


@t.test(60)
def who_does_not_speak_tls_is_told_so():
    with encrypted() as server:
        plain = address(server).replace("tls://", "tcp://")
        expect_said(status(server, where=plain), "this port is for TLS; write tls://HOST:PORT")
        expect_log(server, r"127\.0\.0\.1:\d+ was refused: it speaks without TLS on a port for TLS")
        # And the other way round.
        wrong = server.address("tcp").replace("tcp://", "tls://")
        expect_said(trust(server, where=wrong), "closed the connection within the TLS handshake; its log says why")
        expect_log(server, r"127\.0\.0\.1:\d+ .*TLS.*closed")
        expect_said(trust(server, where=server.address("tcp")), "has no key to trust")


@t.test(60)
def a_handshake_that_ends_is_in_the_log():
    with encrypted() as server:
        port = int(address(server).rsplit(":", 1)[1])
        for words in (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",):
            with socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW) as connection:
                connection.sendall(words)
                while connection.recv(4096):
                    pass
        expect_log(server, r"127\.0\.0\.1:\d+ was refused: the TLS handshake failed: ")


@t.test(60)
def handshakes_that_stand_still_end_with_their_places():
    """One peer has few places: a newcomer takes an old one's, whose handshake ends then and not when its time is over."""
    hello = b"\x16\x03\x01\x00\x2d\x01\x00\x01\x00" + bytes(41)  # one whose rest does not come
    with encrypted("--places-per-peer=4") as server:
        port = int(address(server).rsplit(":", 1)[1])
        pid = shaker(server)[0]

        def begin(count):
            waiting.append(socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW))
            waiting[-1].sendall(hello)
            t.wait_until(lambda: len(list(pathlib.Path(f"/proc/{pid}/task").iterdir())) > count, 5, "the handshake begins")
        waiting = []
        for i in range(4):
            begin(i + 1)
        waiting.append(socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW))
        expect_log(server, "was refused: the TLS handshake failed: (Connection reset|it took too long)")
        t.check("it took too long" not in server.log(), server.log())
        for connection in waiting:
            connection.close()


@t.test(60)
def the_process_with_the_key_outlives_a_lack_of_descriptors():
    hello = b"\x16\x03\x01\x00\x2d\x01\x00\x01\x00" + bytes(41)
    with encrypted() as server:
        port = int(address(server).rsplit(":", 1)[1])
        pid = shaker(server)[0]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (12, 12))
        waiting = [socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW) for _ in range(12)]
        for connection in waiting:
            connection.sendall(hello)
        t.wait_until(lambda: select.select(waiting, [], [], 0)[0], 5, "those for whom none is left are closed")
        for connection in waiting:
            connection.close()
        t.wait_until(lambda: trust(server).returncode == 0, 10, "others are served")
        t.equal(shaker(server)[0], pid, "the process")


@t.test(60)
def a_key_that_is_named_must_be_there():
    done = t.run([t.TOWLINED, "--listen=tls://127.0.0.1:0", "--device=soft", "--tls-certificate=/nowhere.pem"])
    expect_said(done, "/nowhere.pem cannot be read: No such file or directory")


@t.test(60)
def who_waits_while_the_settings_are_read_goes_on():
    with encrypted(token=False) as server:
        port = int(address(server).rsplit(":", 1)[1])
        any_key = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        any_key.check_hostname, any_key.verify_mode = False, ssl.CERT_NONE
        with any_key.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW)) as connection:
            before = shaker(server)[0]
            server.process.send_signal(signal.SIGHUP)
            expect_log(server, "the settings were read again")
            connection.sendall(raw.frame(0xF00C, struct.pack("<II", raw.MAGIC, 1), thread=0))
            t.equal(struct.unpack_from("<IH", connection.recv(4096))[1], 0xF00D, "the answer to a question")
        t.wait_until(lambda: t.gone(before), 20, "the old process ends with its last connection")
        t.equal(trust(server).returncode, 0, "towline trust with the new one")


class Recorder:
    """A way to the server that keeps what each connection said first."""

    def __init__(self, port):
        self.port, self.first = port, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            words = client.recv(65536)
            self.first.append(words)
            server.sendall(words)
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=(one, other), daemon=True).start()

    @staticmethod
    def carry(one, other):
        try:
            while words := one.recv(65536):
                other.sendall(words)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def replay(port, words, source):
    with socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW, source_address=(source, 0)) as connection:
        connection.sendall(words)
        try:
            t.equal(connection.recv(4096), b"", "the answer")
        except ConnectionResetError:
            pass  # closed with bytes unread


@t.test(60)
def a_handshake_that_was_recorded_leads_nowhere():
    with encrypted() as server:
        text = create(server)
        port = int(address(server).rsplit(":", 1)[1])
        between = Recorder(port)
        where = f"tls://127.0.0.1:{between.socket.getsockname()[1]}"
        t.equal(trust(server, where=where).returncode, 0, "towline trust")
        process = subprocess.Popen([str(t.TOWLINE), "run", "-s", where, "--", sys.executable, "-c",
                                    COPIES + "print('right', flush=True); input(); copies(); print('still', flush=True)"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=home(server, text, TOWLINE_LANES="3"))
        try:
            t.equal(process.stdout.readline(), "right\n", "a program")
            # Those that name a secret have it at the end: extension 41, an identity of 16 bytes, a binder of 32.
            named = [words for words in between.first if words[-63:-61] == b"\0\x29" and words[-59:-55] == b"\0\x16\0\x10"]
            t.check(named, "lines of the session")
            replay(port, named[0], "127.0.0.2")  # while it runs
            expect_log(server, r"127\.0\.0\.2:\d+ was refused: its session is not here")
            t.equal(process.communicate("\n", timeout=30 * t.SLOW)[0], "still\n", "the program goes on")
        finally:
            process.kill()
            process.wait()
            between.socket.close()
        t.wait_until(lambda: not server.status()["sessions"], 10, "the session's end")
        replay(port, named[0], "127.0.0.1")
        expect_log(server, r"127\.0\.0\.1:\d+ was refused: its session is not here")


@t.test(60)
def the_process_with_the_key_has_no_rights():
    with encrypted() as server:
        pid, facts = shaker(server)
        t.equal((facts["NoNewPrivs"], int(facts["CapEff"], 16), int(facts["CapBnd"], 16) if os.geteuid() == 0 else 0), ("1", 0, 0), "its rights")
        if pathlib.Path("/proc/sys/kernel/seccomp").exists():
            t.equal(facts["Seccomp"], "2", "its system calls are in a list")
        # It comes back when it has ended.
        t.equal(trust(server).returncode, 0, "towline trust")
        text = create(server)
        os.kill(pid, signal.SIGKILL)
        t.wait_until(lambda: status(server, text).returncode == 0 and shaker(server)[0] != pid, 20, "another process")
        expect_log(server, "the process for TLS handshakes has ended: another is started")


@t.test(60)
def a_program_with_an_openssl_of_its_own_goes_on():
    text = "import ssl, hashlib\nssl.create_default_context()\n" + COPIES + """
child = os.fork()
if child == 0:
    hashlib.sha256(b"x").digest()
    ssl.create_default_context()
    os._exit(0 if cuda.cuCtxSynchronize() != 0 else 3)
assert os.waitpid(child, 0)[1] == 0, "the child"
copies()
ssl.create_default_context()
print("right")
"""
    with encrypted() as server:
        token = create(server)
        t.equal(trust(server).returncode, 0, "towline trust")
        done = program(server, token, text)
        t.equal(done.stdout, "right\n", f"the program: {done.stderr}")


@t.test(60)
def where_openssl_is_missing_a_sentence_says_so():
    with encrypted() as server:
        folder = server.folder / "lib"
        folder.mkdir()
        (folder / "libcrypto.so.3").write_text("none")
        t.equal(trust(server).returncode, 0, "towline trust")
        expect_said(status(server, LD_LIBRARY_PATH=str(folder)), "encrypted connections need OpenSSL 3: install the package libssl3")


@t.test(60)
def a_key_that_others_can_read_is_not_used():
    with encrypted() as server:
        (server.folder / "tls.pem").chmod(0o644)
        server.process.send_signal(signal.SIGHUP)
        expect_log(server, "the settings stay as they were: others can read or change the key in")


if __name__ == "__main__":
    t.main()
