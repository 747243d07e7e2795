# SPDX-License-Identifier: Apache-2.0
"""The system tests, and those in a guest, for whoever knows pytest: selects, times and reports them.

  pytest tests/system -k "copies and unix" --durations 10 --junit-xml report.xml

One after the other, each in a process of its own with its limit; tests/run, which CI uses, runs several at once.
"""

import os
import signal
import subprocess
import sys

import pytest

SUITES = "system", "vm"
SKIP = 77  # tests/lib/towtest.py


def pytest_collect_file(file_path, parent):
    if file_path.parent.name in SUITES and file_path.match("test_*.py"):
        return Module.from_parent(parent, path=file_path)
    return None


class Module(pytest.File):
    def collect(self):
        listed = subprocess.run([sys.executable, str(self.path), "--list"], capture_output=True, text=True)
        if listed.returncode != 0:
            raise self.CollectError(listed.stderr)
        for line in listed.stdout.splitlines():
            name, limit = line.split("\t")[:2]
            yield Test.from_parent(self, name=name, limit=float(limit))


class Failed(Exception):
    """What a test printed."""


class Test(pytest.Item):
    def __init__(self, *, limit, **more):
        super().__init__(**more)
        self.limit = limit

    def runtest(self):
        process = subprocess.Popen([sys.executable, str(self.path), self.name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        late = ""
        try:
            output, _ = process.communicate(timeout=self.limit)
        except subprocess.TimeoutExpired:
            late = f"no end after {self.limit:g} s\n"
            os.killpg(process.pid, signal.SIGTERM)
            try:
                output, _ = process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
        if process.returncode == SKIP and not late:
            pytest.skip((output.strip().splitlines() or ["no reason given"])[-1])
        if process.returncode != 0 or late:
            raise Failed(f"{output}{late}exit code {process.returncode}")
        print(output, end="")

    def repr_failure(self, excinfo):
        return str(excinfo.value) if excinfo.errisinstance(Failed) else super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, None, self.name
