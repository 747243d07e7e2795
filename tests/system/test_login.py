#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may use a server: users and groups on its unix socket, tokens over TCP, and who listens for anyone."""

import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

ALL = ("plain", "asan", "tsan")
STATUS, REFUSE, REPORT, WELCOME, NOTICE = 0xF00C, 0xF002, 0xF00D, 0xF001, 0xF00A
BEGIN = [sys.executable, "-c", "import ctypes as c; print(c.CDLL('libcuda.so.1').cuInit(0))"]


def need_root():
    if os.geteuid() != 0:
        raise t.Skip("only root can be other users")


def connect(server, user=0, groups=()):
    """A connection of that user: the kernel keeps who it was that connected."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30 * t.SLOW)
    own = os.getgroups()
    os.setgroups(groups)
    os.seteuid(user)
    try:
        connection.connect(str(server.socket))
    finally:
        os.seteuid(0)
        os.setgroups(own)
    return connection


def answer(connection, words):
    """The kind of the first frame that is no asking for patience, and its body."""
    def exactly(size):
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            t.check(more, "the server has closed the line without a word")
            data += more
        return data
    with connection:
        connection.sendall(words)
        kind = NOTICE
        while kind == NOTICE:
            length, kind = struct.unpack("<IH10x", exactly(16))
            body = exactly(length - 16)
        return kind, body


def question():
    return raw.frame(STATUS, struct.pack("<II", raw.MAGIC, 1), thread=0)


def expect_refused(server, **who):
    for words in (raw.hello(), question()):
        kind, body = answer(connect(server, **who), words)
        t.equal(kind, REFUSE, f"the answer to {who}")
        t.check(f"user {who['user']} may not use this server; its administrator decides: ".encode() in body, body)


def expect_served(server, **who):
    t.equal([answer(connect(server, **who), words)[0] for words in (raw.hello(), question())], [WELCOME, REPORT], f"what {who} gets")


@t.test(60, trees=ALL)
def users_that_are_not_named_are_refused():
    need_root()
    with t.Server("--socket-mode=0666", "--allow-users=root,1000", "--allow-users=1002") as server:
        server.folder.chmod(0o711)
        expect_served(server, user=1000)
        expect_served(server, user=1002)
        expect_served(server, user=0)
        expect_refused(server, user=1001)
        t.check(" of user 1001 was refused: user 1001 may not use this server" in server.log(), server.log())
        # Neither by shared memory, nor a lane of somebody's session.
        with connect(server, 1001) as connection:
            connection.sendall(raw.shm_request(raw.hello()))
            said = b""
            while part := connection.recv(4096):
                said += part
            t.check(b"user 1001 may not use this server" in said, said)
        lane = raw.frame(raw.LANE, struct.pack("<IIQQQ", raw.MAGIC, 0, 1, 0, 0), thread=0)
        with connect(server, 1001) as connection:
            connection.sendall(lane)
            t.check(struct.unpack_from("<IH", connection.recv(4096) or bytes(6))[1] in (REFUSE, 0), "the answer to a lane")


@t.test(60)
def members_of_groups_that_are_named_are_served():
    need_root()
    with t.Server("--socket-mode=0666", "--allow-groups=3001,3002") as server:
        server.folder.chmod(0o711)
        expect_refused(server, user=1000)
        expect_refused(server, user=1000, groups=[3000, 3003])
        expect_served(server, user=1000, groups=[3000, 3002])


@t.test(60)
def root_of_a_container_is_not_on_the_list():
    need_root()
    with t.Server("--socket-mode=0666", "--allow-users=0,1000", "--allow-groups=0") as server:
        server.folder.chmod(0o711)
        done = t.run(["unshare", "--pid", "--fork", t.TOWLINE, "status", "-s", server.address()])
        if "unshare" in done.stderr:
            raise t.Skip(f"no pid namespace can be made: {done.stderr}")
        t.check("root of a container may not use this server" in done.stderr, f"{done.stdout}{done.stderr}")


@t.test(60)
def lists_let_nobody_in_over_a_port():
    """The loopback is open to every user of the machine: it must not be the way around the list."""
    with t.Server("--allow-users=0") as server:
        done = t.towline_run(server.address("tcp"), BEGIN)
        t.check("may not use this server" in done.stderr and "allow-anyone" in done.stderr, f"{done.stdout}{done.stderr}")
        t.check("127.0.0.1:" in server.log() and " was refused: 127.0.0.1 may not use this server" in server.log(), server.log())
        t.equal(t.towline_run(server.address(), BEGIN).stdout, "0\n", "cuInit over the socket")
    with t.Server("--allow-users=0", "--allow-anyone") as server:
        t.equal(t.towline_run(server.address("tcp"), BEGIN).stdout, "0\n", "cuInit where anyone may")


@t.test(60)
def lists_are_read_again():
    need_root()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"

        def reload(text, wanted):
            config.write_text(text)
            before = server.log().count(wanted)
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: server.log().count(wanted) > before, 5, wanted)
        config.write_text("allow-users = 1000\nallow-users = 1001\nsocket-mode = 0666\n")
        with t.Server(f"--config={config}") as server:
            server.folder.chmod(0o711)
            expect_served(server, user=1001)
            reload("allow-users = 1000, 1002\nsocket-mode = 0666\n", "the settings were read again")
            expect_refused(server, user=1001)
            expect_served(server, user=1002)
            # A mistake leaves the list as it was.
            reload("allow-users = 1001 no-such-user-here\nsocket-mode = 0666\n", "the settings stay as they were")
            t.check('this machine has no user "no-such-user-here"' in server.log(), server.log())
            expect_refused(server, user=1001)
            reload("socket-mode = 0666\n", "the settings were read again")
            expect_served(server, user=1001)


def start(*flags):
    return t.run([t.TOWLINED, "--device=soft", "--soft-memory=64M", *flags], 20)


@t.test(60)
def a_name_that_nobody_has_keeps_the_server_from_starting():
    with tempfile.TemporaryDirectory() as folder:
        for setting, what in (("allow-users", "user"), ("allow-groups", "group")):
            done = start(f"--listen=unix://{folder}/sock", f"--{setting}=no-such-name-here")
            t.equal(done.returncode, 1, f"the exit code of --{setting}")
            t.check(f'{setting}: this machine has no {what} "no-such-name-here"' in done.stderr, done.stderr)


@t.test(60)
def nobody_listens_for_anyone_by_accident():
    for address in ("tcp://0.0.0.0:0", "tcp://*:0"):
        done = start(f"--listen={address}")
        t.equal(done.returncode, 1, f"the exit code of -l {address}")
        for way in ("--require-token", "--allow-anyone", "allow-anyone = 1", "127.0.0.1", "-s ssh://"):
            t.check(way in done.stderr, f"{way} is not in {done.stderr}")
    with t.Server("--allow-anyone", listen=["tcp://0.0.0.0:0"]) as server:
        done = t.run([t.TOWLINE, "status", "-s", f"tcp://127.0.0.1:{server.port()}"])
        t.equal(done.returncode, 0, f"towline status: {done.stderr}")


@t.test(60)
def who_listens_for_anyone_goes_on_doing_so():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text("allow-anyone = 1\n")
        with t.Server(f"--config={config}", listen=["tcp://0.0.0.0:0"]) as server:
            config.write_text("max-sessions = 3\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "the settings stay as they were: whoever reaches" in server.log(), 5, "the settings stay")


# ---- tokens ----

CHALLENGE, PROOF, PROVED, CAN_LOGIN, STATUS_LOGIN = 0xF016, 0xF017, 0xF018, 8, 16
NOT_VALID = "the token is not valid here; ask the server's administrator for another"
HOLD = t.ROOT / "tests" / "system" / "helpers" / "hold.c"


def token(server, *words):
    return t.run([t.TOWLINED, "token", *words, "--token-file", server.folder / "tokens"])


def create(server, user="ann", *more):
    done = token(server, "create", "--user", user, *more)
    t.equal(done.returncode, 0, f"towlined token create: {done.stderr}")
    return done.stdout.strip()


def demanding(*flags, **more):
    server = t.Server("--require-token", *flags, **more)
    server.flags.append(f"--token-file={server.folder / 'tokens'}")
    return server


def status(server, text="", kind="tcp", **env):
    found = {name: value for name, value in os.environ.items() if not name.startswith("TOWLINE_TOKEN")}
    found.update(HOME=str(server.folder), XDG_CONFIG_HOME=str(server.folder / "config"), **({"TOWLINE_TOKEN": text} if text else {}), **env)
    return t.run([t.TOWLINE, "status", "--json", "-s", server.address(kind)], env=found)


def expect_said(done, sentence):
    t.check(done.returncode != 0 and sentence in done.stderr, f"{sentence!r} is not in {done.stdout}{done.stderr}")


class Raw:
    """A connection of bytes that logs in, as docs/wire/login.md says."""

    def __init__(self, server, source="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", server.port()), timeout=30 * t.SLOW, source_address=(source, 0))
        self.first = raw.hello(capabilities=CAN_LOGIN)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exactly(self, size):
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                more = b""  # closed with bytes unread
            if not more:
                return None
            data += more
        return data

    def hear(self):
        head = self.exactly(16)
        if head is None:
            return None, b""
        length, kind = struct.unpack("<IH10x", head)
        return kind, self.exactly(length - 16)

    def challenge(self):
        self.socket.sendall(self.first)
        kind, body = self.hear()
        t.equal(kind, CHALLENGE, "the answer to the first frame")
        return body[8:40]

    def proof(self, text, nonce, mine=bytes(32)):
        number, secret = text.split("-")[1:]
        secret = bytes.fromhex(secret)
        key = hmac.digest(secret, b"client", "sha256")
        said = hashlib.sha256(b"towline login 1\0" + struct.pack("<Q", int(number, 16)) + nonce + mine +
                              hashlib.sha256(self.first).digest()).digest()
        signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
        self.wanted = hmac.digest(hmac.digest(secret, b"server", "sha256"), said, "sha256")
        body = struct.pack("<IIQ", raw.MAGIC, 0, int(number, 16)) + mine + bytes(a ^ b for a, b in zip(key, signature))
        return raw.frame(PROOF, body, thread=0)


@t.test(60)
def a_token_file_is_named_with_its_whole_path():
    for command in ([t.TOWLINED, "--device=soft", "--listen=tcp://127.0.0.1:0", "--require-token"], [t.TOWLINED, "token", "list"]):
        expect_said(t.run([*command, "--token-file=some/tokens"]), "token-file = some/tokens does not begin with /; write the whole path")


@t.test(60)
def who_has_a_token_is_told_that_the_server_is_full():
    with demanding("--max-sessions=1", "--wait=0") as server:
        text = create(server)
        with t.held(server, "poll"):
            program = t.build_c(HOLD, ["-lcuda"], "hold")
            command = [t.TOWLINE, "run", "-s", server.address("tcp"), "--", program, "leave"]
            with subprocess.Popen(command, text=True, stderr=subprocess.PIPE, env={**os.environ, "TOWLINE_TOKEN": text}) as one:
                first = one.stderr.readline()
                one.kill()
            t.check("refuses: the server is full" in first and "trying again until" in first, first)


@t.test(60, trees=ALL)
def a_token_is_needed_over_tcp():
    program = t.build_c(HOLD, ["-lcuda"], "hold")
    with demanding() as server:
        text = create(server)
        expect_said(status(server), "needs a token; ask the server's administrator for one")
        expect_said(status(server, text[:-1] + ("1" if text[-1] == "0" else "0")), NOT_VALID)
        expect_said(status(server, text.replace(text[5:21], "00000000000000ff")), NOT_VALID)
        t.check("its secret is another" in server.log() and "there is no such token, or it was revoked" in server.log(), server.log())
        t.equal(status(server, text).returncode, 0, "towline status with a token")
        for lanes in ("0", "2"):
            done = t.towline_run(server.address("tcp"), [program, "free"], env={"TOWLINE_TOKEN": text, "TOWLINE_LANES": lanes})
            t.check(done.stdout.startswith("free "), f"a program with a token: {done.stdout}{done.stderr}")
        t.equal(status(server, kind="unix").returncode, 0, "towline status on the unix socket")
        secret = text.rsplit("-", 1)[1]
        t.check(secret not in server.log() and secret not in (server.folder / "tokens").read_text(), "the secret is kept")


@t.test(60)
def a_client_that_cannot_log_in_is_told_so():
    with demanding() as server:
        create(server)
        for words in (raw.hello(), question()):
            connection = socket.create_connection(("127.0.0.1", server.port()), timeout=30 * t.SLOW)
            kind, body = answer(connection, words)
            t.equal(kind, REFUSE, "the answer")
            t.check(b"a token is needed" in body, body)
        # Whether it is there, and no more, is no secret: programs that wait ask so.
        connection = socket.create_connection(("127.0.0.1", server.port()), timeout=30 * t.SLOW)
        kind, body = answer(connection, raw.frame(STATUS, struct.pack("<II", raw.MAGIC, 3), thread=0))
        t.equal((kind, body[8:10]), (REPORT, b"{}"), "the answer to whether it is there")


@t.test(60)
def a_token_does_no_harm_where_none_is_needed():
    with t.Server() as server:
        t.equal(t.towline_run(server.address("tcp"), BEGIN, env={"TOWLINE_TOKEN": "nonsense"}).stdout, "0\n", "cuInit")


@t.test(60)
def a_token_is_found_in_a_file_that_others_cannot_read():
    with demanding() as server:
        text = create(server)
        mine = server.folder / "mine"
        mine.write_text(text + "\n")
        mine.chmod(0o644)
        expect_said(status(server, text, TOWLINE_TOKEN_FILE=str(mine)), f"others can read the token in {mine}; run chmod 600")
        mine.chmod(0o600)
        t.equal(status(server, "nonsense", TOWLINE_TOKEN_FILE=str(mine)).returncode, 0, "a token in a file")
        expect_said(status(server, text, TOWLINE_TOKEN_FILE="/no/such/file"), "the token in /no/such/file cannot be read")
        expect_said(status(server, "nonsense"), "TOWLINE_TOKEN is no token")
        own = server.folder / "config" / "towline" / "token"
        own.parent.mkdir(parents=True)
        own.write_text(text)
        own.chmod(0o640)
        expect_said(status(server), f"others can read the token in {own}")
        own.chmod(0o600)
        t.equal(status(server).returncode, 0, "a token in the user's own file")


@t.test(60, trees=ALL)
def a_proof_is_good_for_one_challenge():
    with demanding() as server:
        text = create(server)
        with Raw(server) as first:
            proof = first.proof(text, first.challenge())
            # In pieces: the server waits for all of it.
            for i in range(0, len(proof), 7):
                first.socket.sendall(proof[i:i + 7])
                time.sleep(0.005)
            kind, body = first.hear()
            t.equal((kind, body[8:40]), (PROVED, first.wanted), "the server's own proof")
            first.socket.sendall(first.first)
            kind = NOTICE
            while kind == NOTICE:
                kind, _ = first.hear()
            t.equal(kind, WELCOME, "the answer to the second hello")
        with Raw(server) as replayed:
            replayed.challenge()
            replayed.socket.sendall(proof)
            kind, body = replayed.hear()
            t.check(kind == REFUSE and NOT_VALID.encode() in body, f"a proof that was used: {kind} {body}")
        with Raw(server) as other:  # logs in for one thing and wants another
            other.socket.sendall(other.proof(text, other.challenge()))
            t.equal(other.hear()[0], PROVED, "the answer to the proof")
            other.socket.sendall(raw.hello(name="other", capabilities=CAN_LOGIN))
            t.equal(other.hear()[0], None, "the answer to another hello")
        with Raw(server) as hasty:  # says its hello again instead
            hasty.challenge()
            hasty.socket.sendall(hasty.first)
            t.equal(hasty.hear()[0], None, "the answer to a second hello without a proof")
        with Raw(server) as silent:
            silent.challenge()
        t.equal(status(server, text).returncode, 0, "and then towline status")


@t.test(60)
def a_false_server_is_noticed():
    """It has no keys: what it answers to a proof is nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryDirectory() as folder:
        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(raw.frame(CHALLENGE, struct.pack("<II", raw.MAGIC, 0) + bytes(32), thread=0))
                connection.recv(1 << 16)
                connection.sendall(raw.frame(PROVED, struct.pack("<II", raw.MAGIC, 0) + bytes(32), thread=0))
                connection.recv(1 << 16)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        done = t.run([t.TOWLINE, "status", "-s", f"tcp://127.0.0.1:{listener.getsockname()[1]}"],
                     env=dict(os.environ, HOME=folder, TOWLINE_TOKEN="towl-" + 16 * "1" + "-" + 64 * "2"))
        expect_said(done, "it is not the server that made it, and is not used")
        thread.join(20 * t.SLOW)


@t.test(60)
def a_revoked_token_ends_what_runs_with_it():
    with demanding() as server:
        gone, stays = create(server), create(server, "bob")

        with t.held(server, "poll", "tcp", TOWLINE_TOKEN=gone) as first, t.held(server, "poll", "tcp", TOWLINE_TOKEN=stays) as second, Raw(server) as half:
            # Each sees its own, the administrator both.
            for text in (gone, stays):
                found = json.loads(status(server, text).stdout)[0]["report"]
                t.equal((len(found["sessions"]), found["others"]["sessions"]), (1, 1), "sessions that a tenant sees, and others")
            t.equal(len(server.status()["sessions"]), 2, "sessions")
            proof = half.proof(gone, half.challenge())
            t.equal(token(server, "revoke", gone.split("-")[1]).returncode, 0, "towlined token revoke")
            _, err = first.communicate(timeout=60 * t.SLOW)
            t.check("has ended this session: its token was revoked" in err, err)
            half.socket.sendall(proof)  # it had begun to log in
            t.equal(half.hear()[0], REFUSE, "the answer to a proof of a token that is gone")
            expect_said(status(server, gone), NOT_VALID)
            t.equal((second.poll(), status(server, stays).returncode), (None, 0), "the other program, and towline status")


@t.test(60)
def a_revoked_token_ends_though_others_log_in():
    """Whoever logs in first sees that the file is another: it must not be forgotten then."""
    with demanding() as server:
        gone, stays = create(server), create(server, "bob")
        with t.held(server, "poll", "tcp", TOWLINE_TOKEN=gone) as client:
            t.equal(token(server, "revoke", gone.split("-")[1]).returncode, 0, "towlined token revoke")
            begin = time.monotonic()
            while client.poll() is None:
                t.equal(status(server, stays).returncode, 0, "towline status of another")
                t.check(time.monotonic() - begin < 30 * t.SLOW, f"the program goes on\n{server.log()}")
            t.check("its token was revoked" in client.communicate()[1], "what the program is told")


@t.test(60)
def tokens_that_are_not_needed_any_more_end_nothing():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text("require-token = 1\n")
        server = t.Server(f"--config={config}")
        server.flags.append(f"--token-file={server.folder / 'tokens'}")
        with server:
            text = create(server)
            with t.held(server, "poll", "tcp", TOWLINE_TOKEN=text) as client, Raw(server) as half:
                proof = half.proof(text, half.challenge())
                config.write_text("")
                server.process.send_signal(signal.SIGHUP)
                t.wait_until(lambda: "the settings were read again" in server.log(), 5, "the settings are read")
                half.socket.sendall(proof)
                t.equal(half.hear()[0], PROVED, "the answer to a proof that is not needed any more")
                half.socket.sendall(half.first)
                kind = NOTICE
                while kind == NOTICE:
                    kind, _ = half.hear()
                t.equal(kind, WELCOME, "the answer to the hello")
                t.equal(status(server).returncode, 0, "towline status without a token")
                t.equal((client.poll(), len(server.status()["sessions"])), (None, 2), "the program, and sessions")
                config.write_text("require-token = 1\n")
                server.process.send_signal(signal.SIGHUP)
                t.wait_until(lambda: server.log().count("the settings were read again") == 2, 5, "the settings are read")
                expect_said(status(server), "needs a token")
                t.equal(client.poll(), None, "the program's end")


@t.test(60)
def who_is_denied_and_leaves_is_gone():
    """The listener must not look at it again and again until the answer would have gone out."""
    with demanding("--places-per-peer=0") as server:
        wrong = create(server)[:22] + 64 * "0"

        def ticks():
            words = pathlib.Path(f"/proc/{server.listener}/stat").read_text().rpartition(")")[2].split()
            return int(words[11]) + int(words[12])
        before = ticks()
        for _ in range(10):
            with Raw(server) as each:
                each.socket.sendall(each.proof(wrong, each.challenge()))
                time.sleep(0.05)  # it is denied by then, most often
                each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(1)
        used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
        t.check(used < 0.5, f"the listener was busy for {used} s")


@t.test(60, waits=True)
def a_program_hears_that_its_token_is_wrong_however_late():
    with demanding() as server:
        wrong = create(server)[:22] + 64 * "0"
        for _ in range(6):
            with Raw(server) as each:
                each.socket.sendall(each.proof(wrong, each.challenge()))
                t.equal(each.hear()[0], REFUSE, "the answer to a wrong proof")
        expect = t.run([t.TOWLINE, "run", "--no-check", "-s", server.address("tcp"), "--", *BEGIN], env=dict(os.environ, TOWLINE_TOKEN=wrong))
        t.check(NOT_VALID in expect.stderr, f"{expect.stdout}{expect.stderr}")


@t.test(60)
def a_token_expires():
    with demanding() as server:
        text = create(server, "ann", "--expires", "1m")
        t.equal(status(server, text).returncode, 0, "towline status before")
        path = server.folder / "tokens"
        head, line, rest = path.read_text().split("\n")
        words = line.split(" ")
        t.equal(int(words[6]) - int(words[5]), 60, "seconds")
        changed = server.folder / "changed"
        changed.write_text("\n".join([head, " ".join([*words[:6], str(int(time.time()))]), rest]))
        changed.chmod(0o600)
        changed.rename(path)
        expect_said(status(server, text), NOT_VALID)
        t.check("it has expired" in server.log(), server.log())


@t.test(60)
def a_file_of_tokens_that_others_can_change_lets_nobody_in():
    with demanding() as server:
        text = create(server)
        path = server.folder / "tokens"
        t.equal(path.stat().st_mode & 0o777, 0o600, "permissions of the file")
        path.chmod(0o644)
        expect_said(status(server, text), NOT_VALID)
        t.check(f"others may use {path}; run chmod 600" in server.log(), server.log())
        t.equal(token(server, "create", "--user", "eve").returncode, 1, "the exit code of towlined token create")
        path.chmod(0o600)
        t.equal(status(server, text).returncode, 0, "towline status with the file as it was")
        path.write_text("towline tokens 1\nnonsense\n")
        expect_said(status(server, text), NOT_VALID)
        done = start(f"--listen=unix://{server.folder}/other", "--require-token", f"--token-file={path}")
        t.check(done.returncode == 1 and f"{path}:2 cannot be understood" in done.stderr, done.stderr)
        if os.geteuid() == 0:
            os.chown(path, 1000, 1000)
            t.check("belongs to user 1000" in token(server, "list").stderr, "a file of another user")


@t.test(60)
def root_makes_tokens_for_the_server_of_another_user():
    """They are that user's, in a folder of his, and nothing else is touched that he names there."""
    need_root()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        own, path = pathlib.Path(folder, "own"), pathlib.Path(folder, "own", "tokens")
        own.mkdir()
        os.chown(own, 1000, 1001)
        words = [t.TOWLINED, "token", "create", "--user", "ann", "--token-file", path]
        for count in (1, 2):
            t.equal(t.run(words).returncode, 0, "towlined token create")
            for made in (path, own / "tokens.lock"):
                found = made.stat()
                t.equal((found.st_uid, found.st_gid, found.st_mode & 0o777), (1000, 1001, 0o600), f"whose {made} is")
            t.equal(len(path.read_text().splitlines()), 1 + count, "lines")
        other = pathlib.Path(folder, "other")
        other.write_text("root's")
        path.unlink()
        path.symlink_to(other)
        t.check(t.run(words).returncode != 0, "a link is followed")
        t.equal(other.read_text(), "root's", "what the link leads to")


@t.test(60)
def tokens_are_made_at_once():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "new" / "tokens"
        command = [str(t.TOWLINED), "token", "create", "--user", "ann", "--token-file", str(path)]
        made = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(16)]
        texts = {process.communicate(timeout=60 * t.SLOW)[0].split("-")[1] for process in made}
        t.equal({process.returncode for process in made}, {0}, "exit codes")
        for number in list(texts)[:2]:  # wherever the id stands
            t.equal(t.run([t.TOWLINED, "token", "revoke", f"--token-file={path}", number]).returncode, 0, "towlined token revoke")
            texts.remove(number)
        with open("/dev/full", "w") as full:
            t.equal(subprocess.run(command, stdout=full, stderr=subprocess.DEVNULL, timeout=60 * t.SLOW).returncode, 1, "the exit code of create")
        done = t.run([t.TOWLINED, "token", "list", "--token-file", path])
        t.equal({line.split()[0] for line in done.stdout.splitlines()[1:]}, texts, "tokens in the list")
        t.equal((path.parent.stat().st_mode & 0o777, sorted(p.name for p in path.parent.iterdir())), (0o700, ["tokens", "tokens.lock"]),
                "the folder")


@t.test(60)
def a_full_disk_leaves_the_tokens_as_they_were():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokens"
        command = [t.TOWLINED, "token", "create", "--user", "ann", "--token-file", path]
        t.equal(t.run(command).returncode, 0, "the exit code of towlined token create")
        before = path.read_text()
        done = t.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "sh", *command])
        t.equal((done.returncode, done.stdout), (1, ""), f"what it says with no room: {done.stderr}")
        t.check("cannot be written" in done.stderr and "it is as it was" in done.stderr, done.stderr)
        t.equal((path.read_text(), sorted(os.listdir(folder))), (before, ["tokens", "tokens.lock"]), "the file and its folder")


@t.test(60)
def names_are_words():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("", "a b", "a\nb", "a\"b", "a\x07b", "-a", "\u00e4", 33 * "a", "../a"):
            for words in (["--user", name], ["--user=ann", f"--class={name}"]):
                done = t.run([t.TOWLINED, "token", "create", *words, "--token-file", f"{folder}/tokens"])
                t.check(done.returncode == 2 and "letters, digits and ._@-" in done.stderr and not done.stdout, f"{words}: {done}")
        for wrong in ("0d", "d", "-1d", "1", "1y", "1dd", "99999999999999d"):
            done = t.run([t.TOWLINED, "token", "create", "--user=ann", f"--expires={wrong}", "--token-file", f"{folder}/tokens"])
            t.check(done.returncode == 2 and "--expires needs a time" in done.stderr, f"{wrong}: {done}")
        t.equal(os.listdir(folder), [], "what is in the folder")


@t.test(60)
def failed_logins_slow_down_and_others_do_not_wait():
    with demanding() as server:
        text = create(server)
        wrong = text[:22] + 64 * "0"
        connections = [Raw(server) for _ in range(6)]
        begin = time.monotonic()
        with contextlib.ExitStack() as stack:
            for each in connections:
                stack.enter_context(each)
                each.socket.sendall(each.proof(wrong, each.challenge()))
            t.equal(status(server, text).returncode, 0, "towline status meanwhile")
            for each in connections:
                t.equal(each.hear()[0], REFUSE, "the answer to a wrong proof")
            t.check(time.monotonic() - begin > 1.5, "the sixth wrong proof was answered at once")


@t.test(60)
def workers_do_not_know_tokens():
    if not t.sees_all_processes():
        raise t.Skip("needs to look into workers")
    with demanding(env={"TOWLINE_TOKEN": "x" * 20, "TOWLINE_TOKEN_FILE": "/y"}) as server:
        t.check(server.workers(), "there is no worker")
        for worker in server.workers():
            found = pathlib.Path(f"/proc/{worker}/environ").read_bytes()
            t.check(b"TOWLINE_TOKEN" not in found, "a worker has a token in its environment")


@t.test(60)
def places_are_a_users_after_login():
    """Before it they are an address's: who has many addresses and one token has no more places than others."""
    with demanding("--places-per-peer=4") as server, contextlib.ExitStack() as stack:
        ann, bob, begin = create(server), create(server, "bob"), time.monotonic()

        def log_in(source, text):
            line = stack.enter_context(Raw(server, source))
            line.socket.sendall(line.proof(text, line.challenge()))
            t.equal(line.hear()[0], PROVED, f"the answer to the proof from {source}")
            return line.socket
        other = log_in("127.0.0.1", bob)
        lines = [log_in(f"127.0.0.{2 + i}", ann) for i in range(6)]

        def closed():
            return sum(bool(select.select([line], [], [], 0)[0]) for line in lines)
        t.wait_until(lambda: closed() >= 2, 8, "two of six have given their places away")  # nobody may be silent for 10 s
        gone, stays = closed(), not select.select([other], [], [], 0)[0]
        t.check((gone == 2 and stays) or time.monotonic() - begin > 8, f"{gone} of six are gone, and the place of another is his: {stays}")
        t.check("ann (token) has taken all of the 4 places" in server.log(), server.log())


# ---- where a token is in a client ----

def copies_of(pid, wanted):
    """The flags of each mapping of a process that has one of these bytes in it."""
    found, where = [], None
    with open(f"/proc/{pid}/smaps") as smaps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in smaps:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (r?)", line)
            if head:
                where = (int(head[1], 16), int(head[2], 16)) if head[3] else None
            elif line.startswith("VmFlags:") and where:
                with contextlib.suppress(OSError, OverflowError):
                    memory.seek(where[0])
                    content = memory.read(min(where[1] - where[0], 64 << 20))
                    found += [line.split()[1:] for what in wanted if what in content]
    return found


@t.test(60)
def a_token_is_on_a_page_of_its_own():
    """While a client logs in its token is on a page that no core dump and no child gets; afterwards it is nowhere."""
    program = t.build_c(HOLD, ["-lcuda"], "hold")
    with demanding() as server, socket.create_server(("127.0.0.1", 0)) as listener:
        path = server.folder / "own"
        path.touch(0o600)
        path.write_text(create(server))
        secret = path.read_text().rsplit("-", 1)[1]
        wanted = (secret.encode(), bytes.fromhex(secret))
        env = t.clean_environment(TOWLINE_TOKEN_FILE=str(path))

        def client(port):
            return subprocess.Popen([t.TOWLINE, "run", "-s", f"tcp://127.0.0.1:{port}", "--", program, "poll"], text=True, env=env,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with client(listener.getsockname()[1]) as process:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(30 * t.SLOW)
                connection.recv(1 << 16)
                connection.sendall(raw.frame(CHALLENGE, struct.pack("<II", raw.MAGIC, 0) + bytes(32), thread=0))
                t.check(connection.recv(16), "no proof came")  # and the client waits for the server's
                process.send_signal(signal.SIGSTOP)  # it would not wait for long, and looking takes time
                try:
                    flags = copies_of(process.pid, wanted)
                except PermissionError:
                    raise t.Skip("nobody may look into processes here")
                finally:
                    process.kill()
            t.check(flags, "the token is nowhere: nothing can be shown")
            t.check(all({"dd", "wf"} <= set(one) for one in flags), f"flags of memory that has it: {flags}")
        with client(server.port()) as process:
            t.equal(process.stdout.readline(), "ready\n", "what hold says")
            t.equal(copies_of(process.pid, wanted), [], "flags of memory that has it after the login")
            process.kill()


if __name__ == "__main__":
    t.main()
