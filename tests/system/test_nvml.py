#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libnvidia-ml.so.1 as monitoring programs see it, through a server on the software GPU."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

LIBRARY = t.BUILD / "lib" / "libnvidia-ml.so.1"
LOGIN = 16  # of a STATUS: whoever asks can log in

# What the programs below begin with: both libraries, and checks that say what was wrong.
BEGIN = """
import ctypes as c, sys, time
n, cu = c.CDLL("libnvidia-ml.so.1"), c.CDLL("libcuda.so.1")
def ok(result, wanted=0):
    if result != wanted: sys.exit(f"line {sys._getframe(1).f_lineno}: {result}, not {wanted}")
def equal(a, b):
    if a != b: sys.exit(f"line {sys._getframe(1).f_lineno}: {a!r} is not {b!r}")
def text(function, *args):
    out = c.create_string_buffer(96); ok(function(*args, out, 96)); return out.value.decode()
class Memory(c.Structure): _fields_ = [(k, c.c_ulonglong) for k in ("total", "free", "used")]
class Process(c.Structure):
    _fields_ = [("pid", c.c_uint), ("memory", c.c_ulonglong), ("gi", c.c_uint), ("ci", c.c_uint)]
n.nvmlErrorString.restype = c.c_char_p
def device(i):
    h = c.c_void_p(); ok(n.nvmlDeviceGetHandleByIndex_v2(i, c.byref(h))); return h
"""


def run(program, server=None):
    where = ["--device", "soft"] if server is None else ["-s", server]
    done = t.run([t.TOWLINE, "run", *where, "--", "python3", "-c", BEGIN + program])
    t.check(done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


def tool(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    t.check(done.returncode == 0, done.stderr)
    return done.stdout


@t.test()
def needs_libc_alone_and_exports_nvml_only():
    dynamic = tool("readelf", "-dW", LIBRARY)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    allowed = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    t.check(needed and needed <= allowed, f"it needs {sorted(needed - allowed)}")
    t.equal(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libnvidia-ml.so.1"], "the soname")
    names = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", LIBRARY).splitlines()}
    wanted = set(re.findall(r"\bnvml[A-Z]\w+", re.sub(r"^#.*$", "", (t.ROOT / "src/nvml/functions.list").read_text(), flags=re.M)))
    t.equal(sorted(names - wanted), [], "exported and not in functions.list")
    t.equal(sorted(wanted - names), [], "in functions.list and not exported")
    versions = {tuple(map(int, v)) for v in re.findall(r"GLIBC_(\d+)\.(\d+)", tool("objdump", "-T", LIBRARY))}
    t.check(max(versions) <= (2, 28), f"symbols of GLIBC {max(versions)} are used")


@t.test()
def memory_agrees_with_cuda():
    # At once, after each call: programs look before and after.
    run("""
ok(n.nvmlInit_v2()); ok(cu.cuInit(0))
context, h, held = c.c_void_p(), device(0), []
ok(cu.cuDevicePrimaryCtxRetain(c.byref(context), 0)); ok(cu.cuCtxSetCurrent(context))
free, total, memory = c.c_size_t(), c.c_size_t(), Memory()
def used():
    ok(cu.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
    ok(n.nvmlDeviceGetMemoryInfo(h, c.byref(memory)))
    equal((memory.free, memory.total), (free.value, total.value))
    equal(memory.used, memory.total - memory.free)
    return memory.used
first = before = used()
for size in (64 << 20, 100 << 20, 256 << 20):
    held.append((c.c_uint64(), size)); ok(cu.cuMemAlloc_v2(c.byref(held[-1][0]), c.c_size_t(size)))
    equal(used() - before, size); before += size
for size in (1000, 1 << 20, 3 << 20, 1):  # GPUs give memory out in blocks of 2 MiB
    at = c.c_uint64(); ok(cu.cuMemAlloc_v2(c.byref(at), c.c_size_t(size))); used(); ok(cu.cuMemFree_v2(at))
before = used()
while held:
    at, size = held.pop(); ok(cu.cuMemFree_v2(at))
    ok(n.nvmlDeviceGetMemoryInfo(h, c.byref(memory)))
    equal(before - memory.used, size); before -= size
equal(used(), first)
""")


@t.test()
def a_program_finds_itself_among_the_processes():
    run("""
import os
ok(n.nvmlInit_v2()); ok(cu.cuInit(0))
context, at, count, got = c.c_void_p(), c.c_uint64(), c.c_uint(0), (Process * 8)()
ok(cu.cuDevicePrimaryCtxRetain(c.byref(context), 0)); ok(cu.cuCtxSetCurrent(context))
ok(cu.cuMemAlloc_v2(c.byref(at), c.c_size_t(1 << 20)))
ok(n.nvmlDeviceGetComputeRunningProcesses_v3(device(0), c.byref(count), None), 7)
equal(count.value, 1)
count.value = 8
ok(n.nvmlDeviceGetComputeRunningProcesses_v3(device(0), c.byref(count), got))
equal((count.value, got[0].pid, got[0].memory), (1, os.getpid(), 1 << 20))
equal(text(n.nvmlSystemGetProcessName, os.getpid()).split("/")[-1][:6], "python")
name = c.create_string_buffer(4)
ok(n.nvmlSystemGetProcessName(os.getpid(), name, 4), 7)
ok(n.nvmlSystemGetProcessName(1, name, 4), 6)
""")


@t.test()
def every_error_has_its_text():
    run("""
texts = [n.nvmlErrorString(i).decode() for i in range(31)]
equal(len(set(texts)), 31)
equal("Unknown Error" in texts, False)
for code, wanted in ((0, "Success"), (2, "Invalid Argument"), (6, "Not Found"), (7, "Insufficient Size"), (9, "Driver Not Loaded"),
                     (13, "Function Not Found"), (15, "GPU is lost"), (18, "Driver/library version mismatch"), (27, "Not ready")):
    equal(texts[code], wanted)
for code in (-1, 31, 999): equal(n.nvmlErrorString(code), b"Unknown Error")
""")


SAME_DEVICES = """
ok(n.nvmlInit()); ok(cu.cuInit(0))
count, major, minor, value = c.c_uint(), c.c_int(), c.c_int(), c.c_int()
ok(n.nvmlDeviceGetCount_v2(c.byref(count))); equal(count.value, 2)
h = device(1)
name = c.create_string_buffer(96); ok(cu.cuDeviceGetName(name, 96, 1))
equal(text(n.nvmlDeviceGetName, h), name.value.decode())
ok(n.nvmlDeviceGetCudaComputeCapability(h, c.byref(major), c.byref(minor)))
ok(cu.cuDeviceGetAttribute(c.byref(value), 75, 1)); equal(major.value, value.value)
bus = c.create_string_buffer(32); ok(cu.cuDeviceGetPCIBusId(bus, 32, 1))
again = c.c_void_p()
ok(n.nvmlDeviceGetHandleByPciBusId_v2(bus, c.byref(again))); equal(again.value, h.value)
uuid = text(n.nvmlDeviceGetUUID, h)
ok(n.nvmlDeviceGetHandleByUUID(uuid.encode(), c.byref(again))); equal(again.value, h.value)
raw = (c.c_ubyte * 16)(); ok(cu.cuDeviceGetUuid_v2(raw, 1)); equal(uuid.replace("-", "")[3:], bytes(raw).hex())
ok(n.nvmlDeviceGetHandleByUUID(b"GPU-0", c.byref(again)), 6)
ok(n.nvmlDeviceGetHandleByIndex_v2(2, c.byref(again)), 2)
version, ours = c.c_int(), c.c_int()
ok(n.nvmlSystemGetCudaDriverVersion(c.byref(version))); ok(cu.cuDriverGetVersion(c.byref(ours)))
equal(version.value, ours.value)
status = c.c_int(); ok(n.nvmlDeviceGetP2PStatus(device(0), h, 0, c.byref(status)))
ok(cu.cuDeviceCanAccessPeer(c.byref(value), 0, 1)); equal(status.value == 0, value.value == 1)
"""


@t.test()
def devices_are_those_of_cuda():
    with t.Server("--soft-devices=2", "--soft-memory=1G") as server:
        run(SAME_DEVICES, server.address("tcp"))


@t.test()
def devices_of_two_servers_are_one_list():
    with t.Server(memory="1G") as one, t.Server(memory="512M") as two:
        run("""
ok(n.nvmlInit_v2()); ok(cu.cuInit(0))
count, total, memory = c.c_uint(), c.c_size_t(), Memory()
ok(n.nvmlDeviceGetCount_v2(c.byref(count))); equal(count.value, 2)
for i in range(2):
    ok(cu.cuDeviceTotalMem_v2(c.byref(total), i))
    ok(n.nvmlDeviceGetMemoryInfo(device(i), c.byref(memory)))
    equal(memory.total, total.value)
""", f"{one.address()},{two.address('tcp')}")


@t.test()
def what_nobody_knows_is_not_supported():
    run("""
value = c.c_uint()
ok(n.nvmlDeviceGetCount_v2(c.byref(value)), 1)
ok(n.nvmlInit_v2()); ok(n.nvmlInit_v2()); ok(n.nvmlShutdown())
h = device(0)
for name in "nvmlDeviceGetPowerUsage nvmlDeviceGetMinorNumber nvmlDeviceGetFanSpeed".split():
    ok(getattr(n, name)(h, c.byref(value)), 3)
ok(n.nvmlDeviceGetTemperature(h, 0, c.byref(value)), 3)
ok(n.nvmlDeviceGetNvLinkState(h, 0, c.byref(value)), 3)
errors = c.c_ulonglong()
ok(n.nvmlDeviceGetTotalEccErrors(h, 1, 0, c.byref(errors)), 3)
ok(n.nvmlDeviceGetTotalEccErrors(h, 2, 0, c.byref(errors)), 2)
ok(n.nvmlDeviceValidateInforom(h), 3)
ok(n.nvmlDeviceGetUtilizationRates(h, (c.c_uint * 2)()), 3)
ok(n.nvmlDeviceGetPowerUsage(c.c_void_p(12), c.byref(value)), 2)
texts = ["Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
         "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout",
         "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
         "GPU requires reset", "GPU access blocked by the operating system", "Driver/library version mismatch",
         "In use by another client", "Insufficient Memory", "No data", "ECC not supported on this virtual GPU",
         "Insufficient resources", "Frequency not supported", "Argument version mismatch", "Deprecated", "Not ready",
         "GPU not found", "Invalid state", "Reset type not supported", "Unknown Error"]
for number, words in enumerate(texts): equal(n.nvmlErrorString(number).decode(), words)
equal(n.nvmlErrorString(-1), b"Unknown Error"); equal(n.nvmlErrorString(999), b"Unknown Error")
ok(n.nvmlShutdown()); ok(n.nvmlShutdown(), 1)
""")


@t.test()
def the_log_says_what_was_refused():
    program = """
value = c.c_uint()
ok(n.nvmlInit_v2())
ok(n.nvmlDeviceGetNvLinkState(device(0), 0, c.byref(value)), 3)
ok(n.nvmlDeviceGetPowerUsage(device(0), c.byref(value)), 3)
"""
    done = t.run([t.TOWLINE, "run", "--device", "soft", "--", "python3", "-c", BEGIN + program], env=dict(os.environ, TOWLINE_LOG="nvml=debug"))
    for what in ("nvmlDeviceGetNvLinkState", "power"):
        t.check(f"{what} is not supported" in done.stderr, f"nothing is said of {what}:\n{done.stderr}")


@t.test()
def beginning_waits_for_no_numbers():
    # New numbers may take a real GPU's driver 70 ms, and PyTorch does nothing but begin. Somebody between the library and
    # the server notes what each question's flags are.
    flags = []

    def relay(listener, server):
        while True:
            try:
                guest, _ = listener.accept()
            except OSError:
                return
            with guest, socket.socket(socket.AF_UNIX) as host:
                host.connect(str(server.socket))
                question = guest.recv(4096)
                flags.append(int.from_bytes(question[20:24], "little") & ~LOGIN)
                host.sendall(question)
                while answer := host.recv(65536):
                    guest.sendall(answer)

    with t.Server() as server, socket.socket(socket.AF_UNIX) as listener:
        path = server.folder / "relay"
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=relay, args=(listener, server), daemon=True).start()
        program = "ok(n.nvmlInit_v2()); h = device(0)"
        t.run([t.TOWLINE, "run", "--no-check", "-s", f"unix://{path}", "--", "python3", "-c", BEGIN + program])
        t.equal(flags, [1], "questions of a program that begins")
        program += "; m = Memory(); ok(n.nvmlDeviceGetMemoryInfo(h, c.byref(m)))"
        t.run([t.TOWLINE, "run", "--no-check", "-s", f"unix://{path}", "--", "python3", "-c", BEGIN + program])
        t.equal(flags, [1, 1, 0], "questions of a program that asks for numbers")
        listener.close()


@t.test()
def nccl_gets_the_answers_it_starts_with():
    # What NCCL 2.28 asks when it starts, for every pair of devices, a device with itself too.
    run("""
ok(n.nvmlInit_v2()); count = c.c_uint(); ok(n.nvmlDeviceGetCount_v2(c.byref(count)))
handles = []
for i in range(count.value):
    handles.append(c.c_void_p()); ok(n.nvmlDeviceGetHandleByIndex(i, c.byref(handles[-1])))
    major, minor, index = c.c_int(), c.c_int(), c.c_uint(99)
    ok(n.nvmlDeviceGetCudaComputeCapability(handles[i], c.byref(major), c.byref(minor)))
    ok(n.nvmlDeviceGetIndex(handles[i], c.byref(index))); equal(index.value, i)
for a in handles:
    for b in handles:
        for what in (0, 1):
            status = c.c_int(99); ok(n.nvmlDeviceGetP2PStatus(a, b, what, c.byref(status)))
            if a is b: equal(status.value, 0)
            else: equal(status.value in (0, 5), True)
ok(n.nvmlDeviceGetP2PStatus(handles[0], None, 0, c.byref(status)), 2)
ok(n.nvmlDeviceGetP2PStatus(handles[0], handles[0], 6, c.byref(status)), 2)
state = (c.c_uint * 3)(9, 9, 9); ok(n.nvmlSystemGetConfComputeState(state)); equal(list(state), [0, 0, 0])
settings = (c.c_uint * 5)(20 | 1 << 24, 9, 9, 9, 9); ok(n.nvmlSystemGetConfComputeSettings(settings))
equal(list(settings), [20 | 1 << 24, 0, 0, 0, 0])
settings[0] = 20; ok(n.nvmlSystemGetConfComputeSettings(settings), 25)
fabric = (c.c_uint * 9)(36 | 2 << 24); ok(n.nvmlDeviceGetGpuFabricInfoV(handles[0], fabric)); equal(fabric[7], 0)
class Field(c.Structure):
    _fields_ = [("id", c.c_uint), ("scope", c.c_uint), ("time", c.c_longlong), ("took", c.c_longlong),
                ("type", c.c_int), ("result", c.c_int), ("value", c.c_ulonglong)]
field = Field(170); ok(n.nvmlDeviceGetFieldValues(handles[0], 1, c.byref(field))); equal(field.result, 3)
for link in range(18):
    ok(n.nvmlDeviceGetNvLinkState(handles[0], link, c.byref(index)), 3)
    ok(n.nvmlDeviceGetNvLinkCapability(handles[0], link, 0, c.byref(index)), 3)
# And of CUDA: exportable memory on the device; memory of the host it tries, and does without when that is refused.
ok(cu.cuInit(0)); size, memory = c.c_size_t(), c.c_uint64()
for place, answer in ((1, 0), (3, 801)):
    prop = (c.c_uint * 8)(1, 1, place, 0)
    ok(cu.cuMemGetAllocationGranularity(c.byref(size), prop, 0)); equal(size.value > 0, True)
    ok(cu.cuMemCreate(c.byref(memory), size, prop, c.c_ulonglong(0)), answer)
ok(cu.cuMemRelease(memory))
""")


@t.test()
def nvidia_smi_gets_what_it_starts_with():
    # nvidia-smi 470 to 595: a table by this name, with its size first. NULL in it is "not supported". The processes it
    # shows come from three functions of the table, at these places, in records of 4,128 bytes.
    run("""
import os
KNOWN = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
class Listed(c.Structure):
    _fields_ = [("pid", c.c_uint), ("memory", c.c_ulonglong), ("gi", c.c_uint), ("ci", c.c_uint),
                ("reserved", c.c_ulonglong), ("name", c.c_char * 4096)]
equal(c.sizeof(Listed), 4128)
ok(n.nvmlInitWithFlags(0)); table = c.POINTER(c.c_uint64)()
ok(n.nvmlInternalGetExportTable(c.byref(table), b"x" * 16), 6)
ok(n.nvmlInternalGetExportTable(None, KNOWN), 2)
ok(n.nvmlInternalGetExportTable(c.byref(table), KNOWN)); equal(table[0], 4096)
places = {i * 8: table[i] for i in range(1, 512) if table[i] != 0}; equal(sorted(places), [0x6a8, 0x6b0, 0x6b8])
compute, graphics, mps = (c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p)(places[i]) for i in sorted(places))
ok(cu.cuInit(0)); context, at, h, count, got = c.c_void_p(), c.c_uint64(), device(0), c.c_uint(4), (Listed * 4)()
ok(cu.cuDevicePrimaryCtxRetain(c.byref(context), 0)); ok(cu.cuCtxSetCurrent(context))
ok(cu.cuMemAlloc_v2(c.byref(at), c.c_size_t(5 << 20)))
ok(compute(h, c.byref(count), got)); equal(count.value, 1)
equal((got[0].pid, got[0].memory, got[0].gi, got[0].ci), (os.getpid(), 5 << 20, 0xffffffff, 0xffffffff))
equal(got[0].name != b"", True); equal(got[1].pid, 0)
count.value = 0; ok(compute(h, c.byref(count), got), 7); equal(count.value, 1)
for other in (graphics, mps): count.value = 4; ok(other(h, c.byref(count), got)); equal(count.value, 0)
# Programs for monitoring ask by name, in turns with other things.
for name in ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses"):
    count.value = 4; ok(getattr(n, name)(h, c.byref(count), got)); equal(count.value, 0)
mig = c.c_uint(9); ok(n.nvmlDeviceIsMigDeviceHandle(h, c.byref(mig))); equal(mig.value, 0)
ok(compute(None, c.byref(count), got), 2)
# It makes a set of events first; none ever comes.
events, kinds, data = c.c_void_p(), c.c_ulonglong(9), (c.c_ubyte * 64)()
ok(n.nvmlEventSetCreate(c.byref(events))); ok(n.nvmlDeviceGetSupportedEventTypes(h, c.byref(kinds))); equal(kinds.value, 0)
began = time.monotonic(); ok(n.nvmlEventSetWait_v2(events, data, 50), 10); equal(time.monotonic() - began >= 0.05, True)
ok(n.nvmlDeviceRegisterEvents(h, c.c_ulonglong(8), events), 3); ok(n.nvmlEventSetFree(events))
""")


@t.test()
def uuids_agree_with_cuda_and_the_command_line():
    with t.Server("--soft-devices=3", "--soft-memory=64M") as server:
        listed = run("""
import uuid
ok(n.nvmlInit_v2()); ok(cu.cuInit(0))
for i in range(3):
    raw = (c.c_ubyte * 16)(); ok(cu.cuDeviceGetUuid(raw, i)); own = "GPU-" + str(uuid.UUID(bytes=bytes(raw)))
    raw = (c.c_ubyte * 16)(); ok(cu.cuDeviceGetUuid_v2(raw, i)); equal("GPU-" + str(uuid.UUID(bytes=bytes(raw))), own)
    equal(text(n.nvmlDeviceGetUUID, device(i)), own); equal(0 in bytes(raw), False)
    h = c.c_void_p(); ok(n.nvmlDeviceGetHandleByUUID(own.encode(), c.byref(h))); equal(h.value, device(i).value)
    print(own)
""", server.address()).split()
        t.equal([device["uuid"] for device in server.status()["devices"]], listed, "the server's UUIDs")


@t.test()
def without_a_server_there_is_no_driver():
    done = t.run(["python3", "-c", "import ctypes; print(ctypes.CDLL('%s').nvmlInit_v2())" % LIBRARY],
                 env=t.clean_environment(TOWLINE_SERVER="unix:///nowhere/towline.sock"))
    t.equal(done.stdout, "9\n", "nvmlInit_v2")


if __name__ == "__main__":
    t.main()
