#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Descriptors and handles that programs export: who may import them, and that none is left when nobody can use it any more."""

import os
import pathlib
import signal
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402
import rawclient as raw  # noqa: E402

PROGRAM = t.BUILD / "tests" / "api" / "api_shareable"
BOTH = ("plain", "asan")
FORGET = 0xF015
OPERATING_SYSTEM, NOT_SUPPORTED, UNKNOWN = 304, 801, 999
SIZE = 2 << 20


def memfds(pid, name):
    """How many descriptors of such memory files a process has."""
    count = 0
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += os.readlink(entry).startswith(f"/memfd:towline-{name}")
        except FileNotFoundError:
            pass
    return count


def kept(server):
    return memfds(server.listener, "shareable")


def create(client):
    prop = struct.pack("<IIIIQQ", 1, 1, 1, 0, 0, 0)  # pinned, POSIX descriptors, device 0
    result, body = client.call("cuMemCreate", struct.pack("<QQ", SIZE, 0) + prop)
    t.equal(result, 0, "the result of cuMemCreate")
    return struct.unpack_from("<Q", body)[0]


def export(client, memory):
    result, body = client.call("cuMemExportToShareableHandle", struct.pack("<Q", memory))
    t.equal(result, 0, "the result of an export")
    return body[:16]


def imports(client, token, function="cuMemImportFromShareableHandle"):
    """The result, and the handle."""
    result, body = client.call(function, token)
    return result, struct.unpack_from("<Q", body)[0] if result == 0 else None


def forget(client, token):
    client.socket.sendall(raw.frame(FORGET, token))


@t.test(trees=BOTH)
def a_token_is_good_for_who_has_it_while_its_session_lasts():
    with t.Server(*t.SEEN) as server, t.Server(*t.SEEN) as elsewhere:
        with raw.Client(server).begin() as ann, raw.Client(server).begin() as bob, \
                raw.Client(elsewhere).begin() as stranger:
            memory = create(ann)
            tokens = [export(ann, memory) for _ in range(20)]
            t.equal(len(set(tokens)), 20, "different tokens")
            t.equal(kept(server), 20, "descriptors that the listener keeps")
            t.equal(imports(stranger, tokens[0])[0], UNKNOWN, "a token of another server")
            t.equal(imports(bob, tokens[0], "cuMemPoolImportFromShareableHandle")[0], NOT_SUPPORTED, "memory as a pool")
            t.equal(imports(bob, bytes(16))[0], UNKNOWN, "a token that is none")
            t.equal(imports(bob, bytes([tokens[0][0] ^ 1]) + tokens[0][1:])[0], UNKNOWN, "a wrong token")
            result, handle = imports(bob, tokens[0])
            t.equal(result, 0, "the result of an import")
            forget(bob, tokens[1])  # which it has not exported
            t.equal(imports(bob, tokens[1])[0], 0, "an import after a stranger's word")
            for token in tokens[2:]:
                forget(ann, token)
            forget(ann, tokens[2])
            t.equal(imports(ann, tokens[2])[0], UNKNOWN, "what was forgotten")
            t.equal(kept(server), 2, "descriptors that the listener keeps")
            ann.socket.close()  # as kill -9 of its program does
            t.wait_until(lambda: kept(server) == 0, 5, "what a session has exported ends with it")
            t.equal(imports(bob, tokens[0])[0], UNKNOWN, "a token of a session that has ended")
            # What was imported before is bob's own.
            t.equal(bob.call("cuMemGetAllocationPropertiesFromHandle", struct.pack("<Q", handle))[0], 0, "its properties")
            worker = next(s["worker_pid"] for s in server.status()["sessions"])
            t.equal(memfds(worker, "shareable"), 2, "descriptors of what bob has imported")
            for memory in (handle, handle):
                bob.call("cuMemRelease", struct.pack("<Q", memory))
            t.equal(memfds(worker, "shareable"), 1, "descriptors after one was released")


@t.test(trees=BOTH)
def a_pool_that_is_destroyed_leaves_nothing_open():
    with t.Server(*t.SEEN) as server, raw.Client(server).begin() as ann, raw.Client(server).begin() as bob:
        workers = [s["worker_pid"] for s in server.status()["sessions"]]
        pool = raw.handle("MEMORYPOOL", 1)
        props = struct.pack("<IIIIQQ56x", 1, 1, 1, 0, 0, 0)  # pinned, POSIX descriptors, device 0
        t.equal(ann.call("cuMemPoolCreate", struct.pack("<Q", pool) + props)[0], 0, "the result of cuMemPoolCreate")
        result, body = ann.call("cuMemPoolExportToShareableHandle", struct.pack("<Q", pool))
        t.equal(result, 0, "the result of an export")
        token = body[:16]
        t.equal(imports(bob, token)[0], NOT_SUPPORTED, "a pool as memory")
        for _ in range(3):
            result, imported = imports(bob, token, "cuMemPoolImportFromShareableHandle")
            t.equal(result, 0, "the result of an import")
            t.equal(bob.call("cuMemPoolDestroy", struct.pack("<Q", imported))[0], 0, "the result of cuMemPoolDestroy")
        t.equal(ann.call("cuMemPoolDestroy", struct.pack("<Q", pool))[0], 0, "the result of cuMemPoolDestroy")
        forget(ann, token)
        ann.call("cuCtxSynchronize")
        t.equal([memfds(pid, "shareable") for pid in (server.listener, *workers)], [0, 0, 0], "descriptors that are left")


@t.test(trees=BOTH)
def a_frame_that_is_cut_ends_the_session_alone():
    with t.Server(*t.SEEN) as server, raw.Client(server).begin() as ann, raw.Client(server).begin() as bob:
        token = export(ann, create(ann))
        bob.socket.sendall(raw.frame(FORGET, token[:8]))
        t.check(bob.ended(), "the line is closed")
        with raw.Client(server).begin() as carl:
            t.equal(imports(carl, token)[0], 0, "an import")


@t.test(trees=BOTH)
def exports_run_out_for_their_session_and_the_server_goes_on():
    limit = 200
    with t.Server(*t.SEEN, files=limit) as server, raw.Client(server).begin() as ann:
        memory = create(ann)
        tokens = [export(ann, memory) for _ in range(limit // 2)]
        for _ in range(3):
            result, _ = ann.call("cuMemExportToShareableHandle", struct.pack("<Q", memory))
            t.equal(result, OPERATING_SYSTEM, "one more export")
        with raw.Client(server).begin() as bob:
            t.equal(imports(bob, tokens[-1])[0], 0, "an import")
        forget(ann, tokens[0])
        export(ann, memory)


@t.test(trees=BOTH)
def descriptors_that_programs_close_are_closed_here_too():
    for kind in ("unix", "tcp", "shm"):
        with t.Server(*t.SEEN) as server:
            program = subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(kind), "--", str(PROGRAM), "hold"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                # 300 were exported and closed; 20 more are open, of memory that was released.
                t.equal(program.stdout.readline(), "holds 20\n", "the program's word")
                t.equal(kept(server), 20, "descriptors that the listener keeps")
                t.equal(memfds(program.pid, "handle"), 40, "descriptors that the program has, and those it watches by")
                program.stdin.write("x")
                program.stdin.flush()
                t.equal(program.stdout.readline(), "holds 5\n", "the program's word")
                t.equal(kept(server), 5, "descriptors that the listener keeps")
                t.equal(memfds(program.pid, "handle"), 10, "descriptors that the program has, and those it watches by")
            finally:
                program.send_signal(signal.SIGKILL)
                program.wait()
            t.wait_until(lambda: kept(server) == 0, 5, "what a killed program has exported is closed")


# ---- handles of cuIpc ----

INVALID_VALUE, MAP_FAILED = 1, 205
INTERPROCESS, DISABLE_TIMING = 4, 2


def ipc_handle(client, function, what):
    result, body = client.call(function, struct.pack("<Q", what))
    t.equal((result, len(body)), (0, 64), f"{function}: the result, and the size of a handle")
    return body


def open_memory(client, handle):
    return client.call("cuIpcOpenMemHandle_v2", handle + struct.pack("<II", 1, 0))[0]


def open_event(client, handle):
    return client.call("cuIpcOpenEventHandle", handle)[0]


@t.test(60, trees=BOTH)
def handles_of_cuipc_are_opened_by_the_same_peer_only():
    """NVIDIA's driver does not ask who opens one; so the listener does."""
    with t.Server() as server, raw.Client(server, source="127.0.0.1").begin() as friend, \
            raw.Client(server, source="127.0.0.2").begin() as stranger, raw.Client(server).begin() as user:
        with raw.Client(server, source="127.0.0.1").begin() as owner:
            memory, event = owner.alloc(SIZE), raw.handle("EVENT", 1)
            owner.send("cuEventCreate", struct.pack("<QI", event, INTERPROCESS | DISABLE_TIMING))
            handle = ipc_handle(owner, "cuIpcGetMemHandle", memory)
            shared = ipc_handle(owner, "cuIpcGetEventHandle", event)
            t.equal(handle, ipc_handle(owner, "cuIpcGetMemHandle", memory), "a handle that was asked for again")
            for name, client, result in (("friend", friend, 0), ("stranger", stranger, MAP_FAILED), ("user", user, MAP_FAILED)):
                t.equal((open_memory(client, handle), open_event(client, shared)), (result, result), f"what the {name} gets")
            # Tokens are not guessed, and one is good for what it was made for.
            changed = bytearray(handle)
            changed[8] ^= 1
            t.equal(open_memory(friend, bytes(changed)), MAP_FAILED, "another token")
            t.equal(open_memory(friend, bytes(64)), INVALID_VALUE, "bytes that are no handle")
            t.equal((open_memory(friend, shared), open_event(friend, handle)), (INVALID_VALUE, INVALID_VALUE), "the wrong kind")
        t.wait_until(lambda: open_memory(friend, handle) == MAP_FAILED, 20, "a handle goes with its session")
        t.wait_until(lambda: "a handle of cuIpc was not opened" in server.log(), 20, "the log says why")


if __name__ == "__main__":
    t.main()
