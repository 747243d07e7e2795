#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the guest has that CI's kernel may lack, and programs in it that use a GPU of the host."""

import json
import os
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import image  # noqa: E402
import towtest as t  # noqa: E402
from machine import HOST, guest  # noqa: E402

LIMIT = 300  # the first test makes the guest


def probe(vm, *words, before="", **more):
    program = t.build_c(HERE / "probe.c", name="vm-probe")
    return vm.run(f"{before} {vm.path(program)} {' '.join(map(str, words))}", **more)


def good(done, what):
    t.check(done.returncode == 0, f"{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- the guest itself ----

@t.test(LIMIT)
def output_and_exit_code_come_back():
    with guest() as vm:
        done = vm.run("echo out; echo err >&2; exit 7")
        t.equal((done.stdout, done.stderr, done.returncode), ("out\n", "err\n", 7), "output, errors and exit code")
        t.equal(vm.run("kill -9 $$").returncode, 128 + 9, "the exit code of one that was killed")
        t.equal(vm.run("cat | wc -c", input=bytes(300000)).stdout.strip(), "300000", "bytes of input that arrived")
        t.equal(len(vm.run("head -c 1000000 /dev/zero | tr '\\0' x").stdout), 1000000, "bytes of output that came back")
        t.equal(vm.run("uname -r").stdout.strip(), vm.version, "the kernel's version")
        # One that does not end is killed, and the next is not held up by it.
        try:
            vm.run("echo begins; sleep 1000", timeout=10)
            t.check(False, "a command of 1000 s ended within 10 s")
        except AssertionError as reason:
            t.check("begins" in str(reason), str(reason))
        t.wait_until(lambda: vm.run("pidof sleep").returncode == 1, 30, "what ran too long is killed")


# ---- programs that use the host's GPU ----

def host_and_guest(name, source, flags, *arguments):
    """The same output, byte by byte, from a program on the host and in the guest, with a server of the host."""
    program = t.build_c(t.PROGRAMS / source, flags, name)
    with t.Server() as server, guest() as vm:
        here = t.towline_run(server.address("tcp"), [program, *arguments], 120)
        good(here, f"{name} on the host")
        sessions = server.log().count("session ")
        there = vm.towline_run(server, [vm.path(program), *arguments], timeout=240)
        good(there, f"{name} in the guest")
        t.equal(there.stdout, here.stdout, "what it writes in the guest")
        t.check(here.stdout, "it writes nothing")
        t.check(server.log().count("session ") > sessions, f"the server has not seen the guest:\n{server.log()}")


def programs_in_c():
    table = json.loads((t.PROGRAMS / "programs.json").read_text())
    return {entry["name"]: entry for entry in table["programs"] if entry["language"] == "c"}


@t.test(LIMIT)
def a_program_computes_the_same_as_on_the_host():
    entry = programs_in_c()["driver_link"]
    host_and_guest("driver_link", entry["sources"][0], entry["flags"], *entry["arguments"][0])


@t.test(LIMIT)
def a_program_that_loads_the_library_itself_does_too():
    entry = programs_in_c()["driver_dlopen"]
    host_and_guest("driver_dlopen", entry["sources"][0], entry["flags"], *entry["arguments"][0])


@t.test(LIMIT)
def without_a_server_the_guest_says_so():
    """The comparison above would not mean much if the guest had a GPU of its own."""
    entry = programs_in_c()["driver_link"]
    program = t.build_c(t.PROGRAMS / entry["sources"][0], entry["flags"], "driver_link")
    with t.Server() as server, guest() as vm:
        server.stop()
        done = vm.towline_run(server, [vm.path(program)], timeout=120)
        t.check(done.returncode != 0 and HOST in done.stderr, f"exit code {done.returncode}\n{done.stdout}{done.stderr}")


# ---- what the kernel has ----

@t.test(LIMIT)
def cgroups_limit_memory_processes_and_time():
    with guest() as vm:
        found = good(vm.run("cat /sys/fs/cgroup/cgroup.controllers"), "the controllers").split()
        t.check({"cpu", "memory", "pids"} <= set(found), f"the controllers are {found}")
        group = "/sys/fs/cgroup/test-limits"
        inside = f"echo $$ > {group}/cgroup.procs && exec"
        good(vm.run(f"echo +cpu +memory +pids > /sys/fs/cgroup/cgroup.subtree_control && mkdir {group}"), "a group")
        try:
            good(probe(vm, "eat", 64, before=inside), "64 MiB without a limit")
            good(vm.run(f"echo 16M > {group}/memory.max"), "a limit")
            done = probe(vm, "eat", 64, before=inside)
            t.equal(done.returncode, 128 + 9, f"the exit code of one that takes more memory than it may ({done.stdout})")
            events = vm.run(f"cat {group}/memory.events").stdout
            t.check(re.search(r"^oom_kill 1$", events, re.M), events)
            # `sh` here is the second of two that may be; what it starts is the third.
            good(vm.run(f"echo 2 > {group}/pids.max"), "a limit")
            done = vm.run(f"{inside} sh -c 'sh -c \"true & wait\"; true'")
            t.check("fork" in done.stderr, f"a third process starts where two may be\n{done.stdout}{done.stderr}")
            good(vm.run(f"echo max > {group}/pids.max && echo '20000 100000' > {group}/cpu.max"), "a limit")
            good(probe(vm, "burn", 0.3, before=inside), "a fifth of a processor")
            throttled = int(re.search(r"^nr_throttled (\d+)$", vm.run(f"cat {group}/cpu.stat").stdout, re.M).group(1))
            t.check(throttled > 0, "it was never held back")
        finally:
            vm.run(f"rmdir {group}")


class Grouped:
    """A towlined of the guest's, in a control group of its own; programs (grow.c) that use it, each until its input ends."""
    group, folder, address = "/sys/fs/cgroup/test-workers", "/tmp/test-workers", "tcp://127.0.0.1:4899"

    def __init__(self, vm):
        self.vm = vm
        self.grow = t.build_c(HERE / "grow.c", ["-lcuda"], "vm-grow")

    def __enter__(self):
        good(self.vm.run(f"echo +cpu +memory +pids > /sys/fs/cgroup/cgroup.subtree_control && mkdir -p {self.group} {self.folder}"), "a group")
        flags = f"--device soft --soft-memory=32M --session-memory=24M --listen {self.address} --cache-dir {self.folder}/cache"
        started = self.vm.run(f"(echo 0 > {self.group}/cgroup.procs && exec {self.vm.path(t.TOWLINED)} {flags} > {self.folder}/log 2>&1) & echo $!")
        self.pid = int(good(started, "towlined"))
        self.await_text("log", "listens on")
        return self

    def __exit__(self, *_):
        self.vm.run(f"kill -CONT {self.pid}; kill -9 {self.pid} $(cat {self.folder}/*.pid)")
        t.wait_until(lambda: self.vm.run(f"rmdir {self.group}/*; rmdir {self.group}; test ! -d {self.group}").returncode == 0, 30,
                     "the group can be removed")
        self.vm.run(f"rm -rf {self.folder}")

    def text(self, name):
        return self.vm.run(f"cat {self.folder}/{name}").stdout

    def await_text(self, name, what):
        try:
            t.wait_until(lambda: what in self.text(name), 100, what)
        except AssertionError:
            raise AssertionError(f"{name} is {self.text(name)!r}, without {what!r}\n{self.text('log')}") from None

    def program(self, mode):
        end = f"{self.folder}/{mode}.input"
        program = f"{self.vm.path(t.TOWLINE)} run --no-check -s {self.address} -- {self.vm.path(self.grow)} {mode}"
        good(self.vm.run(f"mkfifo {end}; sleep 10000 > {end} & echo $! > {self.folder}/{mode}.pid; {program} < {end} > {self.folder}/{mode} 2>&1 &"),
             mode)
        self.await_text(mode, "ready")

    def end_input(self, mode):
        self.vm.run(f"kill $(cat {self.folder}/{mode}.pid)")

    def groups(self):
        return self.vm.run(f"cd {self.group} && ls -d */").stdout.split()


@t.test(LIMIT)
def the_kernel_ends_a_session_that_takes_too_much_memory():
    """While the listener, which would look, stands still. It knows why when it goes on; a neighbour notices nothing."""
    with guest() as vm, Grouped(vm) as server:
        server.await_text("log", f"workers have control groups (memory, pids, cpu) in {server.group}")
        server.program("stay")
        server.program("more")
        limits = vm.run(f"cat {server.group}/worker-*/memory.max").stdout.split()
        t.equal(limits.count(str((24 + 64 + 32) << 20)), 2, f"sessions with a limit ({limits})")
        both = f"{server.pid} $(grep -lx tow-listener /proc/[0-9]*/comm | cut -d/ -f3)"
        vm.run(f"kill -STOP {both}")
        server.end_input("more")
        t.wait_until(lambda: vm.run(f"grep -q '^oom_kill [1-9]' {server.group}/worker-*/memory.events").returncode == 0, 200, "the kernel ends it")
        vm.run(f"kill -CONT {both}")
        server.await_text("log", "it wanted more than the 120 MiB of memory of its control group there, and a session may have 24 MiB of host memory "
                          "(session-memory)")
        server.await_text("more", "error ")
        server.end_input("stay")
        server.await_text("stay", "stayed")
        # The groups of those that are gone are gone; at the end all are.
        t.wait_until(lambda: len(server.groups()) == 2, 60, "the listener's group is left, and that of a worker that waits")
        vm.run(f"kill -TERM {server.pid}")
        t.wait_until(lambda: not server.groups(), 100, "no group is left")


@t.test(LIMIT)
def netem_delays_an_interface():
    """On a pair of interfaces of its own: other tests use the guest's network."""
    with guest() as vm:
        good(vm.run("ip netns add far && ip link add near type veth peer name away netns far && ip addr add 192.0.2.1/24 dev near && "
                    "ip link set near up && ip -n far addr add 192.0.2.2/24 dev away && ip -n far link set away up"), "a pair")
        try:
            t.wait_until(lambda: vm.run("ping -c 1 -W 5 192.0.2.2").returncode == 0, 30, "the far end answers")
            good(vm.run("tc qdisc add dev near root netem delay 400ms"), "netem")
            t.check("netem" in vm.run("tc qdisc show dev near").stdout, "tc does not show it")
            done = good(vm.run("ping -c 2 -W 10 192.0.2.2"), "ping")
            least = float(re.search(r"min/avg/max = ([0-9.]+)/", done).group(1))
            t.check(least >= 400, f"an answer came after {least} ms")
        finally:
            vm.run("ip netns del far")


@t.test(LIMIT)
def vsock_connects_within_the_guest():
    with guest() as vm:
        good(vm.run("modprobe vsock_loopback"), "the module")
        t.equal(good(probe(vm, "vsock"), "vsock"), "vsock there and back\n", "what it says")


@t.test(LIMIT)
def rdma_works_over_ethernet():
    with guest() as vm:
        good(vm.run("modprobe rdma_rxe && ip link add rdma0 type dummy && ip addr add 192.0.2.65/26 dev rdma0 && ip link set rdma0 up"),
             "an interface")
        try:
            good(vm.run("rdma link add rxe0 type rxe netdev rdma0"), "a device")
            shown = vm.run("rdma link show rxe0/1").stdout
            t.check(re.search(r"state ACTIVE .*netdev rdma0", shown), f"rdma link: {shown}")
            t.equal(vm.run("cat /sys/class/infiniband/rxe0/ports/1/link_layer").stdout, "Ethernet\n", "its link layer")
            good(vm.run("modprobe ib_uverbs && modprobe rdma_ucm && test -c /dev/infiniband/uverbs0 -a -c /dev/infiniband/rdma_cm"),
                 "what programs open")
        finally:
            vm.run("rdma link delete rxe0; ip link del rdma0")


# The kernels that brought an interface, and its number. One that is newer than the last may have a newer one.
LANDLOCK = (((5, 13), 1), ((5, 19), 2), ((6, 2), 3), ((6, 7), 4), ((6, 10), 5), ((6, 12), 6))


def landlock_is_right(kernel, version):
    number = tuple(int(word) for word in kernel.split("-")[0].split(".")[:2])
    least = max(one for since, one in LANDLOCK if number >= since)
    return version >= least if number > LANDLOCK[-1][0] else version == least


@t.test(LIMIT)
def landlock_has_the_version_of_its_kernel():
    with guest() as vm:
        said = re.fullmatch(r"landlock (\d+)\n", good(probe(vm, "landlock"), "landlock"))
        t.check(said and landlock_is_right(vm.version, int(said[1])), f"Linux {vm.version} says {said and said[0]!r}")
        print(f"Linux {vm.version}: Landlock {said[1]}")


@t.test()
def a_kernel_newer_than_the_table_may_have_a_newer_landlock():
    for kernel, version, right in (("6.1.0-40-arm64", 2, True), ("6.1.0-40-arm64", 3, False), ("6.12.5", 6, True), ("6.12.5", 7, False),
                                   ("6.18.2-1", 6, True), ("6.18.2-1", 7, True), ("7.0", 5, False)):
        t.equal(landlock_is_right(kernel, version), right, f"whether Linux {kernel} may have Landlock {version}")


# ---- what the tests stand on ----

@t.test(LIMIT)
def the_second_time_nothing_is_made():
    image.must_have()
    first = image.make("plain")
    stamps = [path.stat().st_mtime_ns for path in first[:2]]
    again = image.make("plain")
    t.equal((again, [path.stat().st_mtime_ns for path in again[:2]]), (first, stamps), "kernel and root")


@t.test()
def without_qemu_it_is_skipped():
    """And a run of tests that are all skipped is a good one."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        done = t.run([sys.executable, t.ROOT / "tests" / "run", "--build", t.BUILD, "--suite", "vm", "--only", "vm.landlock"],
                     env=dict(os.environ, PATH=folder))
    reason = f"not run: {image.QEMU} is missing (apt install {image.QEMU_PACKAGE}): 1"
    t.check(reason in done.stdout.splitlines(), f"{done.stdout}{done.stderr}")
    t.equal((done.returncode, done.stdout.splitlines()[-2:]), (0, ["1 skipped", "0 passed, 0 failed"]), "how it ends")


@t.test()
def without_packages_it_is_skipped():
    image.must_have()
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        settings = pathlib.Path(folder, "apt.conf")
        settings.write_text(f'Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "{folder}"; Dir::State::lists "{folder}/lists";')
        for _ in range(2):  # the second time it is known
            done = t.run([sys.executable, __file__, "output_and_exit_code_come_back"],
                         env=dict(os.environ, APT_CONFIG=str(settings), TOWLINE_BUILD=folder))
            t.equal(done.returncode, 77, f"the exit code ({done.stdout}{done.stderr})")
            t.check("the guest's packages cannot be fetched: " in done.stdout.splitlines()[-1], done.stdout)


if __name__ == "__main__":
    t.main()
