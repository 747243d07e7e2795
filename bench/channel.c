/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine's own channels do between two processes: the floor of every transport.
 *
 *     channel [SOCKETS]     64-byte round trips (unix, tcp, a shared word), one-way streams over 1
 * and SOCKETS sockets (default 4), memcpy by 1 and 4 threads, the cipher of tls:// by one thread
 * (where OpenSSL 3 is installed); JSON lines.
 *
 * Streams once from and to small buffers, which stay in the caches, and once ("memory") from and to
 * as much memory as they carry, as a copy does. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5000, MESSAGE = 64, PIECE = 256 << 10, SOCKETS_MAX = 16 };
#define STREAM_BYTES (512u << 20)

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tcp_pair(int pair[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
        fail("tcp");
    }
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (pair[0] < 0 || connect(pair[0], (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect");
    }
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
    setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void make_pair(bool tcp, int pair[2])
{
    if (tcp) {
        tcp_pair(pair);
    } else if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        fail("socketpair");
    }
}

/* False at the end of the stream. */
static bool read_all(int fd, uint8_t *into, size_t size)
{
    while (size > 0) {
        ssize_t n = read(fd, into, size);
        if (n <= 0) {
            return false;
        }
        into += n;
        size -= (size_t)n;
    }
    return true;
}

static void round_trips(bool tcp)
{
    static double us[ROUNDS];
    uint8_t message[MESSAGE] = {0};
    int pair[2];
    make_pair(tcp, pair);
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        while (read_all(pair[1], message, sizeof message)) {
            if (write(pair[1], message, sizeof message) < 0) {
                break;
            }
        }
        _exit(0);
    }
    close(pair[1]);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begin = now_ns();
        if (write(pair[0], message, sizeof message) < 0 ||
            !read_all(pair[0], message, sizeof message)) {
            fail("round trip");
        }
        us[i] = (double)(now_ns() - begin) / 1e3;
    }
    close(pair[0]);
    waitpid(child, NULL, 0);
    qsort(us, ROUNDS, sizeof *us, compare);
    printf("{\"channel\":\"%s\",\"round_trip_us\":%.4g,\"p99_us\":%.4g}\n", tcp ? "tcp" : "unix",
           us[ROUNDS / 2], us[ROUNDS * 99 / 100]);
}

struct task {
    int fd;
    size_t size, space; /* bytes to carry; of the buffer that they lie in, again and again */
    uint8_t *buffer;
};

static void *read_stream(void *arg)
{
    struct task *task = arg;
    ssize_t n;
    size_t at = 0;
    while ((n = read(task->fd, task->buffer + at, PIECE)) > 0) {
        at += (size_t)n;
        at = at + PIECE > task->space ? 0 : at;
    }
    return NULL;
}

static void *write_stream(void *arg)
{
    struct task *task = arg;
    for (size_t left = task->size, at = 0; left > 0;) {
        ssize_t n = write(task->fd, task->buffer + at, left < PIECE ? left : PIECE);
        if (n <= 0) {
            fail("stream");
        }
        left -= (size_t)n;
        at += (size_t)n;
        at = at + PIECE > task->space ? 0 : at;
    }
    return NULL;
}

static struct task make_task(int fd, int sockets, bool memory)
{
    size_t size = STREAM_BYTES / (unsigned)sockets;
    struct task task = {fd, size, memory ? size / 2 : PIECE, NULL};
    task.buffer = malloc(task.space);
    if (task.buffer == NULL) {
        fail("malloc");
    }
    memset(task.buffer, 1, task.space); /* faults are no part of the rate */
    return task;
}

static void stream(bool tcp, int sockets, bool memory)
{
    int pairs[SOCKETS_MAX][2], done[2];
    if (pipe(done) != 0) {
        fail("pipe");
    }
    for (int i = 0; i < sockets; i++) {
        make_pair(tcp, pairs[i]);
    }
    fflush(stdout);
    pid_t child = fork();
    pthread_t threads[SOCKETS_MAX];
    struct task tasks[SOCKETS_MAX];
    if (child == 0) {
        for (int i = 0; i < sockets; i++) {
            close(pairs[i][0]);
            tasks[i] = make_task(pairs[i][1], sockets, memory);
            pthread_create(&threads[i], NULL, read_stream, &tasks[i]);
        }
        if (write(done[1], "", 1) != 1) {
            _exit(1);
        }
        for (int i = 0; i < sockets; i++) {
            pthread_join(threads[i], NULL);
        }
        _exit(write(done[1], "", 1) == 1 ? 0 : 1);
    }
    char byte;
    for (int i = 0; i < sockets; i++) {
        close(pairs[i][1]);
        tasks[i] = make_task(pairs[i][0], sockets, memory);
    }
    if (read(done[0], &byte, 1) != 1) {
        fail("stream");
    }
    int64_t begin = now_ns();
    for (int i = 0; i < sockets; i++) {
        pthread_create(&threads[i], NULL, write_stream, &tasks[i]);
    }
    for (int i = 0; i < sockets; i++) {
        pthread_join(threads[i], NULL);
        close(pairs[i][0]);
        free(tasks[i].buffer);
    }
    if (read(done[0], &byte, 1) != 1) {
        fail("stream");
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    close(done[0]);
    close(done[1]);
    waitpid(child, NULL, 0);
    printf("{\"channel\":\"%s\",\"sockets\":%d,\"memory\":%s,\"stream_gbps\":%.4g}\n",
           tcp ? "tcp" : "unix", sockets, memory ? "true" : "false", STREAM_BYTES / seconds / 1e9);
}

/* Both sides spin: only where there are processors for both. */
static void shared_word(void)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 3) {
        return;
    }
    _Atomic uint32_t *words =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) {
        fail("mmap");
    }
    const uint32_t rounds = 200000;
    pid_t child = fork();
    if (child == 0) {
        for (uint32_t i = 1; i <= rounds; i++) {
            while (atomic_load_explicit(&words[0], memory_order_acquire) != i) {
            }
            atomic_store_explicit(&words[64], i, memory_order_release);
        }
        _exit(0);
    }
    int64_t begin = now_ns();
    for (uint32_t i = 1; i <= rounds; i++) {
        atomic_store_explicit(&words[0], i, memory_order_release);
        while (atomic_load_explicit(&words[64], memory_order_acquire) != i) {
        }
    }
    printf("{\"channel\":\"shm\",\"round_trip_us\":%.4g}\n",
           (double)(now_ns() - begin) / 1e3 / rounds);
    waitpid(child, NULL, 0);
}

static uint8_t *copy_from, *copy_to;
static size_t copy_each;

static void *copy_part(void *arg)
{
    size_t part = *(int *)arg;
    memcpy(copy_to + part * copy_each, copy_from + part * copy_each, copy_each);
    return NULL;
}

static void copies(int count)
{
    size_t size = 256u << 20;
    copy_from = malloc(size);
    copy_to = malloc(size);
    if (copy_from == NULL || copy_to == NULL) {
        fail("malloc");
    }
    memset(copy_from, 1, size);
    memset(copy_to, 2, size);
    copy_each = size / (size_t)count;
    double best = 0;
    for (int round = 0; round < 3; round++) {
        pthread_t threads[SOCKETS_MAX];
        int numbers[SOCKETS_MAX];
        int64_t begin = now_ns();
        for (int i = 0; i < count; i++) {
            numbers[i] = i;
            pthread_create(&threads[i], NULL, copy_part, &numbers[i]);
        }
        for (int i = 0; i < count; i++) {
            pthread_join(threads[i], NULL);
        }
        double rate = (double)size / (double)(now_ns() - begin);
        best = rate > best ? rate : best;
    }
    printf("{\"channel\":\"memcpy\",\"threads\":%d,\"stream_gbps\":%.4g}\n", count, best);
    free(copy_from);
    free(copy_to);
}

/* AES-128-GCM in records of 16 KiB, as TLS seals them, out of as much memory as a copy has. */
static void cipher(void)
{
    enum { RECORD = 16 << 10, TAG = 16, GET_TAG = 0x10 };
    void *lib = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        return;
    }
    void *(*fetch)(void *, const char *, const char *) = dlsym(lib, "EVP_CIPHER_fetch");
    void *(*context_new)(void) = dlsym(lib, "EVP_CIPHER_CTX_new");
    int (*init)(void *, void *, void *, const uint8_t *, const uint8_t *, int) =
        dlsym(lib, "EVP_CipherInit_ex");
    int (*update)(void *, uint8_t *, int *, const uint8_t *, int) = dlsym(lib, "EVP_CipherUpdate");
    int (*final)(void *, uint8_t *, int *) = dlsym(lib, "EVP_CipherFinal_ex");
    int (*ctrl)(void *, int, int, void *) = dlsym(lib, "EVP_CIPHER_CTX_ctrl");
    static uint8_t to[RECORD], tag[TAG], key[16], iv[12];
    size_t size = 128u << 20;
    uint8_t *from = malloc(size);
    void *context = context_new();
    int n;
    if (from == NULL || context == NULL ||
        init(context, fetch(NULL, "AES-128-GCM", NULL), NULL, key, iv, 1) != 1) {
        fail("AES-128-GCM");
    }
    memset(from, 1, size);
    double best = 0;
    for (int round = 0; round < 3; round++) {
        int64_t begin = now_ns();
        for (size_t at = 0; at < size; at += RECORD) {
            iv[0]++;
            if (init(context, NULL, NULL, NULL, iv, 1) != 1 ||
                update(context, to, &n, from + at, RECORD) != 1 || final(context, to, &n) != 1 ||
                ctrl(context, GET_TAG, TAG, tag) != 1) {
                fail("AES-128-GCM");
            }
        }
        double rate = (double)size / (double)(now_ns() - begin);
        best = rate > best ? rate : best;
    }
    printf("{\"channel\":\"cipher\",\"stream_gbps\":%.4g}\n", best);
    free(from);
}

int main(int argc, char **argv)
{
    int sockets = argc > 1 ? atoi(argv[1]) : 4;
    if (sockets < 1 || sockets > SOCKETS_MAX) {
        fprintf(stderr, "channel: 1 to %d sockets\n", SOCKETS_MAX);
        return 2;
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int tcp = 0; tcp < 2; tcp++) {
        round_trips(tcp);
        for (int memory = 0; memory < 2; memory++) {
            stream(tcp, 1, memory);
            if (sockets > 1) {
                stream(tcp, sockets, memory);
            }
        }
    }
    shared_word();
    copies(1);
    copies(4);
    cipher();
    return 0;
}
