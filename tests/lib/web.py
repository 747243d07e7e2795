# SPDX-License-Identifier: Apache-2.0
"""A server that answers over HTTP, for tests of its page and its metrics; a program that holds memory."""

import contextlib
import http.client
import json
import pathlib
import re
import socket
import subprocess

import towtest as t

HELPERS = pathlib.Path(__file__).resolve().parent.parent / "system" / "helpers"


class Web(t.Server):
    """A server with a page, and tokens."""

    def __init__(self, *flags, **more):
        super().__init__("--http=0", *flags, **more)
        self.flags.append(f"--token-file={self.folder / 'tokens'}")

    @property
    def port_of_page(self):
        return int(re.search(r"shows itself on http://127\.0\.0\.1:(\d+)", self.log()).group(1))

    def token(self, user):
        done = t.run([t.TOWLINED, "token", "create", "--user", user, "--token-file", self.folder / "tokens"])
        t.equal(done.returncode, 0, f"the exit code of towlined token ({done.stderr})")
        return done.stdout.strip()

    def ask(self, path, method="GET", token=None, **fields):
        """Status, fields and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port_of_page, timeout=60 * t.SLOW)
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()

    def json(self, path, token=None):
        status, _, body = self.ask(path, token=token)
        t.equal(status, 200, f"the answer to {path} ({body})")
        return json.loads(body)

    def say(self, request):
        """The first line that comes for these bytes; "": none."""
        with socket.create_connection(("127.0.0.1", self.port_of_page), 60 * t.SLOW) as line:
            line.sendall(request)
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_WR)
            data = b""
            with contextlib.suppress(ConnectionResetError):
                while more := line.recv(1 << 16):
                    data += more
            return data.split(b"\r\n")[0].decode()

    def process_of_page(self):
        """Its number."""
        parent = self.process.pid
        children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return next((int(pid) for pid in children if self._name(pid) == "towline-web"), None)

    def workers(self):
        page = self.process_of_page()
        return [pid for pid in super().workers() if pid != page]


@contextlib.contextmanager
def holding(address, token=None, mode="leave"):
    """A program that holds 256 MiB of GPU memory."""
    program = t.build_c(HELPERS / "hold.c", ["-lcuda"], "hold")
    env = t.clean_environment()
    if token:
        env["TOWLINE_TOKEN"] = token
    with subprocess.Popen([str(t.TOWLINE), "run", "-s", address, "--", str(program), mode], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as process:
        try:
            t.equal(process.stdout.readline(), b"ready\n", "what the program says")
            yield process
        finally:
            process.kill()
