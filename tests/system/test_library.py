#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the client library must be as a guest in someone else's process."""

import pathlib
import re
import subprocess
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"


def tool(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    t.check(done.returncode == 0, done.stderr)
    return done.stdout


@t.test()
def needs_libc_alone():
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "-d", t.LIBCUDA))
    allowed = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
               # The same C library, before 2.34 in files of their own.
               "libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6"}
    t.check(needed, "nothing is needed: readelf was not understood")
    t.check(set(needed) <= allowed, f"the client library needs {sorted(set(needed) - allowed)}")


@t.test()
def is_called_libcuda():
    t.equal(re.findall(r"\(SONAME\).*\[(.*)\]", tool("readelf", "-d", t.LIBCUDA)), ["libcuda.so.1"], "the soname")
    t.check((t.LIBCUDA.parent / "libcuda.so").exists(), "libcuda.so is not beside it")


@t.test()
def exports_the_driver_api_only():
    names = [line.split()[-1] for line in tool("nm", "-D", "--defined-only", t.LIBCUDA).splitlines()]
    names = [re.sub(r"@.*", "", name) for name in names]
    foreign = [name for name in names if not re.fullmatch(r"cu[A-Z]\w*|cudbg\w*", name)]
    t.check(len(names) > 500, f"only {len(names)} names are exported")
    t.check(not foreign, f"exported but not of the driver API: {foreign[:20]}")


@t.test()
def needs_no_newer_glibc_than_2_28():
    versions = set(re.findall(r"GLIBC_(\d+)\.(\d+)", tool("objdump", "-T", t.LIBCUDA)))
    newer = sorted(f"{a}.{b}" for a, b in versions if (int(a), int(b)) > (2, 28))
    if newer:
        glibc = subprocess.run(["ldd", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
        symbols = [line.split()[-1] for line in tool("objdump", "-T", t.LIBCUDA).splitlines()
                   if any(f"GLIBC_{version}" in line for version in newer)]
        t.check(False, f"symbols of GLIBC {newer} are used ({glibc}): {symbols}")


@t.test()
def does_nothing_when_loaded():
    watch = t.BUILD / "test-programs" / "watch_load.so"
    with t.locked(watch.with_name("watch_load.lock")):
        t.build(["gcc", "-O1", "-fPIC", "-shared", str(HELPERS / "watch_load.c"), "-ldl"], watch,
                [HELPERS / "watch_load.c"])
    program = t.build_c(HELPERS / "load.c", ["-ldl", "-rdynamic"], "load")
    done = t.run([program, t.LIBCUDA], env=t.clean_environment(LD_PRELOAD=str(watch)))
    t.check(done.returncode == 0, done.stdout + done.stderr)
    t.equal(done.stdout, "0 descriptors, 0 threads, 0 calls\n", "what loading changed")


# Host functions, managed memory and a large copy, each of which may take threads; then what each thread blocks.
THREADS = """
import contextlib, ctypes as c, os, pathlib, threading

def words(task):
    return dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())

print("before", words(pathlib.Path("/proc/self"))["SigBlk"].strip(), "main")
cu, pointer, wide = c.CDLL("libcuda.so.1"), c.c_void_p, c.c_uint64
context, at, managed, called, size = pointer(), wide(), wide(), threading.Event(), c.c_size_t(64 << 20)
host, function = c.create_string_buffer(size.value), c.CFUNCTYPE(None, pointer)(lambda _: called.set())
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(c.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
assert cu.cuMemAlloc_v2(c.byref(at), size) == 0 and cu.cuMemAllocManaged(c.byref(managed), c.c_size_t(4096), 1) == 0
assert cu.cuMemcpyHtoD_v2(at, host, size) == 0 and cu.cuMemcpyDtoH_v2(host, at, size) == 0
assert cu.cuLaunchHostFunc(None, function, None) == 0 and cu.cuCtxSynchronize() == 0 and called.wait(10)
for task in pathlib.Path("/proc/self/task").iterdir():
    with contextlib.suppress(OSError):  # it has just ended
        its = words(task)
        print("main" if int(task.name) == os.getpid() else "ours", its["SigBlk"].strip(), its["Name"].strip())
"""


@t.test()
def its_threads_take_no_signals():
    """All of them go to the program's threads. SIGKILL and SIGSTOP cannot be blocked, the C library keeps 32 and 33, and
    faults are for the program's handlers, wherever they happen."""
    faults = [signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS]
    every = sum(1 << (number - 1) for number in range(1, 65) if number not in (9, 19, 32, 33, *faults))
    with t.Server() as server:
        for kind in ("tcp", "unix", "shm"):
            done = t.towline_run(server.address(kind), [sys.executable, "-c", THREADS], env={"TOWLINE_LANES": "3"})
            t.equal(done.returncode, 0, f"the exit code over {kind} ({done.stderr})")
            threads = [line.split(None, 2) for line in done.stdout.splitlines()]
            masks = {whose: blocked for whose, blocked, _ in threads if whose != "ours"}
            t.equal(masks["main"], masks["before"], f"what the program's own thread blocks over {kind}")
            ours = [(name, int(blocked, 16) & every) for whose, blocked, name in threads if whose == "ours"]
            print(kind, [name for name, _ in ours])
            t.check(len(ours) >= (3 if kind == "tcp" else 1), f"the library's threads over {kind}: {ours}")
            t.equal([name for name, blocked in ours if blocked != every], [], f"threads over {kind} that take signals")


@t.test()
def memory_that_the_program_guards_is_opened_by_its_handler():
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "guarded.c", ["-lcuda"], "guarded")
    with t.Server() as server:
        for kind, lanes in (("shm", "1"), ("unix", "1"), ("tcp", "1"), ("tcp", "4")):
            done = t.towline_run(server.address(kind), [program], env={"TOWLINE_LANES": lanes})
            t.equal(done.returncode, 0, f"the exit code over {kind}, {lanes} connections ({done.stdout}{done.stderr})")
            t.check(min(map(int, done.stdout.split())) >= 1, f"the handler was not called over {kind}: {done.stdout}")


if __name__ == "__main__":
    t.main()
