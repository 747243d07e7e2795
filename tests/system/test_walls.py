#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a worker cannot do that is in a stranger's hands: docs/security.md. helpers/taken_driver.c is that stranger."""

import contextlib
import ctypes
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
REFUSED = {"EACCES", "EPERM"}
LIST = t.ROOT / "src" / "server" / "walls" / "syscalls.def"
OUTSIDE = set("""accept accept4 bind bpf chdir chroot clone clone3 connect execve execveat fchdir fcntl fork fsopen init_module ioctl
    io_uring_enter io_uring_register io_uring_setup kcmp keyctl kill listen mknod mknodat mount move_pages open_by_handle_at
    perf_event_open personality pidfd_getfd pidfd_open pidfd_send_signal pivot_root prctl prlimit64 process_madvise process_vm_readv
    process_vm_writev ptrace reboot rt_sigqueueinfo rt_tgsigqueueinfo sched_setaffinity seccomp setns setpriority setuid socket
    socketpair symlink symlinkat tgkill tkill unshare userfaultfd vfork""".split())
# What the listener leaves open for it, whatever its own starter left open.
OWN = {0: "/dev/null", 3: "socket:"}


@contextlib.contextmanager
def inherited():
    """A descriptor that is open for every program that this one starts."""
    fd = os.open("/dev/zero", os.O_RDONLY)
    os.dup2(fd, 97, inheritable=True)
    os.close(fd)
    try:
        yield
    finally:
        os.close(97)


def taken(*flags, told=()):
    """What the stranger says: {name: word or words}, and the log, once it has what is to be told."""
    driver = t.build_c(HELPERS / "taken_driver.c", ["-shared", "-fPIC", "-D_GNU_SOURCE"], "taken_driver.so")
    with t.Server(*flags) as victim, inherited():
        t.wait_until(victim.workers, 5, "an idle worker is there")
        secret = victim.folder / "secret"
        secret.write_text("nobody's business")
        port = victim.address("tcp").rsplit(":", 1)[1]
        aims = f"worker={victim.workers()[0]} file={secret} folder={victim.folder} tcp={port} unix={victim.socket}"
        attacker = t.Server(*flags, device=str(driver), env={"TOWLINE_TAKEN": aims, "WALLS_SECRET": "1", "LANG": "C"})
        attacker.process_options = {"pass_fds": (97,)}
        cache = attacker.folder / "cache" / "code"
        cache.mkdir(parents=True)
        (cache / "image").write_text("another's")
        attacker.env["TOWLINE_TAKEN"] += f" cache={cache}"
        with attacker as server:
            t.wait_until(lambda: "taken all" in server.log(), 10, "the stranger has tried everything")
            t.wait_until(lambda: all(text in server.log() for text in told), 30, f"the log has {told}")
            log = server.log()
    said = dict(re.findall(r"^.*the driver says: taken (\S+) (?:= ?)?(.*)$", log, re.M))
    print("\n".join(f"{name}: {word}" for name, word in said.items()))
    return said, log


def check_refused(said, names):
    wrong = {name: said.get(name) for name in names if said.get(name) not in REFUSED}
    t.check(not wrong, f"a worker in a stranger's hands is not refused: {wrong}")


@t.test(60)
def a_worker_cannot_see_into_others():
    said, _ = taken()
    check_refused(said, ("memory-of-worker", "memory-of-listener", "environment-of-worker", "environment-of-listener",
                         "read-worker", "read-listener", "trace-worker", "descriptor-of-worker", "descriptor-of-listener"))
    t.equal(said["dumpable"], "0", "PR_GET_DUMPABLE")
    t.equal(said["core"], "0", "the size of core files")


@t.test(60)
def a_worker_has_no_capabilities_and_gets_none():
    said, _ = taken()
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", *(("CapBnd",) if os.geteuid() == 0 else ())):
        t.equal(int(said[name], 16), 0, name)
    t.equal(said["NoNewPrivs"], "1", "NoNewPrivs")
    check_refused(said, ("become-another",))


@t.test(60)
def a_worker_inherits_nothing():
    said, _ = taken()
    found = dict(re.findall(r"(\d+):(\S+)", said["descriptors"]))
    t.check("97" not in found and not any("/dev/zero" in target for target in found.values()),
            f"a descriptor of the server's starter is open: {found}")
    for fd, target in OWN.items():
        t.check(found.get(str(fd), "").startswith(target), f"descriptor {fd}: {found}")
    names = set(said["environment"].split())
    t.check("TOWLINE_TAKEN" in names, f"{names}")
    t.check(not names & {"WALLS_SECRET", "LANG", "PATH", "USER", "SHELL"}, f"a worker's environment has {sorted(names)}")


LIBC = ctypes.CDLL(None, use_errno=True)


def filters(what=0x00050000):
    """Whether a filter of system calls can be had here; what: SECCOMP_RET_ERRNO, or what else it is to answer."""
    number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
    action = ctypes.c_uint32(what)
    return number is not None and LIBC.syscall(number, 2, 0, ctypes.byref(action)) == 0


def landlock():
    """The version of this kernel's Landlock; 0: it has none."""
    return max(0, LIBC.syscall(444, None, ctypes.c_size_t(0), 1))


@t.test(60)
def a_worker_opens_no_file_and_starts_no_program():
    if landlock() < 1:
        raise t.Skip("this kernel has no Landlock")
    said, _ = taken()
    check_refused(said, ("open-file", "make-file", "start-program"))


@t.test(60)
def a_worker_reads_the_cache_of_code_and_does_not_write_it():
    if landlock() < 1:
        raise t.Skip("this kernel has no Landlock")
    said, _ = taken()
    check_refused(said, ("write-cache", "make-in-cache", "remove-from-cache"))
    t.equal(said["read-cache"], "yes", "reading the cache of code")


@t.test(60)
def a_worker_connects_nowhere():
    if landlock() < 4:
        raise t.Skip("this kernel's Landlock knows no TCP")
    said, _ = taken()
    check_refused(said, ("connect-tcp",))


@t.test(60)
def a_worker_makes_no_system_call_but_those_of_the_list():
    if not filters():
        raise t.Skip("no filter of system calls can be had here")
    said, _ = taken()
    t.equal(said["Seccomp"], "2", "seccomp's mode")
    check_refused(said, ("signal-worker", "signal-listener", "limit-of-worker", "connect-tcp", "connect-unix", "start-program",
                         "fork", "show-itself", "new-namespace", "become-another"))
    t.equal([said[name] for name in ("own-signal", "own-thread", "own-slack")], ["yes"] * 3, "what it may do to itself")


@t.test(60)
def refused_system_calls_are_logged_by_name_once():
    if not filters(0x7fc00000):  # SECCOMP_RET_USER_NOTIF
        raise t.Skip("this kernel does not say which calls it refuses")
    names = ["kill", "prlimit64", "process_vm_readv", "ptrace", "pidfd_open", "socket", "prctl", "unshare", "setresuid",
             "number 9999"]
    told = [f"was refused the system call {name}," for name in names]
    said, log = taken(told=told)
    t.equal({line: log.count(line) for line in told}, dict.fromkeys(told, 1), "lines of the log")
    # The listener does not answer for ever; the kernel then refuses alone.
    t.equal(said["often"], "EPERM ENOSYS", "the first and the last of many refusals")


@t.test(60)
def names_of_refused_system_calls_are_none_of_the_list():
    """But for those that are looked at more closely, each call has one place."""
    pattern = re.compile(r"^TOW_CALL(?:_OLD|_NEW)?\((\w+)", re.M)
    refused = pattern.findall(LIST.with_name("refused.def").read_text())
    t.check(len(refused) == len(set(refused)) > 200, "the names are read")
    t.check(not set(refused) & set(pattern.findall(LIST.read_text())), "a call is allowed and has a name as a refused one")


@t.test(60)
def the_list_of_system_calls_has_none_that_reaches_outside():
    names = re.findall(r"^TOW_CALL(?:_OLD)?\((\w+)\)$", LIST.read_text(), re.M)
    t.check(len(names) == len(set(names)) > 100, "the list is read")
    t.check(not set(names) & OUTSIDE, f"{set(names) & OUTSIDE}")


@t.test(60)
def without_walls_the_log_says_so():
    said, log = taken("--walls=0")
    t.equal(said["NoNewPrivs"], "0", "NoNewPrivs")
    t.check("WALLS_SECRET" in said["environment"].split(), said["environment"])
    t.check("walls = 0: workers have all rights of this server" in log, log)
    # And the stranger's tries are such as succeed where nothing stands in the way.
    could = {"environment-of-worker", "environment-of-listener", "signal-worker", "signal-listener", "own-signal",
             "limit-of-worker", "open-file", "make-file", "read-cache", "write-cache", "make-in-cache", "remove-from-cache", "connect-tcp", "connect-unix", "start-program", "fork", "show-itself",
             "own-thread", "own-slack"}
    could |= {"new-namespace"} if LIBC.unshare(0) == 0 else set()  # containers refuse even this
    if t.sees_all_processes():
        could |= {"memory-of-worker", "memory-of-listener", "read-worker", "read-listener", "trace-worker",
                  "descriptor-of-worker", "descriptor-of-listener"}
    could |= {"become-another"} if os.geteuid() == 0 else set()
    t.equal({name: said[name] for name in sorted(could)}, {name: "yes" for name in sorted(could)}, "what it could")


@t.test(60)
def who_serves_a_gpu_that_reaches_pageable_memory_is_warned():
    """The stranger's driver says yes to every question about a GPU; the software GPU reaches what it was given alone."""
    _, log = taken()
    t.check("the GPU can reach pageable memory" in log, log)
    with t.Server() as server:
        t.check("pageable" not in server.log(), server.log())


if __name__ == "__main__":
    t.main()
