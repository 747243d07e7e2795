/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of two and three dimensions: every byte is in its row, and no other touched, when the
 * program may look; nobody waits for asynchronous ones into page-locked memory. */
#include "api.h"

#include <pthread.h>
#include <time.h>

enum { MIB = 1 << 20, ROOM = 40 * MIB };

static CUdeviceptr source;             /* ROOM bytes, and a few behind */
static unsigned char *pattern;         /* what is there */
static unsigned char *pinned, *wanted; /* ROOM bytes */
static CUstream stream;
static CUevent event;

/* Where a box lies in some memory. */
struct side {
    size_t pitch, height, x, y, z;
};

struct box {
    size_t width, rows, planes;
    struct side from, to;
};

static const struct box boxes[] = {
    /* Rows of a few bytes. */
    {3, 1000, 1, {64, 0, 1, 2, 0}, {7, 0, 2, 1, 0}},
    {1, 70000, 2, {3, 70001, 0, 1, 0}, {2, 70003, 1, 0, 1}},
    /* Several planes in one command. */
    {517, 30, 5, {1024, 33, 100, 2, 1}, {600, 31, 11, 1, 2}},
    /* As much as a command brings, and a byte more in each direction. */
    {4096, 1024, 1, {8192, 0, 0, 0, 0}, {8192, 0, 0, 0, 0}},
    {4097, 1024, 1, {8192, 0, 0, 0, 0}, {8200, 0, 0, 0, 0}},
    {4096, 1025, 1, {8192, 0, 0, 0, 0}, {8200, 0, 5, 0, 0}},
    {4096, 512, 3, {4096, 512, 0, 0, 0}, {4100, 513, 1, 1, 1}},
    /* Planes of more than that, rows as long as the line's buffer and longer. */
    {30000, 200, 3, {30100, 210, 10, 5, 0}, {30001, 201, 1, 0, 1}},
    {100000, 50, 3, {131072, 60, 7, 3, 1}, {100003, 51, 3, 1, 0}},
    /* Rows that are cut. */
    {5 * MIB + 3, 3, 2, {6 * MIB, 3, 9, 0, 0}, {5 * MIB + 11, 3, 5, 0, 0}},
    {9 * MIB - 1, 1, 3, {9 * MIB, 1, 0, 0, 0}, {10 * MIB, 1, 77, 0, 0}},
    /* Nothing between the rows. */
    {MIB, 21, 1, {MIB, 21, 0, 0, 0}, {MIB, 21, 0, 0, 0}},
    {1000, 6000, 2, {1024, 6001, 8, 1, 1}, {1000, 6000, 0, 0, 0}},
    /* Enough for several connections: of rows of a few bytes, and of many planes. */
    {3, 700000, 2, {5, 700003, 1, 2, 1}, {7, 700001, 2, 1, 1}},
    {100, 1100, 70, {128, 1101, 9, 1, 1}, {111, 1103, 5, 2, 1}},
    /* A byte more than a thread copies at a time. */
    {10923, 3, 1, {11000, 0, 3, 1, 0}, {10950, 0, 5, 2, 0}},
    {32769, 1, 1, {32800, 0, 3, 1, 0}, {32770, 0, 1, 2, 0}},
};
enum { BOXES = sizeof boxes / sizeof boxes[0] };

static size_t offset_of(const struct side *s, size_t rows, size_t y, size_t z)
{
    size_t height = s->height != 0 ? s->height : s->y + rows;
    return ((s->z + z) * height + s->y + y) * s->pitch + s->x;
}

static CUDA_MEMCPY3D down(const struct box *b, CUdeviceptr from, void *to)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = b->from.pitch,
                           .srcHeight = b->from.height,
                           .srcXInBytes = b->from.x,
                           .srcY = b->from.y,
                           .srcZ = b->from.z,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = to,
                           .dstPitch = b->to.pitch,
                           .dstHeight = b->to.height,
                           .dstXInBytes = b->to.x,
                           .dstY = b->to.y,
                           .dstZ = b->to.z,
                           .WidthInBytes = b->width,
                           .Height = b->rows,
                           .Depth = b->planes};
}

/* What a copy of the box from `source` + `shift` makes of `wanted`. */
static void expect(const struct box *b, size_t shift)
{
    for (size_t z = 0; z < b->planes; z++) {
        for (size_t y = 0; y < b->rows; y++) {
            memcpy(wanted + offset_of(&b->to, b->rows, y, z),
                   pattern + offset_of(&b->from, b->rows, y, z) + shift, b->width);
        }
    }
}

static void copy(const struct box *b, size_t shift, CUstream in)
{
    CUDA_MEMCPY3D p = down(b, source + shift, pinned);
    OK(cuMemcpy3DAsync(&p, in));
    expect(b, shift);
}

/* How far the copy of a box reaches, and a bit further: what is looked at. */
static size_t reach(const struct box *b, const struct side *s)
{
    size_t end = offset_of(s, b->rows, b->rows - 1, b->planes - 1) + b->width;
    return end + MIB < ROOM ? end + MIB : ROOM;
}

static size_t room; /* how much of `pinned` and `wanted` counts */

static void begin(size_t bytes)
{
    room = bytes;
    memset(pinned, 0xaa, room);
    memset(wanted, 0xaa, room);
}

static bool is_wrong(const unsigned char *bytes)
{
    return memcmp(bytes, wanted, room) != 0;
}

static void check_room(void)
{
    for (size_t i = 0; i < BOXES; i++) {
        const struct box *b = &boxes[i];
        TRUE(offset_of(&b->to, b->rows, b->rows - 1, b->planes - 1) + b->width <= ROOM);
        TRUE(offset_of(&b->from, b->rows, b->rows - 1, b->planes - 1) + b->width <= ROOM);
    }
}

struct look {
    bool wrong;
};

static void look(void *user)
{
    struct look *l = user;
    l->wrong = is_wrong(pinned);
}

/* Each box, and each way to learn that its copy is over. */
static void every_byte_is_in_its_row(struct api *api)
{
    (void)api;
    for (size_t i = 0; i < BOXES; i++) {
        struct look l = {false};
        CUresult state = CUDA_SUCCESS;
        begin(reach(&boxes[i], &boxes[i].to));
        copy(&boxes[i], i, stream);
        OK(cuEventRecord(event, stream));
        switch (i % 5) {
        case 0:
            OK(cuStreamSynchronize(stream));
            break;
        case 1:
            OK(cuEventSynchronize(event));
            break;
        case 2:
            while ((state = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) {
                nanosleep(&(struct timespec){0, 20000}, NULL);
            }
            OK(state);
            break;
        case 3:
            OK(cuCtxSynchronize());
            break;
        default:
            OK(cuLaunchHostFunc(stream, look, &l));
            OK(cuStreamSynchronize(stream));
            EQUAL(l.wrong, false);
            break;
        }
        bool wrong = is_wrong(pinned);
        if (wrong) {
            printf("box %zu\n", i);
        }
        EQUAL(wrong, false);
    }
}

/* Memory that is not page-locked, or a call that waits: there when it returns. */
static void what_is_waited_for_is_there(struct api *api)
{
    unsigned char *plain = malloc(ROOM);
    (void)api;
    for (size_t i = 0; i < BOXES; i++) {
        begin(reach(&boxes[i], &boxes[i].to));
        memset(plain, 0xaa, room);
        CUDA_MEMCPY3D p = down(&boxes[i], source + i, plain);
        OK(i % 2 == 0 ? cuMemcpy3DAsync(&p, stream) : cuMemcpy3D(&p));
        expect(&boxes[i], i);
        if (!api_is_remote()) {
            OK(cuStreamSynchronize(stream)); /* how NVIDIA's stages is not what is tested */
        }
        EQUAL(is_wrong(plain), false);
        p.dstHost = pinned;
        OK(cuMemcpy3D(&p));
        EQUAL(is_wrong(pinned), false);
    }
    free(plain);
}

/* The same boxes the other way: what is `from` above is where they go to. */
static void every_byte_goes_to_its_row(struct api *api)
{
    unsigned char *plain = malloc(ROOM), *back = malloc(ROOM);
    CUdeviceptr target;
    (void)api;
    memcpy(plain, pattern, ROOM);
    memcpy(pinned, pattern, ROOM);
    OK(cuMemAlloc(&target, ROOM));
    for (size_t i = 0; i < 2 * BOXES; i++) {
        const struct box *b = &boxes[i % BOXES];
        CUDA_MEMCPY3D p = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = i < BOXES ? plain : pinned,
                           .srcPitch = b->to.pitch,
                           .srcHeight = b->to.height,
                           .srcXInBytes = b->to.x,
                           .srcY = b->to.y,
                           .srcZ = b->to.z,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = target,
                           .dstPitch = b->from.pitch,
                           .dstHeight = b->from.height,
                           .dstXInBytes = b->from.x,
                           .dstY = b->from.y,
                           .dstZ = b->from.z,
                           .WidthInBytes = b->width,
                           .Height = b->rows,
                           .Depth = b->planes};
        room = reach(b, &b->from);
        OK(cuMemsetD8Async(target, 0xaa, room, i % 2 == 0 ? stream : NULL));
        OK(i % 2 == 0 ? cuMemcpy3DAsync(&p, stream) : cuMemcpy3D(&p));
        OK(cuMemcpyDtoHAsync(back, target, room, i % 2 == 0 ? stream : NULL));
        OK(cuCtxSynchronize());
        memset(wanted, 0xaa, room);
        for (size_t z = 0; z < b->planes; z++) {
            for (size_t y = 0; y < b->rows; y++) {
                memcpy(wanted + offset_of(&b->from, b->rows, y, z),
                       pattern + offset_of(&b->to, b->rows, y, z), b->width);
            }
        }
        bool wrong = is_wrong(back);
        if (wrong) {
            printf("box %zu\n", i);
        }
        EQUAL(wrong, false);
    }
    OK(cuMemFree(target));
    free(plain);
    free(back);
}

/* Rows to the device. */
static CUDA_MEMCPY2D up_2d(CUdeviceptr to, size_t to_pitch, const void *from, size_t from_pitch,
                           size_t width, size_t rows)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = from,
                           .srcPitch = from_pitch,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = to_pitch,
                           .WidthInBytes = width,
                           .Height = rows};
}

/* Rows of threads and contexts of their own, which end with rows under way. */
struct traffic {
    struct api *api;
    unsigned seed;
    size_t wrong;
};

static void *rows_to_and_fro(void *user)
{
    enum { WIDTH = 3001, PITCH = 3100, ROWS = 1700, ROUNDS = 5 };
    struct traffic *traffic = user;
    unsigned char *from = malloc((size_t)PITCH * ROWS), *to = malloc((size_t)WIDTH * ROWS);
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUcontext own = traffic->api->context;
        CUdeviceptr device;
        if (i % 2 == 0) {
            OK(cuCtxCreate(&own, NULL, 0, traffic->api->device));
        }
        OK(cuCtxSetCurrent(own));
        OK(cuMemAlloc(&device, (size_t)WIDTH * ROWS));
        memset(from, 0, (size_t)PITCH * ROWS);
        for (size_t y = 0; y < ROWS; y++) {
            memset(from + y * PITCH, (int)(y + traffic->seed + i), WIDTH);
        }
        CUDA_MEMCPY2D p = up_2d(device, WIDTH, from, PITCH, WIDTH, ROWS);
        OK(cuMemcpy2D(&p));
        OK(cuMemcpyDtoH(to, device, (size_t)WIDTH * ROWS));
        for (size_t y = 0; y < ROWS; y++) {
            traffic->wrong += memcmp(to + y * WIDTH, from + y * PITCH, WIDTH) != 0;
        }
        OK(cuMemcpy2DAsync(&p, NULL));
        OK(i % 2 == 0 ? cuCtxDestroy(own) : cuMemFree(device));
    }
    free(from);
    free(to);
    return NULL;
}

static void rows_of_several_threads_do_not_mix(struct api *api)
{
    enum { THREADS = 3 };
    struct traffic traffic[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        traffic[i] = (struct traffic){api, 31 * i, 0};
        EQUAL(pthread_create(&threads[i], NULL, rows_to_and_fro, &traffic[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        EQUAL(traffic[i].wrong, 0);
    }
}

/* Streams that wait for nobody find the bytes of a call that has returned. */
static void rows_are_there_when_the_call_returns(struct api *api)
{
    enum { WIDTH = 64000, PITCH = 65536, ROWS = 100 };
    unsigned char *plain = malloc((size_t)PITCH * ROWS), *back = malloc((size_t)PITCH * ROWS);
    CUdeviceptr target;
    (void)api;
    OK(cuMemAlloc(&target, (size_t)PITCH * ROWS));
    for (int i = 0; i < 20; i++) {
        memset(plain, i, (size_t)PITCH * ROWS);
        CUDA_MEMCPY2D p = up_2d(target, PITCH, plain, PITCH, WIDTH, ROWS);
        OK(cuCtxSynchronize());
        OK(cuMemcpy2D(&p));
        OK(cuMemcpyDtoHAsync(back, target, (size_t)PITCH * ROWS, stream));
        OK(cuStreamSynchronize(stream));
        for (size_t y = 0; y < ROWS; y++) {
            EQUAL(memcmp(back + y * PITCH, plain + y * PITCH, WIDTH), 0);
        }
    }
    OK(cuMemFree(target));
    free(plain);
    free(back);
}

/* Rows for what is no memory, from the first one on or all others: the program hears of it once,
 * and the next copy is as good as any. */
static void a_refused_one_up_is_told_once(struct api *api)
{
    enum { PITCH = 20000, ROWS = 1000 };
    unsigned char *plain = malloc((size_t)PITCH * (ROWS + 1));
    CUdeviceptr target;
    (void)api;
    memset(plain, 7, (size_t)PITCH * (ROWS + 1));
    OK(cuMemAlloc(&target, (size_t)PITCH * ROWS));
    CUDA_MEMCPY2D p = up_2d(target, PITCH, plain, PITCH, PITCH - 8, ROWS);
    for (int i = 0; i < 4; i++) {
        CUDA_MEMCPY2D wrong = p;
        wrong.dstPitch = i % 2 == 0 ? PITCH : 1 << 30;
        wrong.dstY = i % 2 == 0 ? ((size_t)1 << 40) / PITCH : 0;
        CUresult made = i < 2 ? cuMemcpy2DAsync(&wrong, stream) : cuMemcpy2D(&wrong);
        CUresult told = cuStreamSynchronize(i < 2 ? stream : NULL);
        TRUE((made != CUDA_SUCCESS) != (told != CUDA_SUCCESS));
        OK(cuCtxSynchronize());
        OK(cuMemcpy2D(&p));
        OK(cuCtxSynchronize());
    }
    OK(cuMemFree(target));
    free(plain);
}

static void take_a_while(void *user)
{
    (void)user;
    usleep(300000);
}

/* As natively, a call that waits is over with what was before it in its stream, so streams that
 * wait for nobody find the bytes. */
static void what_is_waited_for_comes_behind_what_was_before(struct api *api)
{
    const struct box *b = &boxes[2];
    unsigned char *plain = malloc(ROOM), *back = malloc(ROOM);
    CUdeviceptr target;
    (void)api;
    memcpy(plain, pattern, ROOM);
    OK(cuMemAlloc(&target, ROOM));
    OK(cuMemsetD8(target, 0xaa, ROOM));
    OK(cuCtxSynchronize());
    CUDA_MEMCPY2D p = up_2d(target, b->from.pitch, plain, b->to.pitch, b->width, 300);
    OK(cuLaunchHostFunc(CU_STREAM_LEGACY, take_a_while, NULL));
    OK(cuMemcpy2D(&p));
    OK(cuMemcpyDtoHAsync(back, target, ROOM, stream));
    OK(cuStreamSynchronize(stream));
    room = ROOM;
    memset(wanted, 0xaa, ROOM);
    for (size_t y = 0; y < 300; y++) {
        memcpy(wanted + y * b->from.pitch, pattern + y * b->to.pitch, b->width);
    }
    EQUAL(is_wrong(back), false);
    OK(cuMemFree(target));
    free(plain);
    free(back);
}

/* The copies are behind a host function that waits for this thread. */
static void nobody_waits_for_a_stream_that_stands_still(struct api *api)
{
    const struct box *large = &boxes[8], *small = &boxes[0];
    unsigned char rows[10][20];
    CUDA_MEMCPY2D few = up_2d(0, 32, rows, 20, 16, 10);
    (void)api;
    OK(cuMemAlloc(&few.dstDevice, 320));
    begin(ROOM);
    OK(sem_init(&api_gate, 0, 0));
    OK(cuLaunchHostFunc(stream, api_pass_gate, NULL));
    copy(large, 1, stream);
    copy(small, 2, stream);
    /* NVIDIA's driver promises nothing of pageable memory. */
    for (int i = 0; i < 20 && api_is_soft(); i++) {
        memset(rows, i, sizeof rows);
        OK(cuMemcpy2DAsync(&few, stream));
    }
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EQUAL(pinned[offset_of(&large->to, large->rows, 0, 0)], 0xaa);
    OK(sem_post(&api_gate));
    OK(cuStreamSynchronize(stream));
    EQUAL(is_wrong(pinned), false);
    if (api_is_soft()) {
        unsigned char back[320];
        OK(cuMemcpyDtoH(back, few.dstDevice, sizeof back));
        EQUAL(back[0] + back[15] + back[288] + back[303], 4 * 19);
    }
    OK(cuMemFree(few.dstDevice));
}

/* Copies into the same memory, of any form, take effect one after the other. */
static void the_last_of_several_counts(struct api *api)
{
    (void)api;
    for (int waited = 0; waited < 3; waited++) {
        begin(ROOM);
        copy(&boxes[10], 1, CU_STREAM_LEGACY);
        OK(cuMemcpyDtoHAsync(pinned + 1000, source + 77, 7 * MIB, CU_STREAM_LEGACY));
        memcpy(wanted + 1000, pattern + 77, 7 * MIB);
        copy(&boxes[2], 3, CU_STREAM_LEGACY);
        copy(&boxes[8], 4, CU_STREAM_LEGACY);
        OK(cuMemcpyDtoHAsync(pinned + 5000, source + 5, 300, CU_STREAM_LEGACY));
        memcpy(wanted + 5000, pattern + 5, 300);
        if (waited == 1) {
            CUDA_MEMCPY3D p = down(&boxes[7], source + 9, pinned);
            OK(cuMemcpy3D(&p));
            expect(&boxes[7], 9);
            EQUAL(is_wrong(pinned), false);
        } else if (waited == 2) {
            OK(cuMemcpyDtoH(pinned + 100, source + 11, 6 * MIB));
            memcpy(wanted + 100, pattern + 11, 6 * MIB);
            EQUAL(is_wrong(pinned), false);
        }
        OK(cuCtxSynchronize());
        EQUAL(is_wrong(pinned), false);
    }
}

/* The copy back to the device takes what the copies from it bring, into gaps as well. */
static void memory_is_read_when_it_has_come(struct api *api)
{
    unsigned char *back = malloc(ROOM);
    CUdeviceptr second;
    (void)api;
    OK(cuMemAlloc(&second, ROOM));
    for (size_t i = 0; i < BOXES; i += 4) {
        begin(reach(&boxes[i], &boxes[i].to));
        copy(&boxes[i], 2, stream);
        OK(cuMemcpyHtoDAsync(second, pinned, room, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(back, second, room));
        EQUAL(is_wrong(back), false);
    }
    OK(cuMemFree(second));
    free(back);
}

/* Page-locked memory goes while its copy is under way. */
static void what_goes_away_is_not_written_to(struct api *api)
{
    (void)api;
    for (int i = 0; i < 3; i++) {
        void *first = NULL, *next = NULL;
        OK(cuMemAllocHost(&first, ROOM));
        CUDA_MEMCPY3D p = down(&boxes[8], source, first);
        OK(cuMemcpy3DAsync(&p, stream));
        OK(cuMemFreeHost(first));
        OK(cuMemAllocHost(&next, ROOM));
        room = ROOM;
        memset(next, 0xaa, room);
        memset(wanted, 0xaa, room);
        OK(cuCtxSynchronize());
        EQUAL(is_wrong(next), false);
        OK(cuMemFreeHost(next));
    }
}

/* From an array: two-dimensional, and with a few rows of it. */
static void arrays_come_without_a_wait(struct api *api)
{
    enum { WIDTH = 3000, HEIGHT = 700, PITCH = WIDTH * 4 + 8 };
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR of = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    (void)api;
    OK(cuArrayCreate(&array, &of));
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = source,
                       .srcPitch = WIDTH * 4,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = array,
                       .WidthInBytes = WIDTH * 4,
                       .Height = HEIGHT};
    OK(cuMemcpy2DAsync(&p, stream));
    begin(ROOM);
    CUDA_MEMCPY2D all = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                         .srcArray = array,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = pinned,
                         .dstPitch = PITCH,
                         .WidthInBytes = WIDTH * 4,
                         .Height = HEIGHT};
    CUDA_MEMCPY2D few = all;
    few.srcXInBytes = 400;
    few.srcY = 100;
    few.dstXInBytes = 5;
    few.dstY = HEIGHT + 3;
    few.WidthInBytes = 1000;
    few.Height = 9;
    OK(cuMemcpy2DAsync(&all, stream));
    OK(cuMemcpy2DAsync(&few, stream));
    OK(cuStreamSynchronize(stream));
    for (size_t y = 0; y < HEIGHT; y++) {
        memcpy(wanted + y * PITCH, pattern + y * WIDTH * 4, WIDTH * 4);
    }
    for (size_t y = 0; y < 9; y++) {
        memcpy(wanted + (HEIGHT + 3 + y) * PITCH + 5, pattern + (100 + y) * WIDTH * 4 + 400, 1000);
    }
    EQUAL(is_wrong(pinned), false);
    OK(cuArrayDestroy(array));
}

/* More than the server keeps at once, and one copy that is larger than all that. */
static void very_many_arrive_all(struct api *api)
{
    enum { PITCH = MIB + 64, ROWS = 420 };
    unsigned char *much = NULL;
    CUdeviceptr device;
    size_t wrong = 0;
    (void)api;
    OK(cuMemAllocHost((void **)&much, (size_t)PITCH * ROWS));
    OK(cuMemAlloc(&device, (size_t)MIB * ROWS));
    for (int round = 0; round < 2; round++) {
        size_t count = round == 0 ? 6 : 1, rows = ROWS / count;
        memset(much, 0xaa, (size_t)PITCH * ROWS);
        OK(cuMemsetD8Async(device, (unsigned char)(0x30 + round), (size_t)MIB * ROWS, stream));
        for (size_t i = 0; i < count; i++) {
            CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = device,
                               .srcPitch = MIB,
                               .srcY = i * rows,
                               .dstMemoryType = CU_MEMORYTYPE_HOST,
                               .dstHost = much,
                               .dstPitch = PITCH,
                               .dstY = i * rows,
                               .WidthInBytes = MIB,
                               .Height = rows};
            OK(cuMemcpy2DAsync(&p, stream));
        }
        OK(cuStreamSynchronize(stream));
        for (size_t y = 0; y < ROWS; y++) {
            const unsigned char *row = much + y * PITCH;
            wrong += row[0] != 0x30 + round || memcmp(row, row + 1, MIB - 1) != 0;
            wrong += row[MIB] != 0xaa || memcmp(row + MIB, row + MIB + 1, 63) != 0;
        }
    }
    EQUAL(wrong, 0);
    OK(cuMemFree(device));
    OK(cuMemFreeHost(much));
}

/* A copy that the driver refuses says so at the latest at the next synchronisation, which brings
 * the others. */
static void a_refused_one_is_told_and_the_others_come(struct api *api)
{
    CUdeviceptr variable;
    size_t size;
    OK(cuModuleGetGlobal(&variable, &size, api->module, "counter"));
    begin(ROOM);
    copy(&boxes[8], 1, stream);
    CUDA_MEMCPY3D p = down(&boxes[9], variable, pinned);
    CUresult made = cuMemcpy3DAsync(&p, stream);
    copy(&boxes[9], 2, stream);
    CUresult told = cuStreamSynchronize(stream);
    TRUE(made != CUDA_SUCCESS || told != CUDA_SUCCESS);
    EQUAL(is_wrong(pinned), false);
    OK(cuStreamSynchronize(stream));
}

/* One that is waited for says it itself, and nothing of it is heard later. */
static void a_refused_one_that_is_waited_for_is_over(struct api *api)
{
    enum { WIDTH = 4000, HEIGHT = 500 };
    unsigned char *plain = malloc(ROOM);
    CUdeviceptr variable;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR of = {
        .Width = WIDTH, .Height = HEIGHT, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    size_t size;
    OK(cuModuleGetGlobal(&variable, &size, api->module, "counter"));
    OK(cuArrayCreate(&array, &of));
    CUDA_MEMCPY3D p = down(&boxes[9], variable, plain);
    TRUE(cuMemcpy3D(&p) != CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    TRUE(cuMemcpy3DAsync(&p, stream) != CUDA_SUCCESS);
    OK(cuStreamSynchronize(stream));
    p.srcPitch = 1 << 30; /* its last part is no memory either, wherever the variable is */
    TRUE(cuMemcpy3D(&p) != CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = plain,
                          .dstPitch = WIDTH * 4,
                          .WidthInBytes = WIDTH * 4,
                          .Height = HEIGHT + 1};
    TRUE(cuMemcpy2D(&rows) != CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    rows.Height = HEIGHT;
    rows.srcXInBytes = 8; /* all rows are too long, and so are all parts of it */
    TRUE(cuMemcpy2D(&rows) != CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    rows.srcXInBytes = 0;
    OK(cuMemcpy2D(&rows));
    OK(cuCtxSynchronize());
    OK(cuArrayDestroy(array));
    room = ROOM;
    memset(plain, 0xaa, room);
    memset(wanted, 0xaa, room);
    OK(cuCtxSynchronize());
    EQUAL(is_wrong(plain), false);
    free(plain);
}

/* Mappings side by side are one memory. */
static void neighbouring_mappings_are_read_through(struct api *api)
{
    enum { MAPPINGS = 5 };
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = api->device}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory[MAPPINGS];
    CUdeviceptr base;
    size_t each = 0;
    OK(cuMemGetAllocationGranularity(&each, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemAddressReserve(&base, MAPPINGS * each, 0, 0, 0));
    for (int i = 0; i < MAPPINGS; i++) {
        OK(cuMemCreate(&memory[i], each, &prop, 0));
        OK(cuMemMap(base + (size_t)i * each, each, 0, memory[i], 0));
    }
    OK(cuMemSetAccess(base, MAPPINGS * each, &access, 1));
    size_t rows = MAPPINGS * each / 4096, wrong = 0;
    unsigned char *plain = malloc(MAPPINGS * each);
    CUDA_MEMCPY2D p = up_2d(base, 4096, pattern, 4000, 4000, rows);
    OK(cuMemcpy2D(&p));
    p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    p.srcDevice = base;
    p.srcPitch = 4096;
    p.dstMemoryType = CU_MEMORYTYPE_HOST;
    p.dstHost = plain;
    p.dstPitch = 4096;
    OK(cuMemcpy2D(&p));
    for (size_t y = 0; y < rows; y++) {
        wrong += memcmp(plain + y * 4096, pattern + y * 4000, 4000) != 0;
    }
    EQUAL(wrong, 0);
    OK(cuMemUnmap(base, MAPPINGS * each));
    for (int i = 0; i < MAPPINGS; i++) {
        OK(cuMemRelease(memory[i]));
    }
    OK(cuMemAddressFree(base, MAPPINGS * each));
    free(plain);
}

int main(void)
{
    struct api api;
    api_begin(&api);
    pattern = malloc(ROOM + 256);
    wanted = malloc(ROOM);
    for (size_t i = 0; i < ROOM + 256; i++) {
        pattern[i] = (unsigned char)(i * 7 + i / 251);
    }
    OK(cuMemAlloc(&source, ROOM + 256));
    OK(cuMemcpyHtoD(source, pattern, ROOM + 256));
    OK(cuMemAllocHost((void **)&pinned, ROOM));
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    check_room();
    every_byte_is_in_its_row(&api);
    what_is_waited_for_is_there(&api);
    every_byte_goes_to_its_row(&api);
    rows_of_several_threads_do_not_mix(&api);
    rows_are_there_when_the_call_returns(&api);
    a_refused_one_up_is_told_once(&api);
    what_is_waited_for_comes_behind_what_was_before(&api);
    nobody_waits_for_a_stream_that_stands_still(&api);
    the_last_of_several_counts(&api);
    memory_is_read_when_it_has_come(&api);
    what_goes_away_is_not_written_to(&api);
    arrays_come_without_a_wait(&api);
    very_many_arrive_all(&api);
    a_refused_one_is_told_and_the_others_come(&api);
    a_refused_one_that_is_waited_for_is_over(&api);
    neighbouring_mappings_are_read_through(&api);
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(stream));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(source));
    free(pattern);
    free(wanted);
    return api_end(&api);
}
