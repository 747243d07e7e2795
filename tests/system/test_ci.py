#!/usr/bin/env python3
"""What CI runs adds up its parts, and runs the tests as an ordinary user. With a tree of a few lines in this one's place."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
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


@t.test()
def the_last_line_is_the_sum():
    quiet = others(t.ROOT / ".ci", "as-user")
    more = len(quiet)
    for test, user, last, code in (
            ("echo 3 skipped; echo 10 passed, 0 failed", "echo 4 passed, 0 failed", ["3 skipped", f"{14 + more} passed, 0 failed"], 0),
            ("echo 10 passed, 0 failed", "echo 4 passed, 0 failed", [f"{14 + more} passed, 0 failed"], 0),
            ("echo 10 passed, 2 failed; exit 1", "echo 1 skipped; echo 4 passed, 1 failed; exit 1",
             ["1 skipped", f"{14 + more} passed, 3 failed"], 1),
            # One that does not come to its end has failed.
            ("echo does not compile; exit 2", "echo 4 passed, 0 failed", [f"{4 + more} passed, 1 failed"], 1),
            ("echo 10 passed, 0 failed", "echo 2 passed, 0 failed; kill -9 $$$$", [f"{12 + more} passed, 1 failed"], 1)):
        with small_tree(f"test:\n\t@{test}\n", **quiet, as_user=user.replace("$$$$", "$$")) as base:
            done = t.run([base / ".ci" / "run"])
            lines = done.stdout.splitlines()
            t.equal(lines[-len(last):], last, f"{test}, {user}: the last lines")
            t.equal(done.returncode, code, f"{test}, {user}: the exit code")
            sums = [line for line in lines if line.endswith(" failed") or line.endswith(" skipped")]
            t.equal(sums, last, "all lines that look like sums")


@t.test()
def the_tests_run_as_an_ordinary_user():
    makefile = "check:\n\t@id -u; id -G; echo $$HOME; echo $$TMPDIR; pwd; touch made; ls -A; echo 5 passed, 0 failed\n"
    with small_tree(makefile) as base:
        (base / "build").mkdir()
        (base / "build-asan").mkdir()
        (base / "secret").write_text("")
        (base / "secret").chmod(0o600)
        base.chmod(0o700)
        done = t.run([base / ".ci" / "as-user"], env=dict(os.environ, TOWLINE_SERVER="nowhere"))
        t.equal(done.returncode, 0, f"the exit code ({done.stdout}{done.stderr})")
        if os.geteuid() != 0:
            t.equal(done.stdout.splitlines()[-2:], ["1 skipped", "0 passed, 0 failed"], "what it says to an ordinary user")
            return
        if "skipped" in done.stdout:
            raise t.Skip(done.stdout.splitlines()[0])
        uid, gids, home, temporary, folder, *files, last = done.stdout.splitlines()
        t.equal(last, "5 passed, 0 failed", "the last line")
        t.check(uid != "0" and "0" not in gids.split(), f"user {uid}, groups {gids}")
        t.equal(sorted(files), [".ci", "Makefile", "made", "secret"], "what the user's tree has")
        for path in (home, temporary, folder):
            t.check(not pathlib.Path(path).exists() and not path.startswith(str(base)), f"{path} is left")
        t.equal({path.name for path in base.iterdir()}, {".ci", "Makefile", "build", "build-asan", "secret"}, "this tree then has")


if __name__ == "__main__":
    t.main()
