/* SPDX-License-Identifier: Apache-2.0 */
// Host memory that the GPU can reach: pinned, mapped, write-combined, registered; and what the
// runtime says about pointers.
#include "check.h"

__global__ void triple(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] *= 3;
    }
}

__global__ void sum(const int *data, int n, int *result)
{
    int total = 0;
    for (int i = 0; i < n; i++) {
        total += data[i];
    }
    *result = total;
}

const int N = 5000;

static void use(int *host, int *device)
{
    for (int i = 0; i < N; i++) {
        host[i] = i;
    }
    triple<<<(N + 127) / 128, 128>>>(device, N);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < N; i++) {
        EXPECT(host[i] == 3 * i);
    }
    host[0] = 1000; // the GPU sees what the host wrote after that
    triple<<<1, 1>>>(device, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    EXPECT(host[0] == 3000);
}

int main()
{
    int *mapped, *device, *plain, *result;
    cudaPointerAttributes about;
    unsigned flags = 0;
    CHECK(cudaHostAlloc(&mapped, N * sizeof(int), cudaHostAllocMapped | cudaHostAllocPortable));
    CHECK(cudaHostGetDevicePointer(&device, mapped, 0));
    CHECK(cudaHostGetFlags(&flags, mapped));
    EXPECT(flags & cudaHostAllocMapped);
    use(mapped, device);
    puts("mapped: right");

    CHECK(cudaPointerGetAttributes(&about, mapped));
    EXPECT(about.type == cudaMemoryTypeHost && about.hostPointer == mapped);
    EXPECT(about.devicePointer == device);
    CHECK(cudaPointerGetAttributes(&about, mapped + 7));
    EXPECT(about.type == cudaMemoryTypeHost && about.hostPointer == mapped + 7);

    // With unified addressing every pinned allocation is mapped, and an address means the same to
    // both.
    int *pinned;
    CHECK(cudaMallocHost(&pinned, N * sizeof(int)));
    use(pinned, pinned);
    puts("pinned: right");
    CHECK(cudaMalloc(&result, sizeof(int)));
    for (int i = 0; i < N; i++) {
        pinned[i] = 2;
    }
    int total = 0;
    sum<<<1, 1>>>(pinned, N, result);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&total, result, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(total == 2 * N);

    plain = static_cast<int *>(aligned_alloc(4096, 5 * 4096));
    CHECK(cudaPointerGetAttributes(&about, plain));
    EXPECT(about.type == cudaMemoryTypeUnregistered);
    CHECK(cudaHostRegister(plain, 5 * 4096, cudaHostRegisterMapped));
    CHECK(cudaPointerGetAttributes(&about, plain));
    EXPECT(about.type == cudaMemoryTypeHost);
    CHECK(cudaHostGetDevicePointer(&device, plain, 0));
    use(plain, device);
    puts("registered: right");
    EXPECT_ERROR(cudaHostRegister(plain, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    CHECK(cudaHostUnregister(plain));
    EXPECT_ERROR(cudaHostUnregister(plain), cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();
    free(plain);

    CHECK(cudaPointerGetAttributes(&about, result));
    EXPECT(about.type == cudaMemoryTypeDevice && about.device == 0);
    EXPECT(about.devicePointer == result);

    // Pinned memory is a source and a target for copies like any other.
    CHECK(cudaMemcpy(result, pinned + 3, sizeof(int), cudaMemcpyDefault));
    CHECK(cudaMemcpy(pinned + 9, result, sizeof(int), cudaMemcpyDefault));
    EXPECT(pinned[9] == 2);
    EXPECT_ERROR(cudaFreeHost(pinned + 1), cudaErrorInvalidValue);
    cudaGetLastError();
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFreeHost(mapped));
    CHECK(cudaFree(result));
    return finish();
}
