/* SPDX-License-Identifier: Apache-2.0 */
// Prices European calls by simulating many final stock prices: a counter-based random generator,
// the Box-Muller transform, and a sum over the block.
#include "../common/check.h"

const int THREADS = 128;
const float RATE = 0.06f, VOLATILITY = 0.10f;

struct Option {
    float price, strike, years;
};
struct Sums {
    float sum, squares;
};

// A counter-based generator: mixes the bits of (option, path), so that any path can be had at once.
__host__ __device__ inline uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

__host__ __device__ inline void normal_pair(uint32_t option, uint32_t pair, float *a, float *b)
{
    uint32_t x = mix(mix(option * 0x9e3779b9u + 1) ^ (2 * pair));
    uint32_t y = mix(x ^ mix(2 * pair + 1));
    float u = ((x >> 8) + 1) * (1.0f / 16777217.0f);
    float v = (y >> 8) * (1.0f / 16777216.0f);
    float radius = sqrtf(-2.0f * logf(u));
    *a = radius * cosf(6.2831853f * v);
    *b = radius * sinf(6.2831853f * v);
}

__host__ __device__ inline float payoff(const Option &option, float normal)
{
    float drift = (RATE - 0.5f * VOLATILITY * VOLATILITY) * option.years;
    float spread = VOLATILITY * sqrtf(option.years);
    return fmaxf(option.price * expf(drift + spread * normal) - option.strike, 0.0f);
}

__global__ void simulate(const Option *options, int paths, Sums *result)
{
    __shared__ Sums partial[THREADS];
    Option option = options[blockIdx.x];
    Sums mine = {0, 0};
    for (int pair = threadIdx.x; pair < paths / 2; pair += THREADS) {
        float a, b;
        normal_pair(blockIdx.x, pair, &a, &b);
        a = payoff(option, a);
        b = payoff(option, b);
        mine.sum += a + b;
        mine.squares += a * a + b * b;
    }
    partial[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            partial[threadIdx.x].sum += partial[threadIdx.x + half].sum;
            partial[threadIdx.x].squares += partial[threadIdx.x + half].squares;
        }
    }
    if (threadIdx.x == 0) {
        result[blockIdx.x] = partial[0];
    }
}

static double closed_form(const Option &o)
{
    double v = VOLATILITY, r = RATE, root = sqrt(o.years);
    double d1 = (log(o.price / o.strike) + (r + 0.5 * v * v) * o.years) / (v * root);
    double d2 = d1 - v * root;
    return o.price * 0.5 * erfc(-d1 * sqrt(0.5)) -
           o.strike * exp(-r * o.years) * 0.5 * erfc(-d2 * sqrt(0.5));
}

int main(int argc, char **argv)
{
    Options arguments(argc, argv);
    int paths = arguments.number("-n", 8192, 256, 1 << 26) & ~1;
    int count = arguments.number("--options", 8, 1, 65535);
    bool time = arguments.time();
    arguments.done();
    printf("MonteCarlo: %d options, %d paths each\n", count, paths);

    Random random(5);
    std::vector<Option> options(count);
    for (Option &o : options) {
        o = {random.uniform(20, 30), random.uniform(18, 32), random.uniform(0.5f, 5)};
    }
    Option *doptions = to_device(options);
    Sums *dresult = device_alloc<Sums>(count);
    Timer timer;
    timer.start();
    simulate<<<count, THREADS>>>(doptions, paths, dresult);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    std::vector<Sums> result = from_device(dresult, count);
    for (int i = 0; i < count; i++) {
        double sum = 0, squares = 0; // the same paths, added in double
        for (int pair = 0; pair < paths / 2; pair++) {
            float a, b;
            normal_pair(i, pair, &a, &b);
            a = payoff(options[i], a);
            b = payoff(options[i], b);
            sum += double(a) + b;
            squares += double(a) * a + double(b) * b;
        }
        if (!(fabs(result[i].sum - sum) <= 1e-4 * sum + 1e-2)) {
            fail("option %d: sum of payoffs %g, the CPU says %g", i, result[i].sum, sum);
        }
        if (!(fabs(result[i].squares - squares) <= 1e-3 * squares + 1e-2)) {
            fail("option %d: sum of squares %g, the CPU says %g", i, result[i].squares, squares);
        }
        double discount = exp(-RATE * options[i].years);
        double mean = sum / paths, deviation = sqrt(squares / paths - mean * mean);
        double error = fabs(mean * discount - closed_form(options[i]));
        if (!(error <= 5 * deviation / sqrt(paths) + 1e-3)) {
            fail("option %d: price %g is too far from the closed form's %g", i, mean * discount,
                 closed_form(options[i]));
        }
    }
    if (time) {
        printf("time: %.3f ms, %.3f million paths/s\n", ms, double(count) * paths / ms / 1e3);
    }
    CHECK(cudaFree(doptions));
    CHECK(cudaFree(dresult));
    return finish();
}
