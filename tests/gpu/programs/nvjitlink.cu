/* SPDX-License-Identifier: Apache-2.0 */
// nvJitLink: two pieces linked: PTX to machine code, or LTO intermediates to machine code or PTX.
#include "bits.h"

#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <string>

static const char *kernel = R"(
extern __device__ int twice(int);
extern __device__ int table[4];
extern "C" __global__ void run(int *data, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] = twice(data[i]) + table[i % 4];
    }
}
)";
static const char *other = R"(
__device__ int table[4] = {10, 20, 30, 40};
__device__ int twice(int x) { return 2 * x; }
)";

static std::vector<char> piece(const char *source, const std::string &architecture, bool lto)
{
    nvrtcProgram program;
    CHECK(nvrtcCreateProgram(&program, source, "piece.cu", 0, nullptr, nullptr));
    std::string option = "--gpu-architecture=" + architecture;
    const char *options[] = {option.c_str(), "--relocatable-device-code=true", "-dlto"};
    CHECK(nvrtcCompileProgram(program, lto ? 3 : 2, options));
    size_t size;
    CHECK(lto ? nvrtcGetLTOIRSize(program, &size) : nvrtcGetPTXSize(program, &size));
    std::vector<char> result(size);
    CHECK(lto ? nvrtcGetLTOIR(program, result.data()) : nvrtcGetPTX(program, result.data()));
    CHECK(nvrtcDestroyProgram(&program));
    return result;
}

int main(int argc, char **argv)
{
    const std::string kind = argc > 1 ? argv[1] : "ptx-to-cubin";
    EXPECT(kind == "ptx-to-cubin" || kind == "lto-to-cubin" || kind == "lto-to-ptx");
    bool lto = kind != "ptx-to-cubin", to_ptx = kind == "lto-to-ptx";
    int major, minor;
    CHECK(cudaFree(nullptr));
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    std::string capability = std::to_string(major) + std::to_string(minor);
    std::string architecture = "-arch=sm_" + capability;
    std::vector<const char *> options = {architecture.c_str()};
    if (lto) {
        options.push_back("-lto");
    }
    if (to_ptx) {
        options.push_back("-ptx");
    }
    nvJitLinkHandle link;
    CHECK(nvJitLinkCreate(&link, uint32_t(options.size()), options.data()));
    for (const char *source : {kernel, other}) {
        std::vector<char> data = piece(source, "compute_" + capability, lto);
        CHECK(nvJitLinkAddData(link, lto ? NVJITLINK_INPUT_LTOIR : NVJITLINK_INPUT_PTX, data.data(),
                               data.size(), source == kernel ? "kernel" : "other"));
    }
    nvJitLinkResult result = nvJitLinkComplete(link);
    if (result != NVJITLINK_SUCCESS) {
        size_t size = 0;
        nvJitLinkGetErrorLogSize(link, &size);
        std::vector<char> log(size + 1);
        nvJitLinkGetErrorLog(link, log.data());
        fprintf(stderr, "%s\n", log.data());
    }
    CHECK(result);
    size_t size;
    CHECK(to_ptx ? nvJitLinkGetLinkedPtxSize(link, &size)
                 : nvJitLinkGetLinkedCubinSize(link, &size));
    std::vector<char> image(size + 1);
    CHECK(to_ptx ? nvJitLinkGetLinkedPtx(link, image.data())
                 : nvJitLinkGetLinkedCubin(link, image.data()));
    CHECK(nvJitLinkDestroy(&link));

    CUmodule module;
    CUfunction function;
    CHECK(cuModuleLoadData(&module, image.data()));
    CHECK(cuModuleGetFunction(&function, module, "run"));
    std::vector<int> values(1000);
    for (int i = 0; i < 1000; i++) {
        values[i] = i * i;
    }
    int *data = to_device(values), count = 1000;
    void *arguments[] = {&data, &count};
    CHECK(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    std::vector<int> got = print_bits(kind.c_str(), data, 1000);
    for (int i = 0; i < 1000; i++) {
        EXPECT(got[i] == 2 * i * i + 10 * (i % 4 + 1));
    }
    CHECK(cuModuleUnload(module));
    puts("OK");
    return 0;
}
