# SPDX-License-Identifier: Apache-2.0
"""Runs forms through the runner, keeps recordings, compares."""

import concurrent.futures
import json
import lzma
import math
import os
import pathlib
import struct
import subprocess
import tempfile

import core

HERE = pathlib.Path(__file__).resolve().parent
RECORDINGS = HERE / "recordings.xz"


def build_runner(folder):
    path = pathlib.Path(folder) / "runner"
    subprocess.run([os.environ.get("CC", "gcc").split()[-1], "-O2", "-std=gnu17", "-o", str(path),
                    str(HERE / "runner.c"), "-ldl"], check=True)
    return path


def write_work(path, forms, pool):
    with open(path, "wb") as out:
        out.write(struct.pack("<II", len(forms), len(pool)) + pool)
        for form in forms:
            text = form.ptx().encode() + b"\0"
            data = form.texture.data() if form.texture else b""
            head = form.texture.head() if form.texture else (0,) * 10
            block = min(core.BLOCK, form.n)
            out.write(struct.pack("<15I", len(text), form.n // block, block, form.out_bytes(), len(data), *head))
            out.write(text + data)


def read_results(path):
    """(status, bytes) of each form that ended."""
    raw, at, results = pathlib.Path(path).read_bytes(), 0, []
    while at + 8 <= len(raw):
        status, length = struct.unpack_from("<iI", raw, at)
        if at + 8 + length > len(raw):
            break
        results.append((status, raw[at + 8:at + 8 + length]))
        at += 8 + length
    return results


def run_part(forms, pool, folder, runner, prefix, number, environment):
    """Results of these forms, in order; a form that ends the process has status -1. Also what the device is."""
    work, result = folder / f"work{number}", folder / f"result{number}"
    write_work(work, forms, pool)
    results, device = [], ""
    while len(results) < len(forms):
        done = subprocess.run([*prefix, str(runner), str(work), str(result), str(len(results))], capture_output=True,
                              text=True, errors="replace", env=environment)
        fresh = read_results(result)
        if not fresh and not done.stdout:
            why = f"the runner does not start: {done.stderr.strip()[-500:]}".encode()
            results += [(-1, why)] * (len(forms) - len(results))
            break
        device = done.stdout.strip() or device
        results += fresh
        if done.returncode and len(results) < len(forms) and (not fresh or fresh[-1][0] == 0):
            why = "did not end in time" if done.returncode in (-14, 142) else \
                f"ended the process ({done.returncode}): {done.stderr.strip()[-300:]}"
            results.append((-1, why.encode()))
    return results, device


def run(forms, prefix=(), jobs=1, environment=None):
    """{name: (status, bytes)} and the device's name and driver version."""
    pool, found, device = core.pool(), {}, ""
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as threads:
        folder = pathlib.Path(folder)
        runner = build_runner(folder)
        parts = [forms[i::jobs] for i in range(jobs)]
        answers = threads.map(lambda item: run_part(item[1], pool, folder, runner, prefix, item[0], environment),
                              list(enumerate(parts)))
        for part, (results, device) in zip(parts, answers):
            found.update({form.name: result for form, result in zip(part, results)})
    return found, device


# ---- recordings: a header in JSON, a zero byte, then the memory of all forms in the header's order ----

def save(path, forms, results, header):
    entries, blobs = [], []
    for form in forms:
        status, data = results[form.name]
        entries.append([form.name, form.digest(), status, form.out_bytes() if status == 0 else
                        data.decode(errors="replace").strip()])
        if status == 0:
            blobs.append(data)
    raw = json.dumps({**header, "forms": entries}).encode() + b"\0" + b"".join(blobs)
    packed = lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME)
    pathlib.Path(path).write_bytes(packed)
    return len(packed)


def load(path):
    """The header and {name: (digest, status, bytes or text)}."""
    raw = lzma.decompress(pathlib.Path(path).read_bytes())
    end = raw.index(b"\0")
    header, at, found = json.loads(raw[:end]), end + 1, {}
    for name, digest, status, what in header.pop("forms"):
        if status == 0:
            found[name] = (digest, status, raw[at:at + what])
            at += what
        else:
            found[name] = (digest, status, what)
    return header, found


# ---- comparing ----

def halves(kind):
    return (kind[:-2], 2) if kind.endswith("x2") else (kind, 1)


def number(kind, bits):
    if kind == "f16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    if kind == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    if kind == "f32":
        return struct.unpack("<f", struct.pack("<I", bits))[0]
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def order(kind, bits):
    """Floats to integers so that neighbours differ by one."""
    top = {"f16": 15, "bf16": 15, "f32": 31, "f64": 63}[kind]
    return -(bits & ((1 << top) - 1)) if bits >> top else bits


def power(text):
    return 2.0 ** float(text[2:]) if text.startswith("2^") else float(text)


def near(bound, kind, got, wanted, scale):
    """Whether two floats are within the bound; scale: the largest recorded magnitude of the launch (mma)."""
    if got == wanted:
        return True
    a, b = number(kind, got), number(kind, wanted)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if (math.isinf(a) or math.isinf(b)) and bound.startswith("mma") and kind == "f16":
        # a sum that runs over on the way: the order of additions is open
        return (a > 0) == (b > 0) and min(abs(a), abs(b)) >= 32768.0
    if math.isinf(a) or math.isinf(b):
        return "ulp" in bound and abs(order(kind, got) - order(kind, wanted)) <= int(bound.split()[1])
    for rule in bound.split(" or "):
        how, amount = rule.split()
        if how == "ulp" and abs(order(kind, got) - order(kind, wanted)) <= int(amount):
            return True
        if how == "abs" and abs(a - b) <= power(amount):
            return True
        if how == "rel" and abs(a - b) <= power(amount) * abs(b):
            return True
        if how == "mma" and abs(a - b) <= power(amount) * scale:
            return True
    return False


def elements(form, data):
    """For each result array: its kind and values."""
    for kind, offset, size in form.out_layout()[0]:
        yield kind, struct.unpack_from(f"<{form.n}{ {2: 'H', 4: 'I', 8: 'Q'}[size]}", data, offset)


def inputs(form, case):
    parts = [f"{core.values(key)[case]:#x}" for key in form.ins]
    return ", ".join(parts) or "no operands"


def scale_of(kind, recorded, warp):
    magnitudes = [abs(number(kind, bits)) for bits in recorded[warp * 32:warp * 32 + 32]]
    return max([m for m in magnitudes if math.isfinite(m)] or [0.0])


def compare(form, got, wanted):
    """[] when equal or within the bound, else one line for each differing value (of the first ones)."""
    if got == wanted:
        return []
    wrong = []
    pairs = zip(elements(form, got), elements(form, wanted))
    for result, ((kind, mine), (_, theirs)) in enumerate(pairs):
        base, parts = halves(kind)
        width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}.get(base, 0)
        for case in range(form.n):
            if mine[case] == theirs[case]:
                continue
            good = bool(form.bound) and base in core.FLOAT
            for part in range(parts if good else 0):
                mask = (1 << width) - 1
                scale = 0.0
                if form.bound.startswith("mma"):
                    scale = scale_of(base, [x >> (16 * part) & mask for x in theirs], case // 32)
                good = good and near(form.bound, base, mine[case] >> (16 * part) & mask,
                                     theirs[case] >> (16 * part) & mask, scale)
            if not good:
                wrong.append(f"case {case} ({inputs(form, case)}), result {result}: {mine[case]:#x} instead of "
                             f"{theirs[case]:#x}")
    return wrong
