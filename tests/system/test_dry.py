#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--device dry: a GPU that takes any code and does nothing with it, to count what programs call."""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"


@t.test(trees=("plain", "asan"))
def machine_code_is_taken_and_does_nothing():
    program = t.build_cuda([HELPERS / "machine_code.cu"], ["-gencode", "arch=compute_90,code=sm_90"], ["-cudart", "shared"],
                           "machine_code.shared")
    with t.Server(device="soft") as server:
        done = t.towline_run(server.address(), [program], preload=True)
        t.check(done.returncode == 1 and "cudaErrorNoKernelImageForDevice" in done.stdout, done.stdout + done.stderr)
    with t.Server("--soft-capability=9.0", "--soft-memory=1G", device="dry") as server:
        with tempfile.NamedTemporaryFile(suffix=".json") as stats:
            done = t.towline_run(server.address(), [program], env={"TOWLINE_STATS": stats.name}, preload=True)
            calls = json.loads(pathlib.Path(stats.name).read_text())["calls"]
        t.equal(done.stdout.splitlines(), ["Towline Dry GPU (its kernels do nothing)", "memory untouched", "variables 100 12",
                                           "parameters 0+8 8+1 16+16 32+2"], f"what it printed ({done.stderr})")
        t.equal(calls["cuLaunchKernel"]["async"], 1, "launches")


@t.test(trees=("plain", "asan"))
def text_is_taken_without_its_code():
    # Instructions that the software GPU does not know are in no declaration.
    text = r"""
.version 8.0 /* { */
.target sm_90 // }
.address_size 64
.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.extern .func (.param .b32 r) outside (.param .b32 a);
.func (.param .b32 r) inside (.param .b32 a)
{
    { frobnicate; } // }
    .pragma "}";
}
.visible .entry k(.param .u64 p, .param .u32 n)
.maxntid 32, 1, 1
{
    wgmma.fence.sync.aligned;
}
.visible .entry l() { ret; }
"""
    program = r"""
import ctypes as c, sys
cu, context, module, f, g = c.CDLL("libcuda.so.1"), *(c.c_void_p() for _ in range(4))
at, size, offset = c.c_uint64(), c.c_size_t(), c.c_size_t()
text = sys.argv[1].encode()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(c.byref(context), 0) == 0 and cu.cuCtxSetCurrent(context) == 0
assert cu.cuModuleLoadData(c.byref(module), text) == 0
assert cu.cuModuleGetFunction(c.byref(f), module, b"k") == 0 and cu.cuModuleGetFunction(c.byref(g), module, b"l") == 0
assert cu.cuFuncGetParamInfo(f, 1, c.byref(offset), c.byref(size)) == 0 and (offset.value, size.value) == (8, 4)
assert cu.cuModuleGetGlobal_v2(c.byref(at), c.byref(size), module, b"table") == 0 and size.value == 4
bytes = (c.c_uint8 * 4)()
arguments = (c.c_void_p * 2)(c.addressof(at), c.addressof(offset))
assert cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, arguments, None) == 0
assert cu.cuLaunchKernel(g, 1, 1, 1, 32, 1, 1, 0, None, None, None) == 0
assert cu.cuMemcpyDtoH_v2(bytes, at, 4) == 0 and list(bytes) == [1, 2, 3, 4]
print("OK")
"""
    with t.Server("--soft-capability=9.0", "--soft-memory=1G", device="dry") as server:
        done = t.towline_run(server.address(), [sys.executable, "-c", program, text], preload=True)
        t.equal(done.stdout, "OK\n", f"what it printed ({done.stderr}{server.log()})")


if __name__ == "__main__":
    t.main()
