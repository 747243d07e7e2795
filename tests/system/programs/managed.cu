/* SPDX-License-Identifier: Apache-2.0 */
// Managed memory: __managed__ variables and cudaMallocManaged, touched by host and GPU in turn.
#include "check.h"

__managed__ int counter = 3;
__managed__ float table[100];
__managed__ float large[(5 << 20) / 4 + 3] = {2, 4}; // watched, but for its ends

struct Node {
    int value;
    Node *next;
};

__global__ void fill(int n)
{
    int i = threadIdx.x;
    if (i < n) {
        table[i] = i * 1.5f;
    }
    if (i == 0) {
        counter *= 10;
    }
}

__global__ void twice(int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        large[i * 1000] *= 2;
    }
}

__global__ void walk(Node *node, int *sum)
{
    for (; node != nullptr; node = node->next) {
        *sum += node->value;
        node->value = -node->value;
    }
}

int main()
{
    EXPECT(counter == 3);
    counter = 4;
    fill<<<1, 128>>>(100);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    EXPECT(counter == 40);
    for (int i = 0; i < 100; i++) {
        EXPECT(table[i] == i * 1.5f);
    }
    const int LARGE = sizeof large / sizeof large[0];
    EXPECT(large[0] == 2 && large[1] == 4 && large[LARGE - 1] == 0);
    for (int i = 2; i < LARGE; i++) {
        large[i] = i;
    }
    twice<<<1, 128>>>((LARGE + 999) / 1000);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int i = 2; i < LARGE; i++) {
        EXPECT(large[i] == (i % 1000 == 0 ? 2 * i : i));
    }
    EXPECT(large[0] == 4 && large[1] == 4);
    // A list built by the host: addresses mean the same on both sides.
    const int N = 50;
    Node *nodes;
    int *sum;
    CHECK(cudaMallocManaged(&nodes, N * sizeof(Node)));
    CHECK(cudaMallocManaged(&sum, sizeof(int)));
    for (int i = 0; i < N; i++) {
        nodes[i].value = i + 1;
        nodes[i].next = i + 1 < N ? &nodes[i + 1] : nullptr;
    }
    for (int round = 0; round < 4; round++) {
        *sum = 0;
        walk<<<1, 1>>>(nodes, sum);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        int sign = round % 2 ? -1 : 1;
        EXPECT(*sum == sign * N * (N + 1) / 2);
        EXPECT(nodes[7].value == -8 * sign);
    }
    cudaPointerAttributes about;
    CHECK(cudaPointerGetAttributes(&about, nodes));
    EXPECT(about.type == cudaMemoryTypeManaged && about.devicePointer == nodes);
    CHECK(cudaMemset(nodes, 0, sizeof(Node)));
    CHECK(cudaDeviceSynchronize());
    EXPECT(nodes[0].value == 0 && nodes[0].next == nullptr);
    int value = 77;
    CHECK(cudaMemcpy(sum, &value, sizeof(int), cudaMemcpyDefault));
    EXPECT(*sum == 77);
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(sum));
    // Small pieces may lie on one page: freeing one must leave its neighbours alone.
    int *pieces[8];
    for (int i = 0; i < 8; i++) {
        CHECK(cudaMallocManaged(&pieces[i], 5000));
        pieces[i][0] = pieces[i][1249] = 100 + i;
    }
    for (int i = 0; i < 8; i += 2) {
        CHECK(cudaFree(pieces[i]));
    }
    for (int i = 1; i < 8; i += 2) {
        EXPECT(pieces[i][0] == 100 + i && pieces[i][1249] == 100 + i);
        pieces[i][0]++;
        CHECK(cudaMemcpy(&value, pieces[i], sizeof(int), cudaMemcpyDefault));
        EXPECT(value == 101 + i);
    }
    CHECK(cudaMallocManaged(&pieces[0], 1000));
    pieces[0][0] = 55;
    CHECK(cudaMemcpy(&value, pieces[0], sizeof(int), cudaMemcpyDefault));
    EXPECT(value == 55);
    CHECK(cudaFree(pieces[0]));
    for (int i = 1; i < 8; i += 2) {
        CHECK(cudaFree(pieces[i]));
    }
    return finish();
}
