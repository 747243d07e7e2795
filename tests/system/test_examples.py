#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every example of examples/, which checks itself, through client and server on the software GPU; and `make demo`."""

import contextlib
import fcntl
import importlib.machinery
import importlib.util
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

RUN = t.ROOT / "examples" / "run"


def names():
    loader = importlib.machinery.SourceFileLoader("examples_run", str(RUN))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("examples_run", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module.names()


def run_example(name, kind):
    if not t.find_nvcc():
        raise t.Skip("nvcc is not installed")
    with t.Server() as server:
        done = t.run([RUN, "--towline", t.TOWLINE, "--nvcc", t.find_nvcc(), "-s", server.address(kind), "--build-dir",
                      t.BUILD / "examples", "--only", name], 240)
        t.check(done.returncode == 0 and "1 passed, 0 failed" in done.stdout,
                f"{name} over {kind}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


def pixels(path):
    """Width, height and rows of a PNG of 8-bit colours without filters, its checksums compared."""
    data = path.read_bytes()
    t.equal(data[:8], b"\x89PNG\r\n\x1a\n", "the first bytes of the picture")
    at, chunks = 8, {}
    while at < len(data):
        size, = struct.unpack(">I", data[at:at + 4])
        kind, body = data[at + 4:at + 8], data[at + 8:at + 8 + size]
        t.equal(struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0], zlib.crc32(kind + body), f"the checksum of {kind}")
        chunks[kind] = body
        at += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = zlib.decompress(chunks[b"IDAT"])
    t.equal((chunks[b"IHDR"][8:], b"IEND" in chunks, len(rows)), (bytes([8, 2, 0, 0, 0]), True, height * (1 + 3 * width)), "its form")
    return width, height, rows


@t.test(300)
def make_demo_ends_well():
    """What `make demo` runs once everything is built: no apt, no compiler but for its program. It builds no tests."""
    t.our_include_flags()  # the header that `make` leaves there
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        env = t.clean_environment(TERM="xterm", TMPDIR=base)
        said = t.run(["make", "--no-print-directory", "-n", "-C", t.ROOT, "demo", f"BUILD={t.BUILD}"], env=env).stdout
        builds, command = re.search(r"^ninja .*$", said, re.M).group(0), said.splitlines()[-1]
        t.check("examples/demo" in command, f"`make demo` runs something else: {said}")
        steps = t.run(["ninja", "-C", t.BUILD, "-t", "commands", *builds.split(str(t.BUILD))[1].split()]).stdout
        t.check("libcuda.so.1" in steps and "/tests/" not in steps.replace(str(t.ROOT), ""), "`make demo` builds tests")
        done = t.run(["sh", "-c", command], 240, cwd=t.ROOT, env=env)
        t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
        t.equal(done.stdout.splitlines()[-1], "demo: everything came out right", "the last line")
        t.check(re.search(r"^mandelbrot: 388800 points, computed on Towline Software GPU, are in .*/demo/mandelbrot.png$", done.stdout, re.M),
                done.stdout)
        t.check("\033" not in done.stdout, "it draws where there is no terminal")
        t.equal(os.listdir(base), [], "what is left in TMPDIR")
        width, height, rows = pixels(t.BUILD / "demo" / "mandelbrot.png")
        colours = {rows[at:at + 3] for y in range(height) for at in range(y * (1 + 3 * width) + 1, (y + 1) * (1 + 3 * width), 3)}
        middle = (height // 2) * (1 + 3 * width) + 1 + 3 * int(width * 2.25 / 3.2)
        t.check(len(colours) > 50 and rows[middle:middle + 3] == b"\0\0\0", f"{len(colours)} colours, and {rows[middle:middle + 3]} at 0")
        # The commands that it ends with are there, and the first two of them run.
        shown = re.findall(r"^  (\S*bin/towline .+)$", done.stdout, re.M)
        t.equal(len(shown), 3, f"commands to try next ({done.stdout}); their number")
        for words in shown[:2]:
            done = t.run(["sh", "-c", words], 120, cwd=t.ROOT, env={**env, "XDG_RUNTIME_DIR": base, "XDG_CONFIG_HOME": base})
            t.equal(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}; the exit code")


@t.test(120)
def the_demo_draws_on_a_terminal():
    program = t.build_c(t.ROOT / "examples" / "driver" / "mandelbrot.c", ["-lcuda", "-lm"])
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        for plain, drawn in (("", 30), ("1", 0)):
            ours, its = pty.openpty()
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            env = t.clean_environment(TERM="xterm", NO_COLOR=plain)
            with subprocess.Popen([str(t.TOWLINE), "run", "--device", "soft", "--", str(program), f"{base}/picture.png"], stdin=its,
                                  stdout=its, stderr=its, env=env):
                os.close(its)
                text = b""
                with contextlib.suppress(OSError):  # the terminal's other side is gone
                    while more := os.read(ours, 1 << 16):
                        text += more
            os.close(ours)
            lines = [line for line in text.decode().splitlines() if "\u2580" in line]
            t.equal(len(lines), drawn, f"lines of the picture (NO_COLOR={plain})")
            t.check(all(line.count("\u2580") == 80 for line in lines) and text.endswith(b"OK\r\n"), f"{text[-200:]}")


_drawn = t.drawn(names(), len(names()) // 4)
for _index, _name in enumerate(names()):
    if _name not in _drawn:
        continue
    # By turns, so that all transports see some of them.
    _kind = ("unix", "tcp", "shm")[_index % 3]
    t.test(300, name=_name, matrix="examples")(lambda name=_name, kind=_kind: run_example(name, kind))


if __name__ == "__main__":
    t.main()
