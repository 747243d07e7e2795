#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that do what no program does: they get an error or lose their session, and nobody else notices."""

import os
import pathlib
import random
import re
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
from rawclient import NO_OPTIONS, RAW, image_ref, kernel, library, with_image  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

ALL = ("plain", "asan", "tsan")
BOTH = ("plain", "asan")
BYE = 0xF009


@t.test(60, trees=BOTH, waits=True)
def workers_of_many_kinds_are_not_started_beyond_the_limit():
    with t.Server("--max-sessions=3") as server:
        most, clients = 0, []
        for slot in range(1, 16):
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(server.socket))
            client.sendall(raw.hello(slot=slot))
            clients.append(client)
        start = time.monotonic()
        while time.monotonic() - start < 2 * t.SLOW:
            most = max(most, len(server.workers()))
            time.sleep(0.01)
        for client in clients:
            client.close()
        t.check(most <= 5, f"there were {most} workers for 3 sessions")
        t.wait_until(lambda: len(server.workers()) == 1, 5, "the other workers have ended")


def knock(server, data, more=b"", seconds=20):
    """Says something; the answer and how many descriptors came with it. An empty answer: the line was closed."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(seconds * t.SLOW)
        client.connect(str(server.socket))
        client.sendall(data)
        if more:
            time.sleep(0.2)
            client.sendall(more)
        try:
            answer, descriptors, _, _ = socket.recv_fds(client, 4096, 4)
        except ConnectionResetError:
            return b"", 0
        for descriptor in descriptors:
            os.close(descriptor)
        return answer, len(descriptors)


@t.test(60, trees=BOTH)
def requests_for_shared_memory_that_are_wrong_are_closed_with_a_sentence():
    hello = raw.hello(slot=3, variables=["CUDA_FORCE_JIT=1"])
    with t.Server() as server:
        for what, data, sentence in (
                ("a preface that is no frame", raw.shm_request(b"nonsense" * 9), "is not a HELLO"),
                ("one of 7 bytes", raw.shm_request(hello[:7]), "is not a HELLO"),
                ("one that ends early", raw.shm_request(hello[:-8]), "is not a HELLO"),
                ("one that goes on", raw.shm_request(hello + bytes(8)), "is not a HELLO"),
                ("another frame", raw.shm_request(raw.frame(raw.LANE, struct.pack("<IIQQQ", raw.MAGIC, 1, 1, 2, 3))),
                 "is not a HELLO"),
                ("too long a preface", raw.shm_request(hello, size=(60 << 10) + 1), "has a preface of 61441 bytes"),
                ("a preface without end", raw.shm_request(hello, size=0xFFFFFFFF), "has a preface of 4294967295 bytes"),
                ("version 0", raw.shm_request(hello, version=0), "makes no sense")):
            before = server.log().count(sentence)
            t.equal(knock(server, data), (b"", 0), f"the answer to {what}")
            t.wait_until(lambda: server.log().count(sentence) == before + 1, 5, f"a sentence on {what}")
        for version in (1, 3):  # it learns ours and gets no memory: nobody had to wait for a worker
            answer, descriptors = knock(server, raw.shm_request(hello, version=version))
            t.equal((answer[:16], descriptors), (b"TOWLSHM\0" + struct.pack("<II", 2, 0), 0), f"the answer to version {version}")
            t.check(f"shared memory in version {version}, this server has version 2" in server.log(), server.log())
        # Cut: silently for some time, then gone.
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(server.socket))
            client.sendall(raw.shm_request(hello)[:-1])
            time.sleep(0.3)
        t.wait_until(lambda: "went before it had said all" in server.log(), 5, "a sentence on one that went")
        answer, descriptors = knock(server, raw.shm_request(hello)[:40], raw.shm_request(hello)[40:])
        t.equal((answer[:12], descriptors), (b"TOWLSHM\0" + struct.pack("<I", 2), 1), "the answer to two halves")
        t.equal(knock(server, raw.shm_request())[1], 1, "memory for a request without a preface")
        rest = random.Random(4711)
        for _ in range(100):
            data = bytearray(raw.shm_request(hello))
            for _ in range(rest.randrange(1, 4)):
                data[rest.randrange(8, 60)] = rest.randrange(256)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(server.socket))
                client.sendall(data[:rest.choice((len(data), rest.randrange(1, len(data))))])
        t.equal(knock(server, raw.shm_request(hello))[1], 1, "memory for a right one")
        with raw.Client(server).begin() as client:
            client.alloc(4096)


@t.test(trees=BOTH)
def a_request_for_shared_memory_names_its_worker():
    with t.Server() as server, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.socket))
        client.sendall(raw.shm_request(raw.hello(slot=5)))
        t.equal(len(socket.recv_fds(client, 4096, 4)[1]), 1, "descriptors")
        workers = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in server.workers()]
        t.equal(sum(b"--slot=5" in words for words in workers), 1, f"among {workers} those of slot 5: their number")


@t.test(trees=BOTH)
def names_do_not_write_the_log_or_break_the_report():
    with t.Server() as server:
        with raw.Client(server, name=b"x\ntowlined: forged\x1b[2J\xff"):
            t.equal(server.status()["sessions"][0]["client"], "x?towlined: forged?[2J\ufffd", "the name")
        t.wait_until(lambda: "the session of x" in server.log(), 5, "a line of the end")
        t.check("\ntowlined: forged" not in server.log() and "\x1b" not in server.log(), server.log())


@t.test(trees=BOTH)
def failing_calls_do_not_fill_the_log():
    with t.Server() as server, raw.Client(server).begin() as client:
        wrong = raw.frame(raw.FUNCTIONS["cuStreamWaitEvent"], struct.pack("<QQI", 77, 88, 0), 1, 1)
        for _ in range(200):
            client.socket.sendall(wrong * 100)
        t.equal(client.call("cuCtxSynchronize")[0] != 0, True, "an error is told")
        client.socket.close()
        t.wait_until(lambda: "the session of raw ends" in server.log(), 5, "a line of the end")
        lines = len(server.log().splitlines())
        t.check(lines < 2000 and "cuStreamWaitEvent" in server.log(), f"{lines} lines in the log")
        t.check(re.search(r"the line above came \d+ more times", server.log()), f"no line is counted:\n{server.log()[-2000:]}")


@t.test(120, trees=BOTH)
def sessions_do_not_fill_the_log_together():
    """Each is a process of its own; the log is the server's. A thousand lines at once, then ten a second."""
    def name(i):  # a different text each time
        return raw.frame(raw.FUNCTIONS["cuStreamWaitEvent"], struct.pack("<QQI", 1000 + i, 88, 0), 1, 1)
    with t.Server("--log=info") as server:
        start = time.monotonic()
        for session in range(12):
            with raw.Client(server).begin() as client:
                client.socket.sendall(b"".join(name(i) for i in range(300)))
                client.call("cuCtxSynchronize")
        t.wait_until(lambda: not server.status()["sessions"], 10, "the sessions have ended")
        lines = len(server.log().splitlines())
        t.check(lines < 1100 + 12 * (time.monotonic() - start), f"{lines} lines in the log")


@t.test(trees=BOTH)
def the_memory_that_runs_out_is_a_workers():
    with t.Server() as server:
        own = int(pathlib.Path(f"/proc/{server.process.pid}/oom_score_adj").read_text())
        worker = server.workers()[0]
        t.check(int(pathlib.Path(f"/proc/{worker}/oom_score_adj").read_text()) > own, "the listener would go first")


def side(kind, address=0):
    """One side of a copy (struct tow_copy_operand)."""
    return struct.pack("<7Q2I", address, 0, 0, 0, 0, 0, 0, kind, 0)


def shape(source, target, width, size=0, transfer=0):
    return source + target + struct.pack("<5Q2I", width, 1, 1, 0, size, transfer, 0)


AT_HOST, AT_DEVICE, AT_ARRAY, AT_ADDRESS = 0, 1, 2, 3


@t.test(trees=BOTH)
def the_workers_own_memory_cannot_be_named():
    with t.Server(*t.SEEN) as server, raw.Client(server).begin() as client:
        worker = server.status()["sessions"][0]["worker_pid"]
        maps = pathlib.Path(f"/proc/{worker}/maps").read_text().splitlines()
        program = next(int(line.split("-")[0], 16) for line in maps if line.endswith("towlined"))
        heap = next(int(line.split("-")[0], 16) for line in maps if line.endswith(("[heap]", "[stack]")))
        device = client.alloc(4096)

        def download():
            result, body = client.call("cuMemcpyDtoHAsync_v2", struct.pack("<3Q2I", device, 64, 0, 0, 0))
            t.equal(result, 0, "the result of a download")
            return body[:64]

        client.send("cuMemsetD8Async", struct.pack("<3QI", device, 64, 0, 7))
        clean = download()
        for name, body in (
                ("cuMemcpyAsync", struct.pack("<4Q", device, program, 64, 0)),
                ("cuMemcpyAsync", struct.pack("<4Q", heap, device, 64, 0)),
                ("cuMemcpy3DAsync_v2", shape(side(AT_ADDRESS, program), side(AT_DEVICE, device), 64)),
                ("cuMemcpy3DAsync_v2", shape(side(AT_DEVICE, device), side(AT_ADDRESS, heap), 64))):
            client.send(name, body)
            t.equal(client.call("cuCtxSynchronize")[0], 1, f"what {name} ends with")
            t.check(download() == clean, f"{name} has read the worker's memory")
        graph = raw.handle("GRAPH", 1)
        client.send("cuGraphCreate", struct.pack("<QI", graph, 0))
        for index, copy in enumerate((shape(side(AT_ADDRESS, program), side(AT_DEVICE, device), 64),
                                      shape(side(AT_DEVICE, device), side(AT_ADDRESS, heap), 64))):
            head = struct.pack("<3Q4I", raw.handle("GRAPHNODE", 1 + index), graph, 0, 0, 0, 1, 0)
            t.equal(client.call("cuGraphAddNode_v2", head + copy)[0], 1, "what cuGraphAddNode answers")


@t.test(trees=BOTH)
def memory_is_not_mapped_where_the_workers_stack_grows():
    with t.Server(*t.SEEN) as server, raw.Client(server).begin() as client:
        worker = server.status()["sessions"][0]["worker_pid"]
        maps = pathlib.Path(f"/proc/{worker}/maps").read_text()
        low, high = (int(word, 16) for word in re.search(r"^(\w+)-(\w+) .*\[stack\]$", maps, re.M).groups())
        t.check(high - low > 7 << 20, f"the worker's stack has {high - low} bytes, and may not grow where a client's memory is")

        def share(base):
            return client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, 4096, 0))[0]

        t.equal(share(low - (64 << 20)), 0, "the result of sharing memory far below it")
        t.equal(share(high - (4 << 20)), 801, "the result of sharing memory at the address of the worker's stack")


@t.test()
def where_the_worker_has_its_own_is_told_once():
    """M1: who asks for places one after the other learned where the worker's libraries are."""
    with t.Server(*t.SEEN) as server:
        def ask(client, base):
            return client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, 4096, 0))[0]

        def libc(client):
            pids = [one["worker_pid"] for one in server.status()["sessions"]]
            return int(re.search(r"^(\w+)-.*libc\.so", pathlib.Path(f"/proc/{pids[-1]}/maps").read_text(), re.M).group(1), 16)
        free = 0x100000000000  # where neither programs nor libraries come to lie
        with raw.Client(server).begin() as client:
            t.equal(ask(client, free), 0, "a place that is free")
            t.equal(ask(client, libc(client)), 801, "one that is not")
            t.equal([ask(client, free + (index << 21)) for index in range(1, 20)], [801] * 19, "places behind it, all of them free")
            t.equal(client.call("cuMemHostUnregister", struct.pack("<QQ", free, 0))[0], 0, "the end of the first")
            t.equal(client.call("cuCtxSynchronize")[0], 0, "the session")
        t.wait_until(lambda: not server.status()["sessions"], 20, "the session is over")
        with raw.Client(server).begin() as client:
            at = libc(client)
            for first in range(0, 16400, 100):
                for base in range(free, free + (100 << 21), 1 << 21):
                    client.send("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, 4096, 0))
                    client.send("cuMemHostUnregister", struct.pack("<QQ", base, 0))
                t.equal(client.call("cuCtxSynchronize")[0], 0, f"the result behind {first + 100} places")
            client.send("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", at, 4096, 0))
            kind, _, _, body = client.receive()
            t.equal(kind, BYE, "what is said of a place that is not free, behind so many")
            t.check(b"start the program again" in body, f"the sentence: {body!r}")


@t.test(trees=BOTH)
def an_image_that_nobody_measured_is_not_loaded():
    with t.Server() as server, raw.Client(server).begin() as client:
        for image in (b"x", b".version 8.0 .target sm_80 .address_size 64"):
            t.equal(library(client, 1, image, RAW)[0], 200, "the answer to an image of the linker's form")


@t.test(trees=BOTH)
def a_link_that_is_destroyed_while_it_is_used():
    image = os.urandom(8 << 20)
    with t.Server() as server, raw.Client(server).begin() as client:
        for index in range(1, 6):
            link = struct.pack("<Q", raw.handle("LINKSTATE", index))
            t.equal(client.call("cuLinkCreate_v2", link + NO_OPTIONS)[0], 0, "the result of cuLinkCreate")
            after = struct.pack("<I", 2) + raw.text("x") + NO_OPTIONS
            if index == 1:
                with_image(client, "cuLinkAddData_v2", image, RAW, 1, link, after)
                t.equal(client.call("cuLinkDestroy", link)[0], 0, "the result of cuLinkDestroy")
                continue
            # It takes the server a while to read the image; meanwhile the link goes.
            client.socket.sendall(raw.frame(raw.FUNCTIONS["cuLinkAddData_v2"], link + image_ref(image, RAW, 0, 9) + after,
                                            1, 1, 1000 + index))
            t.equal(client.call("cuLinkDestroy", link)[0], 0, "the result of cuLinkDestroy")
            t.equal(client.call("cuCtxSynchronize")[0], 0, "the session")
        time.sleep(0.5 * t.SLOW)
        t.equal(len(server.status()["sessions"]), 1, "sessions")


@t.test(trees=BOTH)
def what_was_linked_outlives_the_context():
    with t.Server() as server, raw.Client(server).begin() as client:
        other = raw.handle("CONTEXT", 2)
        t.equal(client.call("cuCtxCreate_v4", struct.pack("<Q4I", other, 0, 0, 0, 0), 0)[0], 0, "the result of cuCtxCreate")
        t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the result of cuCtxSynchronize")
        link = struct.pack("<Q", raw.handle("LINKSTATE", 1))
        t.equal(client.call("cuLinkCreate_v2", link + NO_OPTIONS, context=2)[0], 0, "the result of cuLinkCreate")
        with_image(client, "cuLinkAddData_v2", TRAP, RAW, 1, link, struct.pack("<I", 1) + raw.text("x") + NO_OPTIONS)
        first = client.call("cuLinkComplete", link + struct.pack("<Q", 0))
        t.check(first[0] == 0 and len(first[1]) > len(TRAP), f"the reply to cuLinkComplete: {first}")
        t.equal(client.call("cuCtxDestroy_v2", struct.pack("<Q", other), 0)[0], 0, "the result of cuCtxDestroy")
        for size in (256, 512, 1024, 2048):  # something else lies where the driver's copy was
            client.call("cuMemAlloc_v2", struct.pack("<Q", size))
        t.equal(client.call("cuLinkComplete", link + struct.pack("<Q", 0)), first, "what cuLinkComplete answers again")
        client.call("cuLinkDestroy", link)


@t.test(trees=BOTH)
def links_without_end():
    """Each has a thread in the worker: their number is limited, and an ended one makes room."""
    with t.Server() as server, raw.Client(server).begin() as client:
        links = [struct.pack("<Q", raw.handle("LINKSTATE", index)) for index in range(1, 260)]
        results = [client.call("cuLinkCreate_v2", link + NO_OPTIONS)[0] for link in links]
        t.equal(results, [0] * 256 + [2] * 3, "the results of cuLinkCreate")
        t.equal(client.call("cuLinkDestroy", links[0])[0], 0, "the result of cuLinkDestroy")
        t.equal(client.call("cuLinkCreate_v2", links[256] + NO_OPTIONS)[0], 0, "the result of cuLinkCreate")


TRAP = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry stop() { trap; }
\0"""


def upload(client, to, size, transfer, context=1):
    client.send("cuMemcpyHtoDAsync_v2", struct.pack("<3Q2I", to, size, 0, transfer, 0), context)
    payload = bytes(1 << 20)
    for offset in range(0, size, len(payload)):
        client.data(transfer, offset, payload)


@t.test(trees=BOTH)
def an_upload_to_a_broken_context_fails():
    with t.Server() as server, raw.Client(server).begin() as client:
        device = client.alloc(1 << 20)
        t.equal(library(client, 1, TRAP)[0], 0, "the result of cuLibraryLoadData")
        client.send("cuLaunchKernel", struct.pack("<2Q4I4H", kernel(client, 1, "stop"), 0, 1, 1, 1, 0, 1, 1, 1, 0))
        broken = client.call("cuCtxSynchronize")[0]
        t.check(broken != 0, "the kernel did not stop")
        upload(client, device, 1 << 20, 5)
        t.equal(client.call("cuCtxSynchronize")[0], broken, "what follows")


WRITE_AND_STOP = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry write(.param .u64 at)
{
    .reg .u64 %a;
    ld.param.u64 %a, [at];
again:
    st.global.u32 [%a], 1;
    bra again;
}
.visible .entry stop() { trap; }
\0"""


@t.test(trees=BOTH)
def memory_goes_while_kernels_beside_one_that_failed_use_it():
    base = 0x550000000000
    with t.Server("--soft-threads=2") as server, raw.Client(server).begin() as client:
        def launch(name, index, arguments=b""):
            stream = raw.handle("STREAM", index)
            client.send("cuStreamCreate", struct.pack("<QI", stream, 1))
            client.send("cuLaunchKernel", struct.pack("<2Q4I4H", kernel(client, index, name), stream, 1, 1, 1, 0, 1, 1, 1, len(arguments))
                        + arguments)

        t.equal(client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, 4096, 0))[0], 0, "the result of sharing memory")
        t.equal(library(client, 1, WRITE_AND_STOP)[0], 0, "the result of cuLibraryLoadData")
        launch("write", 1, struct.pack("<Q", base))
        time.sleep(0.1 * t.SLOW)  # it runs
        launch("stop", 2)
        failed = client.call("cuStreamSynchronize", struct.pack("<Q", raw.handle("STREAM", 2)))[0]
        t.check(failed != 0, "the kernel did not stop")
        client.call("cuMemHostUnregister", struct.pack("<QQ", base, 0))
        time.sleep(0.1 * t.SLOW)
        t.equal(client.call("cuCtxSynchronize")[0], failed, "what follows")


@t.test(trees=BOTH)
def an_upload_that_stands_still_leaves_room_for_another_contexts():
    with t.Server("--soft-devices=2") as server, raw.Client(server).begin() as client:
        second = struct.pack("<QI", raw.handle("CONTEXT", 2), 1)
        t.equal(client.call("cuDevicePrimaryCtxRetain", second, context=0)[0], 0, "the second context's result")
        size = 257 << 20
        device, word = client.alloc(size), client.alloc(4096)
        other = struct.unpack_from("<Q", client.call("cuMemAlloc_v2", struct.pack("<Q", 1 << 20), 2)[1])[0]
        client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4, 0, 0))
        client.send("cuStreamWaitValue32_v2", struct.pack("<QQII", 0, word, 1, 1))
        upload(client, device, 256 << 20, 5)
        upload(client, other, 1 << 20, 6, context=2)
        t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the second context's end")


@t.test(trees=BOTH)
def bytes_come_when_their_stream_or_array_is_gone():
    half = bytes(1 << 20)
    with t.Server() as server, raw.Client(server).begin() as client:
        device = client.alloc(2 << 20)
        stream, array = raw.handle("STREAM", 1), raw.handle("ARRAY", 1)
        client.send("cuStreamCreate", struct.pack("<QI", stream, 1))
        client.send("cuArrayCreate_v2", struct.pack("<Q2Q2I", array, 1 << 11, 1 << 10, 1, 1))
        client.send("cuMemcpyHtoDAsync_v2", struct.pack("<3Q2I", device, 2 << 20, stream, 1, 0))
        client.data(1, 0, half)
        client.send("cuMemcpy3DAsync_v2", side(AT_HOST) + side(AT_ARRAY, array)
                    + struct.pack("<5Q2I", 1 << 11, 1 << 10, 1, 0, 2 << 20, 2, 0))
        client.data(2, 0, half)
        client.send("cuStreamDestroy_v2", struct.pack("<Q", stream))
        client.send("cuArrayDestroy", struct.pack("<Q", array))
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the end of the halves")
        for transfer, what in ((1, "stream"), (2, "array")):
            client.data(transfer, 1 << 20, half)
            t.equal(client.call("cuCtxSynchronize")[0], 400, f"what is told of the {what} that is gone")
        # A stream that cannot be destroyed twice.
        t.equal(client.call("cuStreamDestroy_v2", struct.pack("<Q", stream))[0], 400, "the result of destroying it again")
        upload(client, device, 2 << 20, 3)
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the end of an upload")


@t.test(trees=BOTH)
def the_packed_side_of_rows_has_no_shape_of_its_own():
    far = 1 << 30
    odd = struct.pack("<7Q2I", 1 << 40, far, far, far, far, far, 0, AT_HOST, 0)

    def body(source, target, size, transfer):  # two rows of 8 bytes, 64 apart on the device
        return source + target + struct.pack("<5Q2I", 8, 2, 1, 0, size, transfer, 0)

    with t.Server() as server:
        with raw.Client(server).begin() as client:
            device = struct.pack("<7Q2I", client.alloc(128), 64, 2, 0, 0, 0, 0, AT_DEVICE, 0)
            client.send("cuMemcpy3DAsync_v2", body(odd, device, 16, 0) + bytes(range(16)))
            client.send("cuMemcpy3DAsync_v2", body(device, odd, 16, 5))
            client.seq += 1
            client.socket.sendall(raw.frame(raw.FUNCTIONS["cuCtxSynchronize"], b"", 1, 1, client.seq))
            kind, _, _, came = client.receive()
            t.equal((kind, came[16:]), (raw.DATA, bytes(range(16))), "what comes of rows that went up and down")
        for source, target in ((side(AT_HOST), side(AT_ADDRESS, 4096)), (side(AT_ADDRESS, 4096), side(AT_HOST))):
            with raw.Client(server).begin() as client:
                client.send("cuMemcpy3DAsync_v2", body(source, target, 16, 5))
                t.check(client.ended(), "rows between memory that is named and bytes that travel are taken")


SPREAD, LAST = 2, 8  # a flag of a shape, one of a DATA frame


def rows(target, width, height, depth=1, transfer=0, flags=0, size=None, source=None):
    """An upload of rows."""
    size = width * height * depth if size is None else size
    return (source or side(AT_HOST)) + target + struct.pack("<5Q2I", width, height, depth, 0, size % 2**64, transfer, flags)


def within(kind, address, pitch=0, height=0, x=0, y=0, z=0):
    return struct.pack("<7Q2I", address, pitch, height, x, y, z, 0, kind, 0)


@t.test(trees=BOTH)
def rows_that_make_no_sense_end_the_session():
    largest_down = 4 << 20
    with t.Server() as server:
        def down(client, size, transfer):
            client.send("cuMemcpy3DAsync_v2", shape(side(AT_DEVICE, client.alloc(8 << 20)), side(AT_HOST), size, size, transfer))

        for size, transfer in ((largest_down + 1, 5), (4096, 0), (0, 5)):
            with raw.Client(server).begin() as client:
                down(client, size, transfer)
                t.check(client.ended(), f"rows that go down, {size} bytes as transfer {transfer}, are taken")
        target = side(AT_DEVICE, 4096)
        for what, body in (
                ("none", rows(target, 0, 5, 5, 5)),
                ("more than they say", rows(target, 8, 8, 8, 5, size=511)),
                ("as many as wrap around", rows(target, 2**32, 2**32, 1, 5)),
                ("planes that wrap around", rows(target, 2**22, 2**22, 2**20 + 1, 5, size=2**44)),
                ("in the command, which has none", rows(target, 8, 8, 8)),
                ("for host memory", rows(side(AT_HOST), 8, 8, 8, 5)),
                ("for memory that is named", rows(side(AT_ADDRESS, 4096), 8, 8, 8, 5))):
            with raw.Client(server).begin() as client:
                client.send("cuMemcpy3DAsync_v2", body)
                t.check(client.ended(), f"rows, {what}, are taken")


@t.test(trees=BOTH)
def rows_come_in_any_frames():
    width, height, depth, pitch, slices = 1000, 30, 4, 1024, 33
    size = width * height * depth
    packed = random.Random(5).randbytes(size)
    with t.Server() as server, raw.Client(server).begin() as client:
        device = client.alloc(pitch * slices * depth)
        target = within(AT_DEVICE, device, pitch, slices, 7, 2)
        expected = bytearray(b"\x55" * (pitch * slices * depth))
        for row in range(height * depth):
            at = (row // height * slices + 2 + row % height) * pitch + 7
            expected[at:at + width] = packed[row * width:(row + 1) * width]

        def check(what):
            t.equal(client.call("cuCtxSynchronize")[0], 0, f"what an upload {what} ends with")
            got = b""
            for at in range(0, len(expected), 1 << 16):
                body = struct.pack("<3Q2I", device + at, min(1 << 16, len(expected) - at), 0, 0, 0)
                result, answer = client.call("cuMemcpyDtoHAsync_v2", body)
                t.equal(result, 0, "the result of a download")
                got += answer[:min(1 << 16, len(expected) - at)]
            t.check(got == bytes(expected), f"the bytes of an upload {what}")
            client.send("cuMemsetD8Async", struct.pack("<3QI", device, len(expected), 0, 0x55))

        def frames(transfer, cuts):
            for begin, end in zip([0, *cuts], [*cuts, size]):
                yield transfer, begin, packed[begin:end]

        client.send("cuMemsetD8Async", struct.pack("<3QI", device, len(expected), 0, 0x55))
        ways = {"in one": [], "of odd sizes": [1, 999, 1001, 1500, 29999, 61234, 61235, 119999], "of 7 bytes": [*range(7, 7000, 7)],
                "of none and some": [0, 0, 5000, 5000], "from amid a plane to amid another": [15500, 104400]}
        for transfer, (what, cuts) in enumerate(ways.items(), 1):
            client.send("cuMemcpy3DAsync_v2", rows(target, width, height, depth, transfer))
            for frame in frames(transfer, cuts):
                client.data(*frame)
            check(f"in frames {what}")
        cuts = sorted(random.Random(6).sample(range(1, size), 40))
        client.send("cuMemcpy3DAsync_v2", rows(target, width, height, depth, 20, SPREAD))
        for frame in random.Random(7).sample([*frames(20, cuts)], 41):
            client.data(*frame)
        client.data(20, size, b"", LAST)
        check("in frames of any order")
        # The packed side has no shape of its own, whatever it says.
        odd = within(AT_HOST, 1 << 40, 1 << 30, 1 << 30, 1 << 40, 1 << 40, 1 << 40)
        client.send("cuMemcpy3DAsync_v2", rows(target, width, height, depth, 21, source=odd))
        client.data(21, 0, packed)
        check("from rows far apart")
        expected = bytearray(b"\x55" * len(expected))
        expected[:8], expected[1024:1032] = packed[:8], packed[8:16]
        client.send("cuMemcpy3DAsync_v2", rows(within(AT_DEVICE, device, pitch), 8, 2, source=odd) + packed[:16])
        check("within the command, from rows far apart")


@t.test(trees=BOTH)
def rows_in_frames_that_do_not_fit_end_the_session():
    with t.Server() as server:
        for what, flags, frames in (
                ("behind the end", SPREAD, ((4097, 8),)), ("across the end", 0, ((0, 4097),)), ("across it later", 0, ((0, 4000), (4000, 97))),
                ("in another order", 0, ((8, 8),)), ("twice", 0, ((0, 8), (0, 8))), ("with a hole", 0, ((0, 8), (16, 8))),
                ("across the end, spread", SPREAD, ((8, 4096),)), ("more than all", SPREAD, ((0, 4000), (0, 97))),
                ("far off", SPREAD, ((2**64 - 8, 8),)), ("behind the last", 0, ((0, 4096), (4096, 8)))):
            with raw.Client(server).begin() as client:
                client.send("cuMemcpy3DAsync_v2", rows(within(AT_DEVICE, client.alloc(8192), 128, 64), 64, 64, 1, 5, flags))
                for offset, size in frames:
                    client.data(5, offset, bytes(size))
                t.check(client.ended(), f"bytes {what} are taken")
        with raw.Client(server).begin() as client:
            # Overlapping: as much as is expected comes, if not to everywhere.
            client.send("cuMemcpy3DAsync_v2", rows(within(AT_DEVICE, client.alloc(8192), 128, 64), 64, 64, 1, 5, SPREAD))
            for offset, size in ((0, 3000), (2000, 1096)):
                client.data(5, offset, bytes(size))
            client.data(5, 0, b"", LAST)
            t.equal(client.call("cuCtxSynchronize")[0], 0, "what an upload of bytes that overlap ends with")


@t.test(trees=BOTH)
def rows_that_are_refused_are_told_once_and_hold_on_to_nothing():
    size = 1 << 20
    with t.Server() as server, raw.Client(server).begin() as client:
        device = client.alloc(size)

        def refused(target, what, transfer):
            client.send("cuMemcpy3DAsync_v2", rows(target, 1 << 10, 1 << 10, 1, transfer, SPREAD))
            client.data(transfer, 512, bytes(512))
            client.data(transfer, 0, bytes(512))
            client.data(transfer, 1024, bytes(size - 1024), LAST)
            t.check(client.call("cuCtxSynchronize")[0] != 0, f"an upload {what} is not refused")
            t.equal(client.call("cuCtxSynchronize")[0], 0, f"what is told behind an upload {what}")

        refused(within(AT_DEVICE, device + size - 2000, 1 << 10), "of which the first row fits", 1)
        refused(within(AT_DEVICE, 4096, 1 << 10), "to nowhere", 2)
        refused(within(AT_ARRAY, raw.handle("ARRAY", 9)), "to an array that is none", 3)
        client.send("cuMemsetD8Async", struct.pack("<3QI", device, size, 0, 0x55))
        for number, offset in enumerate(({"x": 2**64 - 512}, {"y": 2**64 - 512}, {"z": 2**64 - 1}), 4):
            # Counted on from there its later parts would be in the memory.
            refused(within(AT_DEVICE, device, 1 << 10, 1 << 10, **offset), f"that begins {offset} before", number)
        result, answer = client.call("cuMemcpyDtoHAsync_v2", struct.pack("<3Q2I", device, 4096, 0, 0, 0))
        t.check(result == 0 and answer[:4096] == b"\x55" * 4096, "some of what was refused has been written")
        # Many at a time, in two frames: they go through the same memory.
        for transfer in range(10, 310):
            client.send("cuMemcpy3DAsync_v2", rows(within(AT_DEVICE, device, 1 << 10), 1 << 10, 1 << 10, 1, transfer))
            client.data(transfer, 0, bytes(8))
        for transfer in range(10, 310):
            client.data(transfer, 8, bytes(size - 8), LAST)
        t.equal(client.call("cuCtxSynchronize")[0], 0, "what many uploads at a time end with")


@t.test(trees=BOTH)
def rows_for_an_array_come_in_any_frames():
    size = 1 << 20
    packed = random.Random(8).randbytes(size)
    with t.Server() as server, raw.Client(server).begin() as client:
        array = raw.handle("ARRAY", 1)
        created = struct.pack("<3Q2I", array, 256, 1024, 3, 1)  # texels of 4 bytes
        t.equal(client.call("cuArrayCreate_v2", created)[0], 0, "the result of cuArrayCreate")

        def up(transfer, cut):
            client.send("cuMemcpy3DAsync_v2", rows(side(AT_ARRAY, array), 1 << 10, 1 << 10, 1, transfer))
            client.data(transfer, 0, packed[:cut])
            return lambda: client.data(transfer, cut, packed[cut:])

        up(1, 5000)()
        t.equal(client.call("cuCtxSynchronize")[0], 0, "what an upload in whole texels ends with")
        device = client.alloc(size)
        client.send("cuMemcpy3DAsync_v2", rows(within(AT_DEVICE, device, 1 << 10), 1 << 10, 1 << 10, size=0, source=side(AT_ARRAY, array)))
        for at in range(0, size, 1 << 16):
            result, answer = client.call("cuMemcpyDtoHAsync_v2", struct.pack("<3Q2I", device + at, 1 << 16, 0, 0, 0))
            t.check(result == 0 and answer[:1 << 16] == packed[at:at + (1 << 16)], f"the array's bytes at {at}")
        up(2, 5001)()
        t.check(client.call("cuCtxSynchronize")[0] != 0, "an upload of part of a texel is not refused")
        rest = up(3, 5000)
        t.equal(client.call("cuArrayDestroy", struct.pack("<Q", array))[0], 0, "the result of cuArrayDestroy")
        rest()
        t.check(client.call("cuCtxSynchronize")[0] != 0, "an upload to an array that goes meanwhile is not refused")
        t.equal(client.call("cuCtxSynchronize")[0], 0, "what is told behind it")


CONDITIONAL, SWITCH = 13, 2


@t.test(trees=BOTH)
def a_node_has_no_more_bodies_than_a_client_asks_for():
    with t.Server() as server, raw.Client(server).begin() as other:
        with raw.Client(server).begin() as client:
            graph = raw.handle("GRAPH", 1)
            client.send("cuGraphCreate", struct.pack("<QI", graph, 0))

            def branch(index, size):
                result, body = client.call("cuGraphConditionalHandleCreate", struct.pack("<QQII", graph, 0, 0, 0))
                t.equal(result, 0, "the result of cuGraphConditionalHandleCreate")
                head = struct.pack("<3Q4I", raw.handle("GRAPHNODE", index), graph, 0, 0, 0, CONDITIONAL, 0)
                return head + struct.pack("<QIIQQ", struct.unpack_from("<Q", body)[0], SWITCH, size, 0, 0)

            result, body = client.call("cuGraphAddNode_v2", branch(1, 1024))
            t.equal((result, len(set(struct.unpack_from("<1024Q", body)))), (0, 1024), "the result and the bodies of a large node")
            client.send("cuGraphAddNode_v2", branch(2, 1025))
            t.check(client.ended(), "the session goes on")
        t.equal(other.call("cuCtxSynchronize")[0], 0, "the other session")


@t.test(trees=BOTH)
def ids_in_the_body_of_a_node_end_with_it():
    with t.Server() as server, raw.Client(server).begin() as client:
        def begin(index):
            client.send("cuGraphCreate", struct.pack("<QI", raw.handle("GRAPH", index), 0))
            return raw.handle("GRAPH", index)

        def fill(graph):
            """An empty node, always under the same id: in use it would end the session."""
            body = struct.pack("<3QI", raw.handle("GRAPHNODE", 9), graph, 0, 0)
            t.equal(client.call("cuGraphAddEmptyNode", body)[0], 0, "the result of cuGraphAddEmptyNode")

        for index, end in ((1, "cuGraphDestroy"), (2, "cuGraphDestroyNode")):
            graph, node = begin(index), raw.handle("GRAPHNODE", index)
            result, body = client.call("cuGraphConditionalHandleCreate", struct.pack("<QQII", graph, 0, 0, 0))
            head = struct.pack("<3Q4I", node, graph, 0, 0, 0, CONDITIONAL, 0)
            branch = struct.pack("<QIIQQ", struct.unpack_from("<Q", body)[0], SWITCH, 1, 0, 0)
            result, body = client.call("cuGraphAddNode_v2", head + branch)
            t.equal(result, 0, "the result of cuGraphAddNode")
            inner = struct.unpack_from("<Q", body)[0]
            fill(inner)
            t.equal(client.call(end, struct.pack("<Q", graph if index == 1 else node))[0], 0, f"the result of {end}")
            t.equal(client.call("cuGraphAddEmptyNode", struct.pack("<3QI", raw.handle("GRAPHNODE", 20 + index), inner, 0, 0))[0], 1,
                    "the result of adding to a body that is gone")
            other = begin(3)
            fill(other)
            t.equal(client.call("cuGraphDestroy", struct.pack("<Q", other))[0], 0, "the result of cuGraphDestroy")


@t.test(trees=BOTH)
def ids_end_with_their_graph_however_deep_they_are():
    with t.Server() as server, raw.Client(server).begin() as client:
        outer = inner = raw.handle("GRAPH", 1)
        client.send("cuGraphCreate", struct.pack("<QI", outer, 0))
        for depth in range(50):
            result, body = client.call("cuGraphConditionalHandleCreate", struct.pack("<QQII", inner, 0, 0, 0))
            t.equal(result, 0, f"the result of cuGraphConditionalHandleCreate {depth} deep")
            head = struct.pack("<3Q4I", raw.handle("GRAPHNODE", 1 + depth), inner, 0, 0, 0, CONDITIONAL, 0)
            branch = struct.pack("<QIIQQ", struct.unpack_from("<Q", body)[0], SWITCH, 1, 0, 0)
            result, body = client.call("cuGraphAddNode_v2", head + branch)
            t.equal(result, 0, f"the result of cuGraphAddNode {depth} deep")
            inner = struct.unpack_from("<Q", body)[0]
        t.equal(client.call("cuGraphDestroy", struct.pack("<Q", outer))[0], 0, "the result of cuGraphDestroy")
        other = raw.handle("GRAPH", 2)
        client.send("cuGraphCreate", struct.pack("<QI", other, 0))
        for depth in range(50):  # an id that is in use would end the session
            add = struct.pack("<3QI", raw.handle("GRAPHNODE", 1 + depth), other, 0, 0)
            t.equal(client.call("cuGraphAddEmptyNode", add)[0], 0, f"the result of using the id again of a node {depth} deep")


EMPTY, KERNEL = 5, 0


@t.test(trees=BOTH)
def a_graph_does_not_run_without_what_failed_while_nobody_waited():
    with t.Server() as server, raw.Client(server).begin() as client:
        def synchronise(expected, what):
            t.equal(client.call("cuCtxSynchronize")[0], expected, f"the result of cuCtxSynchronize {what}")

        def add(index, graph, *dependencies):
            head = struct.pack("<3Q4I", raw.handle("GRAPHNODE", index), graph, 0, len(dependencies), 0, EMPTY, 0)
            return head + b"".join(struct.pack("<Q", node) for node in dependencies)

        graph, node, missing = raw.handle("GRAPH", 1), raw.handle("GRAPHNODE", 2), raw.handle("GRAPHNODE", 9)
        exec_ = raw.handle("GRAPHEXEC", 3)
        client.send("cuGraphCreate", struct.pack("<QI", graph, 0))
        client.send("cuGraphAddNode_v2", add(2, graph))
        instantiate = struct.pack("<3Q", exec_, graph, 0)
        t.equal(client.call("cuGraphInstantiateWithFlags", instantiate)[0], 0, "the result for a graph that is whole")
        synchronise(0, "so far")
        launch = struct.pack("<2Q", exec_, 0)
        t.equal(client.call("cuGraphLaunch", launch)[0], 0, "the result of cuGraphLaunch")
        # Parameters of a kernel for a node that has none.
        client.send("cuGraphExecNodeSetParams", struct.pack("<3Q2I", exec_, node, 0, KERNEL, 0) + bytes(48))
        t.equal(client.call("cuGraphLaunch", launch)[0], 1, "the result of cuGraphLaunch behind parameters that failed")
        synchronise(1, "behind parameters that failed")
        client.send("cuGraphExecDestroy", struct.pack("<Q", exec_))
        synchronise(0, "behind the end of what they failed for")
        # A node behind one that does not exist.
        client.send("cuGraphAddNode_v2", add(4, graph, missing))
        instantiate = struct.pack("<3Q", raw.handle("GRAPHEXEC", 5), graph, 0)
        t.equal(client.call("cuGraphInstantiateWithFlags", instantiate)[0], 1, "the result for a graph that misses a node")
        t.equal(client.call("cuGraphNodeGetType", struct.pack("<Q", raw.handle("GRAPHNODE", 4)))[0], 1, "what the node answers")
        synchronise(1, "behind a node that failed")
        client.send("cuGraphDestroy", struct.pack("<Q", graph))
        synchronise(0, "behind the end of the graph")


@t.test(trees=BOTH)
def managed_memory_that_is_freed_is_not_looked_at():
    with t.Server() as server, raw.Client(server).begin() as client:
        result, body = client.call("cuMemAllocManaged", struct.pack("<QI", 8 << 20, 1))
        t.equal(result, 0, "the result of cuMemAllocManaged")
        address = struct.unpack_from("<Q", body)[0]
        client.call("cuMemFree_v2", struct.pack("<Q", address))  # and not a word of the mirror
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
        line = struct.pack("<QII", address, 1, 1) + bytes(64)
        client.socket.sendall(raw.frame(0xF00E, line, 0))
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")


def held_event(client, index, slip, value):
    """An event in a stream that stands, awaited by that slip."""
    event = raw.handle("EVENT", index)
    client.send("cuEventCreate", struct.pack("<QI", event, 2))
    client.send("cuEventRecord", struct.pack("<QQII", event, 0, slip, value))
    return event


def told(client, wanted):
    """What DONE frames say, up to so many slips: {slip: (value, refused)}."""
    found = {}
    while len(found) < wanted:
        kind, _, _, body = client.receive()
        if kind == 0xF014:
            for i in range(struct.unpack_from("<I", body)[0]):
                slip, value = struct.unpack_from("<II", body, 8 + 8 * i)
                found[slip & 0x7FFFFFFF] = value, bool(slip >> 31)
    return found


@t.test(trees=BOTH)
def what_is_awaited_is_told_of_when_it_ends():
    count = 600  # a stream takes not many more before it makes the caller wait
    with t.Server() as server, raw.Client(server).begin() as client:
        word = client.alloc(4096)
        client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4, 0, 0))
        client.send("cuStreamWaitValue32_v2", struct.pack("<QQII", 0, word, 1, 1))
        events = [held_event(client, i, i, 5) for i in range(count)]
        for event in events[:100]:
            client.send("cuEventDestroy_v2", struct.pack("<Q", event))
        for i in range(100, 200):
            client.send("cuEventRecord", struct.pack("<QQII", events[i], 0, i, 4))  # older than what it awaits: ignored
        t.equal(told(client, 100), {i: (5, True) for i in range(100)}, "what is told of events that were destroyed")
        client.send("cuDevicePrimaryCtxReset_v2", struct.pack("<QI", raw.handle("CONTEXT", 1), 0), context=0)
        t.equal(told(client, count - 100), {i: (5, True) for i in range(100, count)}, "what is told of the others")


@t.test(trees=BOTH)
def a_slip_that_is_none_ends_the_session():
    for slip, value in ((1024, 1), (0xFFFFFFFF, 1), (0, 0)):
        with t.Server() as server, raw.Client(server).begin() as client:
            held_event(client, 1, slip, value)
            t.check(client.ended(), f"the session goes on after slip {slip}, value {value}")


def facts_of_a_load(client, image, options=NO_OPTIONS):
    """Loads the image as the first library: how many bytes are told of its kernels."""
    result, body = library(client, 1, image, options=options)
    t.equal((result, *struct.unpack_from("<II", body)), (0, 0, 0), "the result of a load")
    count = struct.unpack_from("<I", body, 8)[0]
    t.equal(count, 0, "outputs of options")
    return struct.unpack_from("<I", body, 20)[0]


@t.test(trees=BOTH)
def what_one_client_sets_is_not_told_to_others():
    def image(name):
        names = [name, *(f"other{i}" for i in range(1024))]  # so many are not described with the load
        entries = "".join(f".visible .entry {n}() {{ ret; }}\n" for n in names)
        return f".version 8.0\n.target sm_80\n.address_size 64\n{entries}\0".encode()

    with t.Server() as server:
        with raw.Client(server).begin() as client:
            t.equal(facts_of_a_load(client, image("plain")), 0, "facts before anybody asked")
            kernel(client, 1, "plain")
        with raw.Client(server).begin() as client:
            t.check(facts_of_a_load(client, image("plain")) > 0, "facts are not kept at all")
        # Compiled with another limit of registers.
        limit = struct.pack("<IIIIQ", 1, 0, 0, 0, 16)
        with raw.Client(server).begin() as client:
            facts_of_a_load(client, image("limited"), limit)
            kernel(client, 1, "limited")
        with raw.Client(server).begin() as client:
            t.equal(facts_of_a_load(client, image("limited")), 0, "facts of what was compiled otherwise")
        # Changed before it is described: dynamic shared memory (8), then the carveout (9).
        for attribute, value in ((8, 16), (9, 50)):
            name = f"changed{attribute}"
            with raw.Client(server).begin() as client:
                facts_of_a_load(client, image(name))
                text = name.encode() + b"\0"
                first = raw.handle("KERNEL", 1)
                client.send("cuLibraryGetKernel",
                            struct.pack("<QQiII", raw.handle("LIBRARY", 1), first, 0, 0, len(text)) + text)
                set_it = struct.pack("<QIiI", first, attribute, value, 0)
                t.equal(client.call("cuKernelSetAttribute", set_it)[0], 0, "the result of cuKernelSetAttribute")
                kernel(client, 2, name)
            with raw.Client(server).begin() as client:
                t.equal(facts_of_a_load(client, image(name)), 0, "facts of a changed kernel")


@t.test(trees=BOTH)
def downloads_that_fail_half_way_use_nothing_up():
    with t.Server() as server, raw.Client(server).begin() as client:
        device = client.alloc(2 << 20)
        for transfer in range(1, 401):
            body = struct.pack("<3Q2I", device, 8 << 20, 0, transfer, 0)
            t.equal(client.call("cuMemcpyDtoHAsync_v2", body)[0], 1, "the result of a download of too much")
        body = struct.pack("<3Q2I", device, 2 << 20, 0, 500, 0)
        t.equal(client.call("cuMemcpyDtoHAsync_v2", body)[0], 0, "the result of the last download")


@t.test(trees=BOTH)
def downloads_that_nobody_waits_for_are_bounded():
    piece = 4 << 20
    with t.Server() as server:
        with raw.Client(server).begin() as client:
            device = client.alloc(piece)
            for transfer in range(1, 301):  # spread, without any lanes, and more than a worker keeps
                client.send("cuMemcpyDtoHAsync_v2", struct.pack("<3Q2I", device, piece, 0, transfer, 3))
            client.seq += 1
            client.socket.sendall(raw.frame(raw.FUNCTIONS["cuCtxSynchronize"], b"", 1, 1, client.seq))
            sizes, failed, closed = {}, set(), []
            while True:
                kind, result, _, body = client.receive()
                if kind == raw.REPLY:
                    break
                t.equal(kind, raw.DATA, "what comes before the reply")
                transfer, flags, _ = struct.unpack_from("<IIQ", body)
                sizes[transfer] = sizes.get(transfer, 0) + len(body) - 16
                if flags & 16:
                    failed.add(transfer)
                elif flags & 8:
                    closed.append(transfer)
            t.equal(result, 2, "what the synchronisation ends with")
            t.check(0 < len(failed) < 60, f"{len(failed)} of 300 failed")
            t.equal(closed, sorted(set(range(1, 301)) - failed), "those that were closed, in their order")
            t.check(all(sizes[transfer] == piece for transfer in closed), "a download came in part")
        for size, transfer in ((piece + 1, 1), (0, 1), (piece, 0)):
            with raw.Client(server).begin() as client:
                client.send("cuMemcpyDtoHAsync_v2", struct.pack("<3Q2I", client.alloc(piece), size, 0, transfer, 3))
                t.check(client.ended(), f"a download of {size} bytes as transfer {transfer} that nobody waits for is taken")


def pass_memory(server, *args):
    done = t.run([t.BUILD / "tests" / "client" / "share_hostile", *args], 30,
                 env={**os.environ, "TOWLINE_SERVER": server.address("shm")})
    t.check(done.returncode == 0 and "OK" in done.stdout.split(),
            f"exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


@t.test(60)
def memory_that_is_not_as_the_client_says_is_not_mapped():
    with t.Server() as server:
        pass_memory(server)


@t.test(60)
def a_note_where_no_memory_is_shared_ends_the_session():
    with t.Server() as server:
        pass_memory(server, "note")
        t.wait_until(lambda: "broke the protocol" in server.log(), 5, "a line in the log")
        pass_memory(server)


if __name__ == "__main__":
    t.main()
