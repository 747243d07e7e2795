#!/usr/bin/env python3
"""The software GPU against recordings of a real one: tests/ptx/differential."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

DIFFERENTIAL = t.ROOT / "tests" / "ptx" / "differential" / "differential.py"


def differential(*arguments):
    done = subprocess.run([sys.executable, str(DIFFERENTIAL), "--build", str(t.BUILD), *arguments], capture_output=True,
                          text=True)
    if done.returncode == 77:
        raise t.Skip(done.stdout.strip())
    t.check(done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:])


@t.test(limit=120)
def forms_leave_what_the_gpu_left_and_the_status_page_says_so():
    differential("--check-status", str(t.ROOT / "docs" / "ptx-status.md"))


@t.test(limit=120, trees=("plain",))
def forms_give_the_same_twice():
    differential("--self", "--only", "sync")


if __name__ == "__main__":
    t.main()
