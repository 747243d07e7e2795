/* SPDX-License-Identifier: Apache-2.0 */
// cuRAND: the host API's generators, uniform and normal; those named as arguments, or all.
#include "bits.h"

#include <curand.h>

int main(int argc, char **argv)
{
    const size_t n = 20000;
    struct {
        const char *name;
        curandRngType_t type;
    } generators[] = {{"XORWOW", CURAND_RNG_PSEUDO_XORWOW},
                      {"MRG32K3A", CURAND_RNG_PSEUDO_MRG32K3A},
                      {"PHILOX", CURAND_RNG_PSEUDO_PHILOX4_32_10},
                      {"MT19937", CURAND_RNG_PSEUDO_MT19937}};
    float *data;
    unsigned *bits;
    CHECK(cudaMalloc(&data, n * sizeof(float)));
    CHECK(cudaMalloc(&bits, n * sizeof(unsigned)));
    for (auto &g : generators) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++) {
            wanted = wanted || strcmp(argv[i], g.name) == 0;
        }
        if (!wanted) {
            continue;
        }
        curandGenerator_t generator;
        CHECK(curandCreateGenerator(&generator, g.type));
        CHECK(curandSetPseudoRandomGeneratorSeed(generator, 1234));
        char what[64];
        CHECK(curandGenerate(generator, bits, n));
        snprintf(what, sizeof(what), "%s bits", g.name);
        print_bits(what, bits, n);
        CHECK(curandGenerateUniform(generator, data, n));
        snprintf(what, sizeof(what), "%s uniform", g.name);
        std::vector<float> uniform = print_bits(what, data, n);
        CHECK(curandGenerateNormal(generator, data, n, 0.0f, 1.0f));
        snprintf(what, sizeof(what), "%s normal", g.name);
        std::vector<float> normal = print_bits(what, data, n);
        double mean = 0, variance = 0;
        for (size_t i = 0; i < n; i++) {
            mean += uniform[i] / n;
            variance += normal[i] * normal[i] / n;
        }
        EXPECT(fabs(mean - 0.5) < 0.02 && fabs(variance - 1) < 0.06);
        CHECK(curandDestroyGenerator(generator));
    }
    puts("OK");
    return 0;
}
