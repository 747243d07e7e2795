/* SPDX-License-Identifier: Apache-2.0 */
// A child made by fork has no CUDA; its parent goes on as if nothing had happened.
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

__global__ void square(int *x)
{
    *x *= *x;
}

int main()
{
    int *device, value = 12;
    CHECK(cudaMalloc(&device, sizeof(int)));
    CHECK(cudaMemcpy(device, &value, sizeof(int), cudaMemcpyHostToDevice));
    fflush(stdout);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        int *mine = nullptr;
        cudaError_t first = cudaMalloc(&mine, 4);
        cudaError_t second = cudaMemcpy(&value, device, sizeof(int), cudaMemcpyDeviceToHost);
        _exit(first == cudaErrorInitializationError && second == cudaErrorInitializationError ? 0
                                                                                              : 1);
    }
    square<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&value, device, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(value == 144);
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    square<<<1, 1>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&value, device, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(value == 20736);
    return finish();
}
