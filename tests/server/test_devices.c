/* SPDX-License-Identifier: Apache-2.0 */
/* Device files are made where some are missing. The driver's program is a script here. */
#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/walls/devices.h"

static char folder[] = "/tmp/towline-devices-XXXXXX";
static char program[64], devices[64], gpus[64];
static const struct tows_devices_places places = {program, devices, gpus};

static void run(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "cd %s && %s", folder, command);
    assert_int_equal(system(line), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/towline-devices-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/nvidia-modprobe", folder);
    snprintf(devices, sizeof devices, "%s/dev", folder);
    snprintf(gpus, sizeof gpus, "%s/gpus", folder);
    run("mkdir dev gpus");
    FILE *script = fopen(program, "w");
    assert_non_null(script);
    /* As the real one: loads the module, and makes the files that are asked for. */
    fprintf(script,
            "#!/bin/sh\necho \"$* $(set | grep -c ^HOME)\" >> %s/said\n"
            ": > %s/nvidiactl; : > %s/nvidia-uvm; : > %s/nvidia${2#-c=}\n",
            folder, devices, devices, devices);
    assert_int_equal(fclose(script), 0);
    assert_int_equal(chmod(program, 0755), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    run("rm -rf dev gpus said nvidia-modprobe");
    return rmdir(folder);
}

static void expect_said(const char *wanted)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "%s/said", folder);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    assert_string_equal(text, wanted);
}

static void missing_files_are_made(void **state)
{
    (void)state;
    run("mkdir gpus/0000:01:00.0 gpus/0000:02:00.0 gpus/0000:03:00.0");
    tows_devices_make_at(&places);
    expect_said("-u -c=0 0\n-u -c=1 0\n-u -c=2 0\n");
    tows_devices_make_at(&places);
    expect_said("-u -c=0 0\n-u -c=1 0\n-u -c=2 0\n"); /* all are there */
    run("rm dev/nvidia1");
    tows_devices_make_at(&places);
    expect_said("-u -c=0 0\n-u -c=1 0\n-u -c=2 0\n-u -c=1 0\n");
}

static void what_is_not_there_is_not_run(void **state)
{
    (void)state;
    run("rm nvidia-modprobe");
    tows_devices_make_at(&places);
    expect_said("");
    run(": > nvidia-modprobe"); /* nobody may run it; root could not, either */
    tows_devices_make_at(&places);
    expect_said("");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_files_are_made, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_not_run, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
