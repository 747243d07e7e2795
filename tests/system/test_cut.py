#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs whose connection over tcp is cut go on where they were, and nobody else can go on with their sessions."""

import contextlib
import hashlib
import hmac
import os
import pathlib
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import cutter  # noqa: E402
import frame_cutter  # noqa: E402
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = t.ROOT / "tests" / "system" / "helpers"
CAN_LANES, CAN_LAST = 1, 128
REFUSE, CHALLENGE, PROOF, PROVED, LASTING, RESUME = 0xF002, 0xF016, 0xF017, 0xF018, 0xF01A, 0xF01B
LEASH = 0xFFFFFFFE
OWN = ("main", "lane", "side", "leash")  # the connections of a session, which go on
BACK = "the program goes on"


@contextlib.contextmanager
def running(address, rounds, seed=1, words=(), **env):
    program = t.build_c(HELPERS / "checks.c", ["-lcuda"], "checks")
    process = subprocess.Popen([str(t.TOWLINE), "run", "-s", address, "--no-check", "--", str(program), str(rounds), str(seed), *words],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=t.clean_environment(**{"TOWLINE_LANES": "3", **env}))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finish(process, rounds):
    """All of its output, which is right."""
    out, err = process.communicate(timeout=100 * t.SLOW)
    wanted = "".join(f"round {i}\n" for i in range(rounds)) + "done\n"
    t.check(process.returncode == 0 and out == wanted, f"exit code {process.returncode}: {out!r}\n{err[-3000:]}")
    return err


def trusting(server, proxy):
    """The settings of a client of the server's behind the proxy, of which it knows the key if it has one."""
    if not isinstance(server, t.TlsServer):
        return {}
    done = t.run([t.TOWLINE, "trust", proxy.address], env=t.clean_environment(**server.settings))
    t.equal(done.returncode, 0, f"towline trust: {done.stderr}")
    # Threads of the lanes live until the process ends, with OpenSSL's state of errors (904 bytes each), which LeakSanitizer misses.
    return dict(server.settings, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")


# ---- at every kind of frame ----

def frames(way, names):
    """As frame_cutter names them: those of docs/wire are in capitals."""
    return [(way, name if name.isupper() else name.replace("_", " ")) for name in names]


UP = ("launch upload download command call module_load host_function event_record DATA MIRROR FENCE SIDE CALLBACK_DONE CALLBACK_BYTES "
      "THREAD_EXIT FORGET BYE RESUME PROOF data_record ack_record resume_record").split()
DOWN = "REPLY CALLBACK PRINT DATA MIRROR DONE NOTICE CHALLENGE PROVED data_record ack_record resume_record".split()
TLS = "handshake short_record record long_record".split()
KINDS = {"tcp": frames(frame_cutter.UP, UP) + frames(frame_cutter.DOWN, DOWN),
         "tls": frames(frame_cutter.UP, TLS) + frames(frame_cutter.DOWN, TLS)}
# They come when they come: after cuts only, or where the kernel allows what they are for.
PERHAPS = {"tcp": [(frame_cutter.UP, "repeat"), (frame_cutter.DOWN, "repeat"), (frame_cutter.UP, "ask record"), (frame_cutter.UP, "FETCH"),
                   (frame_cutter.DOWN, "end record")],
           "tls": [(frame_cutter.UP, "change"), (frame_cutter.DOWN, "change")]}
ALWAYS = {"tcp": (frame_cutter.UP, "launch"), "tls": (frame_cutter.DOWN, "record")}
PIECE, SAMPLE, ALL = 25, 2, 500  # cuts; pieces where few are run; cuts over each of the two


def through(proxy, server, plan, seed, settings):
    """A whole session with the cuts of the plan."""
    proxy.plan = plan
    with running(proxy.address, 6, seed, ("all",), **settings) as process:
        err = finish(process, 6)
    t.check("gave up" not in err and "lost" not in err, err)
    t.wait_until(lambda: not server.status()["sessions"], 5, "the session has ended")


def at_frames(kind, piece):
    """A piece of the cuts that the seed has over tcp or tls."""
    seed = int(os.environ.get("TOW_TESTS_CUTS", t.commit_seed()))
    print(f"the seed is {seed} (TOW_TESTS_CUTS={seed} has the same cuts again)")
    draw = random.Random(f"{seed} {kind}")
    cells = [(*frame, place) for frame in KINDS[kind] + PERHAPS[kind] for place in frame_cutter.PLACES]
    order = [cell for _ in range(ALL // len(cells) + 1) for cell in draw.sample(cells, len(cells))][:ALL]
    draw = random.Random(f"{seed} {kind} {piece}")
    server = t.TlsServer() if kind == "tls" else t.Server()
    with server, frame_cutter.FrameCutter(server.port(kind), frame_cutter.Plan(draw), scheme=kind) as proxy:
        settings = trusting(server, proxy)
        look = proxy.plan
        through(proxy, server, look, piece, settings)
        lacking = [frame for frame in KINDS[kind] if frame not in look.seen]
        t.check(not lacking, f"the program makes no {lacking}; it makes {look.seen}")
        plan = frame_cutter.Plan(draw, [frame_cutter.Target(*cell, draw.randrange(look.seen.get(cell[:2], 1)))
                                        for cell in order[piece * PIECE:(piece + 1) * PIECE]])
        sessions = 0
        while plan.targets and sessions < 15:
            through(proxy, server, plan, piece, settings)
            sessions += 1
            plan.again()
            if sessions > 3:  # what may come has not
                plan.targets = [frame_cutter.Target(*ALWAYS[kind], target.cell[2], 100) if target.cell[:2] in PERHAPS[kind] else target
                                for target in plan.targets]
        print(f"{len(plan.made)} cuts in {sessions} sessions: {plan.made}")
        t.check(not plan.targets, f"no such frame came: {plan.targets}")


for _kind, _piece in ((_kind, _piece) for _kind in KINDS for _piece in range(ALL // PIECE if t.LONG and t.TREE == "plain" else SAMPLE)):
    @t.test(120, trees=("plain", "asan", "tsan"), matrix="cuts", name=f"at_every_kind_of_frame_{_kind}_{_piece}")
    def every_kind(kind=_kind, piece=_piece):
        """make check-long has all pieces, which are 1,000 cuts."""
        at_frames(kind, piece)


# ---- within large copies ----

def in_large_copies(kind, lanes):
    """What is sent again must be what it was, though its buffer is used again meanwhile."""
    rounds, mib = 4, 24
    draw = random.Random(f"{t.commit_seed()} {kind} {lanes}")
    server = t.TlsServer() if kind == "tls" else t.Server()
    with server, frame_cutter.FrameCutter(server.port(kind), frame_cutter.Plan(draw), scheme=kind) as proxy:
        settings = trusting(server, proxy)
        name = "DATA" if kind == "tcp" else "record"
        # Of tls only a record is seen: some of them are more than a frame.
        frames = rounds * mib // 2
        proxy.plan = plan = frame_cutter.Plan(draw, [frame_cutter.Target(way, name, draw.choice(frame_cutter.PLACES), draw.randrange(frames))
                                                     for way in 4 * (frame_cutter.UP, frame_cutter.DOWN, frame_cutter.DOWN)])
        program = t.build_c(HELPERS / "large.c", ["-lcuda"], "large")
        done = t.run([t.TOWLINE, "run", "-s", proxy.address, "--no-check", "--", program, rounds, mib],
                     timeout=100, env=t.clean_environment(**{"TOWLINE_LANES": str(lanes), **settings}))
        t.check(done.returncode == 0 and done.stdout == "right\n", f"exit code {done.returncode}: {done.stdout}{done.stderr[-3000:]}")
        print(f"{len(plan.made)} cuts: {plan.made}")
        t.check(len(plan.made) > 6, f"it went on without many of them: {plan.seen}")


for _kind in ("tcp", "tls"):
    for _lanes in (0, 3):
        @t.test(120, trees=("plain", "asan"), name=f"in_large_copies_{_kind}_{_lanes}_lanes")
        def in_copies(kind=_kind, lanes=_lanes):
            in_large_copies(kind, lanes)


# ---- times, addresses, ends ----

@t.test(120)
def it_goes_on_when_the_network_is_back():
    with t.Server() as server, cutter.Cutter(server.port()) as proxy, running(proxy.address, 60) as process:
        t.wait_until(lambda: any(session["calls"] > 100 for session in server.status()["sessions"]), 20, "the program works")
        proxy.down = True
        proxy.cut_all()
        t.wait_until(lambda: "detached_s" in server.status()["sessions"][0], 10, "the session is shown as detached")
        shown = t.run([t.TOWLINE, "status", "-s", server.address()]).stdout
        t.check("detached for" in shown, shown)
        t.wait_until(lambda: server.status()["sessions"][0]["detached_s"] > 3, 10, "it is detached for 3 s")
        calls = server.status()["sessions"][0]["calls"]
        t.check(proxy.refused > 4, f"the program has tried to connect {proxy.refused} times")
        proxy.down = False
        seconds = t.wait_until(lambda: server.status()["sessions"] == [] or server.status()["sessions"][0]["calls"] > calls, 1.5,
                               "the program goes on")
        print(f"it went on after {seconds:.2f} s")
        err = finish(process, 60)
        t.check(re.search(r"towline: the connection to \S+ was cut; trying again for 60 s\n", err), err)
        t.check(re.search(r"towline: the connection to \S+ is back after \d s: the program goes on\n", err), err)


@t.test(60)
def after_the_time_it_is_lost_on_both_sides():
    with t.Server("--reconnect=2") as server, cutter.Cutter(server.port()) as proxy, running(proxy.address, 1000) as process:
        t.wait_until(lambda: any(session["calls"] > 100 for session in server.status()["sessions"]), 20, "the program works")
        proxy.down = True
        proxy.cut_all()
        began = time.monotonic()
        _, err = process.communicate(timeout=30 * t.SLOW)
        seconds = time.monotonic() - began
        t.check(process.returncode == 1 and 1.5 < seconds < 8 * t.SLOW, f"it ended after {seconds:.1f} s, with {process.returncode}: {err}")
        t.check("was cut; trying again for 2 s\n" in err and "is lost (the connection was closed)" in err, err)
        t.wait_until(lambda: not server.status()["sessions"], 5, "the session has ended")
        t.check("its program's connection ended" in server.log(), server.log())


@t.test(60)
def without_the_setting_a_cut_is_the_end():
    with t.Server("--reconnect=0") as server, cutter.Cutter(server.port()) as proxy, running(proxy.address, 1000) as process:
        t.wait_until(lambda: any(session["calls"] > 100 for session in server.status()["sessions"]), 20, "the program works")
        proxy.cut_all()
        _, err = process.communicate(timeout=30 * t.SLOW)
        lost = re.search(r"is lost \((the connection|a connection of its session) was closed\)", err)  # whichever is seen first
        t.check(process.returncode == 1 and lost and "trying again" not in err, err)
        t.wait_until(lambda: not server.status()["sessions"], 2, "the session has ended")


@t.test(120)
def its_address_may_be_another_then():
    for kind, server in (("tcp", t.Server()), ("tls", t.TlsServer())):
        with server, cutter.Cutter(server.port(kind), scheme=kind) as proxy, \
                running(proxy.address, 30, 1, **trusting(server, proxy)) as process:
            t.wait_until(lambda: any(session["calls"] > 100 for session in server.status()["sessions"]), 20, "the program works")
            proxy.source = "127.0.0.2"
            proxy.cut_all()
            err = finish(process, 30)
            t.check(BACK in err, err)
            t.check(re.search(r"session 1 was cut off, and goes on from 127\.0\.0\.2:", server.log()), server.log())


def stands_still(server, proxy, process):
    """The proxy takes and sends nothing for longer than a machine may be silent. Its kernel answers, but for what it has no room for: so
    it may be taken for a machine that is gone, and a cut."""
    t.wait_until(lambda: any(session["calls"] > 100 for session in server.status()["sessions"]), 20, "the program works")
    proxy.stalled = True
    time.sleep(7)  # longer than the heartbeat: nothing is to happen meanwhile
    t.equal(len(server.status()["sessions"]), 1, "sessions")
    t.check(process.poll() is None, "the program waits")


@t.test(120)
def a_proxy_that_stands_still_is_no_end():
    with t.Server("--heartbeat=5") as server, cutter.Cutter(server.port()) as proxy, running(proxy.address, 200) as process:
        stands_still(server, proxy, process)
        proxy.stalled = False
        finish(process, 200)


@t.test(120)
def one_that_ends_after_that_was_a_cut():
    with t.Server("--heartbeat=5") as server, cutter.Cutter(server.port()) as proxy, running(proxy.address, 200) as process:
        stands_still(server, proxy, process)
        proxy.cut_all()
        proxy.stalled = False
        t.check(BACK in finish(process, 200), "the program goes on over another connection")


def ends_with_its_worker(server, kind):
    with server, running(server.address(kind), 1000, 1, **getattr(server, "settings", {})) as process:
        t.wait_until(lambda: any(session["calls"] > 100 for session in server.status()["sessions"]), 20, "the program works")
        began = time.monotonic()
        os.kill(server.status()["sessions"][0]["worker_pid"], signal.SIGKILL)
        _, err = process.communicate(timeout=30 * t.SLOW)
        seconds = time.monotonic() - began
        t.check(process.returncode == 1 and seconds < 5 * t.SLOW, f"it ended after {seconds:.1f} s, with {process.returncode}: {err}")
        t.check("it has no such session (any more): the session has ended, or the server was started again" in err, err)
        t.check("trying again" not in err and "goes on" not in err, err)


@t.test(120)
def a_session_that_has_ended_is_not_waited_for():
    """Its worker is killed."""
    ends_with_its_worker(t.Server(), "tcp")
    ends_with_its_worker(t.TlsServer(), "tls")


@t.test(60)
def a_killed_program_is_not_waited_for():
    """Its machine's kernel tells, whatever it had not read: the session ends at once, and is never kept for 60 s."""
    with t.TlsServer() as server:
        for mode, kind in (("fetch", "tcp"), ("poll", "tcp"), ("copy", "tcp"), ("fetch", "tls"), ("poll", "tls")):
            with t.held(server, mode, kind, TOWLINE_LANES="1", **server.settings) as program:
                t.wait_until(lambda: server.status()["sessions"][0]["calls"] > 5, 20, "it works")
                time.sleep(0.3)  # what waits for nothing: the second connection is made beside the program
                program.kill()
                seconds = t.wait_until(lambda: not server.status()["sessions"], 2.5, f"the session of hold {mode} has ended")
                print(f"hold {mode} over {kind}: {seconds:.2f} s")


class Ending:
    """A way to a server of tls:// that is as a program which is killed while its leash is begun: what it had said by then arrives with
    the end of both connections, whose kinds differ, before the worker looks again. Use with `with`."""

    def __init__(self, server):
        self.server, self.granted, self.done = server, [], threading.Event()
        self.port = int(server.address("tls").rsplit(":", 1)[1])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tls://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while not self.done.is_set():
                threading.Thread(target=self.carry, args=(self.listener.accept()[0],), daemon=True).start()

    def carry(self, client):
        first = client.recv(65536)
        ends = (client, socket.create_connection(("127.0.0.1", self.port)))
        ends[1].sendall(first)
        if cutter.names_grant(first):
            self.granted.append(ends)
        leash = len(self.granted) == 2 and ends is self.granted[1]
        with contextlib.suppress(OSError):
            while True:
                for end in select.select(ends, [], [])[0]:
                    if leash and end is client:
                        self.end(client)
                        return
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[end is client].sendall(data)

    def end(self, client):
        worker = self.server.status()["sessions"][0]["worker_pid"]
        os.kill(worker, signal.SIGSTOP)
        client.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            while True:
                self.granted[1][1].sendall(client.recv(65536))
        self.listener.shutdown(socket.SHUT_RDWR)
        self.granted[1][1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.granted[1][1].close()
        self.granted[0][1].shutdown(socket.SHUT_RDWR)
        os.kill(worker, signal.SIGCONT)
        self.done.set()


@t.test(60)
def a_program_that_is_killed_while_its_leash_begins_is_not_waited_for():
    t.need_tls()
    with t.TlsServer() as server, Ending(server) as way:
        with running(way.address, 1000, TOWLINE_LANES="0", **trusting(server, way)):
            t.check(way.done.wait(20 * t.SLOW), "its second connection was begun")
            # 0.5 s; 5 s where the end of the handshake was not heard. One that is waited for has 60.
            t.wait_until(lambda: not server.status()["sessions"], 1.2, "the session has ended")


# ---- strangers ----

class Again:
    """Somebody who wants to go on with a session."""

    def __init__(self, server, session, line=0):
        self.socket = socket.create_connection(("127.0.0.1", server.port()), timeout=20 * t.SLOW)
        self.session = session
        self.first = raw.frame(RESUME, struct.pack("<IIQ", raw.MAGIC, line, session), thread=0)
        self.socket.sendall(self.first)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def receive(self):
        def exactly(size):
            data = b""
            with contextlib.suppress(ConnectionResetError):  # it had not read all that was said
                while len(data) < size:
                    more = self.socket.recv(size - len(data))
                    if not more:
                        return None
                    data += more
                return data
            return None
        head = exactly(16)
        if head is None:
            return None, b""
        length, kind = struct.unpack_from("<IH", head)
        return kind, exactly(length - 16)

    def prove(self, sent, number=None):
        """As who has a session's secret; what the server answers."""
        kind, body = self.receive()
        t.equal(kind, CHALLENGE, "the answer to RESUME")
        number = self.session if number is None else number
        secret = hmac.digest(bytes(32), sent, "sha256")
        key = hmac.digest(secret, b"client", "sha256")
        said = hashlib.sha256(b"towline login 1\0" + struct.pack("<Q", number) + body[8:40] + bytes(32) +
                              hashlib.sha256(self.first).digest()).digest()
        signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
        self.wanted = hmac.digest(hmac.digest(secret, b"server", "sha256"), said, "sha256")
        proof = struct.pack("<IIQ", raw.MAGIC, 0, number) + bytes(32) + bytes(a ^ b for a, b in zip(key, signature))
        self.socket.sendall(raw.frame(PROOF, proof, thread=0))
        return self.receive()


def lasting(server, capabilities=0):
    """A client made of bytes whose line outlives its connection; it, its session's number and what it was sent."""
    client = raw.Client(server, greet=False, source="127.0.0.1")
    client.socket.sendall(raw.hello(capabilities=CAN_LAST | capabilities))
    kind, body = raw.NOTICE, b""
    while kind == raw.NOTICE:
        kind, _, _, body = client.receive()
    t.equal(kind, raw.WELCOME, "the answer to the hello")
    t.check(struct.unpack_from("<Q", body, 40)[0] & CAN_LAST, "the welcome says that the line lasts")
    session = struct.unpack_from("<Q", body, 48)[0]
    kind, _, _, body = client.receive()
    t.equal(kind, LASTING, "what follows the welcome")
    t.equal(struct.unpack_from("<II", body), (raw.MAGIC, 60), "how long")
    return client, session, body[8:40]


NO_SESSION = b"it has no such session (any more): the session has ended, or the server was started again"


@t.test(60, trees=("plain", "asan"))
def who_has_not_the_secret_cannot_go_on():
    with t.Server() as server:
        client, session, sent = lasting(server)
        wrong = bytes([sent[0] ^ 1]) + sent[1:]
        waited = []
        for number, secret, said in ((session, wrong, None), (session, sent, session + 1), (session + 1, sent, None), (0, bytes(32), None)):
            with Again(server, number) as stranger:
                began = time.monotonic()
                kind, body = stranger.prove(secret, said)
                waited.append(time.monotonic() - began)
                t.check(kind == REFUSE and NO_SESSION in body, f"a stranger was answered {kind:#x} {body!r}")
        t.check(all(seconds >= 0.1 * 2 ** i for i, seconds in enumerate(waited)), f"each is answered later than the one before: {waited}")
        # Nor who says nothing more, or something else; and nobody gets far who says half of it.
        with Again(server, session) as silent, Again(server, session) as other:
            t.equal(other.receive()[0], CHALLENGE, "the answer to RESUME")
            other.socket.sendall(raw.hello())
            t.equal(other.receive()[0], None, "the answer to something else than a proof")
            t.equal(silent.receive()[0], CHALLENGE, "the answer to RESUME")
            # The session is as it was: its own client goes on, by one connection and then by another.
            for _ in range(2):
                with Again(server, session) as own:
                    kind, body = own.prove(sent)
                    t.check(kind == PROVED and body[8:40] == own.wanted, f"its own client was answered {kind} {body!r}")
                    own.socket.sendall(struct.pack("<IIQ", 0, 4, 0))  # it has taken nothing
                    head = own.socket.recv(16, socket.MSG_WAITALL)
                    t.equal(struct.unpack("<IIQ", head), (0, 4, 0), "the worker's own record")
        client.socket.close()
        t.check("its secret is another" in server.log() and "there is no such session" in server.log(), server.log())


@t.test(60, trees=("plain", "asan"))
def a_plain_lane_is_refused():
    """Whoever has read the key of a session's lanes on the network cannot join a session that lasts."""
    with t.Server() as server:
        client, session, sent = lasting(server, CAN_LANES)
        topic = None
        while topic != 4:  # TOW_NOTICE_LANES
            size, kind, _ = struct.unpack("<IIQ", client.socket.recv(16, socket.MSG_WAITALL))
            t.equal(kind, 1, "the kind of a record")
            frames = client.socket.recv(size, socket.MSG_WAITALL)
            while frames and topic != 4:
                length, kind = struct.unpack_from("<IH", frames)
                topic, _, *key = struct.unpack_from("<IIQQ", frames, 16) if kind == raw.NOTICE else (None, None)
                frames = frames[length:]
        for line in (1, 0xFFFFFFFF):
            with socket.create_connection(("127.0.0.1", server.port()), timeout=20 * t.SLOW) as plain:
                plain.sendall(struct.pack("<IHHII4sIQQQ", 48, raw.LANE, 0, 0, 0, b"TOWL", line, session, *key))
                with contextlib.suppress(ConnectionResetError):
                    t.equal(plain.recv(16), b"", f"the answer to a plain line {line:#x}")
        t.equal(server.log().count(f"wanted to add a connection to session {session} and was refused"), 2, "what the log says")
        with Again(server, session, 1) as own:
            t.equal(own.prove(sent)[0], PROVED, "the answer to a lane of who has the secret")
            own.socket.sendall(struct.pack("<IIQ", 0, 4, 0))
            t.equal(struct.unpack("<IIQ", own.socket.recv(16, socket.MSG_WAITALL)), (0, 4, 0), "the worker's own record")
        client.socket.close()


@t.test(60)
def what_was_encrypted_stays_so():
    """Over tcp nobody goes on with a session of tls, whatever they know."""
    with t.TlsServer() as server, t.held(server, "poll", "tls", **server.settings):
        with Again(server, server.status()["sessions"][0]["id"]) as stranger:
            kind, body = stranger.prove(bytes(32))
            t.check(kind == REFUSE and NO_SESSION in body, f"{kind:#x} {body!r}")
        t.check("there is no such session, or it ends with its connection" in server.log(), server.log())


@t.test(60)
def who_cannot_go_on_is_not_let_in():
    """A unix socket is not cut, and a session of a client that does not know how ends with its connection."""
    with t.Server() as server, raw.Client(server, source="127.0.0.1") as old:
        session = server.status()["sessions"][0]["id"]
        with Again(server, session) as stranger:
            kind, body = stranger.prove(bytes(32))
            t.check(kind == REFUSE and NO_SESSION in body, f"{kind:#x} {body!r}")
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(20 * t.SLOW)
        local.connect(str(server.socket))
        local.sendall(raw.frame(RESUME, struct.pack("<IIQ", raw.MAGIC, 0, session), thread=0))
        with contextlib.suppress(ConnectionResetError):
            t.equal(local.recv(1), b"", "the answer on a unix socket")
        local.close()
        old.socket.close()
        t.wait_until(lambda: not server.status()["sessions"], 2.5, "its session has ended")


@t.test(120)
def with_a_token_the_secret_does_not_travel():
    """What is sent is not enough: the login's two sides add what both know."""
    server = t.Server("--require-token")
    server.flags.append(f"--token-file={server.folder / 'tokens'}")
    with server, contextlib.ExitStack() as stack:
        made = t.run([t.TOWLINED, "token", "create", "--user", "ann", "--token-file", server.folder / "tokens"])
        t.equal(made.returncode, 0, f"towlined token create: {made.stderr}")
        proxy = stack.enter_context(cutter.Cutter(server.port(), 5, 10, 40000, spare=12000, only=OWN))
        with running(proxy.address, 20, TOWLINE_TOKEN=made.stdout.strip()) as process:
            err = finish(process, 20)
        t.check(proxy.done > 0 and BACK in err, f"{proxy.done} cuts: {err}")


if __name__ == "__main__":
    t.main()
