#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that root starts is two processes: one keeps few rights and hears no stranger, one hears strangers and has none.
What the first refuses a listener in a stranger's hands: tests/server/test_parent.c."""

import contextlib
import hashlib
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

LISTENER, SHAKER, FIRST_TENANT = 0x6fffffff, 0x6ffffffe, 0x70000000
# By the kernel's numbers: KILL, SETGID, SETUID and SYS_NICE.
NEEDED, MAY = 1 << 5 | 1 << 6 | 1 << 7, 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23
SPLIT = "clients are heard by process"


def need_split():
    if os.geteuid() != 0:
        raise t.Skip("only a server that root starts has a process without rights for its clients")
    with t.Server() as server:
        if SPLIT not in server.log():
            raise t.Skip(f"users cannot be changed here: {server.log()}")


def words(pid, name):
    return re.search(rf"^{name}:(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1].split()


def capabilities(pid):
    return {name: int(words(pid, name)[0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}


def shaker(server):
    children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    found, = [int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "towline-shaker"]
    return found


def all_of(server):
    """The server's processes: {name: number}; the worker has a client."""
    worker = server.status()["sessions"][0]["worker_pid"]
    return {"parent": server.process.pid, "listener": server.listener, "shaker": shaker(server), "worker": worker}


@contextlib.contextmanager
def serving(*flags, **more):
    with t.TlsServer(*flags, **more) as server, raw.Client(server, source="127.0.0.2") as client:
        client.begin()
        yield server, all_of(server)


@t.test(60)
def each_process_has_its_own_rights_and_no_other():
    need_split()
    with serving() as (server, found):
        t.equal(len(set(found.values())), 4, f"processes of the server {found}")
        users = {name: {int(word) for word in words(pid, "Uid") + words(pid, "Gid")} for name, pid in found.items()}
        tenant, = users.pop("worker")
        t.check(FIRST_TENANT <= tenant < FIRST_TENANT + 1000000, f"a worker's user {tenant}")
        t.equal(users, {"parent": {0}, "listener": {LISTENER}, "shaker": {SHAKER}}, "numbers of users and groups")
        bound = 0 if capabilities(os.getpid())["CapEff"] >> 8 & 1 else None  # SETPCAP: who lacks it cannot lower it
        for name, pid in found.items():
            sets = capabilities(pid)
            print(name, pid, sets)
            t.equal(words(pid, "NoNewPrivs"), ["1"], f"no_new_privs of the {name}")
            # What a process that can be looked into owns there is its user's.
            t.equal(os.stat(f"/proc/{pid}/environ").st_uid, 0, f"whose /proc/PID/environ of the {name} is")
            t.equal(sets["CapBnd"], bound if bound is not None else sets["CapBnd"], f"CapBnd of the {name}")
            t.equal(sets["CapAmb"], 0, f"CapAmb of the {name}")
            if name == "parent":
                t.check(sets["CapEff"] & ~MAY == 0 and sets["CapEff"] & NEEDED == NEEDED, f"the parent's {sets}")
                t.equal(sets["CapPrm"], sets["CapEff"], "what it may take")
            else:
                t.equal((sets["CapEff"], sets["CapPrm"], sets["CapInh"]), (0, 0, 0), f"capabilities of the {name}")
                t.equal(words(pid, "Groups"), [], f"other groups of the {name}")


@t.test(60)
def the_parent_hears_nobody():
    """It has one socket, which leads to the listener; those that clients reach are the listener's."""
    need_split()
    with serving() as (_, found):
        def sockets(pid):
            return {os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith("socket:")}
        rows = [line.split() for name in ("tcp", "unix") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
        known = {f"socket:[{row[9]}]" for row in rows if len(row) > 9 and row[3] == "0A"}
        known |= {f"socket:[{row[6]}]" for row in rows if len(row) > 7 and int(row[3], 16) & 0x10000}
        t.wait_until(lambda: len(sockets(found["parent"])) == 1, 20, "the parent has one socket")  # or two: it starts a worker
        t.check(not sockets(found["parent"]) & known, "the parent listens")
        t.check(len(sockets(found["listener"]) & known) == 3, "the listener has what it listens on")


@t.test(60)
def a_listener_that_is_taken_over_has_nothing_of_roots():
    need_split()
    with serving() as (server, found):
        server.folder.chmod(0o711)  # so that he may name what is in it
        made = t.run([t.TOWLINED, "token", "create", "--user=ann", f"--token-file={server.folder / 'tokens'}"])
        t.equal(made.returncode, 0, made.stderr)
        for name in ("tokens", "tls.pem"):
            t.equal(t.as_user(LISTENER, open, server.folder / name), "EACCES", f"reading {name}")
            t.equal(t.as_user(SHAKER, open, server.folder / name), "EACCES", f"reading {name} as the shaker's user")
        t.equal(t.as_user(LISTENER, os.remove, server.socket), "EACCES", "removing the socket")
        for name in ("parent", "shaker", "worker"):
            t.equal(t.as_user(LISTENER, os.kill, found[name], signal.SIGKILL), "EPERM", f"a signal to the {name}")
            for what in ("environ", "mem", "maps"):
                t.equal(t.as_user(LISTENER, open, f"/proc/{found[name]}/{what}"), "EACCES", f"{what} of the {name}")
        for name in ("parent", "listener", "worker"):
            t.equal(t.as_user(SHAKER, os.kill, found[name], signal.SIGKILL), "EPERM", f"a signal to the {name}")


# Starts a program on a terminal that its session has: the listener's log stays where it was.
ON_TERMINAL = """import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
os.dup2(terminal, 0), os.dup2(terminal, 1)
os.execvp(sys.argv[2], sys.argv[2:])"""


@t.test(60)
def the_terminal_that_it_was_started_from_is_not_the_listeners():
    """Whoever has it could type there, into the shell of who has started the server."""
    need_split()
    ours, its = pty.openpty()
    server = t.Server()
    server.limit = [sys.executable, "-c", ON_TERMINAL, os.ttyname(its)]
    with server:
        def session(pid):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return int(fields[3]), int(fields[4])
        t.check(session(server.process.pid)[1] != 0, "the parent has a terminal")
        t.equal(session(server.listener), (server.listener, 0), "the listener's session and terminal")
        t.equal(os.readlink(f"/proc/{server.listener}/fd/0"), "/dev/null", "its stdin")
        t.equal(os.readlink(f"/proc/{server.listener}/fd/1"), os.ttyname(its), "its stdout")
        flags = re.search(r"^flags:\s+(\d+)", pathlib.Path(f"/proc/{server.listener}/fdinfo/1").read_text(), re.M)[1]
        t.equal(int(flags, 8) & os.O_ACCMODE, os.O_WRONLY, "what it may do there")
    os.close(ours)
    os.close(its)


@t.test(60)
def what_its_starter_had_is_not_the_listeners():
    """Open files, the folder that it was started in, secrets of the environment."""
    need_split()
    server = t.Server(env={"TOWLINE_TOKEN": "a-secret", "SECRET_OF_ROOTS": "another-secret", "NOTIFY_SOCKET": "/nowhere"})
    secret = server.folder / "secret"
    secret.write_text("of root's")
    server.limit = ["sh", "-c", 'cd "$1" && shift && exec "$@" 7<secret', "sh", str(server.folder)]
    with server:
        def has(pid):
            return [os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        t.check(str(secret) not in has(server.listener), f"the listener's files {has(server.listener)}")
        t.equal(os.readlink(f"/proc/{server.listener}/cwd"), "/", "the listener's folder")
        environment = pathlib.Path(f"/proc/{server.listener}/environ").read_bytes()
        t.check(b"NOTIFY_SOCKET=/nowhere" in environment, f"what the listener needs: {environment}")
        t.check(b"secret" not in environment and b"SECRET" not in environment, f"the listener's environment {environment}")
        with raw.Client(server) as client:
            client.begin()


@t.test(60, waits=True)
def files_of_roots_are_read_again():
    """The listener can open neither of them."""
    need_split()
    server = t.Server("--require-token")
    config, tokens = server.folder / "conf", server.folder / "tokens"
    config.write_text("max-sessions = 9\n")
    config.chmod(0o600)
    server.flags += [f"--config={config}", f"--token-file={tokens}"]

    def limit():
        return server.status()["limits"]["max-sessions"]["limit"]

    def reload(times):
        server.process.send_signal(signal.SIGHUP)
        t.wait_until(lambda: len(re.findall("the settings (were read again|stay as they were)", server.log())) == times, 20, "they are read")

    def login():
        env = t.clean_environment(TOWLINE_TOKEN=token)
        return t.run([t.TOWLINE, "status", "-s", server.address("tcp")], env=env).returncode
    with server:
        server.folder.chmod(0o711)
        t.equal(t.as_user(LISTENER, open, config), "EACCES", "reading the settings")
        t.equal(limit(), 9, "max-sessions")
        config.write_text("max-sessions = 8\n")
        reload(1)
        t.equal(limit(), 8, "max-sessions, read again")
        config.write_text("max-sessions = none\n")
        reload(2)
        t.check("the settings stay as they were: " in server.log() and "max-sessions = none cannot be understood" in server.log(), server.log())
        t.equal(limit(), 8, "max-sessions, not understood")
        token = t.run([t.TOWLINED, "token", "create", "--user=ann", f"--token-file={tokens}"]).stdout.strip()
        t.equal(t.as_user(LISTENER, open, tokens), "EACCES", "reading the tokens")
        t.equal(login(), 0, "the exit code with a token that was just made")
        tokens.rename(server.folder / "others")
        t.wait_until(lambda: "nobody can log in" in server.log(), 20, "that the file is gone is seen")
        t.check(login() != 0, "a token of a file that is gone")
        (server.folder / "others").rename(tokens)
        t.wait_until(lambda: "the tokens were read again: 1" in server.log(), 20, "that it is back is seen")
        # Another place, which the parent learns with the settings.
        config.write_text(f"token-file = {server.folder / 'moved'}\n")
        server.flags.pop()
        tokens.chmod(0o644)
        t.wait_until(lambda: "others may use" in server.log(), 20, "that others may read it is seen")
        t.check(login() != 0, "a token that others may read")


@t.test(60)
def walls_stay_until_a_restart():
    """Workers that keep their rights would be root's; those of a server without walls have none to change."""
    server = t.Server()
    config = server.folder / "conf"
    config.write_text("walls = 1\n")
    server.flags += [f"--config={config}"]
    with server:
        with raw.Client(server) as client:
            client.begin()
            before = words(server.status()["sessions"][0]["worker_pid"], "Uid")
        config.write_text("walls = 0\nidle-workers = 0\n")
        server.process.send_signal(signal.SIGHUP)
        t.wait_until(lambda: "other walls need a restart: these stay" in server.log(), 20, "the settings are read")
        t.wait_until(lambda: "the settings were read again" in server.log(), 20, "the settings hold")
        with raw.Client(server) as client:
            client.begin()
            worker = server.status()["sessions"][0]["worker_pid"]
            t.equal((words(worker, "Uid"), words(worker, "CapPrm"), words(worker, "NoNewPrivs")), (before, ["0" * 16], ["1"]), "the worker's rights")


@t.test(60)
def nothing_is_left_when_one_of_both_is_killed():
    need_split()
    for victim in ("parent", "listener"):
        server = t.TlsServer()
        with contextlib.ExitStack() as stack:
            stack.enter_context(server)
            client = stack.enter_context(raw.Client(server))
            client.begin()
            found = all_of(server)
            os.kill(found[victim], signal.SIGKILL)
            code = server.process.wait(timeout=60 * t.SLOW)
            t.wait_until(lambda pids=found: all(t.gone(pid) for pid in pids.values()), 5, f"nothing is left of {found}")
            t.check(client.ended(), "the client's connection")
            if victim == "listener":
                t.equal(code, 1, "the exit code")
                t.check("the process that hears clients was ended by signal 9 (Killed): all sessions end" in server.log(), server.log())
                t.check(not server.socket.exists(), "the socket's file is left")


@t.test(60)
def a_server_that_ends_late_leaves_another_its_socket():
    need_split()
    with t.Server("--grace=0") as server:
        server.socket.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(server.socket))
            t.equal(server.stop(), 0, "the exit code")
            t.check(server.socket.exists(), "the other's file is gone")


@t.test(60)
def systemd_hears_the_process_that_it_has_started():
    """It would pass over the listener's words (NotifyAccess=main)."""
    need_split()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        server = t.Server(env={"WATCHDOG_USEC": "400000"})
        server.env["NOTIFY_SOCKET"] = f"{server.folder}/notify"
        notify.bind(server.env["NOTIFY_SOCKET"])
        notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        notify.settimeout(20 * t.SLOW)
        said = {}

        def hear(word):
            while not any(word in text for text in said):
                text, extra, _, _ = notify.recvmsg(4096, 1024)
                pid = struct.unpack("iII", extra[0][2])[0]
                said.setdefault(text.decode(), set()).add(pid)
        with server:
            hear("READY=1\nSTATUS=Serving soft")
            hear("WATCHDOG=1")
            server.process.send_signal(signal.SIGHUP)
            hear("RELOADING=1")
            server.process.send_signal(signal.SIGTERM)
            hear("STOPPING=1")
        t.equal(set().union(*said.values()), {server.process.pid}, f"who said {list(said)}")


@t.test(60)
def signals_are_for_both_and_heard_once():
    """A group is sent one: the listener passes over its own, or a second SIGTERM would end programs at once."""
    need_split()
    with t.Server("--grace=3600") as server, t.held(server, "poll", "unix"):
        for pid in (server.listener, server.process.pid):
            os.kill(pid, signal.SIGTERM)
        t.wait_until(lambda: "is being shut down" in server.log(), 20, "the server was told")
        t.equal(len(server.status()["sessions"]), 1, "sessions that go on")
        os.kill(server.process.pid, signal.SIGINT)
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")


IMAGE = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n\0"


@t.test(60)
def the_cache_of_a_server_of_one_process_goes_on():
    """Its files are root's; then the listener's group may write there."""
    need_split()

    def load(server):
        with raw.Client(server) as client:
            client.begin()
            return client.call("cuLibraryLoadData", struct.pack("<Q", raw.handle("LIBRARY", 1)) +
                               raw.image_ref(IMAGE, raw.PTX, 0, 1) + raw.NO_OPTIONS)
    with t.Server("--user=root") as before:
        t.check(SPLIT not in before.log(), before.log())
        t.equal(before.listener, before.process.pid, "the process that hears clients")
        with raw.Client(before) as client:
            t.equal(raw.library(client.begin(), 1, IMAGE)[0], 0, "the result of cuLibraryLoadData")
        name = hashlib.sha256(IMAGE).hexdigest()
        cached = before.folder / "cache" / "code" / name
        t.wait_until(cached.exists, 20, "the image is in the cache")
        os.utime(cached, (1, 1))
        with t.Server(f"--cache-dir={before.folder / 'cache'}") as server:
            folder = cached.parent.stat()
            t.equal((folder.st_uid, folder.st_gid, folder.st_mode & 0o777), (0, LISTENER, 0o771), "the folder")
            result, body = load(server)
            t.check(result == 0 and struct.unpack_from("<II", body) != (0, 1), "the server wants bytes that it has")
            t.wait_until(lambda: cached.stat().st_mtime > 1, 20, "the image counts as used")
            large = IMAGE[:-1] + b"//" + b"x" * (128 << 10) + b"\n\0"
            with raw.Client(server) as client:
                t.equal(raw.library(client.begin(), 1, large)[0], 0, "the result of cuLibraryLoadData")
            written = cached.with_name(hashlib.sha256(large).hexdigest())
            t.wait_until(written.exists, 20, "a large image is in the cache")
            t.equal(written.stat().st_uid, LISTENER, "whose file it is")


@t.test(60)
def the_user_can_be_named():
    need_split()
    with t.Server("--user=nobody") as server:
        t.equal(set(words(server.listener, "Uid")), {"65534"}, "the listener's user")
        t.equal(set(words(server.listener, "Gid")), {str(LISTENER)}, "its group")
    with t.Server("--user=123456") as server:
        t.equal(set(words(server.listener, "Uid")), {"123456"}, "the listener's user")
    # Not one that is a tenant's.
    with t.Server("--tenant-users=1879000000:1000000") as server:
        t.equal(set(words(server.listener, "Uid")), {"1878999999"}, "the listener's user")


@t.test()
def a_user_that_is_not_there_is_a_mistake():
    with t.Server() as server:
        done = t.run([t.TOWLINED, "--user=no-such-user", "--device=soft", f"--listen={server.folder}/other"])
        t.equal(done.returncode, 1, "the exit code")
        t.check('user: this machine has no user "no-such-user"; write a name or a number' in done.stderr, done.stderr)


@t.test(60)
def a_user_that_the_server_has_for_another_process_is_a_mistake():
    need_split()
    with t.Server() as server:
        for flags, said in (([f"--user={SHAKER}"], f"user: {SHAKER} is the user of the process with the TLS key; name another"),
                            ([f"--user={FIRST_TENANT + 7}"], f"user: {FIRST_TENANT + 7} is one of tenant-users; name another"),
                            (["--user=65534", "--tenant-users=60000:10000"], "user: 65534 is one of tenant-users; name another"),
                            (["--tenant-users=1:4294967294"], "tenant-users = 1:4294967294 leaves no number for the users")):
            done = t.run([t.TOWLINED, *flags, "--device=soft", f"--listen={server.folder}/other"], timeout=20)
            t.equal(done.returncode, 1, f"the exit code with {flags}")
            t.check(said in done.stderr, done.stderr)


@t.test(60)
def where_it_cannot_be_the_log_says_so():
    need_split()
    for limit, reason in ((["unshare", "-U", "-r"], "a process cannot become user"),
                          (["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"], "it lacks CAP_SETUID, CAP_SETGID or CAP_KILL"),
                          (["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh"],
                           "other users cannot see processes here")):
        if t.run([*limit, "true"]).returncode != 0:
            print(f"skipped: {limit}")
            continue
        server = t.Server()
        server.limit = limit
        with server:
            said = f"the process that hears clients keeps root's user and the rights of this server: {reason}"
            t.check(said in server.log() and SPLIT not in server.log(), server.log())
            with raw.Client(server) as client:
                client.begin()


@t.test(60)
def the_listener_goes_before_its_workers():
    """Who asks it waits for little, whatever they compute."""
    need_split()
    def nice(pid):
        return os.getpriority(os.PRIO_PROCESS, pid)
    with t.Server() as server, raw.Client(server) as client:
        client.begin()
        base = nice(server.process.pid)
        t.equal(base, nice(0), "the parent has what it was started with")
        t.equal(nice(server.listener), max(base - 10, -20), "the listener's nice value")
        workers = server.workers()
        t.check(workers and all(nice(worker) == base for worker in workers), f"workers have {[nice(worker) for worker in workers]}")
        group = pathlib.Path(f"/proc/{server.listener}/autogroup")
        if group.exists() and nice(0) > nice(server.listener):
            t.check(group.read_text().endswith(" nice -10\n"), f"the listener's group: {group.read_text()}")


@t.test(60)
def a_program_that_root_may_not_run_is_one_process():
    """The parent has no capability to pass permissions of files, and starts workers."""
    need_split()
    folder = t.Server().folder
    copy = folder / "towlined"
    shutil.copy(t.TOWLINED, copy)
    os.chown(copy, 65534, 65534)
    copy.chmod(0o700)
    with t.Server("--grace=0", towlined=copy) as server, raw.Client(server) as client:
        client.begin()
        t.check("root cannot run this program's file without its capabilities" in server.log() and SPLIT not in server.log(), server.log())
    shutil.rmtree(folder)


@t.test(60)
def a_server_of_a_users_is_one_process():
    if t.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"]).returncode != 0:
        raise t.Skip("another user cannot be taken here")
    server = t.Server()
    server.limit = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    os.chown(server.folder, 65534, 65534)
    if t.run([*server.limit, t.TOWLINED, "--version"]).returncode != 0:
        raise t.Skip("other users cannot run what is built here")
    with server:
        t.equal(server.listener, server.process.pid, "the process that hears clients")
        t.check("keeps root's user" not in server.log(), server.log())
        with raw.Client(server) as client:
            client.begin()


if __name__ == "__main__":
    t.main()
