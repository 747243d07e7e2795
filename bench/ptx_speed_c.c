/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of ptx_speed.cu as plain C, compiled with gcc -O2: what the interpreter is measured
 * against. */
#include <math.h>

#include "ptx_speed.h"

static float normal(float d)
{
    const float a1 = 0.31938153f, a2 = -0.356563782f, a3 = 1.781477937f, a4 = -1.821255978f,
                a5 = 1.330274429f, rsqrt2pi = 0.39894228040143267794f;
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float c = rsqrt2pi * expf(-0.5f * d * d) * (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));
    return d > 0 ? 1.0f - c : c;
}

void c_black_scholes(float *call, float *put, const float *price, const float *strike,
                     const float *years, float riskfree, float volatility, int n)
{
    for (int i = 0; i < n; i++) {
        float s = price[i], x = strike[i], t = years[i];
        float root = sqrtf(t);
        float d1 =
            (logf(s / x) + (riskfree + 0.5f * volatility * volatility) * t) / (volatility * root);
        float d2 = d1 - volatility * root;
        float n1 = normal(d1), n2 = normal(d2), e = expf(-riskfree * t);
        call[i] = s * n1 - x * e * n2;
        put[i] = x * e * (1.0f - n2) - s * (1.0f - n1);
    }
}

void c_matrix_mul(float *c, const float *a, const float *b, int n)
{
    for (int row = 0; row < n; row++) {
        for (int col = 0; col < n; col++) {
            float sum = 0;
            for (int k = 0; k < n; k++) {
                sum += a[row * n + k] * b[k * n + col];
            }
            c[row * n + col] = sum;
        }
    }
}

void c_nbody(float *force, const float *body, int n)
{
    for (int i = 0; i < n; i++) {
        float fx = 0, fy = 0, fz = 0;
        for (int j = 0; j < n; j++) {
            float dx = body[4 * j] - body[4 * i], dy = body[4 * j + 1] - body[4 * i + 1],
                  dz = body[4 * j + 2] - body[4 * i + 2];
            float d2 = dx * dx + dy * dy + dz * dz + 1e-4f;
            float inv = 1.0f / sqrtf(d2), s = body[4 * j + 3] * inv * inv * inv;
            fx += dx * s;
            fy += dy * s;
            fz += dz * s;
        }
        force[4 * i] = fx;
        force[4 * i + 1] = fy;
        force[4 * i + 2] = fz;
        force[4 * i + 3] = 0;
    }
}
