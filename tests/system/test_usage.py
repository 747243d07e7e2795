#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The file of ended sessions, and what `towline usage` makes of it."""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

CODE = "import ctypes as c; cu = c.CDLL('libcuda.so.1'); cu.cuInit(0); cu.cuDeviceGet(c.byref(c.c_int()), 0)"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def usage(*flags, code=0):
    done = t.run([t.TOWLINE, "usage", *map(str, flags)])
    t.equal(done.returncode, code, f"the exit code of usage {flags} ({done.stderr})")
    return done


@t.test(120, trees=("plain", "asan"))
def each_ended_session_has_a_line():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        file, config = pathlib.Path(folder) / "usage", pathlib.Path(folder) / "towlined.conf"
        config.write_text(f"usage-file = {file}\nmax-sessions = 1\n[class local]\nnetworks = 127.0.0.1\n")
        with t.Server(f"--config={config}") as server:
            with t.held(server, "leave") as client:
                waiter = subprocess.Popen([str(t.TOWLINE), "run", "-s", server.address("tcp"), "--", *t.preloaded(), "python3", "-c", CODE], stderr=subprocess.PIPE)
                t.wait_until(lambda: server.status()["line"], 20, "one waits")
                time.sleep(1)
                client.communicate(timeout=60)
                waiter.communicate(timeout=60)
            t.wait_until(lambda: len(lines(file)) == 2, 20, "two lines")
            with t.held(server, "poll") as client:
                pass  # killed
            t.wait_until(lambda: len(lines(file)) == 3, 20, "three lines")
            first, second, killed = lines(file)
            t.equal([first["program"], first["class"], first["tenant"]], ["hold", "", f"user {os.getuid()}"], "the first")
            t.check(first["gpu_memory"] >= 256 << 20 and first["wall_s"] >= 1 and first["waited_s"] < 1 + t.SLOW, f"{first}")
            t.equal([second["program"], second["class"], second["tenant"]], ["python3", "local", "127.0.0.1"], "the second")
            t.check(second["waited_s"] >= 1 and second["calls"] >= 0 and second["bytes_in"] > 0, f"{second}")
            t.equal(killed["ended"], "its program's connection ended", "one that was killed")
            t.equal([line["session"] for line in lines(file)], [1, 2, 3], "numbers")
        table = usage("--config", config, "--since", "today").stdout
        t.check(f"user {os.getuid()}" in table and "127.0.0.1" in table and table.startswith("TENANT"), table)
        sums = json.loads(usage("--file", file, "--by", "program", "--json").stdout)
        t.equal(sorted((one["program"], one["sessions"]) for one in sums), [("hold", 2), ("python3", 1)], "by program")
        t.equal(sum(one["bytes_in"] for one in sums), sum(line["bytes_in"] for line in lines(file)), "all bytes")
        t.equal(json.loads(usage("--file", file, "--until", "yesterday", "--json").stdout), [], "until yesterday")
        t.equal(len(json.loads(usage("--file", file, "--by", "day", "--since", "1d", "--json").stdout)), len({
            datetime.datetime.fromtimestamp(line["began_s"]).date() for line in lines(file)}), "days")
        t.equal(len(json.loads(usage("--file", file, "--since", time.strftime("%A"), "--json").stdout)), 2, "since this weekday")


@t.test(120)
def the_file_turns_over():
    """And nothing is lost when it does, but what is in the older one already."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        file = pathlib.Path(folder) / "usage"
        with t.Server(f"--usage-file={file}", "--usage-size=1K") as server:
            seen = []
            for number in range(1, 9):
                t.equal(t.towline_run(server.address(), ["python3", "-c", CODE], preload=True).returncode, 0, "the program's exit code")
                older = pathlib.Path(f"{file}.1")
                t.wait_until(lambda: number in [line["session"] for line in lines(file)], 20, "its line")
                t.check(file.stat().st_size <= 1024 and older.stat().st_size <= 1024, "both stay small")
                seen = [line["session"] for line in lines(older) + lines(file)]
                t.equal(seen, list(range(seen[0], number + 1)), "the lines that are there")
            t.check(1 < len(seen) < 8, f"{seen}")
            total = json.loads(usage("--file", file, "--json").stdout)
            t.equal([one["sessions"] for one in total], [len(seen)], "both files count")
            with file.open("a") as broken:
                broken.write('{"session":\n')
            done = usage("--file", file, "--json")
            t.check("1 lines of" in done.stderr and json.loads(done.stdout) == total, done.stderr)


@t.test(60)
def mistakes_are_named():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        done = t.run([t.TOWLINED, "--device=soft", f"--listen=unix://{folder}/s", f"--usage-file={folder}"])
        t.check(done.returncode != 0 and f"usage-file: {folder} cannot be written" in done.stderr, done.stderr)
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text("max-sessions = 3\n")
        done = t.run([t.TOWLINED, "--device=soft", f"--listen=unix://{folder}/s", f"--usage-file={config}/usage"])
        t.check(done.returncode != 0 and f"usage-file: {config}/usage cannot be written: Not a directory" in done.stderr, done.stderr)
        t.check("names no usage-file" in usage("--config", config, code=1).stderr, "a config without one")
        none = usage("--file", f"{folder}/none", code=1)
        t.check("cannot be read: No such file or directory; towlined makes it when it starts" in none.stderr, none.stderr)
        t.check('"soon" is no time; write a weekday' in usage("--since", "soon", code=2).stderr, "a time")
        t.check("--by=colour is none; write tenant, class" in usage("--by", "colour", code=2).stderr, "a key")
        config.write_text(f"usage-file = {folder}/u\n")
        with t.Server(f"--config={config}") as server:
            config.write_text(f"usage-file = {folder}/other\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "another file of ended sessions" in server.log(), 20, "that it needs a restart")


if __name__ == "__main__":
    t.main()
