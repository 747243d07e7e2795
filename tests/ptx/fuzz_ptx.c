/* SPDX-License-Identifier: Apache-2.0 */
/* Makes PTX texts, loads them and runs what loads:  fuzz_ptx SECONDS SEED FILE...
 * Half of them are the files with changes, half are made by a grammar (fuzz_grammar.c). They are
 * launched as grids of all kinds: plain, cooperative, in clusters, with and without dynamic shared
 * memory. Any crash, hang or sanitizer report is a bug. Prints the seed of each case on request
 * (FUZZ_VERBOSE=1) so that one can be run alone (SECONDS = 0 runs just the case SEED, and
 * FUZZ_VERBOSE=2 prints its text).
 * SECONDS may also be a number of cases, as in 500n; SEED may be "commit", which is made of the
 * name of the commit, so that each searches elsewhere. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fuzz_grammar.h"
#include "machine.h"
#include "ptx/num/texture.h"

#define CASE_MS 50 /* a case that runs longer is stopped */
#define TEXT_CAP (1u << 20)

static uint64_t state;

static uint32_t next(uint32_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return below ? (uint32_t)(state >> 33) % below : 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *const words[] = {
    "%r1",
    "%rd1",
    "%p1",
    "0",
    "-1",
    "4294967295",
    "18446744073709551615",
    "[%rd1]",
    "{%r1,%r2}",
    ".u64",
    ".b128",
    ".pred",
    ".v4",
    ".shared",
    ".local",
    ".param",
    "call",
    "bra",
    "ret",
    "bar.sync",
    "atom.add",
    "{",
    "}",
    "[",
    "]",
    ";",
    "@%p1",
    "_",
    "\"",
    "<99999>",
    ".f16x2",
    "0f7F800000",
    "::",
    "/*",
    ".align 65536",
    "shfl.sync.idx.b32",
    "ld.volatile.global.u32",
    ".branchtargets",
};

/* The next word that begins with '.', '%' or a letter; its length in `ret_size`. */
static size_t find_word(const char *text, size_t length, size_t *ret_size)
{
    size_t at = next((uint32_t)length), size = 1;
    char first = ".%a"[next(3)];
    while (at < length && (first == 'a' ? text[at] < 'a' || text[at] > 'z' : text[at] != first)) {
        at++;
    }
    while (at + size < length && (text[at + size] == '_' || (text[at + size] | 32) >= 'a' ||
                                  (text[at + size] >= '0' && text[at + size] <= '9'))) {
        size++;
    }
    *ret_size = size;
    return at;
}

/* A type, register, opcode or operand in the place of another of its kind: most such texts load. */
static size_t exchange(char *text, size_t length)
{
    char word[64];
    size_t size, gone;
    size_t from = find_word(text, length, &size);
    if (from >= length || size > sizeof word) {
        return length;
    }
    memcpy(word, text + from, size);
    for (unsigned tries = 0; tries < 8; tries++) {
        size_t to = find_word(text, length, &gone);
        bool alike = to < length && (text[to] == word[0] || (text[to] >= 'a' && word[0] >= 'a'));
        if (alike && length - gone + size < TEXT_CAP) {
            memmove(text + to + size, text + to + gone, length - to - gone);
            memcpy(text + to, word, size);
            return length - gone + size;
        }
    }
    return length;
}

/* One change; returns the new length. */
static size_t mutate(char *text, size_t length)
{
    if (length < 2) {
        return length;
    }
    if (next(4)) {
        return exchange(text, length);
    }
    size_t at = next((uint32_t)length), n = 1 + next(24);
    n = n > length - at ? length - at : n;
    switch (next(8)) {
    case 0: /* flip a bit */
        text[at] = (char)(text[at] ^ 1 << next(7));
        return length;
    case 1: /* drop a piece */
        memmove(text + at, text + at + n, length - at - n);
        return length - n;
    case 2: /* copy a piece over another */
        memmove(text + next((uint32_t)(length - n + 1)), text + at, n);
        return length;
    case 3: { /* put a word in */
        const char *word = words[next(sizeof words / sizeof words[0])];
        size_t size = strlen(word);
        if (length + size >= TEXT_CAP) {
            return length;
        }
        memmove(text + at + size, text + at, length - at);
        memcpy(text + at, word, size);
        return length + size;
    }
    case 4: /* another digit */
        for (size_t i = at; i < length; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                text[i] = (char)('0' + next(10));
                break;
            }
        }
        return length;
    case 5: { /* repeat a line somewhere else */
        size_t start = at, end = at;
        while (start > 0 && text[start - 1] != '\n') {
            start--;
        }
        while (end < length && text[end] != '\n') {
            end++;
        }
        char line[512];
        size_t size = end - start < sizeof line ? end - start : sizeof line;
        memcpy(line, text + start, size);
        size_t to = next((uint32_t)length);
        while (to < length && text[to] != '\n') {
            to++;
        }
        if (length + size + 1 >= TEXT_CAP || to >= length) {
            return length;
        }
        memmove(text + to + size + 1, text + to, length - to);
        text[to] = '\n';
        memcpy(text + to + 1, line, size);
        return length + size + 1;
    }
    case 6: { /* swap two suffixes' or registers' characters */
        size_t other = next((uint32_t)length);
        char c = text[at];
        text[at] = text[other];
        text[other] = c;
        return length;
    }
    default: /* cut */
        return next(20) ? length : at;
    }
}

struct watch {
    struct machine *machine;
    pthread_mutex_t lock; /* guards machine and deadline */
    double deadline;
    bool end;
};

static void *watchdog(void *user)
{
    struct watch *watch = user;
    for (;;) {
        struct timespec nap = {0, 5000000};
        nanosleep(&nap, NULL);
        pthread_mutex_lock(&watch->lock);
        if (watch->end) {
            pthread_mutex_unlock(&watch->lock);
            return NULL;
        }
        if (watch->machine && now() > watch->deadline) {
            atomic_store(&watch->machine->stop, true);
        }
        pthread_mutex_unlock(&watch->lock);
    }
}

/* A texture of any kind, its levels exactly as large as they are. */
static void make_texture(struct tow_ptx_texture *t)
{
    static const uint32_t channels[] = {1, 2, 4};
    memset(t, 0, sizeof *t);
    t->kind = (enum tow_ptx_tex_kind)next(TOW_PTX_TEX_CUBE_LAYERED + 1);
    t->format = (enum tow_ptx_tex_format)next(TOW_PTX_TEX_F32 + 1);
    t->channels = channels[next(3)];
    bool cube = t->kind == TOW_PTX_TEX_CUBE || t->kind == TOW_PTX_TEX_CUBE_LAYERED;
    bool layered = t->kind == TOW_PTX_TEX_1D_LAYERED || t->kind == TOW_PTX_TEX_2D_LAYERED ||
                   t->kind == TOW_PTX_TEX_CUBE_LAYERED;
    bool flat = t->kind == TOW_PTX_TEX_BUFFER || t->kind == TOW_PTX_TEX_1D ||
                t->kind == TOW_PTX_TEX_1D_LAYERED;
    t->layers = layered ? 1 + next(3) : 1;
    t->level_count = t->kind == TOW_PTX_TEX_BUFFER ? 1 : 1 + next(3);
    uint32_t width = 1 + next(17), height = flat ? 1 : cube ? width : 1 + next(9);
    uint32_t depth = t->kind == TOW_PTX_TEX_3D ? 1 + next(5) : 1;
    for (uint32_t i = 0; i < t->level_count; i++) {
        struct tow_ptx_tex_level *level = &t->level[i];
        level->width = width >> i ? width >> i : 1;
        level->height = height >> i ? height >> i : 1;
        level->depth = depth >> i ? depth >> i : 1;
        level->row_pitch = (uint64_t)level->width * tow_ptx_texture_texel_bytes(t);
        level->slice_pitch = level->row_pitch * level->height;
        level->data = calloc(level->depth * t->layers * (cube ? 6 : 1), level->slice_pitch);
    }
    for (unsigned i = 0; i < 3; i++) {
        t->address[i] = (enum tow_ptx_tex_address)next(4);
    }
    t->normalized_float = next(2);
    t->filter = t->format >= TOW_PTX_TEX_F16 ? (enum tow_ptx_tex_filter)next(2) : TOW_PTX_TEX_POINT;
    t->mip_filter = (enum tow_ptx_tex_filter)next(2);
    t->normalized_coords = next(2);
    t->lod_max = (float)next(4);
}

static void free_texture(struct tow_ptx_texture *t)
{
    for (uint32_t i = 0; i < t->level_count; i++) {
        free(t->level[i].data);
    }
}

/* How a case is launched. */
static void choose_launch(struct machine *m, uint32_t grid[3], uint32_t block[3])
{
    static const uint32_t clusters[][3] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {2, 1, 1}, {4, 1, 1},
                                           {2, 2, 1}, {8, 1, 1}, {1, 2, 1}, {2, 1, 2}, {16, 1, 1}};
    static const uint32_t dynamic[] = {0, 0, 16, 1024, 1024, 8192, 65536, 232448};
    memcpy(m->cluster, clusters[next(sizeof clusters / sizeof *clusters)], sizeof m->cluster);
    for (unsigned i = 0; i < 3; i++) {
        grid[i] = m->cluster[i] * (1 + (next(4) == 0 ? next(2) : 0));
        block[i] = 1;
    }
    grid[0] += next(64) == 0; /* not a multiple */
    block[0] = next(3) ? 32u << next(3) : 1 + next(100);
    block[1] = next(8) ? 1 : 1 + next(3);
    m->cooperative = next(2);
    m->dynamic_shared = dynamic[next(sizeof dynamic / sizeof *dynamic)];
    m->threads = 1 + next(3);
}

static unsigned loaded, ran, faulted, generated;
static atomic_uint told; /* of launches that were checked */

static void count_found(void *user, const struct tow_ptx_fault *fault)
{
    (void)user;
    if (strlen(fault->message) > 0 && fault->kernel) {
        atomic_fetch_add(&told, 1);
    }
}

static void one_case(struct watch *watch, const char *seed_text, size_t seed_length, uint64_t seed)
{
    static struct machine m;
    char *text = malloc(TEXT_CAP);
    size_t length;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    bool grammar = next(2);
    if (grammar) {
        length = fuzz_grammar(next, text, TEXT_CAP);
        generated++;
    } else {
        length = seed_length < TEXT_CAP - 1 ? seed_length : TEXT_CAP - 1;
        memcpy(text, seed_text, length);
    }
    for (uint32_t i = grammar ? (next(4) ? 0 : 1) : 1 + next(1 + next(4)); i > 0; i--) {
        length = mutate(text, length);
    }
    /* Exactly as long as it is, so that reading past the end is seen. */
    char *exact = malloc(length + 1);
    memcpy(exact, text, length);
    exact[length] = 0;
    free(text);
    const char *verbose = getenv("FUZZ_VERBOSE");
    if (verbose && *verbose == '2') {
        fprintf(stderr, "%s\n", exact);
    }
    struct tow_ptx_texture texture;
    make_texture(&texture);
    /* Half of them as `towline check` runs them. */
    unsigned checks = next(2) ? 1 + next(15) : 0;
    tow_ptx_check_loads(checks);
    if (machine_load(&m, exact, false) == 0) {
        m.checks = checks;
        m.found = checks ? count_found : NULL;
        loaded++;
        uint64_t args[16];
        void *memory = machine_alloc(&m, 1 << 16);
        for (unsigned i = 0; i < 16; i++) {
            args[i] = i % 4 == 3 ? next(100) : ARG(memory) + next(4) * 4096;
        }
        m.texture = tow_ptx_texture_check(&texture) == 0 ? &texture : NULL;
        size_t kernels = tow_ptx_kernel_count(m.module), first = next((uint32_t)kernels);
        for (size_t i = 0; i < kernels && i < 4; i++) {
            struct tow_ptx_kernel_info info;
            tow_ptx_kernel_describe(tow_ptx_kernel_at(m.module, (first + i) % kernels), &info);
            if (info.param_bytes > 4096) {
                continue;
            }
            pthread_mutex_lock(&watch->lock);
            atomic_store(&m.stop, false);
            watch->machine = &m;
            watch->deadline = now() + CASE_MS * 1e-3;
            pthread_mutex_unlock(&watch->lock);
            uint32_t grid[3], block[3];
            choose_launch(&m, grid, block);
            int error = machine_run(&m, info.name, grid, block, args, 16);
            if (error && verbose) {
                fprintf(stderr, "%s: line %u: %s\n", info.name, m.fault.line, m.fault.message);
            }
            faulted += error != 0;
            ran++;
            pthread_mutex_lock(&watch->lock);
            watch->machine = NULL;
            pthread_mutex_unlock(&watch->lock);
        }
    }
    if (verbose && !m.module) {
        fprintf(stderr, "line %u: %s\n", m.diag.line, m.diag.message);
    }
    machine_unload(&m);
    free_texture(&texture);
    free(exact);
}

/* The first 15 digits of the commit's name; 1 where there is none. */
static uint64_t seed_of_commit(void)
{
    char line[64] = "";
    FILE *git = popen("git rev-parse HEAD 2>/dev/null", "r");
    if (git) {
        if (!fgets(line, 16, git)) {
            line[0] = 0;
        }
        pclose(git);
    }
    uint64_t seed = strtoull(line, NULL, 16);
    return seed ? seed : 1;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: fuzz_ptx SECONDS SEED FILE...\n");
        return 2;
    }
    bool counted = argv[1][0] != 0 && argv[1][strlen(argv[1]) - 1] == 'n';
    unsigned long most = counted ? strtoul(argv[1], NULL, 10) : 0;
    double end = now() + (counted ? 0 : atof(argv[1]));
    uint64_t seed = strcmp(argv[2], "commit") == 0 ? seed_of_commit() : strtoull(argv[2], NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    bool verbose = getenv("FUZZ_VERBOSE") != NULL;
    unsigned files = (unsigned)argc - 3, cases = 0;
    char **texts = calloc(files, sizeof *texts);
    size_t *lengths = calloc(files, sizeof *lengths);
    for (unsigned i = 0; i < files; i++) {
        FILE *file = fopen(argv[3 + i], "rb");
        if (!file) {
            perror(argv[3 + i]);
            return 1;
        }
        texts[i] = malloc(TEXT_CAP);
        lengths[i] = fread(texts[i], 1, TEXT_CAP - 1, file);
        texts[i] = realloc(texts[i], lengths[i] + 1); /* there may be many */
        fclose(file);
    }
    double slowest = 0;
    uint64_t slowest_seed = 0;
    struct watch watch = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    pthread_create(&thread, NULL, watchdog, &watch);
    do {
        if (verbose) {
            fprintf(stderr, "case %llu\n", (unsigned long long)seed);
        }
        double begin = now();
        one_case(&watch, texts[seed % files], lengths[seed % files], seed);
        if (now() - begin > slowest) {
            slowest = now() - begin;
            slowest_seed = seed;
        }
        seed++;
        cases++;
    } while (counted ? cases < most : now() < end);
    pthread_mutex_lock(&watch.lock);
    watch.end = true;
    pthread_mutex_unlock(&watch.lock);
    pthread_join(thread, NULL);
    printf("%u cases (%u of the grammar), %u loaded, %u launches, %u faults, %u told; slowest: "
           "case %llu, %.3f s\n",
           cases, generated, loaded, ran, faulted, atomic_load(&told),
           (unsigned long long)slowest_seed, slowest);
    for (unsigned i = 0; i < files; i++) {
        free(texts[i]);
    }
    free(texts);
    free(lengths);
    return 0;
}
