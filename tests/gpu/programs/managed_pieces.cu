/* SPDX-License-Identifier: Apache-2.0 */
// Many small pieces of managed memory: 500 of up to 1 MiB, each written by the host, changed by a
// kernel, read by the host and freed; a few of them used while the others lie; and what a free
// costs among 20 and among 300 pieces of 256 KiB.
#include "managed.h"

enum { PIECES = 500 };

static int *pieces[PIECES];

static size_t words_of(int i)
{
    return (size_t(i) * 2654435761u % (quick ? 4 : 256) + 1) * 1024; // 4 KiB to 1 MiB
}

static void host_and_kernel()
{
    double start = now_ms();
    for (int i = 0; i < PIECES; i++) {
        CHECK(cudaMallocManaged(&pieces[i], words_of(i) * 4));
    }
    took("managed_pieces_alloc_ms", now_ms() - start);
    start = now_ms();
    for (int i = 0; i < PIECES; i++) {
        for (size_t n = 0; n < words_of(i); n++) {
            pieces[i][n] = int(n) * i;
        }
    }
    for (int i = 0; i < PIECES; i++) {
        launch_add(pieces[i], words_of(i), i);
    }
    CHECK(cudaDeviceSynchronize());
    unsigned long long sum = 0;
    for (int i = 0; i < PIECES; i++) {
        for (size_t n = 0; n < words_of(i); n++) {
            sum += unsigned(pieces[i][n]);
        }
    }
    took("managed_pieces_all_ms", now_ms() - start);
    computed("all pieces", sum);
}

static void some_among_many()
{
    double start = now_ms();
    unsigned long long sum = 0;
    for (int round = 0; round < 100; round++) {
        int *piece = pieces[round * 7 % PIECES];
        piece[round] += 1;
        launch_add(piece, 1024, 3);
        CHECK(cudaDeviceSynchronize());
        sum += unsigned(piece[round]);
    }
    took("managed_pieces_some_ms", now_ms() - start);
    computed("some pieces", sum);
    start = now_ms();
    for (int round = 0; round < 1000; round++) {
        launch_add(pieces[7], 1024, 1);
    }
    CHECK(cudaDeviceSynchronize());
    took("managed_pieces_launches_ms", now_ms() - start);
    computed("launched", unsigned(pieces[7][5]));
}

static void free_all()
{
    double start = now_ms();
    for (int i = 0; i < PIECES; i++) {
        CHECK(cudaFree(pieces[i * 13 % PIECES]));
    }
    took("managed_pieces_free_ms", now_ms() - start);
}

// Allocates and frees one more among so many.
static void free_among(int count, const char *name)
{
    int *more;
    for (int i = 0; i < count; i++) {
        CHECK(cudaMallocManaged(&pieces[i], 256 << 10));
        memset(pieces[i], i, 256 << 10);
        launch_add(pieces[i], 64, 1);
    }
    CHECK(cudaDeviceSynchronize());
    double freeing = 0;
    for (int round = 0; round < 20; round++) {
        CHECK(cudaMallocManaged(&more, 256 << 10));
        more[round] = round;
        launch_add(more, 64, 1);
        double start = now_ms();
        CHECK(cudaFree(more));
        freeing += now_ms() - start;
    }
    took(name, freeing / 20 * 1e3);
    unsigned long long sum = 0;
    for (int i = 0; i < count; i++) {
        sum += unsigned(pieces[i][63]);
        CHECK(cudaFree(pieces[i]));
    }
    computed("kept", sum);
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    host_and_kernel();
    some_among_many();
    free_all();
    free_among(20, "managed_free_among_20_us");
    free_among(300, "managed_free_among_300_us");
    puts("OK");
    return 0;
}
