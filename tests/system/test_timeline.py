#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a GPU did and when: TIMELINE frames."""

import struct
import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

TIMELINE = 0xF01C
SPANS, KNOWN = 1, 1
FILL = 6


def ask(client, flags=SPANS, names=0, seq=77):
    client.socket.sendall(raw.frame(TIMELINE, struct.pack("<II", flags, names), seq=seq))
    while True:
        kind, _, got, body = client.receive()
        if kind == raw.REPLY and got == seq:
            break
    clock, lost, flags, name_count, span_count, _ = struct.unpack_from("<QQIIII", body)
    at, found, spans = 32, [], []
    for _ in range(name_count):
        size = struct.unpack_from("<I", body, at)[0]
        found.append(body[at + 4:at + 3 + size].decode())
        at += 4 + size + -size % 4
    at += -at % 8
    for i in range(span_count):
        spans.append(dict(zip(("given", "began", "ended", "bytes", "kind", "name", "stream", "queued"),
                              struct.unpack_from("<QQQQIIII", body, at + 48 * i))))
    return {"clock": clock, "lost": lost, "flags": flags, "names": found, "spans": spans}


def fill(client, address, count):
    client.send("cuMemsetD8Async", struct.pack("<3QI", address, count, 0, 7))


@t.test()
def a_client_that_asks_hears_what_the_gpu_did():
    with t.Server() as server, raw.Client(server) as client:
        client.begin()
        at = client.alloc(1 << 20)
        fill(client, at, 4096)  # before anybody asked
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
        first = ask(client)
        t.equal((first["flags"], first["spans"], first["lost"]), (KNOWN, [], 0), "what the first answer has")
        for count in (100, 200000):
            fill(client, at, count)
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
        second = ask(client)
        t.equal([(s["kind"], s["bytes"], s["name"], s["queued"]) for s in second["spans"]],
                [(FILL, 100, 0, 0), (FILL, 200000, 0, 0)], "spans")
        times = [first["clock"]] + [s[when] for s in second["spans"] for when in ("given", "began", "ended")] + [second["clock"]]
        t.equal(times, sorted(times), "the times of what was done one after the other")
        t.equal(ask(client)["spans"], [], "spans that were told already")


@t.test()
def only_the_clock_is_told_where_no_more_is_asked():
    with t.Server() as server, raw.Client(server) as client:
        client.begin()
        at = client.alloc(4096)
        clocks = [ask(client, flags=0)["clock"] for _ in range(3)]
        fill(client, at, 100)
        last = ask(client, flags=0, names=0xFFFFFFFF)
        t.equal((last["flags"], last["names"], last["spans"]), (0, [], []), "what an answer of the clock alone has")
        t.check(clocks == sorted(clocks) and clocks[0] < last["clock"], f"clocks: {clocks}, {last['clock']}")


@t.test()
def what_nobody_fetches_is_counted_and_takes_no_more_memory():
    room = 1 << 15
    with t.Server() as server, raw.Client(server) as client:
        client.begin()
        at = client.alloc(4096)
        ask(client)
        for _ in range(room + 500):
            fill(client, at, 1)
        t.equal(client.call("cuCtxSynchronize")[0], 0, "the result of cuCtxSynchronize")
        got, answer = 0, {"flags": 2}
        while answer["flags"] & 2:
            answer = ask(client)
            got += len(answer["spans"])
        t.equal((got, answer["lost"]), (room, 500), "spans that came, and that were lost")


@t.test()
def a_timeline_frame_without_a_number_ends_the_session():
    with t.Server() as server:
        for frame in (raw.frame(TIMELINE, struct.pack("<II", SPANS, 0)), raw.frame(TIMELINE, b"", seq=5)):
            with raw.Client(server) as client:
                client.socket.sendall(frame)
                t.check(client.ended(), "the session goes on")


if __name__ == "__main__":
    t.main()
