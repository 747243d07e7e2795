/* SPDX-License-Identifier: Apache-2.0 */
// Dynamic parallelism: kernels launched by kernels, with every value known beforehand. Those in
// cudaStreamFireAndForget run beside their parent, those in cudaStreamTailLaunch one after the
// other once the parent and all that it has fired are done.
#include "bits.h"

static const int BLOCKS = 12, THREADS = 64, COUNT = BLOCKS * THREADS;

__global__ static void add(int *data, int by)
{
    atomicAdd(&data[threadIdx.x], by);
}

// One child for each block; the last thing that a parent does.
__global__ static void fire(int *data)
{
    data[blockIdx.x * THREADS + threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        add<<<1, THREADS, 0, cudaStreamFireAndForget>>>(data + blockIdx.x * THREADS,
                                                        1000 * (blockIdx.x + 1));
    }
}

// Sees what all children of its parent have stored: the sum of data goes to sums[which].
__global__ static void sum(const int *data, unsigned long long *sums, int which)
{
    atomicAdd(&sums[which], (unsigned long long)data[blockIdx.x * THREADS + threadIdx.x]);
}

__global__ static void square(int *data)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    data[i] *= data[i];
}

// Fires at data, and has it summed, squared and summed again when that is done.
__global__ static void fire_then_sum(int *data, unsigned long long *sums, int *error)
{
    for (int block = threadIdx.x; block < BLOCKS; block += blockDim.x) {
        add<<<1, THREADS, 0, cudaStreamFireAndForget>>>(data + block * THREADS, block);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sum<<<BLOCKS, THREADS, 0, cudaStreamTailLaunch>>>(data, sums, 0);
        square<<<BLOCKS, THREADS, 0, cudaStreamTailLaunch>>>(data);
        sum<<<BLOCKS, THREADS, 0, cudaStreamTailLaunch>>>(data, sums, 1);
        *error = cudaGetLastError();
    }
}

// Each generation launches the next as its tail and notes that it was there.
__global__ static void descend(int *order, int *next, int left)
{
    order[(*next)++] = left;
    if (left > 0) {
        descend<<<1, 1, 0, cudaStreamTailLaunch>>>(order, next, left - 1);
    }
}

// Two in the block's default stream, which keeps their order, and two in a stream of its own.
__global__ static void in_streams(int *data)
{
    cudaStream_t stream;
    add<<<1, THREADS>>>(data, 3);
    square<<<1, THREADS>>>(data);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    add<<<1, THREADS, 0, stream>>>(data + THREADS, 5);
    square<<<1, THREADS, 0, stream>>>(data + THREADS);
    cudaStreamDestroy(stream);
}

int main()
{
    std::vector<int> zeros(COUNT);
    int *data = to_device(zeros);
    fire<<<BLOCKS, THREADS>>>(data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<int> fired = print_bits("fired", data, COUNT);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(fired[i] == i % THREADS + 1000 * (i / THREADS + 1));
    }

    std::vector<unsigned long long> none(2);
    unsigned long long *sums = to_device(none);
    int *error = to_device(std::vector<int>{-1});
    CHECK(cudaMemset(data, 0, COUNT * sizeof(int)));
    fire_then_sum<<<1, 4>>>(data, sums, error);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    unsigned long long want = 0, want_squares = 0;
    for (int i = 0; i < BLOCKS; i++) {
        want += THREADS * i;
        want_squares += THREADS * i * i;
    }
    EXPECT(print_bits("error of the launches", error, 1)[0] == 0);
    std::vector<unsigned long long> got = print_bits("sums by tails", sums, 2);
    printf("%llu, and of squares %llu\n", got[0], got[1]);
    EXPECT(got[0] == want && got[1] == want_squares);

    const int DEPTH = 50;
    int *order = to_device(std::vector<int>(DEPTH + 1, -1)), *next = to_device(std::vector<int>(1));
    descend<<<1, 1>>>(order, next, DEPTH);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<int> descended = print_bits("generations", order, DEPTH + 1);
    for (int i = 0; i <= DEPTH; i++) {
        EXPECT(descended[i] == DEPTH - i);
    }

    CHECK(cudaMemset(data, 0, COUNT * sizeof(int)));
    in_streams<<<1, 1>>>(data);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<int> ordered = print_bits("in streams", data, 2 * THREADS);
    for (int i = 0; i < THREADS; i++) {
        EXPECT(ordered[i] == 9 && ordered[THREADS + i] == 25);
    }
    for (void *p : {(void *)data, (void *)sums, (void *)error, (void *)order, (void *)next}) {
        CHECK(cudaFree(p));
    }
    puts("OK");
    return 0;
}
