#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients and servers of different versions: of another table, and of the last release."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

ALL = ("plain", "asan", "tsan")
VARIED = t.BUILD / "tests" / "versions"  # a libcuda.so.1 and a towlined of another table: tests/versions/vary.py
NOT_SUPPORTED = 801
NO_AFFINITY = 224  # what the software GPU answers to a question about affinities
NAMES = {"more": "cuFlushGPUDirectRDMAWrites", "fewer": "cuCtxResetPersistingL2Cache", "other": "cuCtxGetExecAffinity",
         "hand": "cuModuleEnumerateFunctions"}


def program():
    return t.build_c(t.ROOT / "tests" / "system" / "helpers" / "versions.c", ["-lcuda"], "versions")


def expect(server, kind, library, answers, named):
    """Runs the program: what the four functions answer, and which of them the log names as the server's lack."""
    env = t.clean_environment(TOWLINE_SERVER=server.address(kind), LD_LIBRARY_PATH=str(library.parent))
    if kind == "unix":
        env["TOWLINE_TRANSPORT"] = "unix"
    # The varied library has both tables, and its own comes first: that is what it is for.
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_odr_violation=0"
    done = t.run([program()], env=env)
    t.equal(done.returncode, 0, f"{kind}: the exit code of the program\n{done.stdout}{done.stderr}\n")
    found = re.findall(r"^(\w+) (\d+)$", done.stdout, re.M)
    t.equal(found, [(key, str(value)) for key, value in answers.items()] * 2, f"{kind}: what the functions answered")
    said = re.findall(r"(cu\w+) is not supported: the server \S+ does not know it", done.stderr)
    t.equal(sorted(said), sorted(NAMES[key] for key in named), f"{kind}: the functions that the log names, each once\n{done.stderr}\n")


@t.test(trees=ALL)
def a_client_of_another_table_works_with_this_server():
    answers = dict.fromkeys(NAMES, NOT_SUPPORTED)
    with t.Server() as server:
        for kind in ("unix", "tcp", "shm"):
            # What it has fewer it refuses itself.
            expect(server, kind, VARIED / "libcuda.so.1", answers, ("more", "other", "hand"))


@t.test(trees=ALL)
def a_server_of_another_table_works_with_this_client():
    answers = dict.fromkeys(NAMES, NOT_SUPPORTED)
    with t.Server(towlined=VARIED / "towlined") as server:
        for kind in ("unix", "tcp", "shm"):
            expect(server, kind, t.LIBCUDA, answers, ("fewer", "other", "hand"))


@t.test(trees=ALL)
def where_both_have_one_table_nothing_is_lacking():
    with t.Server() as server:
        expect(server, "tcp", t.LIBCUDA, {"more": NOT_SUPPORTED, "fewer": 0, "other": NO_AFFINITY, "hand": 0}, ())
    with t.Server(towlined=VARIED / "towlined") as server:
        # The one that they have more is for the server's driver to refuse.
        answers = {"more": NOT_SUPPORTED, "fewer": NOT_SUPPORTED, "other": NO_AFFINITY, "hand": 0}
        expect(server, "tcp", VARIED / "libcuda.so.1", answers, ())
        t.check("cuFlushGPUDirectRDMAWrites is not supported by this device" in server.log(), server.log())


@t.test(trees=ALL)
def the_server_runs_no_handler_of_another_signature():
    wrong, number = dict(raw.TRAVELS), raw.FUNCTIONS["cuMemAlloc_v2"]
    wrong[number] ^= 1
    del wrong[raw.FUNCTIONS["cuMemGetInfo_v2"]]
    wrong[0xEFFF] = 5
    with t.Server() as server, raw.Client(server, greet=False) as client:
        client.socket.sendall(raw.hello(travels=sorted(wrong.items())))
        kind, _, _, body = client.receive()
        t.equal(kind, raw.WELCOME, "the answer to the hello")
        t.check(struct.pack("<III", 2, number, 0xEFFF) in body[-16:], f"the welcome does not name what is lacking: {body[-16:].hex()}")
        client.begin()
        t.equal(client.call("cuMemAlloc_v2", struct.pack("<Q", 4096))[0], NOT_SUPPORTED, "the result of a function of another signature")
        t.equal(client.call("cuMemGetInfo_v2")[0], NOT_SUPPORTED, "the result of a function that the client said it does not have")
        for unknown in (1400, 0xEFFF):
            raw.FUNCTIONS["unknown"] = unknown
            t.equal(client.call("unknown", bytes(64))[0], NOT_SUPPORTED, f"the result of function {unknown}")
            client.send("unknown", bytes(8))
            t.equal(client.call("cuCtxSynchronize")[0], NOT_SUPPORTED, f"the error that function {unknown} left")
            t.equal(client.call("cuCtxSynchronize")[0], 0, "the result behind it")


@t.test(trees=ALL)
def a_hello_whose_functions_cannot_be_read_is_refused():
    some = sorted(raw.TRAVELS.items())
    with t.Server() as server:
        for travels in ([], some[::-1], [*some, some[-1]], [*some, (0xF000, 1)], [(1, 0), *some]):
            with raw.Client(server, greet=False) as client:
                client.socket.sendall(raw.hello(travels=travels))
                kind, _, _, body = client.receive()
                t.equal(kind, 0xF002, f"the answer to a hello with {len(travels)} functions")
                t.check(b"cannot be understood" in body, f"the sentence: {body!r}")


# ---- the last release ----

def release():
    """The commit that RELEASE names, if this tree has its history."""
    commit = [line for line in (t.ROOT / "RELEASE").read_text().split("\n") if line and not line.startswith("#")][0]
    git = shutil.which("git")
    if not git or subprocess.run([git, "-C", str(t.ROOT), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True).returncode:
        raise t.Skip(f"the history of this tree is not here: there is no commit {commit[:12]}")
    return commit


def text_of(commit, path):
    done = subprocess.run(["git", "-C", str(t.ROOT), "show", f"{commit}:{path}"], capture_output=True, text=True)
    t.check(done.returncode == 0, done.stderr)
    return done.stdout


def protocols(text):
    return tuple(int(re.search(rf"TOW_PROTOCOL_{end} (\d+)u", text)[1]) for end in ("MIN", "MAX"))


def built(commit):
    """Its programs and its library, built once for each commit. Nothing else of it is, and nothing is optimised: not even the
    software GPU, which asks for it by itself and takes a third of the time then."""
    folder = t.BUILD / "release" / commit
    with t.locked(folder.with_name(f"{commit}.lock")):
        if (folder / "done").exists():
            return folder
        for old in folder.parent.iterdir():  # of releases before
            if old.is_dir():
                shutil.rmtree(old)
        (folder / "source").mkdir(parents=True)
        whole = subprocess.run(["git", "-C", str(t.ROOT), "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=whole, check=True)
        for asks in (folder / "source" / "src").rglob("meson.build"):
            asks.write_text(asks.read_text().replace("'-O3'", "'-O0'"))
        tree = folder / "tree"
        for command in (["meson", "setup", str(tree), str(folder / "source"), "-Doptimization=0", "-Ddebug=false"],
                        ["ninja", "-C", str(tree), "bin/towlined", "bin/towline", "lib/libcuda.so.1"]):
            done = subprocess.run(command, capture_output=True, text=True)
            t.check(done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        for part in ("bin", "lib"):
            (folder / part).mkdir()
            for file in (tree / part).iterdir():
                if file.is_file():
                    shutil.copy2(file, folder / part)
        shutil.rmtree(tree)
        shutil.rmtree(folder / "source")
        (folder / "done").touch()
    return folder


def meet(server, client, ours, theirs, older):
    """`client` runs the program on `server`: it works, or one sentence says which side to renew."""
    for kind in ("unix", "tcp", "shm"):
        env = t.clean_environment()
        if kind == "unix":
            env["TOWLINE_TRANSPORT"] = "unix"
        done = t.run([client / "bin" / "towline", "run", "-s", server.address(kind), "--", program()], env=env)
        if max(ours[0], theirs[0]) <= min(ours[1], theirs[1]):
            t.equal(done.returncode, 0, f"{kind}: the exit code\n{done.stdout}{done.stderr}\n")
            continue
        t.check(done.returncode != 0, f"{kind}: the program works, though protocol {theirs} is not {ours}")
        told = [line for line in done.stderr.splitlines() if "speaks Towline protocol" in line]
        t.equal(len(told), 1, f"{kind}: the lines that say why\n{done.stderr}\n")
        t.check(f"install a newer Towline on the {older}" in told[0], f"{kind}: {told[0]}")


@t.test(600, matrix="the same for all users", whole=True)
def the_last_release_and_this_tree():
    commit = release()
    theirs = protocols(text_of(commit, "src/wire/limits.h"))
    ours = protocols((t.ROOT / "src" / "wire" / "limits.h").read_text())
    folder = built(commit)
    with t.Server(towlined=folder / "bin" / "towlined") as server:
        meet(server, t.BUILD, ours, theirs, "server")
    with t.Server() as server:
        meet(server, folder, ours, theirs, "client")


@t.test()
def numbers_of_the_last_release_mean_what_they_did():
    """Functions, control frames and kinds of handles: what goes keeps its number."""
    commit = release()
    names = subprocess.run(["git", "-C", str(t.ROOT), "ls-tree", "--name-only", commit, "api/"], capture_output=True, text=True,
                           check=True).stdout.split()
    compared = 0
    for pattern, paths in ((r"^(?:fn|gone) (\d+) (cu\w+)", [name for name in names if name.endswith(".api")]),
                           (r"^    TOW_CONTROL_(\w+) = (0x\w+),", ["src/wire/frame.h"]), (r"^handle (\d+) (\w+)", ["api/types.api"])):
        now = {}
        for path in [str(p.relative_to(t.ROOT)) for p in (t.ROOT / "api").glob("*.api")] if pattern.startswith("^(?:fn") else paths:
            now.update(pair[::-1] if pair[1][0].isalpha() else pair for pair in re.findall(pattern, (t.ROOT / path).read_text(), re.M))
        for path in paths:
            for pair in re.findall(pattern, text_of(commit, path), re.M):
                name, number = pair[::-1] if pair[1][0].isalpha() else pair
                t.equal(now.get(name), number, f"the number of {name}, which was released ({path})")
                compared += 1
    t.check(compared > 500, f"only {compared} numbers were compared")


if __name__ == "__main__":
    t.main()
