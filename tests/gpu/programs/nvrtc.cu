/* SPDX-License-Identifier: Apache-2.0 */
// NVRTC: a template compiled to PTX and to machine code, found by its lowered names, and run.
#include "bits.h"

#include <cuda.h>
#include <nvrtc.h>

#include <string>

static const char *source = R"(
#include "scale.h"
__constant__ int offset = 3;
namespace deep {
template <typename T> __global__ void affine(T *data, int count, T by)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] = SCALE(data[i], by) + T(offset);
    }
}
}
)";
static const char *header = "#define SCALE(x, by) ((x) * (by))\n";
static const char *header_name = "scale.h";
static const char *kernels[] = {"deep::affine<float>", "deep::affine<int>", "&offset"};

static nvrtcProgram compile(const std::string &architecture)
{
    nvrtcProgram program;
    CHECK(nvrtcCreateProgram(&program, source, "affine.cu", 1, &header, &header_name));
    for (const char *kernel : kernels) {
        CHECK(nvrtcAddNameExpression(program, kernel));
    }
    std::string option = "--gpu-architecture=" + architecture;
    const char *options[] = {option.c_str(), "--std=c++17", "--fmad=false"};
    CHECK(nvrtcCompileProgram(program, 3, options));
    return program;
}

template <typename T> static void launch(CUmodule module, const char *lowered, const char *what)
{
    const int count = 1000;
    std::vector<T> values(count);
    for (int i = 0; i < count; i++) {
        values[i] = T(number(i) * 64);
    }
    T *data = to_device(values), by = T(5);
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, lowered));
    int n = count;
    void *arguments[] = {&data, &n, &by};
    CHECK(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    std::vector<T> got = print_bits(what, data, count);
    EXPECT(got[17] == values[17] * by + T(4));
    CHECK(cudaFree(data));
}

static void use(nvrtcProgram program, const std::vector<char> &image, const char *kind)
{
    const char *lowered[3];
    for (int i = 0; i < 3; i++) {
        CHECK(nvrtcGetLoweredName(program, kernels[i], &lowered[i]));
        printf("%s: %s is %s\n", kind, kernels[i], lowered[i]);
    }
    CUmodule module;
    CUdeviceptr offset;
    size_t size;
    int four = 4;
    CHECK(cuModuleLoadData(&module, image.data()));
    CHECK(cuModuleGetGlobal(&offset, &size, module, lowered[2]));
    EXPECT(size == sizeof(int));
    CHECK(cuMemcpyHtoD(offset, &four, sizeof(four)));
    launch<float>(module, lowered[0], "floats");
    launch<int>(module, lowered[1], "ints");
    CHECK(cuModuleUnload(module));
}

int main()
{
    int major, minor, version[2];
    CHECK(cudaFree(nullptr));
    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    CHECK(nvrtcVersion(&version[0], &version[1]));
    printf("NVRTC %d.%d\n", version[0], version[1]);
    std::string capability = std::to_string(major) + std::to_string(minor);
    size_t size;

    nvrtcProgram program = compile("compute_" + capability);
    CHECK(nvrtcGetPTXSize(program, &size));
    std::vector<char> image(size);
    CHECK(nvrtcGetPTX(program, image.data()));
    use(program, image, "PTX");
    CHECK(nvrtcDestroyProgram(&program));

    program = compile("sm_" + capability);
    CHECK(nvrtcGetCUBINSize(program, &size));
    EXPECT(size > 0);
    image.resize(size);
    CHECK(nvrtcGetCUBIN(program, image.data()));
    use(program, image, "cubin");
    CHECK(nvrtcDestroyProgram(&program));

    CHECK(nvrtcCreateProgram(&program, "__global__ void broken( { }", "broken.cu", 0, nullptr,
                             nullptr));
    EXPECT(nvrtcCompileProgram(program, 0, nullptr) == NVRTC_ERROR_COMPILATION);
    CHECK(nvrtcGetProgramLogSize(program, &size));
    std::vector<char> log(size);
    CHECK(nvrtcGetProgramLog(program, log.data()));
    printf("%s\n", log.data());
    CHECK(nvrtcDestroyProgram(&program));
    puts("OK");
    return 0;
}
