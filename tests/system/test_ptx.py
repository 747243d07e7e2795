#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The software GPU against recordings of a real one: tests/ptx/differential."""

import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

DIFFERENTIAL = t.ROOT / "tests" / "ptx" / "differential" / "differential.py"

# What the software GPU knows and no form can show: it ends the kernel, needs sm_90a or sm_100 (clusterlaunchcontrol) or memory of
# several devices (multimem), or is another spelling.
WITHOUT_FORM = {"trap", "brkpt", "pmevent", "setmaxnreg", "clusterlaunchcontrol", "multimem", "mad.f32", "mad.ftz.f32",
                "max.s16x2.relu", "max.s32.relu", "min.s16x2.relu", "min.s32.relu"}


def differential(*arguments):
    done = subprocess.run([sys.executable, str(DIFFERENTIAL), "--build", str(t.BUILD), *arguments], capture_output=True,
                          text=True)
    if done.returncode == 77:
        raise t.Skip(done.stdout.strip())
    t.check(done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:])


@t.test(limit=240, matrix="the same for all users")
def forms_leave_what_the_gpu_left_and_the_status_page_says_so():
    differential("--check-status", str(t.ROOT / "docs" / "ptx-status.md"))


@t.test(limit=120, matrix="the same for all users")
def forms_give_the_same_twice():
    differential("--self", "--only", "sync")


@t.test()
def every_instruction_of_the_software_gpu_has_a_form():
    sys.path.insert(0, str(DIFFERENTIAL.parent))
    import forms
    used = set()
    for form in forms.table():
        for line in re.split(r"[;\n]", form.body + ";" + form.decl):
            line = re.sub(r"^(\w+:)?\s*(@!?%\w+)?\s*", "", line.strip())
            used |= {line.split()[0], line.split()[0].split(".")[0]} if line else set()
    known = set()
    for path in sorted((t.ROOT / "src" / "ptx").rglob("*.c")):
        text = path.read_text()
        for spelled in re.findall(r'\{"([^"]+)", "[a-zA-Z]*", \w+\}', text):
            known |= set(spelled.split())
        known |= set(re.findall(r'\{"(\w+)", (?:tow_ptx_)?decode_\w+\}', text))
    t.check(len(known) > 200, f"only {len(known)} instructions found in src/ptx")
    missing = known - used - WITHOUT_FORM
    t.check(not missing, f"no form in tests/ptx/differential uses {', '.join(sorted(missing))}")


def busy():
    """Seconds of processor time that this machine has used, and that the children of this process have."""
    user, nice, system, _, _, *rest = map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    times = os.times()
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK"), times.children_user + times.children_system


@t.test(240, alone=True, matrix="the same for all users")
def the_ptx_machine_is_fast_enough():
    # Within the limits of bench/ptx_speed.c, and half of the kinds on two processors 1.5 times as fast as on one. Other
    # work on this machine makes it slower, never faster: the best of three counts, and of five while there is other work. Where two
    # processors were never to be had in all of these, nothing is known.
    undisturbed = attempts = 0
    quietest = 2.0
    while undisturbed < 3 and attempts < 5:
        start, (all_before, own_before) = time.monotonic(), busy()
        done = t.run([t.BUILD / "bench" / "ptx_speed", "--rounds", "3"], 60, env={**t.clean_environment(), "TOWLINE_BENCH_CHECK": "1"})
        all_after, own_after = busy()
        others = (all_after - all_before - own_after + own_before) / (time.monotonic() - start)
        print(done.stdout, done.stderr, f"other work took {others:.0%} of a processor")
        if done.returncode == 0:
            return
        attempts += 1
        undisturbed += others < 0.1
        quietest = min(others, quietest)
    if quietest > 0.5:
        raise t.Skip(f"other work took at least {quietest:.0%} of a processor in each of {attempts} runs")
    t.check(False, f"{done.stdout}{done.stderr}"
                   f"other work took {others:.0%} of a processor in the last of {attempts} runs")


if __name__ == "__main__":
    t.main()
