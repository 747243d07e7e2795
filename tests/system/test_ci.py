#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What CI runs adds up its parts, and runs the tests as an ordinary user; tests/run itself. With trees of a few lines."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import pypi  # noqa: E402
import towtest as t  # noqa: E402


@contextlib.contextmanager
def small_tree(makefile, **parts):
    """A folder with CI's programs and this Makefile; `parts` replaces some of the programs."""
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        shutil.copytree(t.ROOT / ".ci", f"{base}/.ci")
        pathlib.Path(base, "Makefile").write_text(makefile)
        for name, text in parts.items():
            pathlib.Path(base, ".ci", name.replace("_", "-")).write_text(f"#!/bin/sh\n{text}\n")
        yield pathlib.Path(base)


def others(base, but):
    """Every part but one passes a single test."""
    return {path.name.replace("-", "_"): "echo 1 passed, 0 failed" for path in base.iterdir() if path.name not in ("run", but)}


def makefile(test, sanitizers="echo 1 passed, 0 failed"):
    return f"test:\n\t@{test}\ncheck-sanitizers:\n\t@{sanitizers}\ncheck-moves:\n\t@echo 1 passed, 0 failed\n"


@t.test()
def the_last_line_is_the_sum():
    quiet = others(t.ROOT / ".ci", "as-user")
    more = len(quiet) + 1  # and under sanitizers
    for test, user, last, code in (
            ("echo 3 skipped; echo 10 passed, 0 failed", "echo 4 passed, 0 failed", ["3 skipped", f"{14 + more} passed, 0 failed"], 0),
            ("echo 10 passed, 0 failed", "echo 4 passed, 0 failed", [f"{14 + more} passed, 0 failed"], 0),
            ("echo 10 passed, 2 failed; exit 1", "echo 1 skipped; echo 4 passed, 1 failed; exit 1",
             ["1 skipped", f"{14 + more} passed, 3 failed"], 1),
            # One that does not come to its end has failed.
            ("echo does not compile; exit 2", "echo 4 passed, 0 failed", [f"{4 + more} passed, 1 failed"], 1),
            ("echo 10 passed, 0 failed", "echo 2 passed, 0 failed; kill -9 $$$$", [f"{12 + more} passed, 1 failed"], 1)):
        with small_tree(makefile(test), **quiet, as_user=user.replace("$$$$", "$$")) as base:
            done = t.run([base / ".ci" / "run"])
            lines = done.stdout.splitlines()
            t.equal(lines[-len(last):], last, f"{test}, {user}: the last lines")
            t.equal(done.returncode, code, f"{test}, {user}: the exit code")
            sums = [line for line in lines if re.search(r"\d+ (failed|skipped)$", line)]
            t.equal(sums, last, "all lines that look like sums")


@t.test()
def reasons_and_times_are_summed_up():
    quiet = others(t.ROOT / ".ci", "as-user")
    text = makefile("echo not run: no nvcc: 3; echo 3 skipped; echo 1 passed, 0 failed",
                    "echo not run: no nvcc: 4; echo failed: asan.x; echo not run: other: 1; echo 5 skipped; echo 1 passed, 1 failed; exit 1")
    with small_tree(text, **quiet, as_user="echo 1 passed, 0 failed") as base:
        lines = t.run([base / ".ci" / "run"]).stdout.splitlines()
        lines = lines[lines.index("== sums"):]
        t.check("not run: no nvcc: 7" in lines and "not run: other: 1" in lines and "failed: asan.x" in lines, "\n".join(lines))
        t.check(any(re.fullmatch(r"0 min \d+ s of 10 min: make test", line) for line in lines), "\n".join(lines))
        t.check(re.fullmatch(r"0 min \d+ s, all parts", lines[-3]), lines[-3])


@t.test()
def what_is_drawn_moves_with_the_commit_and_nothing_is_in_the_long_run():
    quiet = others(t.ROOT / ".ci", "as-user")
    text = makefile("echo 1 passed, 0 failed", "echo drawn $(DRAW) $(SEED); echo 1 passed, 0 failed")
    if not shutil.which("git"):
        raise t.Skip("there is no git (apt install git)")
    with small_tree(text, **quiet, as_user="echo drawn $@; echo commit $TOW_TESTS_COMMIT; echo 1 passed, 0 failed") as base:
        git = ["git", "-C", base, "-c", "user.name=t", "-c", "user.email=t@t"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "t"]):
            t.equal(t.run([*git, *command]).returncode, 0, command[0])
        seed = t.run([*git, "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        short = t.run([base / ".ci" / "run"]).stdout
        t.check("make check-moves" not in short, "what the long run alone has")
        drawn = re.findall(r"^drawn (?:DRAW=)?(\d+) (?:SEED=)?(\w+)$", short, re.M)
        t.equal(set(re.findall(r"^commit (\w+)$", short, re.M)), {seed}, "the commit that tests draw by")
        t.check(len(drawn) == 2 and all(int(one) > 1 and got == seed for one, got in drawn), f"{drawn}, seed {seed}")
        if os.geteuid() == 0:  # another user's checkout
            for path in (base, *base.rglob("*")):
                os.chown(path, 65534, 65534)
            moved = t.run([base / ".ci" / "run"]).stdout
            t.equal(re.findall(r"^drawn .*?(\w+)$", moved, re.M), [seed, seed], "the seeds in another user's checkout")
        done = t.run([base / ".ci" / "run", "--long"])
        t.equal(re.findall(r"^drawn (?:DRAW=)?(\d+) ", done.stdout, re.M), ["1", "1"], "one in so many, in the long run")
        t.equal((done.returncode, "== make check-moves" in done.stdout.splitlines()), (0, True), "the long run")


@t.test()
def without_cmocka_ci_fails():
    """An empty folder in place of those where pkg-config looks."""
    with small_tree("test-tools:\n\t@:\n") as base:
        env = dict(os.environ, PKG_CONFIG_LIBDIR=str(base))
        env.pop("PKG_CONFIG_PATH", None)
        done = t.run([base / ".ci" / "tools"], env=env)
        t.equal(done.returncode, 1, "the exit code")
        t.check("cmocka is missing" in done.stdout and done.stdout.endswith("0 passed, 1 failed\n"), done.stdout)


@t.test()
def a_tree_without_cmocka_looks_again():
    """The real Makefile, with a project of two lines, packages of ours and tools that do nothing."""
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        base = pathlib.Path(base)
        shutil.copy(t.ROOT / "Makefile", base)
        (base / "meson.build").write_text("project('t', 'c')\ndependency('cmocka', required: false, method: 'pkg-config')\n")
        for folder in ("bin", "packages"):
            (base / folder).mkdir()
        for name, code in (("valgrind", 0), ("clang-format-14", 0), ("clang-tidy-14", 0), ("apt-get", 1)):
            (base / "bin" / name).write_text(f"#!/bin/sh\nexit {code}\n")
            (base / "bin" / name).chmod(0o755)
        env = dict(os.environ, PATH=f"{base / 'bin'}:{os.environ['PATH']}", PKG_CONFIG_LIBDIR=str(base / "packages"))
        for name in ("PKG_CONFIG_PATH", "MAKEFLAGS", "MAKELEVEL", "BUILD"):
            env.pop(name, None)

        def package(name):
            (base / "packages" / f"{name}.pc").write_text(f"Name: {name}\nDescription: {name}\nVersion: 1\n")

        def make(target):
            done = t.run(["make", "-C", base, "--no-print-directory", target], env=env)
            t.equal(done.returncode, 0, f"{target}: the exit code ({done.stdout}{done.stderr})")
            return done.stdout

        package("libzstd")
        make("build/build.ninja")
        known = base / "build" / "meson-info" / "intro-dependencies.json"
        for _ in range(2):  # the second time it is not asked for, and said all the same
            t.check("missing: libcmocka-dev." in make("test-tools"), "it does not say what is missing")
        t.check((base / "build" / "asked-for").exists() and "cmocka" not in known.read_text(), known.read_text())
        package("cmocka")
        t.equal(make("test-tools"), "", "what it says when nothing is missing")
        t.check("cmocka" in known.read_text(), known.read_text())
        before = known.stat().st_mtime_ns
        make("test-tools")
        t.equal(known.stat().st_mtime_ns, before, "when the tree was set up")


MODULE = '''
import os
import sys
sys.path.insert(0, {lib!r})
import towtest as t

@t.test()
def passes():
    pass

@t.test()
def fails():
    t.check(False, "on purpose \\x00")

@t.test()
def cannot():
    raise t.Skip("no such thing here")

@t.test(float(os.environ["HANG"]))
def hangs():
    import subprocess
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        print("child", child.pid, flush=True)
        child.wait()
    finally:
        child.kill()

for _n in range(9):
    t.test(name=f"alike_{{_n}}", matrix="alike")(lambda: None)

t.main()
'''


# Fails once, if HASTE names a file; again and again if that is a folder.
HASTY = '''
import os
import sys
sys.path.insert(0, {lib!r})
import towtest as t

@t.test()
def hasty():
    if os.path.exists(os.environ["HASTE"]):
        if os.path.isfile(os.environ["HASTE"]):
            os.remove(os.environ["HASTE"])
        t.check(False, "in a hurry")

t.main()
'''


# Five that end when all five have begun.
TOGETHER = '''
import os
import sys
sys.path.insert(0, {lib!r})
import towtest as t

def meet(n):
    open(os.path.join(os.environ["MEET"], str(n)), "w").close()
    t.wait_until(lambda: len(os.listdir(os.environ["MEET"])) == 5, 20, "all five have begun")

for _n in range(5):
    t.test(name=f"meets_{{_n}}", waits=_n < 3)(lambda n=_n: meet(n))

t.main()
'''


# One kills what starts the tests.
DEADLY = '''
import os
import signal
import sys
sys.path.insert(0, {lib!r})
import towtest as t

@t.test(3)
def first():
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()

@t.test(3)
def second():
    signal.pause()

@t.test(whole=True)
def third():
    pass

t.main()
'''


@contextlib.contextmanager
def runner(suite="towline:unit", module=MODULE):
    """tests/run, and a build folder, of a tree with the module above and one program with cmocka's words."""
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        base = pathlib.Path(base)
        for folder in ("system", "lib"):
            (base / "tests" / folder).mkdir(parents=True)
        shutil.copy(t.ROOT / "tests" / "lib" / "forker.py", base / "tests" / "lib")
        (base / "build" / "meson-info").mkdir(parents=True)
        (base / "build" / "build.ninja").write_text("")
        shutil.copy(t.ROOT / "tests" / "run", base / "tests" / "run")
        (base / "tests" / "system" / "test_small.py").write_text(module.format(lib=str(t.ROOT / "tests" / "lib")))
        said = ("[ RUN      ] one\n[  REASON  ] one: it may not\n[  SKIPPED ] one\n[==========] 2 test(s) run.\n"
                "[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] one\n")
        (base / "build" / "meson-info" / "intro-tests.json").write_text(json.dumps([
            {"name": "unit", "suite": [suite], "cmd": [shutil.which("printf"), "%s", said], "env": {}, "workdir": None, "timeout": 10,
             "is_parallel": True}]))

        def run(*flags, **more):
            return t.run([sys.executable, base / "tests" / "run", "--build", base / "build", *flags], env=dict(
                os.environ, **{"TOWLINE_BUILD": str(t.BUILD), "HANG": "1", "TOW_TESTS_AGAIN": "0", "TOW_TESTS_COMMIT": "", **more}))

        run.base = base
        yield run


@t.test()
def a_test_that_fails_by_haste_is_run_again_and_named():
    with runner(module=HASTY) as run, tempfile.TemporaryDirectory(prefix="tow") as folder:
        once = pathlib.Path(folder) / "once"
        once.touch()
        done = run(TOW_TESTS_AGAIN="2", HASTE=once)
        t.equal(done.returncode, 0, f"the exit code of\n{done.stdout}")
        t.check("unsteady: plain.small.hasty (" in done.stdout and "in a hurry" in done.stdout, done.stdout)
        once.touch()
        t.equal(run(TOW_TESTS_AGAIN="0", HASTE=once).returncode, 1, "the exit code where nothing is run again")
        done = run(TOW_TESTS_AGAIN="2", HASTE=folder)
        t.equal(done.returncode, 1, f"the exit code of\n{done.stdout}")
        t.check("failed: plain.small.hasty" in done.stdout.splitlines(), done.stdout)


@t.test()
def a_run_whose_starter_is_killed_fails():
    with runner(module=DEADLY) as run:
        done = run("--only", "small", "--jobs", "1")
        t.equal(done.returncode, 1, f"the exit code of\n{done.stdout}{done.stderr}")
        t.check("failed: plain.small.first" in done.stdout.splitlines(), done.stdout)
        t.equal(sum(map(int, re.findall(r"(\d+) (?:skipped|passed|failed)", done.stdout))), 3, f"how many are counted in\n{done.stdout}")


@t.test()
def what_is_of_no_feature_is_left_to_the_whole_run():
    with runner(module=DEADLY) as run:
        for whole, wanted in (("", "skipped"), ("1", "ok")):
            env = {"TOW_TESTS_WHOLE": whole} if whole else {}
            os.environ.pop("TOW_TESTS_WHOLE", None)
            done = run("--only", "small.third", **env)
            t.check(done.stdout.startswith(f"{wanted:<8}plain.small.third"), f"{whole!r}: {done.stdout}")


@t.test(waits=True)
def the_runner_says_how_far_it_is_and_why_it_left_out_what():
    with runner() as run, tempfile.NamedTemporaryFile(suffix=".xml") as report:
        done = run("--junit", report.name, "--durations", "2", HANG="8")  # a busy machine may take a while to start its child
        lines = done.stdout.splitlines()
        t.equal(done.returncode, 1, "the exit code")
        t.equal(lines[-2:], ["2 skipped", "11 passed, 2 failed"], f"the last lines of\n{done.stdout}")
        t.check(re.fullmatch(r"\d+ min \d+ s, \d+ min \d+ s of processors", lines[-3]), lines[-3])
        t.check("not run: no such thing here: 1" in lines and "not run: it may not: 1" in lines, done.stdout)
        t.check("failed: plain.small.fails" in lines, done.stdout)
        t.check("no end after 8 s" in done.stdout, done.stdout)
        child = int(re.search(r"child (\d+)", done.stdout).group(1))
        t.wait_until(lambda: t.gone(child), 20, "what a test that took too long has started is gone")
        places = re.findall(r"\((\d+) of (\d+)\)", done.stdout)
        t.equal(places, [(str(n), "14") for n in range(1, 15)], "the places")
        root = xml.etree.ElementTree.parse(report.name).getroot()
        t.equal([root.get(word) for word in ("tests", "failures", "skipped")], ["15", "2", "2"], "what the report counts")
        t.equal({case.get("name") for case in root if case.find("failure") is not None}, {"fails", "hangs"}, "what it says failed")


@t.test()
def tests_that_wait_run_beside_the_others():
    with runner(module=TOGETHER) as run, tempfile.TemporaryDirectory(prefix="tow") as folder:
        done = run("--jobs", "1", MEET=folder)  # three that compute, so that others must run beside these
        t.equal(done.stdout.splitlines()[-1], "6 passed, 0 failed", f"the last line of\n{done.stdout}")


@t.test(2 * pypi.INSTALL_LIMIT + 60, uses="pypi", matrix="pypi", whole=True)
def pytest_selects_times_and_reports():
    python = pypi.install()
    with runner() as run, tempfile.TemporaryDirectory(prefix="tow") as folder:
        base = run.base
        for name in ("conftest.py", "pytest.ini"):
            shutil.copy(t.ROOT / "tests" / name, base / "tests")
        report = pathlib.Path(folder, "report.xml")

        def ask(*flags):
            return t.run([python, "-m", "pytest", "-p", "no:cacheprovider", *flags, base / "tests" / "system"],
                         env={**os.environ, "HANG": "8"}, cwd=folder)

        done = ask("--durations=1", "-rs", f"--junit-xml={report}")
        t.equal(done.returncode, 1, f"the exit code of\n{done.stdout}{done.stderr}")
        t.check(re.search(r"2 failed, 10 passed, 1 skipped", done.stdout), done.stdout)
        t.check("AssertionError: on purpose" in done.stdout and "no such thing here" in done.stdout, done.stdout)
        t.check("no end after 8 s" in done.stdout and re.search(r"^[89]\.\d+s call .*hangs", done.stdout, re.M), done.stdout)
        child = int(re.search(r"child (\d+)", done.stdout).group(1))
        t.wait_until(lambda: t.gone(child), 20, "what a test that took too long has started is gone")
        suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
        t.equal([suite.get(word) for word in ("tests", "failures", "skipped")], ["13", "2", "1"], "what the report counts")
        done = ask("-k", "alike_3 or passes")
        t.check(done.returncode == 0 and "2 passed, 11 deselected" in done.stdout, done.stdout)


@t.test()
def the_runner_draws_by_a_seed():
    with runner() as run:
        done = run("--only", "alike", "--draw", "3", "--seed", "a")
        t.check("drawn by the seed a;" in done.stdout and "drawn: 3 of 9 of plain.alike" in done.stdout, done.stdout)
        t.check(done.stdout.endswith("3 passed, 0 failed\n"), done.stdout)
        first = set(re.findall(r"^ok +(\S+)", done.stdout, re.M))
        listed = [set(run("--list", "--draw", "3", "--seed", seed).stdout.split()) for seed in "abcd"]
        t.check(all("plain.small.passes" in names and len(names) == 5 + 3 for names in listed), str(listed))
        t.equal({name for name in listed[0] if "alike" in name}, first, "the same seed again")
        t.check(any(names != listed[0] for names in listed), f"whatever the seed, the same: {listed[0]}")


@t.test()
def what_modules_draw_is_the_same_for_a_commit_and_moves_with_it():
    def examples(**env):
        listed = t.run([sys.executable, t.ROOT / "tests" / "system" / "test_examples.py", "--list"], env=dict(os.environ, **env))
        return listed.stdout if listed.returncode == 0 else listed.stderr
    first, again, other = (examples(TOW_TESTS_COMMIT=commit) for commit in ("0123456789ab", "0123456789ab", "fedcba987654"))
    t.equal(first, again, "what the same commit draws")
    t.check(t.LONG or first != other, f"whatever the commit, the same: {first}")


@t.test()
def what_is_the_same_for_all_users_is_drawn_in_the_plain_tree_alone():
    for tree, wanted in (("plain", True), ("asan", False)):
        done = subprocess.run([sys.executable, t.ROOT / "tests" / "system" / "test_rogue.py", "--list"], capture_output=True, text=True,
                              env=dict(os.environ, TOWLINE_TREE=tree), check=True)
        matrices = {line.split("\t")[3] for line in done.stdout.splitlines()}
        t.equal("the same for all users" in matrices, wanted, f"whether they are one of {matrices} in {tree}")


@t.test()
def a_module_that_python_does_not_understand_fails():
    with runner() as run:
        (run.base / "tests" / "system" / "test_broken.py").write_text("def\n")
        done = run("--only", "test_broken")
        t.equal(done.stdout.splitlines()[-1], "0 passed, 1 failed", f"the last line of\n{done.stdout}")
        t.check("SyntaxError" in done.stdout and "failed: plain.test_broken" in done.stdout.splitlines(), done.stdout)
        t.equal(run("--list").stdout.split().count("plain.small.passes"), 1, "how often a test of another module is listed")


@t.test()
def programs_of_the_driver_api_run_one_way_unless_all_is_wanted():
    with runner() as run:
        tests = run.base / "build" / "meson-info" / "intro-tests.json"
        (unit,) = json.loads(tests.read_text())
        both = [name for one in range(20) for name in (f"api_{one}", f"api_{one}_self")]
        tests.write_text(json.dumps([dict(unit, name=name) for name in ("unit", "api_alone", *both)]))
        os.environ.pop("TOW_TESTS_WHOLE", None)
        os.environ.pop("TOW_TESTS_LONG", None)
        for env, wanted in (({}, 22), ({"TOW_TESTS_WHOLE": "1"}, 42), ({"TOW_TESTS_LONG": "1"}, 42)):
            listed = [name for name in run("--list", **env).stdout.split() if ".meson." in name]
            t.equal(len(listed), wanted, f"how many there are with {env}: {listed}")
            t.equal(len({name.removesuffix("_self") for name in listed}), 22, f"the programs with {env}: {listed}")


@t.test()
def the_runner_needs_no_git():
    with runner() as run, tempfile.TemporaryDirectory(prefix="tow") as empty:
        for flags, last in (((), "9 passed, 0 failed"), (("--draw", "3"), "3 passed, 0 failed")):
            done = run("--only", "alike", *flags, PATH=empty)
            t.equal(done.stdout.splitlines()[-1:], [last], f"how {flags} ends ({done.stderr})")
        t.check("drawn by the seed 0;" in done.stdout, done.stdout)


@t.test()
def a_tree_without_unit_tests_fails_where_cmocka_is():
    with runner("towline:api") as run, tempfile.TemporaryDirectory(prefix="tow") as packages:
        for here in (False, True):
            if here:
                pathlib.Path(packages, "cmocka.pc").write_text("Name: cmocka\nDescription: cmocka\nVersion: 1\n")
            done = run(PKG_CONFIG_LIBDIR=packages, PKG_CONFIG_PATH="")
            t.equal("has no unit test, although cmocka is here" in done.stdout, here, done.stdout)
            t.equal("failed: plain.meson" in done.stdout.splitlines(), here, done.stdout)


@t.test()
def the_tests_run_as_an_ordinary_user():
    text = "check:\n\t@echo $$TOW_TESTS_COMMIT; id -u; id -G; echo $$HOME; echo $$TMPDIR; pwd; touch made; ls -A; echo 5 passed, 0 failed\n"
    with small_tree(text) as base:
        (base / "build").mkdir()
        (base / "build-asan").mkdir()
        (base / "secret").write_text("")
        (base / "secret").chmod(0o600)
        base.chmod(0o700)
        done = t.run([base / ".ci" / "as-user"], env=dict(os.environ, TOWLINE_SERVER="nowhere", TOW_TESTS_COMMIT="abc0123"))
        t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
        if os.geteuid() != 0:
            t.equal(done.stdout.splitlines()[-2:], ["1 skipped", "0 passed, 0 failed"], "what it says to an ordinary user")
            return
        if "not run: " in done.stdout:
            raise t.Skip(done.stdout.splitlines()[0].removeprefix("not run: "))
        commit, uid, gids, home, temporary, folder, *files, last = done.stdout.splitlines()
        t.equal(commit, "abc0123", "the commit, by which the copy's tests draw, too")
        t.equal(last, "5 passed, 0 failed", "the last line")
        t.check(uid != "0" and "0" not in gids.split(), f"user {uid}, groups {gids}")
        t.equal(sorted(files), [".ci", "Makefile", "made", "secret"], "what the user's tree has")
        for path in (home, temporary, folder):
            t.check(not pathlib.Path(path).exists() and not path.startswith(str(base)), f"{path} is left")
        t.equal({path.name for path in base.iterdir()}, {".ci", "Makefile", "build", "build-asan", "secret"}, "this tree then has")


if __name__ == "__main__":
    t.main()
