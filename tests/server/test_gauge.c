/* What the report takes from NVIDIA's management library. The argument is the path of a driver
 * library beside which pretend_nvml.c stands. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "server/gauge.h"

static int failures;

static void has(const char *report, const char *text)
{
    if (strstr(report, text) == NULL) {
        printf("the report has no %s: %s\n", text, report);
        failures++;
    }
}

int main(int argc, char **argv)
{
    struct tow_gauge gauge = {0};
    struct tow_buf buf;
    struct tow_json json;
    if (argc != 2 || tow_gauge_start(&gauge, argv[1]) != 0) {
        printf("no gauges\n");
        return 1;
    }
    uint64_t ticket = tow_gauge_ask(&gauge);
    for (int i = 0; i < 100 && !tow_gauge_has(&gauge, ticket); i++) {
        struct pollfd news = {.fd = tow_gauge_fd(&gauge), .events = POLLIN};
        poll(&news, 1, 100);
        tow_gauge_hear(&gauge);
    }
    tow_buf_init(&buf, 1 << 20);
    tow_json_init(&json, &buf);
    tow_json_object(&json, NULL);
    tow_gauge_write(&gauge, &json);
    tow_json_end(&json);
    if (tow_json_finish(&json) != 0 || tow_buf_append(&buf, "", 1) != 0) {
        printf("no report\n");
        return 1;
    }
    const char *report = (const char *)buf.data;
    has(report, "\"driver\":\"580.1\"");
    has(report, "\"uuid\":\"GPU-1\"");
    has(report, "\"power\":70000,");
    has(report, "\"ecc_current\":1,\"ecc_pending\":0,");
    has(report, "\"ecc_corrected\":101,\"ecc_corrected_ever\":102,");
    has(report, "\"ecc_uncorrected\":201,\"ecc_uncorrected_ever\":202");
    has(report, "\"virtualization\":1,\"inforom\":14");
    if (strstr(report, "fan_speed") != NULL) {
        printf("what failed is reported: %s\n", report);
        failures++;
    }
    tow_gauge_stop(&gauge);
    tow_buf_fini(&buf);
    printf("%s\n", failures == 0 ? "OK" : "FAILED");
    return failures != 0;
}
