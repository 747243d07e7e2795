/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of towlined: flags, files, sizes, and what is wrong with them. */
#include "../unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/config/config.h"

static int load(struct tows_config *config, char *why, const char *const *flags)
{
    /* Never this machine's own file. */
    char *argv[16] = {(char *)"towlined", (char *)"--config=/dev/null"};
    int argc = 2;
    while (*flags != NULL) {
        argv[argc++] = (char *)*flags++;
    }
    return tows_config_load(argc, argv, config, why, 512);
}
#define LOAD(config, why, ...) load(config, why, (const char *const[]){__VA_ARGS__, NULL})

static void sizes_are_understood(void **state)
{
    uint64_t size = 0;
    assert_int_equal(tows_config_parse_size("4096", &size), 0);
    assert_int_equal(size, 4096);
    assert_int_equal(tows_config_parse_size("16G", &size), 0);
    assert_true(size == UINT64_C(16) << 30);
    assert_int_equal(tows_config_parse_size("2MiB", &size), 0);
    assert_int_equal(size, 2 << 20);
    static const char *const bad[] = {
        "", "G", "-1", "1X", "1GG", "99999999999999999999", "99999999999T", "1 G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tows_config_parse_size(bad[i], &size), -EINVAL);
    }
}

static void capabilities_are_understood(void **state)
{
    uint64_t capability = 0;
    assert_int_equal(tows_config_parse_capability("12.1", &capability), 0);
    assert_int_equal(capability, 121);
    assert_int_equal(tows_config_parse_capability("9", &capability), 0);
    assert_int_equal(capability, 90);
    assert_int_equal(tows_config_parse_capability("9.", &capability), -EINVAL);
    assert_int_equal(tows_config_parse_capability("9.10", &capability), -EINVAL);
    assert_int_equal(tows_config_parse_capability("x", &capability), -EINVAL);
}

static void flags_are_understood(void **state)
{
    static struct tows_config config;
    char why[512] = "";
    assert_int_equal(LOAD(&config, why, "-l", "unix:///a", "--listen=tcp://b:1", "--device", "soft",
                          "--soft-memory=1G", "--socket-mode=0660", "--max-sessions", "3"),
                     TOW_CONFIG_GO);
    assert_int_equal(config.listen_count, 2);
    assert_string_equal(config.listen[1], "tcp://b:1");
    assert_string_equal(config.device, "soft");
    assert_true(config.soft_memory == UINT64_C(1) << 30);
    assert_int_equal(config.socket_mode, 0660);
    assert_int_equal(config.max_sessions, 3);
    assert_int_equal(config.allow_anyone, 0);
    assert_int_equal(LOAD(&config, why, "--allow-anyone", "--allow-users", "ann,7",
                          "--allow-users=bob", "--allow-groups="),
                     TOW_CONFIG_GO);
    assert_int_equal(config.allow_anyone, 1);
    assert_string_equal(config.allow_users, "ann,7,bob,");
    assert_string_equal(config.allow_groups, ",");
    assert_int_equal(LOAD(&config, why, "--allow-anyone=0"), TOW_CONFIG_GO);
    assert_int_equal(config.allow_anyone, 0);
    assert_int_equal(LOAD(&config, why, "--help"), TOW_CONFIG_HELP);
    assert_int_equal(LOAD(&config, why, "-V"), TOW_CONFIG_VERSION);
}

static void wrong_flags_are_named(void **state)
{
    static struct tows_config config;
    static const char *const bad[] = {
        "--nonsense", "--soft-memory=x",   "--idle-workers=100000", "--listen",
        "stray",      "--socket-mode=999", "--allow-anyone=2",      "--allow-anyone=yes"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char why[512] = "";
        assert_true(LOAD(&config, why, bad[i]) < 0);
        assert_true(why[0] != '\0');
    }
}

static void sizes_and_capabilities_are_numbers(void **state)
{
    static const char *const wrong[] = {
        "", "x", "-1", "1X", "1KK", "1KiBs", "16777216T", "1 K", "99999999999999999999"};
    static const char *const none[] = {
        "", "0", "100", "8.", "8.10", "8.x", "8.6x", "-8", "99999999999999999999"};
    uint64_t value = 0;
    assert_int_equal(tows_config_parse_size("0", &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(tows_config_parse_size("3k", &value), 0);
    assert_int_equal(value, 3072);
    assert_int_equal(tows_config_parse_size("5MiB", &value), 0);
    assert_int_equal(value, 5 << 20);
    assert_int_equal(tows_config_parse_size("16777215TB", &value), 0);
    assert_true(value == UINT64_C(16777215) << 40);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tows_config_parse_size(wrong[i], &value), -EINVAL);
    }
    assert_int_equal(tows_config_parse_capability("9", &value), 0);
    assert_int_equal(value, 90);
    assert_int_equal(tows_config_parse_capability("8.6", &value), 0);
    assert_int_equal(value, 86);
    assert_int_equal(tows_config_parse_capability("99.9", &value), 0);
    assert_int_equal(value, 999);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(tows_config_parse_capability(none[i], &value), -EINVAL);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void file_and_flags_together(void **state)
{
    char path[] = "/tmp/towline-test-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_file(
        path, "# comment\n\n listen = unix:///from-file # why\nidle-workers=4\ndevice = /a#b.so\n");
    static struct tows_config config;
    char why[512] = "";
    char flag[64];
    snprintf(flag, sizeof flag, "--config=%s", path);
    char *argv[] = {(char *)"towlined", flag, (char *)"--idle-workers=2", NULL};
    assert_int_equal(tows_config_load(3, argv, &config, why, sizeof why), TOW_CONFIG_GO);
    assert_int_equal(config.listen_count, 1);
    assert_string_equal(config.listen[0], "unix:///from-file");
    assert_string_equal(config.device, "/a#b.so");
    assert_int_equal(config.idle_workers, 2);
    char *more[] = {(char *)"towlined", flag, (char *)"-lunix:///flag", NULL};
    assert_int_equal(tows_config_load(3, more, &config, why, sizeof why), TOW_CONFIG_GO);
    assert_int_equal(config.listen_count, 1);
    assert_string_equal(config.listen[0], "unix:///flag");

    write_file(path, "allow-users = ann\nallow-users = bob, eve\n");
    assert_int_equal(tows_config_load(2, argv, &config, why, sizeof why), TOW_CONFIG_GO);
    assert_string_equal(config.allow_users, "ann,bob, eve,");
    char *flags[] = {(char *)"towlined", flag, (char *)"--allow-users=flag", NULL};
    assert_int_equal(tows_config_load(3, flags, &config, why, sizeof why), TOW_CONFIG_GO);
    assert_string_equal(config.allow_users, "flag,");

    write_file(path, "idle-workers = 1\nnonsense\n");
    assert_int_equal(tows_config_load(2, argv, &config, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, ":2:"));
    write_file(path, "worker = 1\n");
    assert_int_equal(tows_config_load(2, argv, &config, why, sizeof why), -EINVAL);
    unlink(path);
    assert_true(tows_config_load(2, argv, &config, why, sizeof why) < 0);
}

static void worker_gets_the_same_settings(void **state)
{
    static struct tows_config config, worker;
    char why[512] = "", text[4096];
    char *args[TOW_CONFIG_ARGS_MAX + 2] = {(char *)"towlined", (char *)"--worker"};
    assert_int_equal(LOAD(&config, why, "--device=/x y.so", "--soft-capability=9.0",
                          "--soft-memory=3G", "--code-cache=0", "--soft-threads=3",
                          "--scheduler=mps"),
                     TOW_CONFIG_GO);
    int count = tows_config_worker_args(&config, text, sizeof text, args + 2);
    assert_true(count > 0);
    assert_int_equal(tows_config_load(count + 2, args, &worker, why, sizeof why), TOW_CONFIG_GO);
    assert_true(worker.worker);
    assert_string_equal(worker.device, config.device);
    assert_int_equal(worker.soft_capability, 90);
    assert_true(worker.soft_memory == config.soft_memory);
    assert_int_equal(worker.soft_threads, 3);
    assert_int_equal(worker.code_cache, 0);
    assert_int_equal(worker.scheduler, TOW_CONFIG_MPS);
    assert_int_equal(tows_config_worker_args(&config, text, 20, args), -E2BIG);
}

static void users_are_a_range_or_none(void **state)
{
    static struct tows_config config, worker;
    static const char *const wrong[] = {
        "5",        "5:",           "0:10000",          ":10000",
        "5:9999",   "-5:10000",     "4294967295:10000", "5:4294967295",
        "5:10000x", "5:10000:10000"};
    char why[512] = "", text[4096], flag[64];
    char *args[TOW_CONFIG_ARGS_MAX + 2] = {(char *)"towlined", (char *)"--worker"};
    static const char *const right[] = {"--tenant-users=0", "--tenant-users=5:10000",
                                        "--tenant-users=4294957295:10000"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_int_equal(LOAD(&config, why, right[i]), TOW_CONFIG_GO);
        int count = tows_config_worker_args(&config, text, sizeof text, args + 2);
        assert_int_equal(tows_config_load(count + 2, args, &worker, why, sizeof why),
                         TOW_CONFIG_GO);
        assert_memory_equal(&worker.tenant_users, &config.tenant_users, sizeof config.tenant_users);
        assert_int_equal(config.tenant_users.count, i == 0 ? 0 : 10000);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(flag, sizeof flag, "--tenant-users=%s", wrong[i]);
        assert_int_equal(LOAD(&config, why, flag), -EINVAL);
        assert_non_null(strstr(why, "FIRST:COUNT"));
    }
}

static void settings_of_self_are_applied(void **state)
{
    static struct tows_config config;
    char why[512] = "";
    tows_config_defaults(&config);
    assert_int_equal(
        tows_config_apply(&config, "soft-devices=3,device=soft", "self:", why, sizeof why), 0);
    assert_int_equal(config.soft_devices, 3);
    assert_string_equal(config.device, "soft");
    assert_int_equal(tows_config_apply(&config, "soft-devices=3,bad", "self:", why, sizeof why),
                     -EINVAL);
    assert_int_equal(tows_config_apply(&config, "", "self:", why, sizeof why), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_understood),
        cmocka_unit_test(capabilities_are_understood),
        cmocka_unit_test(flags_are_understood),
        cmocka_unit_test(wrong_flags_are_named),
        cmocka_unit_test(sizes_and_capabilities_are_numbers),
        cmocka_unit_test(file_and_flags_together),
        cmocka_unit_test(worker_gets_the_same_settings),
        cmocka_unit_test(users_are_a_range_or_none),
        cmocka_unit_test(settings_of_self_are_applied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
