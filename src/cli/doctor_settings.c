/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: what belongs to this towline, and variables that change what programs see. */
#include "cli/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void settings_say_mistake(void *user, enum tow_variable_mistake mistake, const char *why)
{
    struct tow_doctor *doctor = user;
    size_t name = strcspn(why, "=: ");
    tow_doctor_say(doctor, mistake == TOW_VARIABLE_WRONG ? TOW_DOCTOR_WRONG : TOW_DOCTOR_WARNING,
                   "variable", "%s", why);
    if (mistake == TOW_VARIABLE_UNKNOWN) {
        tow_doctor_mend(doctor, "write the variable's name as the sentence says");
    } else {
        tow_doctor_mend(doctor, "unset %.*s", (int)name, why);
    }
}

static bool settings_has(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* Variables that somebody set to find a mistake, and forgot. */
static void settings_find_slow(struct tow_doctor *doctor)
{
    static const struct {
        const char *name, *what;
    } slow[] = {
        {"TOWLINE_SYNC", "every call waits for its answer"},
        {"CUDA_LAUNCH_BLOCKING", "every launch waits until its kernel is done"},
        {"TOWLINE_TRACE", "every call is written down"},
    };
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        if (settings_has(slow[i].name)) {
            tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "slow", "%s=%s makes programs slow: %s",
                           slow[i].name, getenv(slow[i].name), slow[i].what);
            tow_doctor_mend(doctor, "unset %s", slow[i].name);
        }
    }
    if (getenv("TOWLINE_LANES") != NULL && strcmp(getenv("TOWLINE_LANES"), "1") == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "slow",
                       "TOWLINE_LANES=1: large copies over a network get one connection");
        tow_doctor_mend(doctor, "unset TOWLINE_LANES");
    }
}

static void settings_find_hidden(struct tow_doctor *doctor)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible == NULL) {
        return;
    }
    bool none = visible[0] == '\0' || visible[0] == '-';
    tow_doctor_say(doctor, none ? TOW_DOCTOR_WRONG : TOW_DOCTOR_HINT, "visible",
                   none ? "CUDA_VISIBLE_DEVICES=%s hides all GPUs from programs"
                        : "CUDA_VISIBLE_DEVICES=%s: programs see these of the servers' GPUs alone",
                   visible);
    if (none) {
        tow_doctor_mend(doctor, "unset CUDA_VISIBLE_DEVICES");
    }
}

void tow_doctor_settings(struct tow_doctor *doctor)
{
    tow_doctor_group(doctor, "Towline " TOWLINE_VERSION);
    if (doctor->installed) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "installed", "its libraries are in %s",
                       doctor->lib_dir);
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "installed",
                       "its libcuda.so.1 is not beside this program");
        tow_doctor_mend(doctor, "build it with make, or install it again");
    }
    if (tow_environment_check(settings_say_mistake, doctor) == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "variable",
                       "no variable TOWLINE_... keeps programs from starting");
    }
    settings_find_hidden(doctor);
    settings_find_slow(doctor);
}
