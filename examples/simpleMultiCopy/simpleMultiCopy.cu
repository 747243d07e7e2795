/* SPDX-License-Identifier: Apache-2.0 */
// Overlaps copies in both directions with kernels: several streams, each with its own buffers, take
// turns, so that one uploads while another computes and a third downloads.
#include "../common/check.h"

const int STREAMS = 4;

__global__ void step(int *out, const int *in, int n, int rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int x = in[i];
        for (int r = 0; r < rounds; r++) {
            x = x * 3 + r;
        }
        out[i] = x;
    }
}

struct Lane {
    int *host_in, *host_out, *device_in, *device_out;
    cudaStream_t stream;
};

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 20000, 1, 1 << 26); // elements of one piece
    int pieces = options.number("--pieces", 12, 1, 10000);
    bool time = options.time();
    options.done();
    const int rounds = 8;
    size_t bytes = n * sizeof(int);
    printf("simpleMultiCopy: %d pieces of %d elements in %d streams\n", pieces, n, STREAMS);

    Lane lanes[STREAMS];
    for (Lane &lane : lanes) {
        CHECK(cudaHostAlloc(&lane.host_in, bytes, cudaHostAllocWriteCombined));
        CHECK(cudaMallocHost(&lane.host_out, bytes));
        lane.device_in = device_alloc<int>(n);
        lane.device_out = device_alloc<int>(n);
        CHECK(cudaStreamCreate(&lane.stream));
    }
    Timer timer;
    timer.start();
    for (int piece = 0; piece < pieces + STREAMS; piece++) {
        Lane &lane = lanes[piece % STREAMS];
        CHECK(cudaStreamSynchronize(lane.stream)); // the lane's last piece is complete
        int finished = piece - STREAMS;
        for (int i = 0; finished >= 0 && i < n; i++) {
            int want = finished * 1000 + i;
            for (int r = 0; r < rounds; r++) {
                want = int(uint32_t(want) * 3 + r);
            }
            if (lane.host_out[i] != want) {
                fail("piece %d, element %d is %d, not %d", finished, i, lane.host_out[i], want);
            }
        }
        if (piece >= pieces) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            lane.host_in[i] = piece * 1000 + i;
        }
        memset(lane.host_out, 0, bytes);
        CHECK(cudaMemcpyAsync(lane.device_in, lane.host_in, bytes, cudaMemcpyHostToDevice,
                              lane.stream));
        step<<<(n + 255) / 256, 256, 0, lane.stream>>>(lane.device_out, lane.device_in, n, rounds);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(lane.host_out, lane.device_out, bytes, cudaMemcpyDeviceToHost,
                              lane.stream));
    }
    float ms = timer.stop();
    if (time) {
        printf("time: %.3f ms, %.3f GB/s there and back\n", ms, 2.0 * bytes * pieces / ms / 1e6);
    }
    for (Lane &lane : lanes) {
        CHECK(cudaFreeHost(lane.host_in));
        CHECK(cudaFreeHost(lane.host_out));
        CHECK(cudaFree(lane.device_in));
        CHECK(cudaFree(lane.device_out));
        CHECK(cudaStreamDestroy(lane.stream));
    }
    return finish();
}
