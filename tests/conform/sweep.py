#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every function that frees, destroys, copies, fills, prefetches or the like, with null handles, null pointers and sizes of
zero: what the driver answers, what it wrote, and whether the context works afterwards. The cases come from the API table.

    sweep.py list [TEXT]                 the cases (whose name contains TEXT), numbered
    sweep.py run [TEXT] [-j N] [-o FILE] one line for each; a process for each function, and a new one after each case that
                                         leaves its context unlike it was
    sweep.py run --alone                 a process for each case
    sweep.py compare FILE [TEXT] [-j N]  the same, against what FILE holds (sweep.txt: an H200's native answers)

A line is `FUNCTION ARGUMENTS: RESULT; SYNC ALLOC; OUTPUTS`: the result of the call, of a cuCtxSynchronize and a cuMemAlloc
after it, and what was written. `0` is a null or a zero, `ok` something valid. A call without a reply may fail at the
cuCtxSynchronize instead: the two are compared as one. Where the native driver crashed or hung any error is right, and a success too.
"""

import argparse
import ctypes
import itertools
import os
import pathlib
import re
import select
import signal
import struct
import sys
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools" / "apigen"))
import table  # noqa: E402

VERBS = re.compile(
    "Free|Destroy|Memcpy|Memset|Prefetch|Unmap|Unregister|Release|Reset|Unload|Advise|Discard|Trim|Detach|Close|BatchMemOp"
    "|BatchDecompress|RemoveDependencies|CopyAttributes|AttachMem|PopCurrent|PushCurrent|SetCurrent|DisablePeerAccess|EventRecord"
    "|EventQuery|EventSynchronize|StreamQuery|StreamSynchronize|StreamWait|StreamWrite|CtxSynchronize|RecordEvent|WaitEvent"
    "|MemMapArray|CtxRecord|CtxWait")
SKIPPED = re.compile("BatchMemOpNode")  # no H200 has been asked yet
BYTES = 256  # what a valid copy moves, of buffers of ROOM
ROOM = 4096
BLOCK = 2 << 20  # granularity of cuMemCreate
FULL = 48  # combinations of one function, all of which are tried; of more only some
PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"

SHAPES = ("", "-width0", "-height0", "-src0", "-dst0", "-src0-width0", "-dst0-width0", "-both0-height0", "-pitch0")
WAYS = ("hd", "dh", "dd", "ha")  # host, device, array
COPIES = ["0", "zeros"] + [way + shape for way in WAYS for shape in SHAPES]
RECORDS = {
    "CUDA_MEMCPY2D": COPIES,
    "CUDA_MEMCPY3D": COPIES + [way + "-depth0" for way in WAYS],
    "CUDA_MEMCPY3D_PEER": COPIES + ["dd-context0"],
    "CUDA_MEMSET_NODE_PARAMS": ["0", "zeros", "ok", "ok-width0", "ok-height0", "ok-dst0"],
    "CUDA_MEMCPY3D_BATCH_OP": ["0", "ok", "zeros", "ok-width0", "ok-src0", "ok-dst0-width0"],
    "CUDA_BATCH_MEM_OP_NODE_PARAMS": ["0", "zeros", "ok"],
    "CUstreamBatchMemOpParams": ["0", "zeros", "ok", "ok-address0"],
    "CUmemcpyAttributes": ["0", "ok"],
    "CUmemLocation": ["0", "ok"],
    "CUmemDecompressParams": ["0", "zeros"],
    "CUarrayMapInfo": ["0", "zeros"],
    "CUgraphEdgeData": ["0", "ok"],
}
SIZES = {"size_t", "unsigned int"}
PLAIN = {"flags", "Flags", "dstOffset", "srcOffset", "ui", "uc", "us", "value", "advice", "minBytesToKeep"}
NAMES = {0: "SUCCESS"}


def labels(f, p):
    """What a parameter is tried with."""
    if p.base in RECORDS and p.stars and "in" in p.words:
        known = RECORDS[p.base]
        return [label for label in known if label[:2] not in ("hd", "dh", "ha")] if f.name.startswith("cuGraph") else known
    if p.name in PLAIN or p.base in ("CUmem_advise", "CUmemLocation", "cuuint32_t", "cuuint64_t"):
        return ["ok"]
    if p.base == "CUdevice":
        return ["ok", "bad"]
    return ["0", "ok"]


class Case:
    def __init__(self, f, symbol, state, values):
        self.f, self.symbol, self.state, self.values = f, symbol, state, values
        words = [f"{p.name}={v}" for p, v in zip(f.params, values) if not (p.name in PLAIN)]
        self.name = " ".join([symbol, *words] + ([state] if state else []))
        # Cases that may share a process. What is done to contexts, or to the whole process, has one of its own.
        self.group = self.name if "Ctx" in symbol else state if state in ("without-context", "before-cuInit") else f.name


def choices(f):
    lists = [labels(f, p) for p in f.params]
    total = 1
    for each in lists:
        total *= len(each)
    every = itertools.product(*lists)
    if total <= FULL:
        return list(every)
    few = []
    for values in every:
        zeros = sum(v in ("0", "bad") for v in values)
        odd = sum(v not in ("0", "bad", "ok", "hd", "dd") for v in values)
        if (odd and zeros == 0) or (not odd and (zeros <= 2 or zeros >= len(values) - 1)):
            few.append(values)
    return few


def captures(f):
    """What of frees, fills and copies on the device is tried in a stream that captures: one thing null, or all."""
    if f.stream is None or not re.match("cuMem(FreeAsync|set|cpy(DtoD)?Async)", f.name):
        return []
    lists = [["ok"] if p is f.stream else [v for v in labels(f, p) if v[:2] not in ("dh", "dd", "ha")] for p in f.params]
    every = list(itertools.product(*lists))
    zeros = [sum(v not in ("ok", "hd") for v in values) for values in every]
    return [values for values, n in zip(every, zeros) if n <= 1 or n == max(zeros)]


def cases():
    found = []
    for family in table.read_families(HERE.parent.parent / "api"):
        for f in family.functions:
            if f.stub or not VERBS.search(f.name) or SKIPPED.search(f.name):
                continue
            for symbol in [f.name] + ([f"{f.name}_{f.variant}"] if f.variant else []):
                for values in choices(f):
                    found.append(Case(f, symbol, "", values))
                nothing = tuple(labels(f, p)[0] for p in f.params)
                found.append(Case(f, symbol, "without-context", nothing))
                found.append(Case(f, symbol, "before-cuInit", nothing))
            found += [Case(f, f.name, "capturing", values) for values in captures(f)]
    return found


class Driver:
    """The library, with every argument as a 64-bit word: all of them are integers, pointers or records of 8 bytes."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.keep = []  # what the driver may still read or write

    def call(self, symbol, *arguments):
        function = getattr(self.library, symbol)
        function.restype = ctypes.c_int
        function.argtypes = [ctypes.c_uint64] * len(arguments)
        return function(*[int(a) & (1 << 64) - 1 for a in arguments])

    def must(self, symbol, *arguments):
        result = self.call(symbol, *arguments)
        if result:
            raise RuntimeError(f"{symbol} for a fixture: {self.text(result)}")

    def text(self, result):
        if result not in NAMES:
            name = ctypes.c_char_p()
            self.library.cuGetErrorName(result, ctypes.byref(name))
            NAMES[result] = (name.value or b"?").decode().replace("CUDA_ERROR_", "").replace("CUDA_", "")
        return NAMES[result]

    def memory(self, content):
        block = ctypes.create_string_buffer(bytes(content), len(content))
        self.keep.append(block)
        return ctypes.addressof(block)

    def words(self, *values):
        return self.memory(struct.pack(f"<{len(values)}Q", *[v & (1 << 64) - 1 for v in values]))

    def new(self, symbol, *arguments):
        """Calls with a place for a handle in front; its value."""
        place = self.words(0)
        self.must(symbol, place, *arguments)
        return ctypes.c_uint64.from_address(place).value


class Fixtures:
    """Valid arguments for one case, made when they are asked for."""

    def __init__(self, driver, case):
        self.d, self.case, self.f = driver, case, case.f
        self.have, self.watched = {}, []

    def once(self, name, make):
        if name not in self.have:
            self.have[name] = make()
        return self.have[name]

    def host(self, name, fill):
        def make():
            address = self.d.memory(bytes([fill]) * ROOM)
            self.watched.append((name, "host", address, fill))
            return address
        return self.once(name, make)

    def device(self, name, fill):
        def make():
            address = self.d.new("cuMemAlloc_v2", ROOM)
            self.d.must("cuMemsetD8_v2", address, fill, ROOM)
            self.d.must("cuCtxSynchronize")
            self.watched.append((name, "device", address, fill))
            return address
        return self.once(name, make)

    def array(self):
        return self.once("array", lambda: self.d.new("cuArrayCreate_v2", self.d.words(ROOM, 0, 1 | 1 << 32)))

    def plane(self):
        return self.once("plane", lambda: self.d.new("cuArray3DCreate_v2", self.d.words(64, 16, 0, 1 | 1 << 32, 2)))

    def context(self):
        return self.once("current", lambda: self.d.new("cuCtxGetCurrent"))

    def another(self):
        def make():
            context = self.d.new("cuCtxCreate_v2", 0, 0)
            self.d.new("cuCtxPopCurrent_v2")
            return context
        return self.once("another", make)

    def module(self):
        return self.once("module", lambda: self.d.new("cuModuleLoadData", self.d.memory(PTX + b"\0")))

    def graph(self):
        return self.once("graph", lambda: self.d.new("cuGraphCreate", 0))

    def event(self):
        return self.once("event", lambda: self.d.new("cuEventCreate", 0))

    def node(self, name):
        f = self.f.name

        def make():
            g = self.graph()
            if "Memcpy" in f:
                return self.d.new("cuGraphAddMemcpyNode", g, 0, 0, self.copy3d("dd"), self.context())
            if "Memset" in f:
                return self.d.new("cuGraphAddMemsetNode", g, 0, 0, self.fill("ok"), self.context())
            if "EventRecord" in f:
                return self.d.new("cuGraphAddEventRecordNode", g, 0, 0, self.event())
            if "BatchMemOp" in f:
                return self.d.new("cuGraphAddBatchMemOpNode", g, 0, 0, self.operations("ok"))
            if "KernelNodeCopy" in f:
                function = self.once("function", lambda: self.d.new("cuModuleGetFunction", self.module(), self.d.memory(b"k\0")))
                place = self.d.memory(struct.pack("<Q7I4x4Q", function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0))
                return self.d.new("cuGraphAddKernelNode_v2", g, 0, 0, place)
            return self.d.new("cuGraphAddEmptyNode", g, 0, 0)
        return self.once("node " + name, make)

    def executable(self):
        self.node("hNode")
        return self.once("exec", lambda: self.d.new("cuGraphInstantiateWithFlags", self.graph(), 0))

    def managed(self):
        return self.once("managed", lambda: self.d.new("cuMemAllocManaged", BLOCK, 1))

    def created(self):
        return self.once("created", lambda: self.d.new("cuMemCreate", BLOCK, self.d.words(1, 1, 0, 0), 0))

    def reserved(self):
        return self.once("reserved", lambda: self.d.new("cuMemAddressReserve", BLOCK, 0, 0, 0))

    def mapped(self):
        def make():
            self.d.must("cuMemMap", self.reserved(), BLOCK, 0, self.created(), 0)
            return self.reserved()
        return self.once("mapped", make)

    def green(self):
        def make():
            resource = self.d.memory(bytes(1024))
            self.d.must("cuDeviceGetDevResource", 0, resource, 1)
            return self.d.new("cuGreenCtxCreate", self.d.new("cuDevResourceGenerateDesc", resource, 1), 0, 1)
        return self.once("green", make)

    def sides(self, label):
        """(way, changes, source, destination) of a copy's record, as (memory type, host, device, array)."""
        way, *changes = label.split("-")
        made = []
        for side, letter in zip(("src", "dst"), way):
            none = f"{side}0" in changes or "both0" in changes
            fill = 0x11 if side == "src" else 0xA5
            if letter == "h":
                made.append((1, 0 if none else self.host(side, fill), 0, 0))
            elif letter == "d":
                made.append((2, 0, 0 if none else self.device(side, fill), 0))
            else:
                made.append((3, 0, 0, 0 if none else self.plane()))
        return changes, made[0], made[1]

    def copy2d(self, label):
        if label == "zeros":
            return self.d.words(*[0] * 16)
        changes, source, target = self.sides(label)
        pitch = 0 if "pitch0" in changes else 64
        return self.d.words(0, 0, *source, pitch, 0, 0, *target, pitch, 0 if "width0" in changes else 32, 0 if "height0" in changes else 4)

    def copy3d(self, label, context=0):
        if label == "zeros":
            return self.d.words(*[0] * 25)
        changes, source, target = self.sides(label)
        context = 0 if "context0" in changes else context
        pitch = 0 if "pitch0" in changes else 64
        return self.d.words(0, 0, 0, 0, *source, context, pitch, 4, 0, 0, 0, 0, *target, context, pitch, 4, 0 if "width0" in changes else 32,
                            0 if "height0" in changes else 4, 0 if "depth0" in changes else 1)

    def fill(self, label):
        if label == "zeros":
            return self.d.words(*[0] * 6)
        return self.d.words(0 if "dst0" in label else self.device("dst", 0xA5), 64, 0x33 | 1 << 32, 0 if "width0" in label else 32,
                            0 if "height0" in label else 4, 0)

    def operations(self, label):
        if label == "zeros":
            return self.d.words(*[0] * 6)
        operation = self.d.words(2, 0 if "address0" in label else self.device("dst", 0xA5), 0x44, 0, 0, 0)
        return self.d.words(self.context(), 1, operation, 0) if self.f.name.startswith("cuGraph") else operation

    def box(self, label):
        if label == "zeros":
            return self.d.words(*[0] * 14)
        source = 0 if "src0" in label else self.device("src", 0x11)
        target = 0 if "dst0" in label else self.device("dst", 0xA5)
        return self.d.words(1, source, 0, 0, 0, 1, target, 0, 0, 0, 0 if "width0" in label else 32, 4, 1, 1)

    def record(self, p, label):
        if p.base == "CUDA_MEMCPY2D":
            return self.copy2d(label)
        if p.base in ("CUDA_MEMCPY3D", "CUDA_MEMCPY3D_PEER"):
            return self.copy3d(label, self.context() if "PEER" in p.base else 0)
        if p.base == "CUDA_MEMSET_NODE_PARAMS":
            return self.fill(label)
        if p.base == "CUDA_MEMCPY3D_BATCH_OP":
            return self.box(label)
        if p.base in ("CUstreamBatchMemOpParams", "CUDA_BATCH_MEM_OP_NODE_PARAMS"):
            return self.operations(label)
        if p.base == "CUmemcpyAttributes":
            return self.d.words(1, 0, 0)
        if p.base == "CUmemLocation":
            return self.d.words(1)
        return self.d.memory(bytes(128))

    def pointer(self, p):
        """A valid CUdeviceptr for a parameter."""
        f = self.f.name
        if f == "cuMemUnmap":
            return self.mapped()
        if f == "cuMemAddressFree":
            return self.reserved()
        if f == "cuMemFreeAsync":
            return self.once("pooled", lambda: self.d.new("cuMemAllocAsync", ROOM, 0))
        if re.search("Prefetch|Advise|Discard|AttachMem", f):
            return self.managed()
        if "StreamWait" in f:
            return self.device("flag", 0)
        source = p.name.startswith("src")
        return self.device("src" if source else "dst", 0x11 if source else 0xA5)

    def size(self, p):
        f = self.f.name
        if re.search("^cuMem(Unmap|AddressFree|Prefetch|Advise|Discard)|AttachMem", f) and p.name in ("count", "size", "length") and "Batch" not in f:
            return BLOCK
        if p.name in ("Width", "dstPitch", "Height"):
            return {"Width": 8, "dstPitch": 64, "Height": 4}[p.name]
        return {"ByteCount": BYTES, "N": BYTES // 4}.get(p.name, 1)

    def value(self, p, label):
        """The word to pass for a parameter."""
        base, d = p.base, self.d
        if label == "bad":
            return -1
        if base == "CUmemLocation" and not p.stars:
            return 1  # the device with ordinal 0
        if base == "CUmem_advise":
            return 1
        if label == "0" or p.name in PLAIN:
            return 0
        if base in RECORDS and "in" in p.words:
            return self.record(p, label)
        if p.stars and base == "void":
            return self.object(p)
        if p.stars:
            return self.list(p)
        makers = {
            "CUdeviceptr": lambda: self.pointer(p), "CUdevice": lambda: 0,
            "CUcontext": self.context if "Memcpy" in self.f.name or "Graph" in self.f.name or "Synchronize" in self.f.name else self.another,
            "CUstream": lambda: self.once("stream " + p.name, lambda: d.new("cuStreamCreate", 0)),
            "CUevent": self.event, "CUarray": self.array, "CUmodule": self.module, "CUgraph": self.graph,
            "CUmipmappedArray": lambda: d.new("cuMipmappedArrayCreate", d.words(16, 16, 0, 1 | 1 << 32, 0), 2),
            "CUlibrary": lambda: d.new("cuLibraryLoadData", d.memory(PTX + b"\0"), 0, 0, 0, 0, 0, 0),
            "CUlinkState": lambda: self.link(),
            "CUmemoryPool": lambda: d.new("cuMemPoolCreate", d.words(1, 1, *[0] * 9)),
            "CUgraphExec": self.executable, "CUgraphNode": lambda: self.node(p.name),
            "CUtexObject": lambda: d.new("cuTexObjectCreate", d.words(2, self.device("texels", 0), 3 | 1 << 32, ROOM, *[0] * 20), d.words(*[0] * 20), 0),
            "CUsurfObject": lambda: d.new("cuSurfObjectCreate", d.words(0, self.plane(), *[0] * 20)),
            "CUuserObject": lambda: d.new("cuUserObjectCreate", 0, ctypes.cast(d.library.cuCtxSynchronize, ctypes.c_void_p).value, 1, 1),
            "CUgreenCtx": self.green, "CUmemGenericAllocationHandle": self.created,
            "CUlogsCallbackHandle": lambda: self.logs(),
        }
        if base in makers:
            return makers[base]()
        return self.size(p)

    def link(self):
        place = self.d.words(0)
        self.d.must("cuLinkCreate_v2", 0, 0, 0, place)
        return ctypes.c_uint64.from_address(place).value

    def logs(self):
        place = self.d.words(0)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)(lambda *_: None)
        self.d.keep.append(function)
        self.d.must("cuLogsRegisterCallback", ctypes.cast(function, ctypes.c_void_p).value, 0, place)
        return ctypes.c_uint64.from_address(place).value

    def object(self, p):
        f = self.f.name
        if f == "cuMemFreeHost":
            return self.d.new("cuMemAllocHost_v2", ROOM)
        if f == "cuMemHostUnregister":
            address = (self.d.memory(bytes(3 * ROOM)) + ROOM - 1) & -ROOM
            self.d.must("cuMemHostRegister_v2", address, ROOM, 0)
            return address
        return self.host("src", 0x11) if p.name.startswith("src") else self.host("dst", 0xA5)

    def list(self, p):
        if "out" in p.words or "new" in p.words or "inout" in p.words:
            address = self.d.memory(b"\xa5" * 1024)
            self.watched.append((p.name, "host", address, 0xA5))
            return address
        if p.base == "CUdeviceptr":
            return self.d.words(self.pointer(p))
        if p.base == "CUgraphNode":
            return self.d.words(self.node(p.name))
        if p.base == "size_t":
            return self.d.words({"sizes": BYTES if "Memcpy" in self.f.name else BLOCK}.get(p.name, 0))
        raise RuntimeError(f"{self.f.name}: no value for {p.ctype} {p.name}")

    def outputs(self):
        """What was written to memory that the case could reach; handles and addresses differ from run to run."""
        found = []
        for name, where, address, fill in self.watched:
            size = 1024 if name not in ("src", "dst", "texels") else ROOM
            if where == "host":
                content = ctypes.string_at(address, size)
            else:
                if not re.search("Memcpy|Memset|BatchMemOp|StreamWrite", self.f.name):
                    continue
                place = self.d.memory(bytes(size))
                result = self.d.call("cuMemcpyDtoH_v2", place, address, size)
                if result:
                    found.append(f"{name}={self.d.text(result)}")
                    continue
                content = ctypes.string_at(place, size)
            if content == bytes([fill]) * size:
                found.append(f"{name}=kept")
            elif any(p.name == name and (p.base.startswith("CU") or "Index" in p.name) for p in self.f.params):
                found.append(f"{name}=written")
            else:
                found.append(f"{name}={zlib.crc32(content):08x}")
        return " ".join(found)


def current(d):
    return d.new("cuCtxGetCurrent")


def captured(d, case, arguments):
    """The call in a stream that captures: its result, that of the capture's end, and how many nodes there are."""
    stream = arguments[case.f.params.index(case.f.stream)]
    d.must("cuStreamBeginCapture_v2", stream, 2)
    result = d.call(case.symbol, *arguments)
    graph, count = d.words(0), d.words(0)
    end = d.call("cuStreamEndCapture", stream, graph)
    nodes = 0
    if not end:
        d.must("cuGraphGetNodes", ctypes.c_uint64.from_address(graph).value, 0, count)
        nodes = ctypes.c_uint64.from_address(count).value
    return f"{d.text(result)}; {d.text(end)} {nodes} nodes"


def run_case(d, case):
    if case.state != "before-cuInit":
        d.must("cuInit", 0)
        if case.state != "without-context" and current(d) == 0:
            d.must("cuCtxSetCurrent", d.new("cuDevicePrimaryCtxRetain", 0))
    if not hasattr(d.library, case.symbol):
        return "not exported", False
    fixtures = Fixtures(d, case)
    arguments = [fixtures.value(p, v) for p, v in zip(case.f.params, case.values)]
    if case.state == "capturing":
        return captured(d, case, arguments), not d.call("cuCtxSynchronize")
    result = d.call(case.symbol, *arguments)
    if case.state:
        return f"{d.text(result)}; -; {fixtures.outputs()}", case.state == "before-cuInit" or current(d) == 0
    sync = d.call("cuCtxSynchronize")
    place = d.words(0)
    alloc = d.call("cuMemAlloc_v2", place, 1 << 16)
    again = d.call("cuCtxSynchronize")
    line = f"{d.text(result)}; {d.text(sync)} {d.text(alloc)}; {fixtures.outputs()}"
    return line, not (alloc or again)


def child(everything, numbers, output):
    """Runs cases until one leaves the process unlike it was. The library is opened here: nobody may fork after cuInit."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    d = Driver()
    for n in numbers:
        try:
            line, calm = run_case(d, everything[n])
        except RuntimeError as problem:
            line, calm = f"no fixture: {problem}", False
        os.write(output, f"{n} {line}\n".encode())
        if not calm:
            break
    os._exit(0)


class Process:
    """A child with the cases of one function, or one of them, that are left."""

    def __init__(self, everything, numbers, alone, limit):
        self.left, self.text, self.end = list(numbers), b"", time.monotonic() + limit
        self.now = self.left[:1] if alone else list(self.left)
        self.fd, output = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.fd)
                child(everything, self.now, output)
            finally:
                os._exit(1)
        os.close(output)

    def finish(self, found, hung):
        """Adds what the child said to `found`; what is still to do."""
        if hung:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self.fd)
        lines = {}
        for line in self.text.decode().splitlines():
            number, _, text = line.partition(" ")
            lines[int(number)] = text.rstrip("; ")
        found.update(lines)
        if (hung or status) and len(lines) < len(self.now):
            found[self.now[len(lines)]] = "hang" if hung else "crash"
        elif not lines:
            found[self.now[0]] = "nothing"
        return [n for n in self.left if n not in found]


def run_all(everything, chosen, alone, jobs, seconds, limit):
    """Lines of the chosen cases, as {name: text}; of what there was no time for nothing."""
    groups = {}
    for n in chosen:
        groups.setdefault(n if alone else everything[n].group, []).append(n)
    waiting = list(groups.values())
    waiting.reverse()
    deadline = time.monotonic() + seconds
    found, running = {}, {}
    while running or (waiting and time.monotonic() < deadline):
        while waiting and len(running) < jobs and time.monotonic() < deadline:
            process = Process(everything, waiting.pop(), alone, limit)
            running[process.fd] = process
        ready = select.select(list(running), [], [], 0.5)[0]
        for fd, process in list(running.items()):
            hung = time.monotonic() > process.end
            if fd in ready:
                piece = os.read(fd, 1 << 16)
                process.text += piece
                process.end = time.monotonic() + limit
                if piece:
                    continue
            elif not hung:
                continue
            del running[fd]
            left = process.finish(found, hung)
            if left:
                waiting.append(left)
    return {everything[n].name: text for n, text in found.items()}


def effective(text):
    """The result of the call, or the error that its cuCtxSynchronize gave instead; and the rest of the line."""
    result, _, rest = text.partition("; ")
    after, _, outputs = rest.partition("; ")
    words = after.split()
    if len(words) == 2:
        if result == "SUCCESS" and words[0] != "SUCCESS":
            result = words[0]
        after = words[1]
    return result, after, outputs


def read_text(text):
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, text = line.partition(": ")
            found[name] = text.rstrip("; ")
    return found


def read(path):
    return read_text(pathlib.Path(path).read_text())


def differences(got, wanted, known=()):
    """What is not as natively (`wanted`), nor as is `known`."""
    wrong = []
    for name, text in got.items():
        native = wanted.get(name)
        if name in known and known[name] == text:
            continue
        if native is None:
            wrong.append(f"{name}: {text} (not recorded)")
        elif text in ("crash", "hang", "nothing") or text.startswith("no fixture"):
            wrong.append(f"{name}: {text}, natively {native}")
        elif native in ("crash", "hang"):
            if not effective(text)[1].startswith(("SUCCESS", "-")):
                wrong.append(f"{name}: {text}: the context does not work any more")
        elif effective(text) != effective(native):
            wrong.append(f"{name}: {text}, natively {native}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "run", "compare"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("-o", "--output")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600, help="what has not begun by then is left out")
    parser.add_argument("--limit", type=float, default=40, help="seconds after which a case hangs")
    parser.add_argument("--known", help="a file with answers that are not the native ones, and why")
    parser.add_argument("--skip", help="a file with cases that need not run again")
    args = parser.parse_args()
    everything = cases()
    wanted = read(args.words.pop(0)) if args.what == "compare" else {}
    chosen = [n for n, c in enumerate(everything) if not args.words or any(w in c.name for w in args.words)]
    if args.skip:
        have = read(args.skip)
        chosen = [n for n in chosen if everything[n].name not in have]
    if args.alone:  # the variants last, if time is short
        chosen.sort(key=lambda n: everything[n].symbol != everything[n].f.name)
    if args.what == "list":
        for n in chosen:
            print(n, everything[n].name)
        return 0
    found = run_all(everything, chosen, args.alone, args.jobs, args.seconds, args.limit)
    if args.what == "run":
        lines = [f"{everything[n].name}: {found[everything[n].name]}".rstrip("; ") for n in sorted(chosen) if everything[n].name in found]
        if args.output:
            pathlib.Path(args.output).write_text("\n".join(lines) + "\n")
            print(f"{len(lines)} of {len(chosen)} cases")
        else:
            print("\n".join(lines))
        return 0
    wrong = differences(found, wanted, read(args.known) if args.known else {})
    print("\n".join(wrong))
    print(f"{len(found) - len(wrong)} equal, {len(wrong)} not, {len(chosen) - len(found)} not reached")
    return 1 if wrong or len(found) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
