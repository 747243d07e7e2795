#!/usr/bin/env python3
"""What the client library must be as a guest in someone else's process."""

import pathlib
import re
import subprocess
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


if __name__ == "__main__":
    t.main()
