/* SPDX-License-Identifier: Apache-2.0 */
// What compute capability 9.0 brought: tensor maps, clusters, dependent launches, conditional graph
// nodes.
#include <cooperative_groups.h>
#include <cuda.h>

#include "bits.h"

namespace cg = cooperative_groups;

enum { WIDTH = 256, HEIGHT = 128, TILE_X = 32, TILE_Y = 16 };

// Each block fetches one tile of a matrix by its tensor map and adds the block's number to it.
__global__ void fetch(const __grid_constant__ CUtensorMap map, int *out)
{
    __shared__ alignas(128) int tile[TILE_Y][TILE_X];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned tile_at = (unsigned)__cvta_generic_to_shared(tile);
    unsigned barrier_at = (unsigned)__cvta_generic_to_shared(&barrier);
    int x = blockIdx.x * TILE_X, y = blockIdx.y * TILE_Y;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_at));
        asm volatile("fence.proxy.async.shared::cta;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(tile_at),
                     "l"(&map), "r"(x), "r"(y), "r"(barrier_at)
                     : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier_at),
                     "r"((int)sizeof(tile))
                     : "memory");
    }
    unsigned done = 0;
    while (!done) {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], "
                     "0;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier_at)
                     : "memory");
    }
    for (int i = threadIdx.x; i < TILE_X * TILE_Y; i += blockDim.x) {
        int row = i / TILE_X, column = i % TILE_X;
        out[(y + row) * WIDTH + x + column] =
            tile[row][column] + (int)(blockIdx.y * gridDim.x + blockIdx.x);
    }
}

static void tensor_maps()
{
    std::vector<int> host(WIDTH * HEIGHT);
    static int back[WIDTH * HEIGHT];
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        host[i] = i * 7;
    }
    int *from = to_device(host), *to = nullptr;
    CHECK(cudaMalloc(&to, sizeof(back)));
    CUtensorMap map;
    cuuint64_t size[] = {WIDTH, HEIGHT}, pitch[] = {WIDTH * sizeof(int)};
    cuuint32_t box[] = {TILE_X, TILE_Y}, step[] = {1, 1};
    EXPECT(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, from, size, pitch, box,
                                  step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    fetch<<<dim3(WIDTH / TILE_X, HEIGHT / TILE_Y), 128>>>(map, to);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, to, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        int block = (i / WIDTH / TILE_Y) * (WIDTH / TILE_X) + i % WIDTH / TILE_X;
        EXPECT(back[i] == host[i] + block);
    }
    printf("tensor maps: every tile\n");
}

// The blocks of a cluster read each other's shared memory.
__global__ void neighbours(int *out)
{
    __shared__ int mine;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        mine = 100 + blockIdx.x;
    }
    cluster.sync();
    if (threadIdx.x == 0) {
        unsigned other = (cluster.block_rank() + 1) % cluster.num_blocks();
        out[blockIdx.x] = *cluster.map_shared_rank(&mine, other);
    }
    cluster.sync();
}

static void clusters()
{
    int *out = nullptr, back[16];
    CHECK(cudaMalloc(&out, sizeof(back)));
    cudaLaunchConfig_t config = {};
    config.gridDim = 16;
    config.blockDim = 32;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 4;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int most = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&most, neighbours, &config));
    CHECK(cudaLaunchKernelEx(&config, neighbours, out));
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    printf("clusters (%d at once):", most);
    for (int value : back) {
        printf(" %d", value);
    }
    printf("\n");
}

__global__ void first(int *value)
{
    cudaTriggerProgrammaticLaunchCompletion();
    for (int i = 0; i < 100; i++) {
        __nanosleep(100);
    }
    *value = 41;
}

__global__ void second(int *value)
{
    cudaGridDependencySynchronize();
    *value += 1;
}

static void dependent_launches()
{
    int *value = nullptr, back = 0;
    CHECK(cudaMalloc(&value, sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < 10; round++) {
        CHECK(cudaMemsetAsync(value, 0, sizeof(int), stream));
        first<<<1, 1, 0, stream>>>(value);
        cudaLaunchConfig_t config = {};
        config.gridDim = config.blockDim = 1;
        config.stream = stream;
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        config.attrs = &attribute;
        config.numAttrs = 1;
        CHECK(cudaLaunchKernelEx(&config, second, value));
        CHECK(cudaMemcpyAsync(&back, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT(back == 42);
    }
    printf("dependent launches: 42\n");
}

__global__ void count(int *value, cudaGraphConditionalHandle handle)
{
    *value += 3;
    cudaGraphSetConditional(handle, *value < 20);
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const void *function, void **arguments)
{
    cudaGraphNode_t node;
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeKernel;
    params.kernel.func = const_cast<void *>(function);
    params.kernel.gridDim = params.kernel.blockDim = dim3(1);
    params.kernel.kernelParams = arguments;
    CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    return node;
}

static void while_node()
{
    int *value = nullptr, back = 0;
    CHECK(cudaMalloc(&value, sizeof(int)));
    CHECK(cudaMemset(value, 0, sizeof(int)));
    cudaGraph_t graph, body;
    cudaGraphNode_t loop;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    CHECK(cudaGraphAddNode(&loop, graph, nullptr, nullptr, 0, &params));
    body = params.conditional.phGraph_out[0];
    void *arguments[] = {&value, &handle};
    add_kernel(body, (const void *)count, arguments);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int round = 0; round < 2; round++) {
        CHECK(cudaMemsetAsync(value, 0, sizeof(int), stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(&back, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("while node: %d\n", back);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

__global__ void choose(const int *choice, cudaGraphConditionalHandle handle)
{
    cudaGraphSetConditional(handle, *choice);
}

__global__ void put(int *value, int what)
{
    *value = what;
}

// A node whose body i puts 10 + i; which one runs is chosen on the device, anew at each launch.
static void branches(const char *name, cudaGraphConditionalNodeType type, int bodies, int choices)
{
    int *memory = nullptr, back = 0;
    CHECK(cudaMalloc(&memory, 2 * sizeof(int)));
    int *choice = memory, *value = memory + 1;
    cudaGraph_t graph;
    cudaGraphNode_t branch;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
    void *chosen[] = {&choice, &handle};
    cudaGraphNode_t first = add_kernel(graph, (const void *)choose, chosen);
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = bodies;
    CHECK(cudaGraphAddNode(&branch, graph, &first, nullptr, 1, &params));
    for (int i = 0; i < bodies; i++) {
        int what = 10 + i;
        void *arguments[] = {&value, &what};
        add_kernel(params.conditional.phGraph_out[i], (const void *)put, arguments);
    }
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < choices; i++) {
        int now[] = {i, -1};
        CHECK(cudaMemcpyAsync(memory, now, sizeof(now), cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaMemcpyAsync(&back, value, sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        printf("%s node, %d: %d\n", name, i, back);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(memory));
}

static void conditional_nodes()
{
    while_node();
    branches("if", cudaGraphCondTypeIf, 1, 2);
    branches("if with else", cudaGraphCondTypeIf, 2, 3);
    branches("switch", cudaGraphCondTypeSwitch, 3, 4); // 3: none of them
}

static int messages;

static void on_log(void *, CUlogLevel level, char *text, size_t size)
{
    messages += level == CU_LOG_LEVEL_ERROR && size > 0 && text != nullptr;
}

static void logs()
{
    CUlogsCallbackHandle handle = nullptr;
    CUresult made = cuLogsRegisterCallback(on_log, nullptr, &handle);
    printf("logs callback: %d\n", made);
    if (made == CUDA_SUCCESS) {
        CHECK(cudaDeviceSynchronize());
        EXPECT(cuLogsUnregisterCallback(handle) == CUDA_SUCCESS);
    }
}

int main()
{
    tensor_maps();
    clusters();
    dependent_launches();
    conditional_nodes();
    logs();
    printf("OK\n");
    return 0;
}
