#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`towline bench` and tests/gpu/bench: what they print, not how fast this machine is."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import pty
import re
import statistics
import subprocess
import sys
import tempfile
import time
import types
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

GPU_BENCH = t.ROOT / "tests" / "gpu" / "bench"
LATENCIES = {"launch_enqueue", "launch_sync", "memset_sync", "event_record", "alloc_free_1mib", "alloc_free_2mib", "copy_4b_d2h",
             "copy_4b_h2d"}


# Says at a program's end which libcuda it had.
WITNESS = r"""
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((destructor)) static void say(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
    struct link_map *map;
    FILE *file = library ? fopen(getenv("WITNESS"), "a") : NULL;
    if (file && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
        fprintf(file, "%s %s\n", program_invocation_short_name, map->l_name);
        fclose(file);
    }
}
"""


def bench(server, *flags, env=None):
    return t.run([t.TOWLINE, "bench", "-s", server.address("tcp"), "--quick", "--max-bytes=262144", *flags], 120, env=env)


def examples(folder):
    """A folder with one program that uses a GPU, and what is none."""
    program = t.build_c(t.ROOT / "examples" / "driver" / "vectoradd.c", ["-lcuda"], "bench-vectoradd")
    made = pathlib.Path(folder) / "examples"
    (made / "folder").mkdir(parents=True)
    (made / "vectoradd").symlink_to(program)
    (made / "README").write_text("not a program")
    return made


@t.test()
def a_plot_that_cannot_be_is_said_first():
    """Before the server is asked: there is none."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        for flags, said in ((["--plot", "/nonexistent/plot.svg"], "/nonexistent/plot.svg cannot be written"),
                            (["--plot", f"{folder}/plot.svg", "--part=latency"], "--plot wants --part bandwidth")):
            done = t.run([t.TOWLINE, "bench", "-s", "unix:///nonexistent/sock", *flags])
            t.check(done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done)
        kept = pathlib.Path(folder) / "kept.svg"
        kept.write_text("before")
        for path in (kept, pathlib.Path(folder) / "new.svg"):
            done = t.run([t.TOWLINE, "bench", "-s", "unix:///nonexistent/sock", "--rounds=1", "--plot", path])
            t.equal(done.returncode, 1, f"the exit code ({done.stderr})")
        t.equal([(path.name, path.read_text()) for path in pathlib.Path(folder).iterdir()], [("kept.svg", "before")], "files")


@t.test()
def bench_says_what_it_does_at_a_terminal():
    with t.Server() as server:
        ours, its = pty.openpty()
        done = subprocess.run([t.TOWLINE, "bench", "-s", server.address(), "--quick", "--rounds=2", "--part=latency"], stdout=subprocess.PIPE,
                              stderr=its, env={"TERM": "xterm", **t.clean_environment()}, timeout=60 * t.SLOW)
        os.close(its)
        said = os.read(ours, 1 << 16).decode()
        os.close(ours)
        t.equal(done.returncode, 0, said)
        for wanted in ("round 1 of 2: launch_sync", "round 2 of 2: launch_sync"):
            t.check(wanted in said, f"{wanted} is not said: {said!r}")
        t.check(said.endswith("\r\033[K"), "the line is gone at the end")


def script(folder, name, text):
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@t.test(120, matrix="bench")
def bench_measures_everything_and_draws():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        plot = pathlib.Path(folder) / "plot.svg"
        done = bench(server, "--json", "--rounds=2", f"--plot={plot}", f"--examples={examples(folder)}")
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        report = json.loads(done.stdout)
        t.equal(report["rounds"], 2, "the number of rounds")
        t.check("Software GPU" in report["device"], report["device"])
        figures = {(f["name"], f.get("memory"), f.get("direction"), f.get("bytes")): f for f in report["figures"]}
        for name in LATENCIES | {"startup_context", "startup_first_result", "launches_drained", "launches_per_second", "register",
                                 "unregister"}:
            figure = figures[name, None, None, None]["towline"]
            t.check(figure["median"] > 0 and len(figure["rounds"]) == 2, f"{name}: {figure}")
            t.check(("p99" in figure) == (name in LATENCIES), f"{name}: {figure}")
            t.check(figure.get("p99", figure["median"]) >= min(figure["rounds"]), f"{name}: {figure}")
        for memory in ("pageable", "pinned", "registered"):
            for direction in ("h2d", "d2h"):
                for size in (4, 64, 1024, 16384, 65536, 262144):
                    t.check(figures["copy", memory, direction, size]["towline"]["median"] > 0, "a copy's bandwidth")
        for direction in ("h2d", "d2h"):
            t.check(figures["copy", "rows", direction, 16384]["towline"]["median"] > 0, "the bandwidth of rows")
        times = [f for f in report["figures"] if f["name"] == "example"]
        t.equal([f["program"] for f in times], ["vectoradd"], "the examples")
        t.check(times[0]["unit"] == "ms" and times[0]["towline"]["median"] > 0, str(times))
        t.equal(len(times[0]["towline"]["rounds"]), 2, "an example's rounds")
        drawn = xml.dom.minidom.parse(str(plot))
        words = [node.firstChild.data for node in drawn.getElementsByTagName("text") if node.firstChild]
        t.check("Software GPU" in words[0] and server.address("tcp") in words[0], f"the plot's title: {words[0]}")
        t.check(re.match(r"Towline \S+, \d{4}-\d\d-\d\d \d\d:\d\d UTC, medians of 2 rounds$", words[1]), words[1])
        t.check({"GB/s", "microseconds"} <= set(words) and words.count("size of the copy (bytes)") == 2, f"the axes: {words}")
        t.check(len(drawn.getElementsByTagName("circle")) > 10, "marks")
        lines = drawn.getElementsByTagName("polyline")
        t.equal(len(lines), 16, "the number of curves")  # eight of bandwidth, eight of time
        t.equal(len(lines[0].getAttribute("points").split()), 6, "the points of a curve")


@t.test(matrix="bench")
def rows_are_measured_by_their_width():
    with t.Server() as server:
        done = t.towline_run(server.address("tcp"), [t.BUILD / "bench" / "towline-measure", "--max-bytes", "262144", "rows"])
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        t.equal([(r["width"], r["direction"]) for r in lines if r.get("name") == "rows"],
                [(width, way) for width in (64, 1024, 16384) for way in ("h2d", "d2h")], "the widths")
        t.check(all(0 < r["best"] <= r["value"] for r in lines if r.get("name") == "rows"), done.stdout)


@t.test(120, matrix="bench")
def bench_prints_a_table():
    with t.Server() as server:
        done = bench(server, "--rounds=1", "--part=latency", "--part=launches")
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        for words in ("launch + sync", "launches per second", "p99", server.address("tcp")):
            t.check(words in done.stdout, f"{words!r} is not in:\n{done.stdout}")
        t.check("GB/s" not in done.stdout, done.stdout)


@t.test(120, matrix="bench")
def bench_takes_turns_with_the_native_driver():
    # Our library with its server inside stands for the machine's own driver.
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        folder = pathlib.Path(folder)
        native, witness, seen = folder / "native", folder / "witness.c", folder / "seen"
        native.mkdir()
        for name in ("libcuda.so.1", "libtowline-server.so"):
            (native / name).symlink_to(t.BUILD / "lib" / name)
        witness.write_text(WITNESS)
        library = t.build(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", witness], folder / "witness.so", [witness])
        env = dict(os.environ, LD_LIBRARY_PATH=f"{t.BUILD / 'lib'}:{native}", TOWLINE_SERVER="self:soft-memory=2G",
                   LD_PRELOAD=str(library), WITNESS=str(seen))
        done = bench(server, "--native", "--json", "--rounds=2", f"--examples={examples(folder)}", env=env)
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        round_ = [f"{program} {where / 'libcuda.so.1'}" for program in ("towline-measure", "vectoradd")
                  for where in (native, t.BUILD / "lib")]
        t.equal(seen.read_text().splitlines(), round_ * 2, "the order of the programs and their drivers")
        report = json.loads(done.stdout)
        t.equal(len(report["figures"]), 14 + 6 * 6 + 2 * 3 + 1, "the number of figures")
        for figure in report["figures"]:
            sides = [figure[side]["rounds"] for side in ("towline", "native")]
            t.check(all(len(values) == 2 and min(values) > 0 for values in sides), str(figure))
            ratio = statistics.median(a / b for a, b in zip(*sides))
            t.check(abs(figure["ratio"] / ratio - 1) < 1e-3, f"the ratio is not {ratio}: {figure}")

        done = bench(server, "--native", "--rounds=1", f"--examples={folder / 'examples'}", env=env)
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        rows = [line for line in done.stdout.splitlines()[1:] if line and not line.endswith("ratio")]
        t.equal(len(rows), len(report["figures"]), f"the number of rows in\n{done.stdout}")
        heads = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("ratio")]
        t.equal(heads, ["Towline", "copies", "examples"], f"the tables of\n{done.stdout}")
        number = r"[0-9][0-9.e+-]*"
        for row in rows:
            t.check(re.search(rf" {number}( +{number})? +{number}( +{number})? +[0-9]+\.[0-9][0-9]$", row), row)
        t.check(re.search(r"^examples .*\nvectoradd  ", done.stdout, re.M), done.stdout)


@t.test(matrix="bench")
def bench_says_what_is_wrong_with_examples():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        folder = pathlib.Path(folder)
        done = bench(server, "--part=examples", f"--examples={folder}")
        t.check(done.returncode == 0 and done.stderr.count("\n") == 1, str(done))
        for words in (str(folder), "examples/run --build-only", "--examples DIR"):
            t.check(words in done.stderr, f"{words!r} is not in:\n{done.stderr}")
        done = bench(server, "--part=examples", f"--examples={folder}/missing")
        t.check(done.returncode == 1 and f"{folder}/missing" in done.stderr, str(done))
        script(folder, "good", "exit 0")
        script(folder, "wicked", "echo row 7 differs >&2; exit 3")
        done = bench(server, "--part=examples", f"--examples={folder}")
        t.check(done.returncode == 1 and "wicked" in done.stderr and "exit code 3" in done.stderr, str(done))
        t.check("row 7 differs" in done.stderr and "good" not in done.stderr, str(done))
        script(folder, "wicked", "kill -9 $$")
        done = bench(server, "--part=examples", f"--examples={folder}")
        t.check(done.returncode == 1 and "signal 9" in done.stderr, str(done))


@t.test(matrix="bench")
def bench_says_what_is_wrong():
    done = t.run([t.TOWLINE, "bench", "--fast"])
    t.check(done.returncode == 2 and "bench --help" in done.stderr, str(done))
    done = t.run([t.TOWLINE, "bench", "--part=everything"])
    t.check(done.returncode == 2 and "--part" in done.stderr, str(done))
    done = t.run([t.TOWLINE, "bench", "-s", "unix:///nonexistent/sock", "--rounds=1"])
    t.check(done.returncode == 1 and "/nonexistent/sock" in done.stderr, str(done))
    done = t.run([t.TOWLINE, "bench", "--help"])
    t.check(done.returncode == 0 and "--native" in done.stdout, str(done))


# ---- tests/gpu/bench ----

def gpu_bench(folder, *flags):
    """Its report, from the software GPU on both sides."""
    path = pathlib.Path(folder) / "report.json"
    done = t.run([GPU_BENCH, "--pretend", "--build", t.BUILD, "--json", path, *flags], 200)
    t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
    report = json.loads(path.read_text())
    t.equal(report["problems"], [], f"the problems ({done.stdout})")
    return done.stdout, report


@t.test(240, matrix="bench", whole=True)
def the_gpu_bench_measures_both_sides_and_judges():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        text, report = gpu_bench(folder, "--part=micro", "--part=calls", "--part=launches", "--rounds=1", "--transport=shm,tcp,tls",
                                 f"--cpus={','.join(map(str, sorted(os.sched_getaffinity(0))))}")
    samples = {tuple(sample["key"]): sample for sample in report["samples"]}
    expected = dict.fromkeys([*((name,) for name in LATENCIES), ("copy", "pinned", "d2h", 16 << 20)], 1)
    expected["launches_drained",] = 1 + 2  # of both parts
    for key, rounds in expected.items():
        for side in ("native", "shm", "tcp", "tls"):
            t.equal(len(samples[key][side]), rounds, f"the rounds of {key} on {side}")
    for side, count in (("shm", 11), ("tcp", 14), ("tls", 17)):  # of this part; some are tcp's or tls's alone
        judged = [row for row in report["table"] if row.get(side, {"verdict": "not measured"})["verdict"] != "not measured"]
        t.equal(len(judged), count, f"the figures of {side} in\n{text}")
        for row in judged:
            t.check(row[side]["value"] > 0 and row[side]["limit"] > 0, str(row))
            t.check(row[side]["verdict"] in ("PASS", "MISS") and row[side]["without_noise"] in ("PASS", "MISS"), str(row))
    for name in ("launch_sync_calls", "launches_1000_calls"):
        t.equal([len(samples[name,].get(side, [])) for side in ("native", "shm", "tcp", "tls")], [0, 1, 1, 1], f"the rounds of {name}")
    verdicts = [row[side]["verdict"] for row in report["table"] for side in ("shm", "tcp", "tls") if side in row]
    reached, missed = verdicts.count("PASS"), verdicts.count("MISS")
    t.check(re.search(rf"^{reached} reached \([0-9]+ of them by the 3% of noise\), {missed} missed, "
                      rf"{len(verdicts) - reached - missed} not", text, re.M), text)


@t.test(120, matrix="bench", whole=True)
def the_gpu_bench_shows_examples_and_judges_none():
    if not t.find_nvcc():
        raise t.Skip("nvcc is not installed")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        text, report = gpu_bench(folder, "--part=examples", "--only=vectorAdd", "--rounds=2", "--transport=unix")
    t.equal([sample["key"] for sample in report["samples"]], [["example", "vectorAdd", "ms"]], "the figures")
    t.check(all(len(report["samples"][0][side]) == 2 for side in ("native", "unix")), str(report["samples"]))
    t.check(re.search(r"^example vectorAdd ms +[0-9.]+ +[0-9.]+ \([0-9.]+x\)$", text, re.M), text)
    t.check("0 reached (0 of them by the 3% of noise), 0 missed" in text, text)


@t.test(120, matrix="bench", whole=True)
def the_gpu_bench_runs_examples_together_and_says_what_they_burn():
    if not t.find_nvcc():
        raise t.Skip("nvcc is not installed")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        text, report = gpu_bench(folder, "--part=together", "--only=scan", "--rounds=2", "--transport=tcp")
    samples = {tuple(sample["key"]): sample for sample in report["samples"]}
    t.equal(sorted(samples), [("together", "client threads burn, s"), ("together", "s"), ("together", "workers burn, s")], "the figures")
    t.check(all(len(samples["together", "s"][side]) == 2 for side in ("native", "tcp")), str(samples))
    t.check("native" not in samples["together", "workers burn, s"], "natively nothing of Towline runs")
    judged = [row for row in report["table"] if row.get("tcp", {"verdict": "not measured"})["verdict"] != "not measured"]
    t.equal([row["figure"] for row in judged], ["the examples, 8 at a time, from start to end"], f"the figures judged in\n{text}")


@t.test(60, matrix="bench", whole=True)
def the_gpu_bench_counts_what_workers_and_client_threads_burn():
    spin = "import time\nopen('/proc/self/comm', 'w').write('{}')\nuntil = time.process_time() + 0.5\nwhile time.process_time() < until: pass"
    for name, parent, who in (("busy", os.getpid(), "workers"), ("towline-busy", 1 << 30, "client threads"), ("busy", 1 << 30, None)):
        with load_gpu_bench().Burned(parent) as burned:
            t.equal(t.run([sys.executable, "-c", spin.format(name)], 30).returncode, 0, "the exit code of a busy process")
        for key, seconds in burned.seconds().items():
            # The last 20 ms are seldom seen; others' client threads may run beside this test.
            t.check(seconds > 0.3 if key == who else key == "client threads" or seconds < 0.3, f"{name}: {key} burned {seconds} s")


def load_gpu_bench():
    loader = importlib.machinery.SourceFileLoader("gpu_bench", str(GPU_BENCH))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_bench", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


@t.test(matrix="bench")
def the_gpu_bench_takes_a_list_of_processors():
    t.equal(load_gpu_bench().processors("0,2,4-6"), {0, 2, 4, 5, 6}, "the processors")


@t.test(matrix="bench")
def the_gpu_bench_compares_what_is_of_one_round():
    args = types.SimpleNamespace(transport="shm", rounds=3, seconds=60, pretend=True, json=None)
    bench = load_gpu_bench().Bench(args, None)
    values = iter([10, None, 20, 30, 40, 80])  # natively and over shm in turns; one run fails

    def once(side):
        value = next(values)
        if value is not None:
            bench.add(("figure",), side, value)
    bench.rounds("a test", once)
    t.equal(bench.ratio(("figure",), "shm"), 1.75, "the median of 30/20 and 80/40")
    t.equal(bench.median(("figure",), "shm"), 55, "the median of 30 and 80")


@t.test(matrix="bench", waits=True)
def the_gpu_bench_begins_no_round_that_it_cannot_end():
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        args = types.SimpleNamespace(transport="shm", rounds=7, seconds=3.2, pretend=True, json=report, sockets=1)
        bench = load_gpu_bench().Bench(args, None)

        def once(side):
            time.sleep(0.4)
            bench.add(("figure",), side, 1)
        bench.rounds("a test", once)  # at least 1.2 s each
        done = len(bench.samples[("figure",)]["shm"])
        t.check(1 <= done <= 2 and bench.problems == [f"a test: {done} rounds, then the time was up"],
                f"{done} rounds, and this is said of it: {bench.problems}")
        t.equal(len(json.loads(report.read_text())["samples"][0]["shm"]), done, "rounds saved though nobody asked for the table")


@t.test(matrix="bench")
def the_gpu_bench_allows_noise_near_1_only_and_says_so():
    module = load_gpu_bench()
    most, least = module.Row("most", {}), module.Row("least", {}, at_least=True)
    for row, value, limit, cell in (
            (most, 1.0, 1.0, "1 <= 1 PASS"),
            (most, 1.029, 1.0, "1.029 <= 1 MISS, PASS by 3%"),
            (most, 1.031, 1.0, "1.031 <= 1 MISS"),
            (most, 1.08, 1.05, "1.08 <= 1.05 MISS, PASS by 3%"),
            (most, 1.101, 1.1, "1.101 <= 1.1 MISS"),
            (most, 0.251, 0.25, "0.251 <= 0.25 MISS"),
            (least, 0.945, 0.97, "0.945 >= 0.97 MISS, PASS by 3%"),
            (least, 0.94, 0.97, "0.94 >= 0.97 MISS"),
            (least, 0.899, 0.9, "0.899 >= 0.9 MISS"),
            (least, 1.199, 1.2, "1.199 >= 1.2 MISS"),
            (most, None, 1.0, "not measured")):
        t.equal(row.cell(value, limit), cell, f"the cell of {value} against {limit}")


if __name__ == "__main__":
    t.main()
