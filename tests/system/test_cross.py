#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Client and server of different machines: the other of x86-64 and arm64 is built here and runs in an emulator.

Needs, on Debian, gcc-x86-64-linux-gnu libc6-dev-amd64-cross qemu-user (on x86-64: gcc-aarch64-linux-gnu
libc6-dev-arm64-cross qemu-user). The first build takes some minutes, in build-x86-64 (build-arm64) beside this tree.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

OTHERS = {
    "aarch64": ("x86_64", "x86-64", "gcc-x86-64-linux-gnu libc6-dev-amd64-cross qemu-user"),
    "x86_64": ("aarch64", "arm64", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"),
}
BUILD_LIMIT = 1500


def other():
    """(the other machine's name, its tree, the emulator's command)"""
    if platform.machine() not in OTHERS:
        raise t.Skip(f"nobody said what the other machine of {platform.machine()} is")
    machine, name, packages = OTHERS[platform.machine()]
    triplet = f"{machine}-linux-gnu"
    emulator = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    if not shutil.which(f"{triplet}-gcc") or not emulator:
        raise t.Skip(f"no compiler for {name}, or no emulator of it (apt install {packages})")
    return machine, t.BUILD.with_name(f"{t.BUILD.name}-{name}"), [emulator, "-L", f"/usr/{triplet}"]


def built(*targets):
    """The other machine's tree with these built in it, and the emulator's command."""
    machine, tree, emulator = other()
    with t.locked(t.BUILD / f"{tree.name}.lock"):
        if not (tree / "build.ninja").exists():
            cross = t.BUILD / f"{tree.name}.ini"
            cross.write_text(f"[binaries]\nc = '{machine}-linux-gnu-gcc'\nar = '{machine}-linux-gnu-ar'\n"
                             f"strip = '{machine}-linux-gnu-strip'\nexe_wrapper = {emulator!r}\n"
                             f"[host_machine]\nsystem = 'linux'\ncpu_family = '{machine}'\ncpu = '{machine}'\n"
                             "endian = 'little'\n")
            env = {key: value for key, value in os.environ.items() if key not in ("CC", "CFLAGS", "LDFLAGS")}
            done = subprocess.run(["meson", "setup", str(tree), str(t.ROOT), f"--cross-file={cross}", "-Doptimization=0"],
                                  env=env, capture_output=True, text=True)
            t.check(done.returncode == 0, done.stdout + done.stderr)
        done = subprocess.run(["ninja", "-C", str(tree), *targets], capture_output=True, text=True)
        t.check(done.returncode == 0, done.stdout[-4000:] + done.stderr)
    return tree, emulator


@t.test(limit=BUILD_LIMIT, alone=True, matrix="the same for all users", whole=True)
def the_other_machine_agrees_on_every_byte():
    tree, emulator = built("tests/apigen/test_golden")
    golden = t.ROOT / "tests" / "apigen" / "golden" / "wire.txt"
    done = t.run([*emulator, tree / "tests" / "apigen" / "test_golden", golden], timeout=300)
    t.equal(done.returncode, 0, f"test_golden's exit code\n{done.stdout}{done.stderr}")


@t.test(limit=BUILD_LIMIT, alone=True, matrix="the same for all users", whole=True)
def a_client_of_the_other_machine_works_with_this_server():
    programs = ("api_graph", "api_places", "api_hostmem")
    tree, emulator = built("lib/libcuda.so.1", *(f"tests/api/{name}" for name in programs))
    with t.Server() as server:
        for name in programs:
            command = [*emulator, "-E", f"LD_LIBRARY_PATH={tree / 'lib'}", "-E",
                       f"TOWLINE_SERVER={server.address('tcp')}", tree / "tests" / "api" / name]
            done = t.run(command, timeout=300)
            t.equal(done.returncode, 0, f"{name}'s exit code\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    t.main()
