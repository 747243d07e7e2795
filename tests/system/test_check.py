#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planted mistakes of tests/check, and the programs without."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HERE = t.ROOT / "tests" / "check"
HOST = t.BUILD / "tests" / "check" / "check_host"
TOOLS = ["memcheck", "synccheck", "initcheck", "racecheck"]
KINDS = {
    "memcheck": {"out-of-bounds", "use-after-free", "misaligned", "wrong-space", "double-free", "leak"},
    "synccheck": {"divergent-warp", "mask-without-caller", "mask-mismatch"},
    "initcheck": {"uninitialized"},
    "racecheck": {"race"},
}


def load_compare():
    loader = importlib.machinery.SourceFileLoader("check_compare", str(HERE / "compare"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_compare", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


compare = load_compare()


def programs(folder):
    return sorted((HERE / folder).glob("*.ptx"))


@t.test()
def ten_mistakes_of_each_tool_are_planted():
    for tool in TOOLS:
        t.equal(len(programs(tool)), 10, f"programs for {tool}")
        for path in programs(tool):
            findings = compare.planted(path)
            t.check(findings, f"{path.name} does not say what is to be found")
            for finding in findings:
                t.equal(finding["tool"], tool, f"the tool of {path.name}")
                t.check(finding["kind"] in KINDS[tool], f"{path.name} names the kind {finding['kind']}")
                # Every line that is named has an instruction.
                for line in finding.get("lines", finding.get("line", "10")).split(","):
                    t.check(f".loc 1 {line} 0" in path.read_text(), f"{path.name} has no line {line}")
    t.check(len(programs("clean")) >= 10, "there are fewer than ten programs without a mistake")
    for path in programs("clean"):
        t.equal(compare.planted(path), [], f"what {path.name} says is to be found")


@t.test(120, matrix="one like the other")
def programs_without_a_mistake_end_well():
    for path in programs("clean"):
        done = t.run([t.TOWLINE, "run", "--device", "soft", "--", HOST, path])
        t.equal((done.returncode, done.stdout, done.stderr), (0, "", ""), f"how {path.name} ends")


@t.test(300, matrix="one like the other")
def every_planted_program_ends():
    """Their modules load, and none hangs, whatever its mistake does."""
    for tool in TOOLS:
        for path in programs(tool):
            done = t.run([t.TOWLINE, "run", "-q", "--device", "soft", "--", HOST, path], 30)
            t.check(done.returncode in (0, 1), f"{path.name} ends with {done.returncode}: {done.stdout}{done.stderr}")


@t.test(60)
def the_comparison_with_nvidias_tool_counts_what_it_says():
    """tests/check/compare with a sanitizer that finds something in every planted program but one, and in one clean program."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        fake = pathlib.Path(folder) / "sanitizer"
        fake.write_text("#!/bin/sh\nfor last; do :; done\ncase $last in */clean/histogram.ptx) n=1;; */clean/*|*/leak.ptx) n=0;; *) n=2;; esac\n"
                        "echo '========= COMPUTE-SANITIZER'\n[ $n = 0 ] || echo '========= Invalid write of size 4 at x.cu:20'\n"
                        "echo \"========= ERROR SUMMARY: $n errors\"\n")
        fake.chmod(0o755)
        done = t.run([sys.executable, HERE / "compare", "--sanitizer", fake, "--host", HOST])
        lines = done.stdout.splitlines()
        t.equal((done.returncode, lines[-1]), (1, "1 planted mistakes not found, 4 clean programs accused"), done.stderr)
        t.equal(len(lines), 1 + 40 + 4 * len(programs("clean")), "lines of the table")
        t.check("| memcheck | misaligned | misaligned:20 | 2 | Invalid write of size 4 at x.cu:20 | 20 |" in lines, done.stdout)


if __name__ == "__main__":
    t.main()
