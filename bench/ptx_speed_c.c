/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of ptx_speed.cu as plain C: what the interpreter is measured against. Compiled twice,
 * with the level of optimisation in FORM. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_speed.h"

#define NAME_OF(name, form) speed_##name##_##form
#define NAME(name, form) NAME_OF(name, form)
#define C(name) void NAME(name, FORM)(struct speed_data * data)

C(vector_add)
{
    const float *a = data->in[0], *b = data->in[1];
    float *c = data->want;
    for (int i = 0; i < data->n; i++) {
        c[i] = a[i] + b[i];
    }
}

C(saxpy)
{
    const float *x = data->in[0];
    float *y = data->want;
    for (int i = 0; i < data->n; i++) {
        y[i] = 1.5f * x[i] + y[i];
    }
}

C(reduce)
{
    const double *in = data->in[0];
    double sum = 0;
    for (int i = 0; i < data->n; i++) {
        sum += in[i];
    }
    *(double *)data->want = sum;
}

C(scan)
{
    const unsigned *in = data->in[0];
    unsigned *out = data->want, sum = 0;
    for (int i = 0; i < data->n; i++) {
        sum += in[i];
        out[i] = sum;
    }
}

#define MATRIX_MUL(type, A)                                                                        \
    const A *a = data->in[0], *b = data->in[1];                                                    \
    type *c = data->want;                                                                          \
    int n = data->n;                                                                               \
    for (int row = 0; row < n; row++) {                                                            \
        for (int col = 0; col < n; col++) {                                                        \
            type sum = 0;                                                                          \
            for (int k = 0; k < n; k++) {                                                          \
                sum += a[row * n + k] * b[k * n + col];                                            \
            }                                                                                      \
            c[row * n + col] = sum;                                                                \
        }                                                                                          \
    }

C(matrix_mul){MATRIX_MUL(float, float)}

C(matrix_mul_double)
{
    MATRIX_MUL(double, double)
}

/* C has no half everywhere: the matrices are made float first, which costs least. */
static float *widened(const uint16_t *half, int count)
{
    float *wide = malloc((size_t)count * sizeof *wide);
    for (int i = 0; wide && i < count; i++) { /* normal numbers and zero, which is what there is */
        uint32_t h = half[i],
                 bits = (h & 0x7fff ? ((h & 0x7fff) << 13) + 0x38000000 : 0) | h >> 15 << 31;
        memcpy(&wide[i], &bits, 4);
    }
    return wide;
}

static void half_product(struct speed_data *data)
{
    struct speed_data wide = *data;
    wide.in[0] = widened(data->in[0], data->n * data->n);
    wide.in[1] = widened(data->in[1], data->n * data->n);
    if (wide.in[0] && wide.in[1]) {
        NAME(matrix_mul, FORM)(&wide);
    }
    free(wide.in[0]);
    free(wide.in[1]);
}

C(matrix_mul_half)
{
    half_product(data);
}

C(tensor)
{
    half_product(data);
}

C(nbody)
{
    const float *body = data->in[0];
    float *force = data->want;
    for (int i = 0; i < data->n; i++) {
        float fx = 0, fy = 0, fz = 0;
        for (int j = 0; j < data->n; j++) {
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

static float normal(float d)
{
    const float a1 = 0.31938153f, a2 = -0.356563782f, a3 = 1.781477937f, a4 = -1.821255978f,
                a5 = 1.330274429f, rsqrt2pi = 0.39894228040143267794f;
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float c = rsqrt2pi * expf(-0.5f * d * d) * (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));
    return d > 0 ? 1.0f - c : c;
}

C(black_scholes)
{
    const float *price = data->in[0], *strike = data->in[1], *years = data->in[2];
    float *call = data->want, *put = data->want2, riskfree = 0.02f, volatility = 0.3f;
    for (int i = 0; i < data->n; i++) {
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

C(mandelbrot)
{
    int *out = data->want;
    for (int y = 0; y < data->height; y++) {
        for (int x = 0; x < data->width; x++) {
            double cr = -2.0 + 3.0 / data->width * x, ci = -1.5 + 3.0 / data->height * y;
            double zr = 0, zi = 0;
            int i = 0;
            for (; i < data->n; i++) {
                double rr = zr * zr, ii = zi * zi;
                if (rr + ii > 4.0) {
                    break;
                }
                double ri = zr * zi;
                zr = rr - ii + cr;
                zi = ri + ri + ci;
            }
            out[y * data->width + x] = i;
        }
    }
}

C(histogram)
{
    const unsigned *in = data->in[0];
    unsigned *bins = data->want;
    memset(bins, 0, 256 * sizeof *bins);
    for (int i = 0; i < data->n; i++) {
        unsigned four = in[i];
        bins[four & 255]++;
        bins[four >> 8 & 255]++;
        bins[four >> 16 & 255]++;
        bins[four >> 24]++;
    }
}

C(stencil)
{
    const float *in = data->in[0];
    float *out = data->want;
    int width = data->width;
    for (int y = 1; y < data->height - 1; y++) {
        for (int x = 1; x < width - 1; x++) {
            int at = y * width + x;
            out[at] = 0.5f * in[at] +
                      0.125f * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
        }
    }
}

C(radix_sort)
{
    const unsigned *from = data->in[0];
    unsigned *to = data->spare, *other = data->want;
    for (int shift = 0; shift < 32; shift += 4) {
        unsigned first[16] = {0}, sum = 0;
        for (int i = 0; i < data->n; i++) {
            first[from[i] >> shift & 15]++;
        }
        for (int digit = 0; digit < 16; digit++) {
            unsigned count = first[digit];
            first[digit] = sum;
            sum += count;
        }
        for (int i = 0; i < data->n; i++) {
            to[first[from[i] >> shift & 15]++] = from[i];
        }
        from = to;
        unsigned *now = to;
        to = other;
        other = now;
    }
}

static const unsigned sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
C(sha256)
{
    const unsigned *in = data->in[0];
    unsigned *out = data->want;
    for (int i = 0; i < data->n; i++) {
        unsigned w[16];
        for (int k = 0; k < 16; k++) {
            w[k] = in[k * data->n + i];
        }
        unsigned a = 0x6a09e667, b = 0xbb67ae85, c = 0x3c6ef372, d = 0xa54ff53a, e = 0x510e527f,
                 f = 0x9b05688c, g = 0x1f83d9ab, h = 0x5be0cd19;
        for (int k = 0; k < 64; k++) {
            if (k >= 16) {
                unsigned x = w[(k + 1) % 16], y = w[(k + 14) % 16];
                w[k % 16] += (ROTATE(x, 7) ^ ROTATE(x, 18) ^ x >> 3) + w[(k + 9) % 16] +
                             (ROTATE(y, 17) ^ ROTATE(y, 19) ^ y >> 10);
            }
            unsigned one = h + (ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25)) +
                           ((e & f) ^ (~e & g)) + sha_k[k] + w[k % 16];
            unsigned two =
                (ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
        }
        unsigned hash[8] = {a, b, c, d, e, f, g, h};
        for (int k = 0; k < 8; k++) {
            out[k * data->n + i] = hash[k];
        }
    }
}

C(sparse)
{
    const int *rows = data->in[0], *columns = data->in[1];
    const float *values = data->in[2], *x = data->in[3];
    float *y = data->want;
    for (int row = 0; row < data->n; row++) {
        float sum = 0;
        for (int k = rows[row]; k < rows[row + 1]; k++) {
            sum += values[k] * x[columns[k]];
        }
        y[row] = sum;
    }
}

C(alignment)
{
    const unsigned char *query = data->in[0], *text = data->in[1];
    int *best = data->want;
    for (int pair = 0; pair < data->n; pair++) {
        int letters[16], row[16], most = 0;
        for (int j = 0; j < 16; j++) {
            letters[j] = query[j * data->n + pair];
            row[j] = 0;
        }
        for (int i = 0; i < 64; i++) {
            int letter = text[i * data->n + pair], left = 0, corner = 0;
            for (int j = 0; j < 16; j++) {
                int score = corner + (letters[j] == letter ? 5 : -3);
                int gap = (row[j] > left ? row[j] : left) - 4;
                score = score > 0 ? score : 0;
                score = score > gap ? score : gap;
                corner = row[j];
                row[j] = left = score;
                most = most > score ? most : score;
            }
        }
        best[pair] = most;
    }
}

static int clamped(int at, int size)
{
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

/* A bilinear read with weights of 8 bits, as textures have. */
C(texture)
{
    const float *in = data->in[0];
    float *out = data->want;
    int width = data->width, height = data->height;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            float u = 0.75f * (float)x + 0.25f * (float)y, v = 0.5f * (float)y;
            float left = floorf(u), top = floorf(v);
            float wx = rintf((u - left) * 256.0f) / 256.0f, wy = rintf((v - top) * 256.0f) / 256.0f;
            int x0 = clamped((int)left, width), x1 = clamped((int)left + 1, width);
            int y0 = clamped((int)top, height), y1 = clamped((int)top + 1, height);
            out[y * width + x] =
                (1 - wy) * ((1 - wx) * in[y0 * width + x0] + wx * in[y0 * width + x1]) +
                wy * ((1 - wx) * in[y1 * width + x0] + wx * in[y1 * width + x1]);
        }
    }
}
