/* SPDX-License-Identifier: Apache-2.0 */
// Gravity between all pairs of bodies. A block reads the others in tiles through shared memory; a
// tile serves all its threads.
#include "../common/check.h"

const int TILE = 128;
const float SOFTENING = 0.01f, STEP = 0.01f;

__global__ void integrate(float4 *next, const float4 *bodies, float4 *velocity, int n)
{
    __shared__ float4 tile[TILE];
    int i = blockIdx.x * TILE + threadIdx.x;
    float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float ax = 0, ay = 0, az = 0;
    for (int start = 0; start < n; start += TILE) {
        int j = start + threadIdx.x;
        tile[threadIdx.x] = j < n ? bodies[j] : make_float4(0, 0, 0, 0); // no mass: no force
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < TILE; k++) {
            float4 other = tile[k];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
            float pull = other.w * inverse * inverse * inverse;
            ax += dx * pull;
            ay += dy * pull;
            az += dz * pull;
        }
        __syncthreads();
    }
    if (i < n) {
        float4 v = velocity[i];
        v.x += ax * STEP, v.y += ay * STEP, v.z += az * STEP;
        velocity[i] = v;
        next[i] = {me.x + v.x * STEP, me.y + v.y * STEP, me.z + v.z * STEP, me.w};
    }
}

static void reference(std::vector<double> &p, std::vector<double> &v, int n)
{
    std::vector<double> a(3 * n, 0.0);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            double d[3], square = SOFTENING;
            for (int c = 0; c < 3; c++) {
                d[c] = p[4 * j + c] - p[4 * i + c];
                square += d[c] * d[c];
            }
            double pull = p[4 * j + 3] / (square * sqrt(square));
            for (int c = 0; c < 3; c++) {
                a[3 * i + c] += d[c] * pull;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < 3; c++) {
            v[3 * i + c] += a[3 * i + c] * STEP;
            p[4 * i + c] += v[3 * i + c] * STEP;
        }
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 500, 2, 1 << 18);
    int steps = options.number("--steps", 2, 1, 10000);
    bool time = options.time();
    options.done();
    printf("nbody: %d bodies, %d steps\n", n, steps);

    Random random(18);
    std::vector<float4> bodies(n), still(n, make_float4(0, 0, 0, 0));
    std::vector<double> p(4 * n), v(3 * n, 0.0);
    for (int i = 0; i < n; i++) {
        bodies[i] = {random.uniform(-1, 1), random.uniform(-1, 1), random.uniform(-1, 1),
                     random.uniform(0.5f, 1.5f) / n};
        p[4 * i] = bodies[i].x, p[4 * i + 1] = bodies[i].y;
        p[4 * i + 2] = bodies[i].z, p[4 * i + 3] = bodies[i].w;
    }
    float4 *current = to_device(bodies), *next = device_alloc<float4>(n), *dv = to_device(still);
    Timer timer;
    timer.start();
    for (int step = 0; step < steps; step++) {
        integrate<<<(n + TILE - 1) / TILE, TILE>>>(next, current, dv, n);
        CHECK(cudaGetLastError());
        std::swap(current, next);
    }
    float ms = timer.stop();

    // The double-precision reference costs n * n; for big runs look at a few steps' worth only.
    if (double(n) * n * steps <= 4e9) {
        for (int step = 0; step < steps; step++) {
            reference(p, v, n);
        }
        std::vector<float4> got = from_device(current, n);
        for (int i = 0; i < n; i++) {
            double dx = got[i].x - p[4 * i], dy = got[i].y - p[4 * i + 1];
            double dz = got[i].z - p[4 * i + 2];
            if (!(sqrt(dx * dx + dy * dy + dz * dz) < 1e-4 * steps)) {
                fail("body %d is at (%g, %g, %g), the CPU says (%g, %g, %g)", i, got[i].x, got[i].y,
                     got[i].z, p[4 * i], p[4 * i + 1], p[4 * i + 2]);
            }
        }
    }
    if (time) {
        printf("time: %.3f ms, %.3f million interactions/s\n", ms,
               double(n) * n * steps / ms / 1e3);
    }
    CHECK(cudaFree(current));
    CHECK(cudaFree(next));
    CHECK(cudaFree(dv));
    return finish();
}
