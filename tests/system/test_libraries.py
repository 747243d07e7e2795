#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs on NVIDIA's libraries (tests/gpu/programs), which know nothing of Towline, on the software GPU.

Each checks some of its results and ends with OK. Where numbers have so few bits that every order of adding gives the same
sum, all of them are compared with what is computed here. cuBLAS, cuDNN ... have machine code (SASS) for GPUs that they know,
so they get a capability newer than they are, for which they hand over PTX.

What does not run on the software GPU: `dynamic` (the device runtime calls
functions inside NVIDIA's driver), `hopper` (tensor maps).
What takes too long for here: cuRAND's MRG32K3A (4 s) and MT19937 (100 s), `cudnn_graph` (7 s), `nccl` (25 s, and its library is in
no toolkit).
"""

import cmath
import json
import pathlib
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

FOLDER = t.ROOT / "tests" / "gpu" / "programs"
ENTRIES = {entry["name"]: entry for entry in json.loads((FOLDER / "programs.json").read_text())["programs"]}
FLAGS = ["-O1", "-std=c++17", "-gencode", "arch=compute_90,code=compute_90"]
NEWER = "--soft-capability=13.0"


def build(name):
    nvcc = t.find_nvcc()
    if not nvcc:
        raise t.Skip("nvcc is not installed")
    entry = ENTRIES[name]
    flags = [*entry.get("flags", []), *(f"-l{package}" for package in entry.get("packages", []))]
    libraries = pathlib.Path(nvcc).resolve().parent.parent / "lib64"
    missing = [flag[2:] for flag in flags if flag not in ("-ldl", "-lcuda") and not (libraries / f"lib{flag[2:]}.so").exists()]
    if missing:
        raise t.Skip(f"the CUDA toolkit has no {' '.join(missing)}")
    sources = [FOLDER / source for source in entry["sources"]]
    if entry.get("language") == "c":
        return t.build_c(sources[0], flags, f"library-{name}")
    target = t.BUILD / "test-programs" / f"library-{name}"
    with t.locked(target.with_name(target.name + ".lock")):
        command = [nvcc, *FLAGS, *map(str, sources), f"-L{t.BUILD / 'lib'}", *flags]
        return t.build(command, target, [*sources, *FOLDER.glob("*.h")])


class Results:
    """The lines `WHAT: COUNT x SIZE bytes, hash HASH, begins BYTES` of a program's output."""

    def __init__(self, text):
        found = re.findall(r"^(.*): (\d+) x \d+ bytes, hash ([0-9a-f]{16}), begins((?: [0-9a-f]{2})+)$", text, re.M)
        self.lines = [(what, int(count), code, bytes.fromhex(begins)) for what, count, code, begins in found]

    def of(self, what):
        lines = [line for line in self.lines if line[0] == what]
        t.check(lines, f"there is no result called {what!r} among {[line[0] for line in self.lines]}")
        return lines

    def equal(self, what, form, values, times=1):
        """All values, by their hash; `form` as struct has it."""
        lines = self.of(what)
        t.equal(len(lines), times, f"the number of results called {what!r}")
        data = struct.pack(f"<{len(values)}{form}", *values)
        wanted = (what, len(values), f"{hash_of(data):016x}", data[:16])
        for line in lines:
            t.equal(line, wanted, "a result")

    def near(self, what, numbers):
        """The first complex numbers, two at most."""
        begins = struct.unpack("<4f", self.of(what)[0][3])
        for i, number in enumerate(numbers):
            got = complex(*begins[2 * i:2 * i + 2])
            t.check(abs(got - number) < 1e-3 + 1e-4 * abs(number), f"number {i} of {what} is {got}, not {number}")


def hash_of(data):
    code = 14695981039346656037
    for byte in data:
        code = (code ^ byte) * 1099511628211 & 0xffffffffffffffff
    return code


def number(i):
    """As in bits.h."""
    x = i * 2654435761 & 0xffffffff
    x ^= x >> 15
    x = x * 2246822519 & 0xffffffff
    x ^= x >> 13
    return (x % 65 - 32) / 32


def run(name, *arguments, flags=()):
    program = build(name)
    with t.Server(*flags) as server:
        # A cache of its own: what other runs have remembered of cubins must not help.
        env = {"CUDA_CACHE_PATH": str(server.folder / "client-cache")}
        done = t.towline_run(server.address(), [program, *arguments], 100, env=env)
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
                f"{name} {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-3000:]}")
    return Results(done.stdout)


@t.test(150, matrix="libraries")
def nvrtc():
    results = run("nvrtc")
    # From PTX and from a cubin, of which the client knows the PTX.
    results.equal("floats", "f", [number(i) * 64 * 5 + 4 for i in range(1000)], times=2)
    results.equal("ints", "i", [int(number(i) * 64) * 5 + 4 for i in range(1000)], times=2)


@t.test(150, matrix="libraries")
def nvjitlink():
    for kind in ("lto-to-ptx", "lto-to-cubin", "ptx-to-cubin"):
        run("nvjitlink", kind).equal(kind, "i", [2 * i * i + 10 * (i % 4 + 1) for i in range(1000)])


@t.test(150, matrix="libraries")
def nvml():
    run("nvml")


def cublas():
    results = run("cublas", flags=[NEWER])
    for m, n, k in ((64, 64, 64), (127, 33, 65), (1, 1000, 7)):
        rows = [[number(i * m + row) for i in range(k)] for row in range(m)]
        columns = [[number(1000000 + column * k + i) for i in range(k)] for column in range(n)]
        results.equal(f"SGEMM {m} x {n} x {k}", "f", [sum(map(float.__mul__, row, column)) for column in columns for row in rows])
        results.of(f"HGEMM {m} x {n} x {k}")
    results.equal("SDOT", "f", [sum(number(i) * number(i + 7) for i in range(100000))])


def cublaslt():
    run("cublaslt", flags=[NEWER])


def cufft():
    results = run("cufft", flags=[NEWER])
    for n in (64, 1000, 4096, 30030):
        values = [complex(number(i), number(i + 500000)) for i in range(n)]
        turn = -2j * cmath.pi / n
        results.near(f"C2C {n}", [sum(values), sum(value * cmath.exp(turn * i) for i, value in enumerate(values))])
        results.near(f"C2C {n} back", [n * value for value in values[:2]])
    image = [number(i) for i in range(48 * 60)]
    results.near("R2C 48 x 60", [sum(image), sum(value * cmath.exp(-2j * cmath.pi * i / 60) for i, value in enumerate(image))])


def philox(counter, key):
    """Philox4x32 with ten rounds."""
    for _ in range(10):
        a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = (b >> 32 ^ counter[1] ^ key[0], b & 0xffffffff, a >> 32 ^ counter[3] ^ key[1], a & 0xffffffff)
        key = (key[0] + 0x9E3779B9 & 0xffffffff, key[1] + 0xBB67AE85 & 0xffffffff)
    return counter


def curand():
    results = run("curand", "XORWOW", "PHILOX")
    # The numbers that cuRAND's manual prints for its example.
    first = [f"{bits / 2**32:.4f}" for bits in struct.unpack("<4I", results.of("XORWOW bits")[0][3])]
    t.equal(first, ["0.1455", "0.8202", "0.5504", "0.2948"], "what XORWOW begins with")
    # Each four numbers are the first of a sequence of their own.
    results.equal("PHILOX bits", "I", [bits for i in range(5000) for bits in philox((0, 0, i, 0), (1234, 0))])
    t.equal(len(results.lines), 6, "the number of results")


def cusparse():
    results = run("cusparse", flags=[NEWER])
    rows, columns, wide = 300, 200, 8
    matrix = [[(column, number(row + 3 * column)) for column in range(columns) if number(row * columns + column + 77) > 0.9]
              for row in range(rows)]
    x = [number(i + 9000) for i in range(columns * wide)]
    product = [sum(value * x[w * columns + column] for column, value in row) for w in range(wide) for row in matrix]
    results.equal("SpMV", "f", product[:rows])
    results.equal("SpMM", "f", product)
    decomposed = [2.0, 1.0] + [3.0, 2.0, 1.0] * 98 + [3.0, 2.0]
    results.equal("ILU", "f", decomposed)


def cusolver():
    run("cusolver", flags=[NEWER]).equal("info", "i", [0])


def cudnn():
    results = run("cudnn", flags=[NEWER])
    # 64 images of 20 x 24 numbers, one below the other.
    results.equal("largest of each 2 x 2", "f", [
        max(number((row + y) * 24 + column + x) for y in (0, 1) for x in (0, 1))
        for row in range(0, 64 * 20, 2) for column in range(0, 24, 2)])


for _library in t.drawn(("cublas", "cublaslt", "cufft", "curand", "cusparse", "cusolver", "cudnn"), 4):
    t.test(150, matrix="libraries")(globals()[_library])


if __name__ == "__main__":
    t.main()
