# SPDX-License-Identifier: Apache-2.0
"""Starts the system tests for tests/run: each in a process of its own, forked from one that has read Python's modules.

An interpreter takes as long to begin as many a test takes. They are asked for their names in the same way. Standard input is a socket of packets, and its end is the end.
"""

import contextlib
import ctypes  # noqa: F401
import functools
import json
import os
import pathlib
import re  # noqa: F401
import select
import shutil  # noqa: F401
import signal
import socket
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import threading
import types

MESSAGE = 1 << 20


@functools.lru_cache(maxsize=None)
def code_of(module):
    return compile(pathlib.Path(module).read_text(), module, "exec")


def become(asked, output):
    """What the interpreter would be that is told to run this module: until its end, and with its exit code."""
    os.setsid()
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for fd in (1, 2):
        os.dup2(output, fd)
    os.close(output)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    module = asked["argv"][0]
    sys.argv = asked["argv"]
    sys.path[0] = os.path.dirname(module)
    main = types.ModuleType("__main__")
    main.__file__ = module
    sys.modules["__main__"] = main
    return code_of(module), main.__dict__


def reap(line):
    """Says who has ended."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        line.send(json.dumps({"ended": pid, "status": status, "cpu": usage.ru_utime + usage.ru_stime}).encode())


def serve():
    """The code and the names of the module that this process is to run, or None at the end."""
    line = socket.socket(fileno=0)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks ends the tests
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([line, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            reap(line)
        if line not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(line, MESSAGE, 1)
        if not message:
            return None
        asked = json.loads(message)
        with contextlib.suppress(OSError, SyntaxError):  # that is the child's to say
            code_of(asked["argv"][0])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(woken)
            os.close(wake)
            line.detach()
            return become(asked, fds[0])
        os.close(fds[0])
        line.send(json.dumps({"began": asked["number"], "pid": pid}).encode())


class Forker:
    """The side of tests/run. Any thread may start a test."""

    def __init__(self):
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (self.line, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE)
        with theirs:
            self.process = subprocess.Popen([sys.executable, __file__], stdin=theirs)
        self.changed, self.count, self.began, self.ended = threading.Condition(), 0, {}, {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while message := self.line.recv(MESSAGE):
            said = json.loads(message)
            with self.changed:
                if "began" in said:
                    self.began[said["began"]] = said["pid"]
                else:
                    self.ended[said["ended"]] = said["status"], said["cpu"]
                self.changed.notify_all()
        with self.changed:
            self.count = -1
            self.changed.notify_all()

    def _wait(self, found):
        self.changed.wait_for(lambda: found() or self.count < 0)
        if not found():
            raise ChildProcessError("the process that starts tests has ended (tests/lib/forker.py)")

    def start(self, argv, env, cwd):
        """Its process and process group, and what it prints."""
        ours, theirs = os.pipe()
        with self.changed:
            self.count += 1
            number = self.count
            asked = {"number": number, "argv": [str(word) for word in argv], "env": dict(env), "cwd": str(cwd)}
            try:
                socket.send_fds(self.line, [json.dumps(asked).encode()], [theirs])
            finally:
                os.close(theirs)
            self._wait(lambda: number in self.began)
            return self.began.pop(number), open(ours, errors="replace")

    def wait(self, pid):
        """Its status as wait() has it, that of SIGKILL where nobody can say; seconds of processors of all its processes together."""
        with self.changed:
            try:
                self._wait(lambda: pid in self.ended)
            except ChildProcessError:
                return signal.SIGKILL, 0.0
            return self.ended.pop(pid)


if __name__ == "__main__" and (_told := serve()):
    exec(*_told)  # at the outermost, so that its end is the interpreter's
