# SPDX-License-Identifier: Apache-2.0
"""A client made of bytes: says whatever a test wants to a server, also what no program would.

Only what docs/wire-format.md and docs/wire say is used; numbers of functions and kinds of handles come from the tree.
"""

import hashlib
import re
import socket
import struct

import towtest as t

HELLO, WELCOME, REPLY, DATA, NOTICE, LANE = 0xF000, 0xF001, 0xF003, 0xF007, 0xF00A, 0xF00F
MAGIC = 0x4C574F54
PROTOCOL = int(re.search(r"TOW_PROTOCOL_MAX (\d+)u", (t.ROOT / "src" / "wire" / "limits.h").read_text())[1])


def _functions():
    found = {}
    for path in (t.ROOT / "api").glob("*.api"):
        found.update((name, int(number)) for number, name in re.findall(r"^fn (\d+) (cu\w+)\(", path.read_text(), re.M))
    return found


FUNCTIONS = _functions()
_header = (t.BUILD / "src" / "gen" / "functions.h").read_text()
_source = (t.BUILD / "src" / "gen" / "functions.c").read_text()
TABLE_HASH = [int(word, 16) for word in re.findall(r"0x([0-9a-f]{16})u", re.search(r"tow_table_hash\[4\] = \{([^}]*)\}", _source)[1])]
TRAVELS = {int(number): int(word, 16) for number, word in re.findall(r"\[(\d+)\] = \{[^}]*0x([0-9a-f]{8})u\},", _source)}
_kinds = re.search(r"TOW_H_NONE,(.*?)TOW_H_LIMIT", _header, re.S)[1]
KINDS = {word: int(number) for word, number in re.findall(r"TOW_H_(\w+) = (\d+)", _kinds)}


def text(value):
    """A string as it travels; None is none."""
    if value is None:
        return struct.pack("<I", 0)
    data = (value if isinstance(value, bytes) else value.encode()) + b"\0"
    return struct.pack("<I", len(data)) + data + bytes(-len(data) % 4)


def frame(kind, body=b"", thread=1, context=0, seq=0):
    body += bytes(-len(body) % 8)
    return struct.pack("<IHHII", 16 + len(body), kind, thread, context, seq) + body


def hello(name="raw", slot=0xFFFFFFFF, variables=(), capabilities=0, travels=None):
    """travels: what a client of another table says, functions' numbers and hashes; else it has the server's table."""
    table = TABLE_HASH if travels is None else [1, 2, 3, 4]
    body = struct.pack("<IIII4QQII", MAGIC, PROTOCOL, PROTOCOL, 4711, *table, capabilities, slot, len(variables))
    body += b"".join(map(text, variables)) + text(name) + text(None)
    if travels is not None:
        body += text("9.9") + struct.pack("<I", len(travels))
        body += bytes(-len(body) % 8) + b"".join(struct.pack("<II", *pair) for pair in travels)
    return frame(HELLO, body, thread=0)


def shm_request(preface=b"", version=2, size=None):
    """A request for shared memory; size: what it says of the preface."""
    return b"TOWLSHM\0" + struct.pack("<II", version, len(preface) if size is None else size) + preface


def handle(kind, index, generation=1):
    """Objects of all kinds share the numbers; those of contexts also stand in headers."""
    return KINDS[kind] << 56 | generation << 32 | index + (0 if kind == "CONTEXT" else 100 * KINDS[kind])


class Client:
    """A session over the server's unix socket, or over tcp from that address. Use with `with`."""

    def __init__(self, server, greet=True, source=None, **more):
        self.socket = socket.socket(socket.AF_INET if source else socket.AF_UNIX)
        self.socket.settimeout(20 * t.SLOW)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect(("127.0.0.1", server.port()) if source else str(server.socket))
        self.seq = 0
        self.others = {}  # results of calls that nobody waited for, by their seq
        if greet:
            self.socket.sendall(hello(**more))
            kind = NOTICE
            while kind == NOTICE:  # a server that has no worker ready asks for patience
                kind = self.receive()[0]
            t.equal(kind, WELCOME, "the answer to the hello")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the server has closed the line")
            data += more
        return data

    def receive(self):
        """The next frame: kind, context (a reply's result), seq, body."""
        length, kind, _, context, seq = struct.unpack("<IHHII", self._exactly(16))
        return kind, context, seq, self._exactly(length - 16)

    def send(self, function, body=b"", context=1, thread=1):
        """A command that nobody waits for."""
        self.socket.sendall(frame(FUNCTIONS[function], body, thread, context))

    def data(self, transfer, offset, payload, flags=0):
        pad = -len(payload) % 8
        head = struct.pack("<IIQ", transfer, flags | pad, offset)
        self.socket.sendall(frame(DATA, head + payload + bytes(pad), 0))

    def call(self, function, body=b"", context=1, thread=1):
        """A command and its reply: result and body. What comes in between is dropped, but results of other calls are kept."""
        self.seq += 1
        self.socket.sendall(frame(FUNCTIONS[function], body, thread, context, self.seq))
        while True:
            kind, result, seq, answer = self.receive()
            if kind == REPLY and seq == self.seq:
                return result, answer
            if kind == REPLY:
                self.others[seq] = result

    def begin(self):
        """Takes the first device's primary context as number 1."""
        result, _ = self.call("cuDevicePrimaryCtxRetain", struct.pack("<QI", handle("CONTEXT", 1), 0), context=0)
        t.equal(result, 0, "the result of cuDevicePrimaryCtxRetain")
        return self

    def alloc(self, size):
        result, body = self.call("cuMemAlloc_v2", struct.pack("<Q", size))
        t.equal(result, 0, "the result of cuMemAlloc")
        return struct.unpack_from("<Q", body)[0]

    def ended(self):
        """Whether the server closes the line."""
        try:
            while True:
                self.receive()
        except (ConnectionResetError, BrokenPipeError):
            return True
        except TimeoutError:
            return False


PTX, RAW = 1, 5  # forms of images
NO_OPTIONS = struct.pack("<II", 0, 0)


def image_ref(image, form, stage, transfer):
    """How a command names an image."""
    return hashlib.sha256(image).digest() + struct.pack("<Q4I", len(image), form, stage, transfer, 0)


def with_image(client, function, image, form, transfer, before, after):
    """A command with an image, which is sent if the server wants it: the reply's result and body."""
    result, body = client.call(function, before + image_ref(image, form, 0, transfer) + after)
    if result == 0 and struct.unpack_from("<II", body) == (0, 1):
        for offset in range(0, len(image), 1 << 20):
            client.data(transfer, offset, image[offset:offset + (1 << 20)])
        result, body = client.call(function, before + image_ref(image, form, 1, transfer) + after)
    return result, body


def library(client, index, image, form=PTX, transfer=1, options=NO_OPTIONS):
    """Loads an image as library number `index`: the reply's result and body."""
    before = struct.pack("<Q", handle("LIBRARY", index))
    return with_image(client, "cuLibraryLoadData", image, form, transfer, before, options)


def kernel(client, index, name):
    """Looks a kernel up in the first library: its id."""
    made = handle("KERNEL", index)
    text = name.encode() + b"\0"
    body = struct.pack("<QQiII", handle("LIBRARY", 1), made, 0, 0, len(text)) + text
    t.equal(client.call("cuLibraryGetKernel", body)[0], 0, "the result of cuLibraryGetKernel")
    return made
