#!/usr/bin/env python3
"""Code travels once, launches cost what they must and no more."""

import json
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
C_TREES = ("plain", "asan", "tsan")


def run_counted(server, command, address=None):
    """Runs a program that must end with OK; what TOWLINE_STATS says of it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        done = t.towline_run(address or server.address(), command, env={"TOWLINE_STATS": stats.name})
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), done.stdout + done.stderr)
        return json.loads(pathlib.Path(stats.name).read_text())


def code_program():
    return t.build_c(t.PROGRAMS / "code.c", ["-Wno-deprecated-declarations", "-lcuda"], "code_cache")


def launches_program():
    return t.build_c(HELPERS / "launches.c", ["-lcuda"])


@t.test(trees=C_TREES)
def image_travels_once():
    program = code_program()
    with t.Server() as server:
        first = run_counted(server, [program, "large", "7"])
        second = run_counted(server, [program, "large", "7"])
        t.check(first["bytes_out"] > 3_000_000, f"the image did not travel: {first['bytes_out']} bytes")
        t.check(second["bytes_out"] < 20_000, f"it travelled again: {second['bytes_out']} bytes")
        lookups = second["calls"]["cuModuleGetFunction"]
        t.check(lookups["sync"] == 0 and lookups["async"] == 1, f"what is known was asked for again: {lookups}")


@t.test()
def what_is_known_is_of_code_without_options():
    with t.Server() as server:
        for mode, asked in (("modules", None), ("modules", 0), ("options", 1)):
            lookups = run_counted(server, [code_program(), mode])["calls"]["cuModuleGetFunction"]
            t.check(asked in (None, lookups["sync"]), f"{mode}: {lookups}, not {asked} that ask")


# The second answer is kept: it says what is known of the kernels by then.
@t.test(trees=C_TREES)
def image_that_is_loaded_again_is_not_waited_for():
    with t.Server() as server:
        calls = run_counted(server, [code_program(), "again"])["calls"]
        loads, lookups = calls["cuLibraryLoadData"], calls["cuLibraryGetKernel"]
        t.equal((loads["sync"], loads["async"]), (2, 18), "loads waited for, and not")
        t.check(lookups["sync"] <= 1, f"what is known was asked for again: {lookups}")


@t.test(trees=C_TREES)
def image_is_loaded_and_unloaded_by_many_threads():
    with t.Server() as server:
        run_counted(server, [code_program(), "often"])


@t.test(trees=C_TREES)
def handles_of_code_that_is_gone_are_errors():
    with t.Server() as server:
        run_counted(server, [code_program(), "stale"])


@t.test()
def damaged_image_is_sent_again():
    program = code_program()
    with t.Server() as server:
        run_counted(server, [program, "large", "7"])
        large = [path for path in server.folder.rglob("*") if path.is_file() and path.stat().st_size > 3_000_000]
        t.equal(len(large), 1, "the number of large files in the cache")
        with open(large[0], "r+b") as image:
            image.seek(1_000_000)
            image.write(b"!")
        again = run_counted(server, [program, "large", "7"])
        t.check(again["bytes_out"] > 3_000_000, f"the damaged image was used: {again['bytes_out']} bytes")
        t.check("is not what its name says" in server.log(), "nobody was told of the damage")


@t.test()
def cache_can_be_off():
    program = code_program()
    with t.Server("--code-cache=0") as server:
        for _ in range(2):
            stats = run_counted(server, [program, "large", "7"])
            t.check(stats["bytes_out"] > 3_000_000, f"the image did not travel: {stats['bytes_out']} bytes")


# Under ThreadSanitizer there is one place only for a software GPU's memory.
@t.test(trees=("plain", "asan"))
def library_follows_to_the_other_server():
    program = t.build_c(HELPERS / "two_devices.c", ["-lcuda"])
    with t.Server() as first, t.Server() as second:
        run_counted(first, [program], f"{first.address()},{second.address()}")
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        run_counted(server, [program])


@t.test()
def launches_wait_for_nothing():
    program = launches_program()
    with t.Server() as server:
        none = run_counted(server, [program, "0"])
        none = run_counted(server, [program, "0"])
        many = run_counted(server, [program, "1000"])
        t.equal(many["replies_waited"], none["replies_waited"], "replies waited for with 1,000 launches")
        t.equal(many["calls"]["cuLaunchKernel"]["async"], 1000, "launches without a reply")
        each = (many["bytes_out"] - none["bytes_out"]) / 1000
        t.check(each <= 64 + 16, f"{each} bytes per launch, not 64 and 16 of arguments")


@t.test(limit=120)
def launch_takes_few_instructions():
    if not shutil.which("valgrind"):
        raise t.Skip("valgrind is not installed")
    program = launches_program()

    def count(server, launches):
        done = t.towline_run(server.address(), ["valgrind", "--tool=callgrind", "--toggle-collect=cuLaunchKernel",
                                                "--callgrind-out-file=/dev/null", program, launches])
        t.check(done.returncode == 0, done.stdout + done.stderr)
        return int(re.search(r"Collected : (\d+)", done.stderr).group(1))

    with t.Server() as server:
        # The least of three: now and then a launch wakes a server that has gone to sleep.
        each = min((count(server, 1100) - count(server, 100)) / 1000 for _ in range(3))
    print(f"{each:.0f} instructions per launch")
    t.check(0 < each <= 600, f"{each:.0f} instructions per launch on the client, more than 600")


if __name__ == "__main__":
    t.main()
