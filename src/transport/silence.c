/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at TCP_INFO, and what they mean. */
#include "transport/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/clock.h"

#define SILENT_LOOKS 3
#define UNANSWERED 2 /* packets: one may be lost, and the next come much later */

bool tow_silence_step(struct tow_silence *silence, const struct tow_silence_seen *seen,
                      int64_t limit_ns, int64_t now_ns)
{
    int64_t quarter = limit_ns / TOW_SILENCE_LOOKS;
    uint32_t heard_ms =
        seen->last_ack_ms < seen->last_data_ms ? seen->last_ack_ms : seen->last_data_ms;
    int64_t heard_ns = (int64_t)heard_ms * TOW_TIME_MS;
    bool owed = seen->unacked > 0 ? seen->retransmits >= UNANSWERED : seen->probes >= UNANSWERED;
    if (limit_ns == 0 || !owed || heard_ns < quarter) {
        silence->silent = 0;
        silence->looked_ns = now_ns;
        return false;
    }
    if (silence->looked_ns != 0 && now_ns - silence->looked_ns < quarter * 3 / 4) {
        return false;
    }
    silence->looked_ns = now_ns;
    silence->silent++;
    return silence->silent >= SILENT_LOOKS && heard_ns >= SILENT_LOOKS * quarter;
}

bool tow_silence_look(struct tow_silence *silence, int fd, int64_t limit_ns, bool early)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    int64_t now = tow_time_now_ns();
    if (early && silence->looked_ns == 0) {
        silence->looked_ns = now;
    }
    if (limit_ns == 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
        return false;
    }
    struct tow_silence_seen seen = {
        .unacked = info.tcpi_unacked,
        .retransmits = info.tcpi_retransmits,
        .probes = info.tcpi_probes,
        .last_ack_ms = info.tcpi_last_ack_recv,
        .last_data_ms = info.tcpi_last_data_recv,
    };
    return tow_silence_step(silence, &seen, limit_ns, now);
}
