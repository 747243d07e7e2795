#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tls:// from the address to the session: whose key it is, who gets in, and who has the key."""

import contextlib
import ctypes
import os
import pathlib
import pty
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
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

CONFIG = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical,CA:TRUE
[client]
extendedKeyUsage = clientAuth
[server]
extendedKeyUsage = serverAuth
"""
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


def encrypted(*flags, listen=("tls://127.0.0.1:0", "tcp://127.0.0.1:0"), token=True, **more):
    """A server whose key and tokens are in its own folder."""
    t.need_tls()
    server = t.Server(*(("--require-token",) if token else ()), *flags, **more)
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
    found = {name: value for name, value in os.environ.items() if not name.startswith(("TOWLINE_TOKEN", "TOWLINE_TLS_"))}
    found.update(HOME=str(server.folder), XDG_CONFIG_HOME=str(server.folder / "config"), **more)
    return dict(found, TOWLINE_TOKEN=token) if token else found


def trust(server, *flags, where=None, key=()):
    return t.run([t.TOWLINE, "trust", *flags, where or address(server), *key], env=home(server))


def status(server, token="", where=None, **more):
    return t.run([t.TOWLINE, "status", "-s", where or address(server)], env=home(server, token, **more))


def program(server, token, text, **more):
    return t.towline_run(address(server), [sys.executable, "-c", text], env=home(server, token, **more), preload=True)


class Authority:
    """Makes certificates, by openssl's own program."""

    def __init__(self, folder):
        if not shutil.which("openssl"):
            raise t.Skip("openssl, which makes certificates, is not installed")
        self.folder = folder
        folder.mkdir()
        (folder / "config").write_text(CONFIG)
        self.openssl("req", "-x509", *self.new("ca.key"), "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2", "-extensions", "authority")
        self.path = folder / "ca.pem"
        self.path.chmod(0o644)

    def openssl(self, *arguments):
        done = t.run(["openssl", *arguments], cwd=self.folder)
        t.equal(done.returncode, 0, f"openssl {arguments}: {done.stderr}")

    @staticmethod
    def new(key):
        return "-config", "config", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key

    def issue(self, subject="/CN=ann", use="client", days=2):
        """A certificate and its key in one file."""
        self.openssl("req", *self.new("own.key"), "-out", "own.csr", "-subj", subject)
        self.openssl("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "own.pem",
                     "-days", str(days), "-extfile", "config", "-extensions", use)
        path = self.folder / f"{len(list(self.folder.iterdir()))}.pem"
        path.touch(0o600)
        path.write_text((self.folder / "own.pem").read_text() + (self.folder / "own.key").read_text())
        return path


@contextlib.contextmanager
def vouched(*flags, token=False, **more):
    """A server that takes certificates of an authority, and the authority."""
    server = encrypted(*flags, token=token, **more)
    authority = Authority(server.folder / "authority")
    server.flags.append(f"--tls-client-ca={authority.path}")
    with server:
        t.equal(trust(server).returncode, 0, "towline trust")
        yield server, authority


def expect_said(done, sentence):
    t.check(done.returncode != 0 and sentence in done.stderr, f"{sentence!r} is not in {done.stdout}{done.stderr}")


@contextlib.contextmanager
def running(server, where, **more):
    """A program that has copied once and waits for a line; then it does so again, and says "still"."""
    process = subprocess.Popen([str(t.TOWLINE), "run", "-s", where, "--", sys.executable, "-c",
                                COPIES + "print('right', flush=True); input(); copies(); print('still', flush=True)"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=home(server, **more))
    try:
        t.equal(process.stdout.readline(), "right\n", f"a program\n{server.log()}")
        yield process
    finally:
        process.kill()
        process.wait()


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
        for flags in ((), ("--replace",)):  # in a script the key must be named
            expect_said(trust(server, *flags), f"not the one that is known here; if its administrator says that this is right, run towline trust --replace {address(server)} {other}")
        expect_said(trust(server, "--replace", key=(key,)), "and not the one that you named: it is not trusted")
        expect_said(status(server, text), f"run towline trust --replace {address(server)} {other}")
        t.check(other in trust(server, "--replace", key=(other,)).stdout, "the other key")
        t.equal(status(server, text).returncode, 0, "towline status")


def answer(server, *words, flags=()):
    """What `towline trust` says to somebody at a terminal who answers with these words, and its exit code."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(t.TOWLINE), "trust", *flags, address(server)], stdin=theirs, stdout=theirs, stderr=theirs, env=home(server))
    os.close(theirs)
    said, asked = "", 0
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # EIO: it has ended
            break
        said += more.decode()
        if said.count("sha256:...] ") + said.count("as the log has it: ") > asked:
            os.write(ours, f"{words[asked]}\n".encode() if asked < len(words) else b"\x04")
            asked += 1
    os.close(ours)
    return process.wait(30 * t.SLOW), said


@t.test(60)
def a_key_is_trusted_when_somebody_says_so():
    with encrypted(token=False) as server:
        key = re.search(rf"its key for TLS is (sha256:[0-9a-f]{{64}}); clients run: towline trust tls://HOST:{address(server).rsplit(':')[-1]} sha256", server.log()).group(1)
        wrong = key[:-1] + ("1" if key[-1] == "0" else "0")
        for words in (("no",), (), ("perhaps", "no"), (wrong,)):
            code, said = answer(server, *words)
            t.check(code != 0 and f"has the key {key}" in said and "is not trusted" in said, f"{words}: {code}, {said}")
        expect_said(trust(server, key=("sha256:12",)), "sha256:12 is no key; write it as the server's log does")
        expect_said(trust(server, key=(wrong,)), f"has the key {key}, and not the one that you named: it is not trusted")
        expect_said(status(server), "is not known here")
        file = server.folder / "config" / "towline" / "known_servers"
        for words in (("yes",), ("what", key)):
            code, said = answer(server, *words)
            t.check(code == 0 and "It is trusted from now on" in said, f"{words}: {code}, {said}")
            t.equal(status(server).returncode, 0, "towline status")
            file.write_text("")
        t.equal(trust(server, key=(key,)).returncode, 0, "towline trust with the key")
        file.write_text(file.read_text().replace(key, wrong))
        code, said = answer(server, "yes")
        t.check(code != 0 and f"towline trust --replace {address(server)} {key}" in said, f"{code}, {said}")
        code, said = answer(server, "yes", flags=("--replace",))
        t.check(code == 0 and "and not the one that is known here" in said, f"{code}, {said}")
        t.equal(status(server).returncode, 0, "towline status")


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
def no_secret_is_in_a_log_a_trace_or_a_list_of_processes():
    with encrypted("--log=debug") as server:
        text, key = create(server), re.search(r"PRIVATE KEY-----\n(.{32})", (server.folder / "tls.pem").read_text())[1]
        t.equal(trust(server).returncode, 0, "towline trust")
        trace = server.folder / "trace"
        with t.held(server, "leave", "tls", **home(server, text, TOWLINE_TRACE=str(trace), TOWLINE_LOG="debug")) as client:
            lists = b""
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has just ended
                    lists += path.read_bytes()
            out, err = client.communicate(timeout=60 * t.SLOW)
        t.check(b"towlined" in lists and "cuMemAlloc" in trace.read_text() and "session 1" in server.log() and err, f"all was written {err}")
        for secret in (text.rsplit("-", 1)[1], key):
            for where, found in (("lists of processes", lists.decode(errors="replace")), ("the server's log", server.log()),
                                 ("a trace", trace.read_text()), ("the program's log", out + err)):
                t.check(secret not in found, f"a secret is in {where}")


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
def handshakes_wait_for_a_process_that_is_busy():
    """Nobody is refused for that, least of all for another peer's; and the listener rests meanwhile."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    hello = outgoing.read()
    with encrypted() as server, contextlib.ExitStack() as stack:
        port, pid = int(address(server).rsplit(":", 1)[1]), shaker(server)[0]

        def begin(source):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW, source_address=(source, 0)))
            line.sendall(hello)
            return line

        def ticks():
            return sum(map(int, pathlib.Path(f"/proc/{server.listener}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        os.kill(pid, signal.SIGSTOP)
        stack.callback(os.kill, pid, signal.SIGCONT)
        lines = [begin("127.0.0.2") for _ in range(60)] + [begin("127.0.0.3")]
        time.sleep(0.5)  # all were looked at
        before = ticks()
        time.sleep(1)
        t.check(ticks() - before < os.sysconf("SC_CLK_TCK") / 2, f"the listener took {ticks() - before} ticks in a second")
        os.kill(pid, signal.SIGCONT)
        t.equal([line.recv(1) for line in lines], [b"\x16"] * 61, "what each is answered")
        t.check("refused" not in server.log(), server.log())


@t.test(100)
def a_process_that_hangs_is_replaced_though_clients_come_singly():
    """Each leaves before its time is up: what counts is for how long the process has taken nothing."""
    hello = b"\x16\x03\x01\x00\x2d\x01\x00\x01\x00" + bytes(41)
    with encrypted() as server:
        port, pid = int(address(server).rsplit(":", 1)[1]), shaker(server)[0]
        os.kill(pid, signal.SIGSTOP)
        with contextlib.ExitStack() as stack:  # so many that the last of them wait
            for i in range(120):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW, source_address=(f"127.0.{2 + i // 40}.2", 0))).sendall(hello)
            time.sleep(1)

        def another():
            with socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW) as line:
                line.sendall(hello)
                time.sleep(1)
            return "takes nothing any more" in server.log()
        t.wait_until(another, 60 * t.SLOW, "it is replaced")


@t.test(60)
def the_process_with_the_key_outlives_a_lack_of_descriptors():
    hello = b"\x16\x03\x01\x00\x2d\x01\x00\x01\x00" + bytes(41)
    with encrypted() as server:
        port = int(address(server).rsplit(":", 1)[1])
        pid = shaker(server)[0]
        user = int(re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
        done = "yes"
        if user == os.geteuid():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (12, 12))
        else:  # not every root may, but who has its user may
            done = t.as_user(user, resource.prlimit, pid, resource.RLIMIT_NOFILE, (12, 12))
        t.equal(done, "yes", "setting its limit")
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
        with running(server, where, token=text, TOWLINE_LANES="3") as process:
            # Those that name a secret have it at the end: extension 41, an identity of 16 bytes, a binder of 32.
            named = [words for words in between.first if words[-63:-61] == b"\0\x29" and words[-59:-55] == b"\0\x16\0\x10"]
            t.check(named, "lines of the session")
            replay(port, named[0], "127.0.0.2")  # while it runs
            expect_log(server, r"127\.0\.0\.2:\d+ was refused: its session is not here")
            t.equal(process.communicate("\n", timeout=30 * t.SLOW)[0], "still\n", "the program goes on")
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
def nobody_waits_for_a_process_with_the_key_that_does_not_start():
    with vouched() as (server, authority):
        text, ann = authority.path.read_bytes(), str(authority.issue())
        authority.path.unlink()
        os.mkfifo(authority.path, 0o600)  # whoever reads it waits for somebody who writes
        os.kill(shaker(server)[0], signal.SIGKILL)

        def begun():
            with socket.create_connection(("127.0.0.1", int(address(server).rsplit(":", 1)[1])), timeout=30 * t.SLOW) as connection:
                connection.sendall(b"\x16\x03\x01\x00\x2d\x01\x00\x01\x00" + bytes(41))
                return "the process for TLS handshakes has ended: another is started" in server.log()
        t.wait_until(begun, 20, "another is started, at the earliest a second after the last one")
        begin = time.monotonic()
        server.status()
        t.check("does not start" not in server.log() or time.monotonic() - begin > 4, f"the listener waited\n{server.log()}")
        ended = threading.Event()

        def feed():
            while not ended.is_set():
                with contextlib.suppress(BrokenPipeError, OSError):
                    fd = os.open(authority.path, os.O_WRONLY | os.O_NONBLOCK)
                    os.set_blocking(fd, True)
                    os.write(fd, text)
                    os.close(fd)
                time.sleep(0.01)
        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            t.wait_until(lambda: status(server, TOWLINE_TLS_CERT=ann).returncode == 0, 20, f"it has started\n{server.log()}")
        finally:
            ended.set()
            feeder.join()


def landlock():
    """The version of this kernel's Landlock; 0: it has none."""
    return max(0, ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))


def try_as_worker(server):
    """What came of a worker's opening the file that TOWLINE_TAKEN names."""
    with server:
        # It says so either when it makes a context, in the log, or when its client synchronises, there.
        done = t.towline_run(server.address("unix"), [sys.executable, "-c", """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuCtxSynchronize()
"""], env=home(server), preload=True)
        t.wait_until(lambda: "taken all" in server.log() + done.stderr, 10, "the stranger has tried everything")
        return re.search(r"taken open-file (\S+)", server.log() + done.stderr).group(1)


@t.test(60)
def a_worker_cannot_open_the_file_with_the_key():
    if landlock() < 1:
        raise t.Skip("this kernel has no Landlock")
    driver = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "taken_driver.c", ["-shared", "-fPIC", "-D_GNU_SOURCE"], "taken_driver.so")
    server = encrypted(token=False, device=str(driver))
    with tempfile.TemporaryDirectory() as state:  # the server's own folder has the driver: workers can read it
        server.flags[-1] = f"--token-file={state}/tokens"
        server.env["TOWLINE_TAKEN"] = f"file={state}/tls.pem"
        tried = try_as_worker(server)
        t.check(pathlib.Path(f"{state}/tls.pem").read_text(), "the key is there, and this user can read it")
        t.check(tried in ("EACCES", "EPERM"), f"a worker opens the file with the key: {tried}")


@t.test(60)
def a_key_among_libraries_is_not_used():
    if landlock() < 1:
        raise t.Skip("this kernel has no Landlock")
    with tempfile.TemporaryDirectory() as folder, encrypted(token=False) as server:
        shutil.copy(server.folder / "tls.pem", f"{folder}/tls.pem")
        pathlib.Path(f"{folder}/libcuda.so.1").touch()
        command = [t.TOWLINED, "--listen=tls://127.0.0.1:0", f"--device={folder}/libcuda.so.1", f"--tls-certificate={folder}/tls.pem"]
        expect_said(t.run(command, env=home(server)), f"workers could read the key in {folder}/tls.pem, since it lies among libraries")


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


@t.test(60)
def a_certificate_logs_in():
    with vouched(listen=("tls://0.0.0.0:0",)) as (server, authority):
        where = address(server).replace("0.0.0.0", "127.0.0.1")
        t.equal(trust(server, where=where).returncode, 0, "towline trust")
        (server.folder / "config" / "towline").mkdir(parents=True, exist_ok=True)
        shutil.copy(authority.issue(), server.folder / "config" / "towline" / "client.pem")
        with running(server, where, TOWLINE_LANES="2") as process:
            t.equal([session["tenant"] for session in server.status()["sessions"]], ["ann (certificate)"], "whose session it is")
            done = status(server, where=where)
            t.check("ann (certificate)" in done.stdout, f"what ann sees: {done.stdout}{done.stderr}")
            bob = status(server, where=where, TOWLINE_TLS_CERT=str(authority.issue("/O=somewhere/CN=bob")))
            t.check(bob.returncode == 0 and "ann" not in bob.stdout, f"what bob sees: {bob.stdout}{bob.stderr}")
            t.equal(process.communicate("\n", timeout=30 * t.SLOW)[0], "still\n", "the program goes on")
        expect_log(server, r"session \d+ of ann \(certificate\), class -, from")


@t.test(60, trees=("plain", "asan"))
def a_certificate_that_is_not_good_is_refused():
    with vouched() as (server, authority):
        other = Authority(server.folder / "other")
        cases = (
            (authority.issue(days=-1), "of ann: certificate has expired", "your certificate has expired; ask the server's administrator for another"),
            (other.issue(), "of ann: unable to get local issuer certificate", "your certificate is none of this server's authorities"),
            (authority.issue(use="server"), r"of ann: (unsupported|unsuitable) certificate purpose", "your certificate is not for clients (clientAuth)"),
            (authority.issue("/CN=ann smith"), "that names no user", "your certificate names no user"),
            (authority.issue("/CN=ann/CN=root"), "that names no user", "your certificate names no user"),
            (authority.issue("/O=somewhere"), "that names no user", "your certificate names no user"),
        )
        for path, line, sentence in cases:
            before = len(re.findall("was refused", server.log()))
            expect_said(status(server, TOWLINE_TLS_CERT=str(path)), f"{address(server)} refuses: {sentence}")
            expect_log(server, rf"127\.0\.0\.1:\d+ was refused: with a certificate {line}")
            t.equal(len(re.findall("was refused", server.log())), before + 1, f"lines in the log\n{server.log()}")
        expect_said(program(server, "", COPIES, TOWLINE_TLS_CERT=str(cases[0][0])), "your certificate has expired")
        expect_said(status(server), "refuses: a certificate is needed; ask the server's administrator for one")
        expect_log(server, r"127\.0\.0\.1:\d+ was refused: a certificate is needed")
        done = program(server, "", COPIES + "print('right')", TOWLINE_TLS_CERT=str(authority.issue()))
        t.equal(done.stdout, "right\n", f"a program with a good one: {done.stderr}")


@t.test(60)
def a_certificate_needs_its_key():
    with vouched() as (server, authority):
        ann, bob = authority.issue(), authority.issue("/CN=bob")
        expect_said(status(server, TOWLINE_TLS_CERT=str(ann), TOWLINE_TLS_KEY=str(bob)), f"{bob} has no key in PEM, without a password, that is the one")
        t.equal(status(server, TOWLINE_TLS_CERT=str(ann), TOWLINE_TLS_KEY=str(ann)).returncode, 0, "both in files of their own")
        ann.chmod(0o640)
        expect_said(status(server, TOWLINE_TLS_CERT=str(ann)), f"asks for a certificate: others can read the key of your certificate in {ann}; run chmod 600 {ann}")
        expect_said(status(server, TOWLINE_TLS_CERT="/nowhere.pem"), "asks for a certificate: your certificate in /nowhere.pem cannot be read")
        expect_said(program(server, "", COPIES, TOWLINE_TLS_CERT="/nowhere.pem"), "your certificate in /nowhere.pem cannot be read")
    with encrypted(token=False) as server:
        t.equal(trust(server).returncode, 0, "towline trust")
        t.equal(status(server, TOWLINE_TLS_CERT="/nowhere.pem").returncode, 0, "a server that does not ask for one")


@t.test(60)
def a_token_and_a_certificate_are_one_user():
    with vouched(token=True) as (server, authority):
        text, ann = create(server), str(authority.issue())
        with running(server, address(server), TOWLINE_TLS_CERT=ann):  # and no token
            t.check("ann (certificate)" in status(server, text).stdout, "what the user of the token sees")
        expect_said(status(server), "needs a token")
        # A good certificate is a login: no token is asked for. One that is not good is none, and no token makes up for it.
        wrong = text[:-1] + ("1" if text[-1] == "0" else "0")
        t.equal(status(server, wrong, TOWLINE_TLS_CERT=ann).returncode, 0, "a certificate and a wrong token")
        expect_said(status(server, text, TOWLINE_TLS_CERT=str(authority.issue(days=-1))), "your certificate has expired")
        # Without TLS there are tokens only.
        expect_said(status(server, where=server.address("tcp"), TOWLINE_TLS_CERT=ann), "needs a token")


@t.test(60)
def authorities_for_clients_are_read_again():
    with vouched() as (server, authority):
        ann, other = str(authority.issue()), Authority(server.folder / "other")
        t.equal(status(server, TOWLINE_TLS_CERT=ann).returncode, 0, "a certificate")
        authority.path.write_text("none")
        server.process.send_signal(signal.SIGHUP)
        expect_log(server, "the settings stay as they were: .*ca.pem, which is to have authorities for clients, has no certificates in PEM")
        t.equal(status(server, TOWLINE_TLS_CERT=ann).returncode, 0, "as it was")
        # Whoever was vouched for by the old ones, and has not said yet what he wants, has to come again.
        shows = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        shows.check_hostname, shows.verify_mode = False, ssl.CERT_NONE
        shows.load_cert_chain(ann)
        port = int(address(server).rsplit(":", 1)[1])
        with shows.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=30 * t.SLOW)) as connection:
            authority.path.write_text(other.path.read_text())
            server.process.send_signal(signal.SIGHUP)
            expect_log(server, "the settings were read again")
            connection.sendall(raw.frame(0xF00C, struct.pack("<II", raw.MAGIC, 1), thread=0))
            t.check(b"the server's authorities for clients are others by now" in connection.recv(4096), "the answer to a question")
        expect_said(status(server, TOWLINE_TLS_CERT=ann), "none of this server's authorities")
        t.equal(status(server, TOWLINE_TLS_CERT=str(other.issue())).returncode, 0, "one of the new authority")


@t.test(60)
def authorities_for_clients_must_be_there():
    with vouched(token=True) as (server, authority):
        text, other = create(server), str(Authority(server.folder / "other").issue())
        flags = [t.TOWLINED, "--listen=tls://127.0.0.1:0", "--device=soft", f"--token-file={server.folder / 'tokens'}"]
        expect_said(t.run([*flags, "--tls-client-ca=/nowhere"]), "the authorities for clients in /nowhere cannot be read: No such file")
        authority.path.chmod(0o664)
        expect_said(t.run([*flags, f"--tls-client-ca={authority.path}"]), f"others can change the authorities for clients in {authority.path}; run chmod 644")
        # Who has a certificate for another server need not show it here.
        (server.folder / "config" / "towline" / "client.pem").write_text(pathlib.Path(other).read_text())
        (server.folder / "config" / "towline" / "client.pem").chmod(0o600)
        expect_said(status(server, text), "or show none (TOWLINE_TLS_CERT=none)")
        t.equal(status(server, text, TOWLINE_TLS_CERT="none").returncode, 0, "none")
    with t.Server(f"--tls-client-ca={server.folder / 'nothing'}") as server:
        expect_log(server, "tls-client-ca is of no use: no address is of tls://")


@t.test(60)
def a_key_that_is_dear_to_check_ends_the_handshake():
    with vouched() as (server, authority):
        authority.openssl("req", "-x509", "-config", "config", "-newkey", "rsa:2048", "-pkeyopt", "rsa_keygen_pubexp:1099511627777", "-nodes", "-keyout", "own.key", "-out", "own.pem", "-subj", "/CN=ann", "-days", "2")
        path = authority.folder / "dear.pem"
        path.touch(0o600)
        path.write_text((authority.folder / "own.pem").read_text() + (authority.folder / "own.key").read_text())
        t.check(status(server, TOWLINE_TLS_CERT=str(path)).returncode != 0, "towline status")
        expect_log(server, r"127\.0\.0\.1:\d+ was refused: the TLS handshake failed: certificate verify failed")


@t.test(60)
def workers_do_not_know_certificates():
    if not t.sees_all_processes():
        raise t.Skip("needs to look into workers")
    with vouched(env={"TOWLINE_TLS_CERT": "/x", "TOWLINE_TLS_KEY": "/y"}) as (server, _):
        t.check(server.workers(), "there is no worker")
        for worker in server.workers():
            found = pathlib.Path(f"/proc/{worker}/environ").read_bytes()
            t.check(b"TOWLINE_TLS_" not in found, "a worker has a certificate in its environment")


@t.test(60)
def nobody_listens_with_tls_for_anyone_by_accident():
    done = t.run([t.TOWLINED, "--listen=tls://0.0.0.0:0", "--device=soft"])
    expect_said(done, "have people need a token (--require-token, or require-token = 1 in the config file) or a certificate (--tls-client-ca=FILE)")
    done = t.run([t.TOWLINED, "--listen=tcp://0.0.0.0:0", "--listen=tls://127.0.0.1:0", "--device=soft", "--tls-client-ca=/nowhere"])
    expect_said(done, "whoever reaches tcp://0.0.0.0")


if __name__ == "__main__":
    t.main()
