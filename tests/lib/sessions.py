# SPDX-License-Identifier: Apache-2.0
"""Sessions that no program has: every command of the table, with arguments that are nearly right.

The table says what each command carries (tools/apigen), so that bodies are well formed and most handles live; what is
encoded by hand starts from the golden bytes. Several contexts, several client threads, captures, graphs, kernels, bulk
data and control frames, and handles that do not belong together.
"""

import contextlib
import hashlib
import os
import random
import re
import socket
import struct
import sys
import threading
import time

import rawclient as raw
import ring
import towtest as t

sys.path.insert(0, str(t.ROOT / "tools" / "apigen"))
import cgen  # noqa: E402
import signature  # noqa: E402
import table  # noqa: E402

MODEL = cgen.Model(table.read_families(t.ROOT / "api"), table.read_types(t.ROOT / "api"))
FUNCTIONS = {f.name: f for f in MODEL.functions if signature.travels(f)}
PLANS = {name: cgen.plan(MODEL, f) for name, f in FUNCTIONS.items() if f.plain_send}
ENUMS = {tag: [int(value, 0) & 0xFFFFFFFF for _, value in values if re.match(r"-?\w+$", value) and value[-1].isdigit()]
         for tag, values, _ in MODEL.types.enums}
RECORDS = {f"{keyword} {tag}": body for keyword, tag, body, _ in MODEL.types.records}
KIND_OF = {number: kind for kind, number in raw.KINDS.items()}

THREAD_EXIT, MIRROR, SIDE, FENCE, FORGET, BYE = 0xF00B, 0xF00E, 0xF010, 0xF011, 0xF015, 0xF009
CALLBACK, CALLBACK_DONE, CALLBACK_BYTES = 0xF004, 0xF005, 0xF012

SMALL = (0, 1, 2, 3, 4, 8, 16, 32, 64, 100, 256, 1024, 4096, 2 << 20)
LARGE = (65536, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
HOST = 0x550000000000  # where the client's host memory lies
TARGETS = (64, 4096, 65536, 1 << 20)

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .global .align 8 .u64 word;
.visible .global .attribute(.managed) .align 8 .b8 both[64];
.visible .entry nothing() { ret; }
.visible .entry store(.param .u64 at, .param .u32 value)
{
    .reg .b64 %a;
    .reg .b32 %v;
    ld.param.u64 %a, [at];
    ld.param.u32 %v, [value];
    st.global.u32 [%a], %v;
    ret;
}
.visible .entry wait(.param .u64 at, .param .u32 rounds)
{
    .reg .b64 %a;
    .reg .b32 %v, %i, %r;
    .reg .pred %p;
    ld.param.u64 %a, [at];
    ld.param.u32 %r, [rounds];
    and.b32 %r, %r, 65535;
    mov.u32 %i, 0;
again:
    ld.volatile.global.u32 %v, [%a];
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, %r;
    @%p bra again;
    ret;
}
.visible .entry stop() { trap; }
\0"""
KERNELS = ("nothing", "store", "wait", "stop")

NODE_KINDS = {"Kernel": 0, "Memcpy": 1, "Memset": 2, "Host": 3, "ChildGraph": 4, "EventWait": 6, "EventRecord": 7, "MemAlloc": 10,
              "MemFree": 11, "BatchMemOp": 12}
NODE_WORD = re.compile(rf"cuGraph(?:Exec)?({'|'.join(NODE_KINDS)})Node")
# Where the id that a command by hand makes stands, in words of its body.
MAKES = {"cuDevicePrimaryCtxRetain": 0, "cuCtxCreate_v4": 0, "cuModuleLoadDataEx": 0, "cuModuleGetFunction": 1, "cuLinkCreate_v2": 0,
         "cuLibraryLoadData": 0, "cuLibraryGetKernel": 1, "cuLibraryGetModule": 1, "cuKernelGetFunction": 1, "cuGraphAddNode_v2": 0,
         "cuGraphInstantiateWithParams": 0, "cuCtxFromGreenCtx": 0}
ENDS = ("cuCtxDestroy_v2", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2", "cuGreenCtxDestroy", "cuModuleUnload",
        "cuLibraryUnload", "cuLinkDestroy")
ADDRESSES = ("cuMemAllocManaged", "cuModuleGetGlobal_v2", "cuLibraryGetGlobal", "cuLibraryGetManaged", "cuIpcOpenMemHandle_v2")
OFTEN = ("cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpy3DAsync_v2", "cuGraphAddNode_v2", "cuGraphLaunch",
         "cuGraphInstantiateWithParams", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuEventRecord", "cuStreamWaitEvent",
         "cuMemHostGetDevicePointer_v2", "cuMemcpyAsync", "cuMemFree_v2", "cuMemAlloc_v2", "cuStreamSynchronize", "cuLaunchHostFunc")


# What is worth saying next when one of these has succeeded, with what it made.
TEXTURE = "cuTexObjectGetResourceDesc", "cuTexObjectGetTextureDesc", "cuTexObjectGetResourceViewDesc", "cuTexObjectDestroy"
SHARED = "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"
FOLLOW = {"cuTexObjectCreate": TEXTURE, "cuSurfObjectCreate": ("cuSurfObjectGetResourceDesc", "cuSurfObjectDestroy"),
          "cuMemAddressReserve": ("cuMemCreate", "cuMemMap"), "cuMemCreate": ("cuMemMap", *SHARED),
          "cuMemMap": ("cuMemSetAccess", "cuMemGetAccess", "cuMemRetainAllocationHandle", "cuMemUnmap"),
          "cuIpcGetMemHandle": ("cuIpcOpenMemHandle_v2",), "cuIpcOpenMemHandle_v2": ("cuIpcCloseMemHandle",),
          "cuEventCreate": ("cuIpcGetEventHandle", "cuIpcOpenEventHandle"), "cuIpcGetEventHandle": ("cuIpcOpenEventHandle",),
          "cuMemPoolCreate": ("cuMemPoolExportToShareableHandle", "cuMemPoolImportFromShareableHandle", "cuMemAllocFromPoolAsync"),
          "cuMemAllocFromPoolAsync": ("cuMemPoolExportPointer", "cuMemPoolImportPointer"),
          "cuMemAllocManaged": ("cuMemPrefetchAsync_v2", "cuStreamAttachMemAsync", "cuMemAdvise_v2", "cuMemRangeGetAttribute"),
          "cuGreenCtxCreate": ("cuCtxFromGreenCtx", "cuGreenCtxStreamCreate", "cuGreenCtxGetDevResource", "cuGreenCtxDestroy"),
          "cuGraphClone": ("cuGraphNodeFindInClone",), "cuMemHostAlloc": ("cuMemcpyHtoDAsync_v2", "cuMemFreeHost"),
          "cuGraphInstantiateWithParams": ("cuGraphLaunch", "cuGraphExecMemsetNodeSetParams", "cuGraphExecEventRecordNodeSetEvent"),
          "cuStreamBeginCapture_v2": ("cuStreamUpdateCaptureDependencies_v2", "cuLaunchKernel", "cuStreamGetCaptureInfo_v3", "cuStreamEndCapture"),
          "cuStreamEndCapture": ("cuGraphInstantiateWithParams",)}


def _templates():
    """Bodies by hand that a client has really sent, with the kind of what each word names."""
    found = {}
    for line in (t.ROOT / "tests" / "apigen" / "golden" / "wire.txt").read_text().splitlines():
        name, way, data = line.split(" ", 2)
        if way == ">" and name in FUNCTIONS and not FUNCTIONS[name].plain_send and "..." not in data:
            found.setdefault(name, []).append(bytes.fromhex(data)[16:])
    return found


TEMPLATES = _templates()


def kind_of(word):
    """The kind of handle that a word of the golden bytes, or of a reply, is an id of; else None."""
    kind = KIND_OF.get(word >> 56)
    return kind if kind and 0 < word & 0xFFFFFFFF < 1 << 20 and 0 < (word >> 32 & 0x7FFFFF) < 1 << 12 else None


# ---- records ----

_SCALARS = {"char": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4, "unsigned int": 4, "uint32_t": 4,
            "float": 4, "size_t": 8, "long long": 8, "unsigned long long": 8, "uint64_t": 8, "unsigned": 4}


def _members(tokens):
    """Members of a record's body: ('record', is_union, members, '', length of the array) or ('type', type, None, name, length)."""
    found = []
    while tokens and tokens[0] != "}":
        if tokens[0] in ("struct", "union") and tokens[1] == "{":
            union = tokens.pop(0) == "union"
            tokens.pop(0)
            inner = _members(tokens)
            tokens.pop(0)
            words = []
        else:
            inner, union, words = None, False, []
        while tokens[0] != ";":
            words.append(tokens.pop(0))
        tokens.pop(0)
        length = 1
        while "[" in words:
            at = words.index("[")
            length *= int(dict(MODEL.types.constants).get(words[at + 1], words[at + 1]), 0)
            del words[at:at + 3]
        if inner is not None:
            found.append(("record", union, inner, "", length))
        elif "*" in words:
            found.append(("type", "*", None, words[-1], length))
        else:
            found.append(("type", " ".join(word for word in words[:-1] if word not in ("const", "struct", "enum")), None, words[-1], length))
    return found


LAYOUTS = {}
for _name, _body in RECORDS.items():
    with contextlib.suppress(ValueError, IndexError):
        _text = re.sub(r"/\*.*?\*/|_Alignas\(\d+\)", "", " ".join(_body))
        LAYOUTS[_name] = (_name.startswith("union"), _members(re.findall(r"\w+|[{}\[\];*]", _text) + ["}"]))


class Session:
    """One session. Everything that it says is kept in `said`."""

    def __init__(self, server, seed, counts, devices=2, wait=0.05, line=None):
        self.chance = random.Random(seed)
        self.counts, self.devices, self.wait = counts, devices, wait
        self.said, self.seq, self.index, self.transfer = [], 0, 10, 1
        self.live, self.dead = {kind: [] for kind in raw.KINDS}, {kind: [] for kind in raw.KINDS}
        self.contexts, self.memory, self.hosts, self.numbers = [], [], [], {}
        self.callbacks, self.late, self.blobs, self.nodes, self.current = [], [], {}, {}, ""
        self.shares, self.reserved, self.stalls, self.tokens, self.burst = 0, [], 0, [], 0
        self.hostile = self.chance.random() < 0.3  # kernels that fail, bodies that are damaged
        self.line = line
        if line is None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(server.socket))
            # A worker that waits in its driver for ever, as one may, does not read any more.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("<qq", t.SLOW, 0))
        else:
            self.socket = line
        self.replies, self.changed, self.over = {}, threading.Condition(), False
        threading.Thread(target=self._listen, daemon=True).start()

    # ---- the line ----

    def _listen(self):
        data = b""
        with contextlib.suppress(OSError):
            while more := self.socket.recv(1 << 18):
                data += more
                while len(data) >= 16 and len(data) >= (length := struct.unpack_from("<I", data)[0]) >= 16:
                    kind, status, seq = struct.unpack_from("<HxxII", data, 4)
                    with self.changed:
                        if kind == raw.REPLY:
                            self.replies[seq] = status, data[16:length]
                        elif kind == CALLBACK:
                            self.callbacks.append(struct.unpack_from("<Q", data, 16)[0])
                        self.changed.notify_all()
                    data = data[length:]
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def say(self, frame):
        self.said.append(frame)
        self.socket.sendall(frame)

    def control(self, kind, body=b"", thread=1):
        self.say(raw.frame(kind, body, thread))

    def call(self, name, body, context=None, thread=None, waits=True, patience=None):
        """Says a command; its result and reply, or None where nobody waits or it takes long."""
        context = self.number() if context is None else context
        thread = self.chance.choice((1, 1, 2, 3, 4)) if thread is None else thread
        seq = 0
        if waits:
            self.seq += 1
            seq = self.seq
        self.say(raw.frame(raw.FUNCTIONS[name], body, thread, context, seq))
        count = self.counts.setdefault(name, [0, 0, 0])
        if not waits or self.burst > 0:
            self.burst -= waits  # the worker carries those out beside each other
            count[2] += 1
            return None
        # What waits for something that never comes does so again: less and less patience.
        patience = (patience or self.wait) * t.SLOW if self.stalls < 4 else 0.005
        with self.changed:
            self.changed.wait_for(lambda: self.over or seq in self.replies, patience)
            found = self.replies.pop(seq, None)
        if found is None:
            count[2] += 1
            self.stalls += 1
            if self.over:
                raise ConnectionResetError("the session is over")
            return None
        count[0 if found[0] in (0, 600) else 1] += 1
        return found

    # ---- values ----

    def number(self):
        draw = self.chance.random()
        if draw < 0.03 or not self.contexts:
            return self.chance.choice((0, 9, 77, 0xFFFFFFFF))
        return self.chance.choice(self.contexts) if draw < 0.5 else self.contexts[0]

    def odd(self, rate):
        """Whether something is done that breaks the protocol."""
        return self.hostile and self.chance.random() < rate

    def mint(self, kind):
        if self.odd(0.02) and self.live[kind]:
            return self.chance.choice(self.live[kind])  # one that is in use
        self.index += 1
        return raw.handle(kind, 0) & ~0xFFFFFFFF | self.index

    def handle(self, kind):
        draw, live = self.chance.random(), self.live.get(kind, [])
        if kind == "STREAM" and draw < 0.3:
            return self.chance.choice((0, 0, 1, 2))
        if kind == "GRAPHNODE" and draw < 0.8 and (word := NODE_WORD.match(self.current)):
            live = [node for node in live if self.nodes.get(node) == NODE_KINDS[word.group(1)]] or live
        if kind in ("FUNCTION", "KERNEL") and draw < 0.4:
            live = self.live["FUNCTION"] + self.live["KERNEL"]
        if draw < 0.9 and live:
            return self.chance.choice(live if draw < 0.6 else live[-3:])
        if draw < 0.94 and self.dead.get(kind):
            return self.chance.choice(self.dead[kind])
        if draw < 0.96:
            return self.chance.choice([word for words in self.live.values() for word in words] or [0])
        if draw < 0.99:
            return 0
        return self.chance.choice((3, 77, raw.handle("STREAM", 999999), (1 << 64) - 1))

    def size(self):
        if self.chance.random() < 0.5:
            return self.chance.choice((1, 4, 16, 64))
        return self.chance.choice(SMALL) if self.chance.random() < 0.95 else self.chance.choice(LARGE)

    def address(self):
        draw = self.chance.random()
        if self.reserved and draw < 0.7 and FUNCTIONS[self.current].family == "vmm":
            return self.chance.choice(self.reserved[-2:])
        if draw < 0.8 and self.memory:
            base, size = self.chance.choice(self.memory)
        elif draw < 0.94 and self.hosts:
            base, size = self.chance.choice(self.hosts)
        else:
            return self.chance.choice((0, 1, HOST, HOST + 4096, 0x210000000000, (1 << 64) - 8, self.chance.getrandbits(48)))
        return base + (0 if self.chance.random() < 0.6 else self.chance.choice((4, 64, size // 2, size - 4, size, 4096)) & ~3) & (1 << 64) - 1

    def device(self):
        return self.chance.choice((0, 0, 0, 1, self.devices - 1)) if self.chance.random() < 0.95 else self.chance.choice((7, 0xFFFFFFFF))

    def scalar(self, ctype, name=""):
        """A number of that C type; handles by their kind."""
        if ctype in MODEL.types.handles:
            return self.handle(ctype[2:].upper())
        real = MODEL.resolve(ctype)
        draw = self.chance.random()
        if ctype == "CUdevice":
            return self.device()
        if real.startswith("enum "):
            values = ENUMS.get(real[5:]) or [0]
            return self.chance.choice(values) if draw < 0.93 else self.chance.choice((0, 0x7FFFFFFF, 0xFFFFFFFF, 99))
        if ctype.startswith("CUdeviceptr") or ctype == "*" or "ptr" in name.lower():
            return self.address()
        if ctype in ("CUmemGenericAllocationHandle", "CUtexObject", "CUsurfObject", "CUgraphConditionalHandle"):
            known = self.numbers.get(ctype)
            return self.chance.choice(known[-2:]) if known and draw < 0.9 else self.chance.choice((0, 1, 0x1234, self.chance.getrandbits(64)))
        if real == "float":
            return struct.unpack("<I", struct.pack("<f", self.chance.choice((0, 1, -1, 0.5, 1e30, float("nan")))))[0]
        if real == "size_t" and draw < 0.8 and self.current and FUNCTIONS[self.current].family == "vmm":
            return 0 if name in ("offset", "alignment") else 2 << 20
        if "flags" in name.lower() and draw < 0.8:
            return 0 if self.current and FUNCTIONS[self.current].family == "vmm" else self.chance.choice((0, 0, 1))
        return self.size()

    def record(self, ctype, depth=0):
        """(bytes, alignment) of a record, filled member by member; often as plainly as can be, or one that was told."""
        if self.blobs.get(ctype) and self.chance.random() < 0.7:
            return self.chance.choice(self.blobs[ctype]), 8
        plain = self.chance.random() < 0.6
        if plain and ctype == "CUDA_RESOURCE_DESC":
            return struct.pack("<IxxxxQ", 0, self.handle("ARRAY")).ljust(144, b"\0"), 8
        if plain and ctype in ("CUmemLocation", "CUmemAccessDesc"):
            return struct.pack("<II", 1, self.device()) + (struct.pack("<I", 3) if ctype == "CUmemAccessDesc" else b""), 4

        def place(union, members):
            data, align = b"", 1
            chosen = self.chance.randrange(len(members)) if union and members else 0
            for i, member in enumerate(members):
                one, to = b"", 1
                for _ in range(member[-1]):
                    if member[0] == "record":
                        piece, to = place(member[1], member[2])
                    else:
                        piece, to = self._member(member[1], member[3], member[-1] > 1, plain, depth)
                    one += piece
                align = max(align, to)
                if union:
                    data = (one if i == chosen else data[:]).ljust(max(len(data), len(one)), b"\0")
                else:
                    data += bytes(-len(data) % to) + one
            return data + bytes(-len(data) % align), align
        layout = LAYOUTS.get(MODEL.resolve(ctype))
        return place(*layout) if layout else (bytes(8), 8)

    def _member(self, ctype, name, array, plain, depth):
        if MODEL.resolve(ctype).startswith(("struct ", "union ")):
            return self.record(ctype, depth + 1) if depth < 5 else (bytes(8), 8)
        if ctype in MODEL.types.handles or ctype == "*":
            return struct.pack("<Q", self.scalar(ctype)), 8
        real = MODEL.resolve(ctype)
        size = 4 if real.startswith("enum ") else _SCALARS.get(real, 4)
        if array and self.chance.random() < 0.9 or (name.lower().endswith("count") and not self.odd(0.2)):
            value = 0
        elif name == "NumChannels":
            value = self.chance.choice((1, 2, 4))
        elif plain:
            value = self.chance.choice((1, 1, 0) if real.startswith("enum ") else (0, 0, 1, 4, 16))
        else:
            value = self.scalar(ctype, name)
        return (value & (1 << 8 * size) - 1).to_bytes(size, "little"), size

    # ---- commands that the generator knows ----

    def generated(self, name):
        f, plan = FUNCTIONS[name], PLANS[name]
        text = " ".join(p.count + " " + p.bytes for p in f.params)
        counts = {word: 3 if word == "tensorRank" else self.chance.choice((0, 1, 1, 2, 3)) for word in re.findall(r"[A-Za-z_]\w*", text)}
        absent = {p.name for p in plan.present if self.chance.random() < 0.3}

        def value(p, base):
            if p.name in counts:
                return self.size() if self.odd(0.02) else counts[p.name]
            return self.scalar(base, p.name)

        body, made, dropped = b"", None, []
        for field in plan.send8:
            p = field.param
            if field.role == "new":
                made = p.base[2:].upper(), self.mint(p.base[2:].upper())
                body += struct.pack("<Q", made[1])
                continue
            word = self.address() if field.klass == "addr" else value(p, p.base)
            if field.role == "drop":
                dropped.append((p.base[2:].upper(), word))
            body += struct.pack("<Q", word & (1 << 64) - 1)
        for field in plan.send4:
            body += struct.pack("<I", value(field.param, field.param.base) & 0xFFFFFFFF)
        if plan.present:
            body += struct.pack("<I", sum(1 << i for i, p in enumerate(plan.present) if p.name not in absent))
        body += bytes(-len(body) % 8)
        for field in plan.send_var:
            p = field.param
            if field.role == "cstr":
                body += raw.text(self.chance.choice((*KERNELS, "word", "both", "", "x" * 300)))
            elif p.name in absent:
                continue
            elif field.role == "array":
                expression = re.sub(r"[A-Za-z_]\w*", lambda m: str(counts[m.group(0)]), (p.count or p.bytes).replace("*", "", 1 if (p.count or p.bytes).startswith("*") else 0))
                for _ in range(min(int(eval(expression)), 64)):  # noqa: S307: our own table
                    if p.bytes:
                        body += bytes([self.chance.getrandbits(8)])
                    elif field.klass == "record":
                        body += self.record(p.base)[0]
                    elif field.klass in ("handle", "u64"):
                        body += struct.pack("<Q", self.scalar(p.base, p.name) & (1 << 64) - 1)
                    else:
                        body += struct.pack("<I", self.scalar(p.base, p.name) & 0xFFFFFFFF)
            else:
                body += self.record(p.base)[0]
            body += bytes(-len(body) % 8)
        found = self.finish(name, body, "async" not in f.flags)
        if made and (found is None or found[0] == 0):
            self.live[made[0]].append(made[1])
            if word := re.match(r"cuGraphAdd(\w+)Node", name):
                self.nodes[made[1]] = NODE_KINDS.get(word.group(1), 5)
        for kind, word in dropped if found is None or found[0] == 0 else ():
            self.end(kind, word)
        if found and found[0] == 0:
            self.learn(f, plan, found[1], counts)

    def learn(self, f, plan, body, counts):
        """What a reply tells: handles, addresses, numbers that are names."""
        at = 0
        for field in plan.reply8:
            if len(body) < at + 8:
                return
            word = struct.unpack_from("<Q", body, at)[0]
            at += 8
            if field.klass == "handle" and word:
                self.live[field.param.base[2:].upper()].append(word)
            elif f.name == "cuMemAddressReserve":
                self.reserved.append(word)
            elif field.param.base.startswith("CUdeviceptr") and word:
                self.memory.append((word, 4096))
            elif field.param.base.startswith(("CUmemGeneric", "CUtexObject", "CUsurfObject", "CUgraphCond")):
                self.numbers.setdefault(field.param.base, []).append(word)
        records = [field.param.base for field in plan.reply_var if field.klass == "record" and field.role != "array"]
        if len(records) == 1 and not plan.reply4 and not plan.reply8 and len(body) <= 256:
            self.blobs.setdefault(records[0], []).append(body[:len(self.record(records[0])[0])])
        for word in struct.unpack(f"<{len(body) // 8}Q", body[:len(body) // 8 * 8]):
            kind = kind_of(word)
            if kind and word >> 55 & 1 and word not in self.live[kind]:
                self.live[kind].append(word)

    def end(self, kind, word):
        if word in self.live[kind]:
            self.live[kind].remove(word)
            self.dead[kind].append(word)
        if kind == "CONTEXT" and word & 0xFFFFFFFF in self.contexts and len(self.contexts) > 1:
            self.contexts.remove(word & 0xFFFFFFFF)

    def finish(self, name, body, waits):
        """Sends it, now and then damaged, or with and without a reply against its habit."""
        if self.hostile and self.chance.random() < 0.01:
            body = bytearray(body)
            if body and self.chance.random() < 0.7:
                body[self.chance.randrange(len(body))] ^= 1 << self.chance.randrange(8)
            else:
                body = body[:self.chance.randrange(len(body) // 8 + 1) * 8]
            body = bytes(body)
        draw = self.chance.random()
        return self.call(name, body, waits=draw < 0.95 if waits else draw < (0.6 if re.search("Create|Add|Instantiate", name) else 0.25))

    # ---- commands by hand ----

    def by_hand(self, name):
        special = getattr(self, "do_" + name, None)
        if special and self.chance.random() < 0.9:
            return special()
        body = bytearray(self.chance.choice(TEMPLATES[name]))
        made = None
        for at in range(0, len(body) - 7, 8):
            word = struct.unpack_from("<Q", body, at)[0]
            kind, draw = kind_of(word), self.chance.random()
            if MAKES.get(name) == at // 8 and kind:
                word = self.mint(kind)
                made = kind, word
            elif kind:
                word = self.handle(kind)
            elif word >> 40 == 0x21:
                word = self.address()
            elif word >> 40 == 0x3A:
                word = self.hosts[0][0] if self.hosts and draw < 0.8 else self.address()
            elif draw < (0.04 if self.hostile else 0.01):
                word = self.size() if draw < 0.005 else word & ~0xFFFFFFFF | self.size() & 0xFFFFFFFF
            elif draw < (0.06 if self.hostile else 0.02):
                word = word & 0xFFFFFFFF | (self.size() & 0xFFFFFFFF) << 32
            struct.pack_into("<Q", body, at, word)
        found = self.finish(name, bytes(body), "async" not in FUNCTIONS[name].flags)
        self.took(name, bytes(body), found, made)

    def took(self, name, body, found, made=None):
        good = found is None or found[0] == 0
        if made and good:
            self.live[made[0]].append(made[1])
            if made[0] == "CONTEXT":
                self.contexts.append(made[1] & 0xFFFFFFFF)
        if name in ENDS and good:
            word = struct.unpack_from("<Q", body)[0]
            if kind_of(word):
                self.end(kind_of(word), word)
        if found and found[0] == 0 and len(found[1]) >= 8:
            if name in ADDRESSES:
                self.memory.append((struct.unpack_from("<Q", found[1])[0], 4096))
            for word in struct.unpack_from(f"<{min(len(found[1]) // 8, 8)}Q", found[1]):
                kind = kind_of(word)
                if kind and word >> 55 & 1 and word not in self.live[kind]:
                    self.live[kind].append(word)

    def launch_head(self):
        name = self.chance.choice(KERNELS[:3] if not self.hostile or self.chance.random() < 0.9 else KERNELS)
        known = [word for word, kernel in self.kernels.items() if kernel == name]
        function = self.chance.choice(known) if known and self.chance.random() < 0.85 else self.handle("FUNCTION")
        arguments = b"" if name in ("nothing", "stop") else struct.pack("<QI", self.target(), self.chance.randrange(1 << 16))
        if self.chance.random() < 0.05:
            arguments = arguments[:self.chance.randrange(len(arguments) + 1)]
        sides = [self.chance.choice((1, 1, 1, 2, 3)) if self.chance.random() < 0.97 else self.chance.choice((0, 65535, 1024)) for _ in range(3)]
        return struct.pack("<2Q4I4H", function, self.handle("STREAM"), *[self.chance.choice((1, 1, 1, 1, 2)) if self.chance.random() < 0.97 else 0 for _ in range(3)],
                           self.chance.choice((0, 0, 0, 64, 1 << 20)), *sides, len(arguments)), arguments

    def target(self):
        """An address that a kernel may use: nearly always one that is right, or its context is lost."""
        if not self.hostile or self.chance.random() < 0.9:
            places = self.memory[:4] + self.hosts[:2]
            if places:
                return self.chance.choice(places)[0]
        return self.address()

    def do_cuLaunchKernel(self):
        head, arguments = self.launch_head()
        self.finish("cuLaunchKernel", head + arguments, False)

    def do_cuLaunchKernelEx(self):
        head, arguments = self.launch_head()
        attributes = b""
        ids = [self.chance.choice((1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 99)) for _ in range(self.chance.choice((0, 1, 1, 2)))]
        for one in ids:
            words = [self.size() if self.chance.random() < 0.5 else self.handle("EVENT") for _ in range(self.chance.randrange(9))]
            attributes += struct.pack("<II", one, len(words)) + struct.pack(f"<{len(words)}Q", *words)
        self.finish("cuLaunchKernelEx", head + struct.pack("<II", len(ids), 0) + attributes + arguments, False)

    def do_cuMemcpyHtoDAsync_v2(self):
        size, form = self.chance.choice((4, 64, 4096, 4096, 65528)), self.chance.choice((0, 0, 0, 0x100, 3, 1, 4))
        head = [self.address(), size, self.handle("STREAM")]
        if form in (0, 0x100, 3) and (form == 3 or self.chance.random() < 0.5):
            self.transfer += 1
            self.finish("cuMemcpyHtoDAsync_v2", struct.pack("<3Q2I", *head, self.transfer, form), False)
            self.data(self.transfer, size)
            return
        body = struct.pack("<3Q2I", *head, 0, form)
        if form == 1:
            body += struct.pack("<Q", self.hosts[0][0] if self.hosts else HOST)
        elif form == 4:
            body += struct.pack("<QQ", self.size(), self.size())
        else:
            body += bytes(size)
        self.finish("cuMemcpyHtoDAsync_v2", body, False)

    def data(self, transfer, size):
        """The frames of a transfer: at once, later between other commands, not all of them, or too many."""
        cuts = sorted({0, size, *(self.chance.randrange(size + 1) for _ in range(self.chance.randrange(3)))})
        frames = [(transfer, a, b - a, 8 if b == size else 0) for a, b in zip(cuts, cuts[1:])] or [(transfer, 0, 0, 8)]
        draw = self.chance.random()
        if self.hostile and draw < 0.05:
            frames[0] = (transfer, frames[0][1] + self.chance.choice((1, 8, 1 << 20)), frames[0][2], 0)
        elif self.hostile and draw < 0.08:
            frames.append(frames[-1])
        elif draw < 0.12:
            frames = frames[:-1]
        if draw < 0.5:
            self.late += frames
        else:
            for frame in frames:
                self.datum(*frame)

    def datum(self, transfer, offset, size, flags):
        payload = bytes(size)
        pad = -len(payload) % 8
        self.control(raw.DATA, struct.pack("<IIQ", transfer, flags | pad, offset) + payload + bytes(pad), 0)

    def do_cuMemcpyDtoHAsync_v2(self):
        size = self.chance.choice((0, 4, 64, 4096, 65536, 1 << 20))
        self.transfer += 1
        waits, form = self.chance.random() < 0.5, self.chance.choice((0, 0, 3, 1))
        transfer = 0 if waits and size <= 65536 and self.chance.random() < 0.5 or self.odd(0.05) else self.transfer
        body = struct.pack("<3Q2I", self.address(), size or 4, self.handle("STREAM"), transfer, form)
        if form == 1:
            body += struct.pack("<Q", self.hosts[0][0] if self.hosts else HOST)
        self.call("cuMemcpyDtoHAsync_v2", body, waits=waits)

    def side(self, kind):
        at = {0: 0, 1: self.address(), 2: self.handle("ARRAY"), 3: self.hosts[0][0] if self.hosts else HOST}[kind]
        return struct.pack("<7Q2I", at, self.chance.choice((0, 64, 256)), self.chance.choice((0, 1, 4)), self.chance.choice((0, 0, 4)), 0, 0,
                           self.chance.choice((0, 0, self.handle("CONTEXT"))), kind, 0)

    def shape(self, inline=True):
        kinds = (0, 1), (1, 0), (0, 2), (2, 0), (1, 1), (1, 2), (2, 1), (1, 3), (3, 1)
        from_kind, to_kind = self.chance.choice(kinds if inline else kinds[4:])
        if self.odd(0.05):
            from_kind = self.chance.randrange(5)
        source, target = self.side(from_kind if from_kind < 4 else 0), self.side(to_kind)
        width, rows, planes = self.chance.choice((4, 16, 64)), self.chance.choice((1, 1, 2, 4)), self.chance.choice((1, 1, 2))
        size = width * rows * planes if 0 in (from_kind, to_kind) else 0
        transfer = 0
        if to_kind == 0 or from_kind == 0 and self.chance.random() < 0.4:
            self.transfer += 1
            transfer = self.transfer
        body = source + target + struct.pack("<5Q2I", width, rows, planes, self.handle("STREAM"), size, transfer, self.chance.choice((0, 0, 0, 1, 2, 4)))
        if from_kind == 0 and transfer == 0:
            body += bytes(size)
        return body, transfer if from_kind == 0 else 0, size

    def do_cuMemcpy3DAsync_v2(self):
        body, transfer, size = self.shape()
        self.finish("cuMemcpy3DAsync_v2", body, self.chance.random() < 0.4)
        if transfer:
            self.data(transfer, size)

    def do_cuGraphAddNode_v2(self):
        node, graph = self.mint("GRAPHNODE"), self.handle("GRAPH")
        depends = [self.handle("GRAPHNODE") for _ in range(self.chance.choice((0, 0, 1, 2)))]
        kind = self.chance.choice((0, 0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13))
        if kind == 0:
            parameters = b"".join(self.launch_head())
        elif kind == 1:
            parameters = self.shape(inline=False)[0]
        elif kind == 2:
            parameters = self.record("CUDA_MEMSET_NODE_PARAMS_v2")[0]
        elif kind == 3:
            parameters = struct.pack("<Q", self.size())
        elif kind == 4:
            parameters = self.record("CUDA_CHILD_GRAPH_NODE_PARAMS")[0]
        elif kind in (6, 7):
            parameters = struct.pack("<Q", self.handle("EVENT"))
        elif kind == 10:
            parameters = self.record("CUDA_MEM_ALLOC_NODE_PARAMS_v2")[0]
        elif kind == 11:
            parameters = struct.pack("<Q", self.address())
        elif kind == 12:
            parameters = struct.pack("<QI4xQI4x", 0, 1, 0, 0) + self.record("CUstreamBatchMemOpParams")[0]
        elif kind == 13:
            parameters = struct.pack("<QIIQQ", self.scalar("CUgraphConditionalHandle"), self.chance.choice((0, 1, 2)), self.chance.choice((1, 1, 2)), 0, 0)
        else:
            parameters = b""
        context = self.chance.choice((0, 0, self.handle("CONTEXT")))
        head = struct.pack("<3Q4I", node, graph, context, len(depends), 0, kind, 0)
        found = self.finish("cuGraphAddNode_v2", head + struct.pack(f"<{len(depends)}Q", *depends) + parameters, self.chance.random() < 0.6)
        self.took("cuGraphAddNode_v2", head, found, ("GRAPHNODE", node))
        self.nodes[node] = kind

    def do_cuMemHostGetDevicePointer_v2(self):
        base = HOST + 0x100000 * self.chance.randrange(4)
        size = self.chance.choice((4096, 8192, 65536))
        found = self.finish("cuMemHostGetDevicePointer_v2", struct.pack("<QQI", base, size, self.chance.choice((0, 0, 0, 1, 2))), True)
        if found and found[0] == 0:
            self.hosts.append((base, size))

    def do_cuMemHostAlloc(self):
        if self.line is None:
            return
        size, base = self.chance.choice((4096, 65536)), HOST + 0x1000000 + 0x100000 * self.chance.randrange(4)
        self.shares += 1
        passed, _ = ring.descriptor(self.chance, size)
        self.line.pass_descriptor(self.shares, passed)
        os.close(passed)
        found = self.call("cuMemHostAlloc", struct.pack("<3Q", base, size if not self.odd(0.1) else self.size(), self.shares))
        if found and found[0] == 0:
            self.hosts.insert(0, (base, size))

    def do_cuMemFreeHost(self):
        base, _ = self.chance.choice(self.hosts) if self.hosts else (HOST, 0)
        self.finish("cuMemFreeHost", struct.pack("<Q", base), True)

    def do_cuMemHostUnregister(self):
        base, size = self.chance.choice(self.hosts) if self.hosts else (HOST, 4096)
        found = self.finish("cuMemHostUnregister", struct.pack("<QQ", base, size), True)
        if found and found[0] == 0 and (base, size) in self.hosts:
            self.hosts.remove((base, size))

    def do_cuMemAllocManaged(self):
        found = self.finish("cuMemAllocManaged", struct.pack("<QII", self.chance.choice(TARGETS), self.chance.choice((1, 2)), self.chance.choice((0, 0, 1))), True)
        self.took("cuMemAllocManaged", b"", found)

    def exported(self, name):
        if "Pool" in name:
            word = self.handle("MEMORYPOOL")
        else:
            word = self.scalar("CUmemGenericAllocationHandle")
        found = self.finish(name, struct.pack("<Q", word), True)
        if found and found[0] == 0 and len(found[1]) >= 16:
            self.tokens.append(found[1][:16])

    def do_cuMemExportToShareableHandle(self):
        self.exported("cuMemExportToShareableHandle")

    def do_cuMemPoolExportToShareableHandle(self):
        self.exported("cuMemPoolExportToShareableHandle")

    def imported(self, name):
        found = self.finish(name, self.tokens[-1] if self.tokens and self.chance.random() < 0.9 else bytes(16), True)
        if found and found[0] == 0 and len(found[1]) >= 8:
            word = struct.unpack_from("<Q", found[1])[0]
            (self.live["MEMORYPOOL"] if "Pool" in name else self.numbers.setdefault("CUmemGenericAllocationHandle", [])).append(word)

    def do_cuMemImportFromShareableHandle(self):
        self.imported("cuMemImportFromShareableHandle")

    def do_cuMemPoolImportFromShareableHandle(self):
        self.imported("cuMemPoolImportFromShareableHandle")

    def do_cuMemPoolImportPointer(self):
        data = self.record("CUmemPoolPtrExportData")[0]
        self.finish("cuMemPoolImportPointer", struct.pack("<Q", self.handle("MEMORYPOOL")) + data.ljust(64, b"\0")[:64], True)

    def do_cuIpcOpenMemHandle_v2(self):
        body = self.record("CUipcMemHandle")[0] + struct.pack("<I", 1)
        self.took("cuIpcOpenMemHandle_v2", body, self.finish("cuIpcOpenMemHandle_v2", body, True))

    def image(self, image=PTX, form=1, stage=0, transfer=0):
        return hashlib.sha256(image).digest() + struct.pack("<Q4I", len(image), form, stage, transfer, 0)

    def load(self, name, kind):
        made = self.mint(kind)
        image, form, before = PTX, 1, struct.pack("<Q", made)
        if self.chance.random() < 0.1:
            image = bytearray(PTX)
            for _ in range(self.chance.randrange(1, 4)):
                image[self.chance.randrange(len(image) - 1)] = self.chance.choice(b" ;.,%0123abc\xff")
            image = bytes(image)
        self.transfer += 1
        transfer, after = self.transfer, struct.pack("<II", 0, 0)
        found = self.call(name, before + self.image(image, form, 0, transfer) + after, patience=1)
        if found and found[0] == 0 and len(found[1]) >= 8 and struct.unpack_from("<II", found[1]) == (0, 1):
            self.datum(transfer, 0, 0, 0)
            pad = -len(image) % 8
            self.control(raw.DATA, struct.pack("<IIQ", transfer, 8 | pad, 0) + image + bytes(pad), 0)
            found = self.call(name, before + self.image(image, form, 1, transfer) + after, patience=1)
        self.took(name, before, found, (kind, made))
        return made

    def do_cuLibraryLoadData(self):
        self.load("cuLibraryLoadData", "LIBRARY")

    def do_cuModuleLoadDataEx(self):
        self.load("cuModuleLoadDataEx", "MODULE")

    def look_up(self, name, of, kind):
        made, kernel = self.mint(kind), self.chance.choice(KERNELS)
        text = (kernel if self.chance.random() < 0.95 else "none").encode() + b"\0"
        body = struct.pack("<QQIII", self.handle(of), made, self.device() if kind == "KERNEL" else 0xFFFFFFFF, 0, len(text)) + text
        found = self.finish(name, body, True)
        self.took(name, body, found, (kind, made))
        self.kernels[made] = kernel

    def do_cuLibraryGetKernel(self):
        self.look_up("cuLibraryGetKernel", "LIBRARY", "KERNEL")

    def do_cuModuleGetFunction(self):
        self.look_up("cuModuleGetFunction", "MODULE", "FUNCTION")

    def symbol(self, name, of):
        text = self.chance.choice((b"word", b"both", b"none")) + b"\0"
        body = struct.pack("<QIII", self.handle(of), 3, 0, len(text)) + text
        self.took(name, body, self.finish(name, body, True))

    def do_cuModuleGetGlobal_v2(self):
        self.symbol("cuModuleGetGlobal_v2", "MODULE")

    def do_cuLibraryGetGlobal(self):
        self.symbol("cuLibraryGetGlobal", "LIBRARY")

    def do_cuLibraryGetManaged(self):
        self.symbol("cuLibraryGetManaged", "LIBRARY")

    def do_cuLinkAddData_v2(self):
        link = struct.pack("<Q", self.handle("LINKSTATE"))
        self.transfer += 1
        after = struct.pack("<I", 1) + raw.text("x") + struct.pack("<II", 0, 0)
        found = self.call("cuLinkAddData_v2", link + self.image(PTX, 5, 0, self.transfer) + after)
        if found and found[0] == 0 and len(found[1]) >= 8 and struct.unpack_from("<II", found[1]) == (0, 1):
            pad = -len(PTX) % 8
            self.control(raw.DATA, struct.pack("<IIQ", self.transfer, 8 | pad, 0) + PTX + bytes(pad), 0)
            self.call("cuLinkAddData_v2", link + self.image(PTX, 5, 1, self.transfer) + after)

    # ---- the whole ----

    def other_frames(self):
        draw = self.chance.random()
        if draw < 0.2:
            self.control(THREAD_EXIT, b"", self.chance.choice((1, 2, 3, 4, 77)))
        elif draw < 0.5:
            with self.changed:
                found = self.callbacks.pop(0) if self.callbacks else self.size() if self.odd(0.1) else None
            if found is not None:
                self.control(CALLBACK_DONE, struct.pack("<QQ", found, 0))
        elif draw < 0.8:
            base, _ = self.chance.choice(self.hosts or self.memory or [(HOST, 4096)])
            if self.hostile and self.chance.random() < 0.2:
                base = self.address() & ~63
            if self.hosts or self.hostile:
                self.control(MIRROR, struct.pack("<QII", base, 1, 1) + bytes(64))
        elif draw < 0.9:
            self.control(FORGET, struct.pack("<QQ", self.size(), self.size()))
        elif draw < 0.95:
            self.control(SIDE)
        elif self.hostile:
            self.control(CALLBACK_BYTES, struct.pack("<3Q", self.size(), 0, 8) + bytes(8))

    def begin(self):
        """What most commands need: contexts, memory, streams, events, code, graphs."""
        self.kernels = {}
        self.say(raw.hello("fuzz" if self.line is None else "ring"))
        for number in range(1, self.chance.choice((2, 3, 4))):
            made = raw.handle("CONTEXT", number)
            if number == 2:
                found = self.call("cuCtxCreate_v4", struct.pack("<QIIII", made, 0, 0, 0, 0), 0, patience=2)
            else:
                found = self.call("cuDevicePrimaryCtxRetain", struct.pack("<QI", made, number // 2), 0, patience=2)
            if found and found[0] == 0:
                self.contexts.append(number)
                self.live["CONTEXT"].append(made)
        for context in list(self.contexts):
            for size in TARGETS[:2]:
                found = self.call("cuMemAlloc_v2", struct.pack("<Q", size), context, patience=1)
                if found and found[0] == 0:
                    self.memory.append((struct.unpack_from("<Q", found[1])[0], size))
            for name, kind in (("cuStreamCreate", "STREAM"), ("cuEventCreate", "EVENT"), ("cuGraphCreate", "GRAPH")):
                for _ in range(2):
                    made = self.mint(kind)
                    self.call(name, struct.pack("<QI", made, 0), context, waits=False)
                    self.live[kind].append(made)
            array = self.mint("ARRAY")
            self.call("cuArrayCreate_v2", struct.pack("<QQQII", array, 16, 16, 0x20, 1), context, patience=1)
            self.live["ARRAY"].append(array)
        self.do_cuMemHostGetDevicePointer_v2()
        self.load("cuLibraryLoadData", "LIBRARY")
        self.load("cuModuleLoadDataEx", "MODULE")
        for _ in range(4):
            self.do_cuLibraryGetKernel()
            self.do_cuModuleGetFunction()
        for name in ("cuGraphAddEmptyNode", "cuGraphAddNode_v2", "cuGraphAddNode_v2", "cuGraphAddMemsetNode", "cuGraphInstantiateWithParams",
                     "cuMemPoolCreate", "cuMemCreate", "cuMemAddressReserve", "cuDeviceGetDevResource", "cuDevResourceGenerateDesc",
                     "cuGreenCtxCreate", "cuMipmappedArrayCreate", "cuTexObjectCreate", "cuLinkCreate_v2", "cuMemAllocManaged"):
            self.command(name)

    def command(self, name):
        self.current = name
        before = self.counts.get(name, (0,))[0]
        (self.generated if FUNCTIONS[name].plain_send else self.by_hand)(name)
        if self.counts.get(name, (0,))[0] > before and self.chance.random() < 0.7:
            for follower in FOLLOW.get(name, ()):
                self.command(follower)

    def run(self, commands):
        """Says it all; how many commands came before the end."""
        names = sorted(FUNCTIONS)
        rarely = [name for name in names if name in ENDS]
        with contextlib.suppress(OSError):
            self.begin()
            for _ in range(commands):
                draw = self.chance.random()
                name = self.chance.choice(OFTEN if draw < 0.35 else names)
                if name in rarely and self.chance.random() < 0.6:
                    continue
                if draw > 0.96:
                    self.other_frames()
                elif draw > 0.93:
                    self.burst = self.chance.randrange(2, 12)
                if self.callbacks and self.chance.random() < 0.7:
                    with self.changed:
                        done = self.callbacks.pop(0)
                    self.control(CALLBACK_DONE, struct.pack("<QQ", done, 0))
                if self.late and self.chance.random() < 0.5:
                    self.datum(*self.late.pop(0))
                self.command(name)
            if self.chance.random() < 0.3:
                self.call("cuCtxSynchronize", b"", patience=0.2)
            if self.chance.random() < 0.3:
                self.control(BYE, struct.pack("<II", 0, 0), 0)
            time.sleep(self.chance.choice((0, 0, 0.02)))
        # However it ended: closing alone does not, while the other thread still reads.
        with self.socket, contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        return len(self.said)
