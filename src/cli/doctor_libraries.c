/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: libraries that a program asks for by name and that are not here. Towline brings
 * the driver's two; all others of NVIDIA are the program's to bring. */
#include "cli/doctor.h"

#include <glob.h>
#include <string.h>
#include <unistd.h>

/* Of the toolkit, and of what is installed beside it. */
static const char *const toolkit[] = {
    "libcudart.",  "libcublas",     "libcudnn",     "libcufft",   "libcurand.", "libcusolver",
    "libcusparse", "libnvrtc",      "libnvJitLink", "libnccl.",   "libcupti.",  "libnpp",
    "libnvjpeg.",  "libnvToolsExt", "libcutensor",  "libnvinfer", "libcufile",  "libnvshmem",
};

/* Of NVIDIA's driver; Towline has nothing in their place. */
static const char *const driver[] = {"libnvcuvid.", "libnvidia-", "libnvoptix.",
                                     "libcudadebugger."};

static bool libraries_has(const char *const *known, size_t count, const char *name)
{
    bool has = false;
    for (size_t i = 0; i < count; i++) {
        has |= strncmp(name, known[i], strlen(known[i])) == 0;
    }
    return has;
}
#define LIBRARIES_HAS(known, name) libraries_has(known, sizeof(known) / sizeof *(known), name)

/* A folder of this machine that has it, where the toolkit and pip put them. */
static bool libraries_find(const char *name, char ret_folder[PATH_MAX])
{
    static const char *const places[] = {
        "/usr/local/cuda*/lib64/%s",
        "/usr/local/cuda*/targets/*/lib/%s",
        "/opt/cuda*/lib64/%s",
        "/usr/local/lib/python3*/*-packages/nvidia/*/lib/%s",
        "/usr/lib/python3*/*-packages/nvidia/*/lib/%s",
    };
    bool found = false;
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        char pattern[PATH_MAX];
        glob_t files;
        snprintf(pattern, sizeof pattern, places[i], name);
        if (glob(pattern, 0, NULL, &files) == 0) {
            found = files.gl_pathc > 0;
            snprintf(ret_folder, PATH_MAX, "%.*s",
                     (int)(strlen(files.gl_pathv[0]) - strlen(name) - 1), files.gl_pathv[0]);
            globfree(&files);
        }
    }
    return found;
}

static void libraries_say(struct tow_doctor *doctor, const char *program, const char *name)
{
    char folder[PATH_MAX];
    if (LIBRARIES_HAS(driver, name)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "library",
                       "%s wants %s, a part of NVIDIA's driver that Towline has nothing for",
                       program, name);
        tow_doctor_mend(doctor, "build the program without it, or run it on the GPU's machine");
    } else if (LIBRARIES_HAS(toolkit, name) && libraries_find(name, folder)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "library",
                       "%s wants NVIDIA's %s, which is in %s, where the loader does not look",
                       program, name, folder);
        tow_doctor_mend(doctor, "export LD_LIBRARY_PATH=%s", folder);
    } else if (LIBRARIES_HAS(toolkit, name)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "library",
                       "%s wants NVIDIA's %s, which is not found; Towline replaces the driver, not "
                       "the toolkit's libraries",
                       program, name);
        tow_doctor_mend(doctor, "install the CUDA toolkit's libraries of that version, or export "
                                "LD_LIBRARY_PATH=FOLDER where they are");
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "library", "%s wants %s, which is not found",
                       program, name);
        tow_doctor_mend(doctor, "install %s, or export LD_LIBRARY_PATH=FOLDER where it is", name);
    }
}

/* Lines "\tNAME => not found", and of a C library that is too old: "... version `X' not found ..."
 */
void tow_doctor_libraries(struct tow_doctor *doctor, const char *program, const char *said)
{
    static const char missing[] = " => not found";
    unsigned found = 0;
    for (const char *line = said; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        const char *arrow = memmem(line, length, missing, strlen(missing));
        const char *version = memmem(line, length, "version `", 9);
        if (line[0] == '\t' && arrow != NULL) {
            char name[NAME_MAX + 1];
            snprintf(name, sizeof name, "%.*s", (int)(arrow - line - 1), line + 1);
            libraries_say(doctor, program, name);
            found++;
        } else if (version != NULL) {
            tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "library", "%.*s", (int)length, line);
            tow_doctor_mend(doctor, "install the library in that version, or newer");
            found++;
        }
        line += length + (line[length] == '\n');
    }
    if (found == 0 && doctor->program != NULL) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "library",
                       "all libraries that %s names are found; what it opens later is not known",
                       program);
    }
}
