#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planted mistakes of tests/check, and the programs without."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile
import time

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


def check(*words, program=(), env=None, limit=60):
    """`towline check` of these words: the process, and the findings of its --json."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        report = pathlib.Path(folder) / "report.json"
        done = t.run([t.TOWLINE, "check", "--json", report, *words, "--", *program], limit, env=env or t.clean_environment())
        return done, json.loads(report.read_text()) if report.exists() else None


def matches(finding, wanted):
    """Whether a finding is the one that a program's header wants."""
    for key, value in wanted.items():
        got = finding.get(key)
        got = ",".join(map(str, got)) if isinstance(got, list) else str(got)
        if got != value:
            return False
    return True


# It is of global memory, at which racecheck does not look.
NOT_FOUND = {"blocks_share_a_number"}


def find_planted(tool, *flags):
    for path in programs(tool):
        if path.stem in NOT_FOUND:
            continue
        wanted = compare.planted(path)
        done, report = check(*flags, program=[HOST, path])
        t.equal(len(report["findings"]), len(wanted), f"findings in {path.name}: {done.stderr}")
        for finding, want in zip(report["findings"], wanted):
            t.check(matches(finding, want), f"{path.name}: found {finding}, planted {want}")
        t.equal((report["tool"], report["found"], report["exit_code"]), (tool, len(wanted), done.returncode if report["exit_code"] else 0),
                f"the sums of {path.name}")
        t.equal(done.returncode, 1, f"the exit code of {path.name}")


@t.test(120, trees=("plain", "asan", "tsan"), matrix="one like the other")
def memcheck_finds_what_is_planted():
    find_planted("memcheck", "--leak-check")


@t.test(120, trees=("plain", "asan", "tsan"), matrix="one like the other")
def synccheck_finds_what_is_planted():
    find_planted("synccheck", "--tool", "synccheck")


@t.test(120, trees=("plain", "asan", "tsan"), matrix="one like the other")
def initcheck_finds_what_is_planted():
    find_planted("initcheck", "--tool", "initcheck")


@t.test(120, trees=("plain", "asan", "tsan"), matrix="one like the other")
def racecheck_finds_what_is_planted():
    find_planted("racecheck", "--tool", "racecheck")


@t.test(120, trees=("plain", "asan"), matrix="one like the other")
def a_tool_keeps_still_about_what_is_not_its_own():
    for tool, other in (("memcheck", "synccheck"), ("memcheck", "initcheck"), ("synccheck", "initcheck"), ("initcheck", "synccheck"),
                        ("racecheck", "initcheck"), ("racecheck", "synccheck")):
        for path in programs(other):
            done, report = check("--tool", tool, program=[HOST, path])
            t.equal((done.returncode, report["findings"]), (0, []), f"{tool} about {path.name}: {done.stderr}")
    every = "memcheck,synccheck,initcheck,racecheck"
    for tool in every.split(","):
        for path in programs(tool)[:2]:
            done, report = check("--tool", every, "--leak-check", program=[HOST, path])
            t.equal([finding["tool"] for finding in report["findings"]], [tool], f"all about {path.name}: {done.stderr}")


@t.test(120, trees=("plain", "asan"), matrix="one like the other")
def programs_without_a_mistake_are_not_accused():
    for path in programs("clean"):
        done, report = check("--tool=memcheck,synccheck,initcheck,racecheck", "--leak-check", program=[HOST, path])
        t.equal((done.returncode, done.stdout, done.stderr), (0, "", "towline check: no mistake was found\n"), f"how {path.name} ends")
        t.equal((report["findings"], report["exit_code"], report["program"]), ([], 0, [str(HOST), str(path)]), f"the report of {path.name}")


@t.test(60, trees=("plain", "asan"))
def a_finding_says_what_where_who_and_whose_memory():
    done, report = check(program=[HOST, HERE / "memcheck" / "write_past_the_end.ptx"])
    t.equal(done.stderr, "towline check: kernel k writes 4 bytes out of bounds\n"
                         "    at write_past_the_end.cu:20, line 26 of the PTX\n"
                         "    block (0,0,0), thread (64,0,0)\n"
                         "    address 0x210000000100, right behind the 256 bytes at 0x210000000000 that cuMemAlloc made (allocation 1)\n"
                         "towline check: 1 mistake was found\n", "what it says")
    t.equal(done.stdout, "sync: CUDA_ERROR_LAUNCH_FAILED\nunload: CUDA_ERROR_LAUNCH_FAILED\n", "what the program sees")
    done, report = check(program=[HOST, HERE / "memcheck" / "use_after_free.ptx"])
    t.check(", and 31 more\n" in done.stderr and "(allocation 1, freed since)" in done.stderr, done.stderr)
    t.equal(report["findings"][0]["threads"], 32, "how many threads")


def with_host(folder, path, *lines):
    """The program, with another host."""
    text = path.read_text()
    other = pathlib.Path(folder) / path.name
    other.write_text("".join(f"// host: {line}\n" for line in lines) + "".join(line for line in text.splitlines(True) if not line.startswith("//")))
    return other


@t.test(60, trees=("plain", "asan"))
def what_nobody_wrote_is_told_with_its_allocation_and_once():
    planted = HERE / "initcheck" / "half_is_set.ptx"
    done, report = check("--tool=initcheck", program=[HOST, planted])
    t.equal(done.stderr, "towline check: kernel k reads 4 bytes that nobody wrote\n"
                         "    at half_is_set.cu:20, line 28 of the PTX\n"
                         "    block (0,0,0), thread (16,0,0), and 15 more\n"
                         "    address 0x210000000040, byte 64 of the 128 bytes at 0x210000000000 that cuMemAlloc made (allocation 1)\n"
                         "towline check: 1 mistake was found\n", "what it says")
    t.equal(done.stdout, "", "what the program sees")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        twice = with_host(folder, planted, "alloc a 128", "launch k 1 32 0 a", "launch k 1 32 0 a", "sync", "launch k 1 32 0 a", "sync", "free a")
        done, report = check("--tool=initcheck", program=[HOST, twice])
        t.equal((report["found"], report["exit_code"]), (1, 0), f"the same mistake in three launches: {done.stderr}")


@t.test(60, trees=("plain", "asan"))
def other_code_of_the_same_names_is_told_for_itself():
    """Two modules whose kernels, files and lines are called alike; and one that is loaded twice."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        other = pathlib.Path(folder) / "other.ptx"
        program = with_host(folder, HERE / "initcheck" / "half_is_set.ptx", "alloc a 128", "launch k 1 32 0 a", "sync", f"load {other}",
                            "launch k 1 32 0 a", "sync", "free a")
        for load, found in (("ld.global.u32", 1), ("ld.volatile.global.u32", 2)):
            other.write_text(program.read_text().replace("ld.global.u32", load))
            done, report = check("--tool=initcheck", program=[HOST, program])
            t.equal((report["found"], done.stdout), (found, ""), f"behind a module with {load}: {done.stderr}")


@t.test(60, trees=("plain", "asan"))
def a_race_names_both_threads_and_their_lines():
    done, report = check("--tool=racecheck", program=[HOST, HERE / "racecheck" / "read_without_a_barrier.ptx"])
    t.equal(done.stderr, "towline check: kernel k: two threads use the same shared memory with nothing between them\n"
                         "    thread (0,0,0) writes it at read_without_a_barrier.cu:20, line 31 of the PTX\n"
                         "    thread (32,0,0) reads it at read_without_a_barrier.cu:30, line 34 of the PTX\n"
                         "    block (0,0,0), 4 bytes at 0x0, and 63 times more\n"
                         "towline check: 1 mistake was found\n", "what it says")
    finding = report["findings"][0]
    t.equal((finding["lines"], finding["other"]["line"], finding["other"]["thread"], finding["other"]["access"]), ([20, 30], 30, [32, 0, 0], "read"),
            "the other thread in the report")


@t.test(60, trees=("plain", "asan"))
def memory_that_is_made_again_is_nobodys():
    planted = HERE / "initcheck" / "nobody_wrote.ptx"
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        for make, size in (("alloc", 1024), ("pool", 1024), ("alloc", 48 << 20)):
            again = [line for _ in range(100 if size == 1024 else 2) for line in (f"{make} a {size}", f"set a 0 {size}", "sync", "free a")]
            program = with_host(folder, planted, "alloc b 128", *again, "sync", f"{make} a {size}", "launch k 1 32 0 a", "sync", f"set a 0 {size}",
                                "launch k 1 32 0 a", "sync", "free a", "free b")
            done, report = check("--tool=initcheck", program=[HOST, program])
            t.equal([finding["allocation"]["bytes"] for finding in report["findings"]], [size], f"{make}, {size} bytes: {done.stderr}")
            t.equal(report["findings"][0]["threads"], 32, "how many threads of both launches")


@t.test(60)
def exit_codes_and_patterns_are_as_written():
    bad = [HOST, HERE / "memcheck" / "misaligned.ptx"]
    t.equal(check("--error-exitcode", "42", program=bad)[0].returncode, 42, "the exit code that was asked for")
    t.equal(check("--error-exitcode=0", program=bad)[0].returncode, 0, "the same, 0")
    began = time.monotonic()
    t.equal(check(program=["true"])[0].stderr, "towline check: no mistake was found\n", "what it says of a program without CUDA")
    t.check(time.monotonic() - began < 15, "it waits for sessions that there never were")
    t.equal(check("--error-exitcode=42", program=["sh", "-c", "exit 7"])[0].returncode, 7, "the program's exit code")
    done, report = check("--suppress", "memcheck:misaligned:k:misaligned.cu:20", program=bad)
    t.equal((done.stderr, report["suppressed"], report["findings"]), ("towline check: no mistake was found, 1 suppressed\n", 1, []), "suppressed")
    done, report = check("--suppress=memcheck:*:other:*", "--suppress=initcheck:*", program=bad)
    t.equal((report["suppressed"], report["found"]), (0, 1), "patterns that do not fit")
    # Without --leak-check nobody is told of leaks.
    t.equal(check(program=[HOST, HERE / "memcheck" / "leak.ptx"])[0].returncode, 0, "a leak that nobody asked for")
    t.equal(check(program=["sh", "-c", "kill -9 $$"])[0].returncode, 128 + 9, "the exit code of a program that was killed")
    for words, sentence in ((["--tool", "racechecks"], "there is no tool racechecks; there are memcheck, synccheck, initcheck and racecheck"), (["--error-exitcode", "x"], "--error-exitcode=x is no exit code"),
                            ([], "say which program")):
        done = t.run([t.TOWLINE, "check", *words, *(["--", "true"] if words else [])])
        t.check(done.returncode == 2 and sentence in done.stderr, f"{words}: {done.returncode} {done.stderr}")
    t.equal(t.run([t.TOWLINE, "check", "--", "/nonexistent"]).returncode, 127, "the exit code of no program")


@t.test(60)
def what_is_not_looked_at_is_told_and_is_no_mistake():
    line = json.dumps({"tool": "racecheck", "kind": "not-looked-at", "kernel": "k", "message": "there was no memory"})
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        env = {**t.clean_environment(), "XDG_RUNTIME_DIR": folder}
        done, report = check("--tool=racecheck", program=["sh", "-c", f"echo '{line}' >$(find {folder} -name findings)"], env=env)
        t.wait_until(lambda: not list(pathlib.Path(folder).iterdir()), 5, "folders stay behind")
    t.equal((done.returncode, done.stderr), (0, "towline check: kernel k: there was no memory; with --soft-threads=1 fewer run at a time\n"
                                                "towline check: no mistake was found\n"), "what it says")
    t.equal((report["not_looked_at"], report["found"], report["findings"]), (1, 0, []), "the report")


def crowded(folder, name, body, *host):
    """A program whose kernel has 70 races at lines of their own, one after the other, and then `body`."""
    program = pathlib.Path(folder) / f"{name}.ptx"
    races = "".join(f".loc 1 {100 + i} 0\nst.shared.u32 [data+{4 * i}], %r1;\n" for i in range(70))
    program.write_text("".join(f"// host: {line}\n" for line in host) +
                       ".version 7.1\n.target sm_52\n.address_size 64\n"
                       ".visible .entry k(.param .u64 p0)\n{\n.shared .align 4 .b8 data[280];\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n"
                       f"ld.param.u64 %rd1, [p0];\nmov.u32 %r1, %tid.x;\n{body.replace('RACES', races)}.loc 1 20 0\nret;\n}}\n"
                       '.file 1 "crowded.cu"\n')
    return program


@t.test(60, trees=("plain", "asan"))
def what_is_only_told_hides_no_mistake_that_ends_a_kernel():
    """A launch tells 64 of 70 races; what is wrong behind them is told instead of one, and that there are more once."""
    launch = "launch k 1 64 0 a"
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        past = crowded(folder, "past", "RACES.loc 1 300 0\nst.global.u32 [%rd1+252], %r1;\nst.global.u32 [%rd1+256], %r1;\n", "alloc a 256", launch,
                       "sync", "free a")
        done, report = check("--tool=memcheck,racecheck", program=[HOST, past])
        kinds = [(finding["tool"], finding["kind"]) for finding in report["findings"]]
        t.equal([(kind, kinds.count(kind)) for kind in sorted(set(kinds))],
                [(("memcheck", "out-of-bounds"), 1), (("racecheck", "more"), 1), (("racecheck", "race"), 63)], done.stderr)
        wrong = next(finding for finding in report["findings"] if finding["tool"] == "memcheck")
        t.equal((wrong["line"], wrong["threads"], wrong["allocation"]["where"]), (300, 64, "behind"), "the mistake behind them")
        # The first thing that is told is of another tool; and the kernel runs three times.
        unwritten = crowded(folder, "unwritten", ".loc 1 50 0\nld.global.u32 %r2, [%rd1];\nRACES", "alloc a 256", launch, "sync", launch, "sync",
                            launch, "sync", "free a")
        done, report = check("--tool=initcheck,racecheck", program=[HOST, unwritten])
        more = [(finding["tool"], finding["threads"]) for finding in report["findings"] if finding["kind"] == "more"]
        t.equal((more, report["found"], report["findings"][0]["kind"]), ([("racecheck", 7)], 65, "uninitialized"), done.stderr)


@t.test(60)
def a_server_for_others_does_not_check():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        done = t.run([t.TOWLINED, "-l", f"{folder}/sock", "--device", "soft", "--soft-check", f"memcheck:{folder}/pipe"])
        t.check(done.returncode != 0 and "--soft-check is for the private server of `towline check`" in done.stderr, done.stderr)


@t.test(60)
def who_is_killed_leaves_nothing_behind():
    """The program dies in the middle of a session: the sum comes at once, and no folder stays."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        text = (HERE / "memcheck" / "misaligned.ptx").read_text().replace("// host: sync\n", "// host: sync\n// host: die\n")
        program = pathlib.Path(folder) / "killed.ptx"
        program.write_text(text)
        env = {**t.clean_environment(), "XDG_RUNTIME_DIR": folder}
        began = time.monotonic()
        done, report = check(program=[HOST, program], env=env)
        program.unlink()
        t.equal((done.returncode, report["found"]), (128 + 9, 1), done.stderr)
        t.check(time.monotonic() - began < 15, "it waited for who was killed")
        t.wait_until(lambda: not list(pathlib.Path(folder).iterdir()), 5, "folders stay behind")


# These hand wrong addresses to their kernels.
WRONG_BY_INTENT = {"api_blocking", "api_events", "api_polls"}


@t.test(240, matrix="one like the other")
def programs_of_the_driver_api_are_not_accused():
    accused = []
    paths = [path for path in sorted((t.BUILD / "tests" / "api").glob("api_*")) if path.is_file() and path.name not in WRONG_BY_INTENT]
    for path in t.drawn(paths, len(paths) // 3, "check"):
        done, report = check("--tool=memcheck,synccheck,initcheck,racecheck", program=[path])
        if report["findings"] or done.returncode not in (0, 77):
            accused.append(f"{path.name}: {done.returncode} {done.stdout[-500:]} {done.stderr[-2000:]}")
    t.check(not accused, "\n".join(accused))


def not_accused(program):
    done, report = check("--tool=memcheck,synccheck,initcheck,racecheck", program=[program], limit=240)
    t.equal((done.returncode, report["findings"]), (0, []), f"{program}: {done.stdout[-500:]}{done.stderr[-2000:]}")


@t.test(240, uses="program cooperative")
def cooperative_groups_are_not_accused():
    """As test_programs.py has it compiled."""
    flags = json.loads((t.PROGRAMS / "programs.json").read_text())["flags"]
    not_accused(t.build_cuda([t.PROGRAMS / "cooperative.cu"], flags, ["-cudart", "static"], "cooperative.static"))


def example(name):
    if not t.find_nvcc():
        raise t.Skip("nvcc is not installed")
    folder = t.BUILD / "examples"
    done = t.run([t.ROOT / "examples" / "run", "--nvcc", t.find_nvcc(), "--build-dir", folder, "--build-only", "--only", name], 240)
    t.equal(done.returncode, 0, f"building {name}: {done.stdout}{done.stderr}")
    not_accused(folder / name)


_names = sorted(path.parent.name for path in (t.ROOT / "examples").glob("*/*.cu") if path.stem == path.parent.name)
for _name in t.drawn(_names, 4):  # as test_examples.py does: it has them built
    t.test(300, name=f"{_name}_is_not_accused", matrix="examples")(lambda name=_name: example(name))


if __name__ == "__main__":
    t.main()
