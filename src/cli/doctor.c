/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: would a program run here, on which GPU, and if not, why. One file for each
 * group of checks. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>

enum { JSON_MAX = 1 << 20 };

static const struct tow_flag doctor_flags[] = {
    {"-s", "--server", "ADDRESS", 's'},
    {NULL, "--json", NULL, 'j'},
    {NULL, NULL, NULL, 0},
};

static void doctor_begin(struct tow_doctor *doctor)
{
    tow_buf_init(&doctor->text, JSON_MAX);
    tow_json_init(&doctor->out, &doctor->text);
    tow_json_object(&doctor->out, NULL);
    tow_json_str(&doctor->out, "version", TOWLINE_VERSION);
    if (doctor->program != NULL) {
        tow_json_str(&doctor->out, "program", doctor->program);
    }
    tow_json_array(&doctor->out, "findings");
}

static int doctor_end(struct tow_doctor *doctor)
{
    bool runs = doctor->count[TOW_DOCTOR_WRONG] == 0;
    if (!doctor->json) {
        unsigned wrong = doctor->count[TOW_DOCTOR_WRONG];
        unsigned warnings = doctor->count[TOW_DOCTOR_WARNING];
        printf("\n%s%s%s: %u wrong, %u warning%s\n",
               tow_cli_colour(stdout, runs ? TOW_GREEN : TOW_RED),
               runs ? "A program would run" : "A program would not run, or not as it should",
               tow_cli_colour(stdout, TOW_PLAIN), wrong, warnings, warnings == 1 ? "" : "s");
        return 0;
    }
    const struct tow_doctor_figures *figures = &doctor->figures;
    tow_doctor_close(doctor);
    tow_json_end(&doctor->out);
    if (figures->launch_us > 0) {
        tow_json_object(&doctor->out, "figures");
        tow_json_f64(&doctor->out, "launch_us", figures->launch_us);
        tow_json_f64(&doctor->out, "up_gb_s", figures->up_gb);
        tow_json_f64(&doctor->out, "down_gb_s", figures->down_gb);
        tow_json_end(&doctor->out);
    }
    tow_json_bool(&doctor->out, "runs", runs);
    tow_json_end(&doctor->out);
    int error = tow_json_finish(&doctor->out);
    if (error < 0) {
        tow_cli_say("the findings cannot be written: %s", strerror(-error));
    } else {
        printf("%.*s\n", (int)doctor->text.size, (const char *)doctor->text.data);
    }
    return error;
}

static int doctor_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_doctor, .argc = argc, .argv = argv, .at = 1};
    struct tow_doctor *doctor = calloc(1, sizeof *doctor);
    const char *value;
    int key;
    if (doctor == NULL) {
        tow_cli_say("memory is used up");
        return TOW_EXIT_FAILED;
    }
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        doctor->flag = key == 's' ? value : doctor->flag;
        doctor->json |= key == 'j';
    }
    if (key == TOW_FLAG_STOP) {
        free(doctor);
        return flags.code;
    }
    doctor->program = flags.at < argc ? argv[flags.at] : NULL;
    doctor_begin(doctor);
    doctor->installed = tow_cli_find_folders(doctor->bin_dir, doctor->lib_dir) == 0;
    tow_doctor_settings(doctor);
    tow_doctor_loader(doctor);
    tow_doctor_server(doctor);
    tow_doctor_speed(doctor);
    tow_doctor_rights(doctor);
    int code = doctor_end(doctor) < 0 || doctor->count[TOW_DOCTOR_WRONG] > 0 ? TOW_EXIT_FAILED : 0;
    tow_buf_fini(&doctor->text);
    free(doctor);
    return code;
}

const struct tow_command tow_command_doctor = {
    .name = "doctor",
    .summary = "say whether a program would run, and if not, why",
    .help =
        "towline doctor [-s ADDRESS] [--json] [--] [PROGRAM]\n"
        "\n"
        "Says whether a CUDA program would run here and on which GPU, and if not, why, and what to "
        "do.\n"
        "\n"
        "  towline doctor                              as towline run would find it\n"
        "  towline doctor -s gpuhost -- ./app          with that server, and of that program\n"
        "  towline doctor -- python3                   which libcuda.so.1 Python gets\n"
        "\n"
        "  -s, --server ADDRESS  as in towline run; without it the same server is found\n"
        "  --json                all findings as one object: group, check, level (ok, hint, "
        "warning, wrong),\n"
        "                        text and mend of each; measured figures; runs, true or false\n"
        "\n"
        "It looks at the settings, at what the loader does with PROGRAM (it is not started; a "
        "library may be\n"
        "named, too), at the server and the way to it, measures a launch and copies there with a "
        "trial\n"
        "program, and looks at what this system permits. Where no server is named and none "
        "listens it\n"
        "starts a private one, as towline run does.\n"
        "Exit code: 0 where a program would run, 1 where not. Warnings do not count.\n",
    .flags = doctor_flags,
    .leads = true,
    .run = doctor_main,
};
