#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a command names is there from the check to the last use, whatever other commands take away meanwhile."""

import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

BOTH = ("plain", "asan")
BASE = 0x550000000000  # where nobody has anything

# Says that it runs, then writes for some time.
WRITE = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry write(.param .u64 at, .param .u64 word, .param .u64 ns)
{
    .reg .u64 %a, %w, %n, %t, %b;
    .reg .pred %p;
    ld.param.u64 %a, [at];
    ld.param.u64 %w, [word];
    ld.param.u64 %n, [ns];
    mov.u64 %b, %globaltimer;
    st.global.u32 [%a], 1;
    st.global.u32 [%w], 1;
again:
    st.global.u32 [%a], 1;
    mov.u64 %t, %globaltimer;
    sub.u64 %t, %t, %b;
    setp.lt.u64 %p, %t, %n;
    @%p bra again;
    ret;
}
\0"""


def second_context(client, number=2):
    """Another context of the first device, as a number."""
    body = struct.pack("<Q4I", raw.handle("CONTEXT", number), 0, 0, 0, 0)
    t.equal(client.call("cuCtxCreate_v4", body, context=0)[0], 0, "the result of cuCtxCreate")


def word_at(client, device, context=1):
    result, body = client.call("cuMemcpyDtoHAsync_v2", struct.pack("<3Q2I", device, 4, 2, 0, 0), context)
    t.equal(result, 0, "the result of a download")
    return struct.unpack_from("<I", body)[0]


def mirror(client, base=BASE, size=4096, context=1):
    """The client's memory at an address becomes the worker's too: the result."""
    return client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, size, 0), context)[0]


def unmirror(client, base=BASE, context=1):
    return client.call("cuMemHostUnregister", struct.pack("<QQ", base, 0), context)[0]


def write_somewhere(client, context, ns, arguments_at=BASE):
    """Launches the kernel above in a context and waits until it runs."""
    t.equal(raw.library(client, 1, WRITE)[0], 0, "the result of cuLibraryLoadData")
    word = client.alloc(4096)
    client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4096, 0, 0))
    t.equal(client.call("cuCtxSynchronize")[0], 0, "the first context's end")
    stream = raw.handle("STREAM", 1)
    client.send("cuStreamCreate", struct.pack("<QI", stream, 1), context)
    client.send("cuLaunchKernel", struct.pack("<2Q4I4H3Q", raw.kernel(client, 1, "write"), stream, 1, 1, 1, 0, 1, 1, 1, 24,
                                              arguments_at, word, ns), context)
    t.wait_until(lambda: word_at(client, word) == 1, 20, "the kernel runs")


@t.test(trees=BOTH)
def memory_goes_while_a_kernel_of_another_context_uses_it():
    with t.Server("--soft-threads=3") as server, raw.Client(server).begin() as client:
        second_context(client)
        t.equal(mirror(client), 0, "the result of sharing memory")
        write_somewhere(client, 2, int(3e8 * t.SLOW))
        t.equal(unmirror(client), 0, "the result of taking it away")
        t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the other context's end")


@t.test(trees=BOTH)
def memory_of_a_context_that_is_gone_goes_while_a_kernel_of_another_uses_it():
    with t.Server("--soft-threads=3") as server, raw.Client(server).begin() as client:
        second_context(client, 2)
        second_context(client, 3)
        t.equal(mirror(client, context=3), 0, "the result of sharing memory")
        write_somewhere(client, 2, int(3e8 * t.SLOW))
        t.equal(client.call("cuCtxDestroy_v2", struct.pack("<Q", raw.handle("CONTEXT", 3)), context=0)[0], 0, "the context's end")
        unmirror(client)
        t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the other context's end")


def upload(client, to, number, context=1, stream=0):
    """A megabyte that travels as a transfer of its own."""
    client.send("cuMemcpyHtoDAsync_v2", struct.pack("<3Q2I", to, 1 << 20, stream, number, 0), context)
    client.data(number, 0, bytes(1 << 20))


def end_primary(client, function, index):
    """Release or Reset of device 0's primary context, under some context's number: the result."""
    return client.call(function, struct.pack("<QI", raw.handle("CONTEXT", index), 0), context=0)[0]


@t.test(trees=BOTH)
def a_primary_context_is_not_ended_in_anothers_name():
    for function in ("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2"):
        with t.Server() as server, raw.Client(server).begin() as client:
            second_context(client)
            device = client.alloc(1 << 20)
            upload(client, device, 1)
            t.equal(client.call("cuCtxSynchronize")[0], 0, "the end of the upload")
            for index in (2, 3, 0):
                t.equal(end_primary(client, function, index), 201, f"the result of {function} with number {index}")
            upload(client, device, 2)
            t.equal(client.call("cuCtxSynchronize")[0], 0, "the end of the second upload")
            t.equal(end_primary(client, function, 1), 0, f"the result of {function}")
            t.equal(end_primary(client, function, 1), 201, f"the result of a second {function}")


@t.test(trees=BOTH)
def a_context_has_one_number():
    def ends(what, *body):
        with raw.Client(server).begin() as client:
            client.send(*body, context=0)
            t.check(client.ended(), f"a session goes on after {what}")
        t.wait_until(lambda: "ends: Protocol error" in server.log(), 5, f"the end of a session after {what}")

    with t.Server() as server:
        ends("a second number", "cuDevicePrimaryCtxRetain", struct.pack("<QI", raw.handle("CONTEXT", 2), 0))
        ends("the same number", "cuDevicePrimaryCtxRetain", struct.pack("<QI", raw.handle("CONTEXT", 1), 0))
        ends("a newer id with its number", "cuCtxCreate_v4", struct.pack("<Q4I", raw.handle("CONTEXT", 1, 2), 0, 0, 0, 0))
        ends("a stream with its number", "cuEventCreate", struct.pack("<QI", raw.KINDS["EVENT"] << 56 | 1 << 32 | 1, 0))


@t.test(trees=BOTH)
def uploads_to_a_context_that_ends_do_not_outlive_it():
    with t.Server("--soft-threads=3") as server, raw.Client(server).begin() as client:
        second_context(client)
        device = client.alloc(1 << 20)
        word = struct.unpack_from("<Q", client.call("cuMemAlloc_v2", struct.pack("<Q", 4096), 2)[1])[0]
        client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4, 0, 0), 2)
        t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the second context's end")
        client.send("cuStreamWaitValue32_v2", struct.pack("<QQII", 0, word, 1, 0))
        upload(client, device, 1)
        # It waits for the upload, which waits for the word.
        client.socket.sendall(raw.frame(raw.FUNCTIONS["cuDevicePrimaryCtxRelease_v2"],
                                        struct.pack("<QI", raw.handle("CONTEXT", 1), 0), seq=4711))
        # Its number is gone at once.
        t.wait_until(lambda: client.call("cuCtxGetLimit", struct.pack("<I", 0))[0] == 709, 10, "the context ends")
        upload(client, device, 2)
        client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4, 0, 1), 2)
        while client.receive()[:3] != (raw.REPLY, 0, 4711):
            pass
        client.begin()
        device = client.alloc(1 << 20)
        upload(client, device, 3)
        t.equal(client.call("cuCtxSynchronize")[0], 709, "what is told of the upload between")
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the end of the last upload")


QUEUE = 1024  # operations that a stream takes before whoever adds one waits


def is_mapped(server, base=BASE):
    """Whether the worker has memory there."""
    worker = server.status()["sessions"][0]["worker_pid"]
    return f"{base:x}-" in pathlib.Path(f"/proc/{worker}/maps").read_text()


def stand_still(client, body, function="cuMemcpyAsync"):
    """Sends a command of the first context that stands in a driver call. The second context's address lets it go."""
    word = struct.unpack_from("<Q", client.call("cuMemAlloc_v2", struct.pack("<Q", 4096), 2)[1])[0]
    client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4, 0, 0), 2)
    t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the second context's end")
    client.send("cuStreamWaitValue32_v2", struct.pack("<QQII", 0, word, 1, 0))
    fill = raw.frame(raw.FUNCTIONS["cuMemsetD8Async"], struct.pack("<3QI", client.alloc(4096), 4096, 0, 0), 1, 1)
    client.socket.sendall(fill * (QUEUE - 1))
    client.socket.sendall(raw.frame(raw.FUNCTIONS[function], body, 1, 1, 4711))
    # Commands are taken in order: when this is answered the other has been.
    t.equal(client.call("cuCtxGetLimit", struct.pack("<I", 0), context=2)[0], 0, "the result of cuCtxGetLimit")
    return word


def let_go(client, word):
    client.send("cuMemsetD8Async", struct.pack("<3QI", word, 4, 0, 1), 2)
    if 4711 in client.others:
        return client.others[4711]  # it came too late, and was refused at once
    while True:
        kind, result, seq, _ = client.receive()
        if (kind, seq) == (raw.REPLY, 4711):
            return result


def take_away_under(up):
    """Takes memory away while a copy that has looked it up stands in the driver. False: the copy came too late."""
    # The memory is another context's, whose work alone the driver waits for.
    with t.Server("--soft-threads=3", *t.SEEN) as server, raw.Client(server).begin() as client:
        second_context(client)
        device = client.alloc(4096)
        t.equal(mirror(client, context=2), 0, "the result of sharing memory")
        word = stand_still(client, struct.pack("<4Q", *(device, BASE) if up else (BASE, device), 4096, 0))
        t.equal(unmirror(client, context=2), 0, "the result of taking it away, which does not wait")
        mapped = is_mapped(server)
        looked_up = let_go(client, word) == 0
        t.check(mapped or not looked_up, "memory is gone that a command uses")
        t.wait_until(lambda: not is_mapped(server), 10, "the memory is gone")
        t.equal(client.call("cuCtxSynchronize", context=2)[0], 0, "the second context's end")
        t.equal(mirror(client, context=2), 0, "the result of sharing memory again")
        return looked_up


@t.test(trees=BOTH)
def memory_that_a_command_has_looked_up_stays_until_it_was_carried_out():
    for up in (False, True):
        t.wait_until(lambda: take_away_under(up), 30, "the copy is first")


MIRROR = 0xF00E  # a frame: bytes that the program wrote to managed or mirrored memory
SIZE = 8 << 20


def alloc_managed(client, context=1):
    result, body = client.call("cuMemAllocManaged", struct.pack("<QI", SIZE, 1), context)
    t.equal(result, 0, "the result of cuMemAllocManaged")
    return struct.unpack_from("<Q", body)[0]


def alloc_at(client, address):
    """Memory of the device at an address that was free."""
    def call(function, body):
        result, answer = client.call(function, body, context=0)
        t.equal(result, 0, f"the result of {function}")
        return struct.unpack_from("<Q", answer)[0] if answer else None

    t.equal(call("cuMemAddressReserve", struct.pack("<4Q", SIZE, 0, address, 0)), address, "the address")
    memory = call("cuMemCreate", struct.pack("<2Q3Ii2Q", SIZE, 0, 1, 0, 1, 0, 0, 0))
    call("cuMemMap", struct.pack("<5Q", address, SIZE, 0, memory, 0))
    call("cuMemSetAccess", struct.pack("<3QIiI", address, SIZE, 1, 1, 0, 3))


def is_written(client, device, writes):
    """Fills memory of the device and says what the program wrote at addresses: whether it came there."""
    client.send("cuMemsetD8Async", struct.pack("<3QI", device, SIZE, 0, 7))
    t.equal(client.call("cuCtxSynchronize")[0], 0, "the end of the filling")
    for address in writes:
        client.socket.sendall(raw.frame(MIRROR, struct.pack("<QII", address, 1, 1) + b"\x55" * 64, 0))
    t.equal(client.call("cuCtxSynchronize")[0], 0, "what follows")
    return [word_at(client, address) == 0x55555555 for address in writes]


@t.test(trees=BOTH)
def managed_memory_that_was_freed_is_not_mirrored_when_others_have_its_addresses():
    with t.Server() as server, raw.Client(server).begin() as client:
        address = alloc_managed(client)
        t.equal(is_written(client, address, [address]), [True], "what the program wrote came")
        # Another mirror, which begins within the allocation.
        t.equal(client.call("cuMemHostUnregister", struct.pack("<QQ", address, 0))[0], 0, "the mirror's end")
        for base, size in ((address, 4096), (address + 8192, 4096)):
            t.equal(client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, size, 1))[0], 0, "a part's result")
        t.equal(client.call("cuMemFree_v2", struct.pack("<Q", address))[0], 0, "the result of cuMemFree")  # no word of the mirrors
        alloc_at(client, address)
        t.equal(is_written(client, address, [address, address + 8192]), [False, False], "what is written to others' memory")
        # It is not managed: nor can it be said to be.
        t.check(client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", address, 4096, 1))[0] != 0, "it is mirrored")


@t.test(trees=BOTH)
def a_mirror_of_managed_memory_ends_at_once():
    """Not behind commands that stand in the driver: who frees the memory must find no mirror of it."""
    with t.Server("--soft-threads=3") as server, raw.Client(server).begin() as client:
        second_context(client)
        address = alloc_managed(client, 2)
        t.equal(mirror(client, context=2), 0, "the result of sharing memory")
        word = stand_still(client, struct.pack("<4Q", client.alloc(4096), BASE, 4096, 0))
        for _ in range(2):
            t.equal(client.call("cuMemHostUnregister", struct.pack("<QQ", address, 0), 2)[0], 0, "the mirror's end")
            again = client.call("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", address, 4096, 1), 2)[0]
            t.equal(again, 0, "the result of mirroring it again")
        let_go(client, word)


@t.test(trees=BOTH)
def managed_memory_goes_with_its_context():
    with t.Server() as server, raw.Client(server).begin() as client:
        second_context(client)
        address = alloc_managed(client, 2)
        t.equal(client.call("cuCtxDestroy_v2", struct.pack("<Q", raw.handle("CONTEXT", 2)), context=0)[0], 0, "the context's end")
        alloc_at(client, address)
        t.equal(is_written(client, address, [address]), [False], "what is written to others' memory")


if __name__ == "__main__":
    t.main()
