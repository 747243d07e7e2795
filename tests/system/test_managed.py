#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Large managed memory: little of it used is little moved, nothing is compared at launches, a lost server leaves nobody
waiting; and what a client may ask of the worker's."""

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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

PROGRAM = t.BUILD / "tests" / "api" / "api_managed"
HELPERS = t.ROOT / "tests" / "system" / "helpers"
NOTICE, MIRROR, SIDE, FETCH = 0xF00A, 0xF00E, 0xF010, 0xF013
DATA_FAILED = 16


def run(kind, what, env=None):
    """Milliseconds that the program took for its launches, and what TOWLINE_STATS says."""
    with t.Server() as server, tempfile.NamedTemporaryFile(suffix=".json") as stats:
        done = t.towline_run(server.address(kind), [PROGRAM, *what], 60 * t.SLOW,
                             env={"TOWLINE_STATS": stats.name, **(env or {})})
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), done.stdout + done.stderr + server.log()[-2000:])
        took = re.search(r"^(\d+) ms$", done.stdout, re.M)
        return int(took[1]) if took else None, json.loads(pathlib.Path(stats.name).read_text())


def little(kind, what="little"):
    """200 times a word is written on both sides, in 256 MiB: a block of 16 KiB comes each time, some bytes go."""
    t.must_watch()
    took, counts = run(kind, [what])
    t.check(200 * (16 << 10) <= counts["bytes_in"] < 230 * (16 << 10), f"{counts['bytes_in']} bytes came")
    t.check(counts["bytes_out"] < 400_000, f"{counts['bytes_out']} bytes went")
    t.check(took < 4000 * t.SLOW, f"200 launches and synchronisations took {took} ms")


def whole_lines(kind):
    """A byte of each line of 8 MiB is written three times, while the device has nothing to do: lines go as they are, and not
    with a mask of 8 bytes for each, which the CPU would have to look at."""
    t.must_watch()
    _, counts = run(kind, ["lines"])
    t.check(32 << 20 <= counts["bytes_out"] < 33 << 20, f"{counts['bytes_out']} bytes went; with masks it is 35 MiB")


def many_launches(kind):
    """The host wrote all of it once: launches later do not pay for that."""
    t.must_watch()
    took, _ = run(kind, ["many"])
    t.check(took < 3000 * t.SLOW, f"200 launches took {took} ms; they take 100, and 6,000 where each looks at all of it")


for _kind in ("unix", "tcp", "shm"):
    t.test(name=f"little_of_much_is_moved_{_kind}")(lambda kind=_kind: little(kind))
    t.test(name=f"launches_compare_nothing_old_{_kind}")(lambda kind=_kind: many_launches(kind))
    t.test(name=f"whole_lines_go_while_the_device_is_idle_{_kind}")(lambda kind=_kind: whole_lines(kind))
    t.test(name=f"watched_{_kind}", matrix="watched", trees=("plain", "asan"))(lambda kind=_kind: run(kind, []))
# A __managed__ variable of 6 MiB and some bytes, which begins and ends on no page's boundary.
t.test(name="little_of_a_variable_is_moved")(lambda: little("tcp", "variable"))
t.test(120, name="touched_tcp")(lambda: (t.must_watch(), run("tcp", [], {"TOWLINE_MANAGED": "touch"})))
t.test(120, name="tracked_tcp")(lambda: run("tcp", [], {"TOWLINE_MANAGED": "track"}))
t.test(120, name="compared_tcp")(lambda: run("tcp", [], {"TOWLINE_MANAGED": "compare"}))


def is_stopped(pid):
    stats = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def lost(kind):
    """The worker stops; the program waits for a block of it; the worker is killed."""
    t.must_watch()
    with t.Server() as server:
        command = [t.TOWLINE, "run", "-s", server.address(kind), "--", PROGRAM, "lost"]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            t.equal(program.stdout.readline(), "ready\n", "the program's first line")
            worker = server.status()["sessions"][0]["worker_pid"]
            os.kill(worker, signal.SIGSTOP)
            t.wait_until(lambda: is_stopped(worker), 10, "every thread of the worker stands still")
            program.stdin.write("\n")
            program.stdin.flush()
            waits = pathlib.Path(f"/proc/{program.pid}/stack") if os.geteuid() == 0 else None
            if waits and waits.exists():
                t.wait_until(lambda: "handle_userfault" in waits.read_text(), 10, "the program waits for its memory")
            os.kill(worker, signal.SIGKILL)
            out, err = program.communicate(timeout=40 * t.SLOW)
        finally:
            program.kill()
            program.communicate()
        t.equal(program.returncode, 0, f"the program's end: {out}{err}")
        t.equal(out, "found 0, then 46\nkept 7\n", "what it found")  # CUDA_ERROR_DEVICE_UNAVAILABLE


for _kind in ("unix", "tcp", "shm"):
    t.test(name=f"lost_during_a_fault_{_kind}")(lambda kind=_kind: lost(kind))


class Side(raw.Client):
    """A session's side line."""

    def __init__(self, server, client):
        client.socket.sendall(raw.frame(SIDE))
        kind, body = 0, b""
        while kind != NOTICE or struct.unpack_from("<I", body)[0] != 6:
            kind, _, _, body = client.receive()
        key = struct.unpack_from("<QQ", body, 8)
        session = server.status()["sessions"][0]["id"]
        super().__init__(server, greet=False)
        self.socket.sendall(raw.frame(raw.LANE, struct.pack("<4sIQQQ", b"TOWL", 0xFFFFFFFF, session, *key), 0))
        t.equal(self.receive()[0], raw.LANE, "the answer to the side line")

    def fetch(self, address, size):
        """The bytes; None if the worker has none there."""
        self.socket.sendall(raw.frame(FETCH, struct.pack("<QQ", address, size), 0))
        found = b""
        while True:
            kind, _, _, body = self.receive()
            t.equal(kind, raw.DATA, "what a FETCH is answered with")
            transfer, flags, offset = struct.unpack_from("<IIQ", body)
            if flags & DATA_FAILED:
                return None
            t.equal((transfer, offset), (0, len(found)), "the transfer and the offset of its bytes")
            found += body[16:len(body) - flags % 8]
            if len(found) >= size:
                return found


def managed(client, size, watched=1):
    result, body = client.call("cuMemAllocManaged", struct.pack("<QII", size, 1, watched))
    t.equal(result, 0, "the result of cuMemAllocManaged")
    return struct.unpack_from("<Q", body)[0]


@t.test(trees=("plain", "asan"))
def only_managed_memory_is_given_out():
    with t.Server() as server, raw.Client(server).begin() as client, Side(server, client) as side:
        size = 8 << 20
        base = managed(client, size)
        device = client.alloc(1 << 20)
        t.equal(client.call("cuMemsetD8Async", struct.pack("<QQQI", base, size, 0, 7))[0], 0, "the fill's result")
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
        t.check(side.fetch(base, 3 << 20) == bytes([7]) * (3 << 20), "3 MiB of it")
        t.equal(side.fetch(base + size - 1, 1), b"\7", "the last byte")
        # Changes that go before are there.
        side.socket.sendall(raw.frame(MIRROR, struct.pack("<QII", base + 64, 1, 1) + bytes(64), 0))
        t.equal(side.fetch(base + 63, 66), b"\7" + bytes(64) + b"\7", "a line that was changed")
        for address, length, what in ((base + size - 1, 2, "what goes beyond its end"), (base - 1, 2, "what begins before"),
                                      (base, size // 2, "all there may be"), (device, 64, "device memory"), (0, 64, "nothing"),
                                      (2**64 - 8, 64, "the end of all addresses")):
            got = side.fetch(address, length)
            t.equal(got is None, length != size // 2, what)
        client.call("cuMemFree_v2", struct.pack("<Q", base))  # and not a word of the mirror
        t.equal(side.fetch(base, 64), None, "memory that was freed")
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the session goes on")


@t.test(trees=("plain", "asan"))
def what_is_watched_is_not_sent():
    with t.Server() as server, raw.Client(server).begin() as client:
        for watched in (0, 1):
            base = managed(client, 8 << 20, watched)
            client.send("cuMemsetD8Async", struct.pack("<QQQI", base, 8 << 20, 0, 7))
            client.seq += 1
            client.socket.sendall(raw.frame(raw.FUNCTIONS["cuCtxSynchronize"], b"", 1, 1, client.seq))
            kinds = [client.receive()[0]]
            while kinds[-1] != raw.REPLY:
                kinds.append(client.receive()[0])
            t.equal(MIRROR in kinds, not watched, "whether changes came unasked")


def fetch_breaks(size, where):
    with t.Server() as server, raw.Client(server).begin() as client:
        base = managed(client, 8 << 20)
        with Side(server, client) as side:
            line = side if where == "side" else client
            line.socket.sendall(raw.frame(FETCH, struct.pack("<QQ", base, size), 0))
            t.check(client.ended(), "the session goes on")


for _size, _where, _name in ((0, "side", "of_nothing"), ((4 << 20) + 1, "side", "of_too_much"), (64, "main", "on_the_own_line")):
    t.test(trees=("plain", "asan"), name=f"a_fetch_{_name}_ends_the_session")(
        lambda size=_size, where=_where: fetch_breaks(size, where))


@t.test()
def nobody_reads_what_was_fetched():
    """The session ends all the same when its client goes."""
    with t.Server() as server, raw.Client(server).begin() as client:
        base = managed(client, 8 << 20)
        with Side(server, client) as side:
            worker = server.status()["sessions"][0]["worker_pid"]
            side.socket.settimeout(1)
            try:
                for _ in range(100_000):
                    side.socket.sendall(raw.frame(FETCH, struct.pack("<QQ", base, 4 << 20), 0))
            except (TimeoutError, socket.timeout):
                pass
            t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
            client.socket.close()
            t.wait_until(lambda: t.gone(worker), 5, "the worker has ended")


def copies_elsewhere(kind):
    """What the program says of its copies from the address of the worker's heap."""
    program = t.build_c(HELPERS / "elsewhere.c", ["-lcuda"])
    with t.Server(*t.SEEN) as server:
        env = t.clean_environment(TOWLINE_SERVER=server.address(kind), TOWLINE_TRANSPORT=kind if kind == "unix" else "auto",
                                  LD_LIBRARY_PATH=str(t.LIBCUDA.parent))
        with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
            t.equal(process.stdout.readline(), "ready\n", "what it says first")
            worker = server.status()["sessions"][0]["worker_pid"]
            maps = pathlib.Path(f"/proc/{worker}/maps").read_text().splitlines()
            heap = next(line for line in maps if line.endswith("[heap]"))
            return process.communicate(heap.split("-")[0] + "\n", 40 * t.SLOW)[0]


@t.test(60)
def copies_behind_functions_take_what_they_wrote_where_the_worker_has_no_room():
    """Page-locked memory at an address where the worker has its own heap cannot be mirrored there."""
    for kind in ("unix", "tcp"):
        # By chance the program has something there itself: the next one will not.
        found = next((out for out in (copies_elsewhere(kind) for _ in range(10)) if out != "taken\n"), "taken ten times")
        t.equal(found, "rows 0\nall 0\n", f"what arrived wrong over {kind}")


if __name__ == "__main__":
    t.main()
