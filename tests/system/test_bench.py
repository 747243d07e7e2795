#!/usr/bin/env python3
"""`towline bench`: what it prints, not how fast this machine is."""

import json
import pathlib
import sys
import tempfile
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

LATENCIES = {"launch_enqueue", "launch_sync", "memset_sync", "event_record", "alloc_free_1mib", "copy_4b_d2h",
             "copy_4b_h2d"}


def bench(server, *flags):
    return t.run([t.TOWLINE, "bench", "-s", server.address("tcp"), "--quick", "--max-bytes=262144", *flags], 120)


@t.test(120)
def bench_measures_everything_and_draws():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as folder:
        plot = pathlib.Path(folder) / "plot.svg"
        done = bench(server, "--json", "--rounds=2", f"--plot={plot}")
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        report = json.loads(done.stdout)
        t.equal(report["rounds"], 2, "the number of rounds")
        t.check("Software GPU" in report["device"], report["device"])
        figures = {(f["name"], f.get("memory"), f.get("direction"), f.get("bytes")): f for f in report["figures"]}
        for name in LATENCIES | {"startup_context", "startup_first_result", "launches_drained", "launches_per_second"}:
            figure = figures[name, None, None, None]["towline"]
            t.check(figure["median"] > 0 and len(figure["rounds"]) == 2, f"{name}: {figure}")
            t.check(("p99" in figure) == (name in LATENCIES), f"{name}: {figure}")
            t.check(figure.get("p99", figure["median"]) >= min(figure["rounds"]), f"{name}: {figure}")
        for memory in ("pageable", "pinned"):
            for direction in ("h2d", "d2h"):
                for size in (4, 64, 1024, 16384, 262144):
                    t.check(figures["copy", memory, direction, size]["towline"]["median"] > 0, "a copy's bandwidth")
        lines = xml.dom.minidom.parse(str(plot)).getElementsByTagName("polyline")
        t.equal(len(lines), 8, "the number of curves")  # four of bandwidth, four of time
        t.equal(len(lines[0].getAttribute("points").split()), 5, "the points of a curve")


@t.test(120)
def bench_prints_a_table():
    with t.Server() as server:
        done = bench(server, "--rounds=1", "--part=latency", "--part=launches")
        t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
        for words in ("launch + sync", "launches per second", "p99", server.address("tcp")):
            t.check(words in done.stdout, f"{words!r} is not in:\n{done.stdout}")
        t.check("GB/s" not in done.stdout, done.stdout)


@t.test()
def bench_says_what_is_wrong():
    done = t.run([t.TOWLINE, "bench", "--fast"])
    t.check(done.returncode == 2 and "bench --help" in done.stderr, str(done))
    done = t.run([t.TOWLINE, "bench", "--part=everything"])
    t.check(done.returncode == 2 and "--part" in done.stderr, str(done))
    done = t.run([t.TOWLINE, "bench", "-s", "unix:///nonexistent/sock", "--rounds=1"])
    t.check(done.returncode == 1 and "/nonexistent/sock" in done.stderr, str(done))
    done = t.run([t.TOWLINE, "bench", "--help"])
    t.check(done.returncode == 0 and "--native" in done.stdout, str(done))


if __name__ == "__main__":
    t.main()
