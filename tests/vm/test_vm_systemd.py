#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest whose first process is systemd: the units of packaging/systemd."""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import towtest as t  # noqa: E402
from machine import guest  # noqa: E402
from service import SOCKET, Rounds, journal, knock, main_process, state  # noqa: E402

LIMIT = 400  # the first test makes the guest
UNITS = "/etc/systemd/system"


def install(vm):
    """The units as `make install` has them, and a config file that asks for a software GPU."""
    service = (t.ROOT / "packaging" / "systemd" / "towlined.service").read_text().replace("@bindir@", vm.path(t.TOWLINED.parent))
    vm.run(f"cat > {UNITS}/towlined.service", input=service.encode(), check=True)
    vm.run("mkdir -p /etc/towline && cat > /etc/towline/towlined.conf", input=b"device = soft\nsoft-memory = 64M\n", check=True)
    vm.run(f"cp {vm.path(t.ROOT / 'packaging' / 'systemd' / 'towlined.socket')} {UNITS} && systemctl daemon-reload && "
           "systemctl start towlined.socket", check=True)


@t.test(LIMIT, alone=True)
def the_first_process_is_systemd():
    with guest("systemd") as vm:
        t.equal(vm.run("cat /proc/1/comm").stdout, "systemd\n", "the first process")
        done = vm.run("systemctl is-system-running --wait", timeout=120)
        failed = vm.run("systemctl --failed --no-pager").stdout
        t.equal(done.stdout, "running\n", f"the system's state ({failed})")


@t.test(LIMIT, alone=True)
def the_unit_serves_a_program():
    """Sockets first; the server when somebody knocks, with rights as the unit has them; a stop that nobody must force."""
    program = t.build_c(t.PROGRAMS / "driver_link.c", ["-lcuda"], "driver_link")
    with guest("systemd") as vm:
        install(vm)
        try:
            t.equal(state(vm, "ActiveState"), {"ActiveState": "inactive"}, "before anybody came")
            knock(vm, SOCKET)
            main_process(vm, "0")  # it answers before a worker is ready
            found = state(vm, "ActiveState", "SubState", "MainPID")
            t.equal((found["ActiveState"], found["SubState"]), ("active", "running"), "the service")
            groups = "/sys/fs/cgroup/system.slice/towlined.service"
            t.check(f"workers have control groups (memory, pids, cpu) in {groups}" in journal(vm), journal(vm))
            t.check(vm.run(f"cat {groups}/worker-{found['MainPID']}-*/cgroup.procs").stdout.split(), "no worker is in its group")
            status = vm.run(f"cat /proc/{found['MainPID']}/status").stdout
            t.check(re.search(r"^NoNewPrivs:\s+1$", status, re.M), status)
            listener = vm.run("cat /proc/$(grep -lx tow-listener /proc/[0-9]*/comm | cut -d/ -f3)/status").stdout
            t.check(re.search(r"^Uid:\s+1879048191\s", listener, re.M) and re.search(r"^CapPrm:\s+0+$", listener, re.M), listener)
            done = vm.run([vm.path(t.TOWLINE), "run", "--no-check", "-s", "tcp://127.0.0.1:4837", "--", vm.path(program)], timeout=240)
            t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
                    f"exit code {done.returncode}\n{done.stdout}{done.stderr}\n{journal(vm)}")
            vm.run("systemctl stop towlined.service", check=True, timeout=60)
            t.equal(state(vm, "Result"), {"Result": "success"}, "how it ended")
            t.check(vm.run(f"ls -d {groups}/*/").returncode != 0, "a control group is left")
        finally:
            vm.run(f"systemctl stop towlined.socket towlined.service; rm -rf {UNITS}/towlined.* /etc/towline")


@t.test(LIMIT, alone=True)
def sessions_outlive_the_service():
    """systemctl restart, and a kill -9 of either process: the program computes on, in its control group with its limits."""
    groups = "/sys/fs/cgroup/system.slice/towlined.service"
    with guest("systemd") as vm:
        install(vm)
        try:
            knock(vm, SOCKET)
            with Rounds(vm, vm.path(t.TOWLINE)) as rounds:
                for order in ("systemctl restart towlined.service", "systemctl restart towlined.service towlined.socket",
                              "systemctl kill --kill-who=main -s KILL towlined.service",
                              "kill -9 $(grep -lx tow-listener /proc/[0-9]*/comm | cut -d/ -f3)"):
                    main = state(vm, "MainPID")["MainPID"]
                    vm.run(order, check=True, timeout=60)
                    main_process(vm, main)
                    knock(vm, SOCKET)
                    rounds.goes_on(order)
                    mine = f"$(grep -lx {rounds.worker} {groups}/worker-*/cgroup.procs | xargs dirname)"
                    t.wait_until(lambda: vm.run(f"cat {mine}/memory.max").stdout.strip().isdigit(), 60, "its group has limits again")
                rounds.end()
            vm.run("systemctl stop towlined.service", check=True, timeout=60)
            t.equal(state(vm, "Result"), {"Result": "success"}, "how it ended")
            t.check(vm.run(f"ls -d {groups}/*/").returncode != 0, "a control group is left")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{journal(vm)}") from None
        finally:
            vm.run(f"systemctl stop towlined.socket towlined.service; rm -rf {UNITS}/towlined.* /etc/towline")


if __name__ == "__main__":
    t.main()
