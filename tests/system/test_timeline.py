#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a GPU did and when: TIMELINE frames, and the file that a program's client makes of them."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

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
    room = 1 << 16
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


# ---- the client: TOWLINE_TIMELINE, towline run --timeline ----

BEGIN = """
import ctypes as c, os, sys, threading, time
cu = c.CDLL("libcuda.so.1")
pointer, wide, size = c.c_void_p, c.c_uint64, c.c_size_t

def call(name, *arguments, wanted=0):
    result = getattr(cu, name)(*arguments)
    assert result == wanted, f"{name}: {result}"

def use(device=0):
    context = pointer()
    call("cuDevicePrimaryCtxRetain", c.byref(context), device)
    call("cuCtxSetCurrent", context)

def allocate(bytes):
    at = wide()
    call("cuMemAlloc_v2", c.byref(at), size(bytes))
    return at

def kernel(name):
    module, function = pointer(), pointer()
    call("cuModuleLoadData", c.byref(module), PTX)
    call("cuModuleGetFunction", c.byref(function), module, name)
    return function

def launch(function, count, into=0):
    value, into = c.c_uint32(count), wide(into)
    given = (pointer * 2)(c.cast(c.byref(value), pointer), c.cast(c.byref(into), pointer))
    call("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, given, None)

PTX = b'''.version 7.0
.target sm_75
.address_size 64
.visible .entry turns(.param .u32 count, .param .u64 into)
{
    .reg .u32 %r<3>;
    .reg .u64 %rd<4>;
    .reg .pred %p<3>;
    mov.u64 %rd1, %globaltimer;
    ld.param.u32 %r1, [count];
    ld.param.u64 %rd3, [into];
    mov.u32 %r2, 0;
again:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    setp.eq.u64 %p2, %rd3, 0;
    @%p2 ret;
    mov.u64 %rd2, %globaltimer;
    sub.u64 %rd2, %rd2, %rd1;
    st.global.u64 [%rd3], %rd2;
    ret;
}
'''
"""
GPU = 1 << 22  # numbers of processes that no process has
TREES = ("plain", "asan")


def whole(path):
    """All events of a file that was ended."""
    text = path.read_text()
    events = json.loads(text)
    t.equal(events[0]["name"], "towline_timeline", f"what {path.name} begins with")
    t.equal(events[-1]["name"], "towline_end", f"what {path.name} ends with")
    return valid(events)


def ns(event, key):
    value = round(event[key] * 1000)
    t.check(value >= 0 and abs(event[key] * 1000 - value) < 0.01, f"{key} of {event}")
    return value


def nested(spans, what):
    """Of one thread: of two that overlap, one is inside the other."""
    stack = []
    for began, ended, event in sorted(spans, key=lambda span: (span[0], -span[1])):
        while stack and stack[-1][1] <= began:
            stack.pop()
        t.check(not stack or ended <= stack[-1][1], f"{what}: {event} overlaps {stack[-1][2] if stack else None}")
        event["inside"] = stack[-1][2] if stack else None
        stack.append((began, ended, event))


def valid(events):
    """What Perfetto and Chrome want of an array of events; they come back with `process` (a name) and `inside`."""
    processes, threads, spans, flows = {}, {}, {}, {}
    for event in events:
        t.check(isinstance(event, dict) and event.get("ph") in ("X", "M", "C"), f"no event: {event}")
        t.check(isinstance(event["pid"], int) and isinstance(event["name"], str) and event["name"], f"{event}")
        if event["ph"] == "M":
            t.check(isinstance(event["args"], dict), f"{event}")
            if event["name"] == "process_name":
                t.check(event["pid"] not in processes, f"named twice: {event}")
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                t.check(event["tid"] not in threads, f"named twice, or of two processes: {event}")
                threads[event["tid"]] = (event["pid"], event["args"]["name"])
        elif event["ph"] == "X":
            t.check(isinstance(event["tid"], int) and event["cat"] in ("call", "wait", "kernel", "copy", "fill", "queue"), f"{event}")
            began = ns(event, "ts")
            spans.setdefault((event["pid"], event["tid"]), []).append((began, began + ns(event, "dur"), event))
            if "bind_id" in event:
                way = "flow_out" if event["cat"] == "call" else "flow_in"
                t.check(re.fullmatch("0x[0-9a-f]+", event["bind_id"]) and event[way] is True and event["cat"] not in ("wait", "queue"), f"{event}")
                flows.setdefault(way, []).append(event["bind_id"])
        else:
            t.check(ns(event, "ts") >= 0 and event["args"] and all(isinstance(v, int) and v >= 0 for v in event["args"].values()), f"{event}")
    for (pid, tid), some in spans.items():
        t.check(tid in threads and threads[tid][0] == pid, f"thread {tid} of {pid} has no name")
        nested(some, threads[tid])
    t.equal(len(set(flows.get("flow_out", []))), len(flows.get("flow_out", [])), "calls of different numbers")
    for event in events:
        t.check(event["pid"] in processes, f"its process has no name: {event}")
        if event["ph"] == "X" and event["cat"] == "wait":
            t.check(event["inside"] is not None and event["inside"]["cat"] == "call" and event["inside"].get("args", {}).get("waited_us", 0) > 0,
                    f"a wait in no call: {event}, in {event['inside']}")
    return events


def of(events, kind):
    return [event for event in events if event.get("cat") == kind]


def fact(events, name):
    return [event["args"] for event in events if event["ph"] == "M" and event["name"] == name]


def complete(events, servers=1):
    """The facts of a file that has everything: the servers'."""
    end, = fact(events, "towline_end")
    said = fact(events, "towline_server")
    t.equal(len(said), servers, "the servers in it")
    t.equal((end["calls"], end["left_out"]), (len(of(events, "call")), 0), "calls, and what is left out")
    t.equal(sum(server["spans"] for server in said), sum(len(of(events, kind)) for kind in ("kernel", "copy", "fill")), "spans")
    t.equal([server["spans_lost"] for server in said], [0] * servers, "spans that were lost")
    last = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    t.check(last <= end["lasted_us"] + max((server.get("clock_error_ns", 0) for server in said), default=0) / 1000, f"{last} is behind the end: {end}")
    return said


def timeline(server, program, kind="unix", name="timeline.json", **env):
    """Runs a program of BEGIN; what it printed, its stderr, and {file: its events} of the folder."""
    address = server if isinstance(server, str) else server.address(kind)
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        done = t.run([t.TOWLINE, "run", "-s", address, "--timeline", f"{folder}/{name}", "--", *t.preloaded(), sys.executable, "-c",
                      BEGIN + program], env={**os.environ, **env})
        t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
        return done.stdout, done.stderr, {path.name: whole(path) for path in pathlib.Path(folder).iterdir()}


WORK = """
call("cuInit", 0)
use()
at, turns, host = allocate(1 << 20), kernel(b"turns"), c.create_string_buffer(1 << 20)
call("cuMemcpyHtoD_v2", at, host, size(1 << 20))
for i in range(20):
    launch(turns, 1000 if i > 0 else 2000000)  # behind the first the others wait
call("cuMemsetD8Async", at, 1, size(4096), None)
call("cuCtxSynchronize")
call("cuMemcpyDtoH_v2", host, at, size(1 << 20))
"""


@t.test(trees=TREES)
def a_timeline_has_calls_waits_and_what_the_gpu_did():
    with t.Server() as server:
        for kind in ("unix", "shm", "tcp", "self"):
            _, said, files = timeline("self:soft" if kind == "self" else server, WORK, kind)
            t.equal((list(files), said), (["timeline.json"], ""), f"files, and stderr, over {kind}")
            events = files["timeline.json"]
            fact_of_server, = complete(events)
            t.check(fact_of_server["gpu"] and fact_of_server["bytes_sent"] > 0, f"over {kind}: {fact_of_server}")
            names = [event["name"] for event in of(events, "call")]
            t.equal([names.count(name) for name in ("cuLaunchKernel", "cuMemAlloc_v2", "cuMemcpyHtoD_v2")], [20, 1, 1], f"calls over {kind}")
            t.equal([event["name"] for event in of(events, "kernel")], ["turns"] * 20, f"kernels over {kind}")
            t.equal([event["args"]["bytes"] for event in of(events, "fill")], [4096], f"bytes of fills over {kind}")
            for name in ("copy to the GPU", "copy from the GPU"):
                t.equal(sum(event["args"]["bytes"] for event in of(events, "copy") if event["name"] == name), 1 << 20, f"bytes of each {name} over {kind}")
            sync, = [event for event in of(events, "call") if event["name"] == "cuCtxSynchronize"]
            t.check([event for event in of(events, "wait") if event["inside"] is sync], f"cuCtxSynchronize has waited for nothing over {kind}")
            # One axis: no kernel runs before it is launched, none after it was waited for.
            error = fact_of_server["clock_error_ns"] / 1000
            t.check(0 <= error < 20000 * t.SLOW and abs(fact_of_server["clock_ahead_ns"]) <= fact_of_server["clock_error_ns"], f"the clock: {fact_of_server}")
            launches = sorted(event["ts"] for event in of(events, "call") if event["name"] == "cuLaunchKernel")
            for launched, event in zip(launches, sorted(of(events, "kernel"), key=lambda event: event["ts"])):
                t.check(launched - error <= event["ts"] and event["ts"] + event["dur"] <= sync["ts"] + sync["dur"] + error,
                        f"{event} was launched at {launched} and awaited by {sync}, error {error}")
            # An arrow leads from each launch, copy and fill to what it did.
            launches = sorted((event for event in of(events, "call") if event["name"] == "cuLaunchKernel"), key=lambda event: event["ts"])
            kernels = sorted(of(events, "kernel"), key=lambda event: event["ts"])
            t.equal([event.get("bind_id") for event in kernels], [event["bind_id"] for event in launches], f"arrows to kernels over {kind}")
            calls = {event["bind_id"]: event["name"] for event in of(events, "call") if "bind_id" in event}
            t.equal({calls.get(event.get("bind_id")) for event in of(events, "fill")}, {"cuMemsetD8Async"}, f"arrows to fills over {kind}")
            if kind == "unix":  # elsewhere a large copy is several commands
                t.equal({calls.get(event.get("bind_id")) for event in of(events, "copy")}, {"cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"}, "arrows to copies")
            # What has waited in its stream did so in a row beside it.
            queue = [(event["ts"], event["ts"] + event["dur"]) for event in of(events, "queue")]
            waited = [event for event in of(events, "kernel") if event["args"]["queued_us"] >= 20]
            t.check(waited, f"no kernel has waited over {kind}")
            for event in waited:
                t.check(any(began <= event["ts"] - 0.5 and event["ts"] <= ended + 0.002 for began, ended in queue), f"{event} is not in {queue}")
            t.check(any(event["ph"] == "C" and event["args"]["sent"] > 0 for event in events), f"bytes are counted over {kind}")


@t.test(120)
def kernels_take_as_long_as_the_gpu_says():
    with t.Server() as server:
        said, _, files = timeline(server, """
call("cuInit", 0)
use()
turns, at, times = kernel(b"turns"), allocate(64), (wide * 8)()
for i in range(8):
    launch(turns, 1500000, at.value + 8 * i)
call("cuCtxSynchronize")
call("cuMemcpyDtoH_v2", times, at, size(64))
print(sum(times))
""")
        kernels = of(files["timeline.json"], "kernel")
        ours, theirs = sum(event["dur"] for event in kernels) / 1000, int(said) / 1e6
        t.check(len(kernels) == 8 and theirs > 50, f"{len(kernels)} kernels of {theirs} ms")
        t.check(abs(ours - theirs) <= 0.1 * theirs, f"kernels take {ours} ms in the timeline, {theirs} ms by the GPU's clock")


@t.test(120, trees=("plain", "asan", "tsan"))
def no_call_of_any_thread_is_lost():
    """Five times what a ring has room for, and threads that begin and end."""
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "timed.c", ["-lcuda"], "timed")
    count = 20000 if t.LONG else 5000
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        for kind in t.ways(("unix", "shm", "tcp"), "timeline threads"):
            path = pathlib.Path(folder) / "timeline"
            done = t.run([t.TOWLINE, "run", "-s", server.address(kind), "--timeline", path, "--", program, str(count)])
            t.equal((done.returncode, done.stderr), (0, ""), f"the exit code and stderr over {kind}")
            events = whole(path)
            complete(events)
            per_thread = {}
            for event in of(events, "call"):
                per_thread[event["tid"]] = per_thread.get(event["tid"], 0) + (event["name"] == "cuCtxGetFlags")
            t.equal(sorted(per_thread.values()), [0] + [count] * 12, f"calls of each thread over {kind}")
            t.equal(len(of(events, "fill")), 12 * count // 100, f"fills over {kind}")


@t.test(trees=TREES)
def each_process_has_its_own_file():
    forks = """
for i in range(3):
    if os.fork() == 0:
        call("cuInit", 0); use(); allocate(100); call("cuMemsetD8Async", allocate(64), 1, size(64), None); call("cuCtxSynchronize")
        sys.exit(0)
for i in range(3):
    assert os.wait()[1] == 0
"""
    with t.Server() as server:
        _, said, files = timeline(server, forks, name="of.%p.json")
        t.equal((len(files), said), (3, ""), f"{sorted(files)}: files, and stderr")
        for name, events in files.items():
            t.equal(name, f"of.{events[0]['pid']}.json", "the name of a file")
            t.equal(len(of(events, "fill")), 1, f"fills in {name}")
        # Without %p the first that uses the GPU takes the name, the others one of their own, and say so.
        _, said, files = timeline(server, forks)
        pids = {events[0]["pid"]: name for name, events in files.items()}
        t.equal(len(pids), 3, f"{sorted(files)}: processes")
        t.check("timeline.json" in files and all(name in ("timeline.json", f"timeline.json.{pid}") for pid, name in pids.items()), f"{pids}")
        t.equal(said.count("is written already: this process's timeline is in"), 2, f"{said}: sentences")
        # A child of a program that uses the GPU has nothing to do with its file.
        _, said, files = timeline(server, WORK + """
for ends in (sys.exit, os._exit):
    if os.fork() == 0:
        for _ in range(5000):
            call("cuCtxSynchronize", wanted=3)
        ends(0)
    assert os.wait()[1] == 0
call("cuCtxSynchronize")
""")
        t.equal((list(files), said), (["timeline.json"], ""), "files and stderr of a program that forks")
        complete(files["timeline.json"])
        # The parent only asked for the version, the child works.
        _, said, files = timeline(server, """
version = c.c_int()
call("cuDriverGetVersion", c.byref(version))
if os.fork() == 0:
    call("cuInit", 0); use(); call("cuMemsetD8Async", allocate(64), 1, size(64), None); call("cuCtxSynchronize")
    sys.exit(0)
assert os.wait()[1] == 0
""", name="%p")
        t.equal((len(files), said), (2, ""), f"{sorted(files)}: files, and stderr")
        t.equal(sorted(len(of(events, "fill")) for events in files.values()), [0, 1], "fills")


@t.test(trees=("plain", "asan"))
def a_killed_program_leaves_what_came_before():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--timeline", path, "--", *t.preloaded(), sys.executable, "-c", BEGIN + WORK + f"""
deadline = time.monotonic() + {20 * t.SLOW}
while "copy from the GPU" not in open({str(path)!r}).read() and time.monotonic() < deadline:
    call("cuCtxSynchronize")
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""])
        t.equal(done.returncode, -9, f"the exit code ({done.stderr})")
        text = path.read_text()
        t.check(text.startswith("[") and text.endswith("}"), f"it ends with {text[-200:]!r}")
        events = valid(json.loads(text + "]"))
        t.equal(fact(events, "towline_end"), [], "that it was ended")
        t.equal(len(of(events, "kernel")), 20, "its kernels")
        done = t.run([t.TOWLINE, "timeline", path])
        t.equal((done.returncode, done.stderr), (0, f"towline: {path} has no end: its program was killed, or still runs; this is what came before.\n"),
                "what towline timeline says")


@t.test(120, trees=("plain", "asan"))
def a_program_ends_whatever_becomes_of_its_timeline():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        run = [t.TOWLINE, "run", "-s", server.address()]
        for file, why in ((f"{folder}/no/file", "No such file or directory"), (folder, "Is a directory")):
            done = t.run([*run, "--timeline", file, "--", "echo", "started"])
            t.equal((done.returncode, done.stdout, done.stderr), (1, "", f"towline: the timeline {file} cannot be written: {why} (the program was not started).\n"),
                    "what is said of a file that cannot be written")
        done = t.run([*run, "--timeline", "-", "--", "echo", "started"])
        t.check(done.returncode == 1 and "name one, for example --timeline timeline.json" in done.stderr, f"{done}")
        program = [*t.preloaded(), sys.executable, "-c", BEGIN + WORK + "print('done')"]
        for file, words in ((f"{folder}/no/file", "cannot be written: No such file or directory"),
                            ("/dev/full", "cannot be written any more: No space left on device")):
            done = t.run([*run, "--no-check", "--", "env", f"TOWLINE_TIMELINE={file}", *program])
            t.equal((done.returncode, done.stdout), (0, "done\n"), f"how it ends ({done.stderr})")
            t.check(done.stderr.count("\n") == 1 and f"the timeline {file} {words}" in done.stderr, done.stderr)
        # Relative, and the program goes elsewhere.
        done = t.run(["env", "-C", folder, *run, "--timeline", "mine", "--", *t.preloaded(), sys.executable, "-c",
                      "import os\nos.chdir('/')\n" + BEGIN + WORK])
        t.equal((done.returncode, done.stderr), (0, ""), "how it ends")
        whole(pathlib.Path(folder) / "mine")
        # Written anew by `towline run`, and by nobody else.
        for words, files in (([*run, "--timeline", f"{folder}/mine", "--"], 1), ([*run, "--", "env", f"TOWLINE_TIMELINE={folder}/mine"], 2)):
            done = t.run([*words, *program])
            t.equal(len(list(pathlib.Path(folder).iterdir())), files, f"files ({done.stderr})")
        whole(pathlib.Path(folder) / "mine")


@t.test(120)
def the_server_goes_and_the_timeline_ends():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--timeline", path, "--", sys.executable, "-c", BEGIN + WORK + f"""
os.kill({server.process.pid}, 15)
while cu.cuCtxSynchronize() == 0:
    time.sleep(0.01)
"""])
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        events = whole(path)
        t.check(len(of(events, "call")) > 25, "calls")
        server.process.wait()


@t.test(120, waits=True)
def a_thread_that_waits_does_not_hold_up_the_end_of_a_timeline():
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "ends.c", ["-lcuda", "-pthread"], "ends")
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        with subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address(), "--timeline", str(path), "--", str(program), "inside"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            t.equal(client.stdout.readline(), "waits\n", "what it printed")
            begin = time.monotonic()
            client.communicate("\n", timeout=60)
            took = time.monotonic() - begin
        t.check(took < 8, f"the end took {took:.1f} s")
        whole(path)


@t.test()
def two_servers_are_two_processes_of_one_timeline():
    with t.Server() as one, t.Server() as other:
        _, said, files = timeline(f"{one.address()},{other.address('tcp')}", """
call("cuInit", 0)
for device in range(2):
    use(device)
    for i in range(5 + device):
        call("cuMemsetD8Async", allocate(64), 1, size(64), None)
    call("cuCtxSynchronize")
""")
        events = files["timeline.json"]
        t.equal((said, [fact["address"] for fact in complete(events, 2)]), ("", [one.address(), other.address("tcp")]), "stderr, and servers")
        per_server = {}
        for event in of(events, "fill"):
            per_server[event["pid"]] = per_server.get(event["pid"], 0) + 1
        names = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}
        t.equal({name: per_server.get(pid) for name, pid in names.items() if name.startswith("GPUs of")},
                {f"GPUs of {one.address()}": 5, f"GPUs of {other.address('tcp')}": 6}, "fills of each")


@t.test(120, waits=True)
def a_timeline_does_not_keep_an_idle_session():
    with t.Server("--session-idle=5") as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--timeline", path, "--", sys.executable, "-c", BEGIN + WORK + """
until = time.monotonic() + 40
while time.monotonic() < until and "(session-idle)" not in open("%s").read():
    time.sleep(0.1)
cu.cuCtxSynchronize()
""" % server.log_path], 60)
        t.check("session-idle" in done.stderr, f"an idle session has not ended: {done.stderr} {server.log()}")
        t.equal(len(of(whole(path), "kernel")), 20, "kernels")


@t.test(trees=("plain", "asan"))
def a_server_that_does_not_know_says_so_once():
    """A driver of our own that stands for NVIDIA's."""
    driver = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    with t.Server(device=str(driver)) as server:
        _, said, files = timeline(server, "call('cuInit', 0); use(); cu.cuCtxSynchronize()")
        t.check(f"towline: the timeline has no kernels and copies of the GPUs of {server.address()} (it has no CUPTI to know them "
                "by): it has the program's calls\n" in said and said.count("timeline") == 1, said)
        events = files["timeline.json"]
        fact_of_server, = complete(events)
        t.check(not fact_of_server["gpu"] and "clock_error_ns" not in fact_of_server, fact_of_server)
        t.check("cuCtxSynchronize" in [event["name"] for event in of(events, "call")], "calls")


@t.test(trees=("plain", "asan"))
def a_server_takes_the_cupti_that_it_is_told_to():
    """A CUPTI of our own stands for NVIDIA's; tests/unit/test_cupti.c has what it records."""
    helpers = t.ROOT / "tests" / "system" / "helpers"
    driver = t.build_c(helpers / "printing_driver.c", ["-shared", "-fPIC"], "printing_driver.so")
    flags = ["-shared", "-fPIC", f"-I{t.ROOT / 'src'}"]
    cupti = t.build_c(t.ROOT / "tests" / "unit" / "fake_cupti.c", flags, "fake_cupti.so")
    for path, known in ((cupti, True), ("none", False), ("/nonexistent/libcupti.so", False)):
        with t.Server(f"--cupti={path}", device=str(driver)) as server:
            _, said, files = timeline(server, "call('cuInit', 0); use(); cu.cuCtxSynchronize()")
            fact_of_server, = complete(files["timeline.json"])
            t.equal((fact_of_server["gpu"], "has no CUPTI" in said), (known, not known), f"what a server with cupti={path} knows")


# ---- towline timeline ----

def summed(path, *flags):
    return t.run([t.TOWLINE, "timeline", path, *flags])


def near(got, wanted, what):
    t.check(abs(got - wanted) <= 0.01 + abs(wanted) * 1e-6, f"{what} is {got}, not {wanted}")


@t.test(trees=("plain", "asan"))
def a_summary_is_the_sum_of_what_is_in_the_file():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        done = t.run([t.TOWLINE, "run", "-s", server.address("tcp"), "--timeline", path, "--", *t.preloaded(), sys.executable, "-c",
                      BEGIN + WORK + """
def work():
    use()
    for _ in range(200):
        cu.cuCtxGetFlags(c.byref(c.c_uint()))
    call("cuCtxSynchronize")
threads = [threading.Thread(target=work) for _ in range(12)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""])
        t.equal(done.returncode, 0, done.stderr)
        events = whole(path)
        done = summed(path, "--json")
        t.equal((done.returncode, done.stderr), (0, ""), "how it ends")
        said = json.loads(done.stdout)
        end, = fact(events, "towline_end")
        near(said["lasted_us"], end["lasted_us"], "lasted_us")
        t.equal((said["program"], said["ended"], said["waits"]), (events[0]["args"]["program"], True, len(of(events, "wait"))), "facts")
        for key, kinds, waited in (("kernels", ("kernel",), "queued_us"), ("copies", ("copy", "fill"), "queued_us"), ("calls", ("call",), "waited_us")):
            wanted = {}
            for event in events:
                if event.get("cat") in kinds:
                    row = wanted.setdefault(event["name"], [0, 0, 0, 0, 0])
                    args = event.get("args", {})
                    for i, value in enumerate((1, event["dur"], max(event["dur"] - row[2], 0), args.get(waited, 0), args.get("bytes", 0))):
                        row[i] += value
            t.equal({row["name"] for row in said[key]}, set(wanted), f"names of {key}")
            for row in said[key]:
                for name, value in zip(("count", "us", "longest_us", waited, "bytes"), wanted[row["name"]]):
                    near(row.get(name, 0), value, f"{name} of {row['name']}")
            times = [row["us"] for row in said[key]]
            t.equal(times, sorted(times, reverse=True), f"the order of {key}")
        busy, last = 0, 0
        spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event.get("cat") in ("kernel", "copy", "fill"))
        for began, ended in spans:
            busy += max(0, ended - max(began, last))
            last = max(last, ended)
        near(said["gpu"]["busy_us"], busy, "busy_us")
        near(said["gpu"]["idle_us"], last - spans[0][0] - busy, "idle_us")
        for thread in said["threads"]:
            own = [event for event in events if event.get("tid") == thread["thread"]]
            near(thread["waited_us"], sum(event["dur"] for event in of(own, "wait")), f"waited_us of {thread}")
            near(thread["in_calls_us"], sum(event["dur"] for event in of(own, "call") if event["inside"] is None), f"in_calls_us of {thread}")
        t.equal(len(said["threads"]), 13, "threads")
        server_fact, = fact(events, "towline_server")
        t.equal([said["servers"][0][key] for key in ("address", "gpu", "bytes_sent", "bytes_received")],
                [server_fact[key] for key in ("address", "gpu", "bytes_sent", "bytes_received")], "the server")
        done = summed(path)
        t.equal((done.returncode, done.stderr), (0, ""), "how it ends")
        for wanted in (rf"^{path}: \S+, [\d.]+ m?s, {end['calls']} calls by 13 threads, {said['waits']} waits for the server$", "^WHERE THE TIME WENT ",
                       r"^  GPU: busy +[\d.]+ [mu]?s +\d+ %$", r"^  turns +[\d.]+ [mu]?s +\d+ % +20 ", r"^  copy to the GPU +.* 1 +1\.0 MiB +[\d.]+ [MG]iB/s$",
                       r"^  cuLaunchKernel +.* 20 ", rf"^{server.address('tcp')}: .* sent, .* received; its clock is known to [\d.]+ [um]s\.$"):
            t.check(re.search(wanted, done.stdout, re.M), f"{wanted} is not in:\n{done.stdout}")
        t.equal(t.run(["sh", "-c", f"{t.TOWLINE} timeline - < {path}"]).stdout.splitlines()[1:], done.stdout.splitlines()[1:], "of stdin")


def write(path, spans, lost=0, lasted=1000000):
    """A file as the client writes it: (thread, kind, name, began, took, args)."""
    events = [{"ph": "M", "pid": 7, "name": "towline_timeline", "args": {"version": 1, "program": "app", "began": ""}}]
    events += [{"ph": "X", "pid": 7, "tid": tid, "ts": ts, "dur": dur, "cat": cat, "name": name, "args": args} for tid, cat, name, ts, dur, args in spans]
    events += [{"ph": "M", "pid": GPU, "name": "towline_server", "args": {"address": "x", "gpu": True, "spans_lost": lost}},
               {"ph": "M", "pid": 7, "name": "towline_end", "args": {"lasted_us": lasted, "calls": 1, "left_out": 0}}]
    path.write_text("[" + ",\n".join(map(json.dumps, events)) + "\n]\n")


@t.test()
def advice_is_given_where_the_numbers_give_it():
    waits = [span for i in range(500) for span in ((7, "wait", "w", i * 2000 + 1, 1200, {}), (7, "call", "cuStreamSynchronize", i * 2000, 1300, {"waited_us": 1200}),
                                                    (9, "kernel", "k", i * 2000, 300, {"queued_us": 0}))]
    computes = [span for i in range(100) for span in ((7, "call", "cuLaunchKernel", i * 10000, 10, {}), (9, "kernel", "k", i * 10000, 1000, {"queued_us": 0}))]
    small = [span for i in range(2000) for span in ((7, "call", "cuLaunchKernel", i * 500, 400, {}), (9, "kernel", f"k{i % 2}", i * 500, 10, {"queued_us": 0}))]
    busy = [(7, "call", "cuLaunchKernel", i * 10000, 9999, {}) for i in range(100)] + [(9, "kernel", "k" if i % 5 else "j", i * 10000, 9999, {"queued_us": 0}) for i in range(100)]
    copies = [(9, "copy", "copy to the GPU", i * 100, 90, {"queued_us": 0, "bytes": 4096}) for i in range(10000)] + [(7, "call", "c", 0, 900000, {})]
    starts = [(7, "call", "cuInit", 0, 300000, {}), (7, "call", "c", 300000, 690000, {}), (9, "kernel", "k", 300000, 690000, {"queued_us": 0})]
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        for what, spans, wanted in (
                ("waits", waits, ["The GPU has nothing to do for 85 % of the time, and the program waits for answers for 60 %: most in cuStreamSynchronize "
                                  "(500 calls, 1.2 ms each), so call that less often, or take a nearer server."]),
                ("computes", computes, ["The GPU has nothing to do for 90 % of the time, and the program is in calls for 0 %: what it computes or reads itself "
                                        "holds the GPU up."]),
                ("small kernels", small, ["The GPU has nothing to do for 98 % of the time, and its kernels take 10.0 us each: launching them takes longer, so "
                                          "launch them as a CUDA graph, or fuse them."]),
                ("busy", busy, ["The kernel k is 80 % of what the GPU does: a faster one helps most."]),
                ("copies", copies, ["Copies between host and GPU are 100 % of what the GPU does (10000 of them, 39.1 MiB in all, each 4.0 KiB): copy more at a time."]),
                ("starts", starts, ["Connecting and loading code take 300.0 ms, 30 % of all: let one process do more of the work.",
                                    "The kernel k is 100 % of what the GPU does: a faster one helps most."]),
                ("nothing", [(7, "call", "c", 0, 900000, {})], [])):
            write(path, spans)
            t.equal(json.loads(summed(path, "--json").stdout)["advice"], wanted, f"advice: {what}")
            text = summed(path).stdout
            t.check(all(sentence in text.splitlines() for sentence in wanted), f"{wanted} are not in {text}")
        # A call that makes others has their time, and its event comes behind theirs.
        write(path, [(7, "call", "a", 0, 10, {}), *[(7, "call", "b", 100 + 10 * i, 5, {}) for i in range(3)], (7, "call", "c", 95, 50, {}), (7, "call", "a", 150, 1, {})])
        t.equal([thread["in_calls_us"] for thread in json.loads(summed(path, "--json").stdout)["threads"]], [61], "time in calls")
        # Where spans were lost nobody knows whether the GPU was idle.
        write(path, waits, lost=5)
        t.equal(json.loads(summed(path, "--json").stdout)["advice"], [], "advice where something is missing")
        t.check("5 things that its GPU did are missing." in summed(path).stdout, "what is missing")


@t.test(120, trees=("plain", "asan"))
def other_files_get_an_exact_sentence():
    head = '[{"ph":"M","pid":7,"name":"towline_timeline","args":{"version":1,"program":"a\\u001b[2Jb","began":""}}'
    call = '{"ph":"X","pid":7,"tid":7,"ts":1.000,"dur":2.000,"cat":"call","name":"cuInit"}'
    end = '{"ph":"M","pid":7,"name":"towline_end","args":{"lasted_us":5,"calls":1,"left_out":0}}\n]\n'
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "timeline"
        foreign = f"{path} is nothing that towline run --timeline has written."
        for text, sentence in (
                ("", f"{path} is empty: no program that used a GPU has written its timeline there."), ("\n", foreign), ("{}", foreign), ("[]", foreign),
                ('[{"ph":"X","ts":1,"dur":1,"name":"x"}]', foreign), ('{"traceEvents":[]}', foreign), ("\0\0\0", foreign), ("[" * 100000, foreign),
                ("x" * 100000, foreign), (head[:30], foreign), ('[{"name":"towline_timeline"}\n]\n', foreign),
                (head.replace('"version":1', '"version":2'), f"{path} is of a newer Towline: its towline timeline reads it."),
                (f"{head},\nnonsense,\n{call},\n{end}", f"{path} is damaged: line 2 is no event of a timeline."),
                (f"{head},\n{call[:40]},\n{end}", f"{path} is damaged: line 2 is no event of a timeline."),
                (f"{head},\n{call},\n[],\n{end}", f"{path} is damaged: line 3 is no event of a timeline."),
                (f"{head},\n" + call.replace("X", "Q") + f",\n{end}", f"{path} is damaged: line 2 is no event of a timeline."),
                (f"{head},\n" + call.replace("cuInit", "c" * 20000) + f",\n{end}", f"{path} is damaged: line 2 is no event of a timeline.")):
            path.write_text(text)
            done = summed(path)
            t.equal((done.returncode, done.stdout, done.stderr), (1, "", f"towline: {sentence}\n"), f"what is said of {text[:60]!r}")
        t.equal(summed(folder).stderr, f"towline: {folder} cannot be read: Is a directory.\n", "of a folder")
        t.equal(summed(f"{folder}/none").stderr, f"towline: {folder}/none cannot be read: No such file or directory.\n", "of none")
        t.equal(t.run([t.TOWLINE, "timeline"]).returncode, 2, "the exit code without a file")
        # Cut anywhere behind its first line: it says so, and sums up what is there.
        text = f"{head},\n{call},\n{call},\n{end}"
        cuts = range(len(head), len(text) - len("\n]\n"), 1 if t.TREE == "plain" else 7)
        for cut in cuts:
            path.write_text(text[:cut])
            done = summed(path, "--json")
            t.equal((done.returncode, done.stderr), (0, f"towline: {path} has no end: its program was killed, or still runs; this is what came before.\n"),
                    f"what is said of {text[:cut]!r}")
            whole_calls = sum(cut >= len(head) + 2 + len(call) * (n + 1) + 2 * n for n in range(2))
            t.equal(sum(row["count"] for row in json.loads(done.stdout)["calls"]), whole_calls, f"calls of {text[:cut]!r}")
        path.write_text(text)
        done = summed(path)
        t.equal((done.returncode, done.stderr), (0, ""), "of all of it")
        t.check("\033" not in done.stdout, "a name moves the cursor")


# ---- the examples ----

def example(name, kind):
    if not t.find_nvcc():
        raise t.Skip("nvcc is not installed")
    folder = t.BUILD / "examples"
    done = t.run([t.ROOT / "examples" / "run", "--nvcc", t.find_nvcc(), "--build-dir", folder, "--build-only", "--only", name], 240)
    t.equal(done.returncode, 0, f"{done.stdout}{done.stderr}: building {name}")
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        path = pathlib.Path(base) / "timeline"
        done = t.run([t.TOWLINE, "run", "-s", server.address(kind), "--timeline", path, "--", folder / name], 240)
        t.equal((done.returncode, done.stderr), (0, ""), f"{name} over {kind}: {done.stdout}")
        events = whole(path)
        t.check(complete(events)[0]["spans"] > 0, f"the GPU does nothing for {name}")
        done = t.run([t.TOWLINE, "timeline", path])
        t.equal((done.returncode, done.stderr), (0, ""), f"towline timeline of {name}")


_names = sorted(path.parent.name for path in (t.ROOT / "examples").glob("*/*.cu") if path.stem == path.parent.name)
_drawn = t.drawn(_names, 4)  # as test_examples.py does: it has them built
for _index, _name in enumerate(_names):
    if _name in _drawn:
        _kind = ("unix", "tcp", "shm")[_index % 3]
        t.test(300, name=f"of_{_name}", matrix="examples")(lambda name=_name, kind=_kind: example(name, kind))


if __name__ == "__main__":
    t.main()
