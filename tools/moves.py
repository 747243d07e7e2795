#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far a call travels inside the client: entries of functions on the caller's thread, and moves between files.

  tools/moves.py BUILD             calls, each over one kind of line: entries, functions, files, moves
  tools/moves.py --check BUILD     the same, and fails where there are more moves than their limits (make check-moves)

A move is an entry into a function of another file than the entry before; returns do not count, nor do locks. The client is
compiled anew without optimisation and with -finstrument-functions (tools/moves.c), towlined is BUILD's. Needs addr2line (binutils). Over
tcp there are four connections, whatever the machine has; "lasting" is tcp that outlives them. Each call is made three times, and the one with the fewest moves
counts: now and then a thread that sleeps must be woken, or a ring is emptied by the caller.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A call, its line, and the most moves it may make.
FLOWS = (("launch", "tcp", 34), ("upload", "tcp", 43), ("download", "shm", 240), ("module", "tcp", 150),
         ("launch", "lasting", 36), ("upload", "lasting", 100))
TRIES = 3
FOLDERS = ("base", "wire", "transport", "client")
# A lock is a word of the language to who reads, whichever header has it.
FLAGS = ["-finstrument-functions", "-finstrument-functions-exclude-file-list=base/lock.h,base/locks.h,base/mutex.h"]
LANES = "4"  # connections: otherwise there are as many as this machine's processors allow


def commands(build):
    """{source: its command} of all that libcuda.so.1 is made of."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = (build / entry["file"]).resolve()
        ours = any(source.is_relative_to(ROOT / "src" / folder) for folder in FOLDERS)
        generated = source.parent == build / "src" / "gen" and source.name.endswith(("_client.c", "functions.c", "_procs.c"))
        if (ours or generated) and entry["output"].startswith("src/"):
            found.setdefault(source, entry["command"])
    return found


def compiled(build, command, target, flags):
    words = shlex.split(command)
    for option in ("-MQ", "-MF"):
        at = words.index(option)
        del words[at:at + 2]
    words[words.index("-o") + 1] = str(target)
    words = [word for word in words if word not in ("-MD", "-O2", "-O3")]
    subprocess.run([*words, "-O0", "-g", *flags], cwd=build, check=True)
    return target


def program(build, folder):
    """The client with tools/moves.c, as one program whose addresses are its file's."""
    everything = commands(build)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda item: compiled(build, item[1][1], folder / f"{item[0]}.o", FLAGS),
                             enumerate(sorted(everything.items()))))
    out = folder / "moves"
    subprocess.run(["cc", "-std=gnu17", "-g", "-no-pie", "-I", build / "src", ROOT / "tools" / "moves.c", *made, "-o", out,
                    "-lpthread", "-ldl", "-lm"], check=True)
    return out


def inside(file):
    """One name for a file: headers are reached by links (tools/rooms.py), and ccache may know another checkout's."""
    return os.path.realpath(file).rpartition("/src/")[2]


def walk(path, flow, address):
    """[(function, file)] in the order of entries."""
    done = subprocess.run([path, flow], env={**os.environ, "TOWLINE_SERVER": address, "TOWLINE_LANES": LANES},
                          capture_output=True, text=True, check=True)
    addresses = done.stdout.split()
    names = subprocess.run(["addr2line", "-f", "-e", path, *sorted(set(addresses))], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    where = {at: (names[2 * i], inside(names[2 * i + 1].split(":")[0])) for i, at in enumerate(sorted(set(addresses)))}
    return [where[at] for at in addresses]


def moves(entries):
    files = [file for _, file in entries]
    return sum(a != b for a, b in zip(files, files[1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="fails where there are more moves than their limits")
    args = parser.parse_args()
    build = args.build.resolve()
    os.environ["TOWLINE_BUILD"] = str(build)
    sys.path.insert(0, str(ROOT / "tests" / "lib"))
    import towtest  # noqa: E402  (it looks for the build when it is loaded)
    wrong = []
    with tempfile.TemporaryDirectory(prefix="towline-moves-") as folder, towtest.Server("--reconnect=0") as plain, towtest.Server() as lasting:
        path = program(build, pathlib.Path(folder))
        print(f"{'':10}{'':8}{'entries':>10}{'functions':>11}{'files':>8}{'moves':>8}")
        for flow, kind, most in FLOWS:
            address = lasting.address("tcp") if kind == "lasting" else plain.address(kind)
            entries = min((walk(path, flow, address) for _ in range(TRIES)), key=moves)
            files = {file for _, file in entries}
            print(f"{flow:10}{kind:8}{len(entries):10}{len(set(entries)):11}{len(files):8}{moves(entries):8}")
            if moves(entries) > most:
                wrong.append(f"failed: {flow} over {kind} makes {moves(entries)} moves between files; the limit is {most} (tools/moves.py)")
    if args.check:
        print(*wrong, f"{len(FLOWS) - len(wrong)} passed, {len(wrong)} failed", sep="\n")
    return 1 if args.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
