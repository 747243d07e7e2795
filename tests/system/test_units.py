#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The units of packaging/systemd, as far as they can be looked at without systemd; its watchdog. tests/vm starts them."""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

UNITS = t.ROOT / "packaging" / "systemd"
EXPOSURE = 30  # in tenths; of 100


def analyze(*words):
    if not shutil.which("systemd-analyze"):
        raise t.Skip("systemd-analyze is not installed (apt install systemd)")
    return t.run(["systemd-analyze", *words])


def installed(folder):
    service = pathlib.Path(folder, "towlined.service")
    service.write_text((UNITS / "towlined.service").read_text().replace("@bindir@", str(t.TOWLINED.parent)))
    shutil.copy(UNITS / "towlined.socket", folder)
    return service


@t.test()
def systemd_understands_the_units():
    with tempfile.TemporaryDirectory() as folder:
        done = analyze("verify", "--man=no", installed(folder), f"{folder}/towlined.socket")
        # Of other units, which this machine may have.
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "towlined" in line]
        t.equal(lines, [], f"what it says (exit code {done.returncode})")


@t.test()
def the_service_has_few_rights():
    with tempfile.TemporaryDirectory() as folder:
        done = analyze("security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE}", installed(folder))
        if "unrecognized option" in done.stderr:
            raise t.Skip("this systemd-analyze does not look at files (systemd 250 does)")
        print(done.stdout.strip().splitlines()[-1] if done.stdout else "")
        t.check(done.returncode == 0, f"more than {EXPOSURE / 10} of 10\n{done.stdout[-3000:]}{done.stderr}")


def calls_of(group):
    """All names of a group of systemd's, and of those in it."""
    done = analyze("syscall-filter", "--no-pager", group)
    t.check(done.returncode == 0, f"{group}: {done.stderr}")
    found = set()
    for line in done.stdout.splitlines()[1:]:
        word = line.split("#")[0].strip()
        found |= calls_of(word) if word.startswith("@") else {word} if word else set()
    return found


@t.test()
def the_service_leaves_workers_their_system_calls():
    words = re.search(r"^SystemCallFilter=(.*)$", (UNITS / "towlined.service").read_text(), re.M).group(1).split()
    left = set().union(*(calls_of(word) if word.startswith("@") else {word} for word in words))
    wanted = set(re.findall(r"^TOW_CALL\w*\((\w+)", (t.ROOT / "src/server/walls/syscalls.def").read_text(), re.M))
    t.check(len(wanted) > 50, f"{wanted}")
    t.equal(sorted(wanted - left), [], "what workers may call, and the service may not")


@t.test()
def the_listener_says_that_its_loop_runs():
    """Also while there is nothing to do: no worker, no connection."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(f"{folder}/notify")
        notify.settimeout(20 * t.SLOW)
        process = subprocess.Popen(
            [t.TOWLINED, "--device=soft", "--soft-memory=64M", "--idle-workers=0", f"--cache-dir={folder}", f"--listen={folder}/sock"],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": "600000"})
        try:
            said = [notify.recv(4096).decode() for _ in range(6)]
        finally:
            process.terminate()
            _, err = process.communicate(timeout=40 * t.SLOW)
        t.check(said.count("WATCHDOG=1") >= 4, f"{said}\n{err}")
        t.equal(process.returncode, 0, f"the exit code ({err})")


if __name__ == "__main__":
    t.main()
