# SPDX-License-Identifier: Apache-2.0
"""A proxy that cuts a session's connections before, inside and after frames of chosen kinds. Over tcp it reads what travels
(docs/wire/lasting.md); over tls it sees records, and tells them by their sizes."""

import re
import select
import socket
import struct
import threading

import cutter
import rawclient as raw
import towtest as t

UP, DOWN = "up", "down"  # from the client, to the client
BACK = {UP: DOWN, DOWN: UP}
PLACES = ("before", "inside", "after")

RECORDS = {1: "data record", 2: "ack record", 3: "ask record", 4: "resume record", 5: "end record"}
CALLS = {"cuLaunchKernel": "launch", "cuMemcpyHtoDAsync": "upload", "cuMemcpyDtoHAsync": "download", "cuEventRecord": "event record",
         "cuLibraryLoadData": "module load", "cuModuleLoadDataEx": "module load", "cuLaunchHostFunc": "host function"}
# The first word of each row of the page, by number.
CONTROL = {int(number, 16): name for number, name in re.findall(
    r"^\| (0xf0..) \| (\w+) \|", (t.ROOT / "docs" / "wire" / "control.md").read_text(), re.M)}
FUNCTIONS = {number: name.removesuffix("_v2") for name, number in raw.FUNCTIONS.items()}
PROOFS = ("RESUME", "CHALLENGE", "PROOF", "PROVED")
TLS = {20: "change", 21: "alert", 22: "handshake"}
LEASH = 0xFFFFFFFE
QUIET = 12000  # bytes over tls in which a session begins, and is not cut: no connection of it lasts before that


def name_of(head):
    """What a frame with that header is called here."""
    _, kind, _, _, seq = struct.unpack("<IHHII", head)
    return CONTROL.get(kind) or CALLS.get(FUNCTIONS.get(kind), "call" if seq else "command")


class Target:
    """One cut: at which frame of a kind, counted from the session's begin, and where."""

    def __init__(self, direction, kind, place, nth):
        self.cell, self.nth, self.skip = (direction, kind, place), nth, nth

    def __repr__(self):
        direction, kind, place = self.cell
        return f"{place} {kind} {self.nth} ({direction})"


class Plan:
    """Cuts that are still to be made, by whatever connection comes to one first; and what was seen."""

    def __init__(self, random, targets=()):
        self.random, self.targets = random, list(targets)
        self.lock = threading.RLock()  # guards this, and the streams of the session
        self.made, self.seen, self.streams, self.owners = [], {}, {}, {}

    def meet(self, direction, kind, length):
        """A frame of that kind begins: how many of its bytes may pass; None: it is not cut."""
        self.seen[direction, kind] = self.seen.get((direction, kind), 0) + 1
        found = None
        for target in self.targets:
            if target.cell[:2] == (direction, kind):
                if target.skip == 0 and found is None:
                    found = target
                else:
                    target.skip = max(0, target.skip - 1)
        if found is None:
            return None
        self.targets.remove(found)
        self.made.append(found)
        return {"before": 0, "inside": self.random.randrange(1, length), "after": length}[found.cell[2]]

    def again(self):
        """For another session: what did not come is wanted sooner."""
        self.streams, self.owners = {}, {}
        for target in self.targets:
            target.nth = target.skip = target.nth // 4


class Stream:
    """One direction of a line, over all of its connections: how far it was read, and where in a frame that is."""

    def __init__(self):
        self.at, self.head, self.left = 0, b"", 0


class Pair:
    """A connection through the proxy."""

    def __init__(self, plan):
        self.plan, self.line, self.kind = plan, None, None  # kind as cutter's
        self.again = False  # it begins by RESUME
        self.lasts = {UP: False, DOWN: False}  # records travel
        self.halves = {UP: Half(self, UP), DOWN: Half(self, DOWN)}
        self.bytes = 0

    def greet(self, direction, kind, frame):
        """A frame outside of records."""
        name = CONTROL.get(kind)
        if direction == UP and self.kind is None:
            self.kind, self.again = cutter.kind_of(frame), name == "RESUME"
            self.line = 0 if name == "HELLO" else struct.unpack_from("<I", frame, 20)[0] if name == "RESUME" else None
        if self.line == 0 and name == "LASTING":
            self.begin(UP)
            self.begin(DOWN)
        elif self.line not in (None, LEASH) and name in ("PROOF", "PROVED"):
            self.begin(direction)

    def begin(self, direction):
        self.lasts[direction] = True
        self.plan.owners[self.line, direction] = self

    def is_stale(self, direction):
        return self.lasts[direction] and self.plan.owners.get((self.line, direction)) is not self

    def stream(self, direction):
        return self.plan.streams.setdefault((self.line, direction), Stream())


class Half:
    """One direction of one connection."""

    def __init__(self, pair, direction):
        self.pair, self.direction = pair, direction
        self.held = b""    # what is not whole, and was not sent on
        self.record = 0    # what is left of a record
        self.repeats = 0   # bytes that follow and have been here
        self.layer = None  # what is counted until the cut
        self.count = 0     # so many bytes of it
        self.out = bytearray()
        self.cut = False

    def take(self, data):
        """What is to be sent on, and whether the connection is cut behind it."""
        with self.pair.plan.lock:
            if self.pair.is_stale(self.direction):
                return b"", True  # its line goes on over another one
            self.out = bytearray()
            data = self.held + data
            at = 0
            while at < len(data) and not self.cut:
                used = self._tls(data, at) if self.pair.kind == "granted" else self._tcp(data, at)
                if used == 0:
                    break
                at += used
            self.held = data[at:]
            return bytes(self.out), self.cut

    def _meet(self, kind, length, layer):
        """A frame begins."""
        if self.layer is None:
            may_pass = self.pair.plan.meet(self.direction, kind, length)
            if may_pass is not None:
                self.layer, self.count = layer, may_pass

    def _pass(self, data, layer):
        """Bytes of that layer are sent on, up to the cut."""
        if self.layer == layer and self.count <= len(data):
            self.out += data[:max(0, self.count)]
            self.cut = True
        else:
            self.out += data
            self.count -= len(data) if self.layer == layer else 0
        return len(data)

    def _tls(self, data, at):
        pair = self.pair
        if self.record == 0:
            if len(data) - at < 5:
                return 0
            kind, _, size = struct.unpack_from(">BHH", data, at)
            self.record = 5 + size
            pair.bytes += self.record
            if pair.line is None:  # the first one of a session is its own
                pair.line = LEASH if pair.plan.owners.get("first") else 0
                pair.plan.owners["first"] = True
            if pair.line == LEASH or pair.bytes > QUIET:
                name = TLS.get(kind) or ("short record" if size <= 40 else "record" if size < 4096 else "long record")
                self._meet(name, self.record, "wire")
        part = data[at:at + self.record]
        self.record -= len(part)
        return self._pass(part, "wire")

    def _tcp(self, data, at):
        pair = self.pair
        if pair.kind in ("status", "unknown"):
            return self._pass(data[at:], "wire")
        if pair.lasts[self.direction]:
            return self._stream(data, at) if self.record > 0 else self._head(data, at)
        if len(data) - at < 16:
            return 0
        length, kind = struct.unpack_from("<IH", data, at)
        if len(data) - at < length:
            return 0
        frame = data[at:at + length]
        pair.greet(self.direction, kind, frame)
        if CONTROL.get(kind) in PROOFS and pair.line is not None and pair.again:
            self._meet(CONTROL[kind], length, "wire")
        return self._pass(frame, "wire")

    def _head(self, data, at):
        if len(data) - at < 16:
            return 0
        size, kind, taken = struct.unpack_from("<IIQ", data, at)
        t.check(kind in RECORDS, f"a record of kind {kind}")
        self.record = size
        if RECORDS[kind] == "resume record":
            back = self.pair.stream(BACK[self.direction])
            t.check(taken <= back.at, f"{taken} bytes are taken of {back.at}")
            self.pair.halves[BACK[self.direction]].repeats = back.at - taken
        self._meet(RECORDS[kind], 16, "wire")
        used = self._pass(data[at:at + 16], "wire")
        if size > 0 and self.repeats > 1:
            self._meet("repeat", self.repeats, "stream")
        return used

    def _stream(self, data, at):
        stream, part = self.pair.stream(self.direction), data[at:at + self.record]
        if self.repeats > 0:
            part = part[:self.repeats]
            self.repeats -= len(part)
        else:
            if stream.left == 0:
                part = part[:16 - len(stream.head)]
                stream.head += part
                if len(stream.head) == 16:
                    length = struct.unpack_from("<I", stream.head)[0]
                    self._meet(name_of(stream.head), length, "stream")
                    self.count -= 16 - len(part) if self.layer == "stream" else 0  # what was sent on before
                    stream.left, stream.head = length - 16, b""
            else:
                part = part[:stream.left]
                stream.left -= len(part)
            stream.at += len(part)
        self.record -= len(part)
        return self._pass(part, "stream")


class FrameCutter(cutter.Cutter):
    """Forwards as cutter.Cutter does, and cuts as the plan says."""

    def __init__(self, port, plan, scheme="tcp"):
        super().__init__(port, scheme=scheme)
        self.plan = plan

    def _carry(self, client, server):
        peers = {client: (server, UP), server: (client, DOWN)}
        pair, open_ends, first = Pair(self.plan), {client, server}, True
        try:
            while open_ends:
                for one in select.select(list(open_ends), [], [], 0.2)[0]:
                    data = one.recv(1 << 18)
                    to, direction = peers[one]
                    if not data:
                        open_ends.discard(one)
                        to.shutdown(socket.SHUT_WR)
                        continue
                    if first and one is client and data[0] == 22:
                        pair.kind = {"shake": "unknown"}.get(cutter.kind_of(data), "granted")
                    first = first and one is not client
                    out, cut = pair.halves[direction].take(data)
                    to.sendall(out)
                    if cut:
                        self.done += 1
                        return
        except OSError:
            pass  # one of them has ended
        finally:
            with self.lock:
                self.pairs.discard((client, server))
                hard = self.random.random() < 0.5
            for one in (client, server):
                if hard:
                    self._reset(one)
                else:
                    one.close()
