/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of bench/ptx_speed.cu in C, to compare the PTX machine's speed with. */
#ifndef BENCH_PTX_SPEED_H
#define BENCH_PTX_SPEED_H

void c_black_scholes(float *call, float *put, const float *price, const float *strike,
                     const float *years, float riskfree, float volatility, int n);
void c_matrix_mul(float *c, const float *a, const float *b, int n);
void c_nbody(float *force, const float *body, int n);

#endif
