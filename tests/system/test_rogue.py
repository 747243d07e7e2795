#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that do what no server does: the client loses them, and neither writes nor runs what it should not.

    test_rogue.py search SECONDS [SEED]    tries changes at random for so long; TOWLINE_BUILD names the build
    test_rogue.py memory SECONDS [SEED]    the same over shared memory
    test_rogue.py bytes SECONDS            damages every byte of a session's answers, or as many as it can in that time

The test of changes at random has a seed that is made of the commit's name, so that every commit tries others.
"""

import collections
import contextlib
import json
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import ring  # noqa: E402
import rogue  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = pathlib.Path(__file__).resolve().parent / "helpers"
BOTH = ("plain", "asan")
KINDS = ("unix", "tcp")
# What a line that lasts sends has heads of its own (docs/wire/lasting.md), which the proxy knows nothing of.
BARE = "--reconnect=0"
NOT_OUTSTANDING = "it broke the protocol: it called a host function that is not outstanding"


def environment(address, **more):
    return t.clean_environment(**{"TOWLINE_SERVER": address, "TOWLINE_TRANSPORT": "unix", "LD_LIBRARY_PATH": str(t.LIBCUDA.parent), **more})


def victim(address, *args, env=None):
    """What helpers/victim.c says of its functions and its end, and what stands on stderr."""
    program = t.build_c(HELPERS / "victim.c", ["-lcuda"])
    done = t.run([program, *args], env=environment(address, **(env or {})))
    t.equal(done.returncode, 0, f"the exit code of victim {args}\n{done.stdout}{done.stderr}")
    return done.stdout.strip(), done.stderr


def callback(number):
    return raw.frame(rogue.CALLBACK, struct.pack("<QII", number, 0, 0), 0)


def number_of(frame):
    return struct.unpack_from("<Q", frame, 16)[0]


@t.test(120, trees=BOTH)
def a_host_function_is_run_once():
    def twice(frame, _):
        return [frame, frame] if rogue.kind_of(frame) == rogue.CALLBACK and number_of(frame) == 3 else [frame]
    with t.Server(BARE) as server:
        for kind in KINDS:
            with rogue.Rogue(server, kind, twice) as proxy:
                out, err = victim(proxy.address, "functions")
            t.check(out in ("ran 1 1 1; lost", "ran 1 1 0; lost"), f"{kind}: {out}")
            t.check(NOT_OUTSTANDING in err, f"{kind}: {err}")


@t.test(120, trees=BOTH)
def a_host_function_that_has_ended_is_not_run_again():
    """Its second turn comes later, when its number is not known any more."""
    def late(frame, _):
        if rogue.kind_of(frame) == rogue.CALLBACK:
            late.first = late.first or frame
        elif rogue.kind_of(frame) == rogue.REPLY and late.first:
            late.replies += 1
            if late.replies == 20:
                return [late.first, frame]
        return [frame]
    with t.Server(BARE) as server:
        for kind in KINDS:
            late.first, late.replies = None, 0
            with rogue.Rogue(server, kind, late) as proxy:
                out, err = victim(proxy.address, "functions")
            t.equal(out, "ran 1 1 1; lost", kind)
            t.check(NOT_OUTSTANDING in err, f"{kind}: {err}")


@t.test(120, trees=BOTH)
def a_number_that_was_never_given_runs_nothing():
    for number in (0, 4, 77, 1 << 63):
        def other(frame, _, number=number):
            return [callback(number)] if rogue.kind_of(frame) == rogue.CALLBACK else [frame]
        with t.Server(BARE) as server, rogue.Rogue(server, "unix", other) as proxy:
            out, err = victim(proxy.address, "functions")
            t.equal(out, "ran 0 0 0; lost", f"after a turn of function {number}")
            t.check(NOT_OUTSTANDING in err, err)


@t.test(120, trees=BOTH)
def a_function_of_another_server_is_not_run():
    kept = []

    def keep(frame, _):
        if rogue.kind_of(frame) == rogue.CALLBACK:
            kept.append(frame)
            return []
        return [frame]

    def give(frame, _):
        return [*kept[:1], frame] if rogue.kind_of(frame) == rogue.REPLY else [frame]
    with t.Server(BARE) as first, t.Server(BARE) as second, rogue.Rogue(first, "unix", keep) as one, \
            rogue.Rogue(second, "unix", give) as other:
        out, err = victim(f"{one.address},{other.address}", "other-link")
        t.equal(out, "ran 0 0 0; lost", "a function of the first server in the second one's hands")
        t.check(NOT_OUTSTANDING in err and other.address in err, err)


@t.test(120, trees=BOTH)
def a_graphs_function_runs_once_for_each_launch():
    """No more: it is told twice of each."""
    def twice(frame, _):
        return [frame, frame] if rogue.kind_of(frame) == rogue.CALLBACK else [frame]
    with t.Server(BARE) as server:
        for kind in KINDS:
            with rogue.Rogue(server, kind, twice) as proxy:
                out, err = victim(proxy.address, "graphs")
            t.check(int(out.split()[1]) <= 4 and out.endswith(" 0 0; lost"), f"{kind}: {out}")
            t.check(NOT_OUTSTANDING in err, f"{kind}: {err}")


@t.test(120, trees=BOTH)
def a_function_in_graphs_of_graphs_runs_as_often_as_it_is_there():
    with t.Server(BARE) as server:
        for kind in KINDS:
            t.equal(victim(server.address(kind), "nested"), ("ran 60 20 0; not lost", ""), kind)


class Withholding:
    """A server that says of copies that they are done, and sends their bytes later."""

    def __init__(self, server, kind):
        self.kept = []
        self.proxy = rogue.Rogue(server, kind, self.change)

    def change(self, frame, _):
        if rogue.kind_of(frame) == rogue.DATA:
            self.kept.append(frame)
            return []
        if rogue.kind_of(frame) == rogue.REPLY and self.kept:
            frames, self.kept = [frame, *self.kept], []
            return frames
        return [frame]


@t.test(120, trees=BOTH, waits=True)
def a_copy_is_not_done_before_its_bytes_have_come():
    with t.Server(BARE) as server:
        for kind in KINDS:
            for way in ("flat", "rows", "registered"):
                with Withholding(server, kind).proxy as proxy:
                    out, err = victim(proxy.address, way, env={"TOWLINE_LANES": "1"})
                t.equal(out, "failed; intact; lost", f"{kind}, {way}: {err}")
                t.check("it ended a copy without sending all its bytes" in err, f"{kind}, {way}: {err}")


class Naming:
    """A server that names managed memory where a file says, if there is one."""

    def __init__(self, server, folder):
        self.path, self.asked = pathlib.Path(folder, "wish"), set()
        self.proxy = rogue.Rogue(server, "unix", self.change, self.heard)

    def heard(self, frame, line):
        if rogue.kind_of(frame) == raw.FUNCTIONS["cuMemAllocManaged"]:
            self.asked.add((line, rogue.seq_of(frame)))

    def change(self, frame, line):
        if rogue.kind_of(frame) == rogue.REPLY and (line, rogue.seq_of(frame)) in self.asked and self.path.exists():
            frame = frame[:16] + struct.pack("<Q", int(self.path.read_text())) + frame[24:]
        return [frame]


@t.test(120, trees=BOTH)
def managed_memory_is_mapped_only_where_nothing_is():
    with t.Server(BARE) as server:
        for where, wanted in (("where the server says", "taken; intact"), ("end", "refused; intact"), ("wraps", "refused; intact"),
                              ("over", "refused; intact"), ("within", "refused; intact"), ("behind", "refused; intact")):
            with tempfile.TemporaryDirectory() as folder:
                naming = Naming(server, folder)
                with naming.proxy as proxy:
                    out, err = victim(proxy.address, "managed", where, naming.path)
            t.equal(out, wanted, f"{where}: {err}")
            t.equal("cannot be had here" in err, wanted.startswith("refused"), f"a sentence on {where} in {err!r}")


@t.test(120, trees=BOTH)
def managed_memory_is_not_mapped_where_another_server_has_addresses():
    with t.Server(BARE) as first, t.Server(BARE) as second, tempfile.TemporaryDirectory() as folder:
        naming = Naming(second, folder)
        with naming.proxy as proxy:
            out, err = victim(f"{first.address()},{proxy.address}", "managed", "other-link", naming.path)
        t.equal(out, "refused; intact", err)


class Random:
    """A server some of whose frames are changed, said again, or late. Each is of a length that is true, and none is left out:
    what is never answered is waited for."""

    def __init__(self, server, kind, seed, side=False):
        self.chance, self.old, self.kept, self.seen = random.Random(seed), collections.deque(maxlen=50), [], 0
        self.often, self.done = self.chance.choice((0.01, 0.05, 0.3)), []
        self.side = side  # only what comes on further connections, which is little
        self.ways = (self.flip, self.fill, self.again, self.older, self.longer if side else self.hold)
        self.often = 0.5 if side else self.often
        self.proxy = rogue.Rogue(server, kind, self.change)

    def flip(self, frame):
        changed = bytearray(frame)
        for _ in range(self.chance.choice((1, 1, 4))):
            changed[self.chance.randrange(8, min(len(frame), 64))] ^= 1 << self.chance.randrange(8)
        return [bytes(changed)]

    def fill(self, frame):
        size = min(len(frame) - 16, 64)
        return [frame[:16] + self.chance.randbytes(size) + frame[16 + size:]]

    def longer(self, frame):
        """Or shorter, as it says itself."""
        size = max(32, len(frame) + 8 * self.chance.choice((-4096, -1, 1, 512, 1 << 17)))
        return [struct.pack("<I", size) + frame[4:size] + bytes(max(0, size - len(frame)))]

    def again(self, frame):
        return [frame, frame]

    def older(self, frame):
        return [self.chance.choice(self.old or [frame]), frame]

    def hold(self, frame):
        if rogue.kind_of(frame) != rogue.DATA:
            return [frame]
        self.kept.append(frame)  # until a reply comes, as one does
        return []

    def change(self, frame, line):
        self.seen += 1
        if self.side != (line > 0) or self.seen < 4:  # a server that is none is no server
            return [frame]
        frames = [frame]
        if self.chance.random() < self.often:
            way = self.chance.choice(self.ways)
            self.done.append(way.__name__)
            frames = way(frame)
        self.old.append(frame)
        if rogue.kind_of(frame) == rogue.REPLY and self.kept:
            frames, self.kept = frames + self.kept, []
        return frames


def commit_seed():
    """Another number for each commit; 0 where there is no history."""
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(t.ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(done.stdout.strip()[:8], 16) << 16 if done.returncode == 0 else 0


class Welcome:
    """A server whose first answer is changed somewhere. No other is."""

    def __init__(self, server, kind, seed):
        self.chance, self.done = random.Random(seed), []
        self.proxy = rogue.Rogue(server, kind, self.change)

    def change(self, frame, line):
        if rogue.kind_of(frame) != raw.WELCOME or line > 0:
            return [frame]
        made = bytearray(frame)
        for _ in range(self.chance.choice((1, 1, 8, 64))):
            at = self.chance.randrange(16, len(made) if self.chance.random() < 0.5 else min(len(made), 400))
            self.done.append(at)
            if self.chance.random() < 0.5:
                made[at] ^= 1 << self.chance.randrange(8)
            else:
                made[at:at + 8] = struct.pack("<Q", self.chance.choice(ring.ODD))
        return [bytes(made[:len(frame)])]


WAITS_S = 2  # a server that owes an answer is waited for, for ever: then it hangs up


@contextlib.contextmanager
def hanging_up(proxy, seconds=WAITS_S * t.SLOW):
    timer = threading.Timer(seconds, proxy.hang_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def search(seed, sessions=None, seconds=None, makes=(Random,)):
    end, number, outcomes = time.monotonic() + (seconds or 0), 0, collections.Counter()
    with t.Server(BARE) as server:
        while number < sessions if sessions else time.monotonic() < end:
            wrong = makes[number // 2 % len(makes)](server, KINDS[number % 2], seed + number)
            with wrong.proxy as proxy, hanging_up(proxy):
                out, err = victim(proxy.address, "anything", env={"TOWLINE_LANES": "1"})
            t.check(out in ("intact; not too often", "no context"), f"seed {seed + number}, {KINDS[number % 2]}: {out}\n{wrong.done}\n{err}")
            outcomes["lost" if "is lost" in err else out] += 1
            number += 1
    print(f"{number} sessions from seed {seed} on: {dict(outcomes)}")


@t.test(240, trees=BOTH)
def changes_at_random_write_and_run_nothing():
    search(commit_seed(), sessions=8)


def changed_side(server, kind, seed):
    return Random(server, kind, seed, side=True)


@t.test(240, trees=BOTH, waits=True)
def answers_on_further_connections_write_nothing_else():
    """FETCH's, for managed memory that is touched."""
    search(commit_seed(), sessions=4, makes=(changed_side,))


@t.test(240, trees=BOTH)
def a_welcome_that_is_changed_does_no_harm():
    search(commit_seed(), sessions=8, makes=(Welcome,))


# ---- shared memory ----

MEMORY_KINDS = (("bytes",), ("position",), ("sleeps",), ("ended",), ("memory",), ("memory", "memory", "bytes", "sleeps"),
                ("bytes", "position", "sleeps", "ended", "memory"))


def over_memory(server, seed):
    """A program over memory that changes while it is read: how it ended."""
    chance = random.Random(seed)
    kinds = MEMORY_KINDS[seed % len(MEMORY_KINDS)]
    program = t.build_c(HELPERS / "victim.c", ["-lcuda"])
    with rogue.RogueMemory(server, chance, kinds) as wrong, hanging_up(wrong):
        done = t.run([program, "anything"], env=environment(wrong.address, TOWLINE_TRANSPORT="shm"))
    out = done.stdout.strip()
    t.check(done.returncode == 0 and out in ("intact; not too often", "no context"),
            f"seed {seed}, {kinds}, {wrong.done} writes: {done.returncode}, {out}\n{done.stderr}")
    return "lost" if "is lost" in done.stderr else out


def search_memory(seed, sessions=None, seconds=None):
    end, number, outcomes = time.monotonic() + (seconds or 0), 0, collections.Counter()
    with t.Server(BARE) as server:
        while number < sessions if sessions else time.monotonic() < end:
            outcomes[over_memory(server, seed + number)] += 1
            number += 1
        t.wait_until(lambda: not server.status()["sessions"], 20, "all sessions have ended")
    print(f"{number} sessions over shared memory from seed {seed} on: {dict(outcomes)}")


@t.test(240, trees=BOTH, waits=True)
def shared_memory_that_changes_writes_and_runs_nothing():
    search_memory(commit_seed(), sessions=len(MEMORY_KINDS))


# ---- answers that are made up ----

class Answering:
    """A server whose replies to one function are others. `made(reply)` gives a body, from that of the server."""

    def __init__(self, server, function, made):
        self.function, self.made, self.asked = raw.FUNCTIONS[function], made, set()
        self.proxy = rogue.Rogue(server, "unix", self.change, self.heard)

    def heard(self, frame, line):
        if rogue.kind_of(frame) == self.function:
            self.asked.add((line, rogue.seq_of(frame)))

    def change(self, frame, line):
        if rogue.kind_of(frame) != rogue.REPLY or (line, rogue.seq_of(frame)) not in self.asked:
            return [frame]
        return [raw.frame(rogue.REPLY, self.made(frame[16:]), 0, 0, rogue.seq_of(frame))]


@t.test(120, trees=BOTH)
def options_of_the_compiler_stay_the_programs():
    """A log is no longer than its room in the next call with the same options, and pointers are those that the program gave."""
    log = b"x" * 8192

    def every_option(_):
        fields = struct.pack("<IIQ", 0, len(log), 0) + log
        fields += b"".join(struct.pack("<IIQ", index, 0, value) for index, value in
                           ((1, 0xFFFFFFFF), (2, 0x4141414141414141), (3, 0x4242424242424242), (4, 1 << 15), (5, 7)))
        return struct.pack("<IIII", 0, 0, 6, 0) + fields + struct.pack("<iI", -1, 0)
    with t.Server(BARE) as server, Answering(server, "cuModuleLoadDataEx", every_option).proxy as proxy:
        out, err = victim(proxy.address, "options")
        t.equal(out, "intact; pointers stay", err)


def figures(frame, values):
    """A welcome whose snapshot has other values for attributes of devices."""
    made, at = bytearray(frame), frame.index(struct.pack("<II", 1, 1024))  # MAX_THREADS_PER_BLOCK is the first
    while (number := struct.unpack_from("<I", made, at)[0]) < 200 and (at == 0 or number >= 1):
        if number in values:
            struct.pack_into("<i", made, at + 4, values[number])
        following = struct.unpack_from("<I", made, at + 8)[0]
        if following <= number:
            break
        at += 8
    return bytes(made)


@t.test(120, trees=BOTH)
def figures_that_no_device_has_do_no_harm():
    warp, threads, processors, per_processor = 10, 1, 16, 39
    worst = (1 << 31) - 1
    with t.Server(BARE) as server:
        for values in ({warp: -1, threads: worst}, {warp: 1 << 30}, {warp: 1, threads: worst, processors: worst, per_processor: worst},
                       {warp: 0}, {threads: -worst, warp: -worst}, {processors: -1, per_processor: worst}):
            def change(frame, _, values=values):
                return [figures(frame, values) if rogue.kind_of(frame) == raw.WELCOME else frame]
            with rogue.Rogue(server, "unix", change) as proxy:
                t.equal(victim(proxy.address, "occupancy")[0], "answered", f"with {values}")


# ---- every byte of what a server says ----

PARTS, PART_S = 8, 25 if t.LONG else 5  # CI draws some of the parts; a part ends after so many seconds
UNCHECKED = raw.FUNCTIONS["cuModuleGetFunction"]  # the program's arguments are read as its reply says: docs/security.md


class Damaging:
    """A server of whose answers one is cut at a byte, or has it flipped. Without one: `sizes` are those of its answers."""

    def __init__(self, server, case=None):
        self.case, self.sizes, self.asked = case, [], set()
        self.proxy = rogue.Rogue(server, "unix", self.change, self.heard)

    def heard(self, frame, line):
        if rogue.kind_of(frame) == UNCHECKED:
            self.asked.add(rogue.seq_of(frame))

    def change(self, frame, line):
        if line > 0:
            return [frame]
        number, unchecked = len(self.sizes), rogue.kind_of(frame) == rogue.REPLY and rogue.seq_of(frame) in self.asked
        self.sizes.append(16 if unchecked else len(frame))
        if self.case is None or number < self.case[0] or self.case[1] >= len(frame):
            return [frame]
        _, at, way = self.case
        if number > self.case[0]:
            return [frame] if way == "flip" else []
        if way == "cut":
            threading.Timer(0.02, self.proxy.hang_up).start()
            return [frame[:at]]
        return [frame[:at] + bytes([frame[at] ^ 0xFF]) + frame[at + 1:]]


def hear_damaged(part, parts=PARTS, seconds=PART_S):
    """A part of: every answer of a session cut at each byte, and with each byte flipped."""
    program = t.build_c(HELPERS / "session.c", ["-lcuda"])
    with t.Server(BARE) as server:
        whole = Damaging(server)
        with whole.proxy as proxy:
            done = t.run([program], env=environment(proxy.address))
        t.equal(done.stdout.strip(), "OK", done.stderr)
        # A welcome is long: of each byte far behind its beginning one in 16 comes.
        cases = [(number, at, way) for number, size in enumerate(whole.sizes) for at in range(size) if at < 512 or at % 16 == 0
                 for way in ("cut", "flip")]
        random.Random(commit_seed()).shuffle(cases)
        cases, outcomes, end = cases[part::parts], collections.Counter(), time.monotonic() + seconds
        for case in cases:
            if time.monotonic() > end:
                break
            wrong = Damaging(server, case)
            with wrong.proxy as proxy, hanging_up(proxy, 1):
                done = t.run([program], env=environment(proxy.address))
            t.check(done.returncode in (0, 1), f"answer, byte, way: {case}: {done}")
            outcomes["OK" if done.returncode == 0 else "failed"] += 1
        print(f"{outcomes.total()} of the {len(cases)} of this part, {dict(outcomes)}; {len(whole.sizes)} answers of {sum(whole.sizes)} bytes")


for index in range(PARTS):
    t.test(120, trees=("asan",), name=f"every_byte_damaged_{index}", matrix="every_byte_to_a_client")(lambda part=index: hear_damaged(part))


# ---- reports ----

class Reporter:
    """Answers every question with the same bytes. Use with `with`."""

    def __init__(self, answer):
        self.answer = answer
        self.folder = tempfile.TemporaryDirectory(prefix="tow")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(f"{self.folder.name}/sock")
        self.socket.listen(64)
        self.address = f"unix://{self.folder.name}/sock"

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                with self.socket.accept()[0] as line, contextlib.suppress(OSError):
                    line.recv(4096)
                    line.sendall(self.answer)

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        rogue.Rogue.shut(self.socket)
        self.thread.join(20)
        self.socket.close()
        self.folder.cleanup()


def report(text):
    data = text if isinstance(text, bytes) else text.encode()
    return raw.frame(0xF00D, struct.pack("<II", raw.MAGIC, len(data)) + data, 0)


def devices_like(index, **more):
    return {"index": index, "name": "x" * 500, "uuid": "GPU-0", "pci": "ffffffff:ffffffff:ffffffff", "memory": 1e300, "cuda": -1e300,
            "capability": "99999999.-99999999", "peers": [1] * 100, "clock_khz": 1e19, **more}


HOSTILE_REPORTS = {
    "indexes beyond all": {"devices": [devices_like(i) for i in (0, 63, 64, -1, 2**31, 1e300, 1e999, "one")]},
    "more devices than there may be": {"devices": [devices_like(i) for i in range(500)]},
    "numbers beyond all": {"devices": [devices_like(0)], "gauges": {"running": 0, "devices": [{"uuid": "GPU-0", "temperature": 1e300, "serial": "y" * 5000}]},
                           "sessions": [{"gpu": 0, "client_pid": 1e300, "memory": -1e300, "client": "z" * 5000, "used": [1e300] * 100}] * 500,
                           "others": {"used": [1e999]}, "uptime_s": 1e300, "workers": {"busy": 1e300}},
    "other types": {"devices": {"a": 1, "b": [2]}, "gauges": [3], "sessions": "none", "workers": 4, "others": []},
    "no object": [1, 2, 3],
}
WITHOUT_DEVICES = ("no object",)  # NVML would wait for some


@t.test(120, trees=BOTH)
def reports_do_no_harm():
    program = t.build_c(HELPERS / "nvml_victim.c", ["-l:libnvidia-ml.so.1"])
    texts = {name: json.dumps(text).replace("Infinity", "1e999") for name, text in HOSTILE_REPORTS.items()}
    texts |= {"deep": "[" * 100000, "cut": '{"devices":[{"index":0', "long": '{"a":[' + "0," * 300000 + "0]}", "no text": b"\xff\x00" * 100}
    for name, text in texts.items():
        with Reporter(report(text)) as server:
            if name not in WITHOUT_DEVICES:
                done = t.run([program], env=environment(server.address))
                t.check(done.returncode == 0 and re.fullmatch("no devices|\\d+ devices; within", done.stdout.strip()), f"{name}: {done}")
                t.check(name != "indexes beyond all" or done.stdout.startswith("3 devices"), done.stdout)  # 0, 63, and "one", which is 0
            for command in (["status"], ["status", "--json"], ["devices"]):
                done = t.run([t.TOWLINE, *command, "-s", server.address])
                t.check(done.returncode in (0, 1), f"{name}, {command}: {done}")


@t.test(60)
def nothing_that_a_server_says_moves_the_cursor():
    evil = "\x1b[2J\x07\r"
    refusal = raw.frame(0xF002, struct.pack("<II", raw.MAGIC, 1) + raw.text(f"go away{evil}"), 0)
    for answer in (report('{"version":"%s","devices":[{"index":0,"name":"\\u001b[2J"}]}' % evil), refusal):
        with Reporter(answer) as server:
            for command in (["status"], ["status", "--json"], ["devices"], ["end", "1"]):
                done = t.run([t.TOWLINE, command[0], "-s", server.address, *command[1:]])
                said = (done.stdout + done.stderr).replace("\n", "")
                t.check(said.isprintable(), f"{command}: {said!r}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["bytes"]:
        hear_damaged(0, 1, float(sys.argv[2]))
    elif sys.argv[1:2] in (["search"], ["memory"]):
        seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.getrandbits(31)
        if sys.argv[1] == "search":
            search(seed, seconds=float(sys.argv[2]), makes=(Random, changed_side, Welcome))
        else:
            search_memory(seed, seconds=float(sys.argv[2]))
    else:
        t.main()
