/* SPDX-License-Identifier: Apache-2.0 */
// Device printf and assert. Both are looked at by catching this program's own stdout and stderr.
// What was caught of them goes to stdout in the end, for those who compare the outputs of two
// drivers.
#include "check.h"

#include <cassert>
#include <string>
#include <unistd.h>

__global__ void speak()
{
    if (threadIdx.x == 0) {
        printf("plain\n");
        printf("%d %i %u %x %X %o %c %%\n", -5, 6, 7u, 255, 255, 8, 'q');
        printf("%lld %llu %5d|%-5d|%05d\n", -1234567890123ll, 12345678901234567890ull, 42, 42, 42);
        printf("%f %.3f %8.2e %g %s\n", 1.5, 3.14159, 12345.678, 0.0001, "string");
        printf("%s %s\n", "two", "strings");
    }
    __syncthreads();
    if (threadIdx.x < 3) { // the threads' order is not promised, their lines are whole
        printf("thread %d of %d\n", threadIdx.x, blockDim.x);
    }
}

__global__ void returned(int *result)
{
    result[0] = printf("none\n");
    result[1] = printf("%d %d\n", 1, 2);
}

__global__ void number(int n)
{
    printf("kernel %d\n", n);
}

__global__ void insist(int limit)
{
    assert(int(threadIdx.x) < limit);
}

// Sends a descriptor into a temporary file until the object ends; text() is what arrived.
class Capture
{
  public:
    explicit Capture(int fd) : target(fd), saved(dup(fd)), file(tmpfile())
    {
        fflush(nullptr);
        dup2(fileno(file), target);
    }
    std::string text()
    {
        fflush(nullptr);
        dup2(saved, target);
        std::string all;
        rewind(file);
        for (int c; (c = fgetc(file)) != EOF;) {
            all += char(c);
        }
        return all;
    }

  private:
    int target, saved;
    FILE *file;
};

static int occurrences(const std::string &text, const std::string &what)
{
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
        count++;
    }
    return count;
}

// The host's lines and the kernels' are written in turns: what a kernel prints comes out in the
// synchronisation that waits for it at the latest. (NVIDIA's driver has been seen to print it in
// the launch.)
static std::string in_turns()
{
    Capture out(1);
    puts("host 0");
    number<<<1, 1>>>(0);
    cudaError_t error = cudaGetLastError();
    usleep(50000); // it has ended now
    puts("host 1");
    cudaError_t first = cudaDeviceSynchronize();
    puts("host 2");
    number<<<1, 1>>>(1);
    cudaError_t second = cudaStreamSynchronize(0);
    puts("host 3");
    std::string text = out.text();
    CHECK(error);
    CHECK(first);
    CHECK(second);
    return text;
}

int main()
{
    setvbuf(stdout, nullptr, _IONBF, 0); // each line is written at once
    std::string turns = in_turns();
    const std::string expected = "host 0\nhost 1\nkernel 0\nhost 2\nkernel 1\nhost 3\n";
    if (turns == "host 0\nkernel 0\nhost 1\nhost 2\nkernel 1\nhost 3\n") {
        turns = expected;
    }
    if (turns != expected) {
        fprintf(stderr, "FAILED: the order is:\n%s", turns.c_str());
        return 1;
    }
    Capture out(1);
    speak<<<1, 64>>>();
    cudaError_t launch = cudaGetLastError(), sync = cudaDeviceSynchronize();
    std::string text = out.text();
    CHECK(launch);
    CHECK(sync);
    const char *start = "plain\n"
                        "-5 6 7 ff FF 10 q %\n"
                        "-1234567890123 12345678901234567890    42|42   |00042\n"
                        "1.500000 3.142 1.23e+04 0.0001 string\n"
                        "two strings\n";
    if (text.compare(0, strlen(start), start) != 0) {
        fprintf(stderr, "FAILED: the device printed:\n%s", text.c_str());
        return 1;
    }
    EXPECT(occurrences(text, "thread 0 of 64\n") == 1);
    EXPECT(occurrences(text, "thread 1 of 64\n") == 1);
    EXPECT(occurrences(text, "thread 2 of 64\n") == 1);
    EXPECT(occurrences(text, "\n") == 8);

    int *device, result[2];
    CHECK(cudaMalloc(&device, sizeof(result)));
    Capture more(1);
    returned<<<1, 1>>>(device);
    launch = cudaGetLastError();
    sync = cudaMemcpy(result, device, sizeof(result), cudaMemcpyDeviceToHost);
    cudaError_t end = cudaDeviceSynchronize();
    text = more.text();
    CHECK(launch);
    CHECK(sync);
    CHECK(end);
    EXPECT(text == "none\n1 2\n");
    EXPECT(result[0] == 0 && result[1] == 2); // the number of arguments

    size_t fifo = 0;
    CHECK(cudaDeviceGetLimit(&fifo, cudaLimitPrintfFifoSize));
    EXPECT(fifo >= 1 << 20);

    insist<<<1, 8>>>(8); // holds
    CHECK(cudaDeviceSynchronize());
    Capture errors(2);
    insist<<<1, 8>>>(7); // thread 7 fails
    launch = cudaGetLastError();
    sync = cudaDeviceSynchronize();
    std::string failure = errors.text();
    CHECK(launch);
    EXPECT(sync == cudaErrorAssert);
    EXPECT(occurrences(failure, "Assertion `int(threadIdx.x) < limit` failed") == 1);
    EXPECT(occurrences(failure, "block: [0,0,0], thread: [7,0,0]") == 1);
    EXPECT(occurrences(failure, "insist") == 1 && occurrences(failure, "\n") == 1);
    // The context is lost from now on.
    EXPECT_ERROR(cudaDeviceSynchronize(), cudaErrorAssert);
    EXPECT_ERROR(cudaMalloc(&device, 4), cudaErrorAssert);
    printf("%s%s", turns.c_str(), failure.c_str());
    puts("OK");
    return 0;
}
