# SPDX-License-Identifier: Apache-2.0
"""A server that does what no server does: a proxy before a real one, which changes the frames that the client gets."""

import contextlib
import pathlib
import socket
import struct
import tempfile
import threading

import rawclient as raw

CALLBACK, DATA, REPLY, MIRROR = 0xF004, raw.DATA, raw.REPLY, 0xF00E
MOST = 64 << 20


def kind_of(frame):
    return struct.unpack_from("<H", frame, 4)[0]


def seq_of(frame):
    return struct.unpack_from("<I", frame, 12)[0]


def _exactly(source, size):
    data = bytearray()
    while len(data) < size:
        more = source.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ConnectionResetError
        data += more
    return bytes(data)


class Rogue:
    """Use with `with`. `change(frame, line)` answers the frames that go to the client in the place of one of the server's;
    `line` counts connections from 0, which is the session's own. `heard(frame, line)` sees the client's frames."""

    def __init__(self, server, kind, change, heard=None):
        self.server, self.kind, self.change, self.heard = server, kind, change, heard
        self.folder = tempfile.TemporaryDirectory(prefix="tow")
        self.path = pathlib.Path(self.folder.name, "sock")
        self.socket = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
        self.socket.bind(("127.0.0.1", 0) if kind == "tcp" else str(self.path))
        self.socket.listen()
        self.address = f"tcp://127.0.0.1:{self.socket.getsockname()[1]}" if kind == "tcp" else f"unix://{self.path}"
        self.lock, self.ends, self.lines, self.threads = threading.Lock(), [], 0, []
        self.wrong = []  # what a test's own function raised

    def __enter__(self):
        self.start(self.accept)
        return self

    def __exit__(self, kind, *_):
        self.shut(self.socket)
        for end in self.ends:
            self.shut(end)
        for thread in self.threads:
            thread.join(20)
        for end in (self.socket, *self.ends):
            end.close()
        self.folder.cleanup()
        if kind is None and self.wrong:
            raise self.wrong[0]

    @staticmethod
    def shut(end):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

    def start(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                ours = self.socket.accept()[0]
                if self.kind == "tcp":
                    theirs = socket.create_connection(("127.0.0.1", self.server.port()))
                else:
                    theirs = socket.socket(socket.AF_UNIX)
                    theirs.connect(str(self.server.socket))
                self.ends += [ours, theirs]
                self.start(self.pass_on, theirs, ours, self.lines, self.changed)
                self.start(self.pass_on, ours, theirs, self.lines, self.told)
                self.lines += 1

    def changed(self, frame, line):
        with self.lock:
            frames = self.change(frame, line)
        return b"".join(frames)

    def told(self, frame, line):
        if self.heard:
            with self.lock:
                self.heard(frame, line)
        return frame

    def pass_on(self, come, go, line, through):
        try:
            while True:
                head = _exactly(come, 16)
                length = struct.unpack_from("<I", head)[0]
                if not 16 <= length <= MOST:
                    raise AssertionError(f"a frame of {length} bytes")
                go.sendall(through(head + _exactly(come, length - 16), line))
        except OSError:
            self.shut(go)
            self.shut(come)
        except Exception as error:  # of the test's function
            self.wrong.append(error)
            self.shut(go)
