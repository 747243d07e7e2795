# SPDX-License-Identifier: Apache-2.0
"""A server that does what no server does: a proxy before a real one, which changes the frames that the client gets."""

import contextlib
import mmap
import os
import pathlib
import socket
import struct
import tempfile
import threading

import rawclient as raw
import ring

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

    def hang_up(self):
        for end in (self.socket, *self.ends):
            self.shut(end)

    def __exit__(self, kind, *_):
        self.hang_up()
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


class RogueMemory:
    """The same over shared memory. It has the rings that it gets from the server for the client, and whatever memory the client
    passes; `scribble` writes into what the client reads. Use with `with`."""

    def __init__(self, server, chance, kinds):
        self.server, self.chance, self.kinds = server, chance, kinds
        self.folder = tempfile.TemporaryDirectory(prefix="tow")
        self.socket = socket.socket(socket.AF_UNIX)
        self.path = pathlib.Path(self.folder.name, "sock")
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.address = f"shm://{self.path}"
        self.lock, self.rings, self.passed, self.size = threading.Lock(), None, [], 0
        self.ends, self.over, self.done = [], threading.Event(), 0

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.hang_up()
        self.socket.close()
        self.folder.cleanup()

    def hang_up(self):
        self.over.set()
        for end in (self.socket, *self.ends):
            Rogue.shut(end)

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                ours = self.socket.accept()[0]
                theirs = socket.socket(socket.AF_UNIX)
                theirs.connect(str(self.server.socket))
                self.ends += [ours, theirs]
                threading.Thread(target=self.pass_on, args=(ours, theirs, self.hear_memory), daemon=True).start()
                threading.Thread(target=self.pass_on, args=(theirs, ours, self.hear_rings), daemon=True).start()

    def hear_rings(self, data, descriptor):
        self.size = struct.unpack_from("<Q", data, 16)[0]
        self.rings = mmap.mmap(descriptor, ring.CONTROL + 2 * self.size)
        threading.Thread(target=self.work, daemon=True).start()

    def hear_memory(self, _, descriptor):
        with contextlib.suppress(OSError, ValueError):
            self.passed.append(mmap.mmap(descriptor, 0))

    def pass_on(self, come, go, heard):
        with contextlib.suppress(OSError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(come, 1 << 16, 4)
                if not data:
                    break
                socket.send_fds(go, [data], descriptors) if descriptors else go.sendall(data)
                for descriptor in descriptors:
                    heard(data, descriptor)
                    os.close(descriptor)
        Rogue.shut(go)

    def work(self):
        pause = self.chance.choice((0, 0.0005, 0.005, 0.05))
        while not self.over.wait(pause):
            self.scribble(self.chance.choice(self.kinds))
            self.done += 1

    def word(self, form, at, value):
        struct.pack_into(form, self.rings, at, value)

    def scribble(self, kind):
        """One write to memory that the client reads just now."""
        chance = self.chance
        if kind == "bytes":  # near what was said last
            head = struct.unpack_from("<Q", self.rings, ring.THEIRS + ring.HEAD)[0]
            at = ring.CONTROL + self.size + (head - 64 + chance.randrange(128)) % self.size
            self.rings[at] = self.rings[at] ^ (1 << chance.randrange(8))
        elif kind == "sleeps":
            at = chance.choice((ring.OURS, ring.THEIRS)) + chance.choice((ring.READER_SLEEPS, ring.WRITER_SLEEPS))
            self.word("<I", at, chance.choice((0, 1, 2, 0xFFFFFFFF)))
        elif kind == "ended":
            self.word("<I", ring.ENDED + 4, chance.choice((0, 1, 0xFFFFFFFF)))
        elif kind == "position":  # what the server has written, or read
            at = chance.choice((ring.THEIRS + ring.HEAD, ring.OURS + ring.TAIL))
            before = struct.unpack_from("<Q", self.rings, at)[0]
            value = chance.choice(ring.ODD) if chance.random() < 0.3 else before + chance.choice((-8, 8, -1, 1, self.size, -self.size, 1 << 40))
            self.word("<Q", at, value & (1 << 64) - 1)
        elif self.passed:  # "memory": words that are waited for, at the beginning of pieces, and bytes of copies
            memory = chance.choice(self.passed)
            at = chance.randrange(min(len(memory), chance.choice((256, 4096, 1 << 22))) // 8) * 8
            struct.pack_into("<Q", memory, at, chance.choice((0, 1, 2, 3, 1 << 32, 1 << 32 | 1, (1 << 64) - 1, chance.getrandbits(64))))
