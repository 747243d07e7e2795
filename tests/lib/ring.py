# SPDX-License-Identifier: Apache-2.0
"""A session's line over shared memory, made of bytes (docs/wire/shared-memory.md): it can also write where it must not."""

import ctypes
import fcntl
import mmap
import os
import select
import socket
import struct
import threading
import time

import rawclient as raw
import towtest as t

CONTROL, HEAD, TAIL, READER_SLEEPS, WRITER_SLEEPS, ENDED = 64 << 10, 0, 128, 256, 384, 1024
OURS, THEIRS = 0, 512  # the controls of the client's ring and of the server's
FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
ODD = (0, 1, 7, 8, 1 << 20, (1 << 31) - 1, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 64) - 8)
_libc = ctypes.CDLL(None)


class Line:
    """Looks like a socket to who says frames and hears them."""

    def __init__(self, server):
        until = time.monotonic() + 20 * t.SLOW
        answer, descriptors = self._ask(server)
        # A worker notices within a second that its client is gone; until then the session has its place.
        while not descriptors and time.monotonic() < until:
            self.socket.close()
            time.sleep(0.1)
            answer, descriptors = self._ask(server)
        t.check(len(descriptors) == 1, f"no memory was given: {answer!r}")
        self.size = struct.unpack_from("<Q", answer, 16)[0]
        self.map = mmap.mmap(descriptors[0], CONTROL + 2 * self.size)
        os.close(descriptors[0])
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.head = self.tail = 0  # of our ring, and of theirs
        self.over = False

    def _ask(self, server):
        """(what the server answers, the memory that it gives: none while all places are taken)"""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20 * t.SLOW)
        self.socket.connect(str(server.socket))
        self.socket.sendall(raw.shm_request(raw.hello("ring")))
        answer, descriptors, _, _ = socket.recv_fds(self.socket, 32, 1)
        return answer, descriptors

    def _get(self, at, form="<Q"):
        return struct.unpack_from(form, self.map, at)[0]

    def _wake(self, word):
        if self._get(word, "<I"):
            struct.pack_into("<I", self.map, word, 0)
            _libc.syscall(FUTEX, ctypes.c_void_p(self.address + word), 1, 1, None, None, 0)

    def sendall(self, data):
        until = time.monotonic() + t.SLOW
        while data and not self.over:
            room = self.size - (self.head - self._get(OURS + TAIL))
            n = min(len(data), room, self.size - self.head % self.size)
            if n <= 0:
                if time.monotonic() > until or self._gone():
                    raise ConnectionResetError("the server does not read any more")
                time.sleep(0.0005)
                continue
            at = CONTROL + self.head % self.size
            self.map[at:at + n] = data[:n]
            data = data[n:]
            self.head += n
            struct.pack_into("<Q", self.map, OURS + HEAD, self.head)
            self._wake(OURS + READER_SLEEPS)

    def _gone(self):
        if select.select([self.socket], [], [], 0)[0]:
            try:
                return not self.socket.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except OSError:
                return True
        return False

    def recv(self, most):
        while not self.over:
            n = min(self._get(THEIRS + HEAD) - self.tail, most, self.size - self.tail % self.size)
            if n > 0:
                at = CONTROL + self.size + self.tail % self.size
                data = self.map[at:at + n]
                self.tail += n
                struct.pack_into("<Q", self.map, THEIRS + TAIL, self.tail)
                self._wake(THEIRS + WRITER_SLEEPS)
                return data
            if n < 0 or self._gone():
                return b""
            time.sleep(0.0005)
        return b""

    def shutdown(self, _):
        self.over = True
        self.socket.shutdown(socket.SHUT_RDWR)

    def pass_descriptor(self, number, descriptor):
        socket.send_fds(self.socket, [b"TOWLSHM\0" + struct.pack("<Q", number)], [descriptor])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over = True
        self.socket.close()

    # ---- what it must not do ----

    def scribble(self, chance, kinds):
        """One write to memory that the server reads just now."""
        kind = chance.choice(kinds)
        if kind == "bytes":  # of what was said: also what is not read yet
            behind = min(self.head, self.size, chance.choice((64, 512, 4096, 65536)))
            if behind:
                at = CONTROL + (self.head - 1 - chance.randrange(behind)) % self.size
                self.map[at] = self.map[at] ^ (1 << chance.randrange(8))
        elif kind == "reply":
            at = CONTROL + self.size + chance.randrange(self.size)
            self.map[at] = chance.randrange(256)
        elif kind == "sleeps":
            struct.pack_into("<I", self.map, chance.choice((OURS, THEIRS)) + chance.choice((READER_SLEEPS, WRITER_SLEEPS)), chance.choice((0, 1, 2, 0xFFFFFFFF)))
        elif kind == "ended":
            struct.pack_into("<I", self.map, ENDED + 4 * chance.randrange(2), chance.choice((0, 1, 0xFFFFFFFF)))
        else:
            at = chance.choice((OURS, THEIRS)) + chance.choice((HEAD, TAIL))
            value = chance.choice(ODD) if chance.random() < 0.3 else self._get(at) + chance.choice((-8, 8, -1, 1, self.size, -self.size, 1 << 40))
            struct.pack_into("<Q", self.map, at, value & (1 << 64) - 1)

    def scribbler(self, chance, kinds, pause):
        """A thread that does so until the line ends."""
        def work():
            while not self.over:
                self.scribble(chance, kinds)
                if pause:
                    time.sleep(pause)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread


def descriptor(chance, size):
    """Something to be passed as memory: that of the right size and seals, and much that is not. (descriptor, whether it is right)"""
    kind = chance.choice(("right", "right", "right", "small", "unsealed", "pipe", "folder", "zero", "read-only", "file"))
    if kind in ("right", "small", "unsealed", "read-only"):
        made = os.memfd_create("fuzz", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(made, size if kind != "small" else max(size - 4096, 4096))
        if kind != "unsealed":
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | (fcntl.F_SEAL_WRITE if kind == "read-only" else 0))
    elif kind == "pipe":
        made, other = os.pipe()
        os.close(other)
    else:
        made = os.open({"folder": "/", "zero": "/dev/zero", "file": "/proc/self/exe"}[kind], os.O_RDONLY)
    return made, kind == "right"
