/* SPDX-License-Identifier: Apache-2.0 */
// Prices European calls on a binomial tree. One block per option walks back from the leaves; the
// tree's current level lives in shared memory.
#include "../common/check.h"

const int STEPS = 255; // one thread per node of the last level

struct Option {
    float price, strike, years;
};
struct Tree {
    float price, strike, step, up, down; // up and down: discounted probabilities
};

const float RATE = 0.06f, VOLATILITY = 0.10f;

__global__ void price(const Tree *trees, float *result)
{
    __shared__ float level[STEPS + 1];
    Tree tree = trees[blockIdx.x];
    int node = threadIdx.x;

    float leaf = tree.price * expf(tree.step * float(2 * node - STEPS)) - tree.strike;
    level[node] = fmaxf(leaf, 0.0f);
    __syncthreads();
    for (int width = STEPS; width > 0; width--) {
        float value = 0;
        if (node < width) {
            value = tree.up * level[node + 1] + tree.down * level[node];
        }
        __syncthreads();
        if (node < width) {
            level[node] = value;
        }
        __syncthreads();
    }
    if (node == 0) {
        result[blockIdx.x] = level[0];
    }
}

static Tree grow(const Option &option)
{
    double dt = option.years / STEPS;
    double step = VOLATILITY * sqrt(dt);
    double discount = exp(-RATE * dt);
    double rise = (exp(RATE * dt) - exp(-step)) / (exp(step) - exp(-step));
    return {option.price, option.strike, float(step), float(rise * discount),
            float((1 - rise) * discount)};
}

static float reference(const Option &option)
{
    double dt = option.years / double(STEPS), step = VOLATILITY * sqrt(dt);
    double discount = exp(-RATE * dt);
    double rise = (exp(RATE * dt) - exp(-step)) / (exp(step) - exp(-step));
    std::vector<double> level(STEPS + 1);
    for (int i = 0; i <= STEPS; i++) {
        level[i] = fmax(option.price * exp(step * (2 * i - STEPS)) - option.strike, 0.0);
    }
    for (int width = STEPS; width > 0; width--) {
        for (int i = 0; i < width; i++) {
            level[i] = discount * (rise * level[i + 1] + (1 - rise) * level[i]);
        }
    }
    return float(level[0]);
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 16, 1, 1 << 20);
    bool time = options.time();
    options.done();
    printf("binomialOptions: %d options, %d steps\n", n, STEPS);

    Random random(3);
    std::vector<Tree> trees(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; i++) {
        Option option = {random.uniform(5, 30), random.uniform(1, 100), random.uniform(0.25f, 10)};
        trees[i] = grow(option);
        want[i] = reference(option);
    }
    Tree *dtrees = to_device(trees);
    float *dresult = device_alloc<float>(n);
    Timer timer;
    timer.start();
    price<<<n, STEPS + 1>>>(dtrees, dresult);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    // 255 roundings in single precision of prices up to 30.
    expect_near("price", from_device(dresult, n), want, 5e-3f);
    if (time) {
        printf("time: %.3f ms, %.0f options/s\n", ms, n / ms * 1e3);
    }
    CHECK(cudaFree(dtrees));
    CHECK(cudaFree(dresult));
    return finish();
}
