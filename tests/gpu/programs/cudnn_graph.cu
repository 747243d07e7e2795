/* SPDX-License-Identifier: Apache-2.0 */
// cuDNN by its graph interface: a convolution in fp16, by the first few engines that cuDNN
// proposes.
#include "bits.h"

#include <cuda_fp16.h>
#include <cudnn.h>

enum { N = 2, C = 32, H = 16, W = 16, K = 64, R = 3, CONFIGS = 8, RUNS = 4 };

typedef cudnnBackendDescriptor_t Descriptor;

static Descriptor make(cudnnBackendDescriptorType_t type)
{
    Descriptor made;
    CHECK(cudnnBackendCreateDescriptor(type, &made));
    return made;
}

template <typename T>
static void set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                std::vector<T> values)
{
    CHECK(cudnnBackendSetAttribute(d, name, type, int64_t(values.size()), values.data()));
}

// Channels last: the layout that tensor cores want.
static Descriptor tensor(int64_t id, int64_t n, int64_t c, int64_t h, int64_t w)
{
    Descriptor d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
        std::vector<cudnnDataType_t>{CUDNN_DATA_HALF});
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::vector<int64_t>{n, c, h, w});
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
        std::vector<int64_t>{h * w * c, 1, w * c, c});
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector<int64_t>{id});
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector<int64_t>{16});
    CHECK(cudnnBackendFinalize(d));
    return d;
}

static Descriptor convolution_graph(cudnnHandle_t handle)
{
    Descriptor conv = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
        std::vector<cudnnDataType_t>{CUDNN_DATA_FLOAT});
    set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
        std::vector<cudnnConvolutionMode_t>{CUDNN_CROSS_CORRELATION});
    set(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::vector<int64_t>{2});
    for (cudnnBackendAttributeName_t ones :
         {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
          CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS}) {
        set(conv, ones, CUDNN_TYPE_INT64, std::vector<int64_t>{1, 1});
    }
    CHECK(cudnnBackendFinalize(conv));
    Descriptor operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    struct {
        cudnnBackendAttributeName_t name;
        Descriptor value;
    } parts[] = {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor('x', N, C, H, W)},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor('w', K, C, R, R)},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, tensor('y', N, K, H, W)},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, conv}};
    for (auto &part : parts) {
        set(operation, part.name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::vector<Descriptor>{part.value});
    }
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT,
        std::vector<float>{1});
    set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT,
        std::vector<float>{0});
    CHECK(cudnnBackendFinalize(operation));
    Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        std::vector<Descriptor>{operation});
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
        std::vector<cudnnHandle_t>{handle});
    CHECK(cudnnBackendFinalize(graph));
    return graph;
}

// The number of the engine that a configuration is for, or -1 if its results may differ from run
// to run.
static int64_t engine_of(Descriptor config)
{
    Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t count = 0, index = -1;
    CHECK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine));
    CHECK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                   &count, &index));
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    CHECK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                   CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                   &count, notes));
    for (int64_t i = 0; i < count; i++) {
        index = notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ? -1 : index;
    }
    return index;
}

int main()
{
    cudnnHandle_t handle;
    CHECK(cudnnCreate(&handle));
    std::vector<__half> x(N * C * H * W), w(K * C * R * R), y(N * K * H * W);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = __float2half(number(i));
    }
    for (size_t i = 0; i < w.size(); i++) {
        w[i] = __float2half(number(i + 5000000));
    }
    __half *dx = to_device(x), *dw = to_device(w), *dy = to_device(y);
    double want = 0; // of channel 0 at (1, 1)
    for (int r = 0; r < R; r++) {
        for (int s = 0; s < R; s++) {
            for (int c = 0; c < C; c++) {
                want += double(__half2float(x[(r * W + s) * C + c])) *
                        __half2float(w[(r * R + s) * C + c]);
            }
        }
    }

    Descriptor graph = convolution_graph(handle);
    Descriptor heuristics = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        std::vector<Descriptor>{graph});
    set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
        std::vector<cudnnBackendHeurMode_t>{CUDNN_HEUR_MODE_A});
    CHECK(cudnnBackendFinalize(heuristics));
    Descriptor configs[CONFIGS];
    for (Descriptor &config : configs) {
        config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    int64_t count = 0;
    CHECK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &count, configs));
    int runs = 0;
    for (int64_t i = 0; i < count && i < CONFIGS && runs < RUNS; i++) {
        int64_t index = engine_of(configs[i]);
        if (index < 0) {
            continue;
        }
        Descriptor plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
            std::vector<cudnnHandle_t>{handle});
        set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::vector<Descriptor>{configs[i]});
        cudnnStatus_t status = cudnnBackendFinalize(plan);
        if (status != CUDNN_STATUS_SUCCESS) { // natively, some engines refuse as well
            char why[256] = "";
            cudnnGetLastErrorString(why, sizeof(why));
            printf("engine %lld: status %d\n", (long long)index, int(status));
            fprintf(stderr, "engine %lld: %s\n", (long long)index, why);
            continue;
        }
        int64_t size = 0, got_count = 0;
        CHECK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &got_count, &size));
        void *work;
        CHECK(cudaMalloc(&work, size_t(size) + 1));
        CHECK(cudaMemset(dy, 0xff, y.size() * sizeof(y[0])));
        Descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
            std::vector<int64_t>{'x', 'w', 'y'});
        set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
            std::vector<void *>{dx, dw, dy});
        set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
            std::vector<void *>{work});
        CHECK(cudnnBackendFinalize(pack));
        CHECK(cudnnBackendExecute(handle, plan, pack));
        CHECK(cudaDeviceSynchronize());
        char what[64];
        snprintf(what, sizeof(what), "engine %lld with %lld bytes", (long long)index,
                 (long long)size);
        std::vector<__half> got = print_bits(what, dy, y.size());
        EXPECT(fabs(__half2float(got[(W + 1) * K]) - want) < 0.02 + 0.01 * fabs(want));
        CHECK(cudaFree(work));
        CHECK(cudnnBackendDestroyDescriptor(pack));
        CHECK(cudnnBackendDestroyDescriptor(plan));
        runs++;
    }
    EXPECT(runs > 0);
    CHECK(cudnnDestroy(handle));
    puts("OK");
    return 0;
}
