#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Code travels once, launches cost what they must and no more."""

import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
C_TREES = ("plain", "asan", "tsan")


def run_counted(server, command, address=None):
    """Runs a program that must end with OK; what TOWLINE_STATS says of it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        done = t.towline_run(address or server.address(), command, env={"TOWLINE_STATS": stats.name})
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), done.stdout + done.stderr)
        # What a worker told of its code is kept at the latest when its session has ended: the next program must find it.
        t.wait_until(lambda: not server.status()["sessions"], 10, "the end of the session")
        return json.loads(pathlib.Path(stats.name).read_text())


def code_program():
    return t.build_c(t.PROGRAMS / "code.c", ["-Wno-deprecated-declarations", "-lcuda"], "code_cache")


def launches_program():
    return t.build_c(HELPERS / "launches.c", ["-lcuda"])


@t.test(trees=C_TREES)
def image_travels_once():
    program = code_program()
    with t.Server() as server:
        first = run_counted(server, [program, "large", "7"])
        second = run_counted(server, [program, "large", "7"])
        t.check(first["bytes_out"] > 3_000_000, f"the image did not travel: {first['bytes_out']} bytes")
        t.check(second["bytes_out"] < 20_000, f"it travelled again: {second['bytes_out']} bytes")
        lookups = second["calls"]["cuModuleGetFunction"]
        t.check(lookups["sync"] == 0 and lookups["async"] == 1, f"what is known was asked for again: {lookups}")


@t.test(trees=C_TREES)
def what_a_worker_said_last_is_heard():
    """It has ended before the listener read any of it: images that were used count as used all the same."""
    images = [b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry f%d() { ret; }\n\0" % i for i in range(8)]
    with t.Server() as server:
        with raw.Client(server) as client:
            client.begin()
            for i, image in enumerate(images):
                t.equal(raw.library(client, 1 + i, image)[0], 0, "the result of cuLibraryLoadData")
        cached = [server.folder / "cache" / "code" / hashlib.sha256(image).hexdigest() for image in images]
        t.wait_until(lambda: all(one.exists() for one in cached), 20, "the images are in the cache")
        t.wait_until(lambda: not server.status()["sessions"], 20, "the first session has ended")
        for one in cached:
            os.utime(one, (1, 1))
        with raw.Client(server) as client:
            client.begin()
            worker = server.status()["sessions"][0]["worker_pid"]
            os.kill(server.listener, signal.SIGSTOP)
            try:
                for i, image in enumerate(images):
                    body = struct.pack("<Q", raw.handle("LIBRARY", 1 + i)) + raw.image_ref(image, raw.PTX, 0, 1) + raw.NO_OPTIONS
                    t.equal(client.call("cuLibraryLoadData", body)[0], 0, "the result of cuLibraryLoadData")
                client.socket.close()
                t.wait_until(lambda: t.gone(worker), 20, "the worker has ended")
            finally:
                os.kill(server.listener, signal.SIGCONT)
        t.wait_until(lambda: all(one.stat().st_mtime > 1 for one in cached), 20, "the images count as used")


@t.test(trees=C_TREES)
def an_image_is_known_to_who_has_sent_it():
    """Its hash alone is not enough: another tenant (an address, here) sends it once, too."""
    program = code_program()
    with t.Server() as server:
        sent = [run_counted(server, [program, "large", "7"], server.address(kind))["bytes_out"] for kind in ("unix", "tcp", "tcp", "unix")]
        t.equal([size > 3_000_000 for size in sent], [True, True, False, False], f"whether the image travelled ({sent})")
        large = [path for path in server.folder.rglob("*") if path.is_file() and path.stat().st_size > 3_000_000]
        t.equal(len(large), 1, "the number of large files in the cache")


@t.test()
def what_is_known_is_of_code_without_options():
    with t.Server() as server:
        for mode, asked in (("modules", None), ("modules", 0), ("options", 1)):
            lookups = run_counted(server, [code_program(), mode])["calls"]["cuModuleGetFunction"]
            t.check(asked in (None, lookups["sync"]), f"{mode}: {lookups}, not {asked} that ask")


# The second answer is kept: it says what is known of the kernels by then.
@t.test(trees=C_TREES)
def image_that_is_loaded_again_is_not_waited_for():
    with t.Server() as server:
        calls = run_counted(server, [code_program(), "again"])["calls"]
        loads, lookups = calls["cuLibraryLoadData"], calls["cuLibraryGetKernel"]
        t.equal((loads["sync"], loads["async"]), (2, 18), "loads waited for, and not")
        t.check(lookups["sync"] <= 1, f"what is known was asked for again: {lookups}")


@t.test(trees=C_TREES)
def image_is_loaded_and_unloaded_by_many_threads():
    with t.Server() as server:
        run_counted(server, [code_program(), "often"])


@t.test(trees=C_TREES)
def handles_of_code_that_is_gone_are_errors():
    with t.Server() as server:
        run_counted(server, [code_program(), "stale"])


@t.test()
def damaged_image_is_sent_again():
    program = code_program()
    with t.Server() as server:
        run_counted(server, [program, "large", "7"])
        large = [path for path in server.folder.rglob("*") if path.is_file() and path.stat().st_size > 3_000_000]
        t.equal(len(large), 1, "the number of large files in the cache")
        with open(large[0], "r+b") as image:
            image.seek(1_000_000)
            image.write(b"!")
        again = run_counted(server, [program, "large", "7"])
        t.check(again["bytes_out"] > 3_000_000, f"the damaged image was used: {again['bytes_out']} bytes")
        t.check("is not what its name says" in server.log(), "nobody was told of the damage")


@t.test()
def cache_can_be_off():
    program = code_program()
    with t.Server("--code-cache=0") as server:
        for _ in range(2):
            stats = run_counted(server, [program, "large", "7"])
            t.check(stats["bytes_out"] > 3_000_000, f"the image did not travel: {stats['bytes_out']} bytes")


# Under ThreadSanitizer there is one place only for a software GPU's memory.
@t.test(trees=("plain", "asan"))
def library_follows_to_the_other_server():
    program = t.build_c(HELPERS / "two_devices.c", ["-lcuda"])
    with t.Server() as first, t.Server() as second:
        run_counted(first, [program], f"{first.address()},{second.address()}")
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        run_counted(server, [program])


@t.test()
def launches_wait_for_nothing():
    program = launches_program()
    # A worker that waited may have its context already, and then nobody waits for it: runs are compared without.
    with t.Server("--idle-workers=0") as server:
        none = run_counted(server, [program, "0"])
        none = run_counted(server, [program, "0"])
        many = run_counted(server, [program, "1000"])
        t.equal(many["replies_waited"], none["replies_waited"], "replies waited for with 1,000 launches")
        t.equal(many["calls"]["cuLaunchKernel"]["async"], 1000, "launches without a reply")
        each = (many["bytes_out"] - none["bytes_out"]) / 1000
        t.check(each <= 64 + 16, f"{each} bytes per launch, not 64 and 16 of arguments")


@t.test(limit=120)
def launch_takes_few_instructions():
    if not shutil.which("valgrind"):
        raise t.Skip("valgrind is not installed")
    program = launches_program()

    def count(server, launches):
        done = t.towline_run(server.address(), ["valgrind", "--tool=callgrind", "--toggle-collect=cuLaunchKernel",
                                                "--callgrind-out-file=/dev/null", program, launches])
        t.check(done.returncode == 0, done.stdout + done.stderr)
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1))

    with t.Server() as server:
        # Now and then a launch wakes a server that has gone to sleep: the least of three, or the first that will do.
        each = math.inf
        for _ in range(3):
            if each > 600:
                each = min(each, (count(server, 1100) - count(server, 100)) / 1000)
    print(f"{each:.0f} instructions per launch")
    t.check(0 < each <= 600, f"{each:.0f} instructions per launch on the client, more than 600")


UNDEFINED = r"""
import ctypes as c
cu, context = c.CDLL("libcuda.so.1"), c.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(c.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
HEAD = b".version 8.0\n.target sm_90\n.address_size 64\n.extern .func absent();\n.extern .func cnpLaunchDevice();\n"
GOOD, BAD = b".visible .entry good() { ret; }\n", b".visible .entry bad() { call absent; ret; }\n"
NEWER = b".visible .entry newer() { tcgen05.fence::before_thread_sync; ret; }\n"
RUNTIME = b".func within() { call cnpLaunchDevice; ret; }\n.visible .entry nested() { call within; ret; }\n"

def load(text):
    module = c.c_void_p()
    return cu.cuModuleLoadData(c.byref(module), text), module

def launch(module, name):
    f = c.c_void_p()
    assert cu.cuModuleGetFunction(c.byref(f), module, name) == 0
    result = cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    return result or cu.cuCtxSynchronize()

def link(*texts):
    state, image, size = c.c_void_p(), c.c_void_p(), c.c_size_t()
    assert cu.cuLinkCreate_v2(0, None, None, c.byref(state)) == 0
    for text in texts:
        assert cu.cuLinkAddData_v2(state, 1, text, c.c_size_t(len(text) + 1), b"text", 0, None, None) == 0
    result = cu.cuLinkComplete(state, c.byref(image), c.byref(size))
    module = load(image)[1] if result == 0 else None
    cu.cuLinkDestroy(state)
    return result, module

result, module = load(HEAD + GOOD + BAD + RUNTIME)
print("load", result)
print("launch", *[launch(module, name) for name in (b"good", b"bad", b"bad", b"nested", b"good")])
print("load", *[load(HEAD + text)[0] for text in (BAD, RUNTIME, BAD + RUNTIME, b"nonsense" + GOOD)])
print("link", *[link(HEAD + text, HEAD + GOOD)[0] for text in (BAD, RUNTIME)])
result, module = load(HEAD + GOOD + NEWER)
print("newer", result, load(HEAD + NEWER)[0], *[launch(module, name) for name in (b"good", b"newer", b"good")])
result, module = link(HEAD + RUNTIME, HEAD + GOOD)
print("launch", *[launch(module, name) for name in (b"good", b"nested", b"good")])
"""


@t.test(trees=("plain", "asan"))
def function_that_nobody_defines_hinders_who_can_reach_it():
    with t.Server() as server:
        done = t.towline_run(server.address(), [sys.executable, "-c", UNDEFINED], preload=True)
        # CUDA_ERROR_INVALID_PTX, _UNKNOWN (the linker), _SHARED_OBJECT_SYMBOL_NOT_FOUND, _NOT_SUPPORTED
        t.equal(done.stdout.splitlines(), ["load 0", "launch 0 302 302 801 0", "load 218 0 218 218", "link 999 0", "newer 0 801 0 801 0", "launch 0 801 0"],
                f"what it printed ({done.stderr}{server.log()})")
        said = re.findall(r"kernel (\w+) was refused: it can call (?:the function )?'?(\w+)", server.log())
        t.equal(said, [("bad", "absent"), ("nested", "cnpLaunchDevice"), ("nested", "cnpLaunchDevice")], "who was refused and why")
        t.equal(re.findall(r"kernel (\w+) was refused: it can come to the instruction '([\w.:]+)' \(line (\d+)", server.log()),
                [("newer", "tcgen05.fence::before_thread_sync", "7")], "who was refused for an instruction")
        t.equal(len(re.findall(r"towlined: session \d+: the code names functions that nothing defines \(absent and 1 more\)", server.log())), 1,
                f"how often the log tells what is missing:\n{server.log()}")


if __name__ == "__main__":
    t.main()
