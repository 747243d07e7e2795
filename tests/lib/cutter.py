# SPDX-License-Identifier: Apache-2.0
"""A proxy between programs and a server that cuts connections at chosen bytes, or stops forwarding."""

import random
import select
import socket
import struct
import threading


KINDS = {0xF000: "main", 0xF00C: "status", 0xF00F: "lane", 0xF01B: "resume"}


def names_grant(hello):
    """Whether a ClientHello has a pre-shared key, which is its last extension."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + struct.unpack_from(">H", hello, at)[0]
    at += 1 + hello[at] + 2
    kind = None
    while at + 4 <= len(hello):
        kind, size = struct.unpack_from(">HH", hello, at)
        at += 4 + size
    return kind == 41


def kind_of(first):
    """What a connection is for, by the first bytes of its client."""
    if len(first) < 24:
        return "unknown"
    if first[0] == 22:
        return "granted" if names_grant(first) else "shake"
    kind, line = KINDS.get(struct.unpack_from("<H", first, 4)[0], "unknown"), struct.unpack_from("<I", first, 20)[0]
    if kind == "resume":
        return {0: "main", 0xFFFFFFFF: "side", 0xFFFFFFFE: "leash"}.get(line, "lane")
    return "side" if kind == "lane" and line == 0xFFFFFFFF else kind


class Cutter:
    """Forwards to ("127.0.0.1", port). `cuts` times it cuts the connection that carries the next chosen byte: there, so that the
    bytes before it arrive and it does not. `gap` is how many bytes lie between two cuts at most, of both directions together; before
    the first one `spare` more. `only`: connections of these kinds. Use with `with`; the address is `address`."""

    def __init__(self, port, seed=0, cuts=0, gap=1 << 16, spare=0, only=None, scheme="tcp"):
        self.port, self.random, self.cuts, self.gap = port, random.Random(seed), cuts, gap
        self.only = only
        self.done = self.refused = 0  # cuts; connections while the network is down
        self.down = self.stalled = False
        self.source = None  # the address from which it connects to the server
        self.left = spare + self._next()
        self.lock = threading.Lock()
        self.pairs = set()
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}"

    def _next(self):
        return int(self.gap ** self.random.random()) + self.random.randrange(64)  # small ones as often as large ones

    def __enter__(self):
        self.accepting.start()
        return self

    def __exit__(self, *_):
        self.down = True
        # One that still waited on the closed descriptor would take, and refuse, what comes to the next socket with its number.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.accepting.join()
        self.listener.close()
        self.cut_all()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.down:
                self.refused += 1
                self._reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.port), source_address=self.source and (self.source, 0))
            except OSError:
                self._reset(client)
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.add((client, server))
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    @staticmethod
    def _reset(one):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()

    def _carry(self, client, server):
        peers = {client: server, server: client}
        open_ends = {client, server}
        kind = None
        try:
            while open_ends:
                ready = select.select(list(open_ends), [], [], 0.2)[0]
                if self.stalled:
                    select.select([], [], [], 0.05)
                    continue
                for one in ready:
                    data = one.recv(1 << 16)
                    if not data:
                        open_ends.discard(one)
                        peers[one].shutdown(socket.SHUT_WR)
                        continue
                    if kind is None and one is client:
                        kind = kind_of(data)
                    with self.lock:
                        counts = self.done < self.cuts and (self.only is None or kind in self.only)
                        cut = counts and len(data) >= self.left
                        if cut:
                            data = data[:self.left - 1]
                            self.done += 1
                            self.left = self._next()
                        else:
                            self.left -= len(data) if counts else 0
                    peers[one].sendall(data)
                    if cut:
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

    def cut_all(self):
        """Ends all connections that there are, as a proxy that ends does."""
        with self.lock:
            pairs = list(self.pairs)
        for client, server in pairs:
            for one in (client, server):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
