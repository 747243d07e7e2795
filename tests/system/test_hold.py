#!/usr/bin/env python3
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


if __name__ == "__main__":
    t.main()
