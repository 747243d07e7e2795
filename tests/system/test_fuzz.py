#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of the table with arguments that are nearly right (tests/lib/sessions.py), and shared memory that changes
while it is read: the server may end such a session, and nothing else happens.

    test_fuzz.py search SECONDS [SEED [COMMANDS]]    goes on for so long, with other seeds than the test's
    test_fuzz.py ring SECONDS [SEED]                 the same over shared memory that changes
    test_fuzz.py one SEED [COMMANDS]                 one session, whose frames are kept
    test_fuzz.py replay FILE ...                     what was kept, said again

The test's seed is made of the commit's name, so that every commit tries others.
"""

import contextlib
import lzma
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import ring  # noqa: E402
import sessions  # noqa: E402
import towtest as t  # noqa: E402

CORPUS = t.ROOT / "tests" / "fuzz" / "corpus" / "sessions"
KEPT = t.BUILD / "fuzz"
BAD = re.compile(r"ended by signal|Sanitizer|runtime error|Assertion")
FLAGS = ("--soft-devices=2", "--soft-threads=2", "--max-sessions=8")


def commit_seed():
    """Another number for each commit; 0 where there is no history."""
    if not shutil.which("git"):
        return 0
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(t.ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(done.stdout.strip()[:8], 16) << 16 if done.returncode == 0 else 0


def keep(name, said):
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.xz").write_bytes(lzma.compress(b"".join(said)))
    return KEPT / f"{name}.xz"


def one(server, seed, commands, counts):
    """One session; how many frames it said. Its frames are kept if the worker did not survive it."""
    seen = len(server.log())
    session = sessions.Session(server, seed, counts)
    said = session.run(commands)
    log = server.log()[seen:]
    if BAD.search(log):
        raise AssertionError(f"seed {seed}, {commands} commands, kept in {keep(seed, session.said)}:\n{log[-6000:]}")
    return said


def settle(server):
    """Workers of sessions that were left end, and others are served."""
    t.wait_until(lambda: not server.status()["sessions"], 20, "all sessions have ended")
    with raw.Client(server).begin() as client:
        client.alloc(4096)
    t.check(not BAD.search(server.log()), server.log()[-6000:])


def coverage(counts):
    """What was reached, in words, and the names of what was not."""
    names = set(sessions.FUNCTIONS)
    good = {name for name in names if counts.get(name, (0, 0, 0))[0]}
    bad = {name for name in names if counts.get(name, (0, 0, 0))[1]}
    told = sum(count[0] + count[1] for count in counts.values())
    text = (f"{sum(map(sum, counts.values()))} commands, {told} of them answered; of {len(names)} handlers {len(good)} succeeded and "
            f"{len(bad)} failed at least once, {len(good | bad)} were reached")
    return text, names - good, names - (good | bad)


RING_KINDS = (("bytes",), ("bytes", "bytes", "bytes", "sleeps"), ("sleeps",), ("position",), ("ended",), ("reply",),
              ("bytes", "position", "sleeps", "ended", "reply"))


def one_ring(server, seed, commands, counts):
    """The same over shared memory, which somebody else writes to meanwhile."""
    seen, chance = len(server.log()), random.Random(seed)
    line = ring.Line(server)
    session = sessions.Session(server, seed, counts, line=line)
    kinds = chance.choice(RING_KINDS) if chance.random() < 0.8 else ()
    if kinds:
        line.scribbler(random.Random(seed + 1), kinds, chance.choice((0, 0.001, 0.02, 0.2)))
    said = session.run(commands)
    log = server.log()[seen:]
    if BAD.search(log):
        raise AssertionError(f"ring, seed {seed}, {commands} commands, {kinds}, kept in {keep(f'ring-{seed}', session.said)}:\n{log[-6000:]}")
    return said


def search(seconds, seed, commands=200, session=one):
    end, counts, said, number, harm = time.monotonic() + seconds, {}, 0, 0, []
    with t.Server(*FLAGS, memory="64M") as server:
        while time.monotonic() < end and len(harm) < 20:
            try:
                said += session(server, seed + number, commands, counts)
            except AssertionError as found:
                harm.append(str(found))
                print(found, flush=True)
            number += 1
        t.check(not harm, f"{len(harm)} of {number} sessions did harm: {harm[0] if harm else ''}")
        settle(server)
    text, no_success, unreached = coverage(counts)
    print(f"{number} sessions from seed {seed} on, {said} frames; {text}")
    return no_success, unreached


@t.test(60, trees=("asan",))
def every_command_with_arguments_that_are_nearly_right():
    seed = commit_seed()
    no_success, unreached = search(25, seed)
    print(f"seed {seed}; without a success: {' '.join(sorted(no_success))}")
    t.check(len(unreached) < len(sessions.FUNCTIONS) // 2, f"commands that were never answered: {' '.join(sorted(unreached))}")


@t.test(60, trees=("asan",))
def shared_memory_that_changes_while_it_is_read():
    seed = commit_seed()
    search(15, seed, 60, one_ring)
    print(f"seed {seed}")


def say_again(server, path):
    seen = len(server.log())
    with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
        line.settimeout(0.2 * t.SLOW)
        line.connect(str(server.socket))
        said, at, replies = lzma.decompress(path.read_bytes()), 0, b""
        # The hello is that of the build that said it: this one's instead.
        at = struct.unpack_from("<I", said)[0]
        line.sendall(raw.hello("again"))
        while at < len(said):
            length, kind, seq = *struct.unpack_from("<IH", said, at), struct.unpack_from("<I", said, at + 12)[0]
            line.sendall(said[at:at + length])
            at += length
            wanted = struct.pack("<I", seq)
            while kind < raw.HELLO and seq and wanted not in replies:  # about as a client does that waits
                with contextlib.suppress(TimeoutError):
                    replies = replies[-4096:] + (more := line.recv(1 << 16))
                    if more:
                        continue
                break
        line.shutdown(socket.SHUT_RDWR)
    t.check(not BAD.search(server.log()[seen:]), f"{path}: {server.log()[seen:][-6000:]}")


@t.test(120, trees=("plain", "asan"))
def sessions_that_once_did_harm():
    with t.Server(*FLAGS, memory="64M") as server:
        for path in sorted(CORPUS.glob("*.xz")):
            say_again(server, path)
        settle(server)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "search":
        print(*map(sorted, search(float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time()) << 8,
                                  int(sys.argv[4]) if len(sys.argv) > 4 else 200)), sep="\n")
    elif len(sys.argv) > 2 and sys.argv[1] == "ring":
        search(float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time()) << 8, 80, one_ring)
    elif len(sys.argv) > 2 and sys.argv[1] == "one":
        with t.Server(*FLAGS, memory="64M") as one_server:
            counted = {}
            made = sessions.Session(one_server, int(sys.argv[2]), counted)
            made.run(int(sys.argv[3]) if len(sys.argv) > 3 else 200)
            print(keep(sys.argv[2], made.said), coverage(counted)[0], one_server.log()[-3000:] if os.environ.get("SHOW") else "")
    elif len(sys.argv) > 2 and sys.argv[1] == "replay":
        with t.Server(*FLAGS, memory="64M") as one_server:
            for kept in sys.argv[2:]:
                say_again(one_server, pathlib.Path(kept))
    else:
        t.main()
