/* SPDX-License-Identifier: Apache-2.0 */
// Prices European options with the Black-Scholes formula: much arithmetic, little memory.
#include "../common/check.h"

const float RATE = 0.02f, VOLATILITY = 0.30f;

// Cumulative normal distribution by a polynomial (Abramowitz and Stegun 26.2.17), error
// below 7.5e-8.
__device__ float normal_cdf(float d)
{
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float poly = 1.330274429f;
    poly = poly * k - 1.821255978f;
    poly = poly * k + 1.781477937f;
    poly = poly * k - 0.356563782f;
    poly = poly * k + 0.319381530f;
    float tail = 0.398942280f * __expf(-0.5f * d * d) * poly * k;
    return d > 0 ? 1.0f - tail : tail;
}

__global__ void black_scholes(const float *price, const float *strike, const float *years,
                              float *call, float *put, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    float s = price[i], x = strike[i], t = years[i];
    float root = sqrtf(t);
    float d1 = (__logf(s / x) + (RATE + 0.5f * VOLATILITY * VOLATILITY) * t) / (VOLATILITY * root);
    float d2 = d1 - VOLATILITY * root;
    float n1 = normal_cdf(d1), n2 = normal_cdf(d2);
    float present = x * __expf(-RATE * t);
    call[i] = s * n1 - present * n2;
    put[i] = present * (1.0f - n2) - s * (1.0f - n1);
}

static double reference_cdf(double d)
{
    return 0.5 * erfc(-d * sqrt(0.5));
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 100000, 1, 1 << 27);
    bool time = options.time();
    options.done();
    printf("BlackScholes: %d options\n", n);

    Random random(4);
    std::vector<float> price(n), strike(n), years(n), call(n), put(n);
    for (int i = 0; i < n; i++) {
        double s = price[i] = random.uniform(5, 30);
        double x = strike[i] = random.uniform(1, 100);
        double t = years[i] = random.uniform(0.25f, 10);
        double v = VOLATILITY, r = RATE;
        double d1 = (log(s / x) + (r + 0.5 * v * v) * t) / (v * sqrt(t)), d2 = d1 - v * sqrt(t);
        double present = x * exp(-r * t);
        call[i] = float(s * reference_cdf(d1) - present * reference_cdf(d2));
        put[i] = float(present * reference_cdf(-d2) - s * reference_cdf(-d1));
    }
    float *dprice = to_device(price), *dstrike = to_device(strike), *dyears = to_device(years);
    float *dcall = device_alloc<float>(n), *dput = device_alloc<float>(n);

    Timer timer;
    timer.start();
    black_scholes<<<(n + 127) / 128, 128>>>(dprice, dstrike, dyears, dcall, dput, n);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    expect_near("call", from_device(dcall, n), call, 1e-3f);
    expect_near("put", from_device(dput, n), put, 1e-3f);
    if (time) {
        printf("time: %.3f ms, %.3f million options/s\n", ms, n / ms / 1e3);
    }
    for (float *p : {dprice, dstrike, dyears, dcall, dput}) {
        CHECK(cudaFree(p));
    }
    return finish();
}
