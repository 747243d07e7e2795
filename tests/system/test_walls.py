#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a worker cannot do that is in a stranger's hands: docs/security.md. helpers/taken_driver.c is that stranger."""

import contextlib
import ctypes
import hashlib
import os
import pathlib
import re
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
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


class Puppet(raw.Client):
    """A client that hears what its worker's driver writes to stderr."""
    PRINT = 0xF006
    heard = b""

    def receive(self):
        got = super().receive()
        if got[0] == self.PRINT:
            self.heard += got[3][4:4 + int.from_bytes(got[3][:4], "little")]
        return got

    def taken(self):
        """What the stranger says: {name: word or words}."""
        self.begin().call("cuCtxSynchronize")
        t.check(b"taken all" in self.heard, f"the stranger has not tried everything: {self.heard}")
        said = dict(re.findall(r"^taken (\S+) (?:= ?)?(.*)$", self.heard.decode(errors="replace"), re.M))
        print("\n".join(f"{name}: {word}" for name, word in said.items()))
        return said


def driver():
    return str(t.build_c(HELPERS / "taken_driver.c", ["-shared", "-fPIC", "-D_GNU_SOURCE"], "taken_driver.so"))


def taken(*flags, told=()):
    """What the stranger says: {name: word or words}, and the log, once it has what is to be told."""
    with t.Server(*flags) as victim, inherited():
        t.wait_until(victim.workers, 5, "an idle worker is there")
        secret = victim.folder / "secret"
        secret.write_text("nobody's business")
        port = victim.address("tcp").rsplit(":", 1)[1]
        aims = f"worker={victim.workers()[0]} file={secret} folder={victim.folder} tcp={port} unix={victim.socket}"
        attacker = t.Server(*flags, device=driver(), env={"TOWLINE_TAKEN": aims, "WALLS_SECRET": "1", "LANG": "C"})
        attacker.process_options = {"pass_fds": (97,)}
        cache = attacker.folder / "cache" / "code"
        cache.mkdir(parents=True)
        (cache / "image").write_text("another's")
        attacker.env["TOWLINE_TAKEN"] += f" cache={cache}"
        attacker.folder.chmod(0o711)  # so that a user may name what is in it
        with attacker as server, Puppet(server) as puppet:
            said = puppet.taken()
            t.wait_until(lambda: all(text in server.log() for text in told), 30, f"the log has {told}")
            log = server.log()
    return said, log


def check_refused(said, names):
    wrong = {name: said.get(name) for name in names if said.get(name) not in REFUSED}
    t.check(not wrong, f"a worker in a stranger's hands is not refused: {wrong}")


@t.test(60)
def a_worker_cannot_see_into_others():
    said, _ = taken()
    check_refused(said, ("memory-of-worker", "memory-of-listener", "environment-of-worker", "environment-of-listener",
                         "read-worker", "read-listener", "write-worker", "write-listener", "trace-worker", "trace-listener",
                         "descriptor-of-worker", "descriptor-of-listener"))
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
    check_refused(said, ("signal-worker", "signal-listener", "limit-of-worker", "connect-tcp", "connect-udp", "connect-unix",
                         "pair-of-datagrams", "pair-of-raw", "socket-lingers", "start-program", "fork", "show-itself", "new-namespace", "become-another"))
    t.equal([said[name] for name in ("own-signal", "own-thread", "own-slack", "own-pair", "own-option")], ["yes"] * 5, "what it may do to itself")


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
def a_worker_does_not_outlive_its_session():
    with t.Server("--linger=3", device=driver(), env={"TOWLINE_TAKEN": "stay=1"}) as server:
        with Puppet(server) as puppet:
            worker = server.status()["sessions"][0]["worker_pid"]
            t.equal(puppet.taken()["stays"], "yes", "whether the stranger keeps the worker from ending")
        begin = time.monotonic()
        t.wait_until(lambda: t.gone(worker), 20, "the worker is gone")
        t.check(time.monotonic() - begin > 2, "the worker has ended by itself")
        t.wait_until(lambda: not server.status()["sessions"], 20, "the session's place is free")
        why = f"its program has gone, and its worker {worker} was still there 3 s later (linger)"
        t.wait_until(lambda: f"the server ended it: {why}" in server.log(), 20, "the audit line says so")


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
             "limit-of-worker", "open-file", "make-file", "read-cache", "write-cache", "make-in-cache", "remove-from-cache",
             "connect-tcp", "connect-udp", "connect-unix", "start-program", "fork", "show-itself", "own-thread", "own-slack", "own-pair",
             "pair-of-datagrams", "pair-of-raw"}
    could |= {"new-namespace"} if LIBC.unshare(0) == 0 else set()  # containers refuse even this
    if t.sees_all_processes():
        could |= {"memory-of-worker", "memory-of-listener", "read-worker", "read-listener", "write-worker", "write-listener",
                  "trace-worker", "trace-listener", "descriptor-of-worker", "descriptor-of-listener"}
    could |= {"become-another"} if os.geteuid() == 0 else set()
    t.equal({name: said[name] for name in sorted(could)}, {name: "yes" for name in sorted(could)}, "what it could")


@t.test(60)
def who_serves_a_gpu_that_reaches_pageable_memory_is_warned():
    """The stranger's driver says yes to every question about a GPU; the software GPU reaches what it was given alone."""
    _, log = taken()
    t.check("the GPU can reach pageable memory" in log, log)
    with t.Server() as server:
        t.check("pageable" not in server.log(), server.log())


# ---- users of tenants ----

FIRST_USER, USERS = 0x70000000, 1000000


def need_users():
    if os.geteuid() != 0:
        raise t.Skip("only a server that is root has users for its tenants")
    with t.Server() as server:
        if "workers have a user of their tenant's" not in server.log():
            raise t.Skip(f"workers cannot change their user here: {server.log()}")


@contextlib.contextmanager
def tenants(*sources):
    """A server in strangers' hands, and one of them for each address: (server, [(what it says, its worker, it)])."""
    server = t.Server(device=driver(), env={"TOWLINE_TAKEN": "worker=1"})
    server.folder.chmod(0o711)  # all users can read the driver's library, or tenants get none
    with server, contextlib.ExitStack() as stack:
        found = []
        for source in sources:
            before = {session["worker_pid"] for session in server.status()["sessions"]}
            puppet = stack.enter_context(Puppet(server, source=source))
            said = puppet.taken()
            worker, = {session["worker_pid"] for session in server.status()["sessions"]} - before
            found.append((said, worker, puppet))
        yield server, found


@t.test(60)
def tenants_have_users_of_their_own():
    need_users()
    with tenants("127.0.0.2", "127.0.0.3", "127.0.0.2") as (server, found):
        users = []
        for said, worker, _ in found:
            numbers = {int(word) for name in ("Uid", "Gid") for word in said[name].split()}
            t.equal(len(numbers), 1, f"numbers of a worker's user and group {numbers}")
            t.equal(said["Groups"].strip(), "", "its other groups")
            users.append(numbers.pop())
            for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                t.equal(int(said[name], 16), 0, name)
            t.equal(said["dumpable"], "0", "PR_GET_DUMPABLE")
            check_refused(said, ("become-root", "become-another", "list-compiled"))
            for thread in pathlib.Path(f"/proc/{worker}/task").iterdir():
                text = (thread / "status").read_text()
                t.equal(set(re.search(r"^Uid:(.*)$", text, re.M)[1].split()), {str(users[-1])}, f"the user of thread {thread.name}")
                t.equal(int(re.search(r"^CapPrm:(.*)$", text, re.M)[1], 16), 0, f"the capabilities of thread {thread.name}")
        t.check(all(FIRST_USER <= user < FIRST_USER + USERS for user in users), f"{users}")
        t.check(users[0] == users[2] != users[1], f"users of two tenants, the first of them twice: {users}")


@t.test(60)
def the_kernel_keeps_tenants_apart():
    """Also where no filter of system calls and no Landlock stood in the way."""
    need_users()
    with tenants("127.0.0.2", "127.0.0.3") as (server, found):
        (said, worker, _), (others, neighbour, _) = found
        user = int(said["Uid"].split()[0])
        server.folder.chmod(0o711)
        secret = server.folder / "secret"
        secret.write_text("root's")
        secret.chmod(0o600)
        t.equal(t.as_user(user, os.kill, worker, 0), "yes", "a signal to his own worker")
        t.equal(t.as_user(user, os.kill, neighbour, 0), "EPERM", "a signal to another tenant's worker")
        t.equal(t.as_user(user, os.kill, server.listener, 0), "EPERM", "a signal to the listener")
        t.equal(t.as_user(user, open, secret), "EACCES", "a file that is root's")


@t.test(60)
def what_was_compiled_is_a_tenants_own():
    need_users()
    with tenants("127.0.0.2", "127.0.0.3") as (server, found):
        folder = server.folder / "cache" / "nvidia" / "users"
        for said, _, _ in found:
            t.equal(said["keep-compiled"], "yes", "writing to the compile cache")
        users = [int(said["Uid"].split()[0]) for said, _, _ in found]
        names = [f"{user}-{hashlib.sha256(source.encode()).hexdigest()[:16]}" for user, source in zip(users, ("127.0.0.2", "127.0.0.3"))]
        t.equal(sorted(path.name for path in folder.iterdir()), sorted(names), "folders of the compile cache")
        for user, name in zip(users, names):
            made = folder / name / "made"
            t.equal((made.parent.stat().st_uid, made.stat().st_uid, made.parent.stat().st_mode & 0o777), (user, user, 0o700), name)
        for path in (server.folder, folder.parent):
            path.chmod(0o711)  # so that he may name it
        t.equal(t.as_user(users[0], open, folder / names[0] / "made"), "yes", "what is his own")
        t.equal(t.as_user(users[0], open, folder / names[1] / "made"), "EACCES", "another tenant's")
        t.equal(t.as_user(users[0], os.rename, folder / names[1], folder / "mine"), "EPERM", "another tenant's folder")


@t.test(60)
def folders_of_tenants_who_do_not_come_are_removed():
    need_users()
    server = t.Server(device=driver())
    server.folder.chmod(0o711)
    folder = server.folder / "cache" / "nvidia" / "users"
    outside = server.folder / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (outside / "file").touch()
    day = 24 * 3600
    for name, user, age in (("old", FIRST_USER, 40 * day), ("new", FIRST_USER + 1, 20 * day), ("not-ours", 12345, 40 * day)):
        (folder / name / "a").mkdir(parents=True)
        (folder / name / "a" / "code").touch()
        (folder / name / "link").symlink_to(outside)
        for path in (folder / name / "a" / "code", folder / name / "a", folder / name):
            os.chown(path, user, user)
        os.utime(folder / name, (time.time() - age, time.time() - age))
    folder.chmod(0o1733)
    with server:
        t.wait_until(lambda: not (folder / "old").exists(), 20, "the old folder is gone")
        t.check((folder / "new" / "a" / "code").exists() and (folder / "not-ours" / "a" / "code").exists(), "others stay")
        t.check((outside / "file").exists(), "what a link leads to stays")


@t.test(60)
def code_that_a_tenants_user_reads_counts_as_used():
    """His worker cannot say so in the folder; the listener does."""
    need_users()
    image = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n\0"
    with t.Server() as server:
        cached = server.folder / "cache" / "code" / hashlib.sha256(image).hexdigest()
        with raw.Client(server) as client:
            t.equal(raw.library(client.begin(), 1, image)[0], 0, "the result of cuLibraryLoadData")
        t.wait_until(cached.exists, 20, "the image is in the cache")
        os.utime(cached, (1, 1))
        with raw.Client(server) as client:
            client.begin()
            result, body = client.call("cuLibraryLoadData", struct.pack("<Q", raw.handle("LIBRARY", 1)) +
                                       raw.image_ref(image, raw.PTX, 0, 1) + raw.NO_OPTIONS)
            t.check(result == 0 and struct.unpack_from("<II", body) != (0, 1), "the server wants bytes that it has")
            t.wait_until(lambda: cached.stat().st_mtime > 1, 20, "the image counts as used")


@t.test(60)
def where_users_cannot_be_changed_the_log_says_so():
    """And programs are served by workers that have the server's user."""
    need_users()
    # A user namespace that has one user; root without a right that the listener needs to end workers.
    for words, reason in ((["unshare", "-U", "-r"], "a process cannot become user"),
                          (["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"], "it lacks CAP_SETUID, CAP_SETGID or CAP_KILL")):
        if t.run([*words, "true"]).returncode != 0:
            print(f"skipped: {words}")
            continue
        server = t.Server()
        server.limit = words
        with server:
            t.check(f"tenants get no users of their own: {reason}" in server.log(), server.log())
            t.check("workers have the user of this server (0), root, but none of its capabilities" in server.log(), server.log())
            with raw.Client(server) as client:
                client.begin()


@t.test(60)
def a_driver_that_is_roots_alone_has_no_users():
    """It loads its compilers late, which a tenant's user could not read."""
    need_users()
    with t.Server(device=driver()) as server:
        t.check("tenants get no users of their own: other users cannot read the driver's library" in server.log(), server.log())
        with raw.Client(server) as client:
            client.begin()


@t.test(60)
def a_server_may_want_no_users():
    said, log = taken("--tenant-users=0")
    t.equal(set(said["Uid"].split()), {str(os.geteuid())}, "the user of a worker")
    t.check(f"workers have the user of this server ({os.geteuid()})" in log and "tenants get no users" not in log, log)


if __name__ == "__main__":
    t.main()
