/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: what client and server know of each other before the first command. */
#include "server/run/hello.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/family/context.h"
#include "server/family/device.h"
#include "server/run/lane.h"
#include "server/session/session.h"
#include "transport/keep.h"
#include "wire/handshake.h"
#include "wire/limits.h"

static int hello_refuse(struct tows_session *session, uint32_t code, const char *sentence)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "a client was refused: %s", sentence);
    struct tow_refuse refuse = {.code = code, .sentence = sentence};
    uint8_t *at = NULL;
    uint32_t length = 0;
    if (tow_line_reserve(session->line, 2048, &at) >= 0 &&
        tow_refuse_encode(&refuse, at, 2048, &length) == 0) {
        tow_line_commit(session->line, length);
    }
    return -EPROTO;
}

static const char not_understood[] = "The client's hello cannot be understood; use the same "
                                     "version of Towline on both sides.";

static int read_hello(struct tows_session *session, struct tow_hello *ret_hello,
                      const uint8_t **ret_at, struct tow_frame *ret_frame)
{
    int64_t limit =
        session->options->handshake_ns > 0 ? session->options->handshake_ns : 10 * TOW_TIME_S;
    int64_t deadline = tow_time_now_ns() + limit;
    const uint8_t *at = NULL;
    size_t available = 0;
    char why[TOW_SENTENCE_MAX];
    int error = tow_line_peek(session->line, TOW_FRAME_HEADER, deadline, &at, &available);
    if (error < 0) {
        return error;
    }
    if (tow_handshake_sniff(TOW_ROLE_SERVER, at, available, "the client", why, sizeof why) ==
            -EPROTO ||
        tow_frame_read(at, ret_frame) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "a peer that does not speak Towline's protocol was sent away");
        return -EPROTO;
    }
    error = tow_line_peek(session->line, ret_frame->length, deadline, &at, &available);
    if (error < 0) {
        return error;
    }
    *ret_at = at;
    error = tow_hello_decode(at, ret_frame, ret_hello);
    return error < 0 ? hello_refuse(session, TOW_REFUSE_PROTOCOL, not_understood) : 0;
}

static uint32_t hash_of(unsigned number)
{
    const struct tow_fn_info *info = tow_fn_info(number);
    return info != NULL ? info->travels : 0;
}

static void take_common(void *user, unsigned number)
{
    ((bool *)user)[number] = true;
}

/* Which functions both sides know: of the others the server has no handlers from now on. -EPROTO if
 * the client does not say. */
static int hello_agree(struct tows_session *session, const struct tow_hello *hello,
                       uint32_t *ret_lacking, uint32_t *ret_count)
{
    *ret_count = 0;
    if (memcmp(hello->table_hash, tow_table_hash, sizeof tow_table_hash) == 0) {
        return 0;
    }
    bool common[TOW_FN_LIMIT] = {false};
    if (hello->functions == 0 ||
        tow_handshake_agree(hello, hash_of, take_common, common, ret_lacking, ret_count) < 0) {
        return -EPROTO;
    }
    for (unsigned number = 0; number < TOW_FN_LIMIT; number++) {
        if (!common[number]) {
            session->table[number] = NULL;
        }
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
            "the client is Towline %s and this Towline " TOWLINE_VERSION ": %u of its functions "
            "are not known here, or otherwise",
            hello->release, *ret_count);
    return 0;
}

static int hello_welcome(struct tows_session *session, uint32_t version, bool lasts,
                         const uint32_t *lacking, uint32_t lacking_count)
{
    uint8_t *snapshot = NULL;
    size_t snapshot_size = 0;
    int error = tows_device_snapshot(session->backend, &snapshot, &snapshot_size);
    if (error < 0) {
        return hello_refuse(session, TOW_REFUSE_DEVICE,
                            "The server has no usable GPU; see its log.");
    }
    struct tow_welcome welcome = {
        .version = version,
        .capabilities = TOW_CAN_TIMELINE | (session->options->in_process
                                                ? 0
                                                : TOW_CAN_OUTLAST | TOW_CAN_LIMIT | TOW_CAN_LINE |
                                                      (session->options->quota ? TOW_CAN_FULL : 0) |
                                                      (lasts ? TOW_CAN_LAST : 0)),
        .session = session->options->id,
        .frame_max = TOW_FRAME_MAX,
        .data_max = TOW_DATA_MAX,
        .snapshot = snapshot,
        .snapshot_size = (uint32_t)snapshot_size,
        .lacking_count = lacking_count,
        .lacking = lacking,
    };
    memcpy(welcome.table_hash, tow_table_hash, sizeof tow_table_hash);
    uint8_t facts[TOW_WELCOME_CONTEXT_MAX];
    struct tow_enc enc = tow_enc_init(facts, sizeof facts);
    if (!session->options->in_process &&
        tows_context_describe_ahead(&session->backend->driver, &enc)) {
        welcome.context = facts;
        welcome.context_size = (uint32_t)(enc.at - facts);
    }
    for (unsigned i = 0; i < session->backend->range_count; i++) {
        welcome.ranges[welcome.range_count++] = (struct tow_range){
            session->backend->ranges[i].base, session->backend->ranges[i].size, TOW_RANGE_DEVICE};
    }
    uint8_t *at = NULL;
    uint32_t length = 0;
    size_t room = snapshot_size + 8192 + lacking_count * sizeof *lacking;
    error = tow_line_reserve(session->line, room, &at);
    if (error >= 0) {
        error = tow_welcome_encode(&welcome, at, room, &length);
    }
    if (error >= 0) {
        tow_line_commit(session->line, length);
    }
    free(snapshot);
    return error;
}

/* Says how, behind the welcome; from then on the line is one that outlives its connection. */
static int hello_lasting(struct tows_session *session, bool lanes)
{
    const struct tows_session_options *options = session->options;
    const struct tow_keep_setup setup = {.limit_ns = (int64_t)options->reconnect_s * TOW_TIME_S};
    struct tow_lasting lasting = {.seconds = options->reconnect_s};
    struct tow_line *line;
    uint8_t *at = NULL;
    uint32_t length = 0;
    memcpy(lasting.secret, options->secret, sizeof lasting.secret);
    int error = tow_line_reserve(session->line, 128, &at);
    if (error >= 0) {
        error = tow_lasting_encode(&lasting, at, 128, &length);
    }
    explicit_bzero(&lasting, sizeof lasting);
    if (error < 0) {
        return error;
    }
    tow_line_commit(session->line, length);
    error = tow_keep_line(session->line, &setup, &line);
    if (error == 0) {
        session->line = line;
        error = tows_lane_await(session, lanes);
    }
    if (error == 0) {
        options->on_lasting(line, setup.limit_ns);
    }
    return error;
}

/* How long both machines may be silent on a network; a client that knows of it is told. */
static int hello_silence(struct tows_session *session, bool told)
{
    uint64_t ms = session->options->silence_ms;
    struct tow_notice notice = {.topic = TOW_NOTICE_SILENCE, .values = {ms, 0}};
    uint8_t *at = NULL;
    uint32_t length = 0;
    tow_line_set_silence(session->line, (int64_t)ms * TOW_TIME_MS);
    if (!told) {
        return 0;
    }
    int error = tow_line_reserve(session->line, 128, &at);
    if (error >= 0) {
        error = tow_notice_encode(&notice, at, 128, &length);
    }
    if (error >= 0) {
        tow_line_commit(session->line, length);
    }
    return error;
}

int tows_session_hello(struct tows_session *session)
{
    struct tow_hello hello;
    struct tow_frame frame;
    const uint8_t *at = NULL;
    int error = read_hello(session, &hello, &at, &frame);
    if (error < 0) {
        return error;
    }
    char why[TOW_SENTENCE_MAX];
    int version = tow_handshake_pick_version(hello.version_min, hello.version_max, TOW_PROTOCOL_MIN,
                                             TOW_PROTOCOL_MAX, why, sizeof why);
    if (version < 0) {
        return hello_refuse(session, TOW_REFUSE_PROTOCOL, why);
    }
    uint32_t lacking[TOW_HELLO_FUNCTIONS_MAX], lacking_count = 0;
    if (hello_agree(session, &hello, lacking, &lacking_count) < 0) {
        return hello_refuse(session, TOW_REFUSE_PROTOCOL, not_understood);
    }
    struct tows_session_stats *stats = session->stats;
    snprintf(stats->client, sizeof stats->client, "%s", hello.name);
    for (char *c = stats->client; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c; /* it ends up on terminals */
    }
    atomic_store(&stats->client_pid, hello.pid);
    atomic_store(&stats->device, -1);
    atomic_store(&stats->started_ns, tow_time_now_ns());
    bool lanes = (hello.capabilities & TOW_CAN_LANES) != 0;
    bool lasts = (hello.capabilities & TOW_CAN_LAST) != 0 && session->options->reconnect_s != 0 &&
                 tow_line_can_break(session->line);
    bool silence = (hello.capabilities & TOW_CAN_SILENCE) != 0;
    tow_line_consume(session->line, frame.length);
    error = hello_welcome(session, (uint32_t)version, lasts, lacking, lacking_count);
    if (error == 0 && lasts) {
        error = hello_lasting(session, lanes);
    }
    if (error == 0 && tow_line_can_break(session->line)) {
        error = hello_silence(session, silence);
    }
    if (error == 0 && lanes) {
        tows_lane_begin(session, true);
    }
    return error < 0 ? error : tows_lane_listen(session);
}
