#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions of real programs, said again with mistakes in them: the server may end such a session, and nothing else happens.

    test_mutants.py search SECONDS [SEED]    goes on for so long, with other mistakes than the test's
    test_mutants.py bytes SECONDS            damages every byte of a session, or as many as it can in that time
"""

import contextlib
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

PROGRAMS = ("blocking", "graph", "green", "logs", "places", "texture")
# Frames as they were recorded, without the heads of a line that lasts (docs/wire/lasting.md).
BARE = "--reconnect=0"
MUTANTS = 60
RECORD_MAX = 1 << 20  # bytes of a program's session
HEADER = 16
FENCE = 0xF011  # waits for the program's second connection, which is not said again
NUMBERS = [0, 1, 2, 7, 8, 255, 4095, 4096, 65536, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 63, (1 << 64) - 1]


class Recorder:
    """A server's tcp address in between, which keeps what clients say first of all on each connection."""

    def __init__(self, server):
        self.target = server.address("tcp").removeprefix("tcp://").rsplit(":", 1)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.said = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection((self.target[0], int(self.target[1])))
                self.said.append(bytearray())
                threading.Thread(target=self._pass, args=(client, server, self.said[-1]), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, None), daemon=True).start()

    @staticmethod
    def _pass(source, target, kept):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if kept is not None and len(kept) < RECORD_MAX:
                    kept.extend(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def frames(said):
    found, at = [], 0
    while at + HEADER <= len(said):
        length = struct.unpack_from("<I", said, at)[0]
        if length < HEADER or at + length > len(said):
            break
        if struct.unpack_from("<H", said, at + 4)[0] != FENCE:
            found.append(bytes(said[at:at + length]))
        at += length
    return found


def sessions(server):
    """What the programs say, frame by frame."""
    recorder = Recorder(server)
    for name in PROGRAMS:
        done = t.towline_run(recorder.address, [t.BUILD / "tests" / "api" / f"api_{name}"], 120 * t.SLOW, {"TOWLINE_LANES": "1"})
        t.check(done.returncode == 0, f"{name}: {done.stdout}{done.stderr}")
    found = [said for said in map(frames, recorder.said) if said and struct.unpack_from("<H", said[0], 4)[0] == raw.HELLO]
    t.check(len(found) >= len(PROGRAMS) and sum(map(len, found)) > 1000, f"too little was said: {list(map(len, found))}")
    return found


def mutant(chance, frame, words):
    """A frame with one mistake."""
    made, kind = bytearray(frame), chance.randrange(8)
    if len(frame) == HEADER or kind == 0:  # its context, or whether somebody waits
        struct.pack_into("<I", made, chance.choice((8, 12)), chance.choice((0, 1, 2, 3, 0xFFFFFFFF, chance.getrandbits(32))))
        return bytes(made)
    body = min(len(frame) - HEADER, 512)
    if kind <= 3:  # a word that is none of its own
        at = HEADER + 8 * chance.randrange(body // 8)
        made[at:at + 8] = chance.choice(words) if chance.random() < 0.5 else struct.pack("<Q", chance.choice(NUMBERS))
    elif kind == 4:
        at = HEADER + 4 * chance.randrange(body // 4)
        struct.pack_into("<I", made, at, chance.choice((0, 1, 2, 3, 16, 0x7FFFFFFF, 0xFFFFFFFF, chance.randrange(1000))))
    elif kind == 5:
        made[chance.randrange(HEADER, HEADER + body)] ^= 1 << chance.randrange(8)
    elif kind == 6:  # too short, or too long
        del made[HEADER + 8 * chance.randrange((len(frame) - HEADER) // 8):]
    else:
        made += bytes(8 * chance.randrange(1, 5))
    struct.pack_into("<I", made, 0, len(made))
    return bytes(made)


def with_mistakes(chance, said, words):
    said = said[:chance.choice((50, 200, 1000))]
    rate = chance.choice((1, 2, 5, 20)) / max(len(said), 20)
    made = [said[0]]
    for frame in said[1:]:
        draw = chance.random() / rate
        if draw < 1:
            made.append(mutant(chance, frame, words))
        elif draw >= 1.3:  # else it is left out
            made.append(frame)
            if draw < 1.5:
                made.append(frame)
            elif draw < 1.7:
                made.append(chance.choice(said[1:]))
    return made


class Speaker:
    """Says frames as a program does, which waits for a reply before it goes on. It leaves when there is none for a while."""

    PATIENCE = 0.2

    def __init__(self, server):
        self.line = socket.socket(socket.AF_UNIX)
        self.line.settimeout(20 * t.SLOW)
        self.line.connect(str(server.socket))
        self.answered, self.changed, self.over = set(), threading.Condition(), False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        data = b""
        with contextlib.suppress(OSError):
            while more := self.line.recv(1 << 16):
                data += more
                while len(data) >= HEADER and len(data) >= (length := struct.unpack_from("<I", data)[0]) >= HEADER:
                    kind, seq = struct.unpack_from("<H", data, 4)[0], struct.unpack_from("<I", data, 12)[0]
                    data = data[length:]
                    if kind == raw.REPLY:
                        with self.changed:
                            self.answered.add(seq)
                            self.changed.notify_all()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def say(self, said, pause):
        with self.line, contextlib.suppress(OSError):
            for frame in said:
                self.line.sendall(frame)
                if len(frame) < HEADER:
                    break
                kind, seq = struct.unpack_from("<H", frame, 4)[0], struct.unpack_from("<I", frame, 12)[0]
                if kind < raw.HELLO and seq != 0:
                    with self.changed:
                        if not self.changed.wait_for(lambda: self.over or seq in self.answered, self.PATIENCE * t.SLOW):
                            break
            time.sleep(pause)
            self.line.shutdown(socket.SHUT_RDWR)


def say_all(server, seeds):
    """Says one session with mistakes for each of the seeds; how many."""
    spoken = sessions(server)
    words = sorted({frame[at:at + 8] for said in spoken for frame in said[:400] for at in range(HEADER, min(len(frame), 400) - 7, 8)})
    count = 0
    for seed in seeds:
        chance = random.Random(seed)
        seen = len(server.log())
        with contextlib.suppress(ConnectionError):
            Speaker(server).say(with_mistakes(chance, chance.choice(spoken), words), chance.choice((0, 0, 0.02, 0.1)))
        t.check(not re.search("ended by signal|Sanitizer|runtime error", server.log()[seen:]), f"seed {seed}: {server.log()[seen:]}")
        count += 1
    # Their workers end, however they left them; and others are served.
    t.wait_until(lambda: not server.status()["sessions"], 20, "all sessions have ended")
    with raw.Client(server).begin() as client:
        client.alloc(4096)
    log = server.log()
    t.check(not re.search("ended by signal|Sanitizer|runtime error", log), log)
    return count


@t.test(240, trees=("plain", "asan"))
def sessions_with_mistakes_end_and_nothing_else_happens():
    with t.Server(BARE) as server:
        t.equal(say_all(server, range(MUTANTS)), MUTANTS, "sessions with mistakes")
        ends = re.findall(r"the session of \S+ ends: (.*)", server.log())
        t.check(ends.count("Protocol error") > MUTANTS // 10 and ends.count("the client left") > MUTANTS // 10, f"the ends: {ends}")


# ---- every byte of a session ----

PARTS, PART_S = 8, 25 if t.LONG else 5  # CI draws some of the parts; a part ends after so many seconds
PATIENCE = 0.02  # a frame that is damaged may never be answered
SESSION = pathlib.Path(__file__).resolve().parent / "helpers" / "session.c"


def recorded(server):
    """What helpers/session.c says to a server that knows its code, as it does when all is said again."""
    recorder = Recorder(server)
    program = t.build_c(SESSION, ["-lcuda"])
    # Whose code it is, by the tenant: the recorder's programs are another one than who says it again.
    for address in (server.address(), recorder.address, recorder.address):
        done = t.towline_run(address, [program], env={"TOWLINE_LANES": "1"})
        t.equal(done.stdout.strip(), "OK", done.stderr)
    return [said for said in map(frames, recorder.said) if said and struct.unpack_from("<H", said[0], 4)[0] == raw.HELLO][-1]


def damaged(said, number, at, way):
    """The session up to a frame that is cut at a byte, or all of it with a byte flipped."""
    frame = said[number]
    if way == "cut":
        return [*said[:number], frame[:at]] if at else said[:number]
    return [*said[:number], frame[:at] + bytes([frame[at] ^ 0xFF]) + frame[at + 1:], *said[number + 1:]]


def commit_seed():
    """Another number for each commit; 0 where there is no history."""
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(t.ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(done.stdout.strip()[:8], 16) if done.returncode == 0 else 0


def say_damaged(part, parts=PARTS, seconds=PART_S):
    """A part of: every message of a session cut at each byte, and with each byte flipped."""
    with t.Server(BARE) as server:
        said = recorded(server)
        seen = len(server.log())
        Speaker(server).say(said, 0)
        t.wait_until(lambda: not server.status()["sessions"], 20, "the session has ended")
        t.check("broke the protocol" not in server.log()[seen:], f"undamaged: {server.log()[seen:]}")
        cases = [(number, at, way) for number, frame in enumerate(said) for at in range(len(frame)) for way in ("cut", "flip")]
        random.Random(commit_seed()).shuffle(cases)
        cases, count, end = cases[part::parts], 0, time.monotonic() + seconds
        for case in cases:
            if time.monotonic() > end:
                break
            seen = len(server.log())
            with contextlib.suppress(ConnectionError):
                speaker = Speaker(server)
                speaker.PATIENCE = PATIENCE
                speaker.say(damaged(said, *case), 0)
            count += 1
            log = server.log()[seen:]
            t.check(not re.search("ended by signal|Sanitizer|runtime error", log), f"frame, byte, way: {case}\n{log}")
        t.wait_until(lambda: not server.status()["sessions"], 20, "all sessions have ended")
        done = t.towline_run(server.address(), [t.build_c(SESSION, ["-lcuda"])])
        t.equal(done.stdout.strip(), "OK", f"the next program: {done.stderr}")
        t.check(not re.search("ended by signal|Sanitizer|runtime error", server.log()), server.log()[-6000:])
        print(f"{count} of the {len(cases)} of this part; the session has {len(said)} messages of {sum(map(len, said))} bytes")


for index in range(PARTS):
    t.test(120, trees=("asan",), name=f"every_byte_damaged_{index}", matrix="every_byte_to_a_server")(lambda part=index: say_damaged(part))


def search(seconds, seed):
    end = time.monotonic() + seconds

    def seeds():
        number = seed
        while time.monotonic() < end:
            yield number
            number += 1

    with t.Server(BARE) as server:
        print(f"{say_all(server, seeds())} sessions from seed {seed} on")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "bytes":
        say_damaged(0, 1, float(sys.argv[2]))
    elif len(sys.argv) > 2 and sys.argv[1] == "search":
        search(float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time()))
    else:
        t.main()
