/* SPDX-License-Identifier: Apache-2.0 */
// Local alignment of DNA sequences with affine gaps: the cells of an anti-diagonal do not depend on
// each other, so a block walks its table diagonal by diagonal, one thread per row.
#include "../common/check.h"

const int MATCH = 5, MISMATCH = -3, OPEN = 8, EXTEND = 2; // gap of length k costs OPEN + k * EXTEND
const int MAX_LENGTH = 1024;
const int NEVER = -1000000;

__global__ void align(int *scores, const char *queries, const char *targets, int length)
{
    // For each row, the cells of the last two diagonals that its neighbour needs.
    __shared__ int best[2][MAX_LENGTH + 1], gap[2][MAX_LENGTH + 1], maximum;
    int row = threadIdx.x;
    const char *target = targets + size_t(blockIdx.x) * length;
    char mine = queries[size_t(blockIdx.x) * length + row];
    best[0][row + 1] = best[1][row + 1] = 0;
    gap[0][row + 1] = gap[1][row + 1] = NEVER;
    if (row == 0) {
        best[0][0] = best[1][0] = maximum = 0;
        gap[0][0] = gap[1][0] = NEVER;
    }
    __syncthreads();
    int left = 0, left_gap = NEVER, corner = 0, top_score = 0;
    for (int diagonal = 0; diagonal < 2 * length - 1; diagonal++) {
        int column = diagonal - row, now = diagonal & 1;
        // Row r-1 finished this column on the diagonal before.
        int up = best[now ^ 1][row], up_gap = gap[now ^ 1][row];
        if (column >= 0 && column < length) {
            left_gap = max(left - OPEN, left_gap) - EXTEND;
            up_gap = max(up - OPEN, up_gap) - EXTEND;
            int score = corner + (mine == target[column] ? MATCH : MISMATCH);
            score = max(max(score, 0), max(left_gap, up_gap));
            corner = up;
            left = score;
            top_score = max(top_score, score);
            best[now][row + 1] = score;
            gap[now][row + 1] = up_gap;
        }
        __syncthreads();
    }
    atomicMax(&maximum, top_score);
    __syncthreads();
    if (row == 0) {
        scores[blockIdx.x] = maximum;
    }
}

static int reference(const char *query, const char *target, int length)
{
    std::vector<int> best(length + 1, 0), down(length + 1, NEVER);
    int maximum = 0;
    for (int i = 0; i < length; i++) {
        int corner = 0, right = NEVER;
        for (int j = 1; j <= length; j++) {
            right = std::max(best[j - 1] - OPEN, right) - EXTEND;
            down[j] = std::max(best[j] - OPEN, down[j]) - EXTEND;
            int score = corner + (query[i] == target[j - 1] ? MATCH : MISMATCH);
            score = std::max(std::max(score, 0), std::max(right, down[j]));
            corner = best[j];
            best[j] = score;
            maximum = std::max(maximum, score);
        }
    }
    return maximum;
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int length = options.number("-n", 128, 1, MAX_LENGTH);
    int pairs = options.number("--pairs", 12, 1, 1 << 20);
    bool time = options.time();
    options.done();
    printf("smithWaterman: %d pairs of length %d\n", pairs, length);

    Random random(20);
    std::vector<char> queries(size_t(pairs) * length), targets(queries.size());
    for (size_t i = 0; i < queries.size(); i++) {
        queries[i] = "ACGT"[random.below(4)];
    }
    for (int pair = 0; pair < pairs; pair++) { // a target is its query with changes, shifted
        for (int i = 0, from = int(random.below(8)); i < length; i++, from++) {
            if (random.below(20) == 0) {
                from += int(random.below(6)) - 2;
            }
            from = std::max(from, 0);
            bool keep = from < length && random.below(6) != 0;
            targets[size_t(pair) * length + i] =
                keep ? queries[size_t(pair) * length + from] : "ACGT"[random.below(4)];
        }
    }
    std::vector<int> want(pairs);
    for (int pair = 0; pair < pairs; pair++) {
        want[pair] =
            reference(&queries[size_t(pair) * length], &targets[size_t(pair) * length], length);
    }
    char *dqueries = to_device(queries), *dtargets = to_device(targets);
    int *dscores = device_alloc<int>(pairs);
    Timer timer;
    timer.start();
    align<<<pairs, length>>>(dscores, dqueries, dtargets, length);
    CHECK(cudaGetLastError());
    float ms = timer.stop();
    expect_equal("scores", from_device(dscores, pairs), want);
    printf("best score of the first pair: %d\n", want[0]);
    if (time) {
        printf("time: %.3f ms, %.3f million cells/s\n", ms,
               double(pairs) * length * length / ms / 1e3);
    }
    CHECK(cudaFree(dqueries));
    CHECK(cudaFree(dtargets));
    CHECK(cudaFree(dscores));
    return finish();
}
