#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looking inside: TOWLINE_TRACE, TOWLINE_LOG and TOWLINE_STATS say what happened, all of it, and once."""

import collections
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

TREES = ("plain", "asan")

# A program that tells on stdout which calls it made, and what each returned.
BEGIN = """
import ctypes as c, sys, threading
cu, calls = c.CDLL("libcuda.so.1"), []

def call(name, *arguments):
    result = getattr(cu, name)(*arguments)
    calls.append(f"{name} {result}")
    return result

size, pointer, wide = c.c_size_t, c.c_void_p, c.c_uint64
device, context, at, other, module, function = c.c_int(), pointer(), wide(), pointer(), pointer(), pointer()
"""
END = """
print("\\n".join(calls))
"""
CONTEXT = """
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", c.byref(context), 0)
call("cuCtxSetCurrent", context)
"""
PTX = (r'b".version 7.0\n.target sm_75\n.address_size 64\n'
       r'.visible .entry nothing(.param .u64 a)\n{\n ret;\n}\n"')

# Calls that succeed and calls that fail, answered by the client, by nobody, and by the server.
MIXED = f"""
call("cuCtxSynchronize")
call("cuInit", 0)
call("cuDeviceGet", c.byref(device), 0)
call("cuDeviceGet", c.byref(device), 99)
call("cuDevicePrimaryCtxRetain", c.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", c.byref(at), size(1 << 20))
call("cuMemAlloc_v2", None, size(4096))
host = c.create_string_buffer(1 << 20)
call("cuMemcpyHtoD_v2", at, host, size(1 << 20))
call("cuMemcpyDtoH_v2", host, at, size(1 << 20))
call("cuMemcpyDtoH_v2", host, wide(5), size(4096))
call("cuModuleLoadData", c.byref(module), {PTX})
call("cuModuleGetFunction", c.byref(function), module, b'no "such"\\n')
call("cuModuleGetFunction", c.byref(function), module, bytes(range(128, 256)) * 2)
call("cuModuleGetFunction", c.byref(function), module, b"nothing")
given = (pointer * 1)(c.cast(c.byref(at), pointer))
call("cuLaunchKernel", function, 3, 2, 1, 32, 1, 1, 0, None, given, None)
call("cuLaunchKernel", function, 3, 2, 1, 320000, 1, 1, 0, None, given, None)
call("cuFuncGetAttribute", c.byref(device), 0, function)
call("cuMemsetD8Async", at, 1, size(4096), None)
call("cuCtxSynchronize")
call("cuTexRefCreate", c.byref(other))
call("cuTexRefCreate", c.byref(other))
call("cuMemFree_v2", at)
call("cuMemFree_v2", at)
"""

LINE = re.compile(r"(\d+) (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6} (\w+)\((.*)\) = (\d+) (?:(CUDA_ERROR_\w+) )?\d+\.\dus")


def observe(server, body, kind="unix", **env):
    """Runs the program; (the calls it made with their results, the trace's lines, the statistics, stderr)."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        trace, stats = pathlib.Path(folder) / "trace", pathlib.Path(folder) / "stats"
        done = t.towline_run(server.address(kind), [sys.executable, "-c", BEGIN + body + END], preload=True,
                             env={"TOWLINE_TRACE": str(trace), "TOWLINE_STATS": str(stats), **env})
        t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
        return done.stdout.split("\n")[:-1], trace.read_text().splitlines(), json.loads(stats.read_text()), done.stderr


def understood(line):
    found = LINE.fullmatch(line)
    t.check(found, f"not a whole line of a trace: {line}")
    return found


@t.test(trees=TREES)
def a_trace_has_every_call_in_order():
    with t.Server() as server:
        for kind in ("unix", "tcp", "shm"):
            made, trace, _, _ = observe(server, MIXED, kind)
            t.check(len({line.split()[1] for line in made}) > 5, f"too few results to tell anything: {made}")
            t.equal([f"{m[2]} {m[4]}" for m in map(understood, trace)], made, f"the calls over {kind}")
            for line in map(understood, trace):
                t.equal(line[5] is not None, line[4] != "0", f"that {line[0]!r} names its error")


@t.test()
def a_trace_and_statistics_may_go_to_stderr():
    """A file called "-" is not made."""
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        program = ["env", "-C", folder, sys.executable, "-c", BEGIN + CONTEXT + END]
        for trace, stats in (("-", ""), ("", "-"), ("-", "-")):
            done = t.towline_run(server.address(), program, preload=True,
                                 env={"TOWLINE_TRACE": trace, "TOWLINE_STATS": stats})
            made = done.stdout.split("\n")[:-1]
            t.equal(len(made), 3, f"calls of the program ({done.stderr}); their number")
            lines = done.stderr.splitlines()
            t.equal([f"{m[2]} {m[4]}" for m in map(understood, lines[:3] if trace else [])], made if trace else [], "the trace")
            rest = "\n".join(lines[3:] if trace else lines)
            t.equal(sorted(json.loads(rest)["calls"]) if stats else rest, sorted(m.split()[0] for m in made) if stats else "",
                    "the statistics")
        t.equal(list(pathlib.Path(folder).iterdir()), [], "files that were made")


@t.test(trees=TREES)
def a_trace_is_readable():
    with t.Server() as server:
        _, trace, _, _ = observe(server, MIXED)
        text = "\n".join(trace)
        at = re.search(r"cuMemAlloc_v2\(dptr=->(0x\w+), bytesize=1048576\) = 0 ", text)
        t.check(at, f"no address of an allocation:\n{text}")
        function = re.search(r'cuModuleGetFunction\(hfunc=->(0x\w+), hmod=0x\w+, name="nothing"\) = 0 ', text)
        t.check(function, f"no kernel found by name:\n{text}")
        for wanted in (r"cuCtxSynchronize\(\) = 3 CUDA_ERROR_NOT_INITIALIZED ",
                       r"cuDeviceGet\(device=->0, ordinal=0\) = 0 ",
                       r"cuDeviceGet\(device=->\?, ordinal=99\) = 101 CUDA_ERROR_INVALID_DEVICE ",
                       r"cuMemAlloc_v2\(dptr=NULL, bytesize=4096\) = 1 CUDA_ERROR_INVALID_VALUE ",
                       rf"cuMemcpyHtoD_v2\(dstDevice={at[1]}, srcHost=0x\w+, ByteCount=1048576\) = 0 ",
                       r'name="no \\x22such\\x22\\x0a"\) = 500 CUDA_ERROR_NOT_FOUND ',
                       r'name="(\\x[89a-f][0-9a-f])+\S*\.\.\.\) = 500 ',  # longer than a line: its result is still there
                       rf'cuLaunchKernel\(f={function[1]} "nothing", gridDimX=3, gridDimY=2, gridDimZ=1, blockDimX=32, .*\) = 0 ',
                       r"cuLaunchKernel\(.*, blockDimX=320000, .*\) = 1 ",
                       rf"cuMemsetD8Async\(dstDevice={at[1]}, uc=1, N=4096, hStream=0\) = 0 ",
                       r"cuTexRefCreate\(pTexRef=->\?\) = 801 CUDA_ERROR_NOT_SUPPORTED "):
            t.check(re.search(wanted, text), f"{wanted} is not in the trace:\n{text}")


@t.test()
def a_trace_begins_anew_for_each_process():
    """%p is the process's number; without it the next one's calls take the place of the last one's."""
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        program = [sys.executable, "-c", BEGIN + CONTEXT + "import os; print(os.getpid())"]
        for name, files in (("trace", lambda pid: {"trace"}), ("%p-of.%p", lambda pid: {f"{pid}-of.{pid}", "trace"})):
            for _ in range(2):
                done = t.towline_run(server.address(), program, preload=True, env={"TOWLINE_TRACE": f"{folder}/{name}"})
                t.equal(done.returncode, 0, done.stderr)
                wanted = files(int(done.stdout))
                found = {path.name: path.read_text().splitlines() for path in pathlib.Path(folder).iterdir()}
                t.check(wanted <= set(found), f"{wanted} are not all in {sorted(found)}")
                t.equal({name: len(lines) for name, lines in found.items() if name in wanted}, dict.fromkeys(wanted, 3), "lines")
        t.equal(len(found), 3, "files")


@t.test()
def a_trace_of_errors_alone():
    with t.Server() as server:
        made, trace, _, _ = observe(server, MIXED + """
event, stream = pointer(), pointer()
call("cuEventQuery", None)
""", TOWLINE_TRACE_ERRORS="1")
        t.equal([f"{m[2]} {m[4]}" for m in map(understood, trace)], [line for line in made if not line.endswith(" 0")], "calls that fail")
        t.check(len(trace) > 5, trace)


@t.test()
def a_trace_says_when_calls_began():
    with t.Server() as server:
        _, trace, _, _ = observe(server, CONTEXT + "import time\ncall('cuCtxSynchronize'); time.sleep(0.3); call('cuCtxSynchronize')")
        seconds = [int(h) * 3600 + int(m) * 60 + float(s) for h, m, s in (line.split()[1].split(":") for line in trace)]
        t.check(0.3 <= (seconds[-1] - seconds[-2]) % 86400 < 20, f"between the last two of {trace}")
        t.check(all((b - a) % 86400 < 20 for a, b in zip(seconds, seconds[1:])), f"they come in order: {trace}")


WAITS = CONTEXT + """
for i in range(50):
    call("cuMemAlloc_v2", c.byref(at), size(4096))
    call("cuMemFree_v2", at)
    call("cuCtxSynchronize")
"""


@t.test(trees=TREES)
def statistics_become_a_table_with_a_verdict():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        for body, verdict in ((WAITS, r"Each that waits takes a round trip: \d+ of them, \d+ ms where one takes 0\.1 ms\. cuMem\w+ waits most often"
                                      r" \(\d+ times|cuCtxSynchronize waits most often"), ("call('cuInit', 0)\nfor i in range(999):\n    call('cuDriverGetVersion', c.byref(device))\n",
                                                "Few calls wait, cuInit most|Nothing has waited")):
            _, _, counted, _ = observe(server, body)
            path = pathlib.Path(folder) / "counts"
            path.write_text(json.dumps(counted))
            done = t.run([t.TOWLINE, "stats", path])
            t.equal((done.returncode, done.stderr), (0, ""), "the exit code and stderr")
            head, *rows = [line.split() for line in done.stdout.split("\n\n")[0].splitlines()]
            t.equal(head, ["FUNCTION", "CALLS", "WAITED", "SENT", "KNOWN", "TIME", "EACH", "SHARE"], "the head")
            t.equal({row[0]: [int(n) for n in row[1:5]] for row in rows},
                    {name: [sum(v for k, v in n.items() if k != "ns"), n["sync"], n["async"], n["local"] + n["cached"]]
                     for name, n in counted["calls"].items()}, "the rows")
            times = [counted["calls"][row[0]]["ns"] for row in rows]
            t.equal(times, sorted(times, reverse=True), "the order")
            t.check(re.search(verdict, done.stdout), done.stdout)
        for text in ("", "[]", "{}", '{"calls": 5}', '{"calls": {"cuX": 1}', "\0"):
            path.write_text(text)
            done = t.run([t.TOWLINE, "stats", path])
            t.equal((done.returncode, done.stderr), (1, f"towline: {path} is nothing that TOWLINE_STATS=FILE has written.\n"), f"what is said of {text!r}")
        done = t.run([t.TOWLINE, "stats", f"{folder}/none"])
        t.check(done.returncode == 1 and "cannot be read: No such file" in done.stderr, done)
        t.equal(t.run([t.TOWLINE, "stats"]).returncode, 2, "the exit code without a file")


THREADS = CONTEXT + """
def work():
    call("cuCtxSetCurrent", context)
    for i in range(300):
        cu.cuDeviceGet(c.byref(c.c_int()), 1000 + i)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@t.test(trees=TREES)
def threads_do_not_mix_their_lines():
    with t.Server() as server:
        _, trace, stats, _ = observe(server, THREADS)
        asked = collections.defaultdict(list)
        for line in map(understood, trace):
            if line[2] == "cuDeviceGet":
                asked[line[1]].append(int(line[3].split("ordinal=")[1]))
        t.equal(list(asked.values()), [list(range(1000, 1300))] * 4, "what each thread asked, in order")
        t.equal(stats["calls"]["cuDeviceGet"]["local"], 1200, "calls of all threads")


def sums(stats):
    """How often each function was called, and how often in each way all of them."""
    ways = ("local", "cached", "async", "sync")
    for name, calls in stats["calls"].items():
        t.check(set(ways) <= set(calls), f"{name} has {sorted(calls)}")
    return ({name: sum(calls[way] for way in ways) for name, calls in stats["calls"].items()},
            {way: sum(calls[way] for calls in stats["calls"].values()) for way in ways})


@t.test(trees=TREES)
def statistics_add_up():
    with t.Server() as server:
        for kind in ("unix", "tcp"):  # whoever loads code knows its kernel, not that others are missing
            made, _, stats, _ = observe(server, MIXED, kind)
            functions, ways = sums(stats)
            t.equal(functions, dict(collections.Counter(line.split()[0] for line in made)), f"calls over {kind}")
            for name, way, count in (("cuDeviceGet", "local", 2), ("cuTexRefCreate", "local", 2),
                                     ("cuMemcpyHtoD_v2", "async", 1), ("cuMemsetD8Async", "async", 1),
                                     ("cuMemcpyDtoH_v2", "sync", 1), ("cuMemAlloc_v2", "sync", 1),
                                     ("cuModuleGetFunction", "sync", 2),
                                     ("cuModuleGetFunction", "async", 1), ("cuFuncGetAttribute", "cached", 1), ("cuLaunchKernel", "async", 1)):
                t.equal(stats["calls"][name][way], count, f"{way} calls of {name} over {kind}")
            # Loading code may ask once more than the program does.
            t.check(ways["sync"] <= stats["replies_waited"] <= ways["sync"] + 2, f"replies over {kind}: {stats}")
            t.check(stats["commands"] >= ways["sync"] + ways["async"], f"commands over {kind}: {stats}")
            for way in ("bytes_out", "bytes_in"):
                t.check(1 << 20 <= stats[way] < 5 << 18, f"{way} over {kind}, where 1 MiB was copied: {stats[way]}")


ROUNDS = CONTEXT + """
call("cuMemAlloc_v2", c.byref(at), size(4096))
for i in range(ROUNDS):
    call("cuMemsetD8Async", at, i, size(4096), None)
    call("cuMemcpyDtoH_v2", c.create_string_buffer(4096), at, size(4096))
"""


@t.test(trees=TREES)
def statistics_count_each_command():
    with t.Server() as server:
        few, many = (observe(server, ROUNDS.replace("ROUNDS", str(n)))[2] for n in (10, 60))
        # Whether a worker that waited has its context already, so that nobody waits for it, is a matter of time.
        more = many["replies_waited"] - few["replies_waited"]
        t.check(49 <= more <= 51, f"50 more downloads waited for {more} more replies")
        t.equal(many["commands"] - few["commands"], 100, "commands of 50 more fills and downloads")
        more = many["bytes_in"] - few["bytes_in"]
        t.check(50 * 4096 <= more < 50 * 4300, f"50 more downloads of 4096 bytes brought {more} bytes")
        more = many["bytes_out"] - few["bytes_out"]
        t.check(100 * 16 <= more < 100 * 128, f"100 more commands took {more} bytes")


@t.test(trees=TREES)
def what_is_not_supported_says_so_once():
    """Every function that the table refuses, from two threads; and one that the device has not."""
    names = sorted(set(re.findall(r"towc_refuse\(TOW_FN_(\w+)\)", "".join(
        path.read_text() for path in (t.BUILD / "src" / "gen").glob("*_client.c")))))
    t.check(len(names) > 50, f"only {len(names)} functions are refused: the generated code was not understood")
    body = CONTEXT + f"""
def refuse():
    for name in {names!r}:
        call(name, *[None] * 12)
for thread in [threading.Thread(target=refuse) for _ in range(2)]:
    thread.start()
    thread.join()
call("cuMulticastGetGranularity", c.byref(wide()), c.create_string_buffer(64), 0)
call("cuMulticastGetGranularity", c.byref(wide()), c.create_string_buffer(64), 0)
"""
    with t.Server() as server:
        for kind in ("unix", "shm"):
            made, trace, _, err = observe(server, body, kind)
            t.equal(set(line.split()[1] for line in made[3:]), {"801"}, "what the calls returned")
            t.equal(len(trace), len(made), "lines of the trace")
            device = [line for line in err.splitlines() if line.endswith("is not supported by this device")]
            others = [line for line in err.splitlines() if line not in device]
            t.equal([line.split()[1] for line in device], ["cuMulticastGetGranularity"], f"what the device has not, over {kind}")
            t.equal(sorted(line.split()[1] for line in others), names, f"the names that stderr has over {kind}")
            t.check(all("is not supported; docs/api-status.md" in line for line in others), err)
        lines = [line for line in server.log().splitlines() if "cuMulticastGetGranularity" in line]
        t.equal(len(lines), 2, f"lines of towlined about what the device has not, one for each of two sessions ({lines}); their number")
        t.check(all("is not supported by this device" in line for line in lines), str(lines))


# ---- the log ----

LEVELS = ("off", "error", "warn", "info", "debug")
REFUSED = CONTEXT + 'call("cuTexRefCreate", c.byref(other))\n'
SAID = re.compile(r"towlined?\[\d+\] (\w+) (\w+): ")


def client_log(address, spec, body=REFUSED, **env):
    done = t.run([t.TOWLINE, "run", "--no-check", "-s", address, "--", sys.executable, "-c", BEGIN + body + END],
                 env=t.clean_environment(TOWLINE_TRANSPORT="unix", **({} if spec is None else {"TOWLINE_LOG": spec}), **env))
    return done.stderr


@t.test()
def the_log_has_levels():
    with t.Server() as server:
        for spec, warns, informs in ((None, True, False), ("off", False, False), ("error", False, False),
                                     ("warn", True, False), ("info", True, True), ("debug", True, True),
                                     ("", True, False)):
            text = client_log(server.address(), spec)
            t.equal("cuTexRefCreate is not supported" in text, warns, f"that TOWLINE_LOG={spec} has warnings ({text})")
            t.equal("client info: connected to" in text, informs, f"that TOWLINE_LOG={spec} has more ({text})")
        nowhere = f"unix://{server.folder}/nobody"
        for spec in LEVELS:
            text = client_log(nowhere, spec)
            t.equal("nobody" in text, spec != "off", f"that TOWLINE_LOG={spec} tells of a server that is not there ({text})")


@t.test()
def the_log_has_areas():
    with t.Server() as server:
        for spec, warns, informs in (("client=info", True, True), ("server=debug", True, False),
                                     ("info,client=warn", True, False), ("off,client=warn", True, False),
                                     ("warn,client=info", True, True), ("client=off", False, False),
                                     ("server=off", True, False), ("client=error,server=debug", False, False)):
            text = client_log(server.address(), spec)
            t.equal("cuTexRefCreate is not supported" in text, warns, f"that TOWLINE_LOG={spec} has warnings ({text})")
            t.equal("client info: connected to" in text, informs, f"that TOWLINE_LOG={spec} has more ({text})")


@t.test()
def the_log_takes_what_the_manual_names():
    manual = (t.ROOT / "docs" / "man" / "towline.1").read_text()
    levels, areas = (found.split() for found in re.search(
        r"Levels: ([a-z ]+)\. Areas: ([a-z\s]+)\.", manual).groups())
    t.equal(tuple(levels), LEVELS, "the manual's levels")
    source = "".join(path.read_text() for path in (t.ROOT / "src").rglob("*.c") if path.name != "log.c")
    for name in (*(f"AREA_{area}" for area in areas), *(f"LOG_{level}" for level in levels if level != "off")):
        t.check(f"TOW_{name.upper()}," in source, f"the manual names what nobody writes: {name}")
    with t.Server() as server:
        text = client_log(server.address(), ",".join(f"{area}={level}" for area in areas for level in (*levels, "off")))
        t.equal(text, "", "what is said when all are off")
        for wrong in ("loud", "client=loud", "nowhere=info", "client", "info,=", "client=info;server=info"):
            text = client_log(server.address(), wrong)
            told = [line for line in text.splitlines() if f"TOWLINE_LOG={wrong} is not understood" in line]
            t.check(told and "TOWLINE_LOG=info" in told[0], f"TOWLINE_LOG={wrong} is taken: {text}")
            t.check("cuTexRefCreate" in text, f"TOWLINE_LOG={wrong} silences warnings: {text}")


# ---- why something was refused ----

# Code without PTX, a kernel that leaves its memory, and code that nothing can be made of: why, only the server knows.
REFUSED = CONTEXT + r"""
bad = b".version 7.0\n.target sm_75\n.address_size 64\n"
wild = bad + b".visible .entry wild()\n{\n .reg .b64 %rd;\n mov.u64 %rd, 64;\n st.global.u32 [%rd], 1;\n ret;\n}\n"
elf = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xbe\x00" + bytes(300)
for times in range(3):
    call("cuModuleLoadData", c.byref(module), bad + b"this is no PTX\n")
call("cuModuleLoadData", c.byref(module), wild)
call("cuModuleGetFunction", c.byref(function), module, b"wild")
call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
call("cuCtxSynchronize")
call("cuCtxSynchronize")
"""
REASONS = (r"code refused: PTX line \d+: ", r"kernel wild failed with error 700: .*\(block 0,0,0, thread 0,0,0, PTX line \d+, address 0x40\)")


@t.test(trees=TREES)
def why_something_was_refused_is_said_at_the_program_once():
    with t.Server("--log=server=info,soft=off") as server:
        for kind in ("unix", "tcp", "shm"):
            logged = server.folder / f"cuda-{kind}.log"
            made, _, _, stderr = observe(server, REFUSED, kind, CUDA_LOG_FILE=str(logged))
            t.equal([line.split()[1] for line in made[3:]], ["218"] * 3 + ["0", "0", "0", "700", "700"], f"results ({stderr})")
            for reason in REASONS:
                t.equal(len(re.findall(f"^towline: {reason}", stderr, re.M)), 1, f"{reason} at the program over {kind}:\n{stderr}")
                t.equal(len(re.findall(rf"^\[[\d:.]+\]\[\d+\]\[CUDA\]\[W\] {reason}", logged.read_text(), re.M)), 1,
                        f"{reason} by CUDA_LOG_FILE:\n{logged.read_text()}")
            t.equal(len(stderr.splitlines()), len(REASONS), f"lines of stderr:\n{stderr}")


@t.test()
def why_something_was_refused_within_the_program_is_said_too():
    """The log is the program's stderr already."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        logged = pathlib.Path(folder) / "cuda.log"
        done = t.towline_run("self:", [sys.executable, "-c", BEGIN + REFUSED + END], preload=True, env={"CUDA_LOG_FILE": str(logged)})
        for reason in REASONS:
            t.check(re.search(f"^towline: {reason}", done.stderr, re.M), f"{reason} on stderr:\n{done.stderr}")
            t.equal(len(re.findall(r"\[W\] " + reason, logged.read_text())), 1, f"{reason} by CUDA_LOG_FILE:\n{logged.read_text()}")


@t.test()
def what_fails_without_end_is_told_a_few_times():
    body = CONTEXT + r"""
for number in range(200):
    call("cuModuleLoadData", c.byref(module), b".version 7.0\n.target sm_75\n.address_size 64\nno_%d\n" % number)
"""
    with t.Server("--log=server=info,soft=off") as server:
        made, _, _, stderr = observe(server, body)
        t.equal(made[3:], ["cuModuleLoadData 218"] * 200, "results")
        told = stderr.splitlines()
        t.check(1 < len(told) <= 32 and len(set(told)) == len(told), f"{len(told)} lines:\n{stderr}")


@t.test()
def the_log_goes_to_a_file():
    with t.Server() as server:
        path = server.folder / "client.log"
        path.write_text("was here\n")
        t.equal(client_log(server.address(), "info", TOWLINE_LOG_FILE=str(path)), "", "stderr")
        lines = path.read_text().splitlines()
        t.equal(lines[0], "was here", "what the file had before")
        t.check(any("connected to" in line for line in lines) and any("cuTexRefCreate" in line for line in lines), str(lines))


@t.test()
def the_log_of_the_server():
    for spec, most in (("info", {"server": "info", "audit": "info"}),
                       ("debug", {"server": "debug", "backend": "debug", "audit": "info"}),
                       ("warn,server=debug", {"server": "debug"}), ("server=info,soft=debug", {"server": "info"})):
        for flags, env in (([f"--log={spec}"], {}), ([], {"TOWLINE_LOG": spec})):
            with t.Server(*flags, env=env) as server:
                client_log(server.address(), "off")
                t.wait_until(lambda: "ended after" in server.log(), 5, "the end of the session")
                said = SAID.findall(server.log())
            t.check(said, "nothing in the form of a log line")
            for area, level in said:
                t.check(LEVELS.index(level) <= LEVELS.index(most.get(area, "warn")), f"{spec} has {area} {level}")
            t.equal(("server", "debug") in said, most["server"] == "debug", f"that {spec} has details of the server")


if __name__ == "__main__":
    t.main()
