#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives every candidate form to ptxas and writes refused.txt: those that sm_90 does not have, and why."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import forms


def attempt(item):
    """None, or what ptxas says."""
    folder, number, form = item
    path = pathlib.Path(folder) / f"{number}.ptx"
    path.write_text(form.ptx())
    done = subprocess.run(["ptxas", "-arch=sm_90", "-O1", "-o", str(path.with_suffix(".o")), str(path)],
                          capture_output=True, text=True, timeout=120)
    path.with_suffix(".o").unlink(missing_ok=True)
    if done.returncode == 0:
        return None
    lines = [re.sub(r"^ptxas \S+, line \d+; (error|fatal)\s*: ", "", line) for line in
             (done.stderr + done.stdout).splitlines()]
    return lines[0].strip().replace("\t", " ") if lines else f"exit code {done.returncode}"


def main():
    every = forms.candidates()
    if sys.argv[1:]:
        every = [form for form in every if any(word in form.name for word in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        answers = list(threads.map(attempt, ((folder, i, form) for i, form in enumerate(every))))
    out = [f"{form.name}\t{answer}" for form, answer in zip(every, answers) if answer]
    if sys.argv[1:]:
        print("\n".join(out))
    else:
        forms.REFUSED.write_text("# Forms that ptxas refuses for sm_90, and its words. Made by assemble.py.\n" +
                                 "\n".join(out) + "\n")
    print(f"{len(every) - len(out)} of {len(every)} forms assemble")


if __name__ == "__main__":
    main()
