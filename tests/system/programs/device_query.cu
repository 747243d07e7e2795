/* SPDX-License-Identifier: Apache-2.0 */
// What a program asks about its devices. Prints only what does not change from run to run.
#include "check.h"

int main()
{
    int count = 0, driver = 0, runtime = 0;
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaRuntimeGetVersion(&runtime));
    EXPECT(driver >= 13000 && runtime >= 13000);
    CHECK(cudaGetDeviceCount(&count));
    EXPECT(count >= 1);
    printf("driver %d, devices: %d\n", driver, count);
    for (int i = 0; i < count; i++) {
        cudaDeviceProp p;
        CHECK(cudaGetDeviceProperties(&p, i));
        printf("%d: %s, compute capability %d.%d, %zu bytes\n", i, p.name, p.major, p.minor,
               p.totalGlobalMem);
        EXPECT(p.name[0] != '\0' && strlen(p.name) < sizeof(p.name));
        EXPECT(p.major >= 7 && p.major <= 20 && p.minor >= 0 && p.minor <= 9);
        EXPECT(p.warpSize == 32);
        EXPECT(p.maxThreadsPerBlock == 1024 && p.maxThreadsDim[0] == 1024);
        EXPECT(p.maxThreadsDim[1] == 1024 && p.maxThreadsDim[2] == 64);
        EXPECT(p.maxGridSize[0] == 2147483647 && p.maxGridSize[1] == 65535);
        EXPECT(p.maxGridSize[2] == 65535);
        EXPECT(p.multiProcessorCount >= 1 && p.maxThreadsPerMultiProcessor >= 1024);
        EXPECT(p.regsPerBlock == 65536 && p.totalConstMem == 65536);
        EXPECT(p.sharedMemPerBlock == 49152 && p.sharedMemPerBlockOptin >= 49152);
        EXPECT(p.unifiedAddressing == 1);
        EXPECT(p.totalGlobalMem >= (64u << 20));

        int value = 0;
        CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, i));
        EXPECT(value == p.major);
        CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, i));
        EXPECT(value == p.multiProcessorCount);

        char bus[32];
        int same = -1;
        CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), i));
        CHECK(cudaDeviceGetByPCIBusId(&same, bus));
        EXPECT(same == i);
        unsigned any = 0;
        for (char byte : p.uuid.bytes) {
            any |= (unsigned char)byte;
        }
        EXPECT(any != 0);

        CHECK(cudaSetDevice(i));
        int now = -1;
        CHECK(cudaGetDevice(&now));
        EXPECT(now == i);
        size_t free_bytes = 0, total = 0, limit = 0;
        CHECK(cudaMemGetInfo(&free_bytes, &total));
        EXPECT(free_bytes > 0 && free_bytes <= total && total <= p.totalGlobalMem);
        CHECK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
        EXPECT(limit >= 512);
        int least = -1, greatest = 1;
        CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        EXPECT(least == 0 && greatest <= 0);
    }
    int value = 0;
    cudaDeviceProp p;
    EXPECT_ERROR(cudaGetDeviceProperties(&p, count), cudaErrorInvalidDevice);
    EXPECT_ERROR(cudaSetDevice(count), cudaErrorInvalidDevice);
    EXPECT_ERROR(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1), cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
    CHECK(cudaSetDevice(0));
    return finish();
}
