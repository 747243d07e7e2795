#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of programs/programs.json, none of which knows about Towline, through client and server."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from towtest import *  # noqa: E402,F403
import towtest as t  # noqa: E402

t.same_for_all_users()

TABLE = json.loads((t.PROGRAMS / "programs.json").read_text())


def cuda_flags(code=None):
    flags = list(TABLE["flags"])
    if code:
        flags[flags.index("-gencode") + 1] = code
    return flags


def build_program(entry, variant):
    sources = [t.PROGRAMS / source for source in entry["sources"]]
    if entry["language"] == "c":
        return t.build_c(sources[0], entry["flags"], entry["name"])
    return t.build_cuda(sources, [*cuda_flags(entry.get("code")), *entry["flags"]], TABLE["variants"][variant], f"{entry['name']}.{variant}")


def run_program(entry, variant, kind):
    program = build_program(entry, variant)
    with t.Server() as server:
        address = "self:" if kind == "self" else server.address(kind)
        for arguments in entry["arguments"]:
            done = t.towline_run(address, [program, *arguments], entry["timeout"], preload=entry["language"] == "cuda")
            text = f"{entry['name']} {' '.join(arguments)} ({variant}, {kind}): exit code {done.returncode}\n{done.stdout}{done.stderr}"
            if "compare" in entry:
                compare(entry, done, text)
                continue
            t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), text)


def compare(entry, done, text):
    with tempfile.NamedTemporaryFile("w", suffix=".output") as output:  # other tests compare the same program's at this moment
        output.write(done.stdout)
        output.flush()
        judged = subprocess.run([sys.executable, str(t.PROGRAMS / entry["compare"]), str(t.PROGRAMS / entry["expected"]),
                                 output.name], capture_output=True, text=True)
    t.check(judged.returncode == 0, f"{judged.stdout}{judged.stderr}\n{text[-3000:]}")


def add(entry, variant, kind, trees):
    limit = entry["timeout"] * len(entry["arguments"]) + 120  # with the compiler, once
    t.test(limit, trees=trees, name=f"{entry['name']}.{variant}.{kind}", matrix="programs", uses=f"program {entry['name']}")(
        lambda: run_program(entry, variant, kind))


# Each program in its first variant; of the others, which are another way to link or to name streams, a third.
_others = [f"{_entry['name']}.{_variant}" for _entry in TABLE["programs"] for _variant in _entry["variants"][1:]]
_drawn = t.drawn(_others, len(_others) // 3, "variants")
for _entry in TABLE["programs"]:
    for _variant in _entry["variants"]:
        if f"{_entry['name']}.{_variant}" in set(_others) - set(_drawn):
            continue
        # What a program on the server's own machine gets by default is shm.
        _kinds = ("unix", "tcp", "shm") if _variant in ("static", "c") else ("unix", "tcp")
        for _kind in t.ways(_kinds, f"{_entry['name']} {_variant}"):
            _trees = ["plain"]
            # Under the sanitizers each program once; ThreadSanitizer knows only what it compiled itself.
            if _kind == "unix" and _variant in ("static", "c"):
                _trees.append("asan")
                if _entry["language"] == "c":
                    _trees.append("tsan")
            if _kind == "shm" and _entry["name"] == "driver_link":
                _trees += ["asan", "tsan"]
            add(_entry, _variant, _kind, _trees)
    if _entry["name"] == "driver_link":
        add(_entry, "c", "self", ["plain", "asan", "tsan"])

# What the program gets, and of which kernel the server's log tells block, thread and line.
MISTAKES = {
    "beyond": ("cudaErrorIllegalAddress", "store", "in no live allocation"),
    "freed": ("cudaErrorIllegalAddress", "store", "in no live allocation"),
    "misaligned": ("cudaErrorMisalignedAddress", "odd", "misaligned address"),
    "barrier": ("cudaErrorLaunchTimeout", "unpaired", "a barrier that cannot complete"),
    "recursion": ("cudaErrorHardwareStackError", "recurse", "is used up"),
}


def make_mistake(what):
    program = t.build_cuda([t.PROGRAMS / "mistakes.cu"], TABLE["flags"], [], "mistakes")
    error, kernel, reason = MISTAKES[what]
    with t.Server() as server:
        done = t.towline_run(server.address("unix"), [program, what], preload=True)
        t.equal((done.returncode, done.stdout), (0, f"{error}\n"), f"what {what} gives")
        t.wait_until(lambda: "ended after" in server.log() or "signal" in server.log(), 10, "the session ends")
        t.check("signal" not in server.log(), f"{what}: the worker did not survive it:\n{server.log()}")
        t.check(re.search(rf"{kernel}.*{reason}.*block 0,0,0, thread \d+,0,0, PTX line \d+", server.log()) is not None,
                f"{what}: the log does not say where:\n{server.log()}")


for _what in MISTAKES:
    t.test(120, trees=("plain", "asan"), name=f"mistake_{_what}")(lambda what=_what: make_mistake(what))



def launch_from_a_kernel(code):
    """The kernel that launches one is refused, with the reason in the log, and the others run."""
    program = t.build_cuda([t.PROGRAMS / "nested.cu"], [*cuda_flags(code), "-rdc=true"], [], f"nested_{'ptx' if code else 'sass'}")
    with t.Server() as server:
        done = t.towline_run(server.address("unix"), [program], preload=True)
        t.equal((done.returncode, done.stdout.splitlines()),
                (0, ["child: cudaSuccess", "parent: cudaErrorNotSupported", "parent: cudaErrorNotSupported",
                     "child: cudaSuccess", "value: 2"]), f"what it printed ({done.stderr})")
        said = re.findall(r"kernel _Z6parentPi was refused: it can call \w+ of the CUDA device runtime.*dynamic parallelism",
                          server.log())
        t.equal(len(said), 1, f"how often the log says why:\n{server.log()}")
        t.equal(len(re.findall(r"soft info: session 1: the code names functions that nothing defines \(\w+ and \d+ more\)", server.log())), 1,
                f"how often the log says what is missing:\n{server.log()}")


t.test(120, trees=("plain", "asan"), name="nested_launch_ptx")(lambda: launch_from_a_kernel("arch=compute_90,code=compute_90"))
t.test(120, name="nested_launch_sass")(lambda: launch_from_a_kernel(None))

STUCK = """
#include <signal.h>
#include <unistd.h>
int cuDeviceGetCount(int *count) { (void)count; for (;;) pause(); }
int cuDeviceGetName(char *name, int size, int device) { (void)name; (void)size; (void)device; return raise(SIGSEGV); }
"""


@t.test(120, waits=True)
def errors_tells_crashes_and_hangs():
    entry = next(e for e in TABLE["programs"] if e["name"] == "errors")
    program = build_program(entry, "c")
    cases = ["device_name_null", "device_negative", "device_count_null", "device_too_high"]
    with t.Server() as server, tempfile.TemporaryDirectory() as folder:
        source, stuck = pathlib.Path(folder, "stuck.c"), pathlib.Path(folder, "stuck.so")
        source.write_text(STUCK)
        subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(stuck)], check=True)
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--", "env", f"LD_PRELOAD={stuck}", program, *cases,
                      "--jobs", "3", "--limit", "3"])
        t.equal(done.stdout.splitlines(), ["device_name_null: crashes", "device_negative: CUDA_ERROR_INVALID_DEVICE",
                                           "device_count_null: hangs", "device_too_high: CUDA_ERROR_INVALID_DEVICE"],
                "the output")
        t.equal(done.returncode, 1, "the exit code")


@t.test()
def compare_errors_forgives_what_it_should():
    table = [  # expected, ours, how it is counted
        ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_VALUE", "equal"),
        ("CUDA_ERROR_INVALID_VALUE / CUDA_SUCCESS", "CUDA_SUCCESS / CUDA_ERROR_INVALID_VALUE", "equal"),
        ("CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_HANDLE", "different"),
        ("CUDA_ERROR_INVALID_VALUE # unsure", "CUDA_SUCCESS", "unsure"),
        ("crashes", "CUDA_ERROR_INVALID_HANDLE", "equal"),
        ("hangs", "CUDA_SUCCESS / CUDA_ERROR_INVALID_HANDLE", "equal"),
        ("crashes", "CUDA_SUCCESS", "unsure"),
        ("crashes", "crashes", "different"),
        ("hangs", "crashes", "different"),
        ("CUDA_SUCCESS # unsure", "hangs", "different"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("expected", "actual")]
        for expected, ours, counted in table:
            for file, answer in zip(files, (expected, ours)):
                file.write_text(f"case: {answer}\n")
            done = subprocess.run([sys.executable, str(t.PROGRAMS / "compare_errors.py"), *map(str, files)],
                                  capture_output=True, text=True)
            t.check(f"1 {counted}" in done.stdout.splitlines()[-1], f"{expected}, {ours}: {done.stdout}")
            t.equal(done.returncode, int(counted == "different"), "the exit code")


if __name__ == "__main__":
    t.main()
