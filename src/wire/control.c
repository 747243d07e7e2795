/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders and decoders of control frames. */
#include "wire/control.h"

const char *tow_control_name(uint16_t kind)
{
    static const char *const names[] = {
        "HELLO",          "WELCOME", "REFUSE",  "REPLY",  "CALLBACK",  "CALLBACK_DONE",
        "PRINT",          "DATA",    "CREDIT",  "BYE",    "NOTICE",    "THREAD_EXIT",
        "STATUS",         "REPORT",  "MIRROR",  "LANE",   "SIDE",      "FENCE",
        "CALLBACK_BYTES", "FETCH",   "DONE",    "FORGET", "CHALLENGE", "PROOF",
        "PROVED",         "GRANT",   "LASTING", "RESUME", "TIMELINE",
    };
    size_t index = (size_t)kind - TOW_CONTROL_FIRST;
    return kind >= TOW_CONTROL_FIRST && index < sizeof names / sizeof *names ? names[index] : NULL;
}

static int control_finish(struct tow_enc *enc, void *at, uint16_t kind, uint32_t *ret_length)
{
    return tow_frame_end(enc, at, (struct tow_frame){.kind = kind}, ret_length);
}

static size_t control_bounded(size_t size)
{
    return size < TOW_FRAME_MAX ? size : TOW_FRAME_MAX;
}

/* ---- HELLO ---- */

int tow_hello_encode(const struct tow_hello *hello, void *at, size_t size, uint32_t *ret_length)
{
    if (hello->env_count > TOW_HELLO_ENV_MAX || hello->functions > TOW_HELLO_FUNCTIONS_MAX) {
        return -EMSGSIZE;
    }
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, hello->version_min);
    tow_enc_u32(&enc, hello->version_max);
    tow_enc_u32(&enc, hello->pid);
    for (int i = 0; i < 4; i++) {
        tow_enc_u64(&enc, hello->table_hash[i]);
    }
    tow_enc_u64(&enc, hello->capabilities);
    tow_enc_u32(&enc, hello->slot);
    tow_enc_u32(&enc, hello->env_count);
    for (uint32_t i = 0; i < hello->env_count; i++) {
        tow_enc_cstr(&enc, hello->env[i]);
    }
    tow_enc_cstr(&enc, hello->name);
    tow_enc_cstr(&enc, hello->token);
    if (hello->release != NULL) {
        tow_enc_cstr(&enc, hello->release);
        tow_enc_u32(&enc, hello->functions);
        tow_enc_align(&enc, 8);
        tow_enc_bytes(&enc, hello->travels, hello->functions * sizeof(struct tow_travel));
        bool wishes = hello->wish.wait_s != TOW_WAIT_UNSAID;
        if (hello->gpu_memory != 0 || wishes) {
            tow_enc_u64(&enc, hello->gpu_memory);
        }
        if (wishes) {
            tow_enc_u32(&enc, hello->wish.wait_s);
            tow_enc_u32(&enc, hello->wish.priority);
            tow_enc_u32(&enc, hello->wish.share);
            tow_enc_u32(&enc, hello->wish.exclusive);
        }
    }
    return control_finish(&enc, at, TOW_CONTROL_HELLO, ret_length);
}

/* What cannot be understood was not said. */
static void decode_wish(struct tow_dec *dec, struct tow_wish *wish)
{
    struct tow_wish said;
    if (tow_dec_left(dec) < sizeof said) {
        return;
    }
    said.wait_s = tow_dec_u32(dec);
    said.priority = tow_dec_u32(dec);
    said.share = tow_dec_u32(dec);
    said.exclusive = tow_dec_u32(dec);
    if (said.priority > TOW_PRIORITY_HIGH) {
        said.priority = TOW_PRIORITY_UNSAID;
    }
    *wish = said;
}

int tow_hello_decode(const void *at, const struct tow_frame *frame, struct tow_hello *ret_hello)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_hello hello = {0};
    uint32_t magic = tow_dec_u32(&dec);
    hello.version_min = tow_dec_u32(&dec);
    hello.version_max = tow_dec_u32(&dec);
    hello.pid = tow_dec_u32(&dec);
    for (int i = 0; i < 4; i++) {
        hello.table_hash[i] = tow_dec_u64(&dec);
    }
    hello.capabilities = tow_dec_u64(&dec);
    hello.slot = tow_dec_u32(&dec);
    hello.env_count = tow_dec_count(&dec, TOW_HELLO_ENV_MAX, 4);
    for (uint32_t i = 0; i < hello.env_count; i++) {
        hello.env[i] = tow_dec_cstr(&dec, TOW_HELLO_ENV_SIZE_MAX);
        /* A variable is "KEY=VALUE" with a key. */
        if (hello.env[i] == NULL || strchr(hello.env[i], '=') == NULL || hello.env[i][0] == '=') {
            tow_dec_fail(&dec);
        }
    }
    hello.name = tow_dec_cstr(&dec, TOW_HELLO_NAME_MAX);
    hello.token = tow_dec_cstr(&dec, TOW_HELLO_TOKEN_MAX);
    if (hello.name == NULL) {
        hello.name = "";
    }
    if (dec.bad || frame->kind != TOW_CONTROL_HELLO || magic != TOW_MAGIC ||
        hello.version_min > hello.version_max || hello.version_min == 0) {
        return -EPROTO;
    }
    /* Where these are missing or damaged they were not said. */
    hello.release = tow_dec_cstr(&dec, TOW_HELLO_RELEASE_MAX);
    hello.functions = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    if (hello.functions > TOW_HELLO_FUNCTIONS_MAX) {
        tow_dec_fail(&dec);
    }
    hello.travels = tow_dec_bytes(&dec, hello.functions * sizeof(struct tow_travel));
    if (dec.bad) {
        hello.release = NULL;
        hello.functions = 0;
        hello.travels = NULL;
    } else if (tow_dec_left(&dec) >= sizeof hello.gpu_memory) {
        hello.gpu_memory = tow_dec_u64(&dec);
        decode_wish(&dec, &hello.wish);
    }
    *ret_hello = hello;
    return 0;
}

/* ---- WELCOME ---- */

#define RANGE_SIZE 24

int tow_welcome_encode(const struct tow_welcome *welcome, void *at, size_t size,
                       uint32_t *ret_length)
{
    if (welcome->range_count > TOW_WELCOME_RANGES_MAX ||
        welcome->snapshot_size > TOW_WELCOME_SNAPSHOT_MAX ||
        welcome->context_size > TOW_WELCOME_CONTEXT_MAX ||
        welcome->lacking_count > TOW_HELLO_FUNCTIONS_MAX) {
        return -EMSGSIZE;
    }
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, welcome->version);
    for (int i = 0; i < 4; i++) {
        tow_enc_u64(&enc, welcome->table_hash[i]);
    }
    tow_enc_u64(&enc, welcome->capabilities);
    tow_enc_u64(&enc, welcome->session);
    tow_enc_u32(&enc, welcome->frame_max);
    tow_enc_u32(&enc, welcome->data_max);
    tow_enc_u64(&enc, welcome->command_window);
    tow_enc_u64(&enc, welcome->data_window);
    tow_enc_u32(&enc, welcome->range_count);
    tow_enc_align(&enc, 8);
    for (uint32_t i = 0; i < welcome->range_count; i++) {
        tow_enc_u64(&enc, welcome->ranges[i].base);
        tow_enc_u64(&enc, welcome->ranges[i].size);
        tow_enc_u32(&enc, welcome->ranges[i].kind);
        tow_enc_align(&enc, 8);
    }
    tow_enc_u32(&enc, welcome->snapshot_size);
    tow_enc_align(&enc, 8);
    tow_enc_bytes(&enc, welcome->snapshot, welcome->snapshot_size);
    if (welcome->context_size > 0 || welcome->lacking_count > 0) {
        tow_enc_align(&enc, 8);
        tow_enc_u32(&enc, welcome->context_size);
        tow_enc_align(&enc, 8);
        tow_enc_bytes(&enc, welcome->context, welcome->context_size);
    }
    if (welcome->lacking_count > 0) {
        tow_enc_align(&enc, 8);
        tow_enc_u32(&enc, welcome->lacking_count);
        tow_enc_bytes(&enc, welcome->lacking, welcome->lacking_count * sizeof(uint32_t));
    }
    return control_finish(&enc, at, TOW_CONTROL_WELCOME, ret_length);
}

int tow_welcome_decode(const void *at, const struct tow_frame *frame,
                       struct tow_welcome *ret_welcome)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_welcome welcome = {0};
    uint32_t magic = tow_dec_u32(&dec);
    welcome.version = tow_dec_u32(&dec);
    for (int i = 0; i < 4; i++) {
        welcome.table_hash[i] = tow_dec_u64(&dec);
    }
    welcome.capabilities = tow_dec_u64(&dec);
    welcome.session = tow_dec_u64(&dec);
    welcome.frame_max = tow_dec_u32(&dec);
    welcome.data_max = tow_dec_u32(&dec);
    welcome.command_window = tow_dec_u64(&dec);
    welcome.data_window = tow_dec_u64(&dec);
    welcome.range_count = tow_dec_count(&dec, TOW_WELCOME_RANGES_MAX, RANGE_SIZE);
    tow_dec_align(&dec, 8);
    for (uint32_t i = 0; i < welcome.range_count; i++) {
        struct tow_range *range = &welcome.ranges[i];
        range->base = tow_dec_u64(&dec);
        range->size = tow_dec_u64(&dec);
        range->kind = tow_dec_u32(&dec);
        tow_dec_align(&dec, 8);
        if (range->size == 0 || range->size > UINT64_MAX - range->base) {
            tow_dec_fail(&dec);
        }
    }
    welcome.snapshot_size = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    if (welcome.snapshot_size > TOW_WELCOME_SNAPSHOT_MAX) {
        tow_dec_fail(&dec);
    }
    welcome.snapshot = tow_dec_bytes(&dec, welcome.snapshot_size);
    if (dec.bad || frame->kind != TOW_CONTROL_WELCOME || magic != TOW_MAGIC ||
        welcome.version == 0 || welcome.frame_max < TOW_FRAME_HEADER) {
        return -EPROTO;
    }
    /* A later addition: where it is missing or damaged, nothing was said. */
    tow_dec_align(&dec, 8);
    welcome.context_size = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    welcome.context = tow_dec_bytes(&dec, welcome.context_size);
    if (dec.bad || welcome.context_size > TOW_WELCOME_CONTEXT_MAX) {
        welcome.context_size = 0;
        welcome.context = NULL;
        *ret_welcome = welcome;
        return 0;
    }
    tow_dec_align(&dec, 8);
    welcome.lacking_count = tow_dec_u32(&dec);
    if (welcome.lacking_count > TOW_HELLO_FUNCTIONS_MAX) {
        tow_dec_fail(&dec);
    }
    welcome.lacking = tow_dec_bytes(&dec, welcome.lacking_count * sizeof(uint32_t));
    if (dec.bad) {
        welcome.lacking_count = 0;
        welcome.lacking = NULL;
    }
    *ret_welcome = welcome;
    return 0;
}

/* ---- REFUSE ---- */

int tow_refuse_encode(const struct tow_refuse *refuse, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, refuse->code);
    tow_enc_cstr(&enc, refuse->sentence == NULL ? "" : refuse->sentence);
    return control_finish(&enc, at, TOW_CONTROL_REFUSE, ret_length);
}

int tow_refuse_decode(const void *at, const struct tow_frame *frame, struct tow_refuse *ret_refuse)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t magic = tow_dec_u32(&dec);
    struct tow_refuse refuse = {.code = tow_dec_u32(&dec)};
    refuse.sentence = tow_dec_cstr(&dec, TOW_SENTENCE_MAX);
    if (dec.bad || frame->kind != TOW_CONTROL_REFUSE || magic != TOW_MAGIC ||
        refuse.sentence == NULL) {
        return -EPROTO;
    }
    *ret_refuse = refuse;
    return 0;
}

/* ---- CALLBACK, CALLBACK_DONE, CALLBACK_BYTES, FENCE ---- */

void tow_callback_head(const struct tow_callback *callback, uint8_t ret_head[TOW_CALLBACK_HEAD])
{
    struct tow_enc enc = tow_enc_init(ret_head, TOW_CALLBACK_HEAD);
    tow_enc_u64(&enc, callback->id);
    tow_enc_u32(&enc, callback->status);
    tow_enc_align(&enc, 8);
}

int tow_callback_decode(const void *at, const struct tow_frame *frame,
                        struct tow_callback *ret_callback)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_callback callback = {.id = tow_dec_u64(&dec)};
    callback.status = tow_dec_u32(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_CALLBACK) {
        return -EPROTO;
    }
    *ret_callback = callback;
    return 0;
}

void tow_callback_done_head(const struct tow_callback_done *done,
                            uint8_t ret_head[TOW_CALLBACK_DONE_HEAD])
{
    struct tow_enc enc = tow_enc_init(ret_head, TOW_CALLBACK_DONE_HEAD);
    tow_enc_u64(&enc, done->id);
    tow_enc_u64(&enc, done->behind);
}

int tow_callback_done_decode(const void *at, const struct tow_frame *frame,
                             struct tow_callback_done *ret_done)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_callback_done done = {.id = tow_dec_u64(&dec)};
    done.behind = tow_dec_u64(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_CALLBACK_DONE) {
        return -EPROTO;
    }
    *ret_done = done;
    return 0;
}

void tow_callback_bytes_head(const struct tow_callback_bytes *chunk,
                             uint8_t ret_head[TOW_CALLBACK_BYTES_HEAD])
{
    struct tow_enc enc = tow_enc_init(ret_head, TOW_CALLBACK_BYTES_HEAD);
    tow_enc_u64(&enc, chunk->number);
    tow_enc_u64(&enc, chunk->offset);
    tow_enc_u64(&enc, chunk->size);
}

int tow_callback_bytes_decode(const void *at, const struct tow_frame *frame,
                              struct tow_callback_bytes *ret_chunk)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_callback_bytes chunk = {.number = tow_dec_u64(&dec)};
    chunk.offset = tow_dec_u64(&dec);
    chunk.size = tow_dec_u64(&dec);
    chunk.bytes = tow_dec_bytes(&dec, (size_t)chunk.size);
    if (dec.bad || frame->kind != TOW_CONTROL_CALLBACK_BYTES) {
        return -EPROTO;
    }
    *ret_chunk = chunk;
    return 0;
}

void tow_fence_head(const struct tow_fence *fence, uint8_t ret_head[TOW_FENCE_HEAD])
{
    struct tow_enc enc = tow_enc_init(ret_head, TOW_FENCE_HEAD);
    tow_enc_u64(&enc, fence->mirrors);
}

int tow_fence_decode(const void *at, const struct tow_frame *frame, struct tow_fence *ret_fence)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_fence fence = {.mirrors = tow_dec_u64(&dec)};
    if (dec.bad || frame->kind != TOW_CONTROL_FENCE) {
        return -EPROTO;
    }
    *ret_fence = fence;
    return 0;
}

/* ---- FETCH ---- */

void tow_fetch_head(const struct tow_fetch *fetch, uint8_t ret_head[TOW_FETCH_HEAD])
{
    struct tow_enc enc = tow_enc_init(ret_head, TOW_FETCH_HEAD);
    tow_enc_u64(&enc, fetch->address);
    tow_enc_u64(&enc, fetch->size);
}

int tow_fetch_decode(const void *at, const struct tow_frame *frame, struct tow_fetch *ret_fetch)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_fetch fetch = {.address = tow_dec_u64(&dec)};
    fetch.size = tow_dec_u64(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_FETCH || fetch.size == 0 ||
        fetch.size > TOW_FETCH_MAX) {
        return -EPROTO;
    }
    *ret_fetch = fetch;
    return 0;
}

/* ---- FORGET ---- */

int tow_forget_encode(const struct tow_forget *forget, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u64(&enc, forget->token.word[0]);
    tow_enc_u64(&enc, forget->token.word[1]);
    return control_finish(&enc, at, TOW_CONTROL_FORGET, ret_length);
}

int tow_forget_decode(const void *at, const struct tow_frame *frame, struct tow_forget *ret_forget)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_forget forget = {.token.word[0] = tow_dec_u64(&dec)};
    forget.token.word[1] = tow_dec_u64(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_FORGET) {
        return -EPROTO;
    }
    *ret_forget = forget;
    return 0;
}

/* ---- DONE ---- */

int tow_done_encode(const struct tow_done *done, void *at, size_t size, uint32_t *ret_length)
{
    if (done->count > TOW_WATCH_MAX) {
        return -EMSGSIZE;
    }
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, done->count);
    tow_enc_align(&enc, 8);
    for (uint32_t i = 0; i < done->count; i++) {
        tow_enc_u32(&enc,
                    done->entries[i].watch_id | (done->entries[i].refused ? TOW_DONE_REFUSED : 0));
        tow_enc_u32(&enc, done->entries[i].value);
    }
    return control_finish(&enc, at, TOW_CONTROL_DONE, ret_length);
}

int tow_done_decode(const void *at, const struct tow_frame *frame, struct tow_done *ret_done)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t count = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    if (dec.bad || frame->kind != TOW_CONTROL_DONE || count > TOW_WATCH_MAX ||
        count > tow_dec_left(&dec) / 8) {
        return -EPROTO;
    }
    ret_done->count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t watch_id = tow_dec_u32(&dec);
        ret_done->entries[i].watch_id = watch_id & ~TOW_DONE_REFUSED;
        ret_done->entries[i].refused = (watch_id & TOW_DONE_REFUSED) != 0;
        ret_done->entries[i].value = tow_dec_u32(&dec);
    }
    return 0;
}

/* ---- PRINT ---- */

int tow_print_encode(const struct tow_print *print, void *at, size_t size, uint32_t *ret_length)
{
    if (print->size > TOW_PRINT_MAX) {
        return -EMSGSIZE;
    }
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, print->size);
    tow_enc_bytes(&enc, print->text, print->size);
    struct tow_frame frame = {.kind = TOW_CONTROL_PRINT, .context = print->to_stderr};
    return tow_frame_end(&enc, at, frame, ret_length);
}

int tow_print_decode(const void *at, const struct tow_frame *frame, struct tow_print *ret_print)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_print print = {.size = tow_dec_count(&dec, TOW_PRINT_MAX, 1),
                              .to_stderr = frame->context == 1};
    print.text = (const char *)tow_dec_bytes(&dec, print.size);
    if (dec.bad || frame->kind != TOW_CONTROL_PRINT) {
        return -EPROTO;
    }
    *ret_print = print;
    return 0;
}

/* ---- DATA ---- */

int tow_data_head_encode(const struct tow_data *data, uint16_t thread, uint32_t context,
                         uint8_t ret_head[TOW_DATA_HEAD], uint32_t *ret_pad)
{
    if (data->size > TOW_DATA_MAX) {
        return -EMSGSIZE;
    }
    uint32_t pad = -data->size & TOW_DATA_PAD_MASK;
    struct tow_frame frame = {.length = TOW_DATA_HEAD + data->size + pad,
                              .kind = TOW_CONTROL_DATA,
                              .thread = thread,
                              .context = context};
    memcpy(ret_head, &frame, sizeof frame);
    struct tow_enc enc =
        tow_enc_init(ret_head + TOW_FRAME_HEADER, TOW_DATA_HEAD - TOW_FRAME_HEADER);
    tow_enc_u32(&enc, data->transfer);
    tow_enc_u32(&enc, (data->flags & ~TOW_DATA_PAD_MASK) | pad);
    tow_enc_u64(&enc, data->offset);
    *ret_pad = pad;
    return 0;
}

int tow_data_frames_encode(const struct tow_data *data, uint64_t end,
                           struct tow_data_frame ret_frames[TOW_DATA_HEADS], unsigned *ret_count)
{
    struct tow_data next = *data;
    unsigned count = 0;
    int error = 0;
    do {
        struct tow_data_frame *frame = &ret_frames[count++];
        next.size = end - next.offset < data->size ? (uint32_t)(end - next.offset) : data->size;
        next.flags = next.offset + next.size == end ? data->flags : data->flags & ~TOW_DATA_LAST;
        error = tow_data_head_encode(&next, 0, 0, frame->head, &frame->pad);
        frame->offset = next.offset;
        frame->size = next.size;
        next.offset += next.size;
    } while (error == 0 && next.offset < end && count < TOW_DATA_HEADS);
    *ret_count = count;
    return error;
}

int tow_data_head_decode(const void *at, const struct tow_frame *frame, struct tow_data *ret_data,
                         uint32_t *ret_pad)
{
    if (frame->kind != TOW_CONTROL_DATA || frame->length < TOW_DATA_HEAD) {
        return -EPROTO;
    }
    struct tow_dec dec =
        tow_dec_init((const uint8_t *)at + TOW_FRAME_HEADER, TOW_DATA_HEAD - TOW_FRAME_HEADER);
    struct tow_data data = {.transfer = tow_dec_u32(&dec)};
    uint32_t flags = tow_dec_u32(&dec);
    uint32_t pad = flags & TOW_DATA_PAD_MASK;
    data.flags = flags & ~TOW_DATA_PAD_MASK;
    data.offset = tow_dec_u64(&dec);
    uint32_t room = frame->length - TOW_DATA_HEAD;
    if (pad > room || room - pad > TOW_DATA_MAX || data.offset > UINT64_MAX - room) {
        return -EPROTO;
    }
    data.size = room - pad;
    *ret_data = data;
    *ret_pad = pad;
    return 0;
}

/* ---- LANE ---- */

int tow_lane_encode(const struct tow_lane *lane, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, lane->index);
    tow_enc_u64(&enc, lane->session);
    tow_enc_u64(&enc, lane->key[0]);
    tow_enc_u64(&enc, lane->key[1]);
    return control_finish(&enc, at, TOW_CONTROL_LANE, ret_length);
}

int tow_lane_decode(const void *at, const struct tow_frame *frame, struct tow_lane *ret_lane)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t magic = tow_dec_u32(&dec);
    struct tow_lane lane = {.index = tow_dec_u32(&dec)};
    lane.session = tow_dec_u64(&dec);
    lane.key[0] = tow_dec_u64(&dec);
    lane.key[1] = tow_dec_u64(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_LANE || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_lane = lane;
    return 0;
}

/* ---- CHALLENGE, PROOF, PROVED ---- */

int tow_challenge_encode(const struct tow_challenge *challenge, void *at, size_t size,
                         uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_align(&enc, 8);
    tow_enc_bytes(&enc, challenge->nonce, sizeof challenge->nonce);
    return control_finish(&enc, at, TOW_CONTROL_CHALLENGE, ret_length);
}

int tow_challenge_decode(const void *at, const struct tow_frame *frame,
                         struct tow_challenge *ret_challenge)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_challenge challenge;
    uint32_t magic = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    tow_dec_copy(&dec, challenge.nonce, sizeof challenge.nonce);
    if (dec.bad || frame->kind != TOW_CONTROL_CHALLENGE || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_challenge = challenge;
    return 0;
}

int tow_proof_encode(const struct tow_proof *proof, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_align(&enc, 8);
    tow_enc_u64(&enc, proof->id);
    tow_enc_bytes(&enc, proof->nonce, sizeof proof->nonce);
    tow_enc_bytes(&enc, proof->proof, sizeof proof->proof);
    return control_finish(&enc, at, TOW_CONTROL_PROOF, ret_length);
}

int tow_proof_decode(const void *at, const struct tow_frame *frame, struct tow_proof *ret_proof)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_proof proof;
    uint32_t magic = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    proof.id = tow_dec_u64(&dec);
    tow_dec_copy(&dec, proof.nonce, sizeof proof.nonce);
    tow_dec_copy(&dec, proof.proof, sizeof proof.proof);
    if (dec.bad || frame->kind != TOW_CONTROL_PROOF || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_proof = proof;
    return 0;
}

int tow_proved_encode(const struct tow_proved *proved, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_align(&enc, 8);
    tow_enc_bytes(&enc, proved->answer, sizeof proved->answer);
    return control_finish(&enc, at, TOW_CONTROL_PROVED, ret_length);
}

int tow_proved_decode(const void *at, const struct tow_frame *frame, struct tow_proved *ret_proved)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_proved proved;
    uint32_t magic = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    tow_dec_copy(&dec, proved.answer, sizeof proved.answer);
    if (dec.bad || frame->kind != TOW_CONTROL_PROVED || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_proved = proved;
    return 0;
}

/* ---- GRANT ---- */

int tow_grant_encode(const struct tow_grant *grant, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_align(&enc, 8);
    tow_enc_bytes(&enc, grant->id, sizeof grant->id);
    tow_enc_bytes(&enc, grant->secret, sizeof grant->secret);
    return control_finish(&enc, at, TOW_CONTROL_GRANT, ret_length);
}

int tow_grant_decode(const void *at, const struct tow_frame *frame, struct tow_grant *ret_grant)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_grant grant;
    uint32_t magic = tow_dec_u32(&dec);
    tow_dec_align(&dec, 8);
    tow_dec_copy(&dec, grant.id, sizeof grant.id);
    tow_dec_copy(&dec, grant.secret, sizeof grant.secret);
    if (dec.bad || frame->kind != TOW_CONTROL_GRANT || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_grant = grant;
    return 0;
}

/* ---- LASTING, RESUME ---- */

int tow_lasting_encode(const struct tow_lasting *lasting, void *at, size_t size,
                       uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, lasting->seconds);
    tow_enc_bytes(&enc, lasting->secret, sizeof lasting->secret);
    return control_finish(&enc, at, TOW_CONTROL_LASTING, ret_length);
}

int tow_lasting_decode(const void *at, const struct tow_frame *frame,
                       struct tow_lasting *ret_lasting)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t magic = tow_dec_u32(&dec);
    struct tow_lasting lasting = {.seconds = tow_dec_u32(&dec)};
    tow_dec_copy(&dec, lasting.secret, sizeof lasting.secret);
    if (dec.bad || frame->kind != TOW_CONTROL_LASTING || magic != TOW_MAGIC ||
        lasting.seconds == 0) {
        return -EPROTO;
    }
    *ret_lasting = lasting;
    return 0;
}

int tow_resume_encode(const struct tow_resume *resume, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, resume->line);
    tow_enc_u64(&enc, resume->session);
    return control_finish(&enc, at, TOW_CONTROL_RESUME, ret_length);
}

int tow_resume_decode(const void *at, const struct tow_frame *frame, struct tow_resume *ret_resume)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t magic = tow_dec_u32(&dec);
    struct tow_resume resume = {.line = tow_dec_u32(&dec)};
    resume.session = tow_dec_u64(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_RESUME || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_resume = resume;
    return 0;
}

/* ---- CREDIT ---- */

int tow_credit_encode(const struct tow_credit *credit, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u64(&enc, credit->commands);
    tow_enc_u64(&enc, credit->data);
    return control_finish(&enc, at, TOW_CONTROL_CREDIT, ret_length);
}

int tow_credit_decode(const void *at, const struct tow_frame *frame, struct tow_credit *ret_credit)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_credit credit = {.commands = tow_dec_u64(&dec)};
    credit.data = tow_dec_u64(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_CREDIT) {
        return -EPROTO;
    }
    *ret_credit = credit;
    return 0;
}

/* ---- BYE ---- */

int tow_bye_encode(const struct tow_bye *bye, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, bye->code);
    tow_enc_cstr(&enc, bye->sentence);
    return control_finish(&enc, at, TOW_CONTROL_BYE, ret_length);
}

int tow_bye_decode(const void *at, const struct tow_frame *frame, struct tow_bye *ret_bye)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_bye bye = {.code = tow_dec_u32(&dec)};
    bye.sentence = tow_dec_cstr(&dec, TOW_SENTENCE_MAX);
    if (dec.bad || frame->kind != TOW_CONTROL_BYE) {
        return -EPROTO;
    }
    *ret_bye = bye;
    return 0;
}

/* ---- NOTICE ---- */

int tow_notice_encode(const struct tow_notice *notice, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, notice->topic);
    tow_enc_align(&enc, 8);
    tow_enc_u64(&enc, notice->values[0]);
    tow_enc_u64(&enc, notice->values[1]);
    tow_enc_cstr(&enc, notice->text);
    return control_finish(&enc, at, TOW_CONTROL_NOTICE, ret_length);
}

int tow_notice_decode(const void *at, const struct tow_frame *frame, struct tow_notice *ret_notice)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_notice notice = {.topic = tow_dec_u32(&dec)};
    tow_dec_align(&dec, 8);
    notice.values[0] = tow_dec_u64(&dec);
    notice.values[1] = tow_dec_u64(&dec);
    notice.text = tow_dec_cstr(&dec, TOW_SENTENCE_MAX);
    if (dec.bad || frame->kind != TOW_CONTROL_NOTICE) {
        return -EPROTO;
    }
    *ret_notice = notice;
    return 0;
}

/* ---- STATUS, REPORT ---- */

int tow_status_encode(const struct tow_status *status, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, status->topics);
    if ((status->topics & TOW_STATUS_OF_SESSION) != 0) {
        tow_enc_u64(&enc, status->session);
    }
    if ((status->topics & TOW_STATUS_SUSPEND) != 0) {
        tow_enc_u32(&enc, status->limit_ms);
    }
    return control_finish(&enc, at, TOW_CONTROL_STATUS, ret_length);
}

int tow_status_decode(const void *at, const struct tow_frame *frame, struct tow_status *ret_status)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t magic = tow_dec_u32(&dec);
    struct tow_status status = {.topics = tow_dec_u32(&dec)};
    if ((status.topics & TOW_STATUS_OF_SESSION) != 0) {
        status.session = tow_dec_u64(&dec);
    }
    if ((status.topics & TOW_STATUS_SUSPEND) != 0) {
        status.limit_ms = tow_dec_u32(&dec);
    }
    if (dec.bad || frame->kind != TOW_CONTROL_STATUS || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_status = status;
    return 0;
}

int tow_report_encode(const struct tow_report *report, void *at, size_t size, uint32_t *ret_length)
{
    struct tow_enc enc = tow_frame_begin(at, control_bounded(size));
    tow_enc_u32(&enc, TOW_MAGIC);
    tow_enc_u32(&enc, report->size);
    tow_enc_bytes(&enc, report->text, report->size);
    return control_finish(&enc, at, TOW_CONTROL_REPORT, ret_length);
}

int tow_report_decode(const void *at, const struct tow_frame *frame, struct tow_report *ret_report)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    uint32_t magic = tow_dec_u32(&dec);
    struct tow_report report = {.size = tow_dec_count(&dec, TOW_FRAME_MAX, 1)};
    report.text = (const char *)tow_dec_bytes(&dec, report.size);
    if (dec.bad || frame->kind != TOW_CONTROL_REPORT || magic != TOW_MAGIC) {
        return -EPROTO;
    }
    *ret_report = report;
    return 0;
}
