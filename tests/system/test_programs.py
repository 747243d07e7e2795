#!/usr/bin/env python3
"""The programs of programs/programs.json, none of which knows about Towline, through client and server."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from towtest import *  # noqa: E402,F403
import towtest as t  # noqa: E402

TABLE = json.loads((t.PROGRAMS / "programs.json").read_text())


def build_program(entry, variant):
    sources = [t.PROGRAMS / source for source in entry["sources"]]
    if entry["language"] == "c":
        return t.build_c(sources[0], entry["flags"], entry["name"])
    return t.build_cuda(sources, [*TABLE["flags"], *entry["flags"]], TABLE["variants"][variant], f"{entry['name']}.{variant}")


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
    output = t.BUILD / "test-programs" / f"{entry['name']}.output"
    output.write_text(done.stdout)
    judged = subprocess.run([sys.executable, str(t.PROGRAMS / entry["compare"]), str(t.PROGRAMS / entry["expected"]),
                             str(output)], capture_output=True, text=True)
    t.check(judged.returncode == 0, f"{judged.stdout}{judged.stderr}\n{text[-3000:]}")


def add(entry, variant, kind, trees):
    limit = entry["timeout"] * len(entry["arguments"]) + 120  # with the compiler, once
    t.test(limit, trees=trees, name=f"{entry['name']}.{variant}.{kind}")(lambda: run_program(entry, variant, kind))


for _entry in TABLE["programs"]:
    for _variant in _entry["variants"]:
        for _kind in ("unix", "tcp"):
            _trees = ["plain"]
            # Under the sanitizers each program once; ThreadSanitizer knows only what it compiled itself.
            if _kind == "unix" and _variant in ("static", "c"):
                _trees.append("asan")
                if _entry["language"] == "c":
                    _trees.append("tsan")
            add(_entry, _variant, _kind, _trees)
        # What a program on the server's own machine gets by default.
        if _variant in ("static", "c"):
            add(_entry, _variant, "shm", ["plain", "asan", "tsan"] if _entry["name"] == "driver_link" else ["plain"])
    if _entry["name"] == "driver_link":
        add(_entry, "c", "self", ["plain", "asan", "tsan"])

if __name__ == "__main__":
    t.main()
