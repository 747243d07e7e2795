/* SPDX-License-Identifier: Apache-2.0 */
// Mistakes as a runtime-API program meets them: what is returned, what the last error is, what
// sticks. "errors_runtime illegal" and so on run one of the mistakes that end a context.
#include "check.h"

// The runtime hands on what the driver says; drivers differ in which of the two that is.
static bool is_bad_configuration(cudaError_t error)
{
    return error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue;
}

__global__ void store(int *where)
{
    *where = 1;
}

__global__ void __launch_bounds__(128) narrow()
{
}

__global__ void crash(int how, char *memory)
{
    if (how == 0) {
        *reinterpret_cast<volatile int *>(memory + 1) = 1; // not aligned
    } else if (how == 1) {
        __trap();
    }
}

static int sticky(char *memory, cudaError_t expected)
{
    void *more = nullptr;
    int value = 0;
    EXPECT_ERROR(cudaDeviceSynchronize(), expected);
    EXPECT_ERROR(cudaMalloc(&more, 4), expected);
    EXPECT_ERROR(cudaMemcpy(&value, memory, 4, cudaMemcpyDeviceToHost), expected);
    EXPECT(cudaGetLastError() == expected);
    EXPECT_ERROR(cudaStreamSynchronize(0), expected);
    store<<<1, 1>>>(reinterpret_cast<int *>(memory));
    EXPECT(cudaGetLastError() == expected);
    puts("OK");
    return 0;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "plain";
    char *memory;
    CHECK(cudaMalloc(&memory, 64));
    if (strcmp(which, "illegal") == 0) {
        store<<<1, 1>>>(reinterpret_cast<int *>(0x1000));
        CHECK(cudaGetLastError());
        return sticky(memory, cudaErrorIllegalAddress);
    }
    if (strcmp(which, "misaligned") == 0) {
        crash<<<1, 1>>>(0, memory);
        CHECK(cudaGetLastError());
        return sticky(memory, cudaErrorMisalignedAddress);
    }
    if (strcmp(which, "trap") == 0) {
        crash<<<1, 1>>>(1, memory);
        CHECK(cudaGetLastError());
        return sticky(memory, cudaErrorLaunchFailure);
    }
    // None of these harms the context.
    narrow<<<1, 129>>>(); // more than its launch bounds
    EXPECT(cudaGetLastError() != cudaSuccess);
    narrow<<<1, 1025>>>();
    EXPECT(is_bad_configuration(cudaPeekAtLastError()));
    EXPECT(is_bad_configuration(cudaGetLastError()));
    EXPECT(cudaGetLastError() == cudaSuccess);
    narrow<<<0, 32>>>();
    EXPECT(is_bad_configuration(cudaGetLastError()));
    narrow<<<1, 32, 1 << 20>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    narrow<<<1, dim3(1, 1, 65)>>>();
    EXPECT(is_bad_configuration(cudaGetLastError()));
    narrow<<<dim3(1, 65536), 1>>>();
    EXPECT(is_bad_configuration(cudaGetLastError()));

    int value = 0;
    char *more;
    EXPECT_ERROR(cudaMalloc(nullptr, 4), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaMalloc(&more, size_t(1) << 50), cudaErrorMemoryAllocation);
    EXPECT_ERROR(cudaFree(&value), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaFree(memory + 16), cudaErrorInvalidValue); // not where it begins
    EXPECT_ERROR(cudaMemcpy(memory, &value, 65, cudaMemcpyKind(9)),
                 cudaErrorInvalidMemcpyDirection);
    EXPECT_ERROR(cudaMemset(memory, 0, size_t(1) << 40), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaStreamCreateWithFlags(nullptr, 0), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaSetDevice(-1), cudaErrorInvalidDevice);
    EXPECT_ERROR(cudaEventCreateWithFlags(nullptr, 0), cudaErrorInvalidValue);
    EXPECT_ERROR(cudaFuncSetAttribute(narrow, cudaFuncAttribute(99), 1), cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaMemset(memory, 0, 64));
    CHECK(cudaFree(memory));
    CHECK(cudaFree(nullptr));
    EXPECT_ERROR(cudaFree(memory), cudaErrorInvalidValue); // twice
    cudaGetLastError();
    return finish();
}
