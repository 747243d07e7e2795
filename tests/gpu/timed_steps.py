# SPDX-License-Identifier: Apache-2.0
"""Training steps whose kernels tests/gpu/timeline adds up: a small CNN, and GPT-2 small with random weights.

    timed_steps.py profile     some of each under torch.profiler
    timed_steps.py turns       "ready", then some of each for every line that is read
    timed_steps.py ... pretend without PyTorch: kernels that say themselves how long they took

Prints a JSON line for each kind: its name, how many steps, the median of a step in ms, when they began and ended (s since the epoch); of
`profile` the time of their kernels in us as well, and how many there were.
"""

import ctypes
import json
import pathlib
import statistics
import sys
import time

COUNTS = {"torch_cnn_step": 60, "torch_gpt2_training_step": 12}
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry turns(.param .u32 count, .param .u64 into)
{
    .reg .u32 %r<3>;
    .reg .u64 %rd<6>;
    .reg .pred %p;
    mov.u64 %rd1, %globaltimer;
    ld.param.u32 %r1, [count];
    ld.param.u64 %rd3, [into];
    mov.u32 %r2, 0;
again:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra again;
    mov.u64 %rd2, %globaltimer;
    sub.u64 %rd2, %rd2, %rd1;
    ld.global.u64 %rd4, [%rd3];
    add.u64 %rd4, %rd4, %rd2;
    st.global.u64 [%rd3], %rd4;
    ret;
}
"""


class Torch:
    """PyTorch's steps, and its profiler."""

    def __init__(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
        import torch_steps
        self.torch = torch_steps.torch
        self.steps = [(name, step) for name, step, *_ in torch_steps.cnn() + torch_steps.gpt2() if name in COUNTS]

    def wait(self):
        self.torch.cuda.synchronize()

    def profile(self, work):
        with self.torch.profiler.profile(activities=[self.torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
        events = [event for event in profile.events() if event.device_type == self.torch.autograd.DeviceType.CUDA]
        kernels = [event for event in events if not event.name.startswith(("Memcpy", "Memset"))]
        return {"kernels_us": sum(event.time_range.elapsed_us() for event in kernels), "kernels": len(kernels)}


class Pretended:
    """Kernels of different lengths."""

    def __init__(self):
        self.cu = ctypes.CDLL("libcuda.so.1")
        context, module, self.turns, self.sum = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self.turns), module, b"turns")
        self.call("cuMemAlloc_v2", ctypes.byref(self.sum), ctypes.c_size_t(8))
        self.steps = [(name, lambda length=length: self.step(length)) for name, length in zip(COUNTS, (20000, 100000))]

    def call(self, name, *arguments):
        result = getattr(self.cu, name)(*arguments)
        if result:
            sys.exit(f"{name} says {result}")

    def step(self, length):
        given = [ctypes.c_uint32(length), self.sum]
        into = (ctypes.c_void_p * 2)(*[ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in given])
        for _ in range(4):
            self.call("cuLaunchKernel", self.turns, 1, 1, 1, 1, 1, 1, 0, None, into, None)
        self.wait()
        self.launched = getattr(self, "launched", 0) + 4

    def wait(self):
        self.call("cuCtxSynchronize")

    def profile(self, work):
        took = ctypes.c_uint64(0)
        self.call("cuMemcpyHtoD_v2", self.sum, ctypes.byref(took), ctypes.c_size_t(8))
        before = self.launched
        work()
        self.call("cuMemcpyDtoH_v2", ctypes.byref(took), self.sum, ctypes.c_size_t(8))
        return {"kernels_us": took.value / 1e3, "kernels": self.launched - before}


def measure(program, name, step, profiled):
    samples, said = [], {}

    def run():
        for _ in range(COUNTS[name]):
            begin = time.perf_counter()
            step()
            samples.append((time.perf_counter() - begin) * 1e3)
        program.wait()

    program.wait()
    began = time.time()
    if profiled:
        said = program.profile(run)
    else:
        run()
    print(json.dumps({"name": name, "steps": COUNTS[name], "ms": statistics.median(samples), "began": began, "ended": time.time(), **said}),
          flush=True)


def main():
    program = Pretended() if "pretend" in sys.argv[2:] else Torch()
    for _, step in program.steps:
        for _ in range(5):
            step()
    program.wait()
    if sys.argv[1] == "profile":
        for name, step in program.steps:
            measure(program, name, step, True)
        return
    print("ready", flush=True)
    for _ in sys.stdin:
        for name, step in program.steps:
            measure(program, name, step, False)
        print("end", flush=True)


main()
