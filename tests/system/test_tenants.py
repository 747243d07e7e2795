#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whose a session is: what status, log and audit say of it, and who sees it."""

import contextlib
import json
import os
import pathlib
import pwd
import re
import signal
import socket
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

BOTH = ("plain", "asan")  # Python cannot load a library of ThreadSanitizer
STATUS, REFUSE, REPORT = 0xF00C, 0xF002, 0xF00D
END, DRAIN = 4, 8
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
BEGIN = "import ctypes as c; print(c.CDLL('libcuda.so.1').cuInit(0))"


def program(server):
    done = t.towline_run(server.address(), [sys.executable, "-c", BEGIN], preload=True)
    t.equal(done.stdout, "0\n", f"cuInit ({done.stderr})")


def audits(server):
    lines = [json.loads(line) for line in server.log().splitlines()]
    return [line for line in lines if line["area"] == "audit"]


def next_audit(server, seen):
    """The audit line of the next session that ends."""
    t.wait_until(lambda: len(audits(server)) > seen, 30, "an audit line")
    return audits(server)[seen]


def called():
    """The name of who runs the test; "": /etc/passwd has none."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return ""


@t.test(60, trees=BOTH)
def an_audit_line_says_how_a_session_ended():
    """One for each session, with the same whatever its worker says."""
    with t.Server("--log-format=json") as server:
        own = f"user {os.getuid()}"

        def leave():
            program(server)

        def vanish():
            with raw.Client(server):
                pass

        def babble():
            with raw.Client(server) as client:
                client.socket.sendall(b"\xff" * 64)
                t.check(client.ended(), "who breaks the protocol is not ended")

        def be_killed():
            with raw.Client(server) as client:
                os.kill(server.status()["sessions"][0]["worker_pid"], signal.SIGKILL)
                t.check(client.ended(), "the line stays open")

        def be_ended():
            with raw.Client(server) as client:
                done = t.run([t.TOWLINE, "end", "-s", server.address(), server.status()["sessions"][0]["id"]])
                t.equal(done.returncode, 0, f"towline end: {done.stderr}")
                t.check(client.ended(), "the line stays open")

        ends = ((leave, "its program left"),
                (vanish, "its program's connection ended"),
                (babble, "its program broke the protocol"),
                (be_killed, f"its worker was ended by signal 9 ({signal.strsignal(9)})"),
                (be_ended, f"the server ended it: {own} asked for it (towline end)"))
        for seen, (act, ended) in enumerate(ends):
            act()
            line = next_audit(server, seen)
            t.equal((line["tenant"], line["user"], line["class"], line["ended"]), (own, called(), "", ended), f"{act.__name__}: {line}")
            t.check(line["level"] == "info" and own in line["peer"] and 0 <= line["seconds"] < 600, f"{line}")
            t.check(re.fullmatch(STAMP, line["began"]) and line["began"] < line["time"], f"{line}")
            t.check(line["message"].endswith(f" calls: {ended}"), f"{line}")
            t.wait_until(lambda: not server.status()["sessions"], 20, "the session has gone")
        t.equal([line["session"] for line in audits(server)], [1, 2, 3, 4, 5], "sessions that have a line")


@t.test(60)
def an_audit_line_is_a_sentence_too():
    with t.Server() as server:
        program(server)
        name = re.escape(f" ({called()})") if called() else ""
        wanted = (rf"^{STAMP} towlined\[{server.listener}\] audit info: session 1 of user {os.getuid()}{name}, class -, from pid \d+ "
                  rf"of user {os.getuid()}, began {STAMP}, lasted \d+\.\d s, \d+ calls: its program left$")
        t.wait_until(lambda: re.search(wanted, server.log(), re.M), 30, "an audit line")
    with t.Server("--log=info,audit=off") as server:
        program(server)
        t.wait_until(lambda: "session 1: ended after" in server.log(), 30, "the session's last line")
        t.check(t.run([t.TOWLINED, "drain", f"--listen={server.address()}"]).returncode == 0, "towlined drain")
        server.process.wait(30 * t.SLOW)  # all lines are written
        t.check("audit" not in server.log(), f"what nobody wants is logged: {server.log()}")


@t.test(60)
def sessions_that_a_server_ends_with_have_their_line():
    with t.Server("--log-format=json") as server:
        with raw.Client(server):
            server.process.send_signal(signal.SIGINT)
            server.process.wait(40 * t.SLOW)
        t.equal([line["ended"] for line in audits(server)], ["the server ended it: it is being shut down"], "audit lines")


@t.test(60)
def a_token_names_tenant_and_class():
    server = t.Server("--require-token", "--log-format=json")
    tokens = server.folder / "tokens"
    server.flags.append(f"--token-file={tokens}")
    with server:
        words = ["token", "create", "--user", "ann", "--class", "night", "--token-file", tokens]
        secret = t.run([t.TOWLINED, *words]).stdout.strip()
        with t.held(server, "poll", "tcp", TOWLINE_TOKEN=secret):
            session = server.status()["sessions"][0]
            t.equal((session["tenant"], session["class"]), ("ann (token)", "night"), "whose session it is")
            table = t.run([t.TOWLINE, "status", "-s", server.address()]).stdout
            t.check(re.search(r"SESSION +CLIENT +PID +TENANT +CLASS +FROM", table) and re.search(r" ann \(token\) +night +127\.0\.0\.1:", table), table)
            begin = next(line for line in map(json.loads, server.log().splitlines()) if line["message"].startswith("session 1: "))
            t.check(begin["tenant"] == "ann (token)" and "session 1: ann (token) from 127.0.0.1:" in begin["message"], f"{begin}")
        line = next_audit(server, 0)
        t.equal((line["tenant"], line["user"], line["class"]), ("ann (token)", "ann", "night"), "whose session it was")
        t.check("session 1 of ann (token), class night, from 127.0.0.1:" in line["message"], f"{line}")
        t.check(secret not in server.log(), "the token is in the log")


# ---- administrators ----

def ask(server, user, topics, session=None):
    """A STATUS frame of that user's; what comes back: the frame's kind, and its text."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30 * t.SLOW)
        os.seteuid(user)
        try:
            connection.connect(str(server.socket))
        finally:
            os.seteuid(0)
        body = struct.pack("<II", raw.MAGIC, topics) + (b"" if session is None else struct.pack("<Q", session))
        connection.sendall(raw.frame(STATUS, body, thread=0))
        data = b""
        while part := connection.recv(4096):
            data += part
        return struct.unpack_from("<IH", data)[1], data[16:]


def seen_by(server, user):
    kind, data = ask(server, user, 1)
    t.equal(kind, REPORT, f"the answer to user {user}")
    return len(json.JSONDecoder().raw_decode(data[data.index(b'{"'):].decode())[0]["sessions"])


@t.test(60)
def administrators_see_and_end_all():
    if os.geteuid() != 0:
        raise t.Skip("only root can be other users")
    with tempfile.TemporaryDirectory() as folder:
        conf = pathlib.Path(folder, "conf")
        conf.write_text("admin-users = 1000, 1001\n")
        with t.Server("--socket-mode=0666", f"--config={conf}") as server, raw.Client(server) as client, raw.Client(server):
            server.folder.chmod(0o711)
            number = min(session["id"] for session in server.status()["sessions"])  # the first client's
            t.equal([seen_by(server, user) for user in (0, 1000, 1001, 1002)], [2, 2, 2, 0], "sessions that root, administrators and another see")
            t.equal([ask(server, 1002, order, number)[0] for order in (END, DRAIN)], [REFUSE, REFUSE], "what another gets")
            conf.write_text("admin-users = 1001\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "were read again" in server.log(), 20, "the settings were read")
            t.equal([seen_by(server, user) for user in (1000, 1001)], [0, 2], "sessions that one who was one sees, and one who is")
            t.equal(ask(server, 1000, END, number)[0], REFUSE, "what one gets who was one")
            t.equal(ask(server, 1001, END, number)[0], REPORT, "what an administrator gets")
            t.check(client.ended(), "the session goes on")
            t.equal(ask(server, 1001, DRAIN)[0], REPORT, "what an administrator gets who drains it")


if __name__ == "__main__":
    t.main()
