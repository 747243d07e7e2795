# SPDX-License-Identifier: Apache-2.0
"""towlined as a service of a guest whose first process is systemd."""

import json
import re

import towtest as t

SOCKET = "unix:///run/towline.sock"


def journal(vm):
    return vm.run("journalctl --no-pager -u towlined.service -u towlined.socket").stdout


def knock(vm, address):
    """A program that asks: it starts the server. An emulated machine may need longer for that than a program waits."""
    said = []

    def answered():
        said[:] = [vm.run([vm.path(t.TOWLINE), "status", "-s", address], timeout=60)]
        return said[0].returncode == 0
    try:
        t.wait_until(answered, 60, "the server answers")
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *(one.stdout + one.stderr for one in said), journal(vm)])) from None


def state(vm, *properties):
    shown = vm.run(["systemctl", "show", "towlined.service", "-p", ",".join(properties)], check=True).stdout
    return dict(line.split("=", 1) for line in shown.splitlines())


def main_process(vm, other):
    """The service's, once it is another one and the server serves."""
    found = []

    def serves():
        found[:] = [state(vm, "MainPID", "ActiveState")]
        return found[0]["ActiveState"] == "active" and found[0]["MainPID"] not in ("0", other)
    t.wait_until(serves, 60, "the service is active with another process")
    return found[0]["MainPID"]


def sessions(vm):
    """What `towline status` says of them; None while the server does not answer."""
    done = vm.run([vm.path(t.TOWLINE), "status", "-s", SOCKET, "--json"], timeout=60)
    return json.loads(done.stdout)[0]["report"]["sessions"] if done.returncode == 0 else None


class Rounds:
    """A program that computes, and checks what it has computed, until it is told to end."""

    def __init__(self, vm, towline):
        self.vm, self.towline = vm, towline

    def __enter__(self):
        program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "rounds.c", ["-lcuda"], "rounds")
        self.vm.run("rm -f /tmp/over /tmp/said; (while ! test -e /tmp/over; do sleep 0.5; done | "
                    f"ROUNDS_PAUSE_MS=200 {self.towline} run --no-check -s {SOCKET} -- {self.vm.path(program)} 8; "
                    "echo it ended with $?) >/tmp/said 2>&1 </dev/null &")
        t.wait_until(lambda: self.said().startswith("ready\n"), 60, "the program computes")
        t.wait_until(self.look, 60, "the server tells of its session")
        self.id, self.worker, self.calls = self.found["id"], self.found["worker_pid"], self.found["calls"]
        return self

    def __exit__(self, *_):
        self.vm.run("touch /tmp/over")

    def said(self):
        return self.vm.run("cat /tmp/said").stdout

    def look(self):
        """Whether the server tells of sessions: `found` is the only one."""
        found = sessions(self.vm) or []
        t.check(len(found) < 2, f"sessions: {found}")
        self.found = found[0] if found else None
        return found

    def goes_on(self, after):
        """It is the only session, with the worker that it had, and makes more calls."""
        t.wait_until(lambda: self.look() and (self.found["id"] != self.id or self.found["calls"] > self.calls), 60,
                     f"the program computes on after {after}")
        t.equal((self.found["id"], self.found["worker_pid"]), (self.id, self.worker), f"the session after {after}")
        self.calls = self.found["calls"]

    def end(self):
        self.vm.run("touch /tmp/over")
        t.wait_until(lambda: "it ended" in self.said(), 60, "the program ends")
        t.check(re.fullmatch(r"ready\n\d+ rounds\nit ended with 0\n", self.said()), self.said())
