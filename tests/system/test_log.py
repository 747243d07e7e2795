#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The log of server and client: stamps, sessions, JSON, a journal."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import rawclient as raw  # noqa: E402
import towtest as t  # noqa: E402

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
BEGIN = "import ctypes as c; print(c.CDLL('libcuda.so.1').cuInit(0))"


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def one_session(server):
    """A session whose worker writes a line, and a stranger that the listener complains of; the session's number."""
    with raw.Client(server, name=b'x"\n\x1b\\\xff\xc3\xa4'):
        number = server.status()["sessions"][0]["id"]
    t.wait_until(lambda: f"session {number}: ended after" in server.log(), 10, "the session's last line")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(server.socket))
        stranger.sendall(b"\x10\0\0\0")
    t.wait_until(lambda: "went before it had said all" in server.log(), 10, "a line about the stranger")
    return number


@t.test(60)
def json_has_all_that_is_known():
    with t.Server("--log-format=json", "--log=debug") as server:
        number = one_session(server)
        lines = objects(server.log())
        for line in lines:
            t.check(list(line)[:4] == ["time", "level", "area", "pid"] and list(line)[-1] == "message", f"{line}")
            t.check(re.fullmatch(STAMP, line["time"]) and line["level"] in ("error", "warn", "info", "debug"), f"{line}")
            t.check(line["area"] in ("server", "backend", "soft", "audit"), f"{line}")
        pids = {line["pid"] for line in lines}
        t.check(server.listener in pids and len(pids) > 1, f"listener and worker write: {pids}")
        begins = next(line for line in lines if line["message"].startswith(f"session {number}: "))
        t.equal((begins["session"], begins["tenant"]), (number, f"user {os.getuid()}"), "the listener's line")
        own = [line for line in lines if line.get("session") == number and line["pid"] != server.listener]
        t.check(own, f"no line of the worker has its session\n{server.log()}")
        t.check(all(line["tenant"] == f"user {os.getuid()}" and line["peer"] for line in own), f"{own}")
        t.check(any('x"' in line["message"] and "\ufffd" in line["message"] for line in own), f"the name is not there: {own}")
        stranger = next(line for line in lines if "went before" in line["message"])
        t.check("session" not in stranger and stranger["peer"] and stranger["level"] == "warn", f"{stranger}")


@t.test(60)
def text_says_when_and_whose():
    with t.Server("--log=debug") as server:
        number = one_session(server)
        for line in server.log().splitlines():
            t.check(re.match(rf"{STAMP} towlined(\[\d+\] \w+ \w+)?: ", line), f"no stamp: {line!r}")
        worker = re.search(r"session \d+: .*worker (\d+)", server.log()).group(1)
        own = [line for line in server.log().splitlines() if "the session of x" in line]
        t.check(own and all(f" session {number}: " in line for line in own), f"worker {worker}: {own}")


@t.test(60)
def a_journal_adds_the_time_itself():
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+") as log:
        stat = os.fstat(log.fileno())
        process = subprocess.Popen([t.TOWLINED, "--device=soft", "--soft-memory=256M", f"--cache-dir={folder}", f"--listen={folder}/sock"],
                                   stderr=log, env={**os.environ, "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"})
        try:
            t.wait_until(lambda: " serves " in pathlib.Path(log.name).read_text() or process.poll() is not None, 20, "it serves")
            done = t.run([t.TOWLINE, "run", "-s", f"{folder}/sock", "--", sys.executable, "-c", BEGIN])
            t.equal(done.stdout, "0\n", f"cuInit ({done.stderr})")
        finally:
            process.terminate()
            process.wait(40 * t.SLOW)
        for line in pathlib.Path(log.name).read_text().splitlines():
            t.check(re.match(r"<[3467]>(?!\d{4}-)(?!towlined)", line), f"{line!r}")


@t.test(60)
def a_format_is_read_again():
    with tempfile.TemporaryDirectory() as folder:
        conf = pathlib.Path(folder, "conf")
        conf.write_text("log-format = text\n")
        with t.Server(f"--config={conf}") as server:
            conf.write_text("log-format = xml\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "log-format = xml cannot be understood; write text or json" in server.log(), 20, "a sentence")
            t.check(server.log().splitlines()[-1].endswith("write text or json"), server.log())
            conf.write_text("log-format = json\n")
            server.process.send_signal(signal.SIGHUP)
            t.wait_until(lambda: "were read again" in server.log(), 20, "a word")
            t.equal(json.loads(server.log().splitlines()[-1])["message"], "the settings were read again", "the last line")
    done = t.run([t.TOWLINED, "--log-format=xml"])
    t.equal((done.returncode, done.stderr), (2, "towlined: log-format = xml cannot be understood; write text or json.\n"), "a wrong format")


def reload_with_mistake(server_log, process, conf, socket_path):
    """A file whose last setting is wrong: what stands before it has no effect, either. The lines since."""
    conf.write_text("log = debug\nlog-format = json\nallow-users = nobody-has-this-name\n")
    before = len(server_log())
    process.send_signal(signal.SIGHUP)
    t.wait_until(lambda: "the settings stay as they were: allow-users: " in server_log()[before:], 20, "a sentence")
    done = t.run([t.TOWLINE, "run", "-s", socket_path, "--", sys.executable, "-c", BEGIN])
    t.equal(done.stdout, "0\n", f"cuInit ({done.stderr})")
    t.wait_until(lambda: ": ended after " in server_log()[before:], 20, "the session's last line")
    return server_log()[before:].splitlines()


@t.test(60)
def a_mistake_keeps_the_log_as_it_was():
    """Also where the format was not set, but found: a journal's."""
    for journal in (False, True):
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w+") as log:
            stat, conf = os.fstat(log.fileno()), pathlib.Path(folder, "conf")
            conf.write_text("log = info\n")
            env = {**os.environ, **({"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"} if journal else {})}
            process = subprocess.Popen([t.TOWLINED, "--device=soft", "--soft-memory=256M", f"--cache-dir={folder}", f"--listen={folder}/sock",
                                        f"--config={conf}"], stderr=log, env=env)
            try:
                def text():
                    return pathlib.Path(folder, "log").read_text()
                t.wait_until(lambda: " serves " in text() or process.poll() is not None, 20, "it serves")
                lines = reload_with_mistake(text, process, conf, f"{folder}/sock")
                wanted = r"<[346]>" if journal else rf"{STAMP} towlined(\[\d+\] \w+ info)?: "
                t.check(all(re.match(wanted, line) for line in lines), f"the log is another: {lines}")
            finally:
                process.terminate()
                process.wait(40 * t.SLOW)


@t.test(60)
def a_programs_lines_are_for_people():
    """Unless JSON is asked for; the same with a private server, whose lines come between those of the program."""
    command = [t.TOWLINE, "run", "--device", "soft", "--", sys.executable, "-c", BEGIN]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "TOWLINE_LOG": "debug", "XDG_CACHE_HOME": folder}
        done = t.run(command, env=env)
        t.check(done.stderr and all(re.match(r"towlined?(\[\d+\] \w+ \w+)?: ", line) for line in done.stderr.splitlines()), done.stderr)
        done = t.run(command, env={**env, "TOWLINE_LOG_FORMAT": "json"})
        areas = {line["area"] for line in objects(done.stderr)}
        t.check({"client", "server"} <= areas, f"{areas}\n{done.stderr}")
        done = t.run(command, env={**env, "TOWLINE_LOG": "warn", "TOWLINE_LOG_FORMAT": "xml"})
        t.check("towline: TOWLINE_LOG_FORMAT=xml is not understood; write text or json\n" in done.stderr, done.stderr)


if __name__ == "__main__":
    t.main()
