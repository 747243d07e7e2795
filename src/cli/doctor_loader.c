/* SPDX-License-Identifier: Apache-2.0 */
/* `towline doctor`: which libcuda.so.1 a program gets, and why. The loader itself is asked: it
 * lists what it would load (nothing is run), with one more library to preload, libcuda.so.1. A
 * name without a folder is searched for as dlopen() of the program searches. */
#include "cli/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/file.h"

enum { SCRIPTS_MAX = 4, LIBRARY_BYTES_MAX = 256 << 20, LOADER_S = 60 };

#define LIBCUDA "libcuda.so.1"

/* What the loader found. */
struct loader_answer {
    char path[PATH_MAX];   /* of libcuda.so.1; "": none */
    char reason[PATH_MAX]; /* the loader's word for the last place where it looked */
};

/* ---- whose library it is ---- */

/* Whether a file has these words in it. */
static bool loader_has(const char *path, const char *words)
{
    struct tow_buf text;
    tow_buf_init(&text, LIBRARY_BYTES_MAX);
    bool has = tow_file_read(path, &text) == 0 &&
               memmem(text.data, text.size, words, strlen(words)) != NULL;
    tow_buf_fini(&text);
    return has;
}

enum loader_owner { OWNER_US, OWNER_TOWLINE, OWNER_STUB, OWNER_OTHER };

static enum loader_owner loader_whose(const struct tow_doctor *doctor, const char *path,
                                      char ret_text[256])
{
    char ours[PATH_MAX + 32], real[PATH_MAX];
    struct stat one, other;
    snprintf(ours, sizeof ours, "%s/" LIBCUDA, doctor->lib_dir);
    if (realpath(path, real) == NULL) {
        snprintf(real, sizeof real, "%s", path);
    }
    if (stat(path, &one) == 0 && stat(ours, &other) == 0 && one.st_dev == other.st_dev &&
        one.st_ino == other.st_ino) {
        snprintf(ret_text, 256, "Towline's");
        return OWNER_US;
    }
    if (loader_has(real, "TOWLINE_SERVER")) {
        snprintf(ret_text, 256, "of another Towline");
        return OWNER_TOWLINE;
    }
    const char *version = strstr(real, "libcuda.so.");
    version = version != NULL ? version + strlen("libcuda.so.") : "";
    if (strstr(path, "/stubs/") != NULL) {
        snprintf(ret_text, 256, "a stub of the CUDA toolkit, for linking, which runs nothing");
        return OWNER_STUB;
    }
    if (strstr(path, "/wsl/") != NULL) {
        snprintf(ret_text, 256, "the driver of WSL");
    } else if (strstr(path, "/compat/") != NULL) {
        snprintf(ret_text, 256, "of NVIDIA's package cuda-compat, which needs NVIDIA's driver");
    } else if (strchr(version, '.') != NULL) {
        snprintf(ret_text, 256, "NVIDIA's driver %.32s", version);
    } else {
        snprintf(ret_text, 256, "not Towline's");
    }
    return OWNER_OTHER;
}

/* ---- asking the loader ---- */

struct loader_order {
    const char *lib_dir; /* NULL: as things are, without towline run */
};

static void loader_prepare(const void *user)
{
    const struct loader_order *order = user;
    const char *before = getenv("LD_PRELOAD");
    char preload[PATH_MAX * 2];
    snprintf(preload, sizeof preload, "%s%s" LIBCUDA, before != NULL ? before : "",
             before != NULL ? ":" : "");
    if (order->lib_dir != NULL) {
        tow_cli_set_environment(order->lib_dir, NULL);
    }
    unsetenv("LD_DEBUG_OUTPUT");
    unsetenv("LD_VERBOSE");
    setenv("LD_TRACE_LOADED_OBJECTS", "1", 1); /* as ldd: it lists and ends */
    setenv("LD_DEBUG", "libs", 1);
    setenv("LD_PRELOAD", preload, 1);
}

/* A line of LD_DEBUG=libs without the process number, NULL if it is none. */
static const char *loader_debug_line(const char *line)
{
    const char *at = line + strspn(line, " ");
    size_t digits = strspn(at, "0123456789");
    return at > line && digits > 0 && at[digits] == ':' ? at + digits + 1 : NULL;
}

/* The search for libcuda.so.1, line by line. */
static void loader_take_search(struct loader_answer *answer, const char *line, bool *searching)
{
    line += strspn(line, " \t");
    if (strncmp(line, "find library=", 13) == 0) {
        *searching = strncmp(line + 13, LIBCUDA " ", strlen(LIBCUDA) + 1) == 0;
    } else if (*searching && strncmp(line, "search cache=", 13) == 0) {
        snprintf(answer->reason, sizeof answer->reason, "%s", line + 13);
    } else if (*searching && strncmp(line, "search path=", 12) == 0) {
        const char *why = strrchr(line, '\t');
        snprintf(answer->reason, sizeof answer->reason, "%s", why != NULL ? why + 1 : "");
    } else if (line[0] == '\0') {
        *searching = false;
    }
}

/* A line of the list: "\tlibcuda.so.1 => /PATH (0x...)", or "\t/PATH/libcuda.so.1 (0x...)". */
static void loader_take_listed(struct loader_answer *answer, const char *line)
{
    const char *arrow = strstr(line, " => ");
    const char *path = arrow != NULL ? arrow + 4 : line + 1;
    size_t length = strcspn(path, "(");
    size_t name = arrow != NULL ? (size_t)(arrow - line - 1) : 0;
    bool ours = arrow != NULL ? name == strlen(LIBCUDA) && memcmp(line + 1, LIBCUDA, name) == 0
                              : strstr(path, "/libcuda.so") != NULL;
    if (line[0] == '\t' && ours && path[0] == '/' && length > 1 && length < PATH_MAX &&
        answer->path[0] == '\0') {
        snprintf(answer->path, sizeof answer->path, "%.*s", (int)length - 1, path);
    }
}

/* Asks; what the loader said stays in `said`. */
static int loader_ask(const char *loader, const char *program, const char *lib_dir,
                      struct loader_answer *ret_answer, struct tow_buf *said)
{
    const char *args[] = {loader, program, NULL};
    const struct loader_order order = {lib_dir};
    int status = tow_doctor_run(args, loader_prepare, &order, LOADER_S, said);
    memset(ret_answer, 0, sizeof *ret_answer);
    if (status < 0) {
        return status;
    }
    bool searching = false;
    char *rest = (char *)said->data, *line;
    struct tow_buf list;
    tow_buf_init(&list, said->size + 1);
    while ((line = strsep(&rest, "\n")) != NULL) {
        const char *debug = loader_debug_line(line);
        if (debug != NULL) {
            loader_take_search(ret_answer, debug, &searching);
        } else {
            loader_take_listed(ret_answer, line);
            tow_buf_printf(&list, "%s\n", line);
        }
    }
    /* The list alone is for whoever reads on. */
    tow_buf_fini(said);
    *said = list;
    int error = tow_buf_append(said, "", 1);
    return error < 0 ? error : status;
}

/* ---- what stands in the way ---- */

/* The variables of the loader do not hold for a program that gets rights by its file. */
static bool loader_is_privileged(const char *path)
{
    struct stat file;
    if (stat(path, &file) != 0) {
        return false;
    }
    return ((file.st_mode & S_ISUID) != 0 && file.st_uid != getuid()) ||
           ((file.st_mode & S_ISGID) != 0 && file.st_gid != getgid()) ||
           getxattr(path, "security.capability", NULL, 0) > 0;
}

static void loader_say_without(struct tow_doctor *doctor, const char *loader, const char *program)
{
    struct loader_answer answer;
    struct tow_buf said;
    char whose[256];
    if (loader_ask(loader, program, NULL, &answer, &said) >= 0) {
        enum loader_owner owner =
            answer.path[0] == '\0' ? OWNER_OTHER : loader_whose(doctor, answer.path, whose);
        if (answer.path[0] == '\0') {
            tow_doctor_say(doctor, TOW_DOCTOR_HINT, "without",
                           "started without towline run it finds no " LIBCUDA);
        } else if (owner != OWNER_US) {
            tow_doctor_say(doctor, owner == OWNER_STUB ? TOW_DOCTOR_WARNING : TOW_DOCTOR_HINT,
                           "without", "started without towline run it gets %s, %s %s", answer.path,
                           whose, answer.reason);
        } else {
            tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "without",
                           "started without towline run it gets the same %s", answer.reason);
        }
        if (answer.path[0] == '\0' || owner != OWNER_US) {
            tow_doctor_mend(doctor, "towline run -- %s",
                            doctor->program != NULL ? doctor->program : "PROGRAM");
        }
    }
    tow_buf_fini(&said);
}

static void loader_judge(struct tow_doctor *doctor, const struct loader_answer *answer)
{
    char whose[256];
    const char *named = doctor->program != NULL ? doctor->program : "PROGRAM";
    const char *subject = doctor->program != NULL ? doctor->program : "a program";
    if (answer->path[0] == '\0') {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "libcuda",
                       "the loader finds no " LIBCUDA " that %s can use, not even in %s", subject,
                       doctor->lib_dir);
        tow_doctor_mend(doctor, "build Towline on this machine with make, or install it again");
        return;
    }
    enum loader_owner owner = loader_whose(doctor, answer->path, whose);
    if (owner == OWNER_US) {
        tow_doctor_say(doctor, TOW_DOCTOR_GOOD, "libcuda", "%s gets %s, %s %s", subject,
                       answer->path, whose,
                       answer->reason[0] != '\0' ? answer->reason : "(LD_PRELOAD)");
        return;
    }
    if (answer->reason[0] == '\0') {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "libcuda",
                       "%s gets %s (%s), because LD_PRELOAD names it", subject, answer->path,
                       whose);
        tow_doctor_mend(doctor, "unset LD_PRELOAD");
    } else {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "libcuda",
                       "%s gets %s (%s) %s: that is searched before LD_LIBRARY_PATH, which towline "
                       "run sets",
                       subject, answer->path, whose, answer->reason);
        tow_doctor_mend(doctor, "LD_PRELOAD=%s/" LIBCUDA " towline run -- %s", doctor->lib_dir,
                        named);
    }
}

/* NVIDIA's driver where distributions and containers have it: said, since it is not used. */
static void loader_say_others(struct tow_doctor *doctor)
{
    static const char *const places[] = {
        "/usr/lib/wsl/lib",
        "/usr/local/cuda/compat",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/local/nvidia/lib64",
        "/usr/lib/nvidia",
        "/usr/lib/x86_64-linux-gnu/nvidia/current",
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[PATH_MAX], whose[256];
        snprintf(path, sizeof path, "%s/" LIBCUDA, places[i]);
        if (access(path, R_OK) == 0 && loader_whose(doctor, path, whose) != OWNER_US) {
            tow_doctor_say(doctor, TOW_DOCTOR_HINT, "others",
                           "%s is on this machine, too: %s; programs of towline run do not get it",
                           path, whose);
        }
    }
    if (access("/dev/dxg", F_OK) == 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "wsl",
                       "this is WSL: programs of towline run use the server's GPU, not that of "
                       "Windows");
    }
}

/* ---- the program ---- */

/* The program that a script names in its first line. -ENOENT: it is no script. */
static int loader_script(const char *path, char ret_name[PATH_MAX])
{
    char line[PATH_MAX] = "", *rest = line + 2, *word;
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (!read || strncmp(line, "#!", 2) != 0) {
        return -ENOENT;
    }
    ret_name[0] = '\0';
    while ((word = strsep(&rest, " \t\n")) != NULL) {
        const char *slash = strrchr(word, '/');
        bool env = strcmp(slash != NULL ? slash + 1 : word, "env") == 0;
        /* What is behind env, but its flags and variables, is the program. */
        if (word[0] != '\0' && !env && word[0] != '-' && strchr(word, '=') == NULL) {
            snprintf(ret_name, PATH_MAX, "%s", word);
            return 0;
        }
    }
    return -ENOENT;
}

/* The file that is loaded when `doctor->program` is run; false, and it is said, if there is none.
 */
static bool loader_find(struct tow_doctor *doctor, char ret_path[PATH_MAX],
                        enum tow_doctor_kind *ret_kind, char ret_loader[PATH_MAX])
{
    char name[PATH_MAX], why[TOW_WHY_MAX];
    snprintf(name, sizeof name, "%s", doctor->program);
    for (unsigned i = 0; i < SCRIPTS_MAX; i++) {
        int code = tow_cli_find_program(name, ret_path, why, sizeof why);
        /* A library is not executable, and may be looked at all the same. */
        int error = code == 0 || code == TOW_EXIT_NOT_EXECUTABLE
                        ? tow_doctor_elf_read(ret_path, ret_kind, ret_loader)
                        : -ENOENT;
        if (error < 0 || (code != 0 && *ret_kind != TOW_DOCTOR_LIBRARY)) {
            if (code == 0) {
                snprintf(why, sizeof why, "%s cannot be read: %s", ret_path, strerror(-error));
            }
            tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program", "%s%s", why,
                           i > 0 ? ", and the script that was named wants it" : "");
            tow_doctor_mend(doctor, "name a program that is there, and chmod +x %s", name);
            return false;
        }
        if (*ret_kind != TOW_DOCTOR_NO_ELF) {
            return true;
        }
        if (loader_script(ret_path, name) < 0) {
            break;
        }
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "script",
                       "%s is a script of %s, which is looked at; programs that it starts are not",
                       ret_path, name);
    }
    tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program", "%s is no program of this system",
                   ret_path);
    tow_doctor_mend(doctor, "name the program itself: towline doctor -- PROGRAM");
    return false;
}

/* What kinds of files never get a library of ours. */
static bool loader_can(struct tow_doctor *doctor, const char *path, enum tow_doctor_kind kind,
                       const char *loader, const char *own_loader)
{
    char one[PATH_MAX], other[PATH_MAX];
    if (kind == TOW_DOCTOR_FOREIGN) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program",
                       "%s is of another kind of processor than this Towline's libraries", path);
        tow_doctor_mend(doctor, "take the 64-bit program of this machine's processor");
        return false;
    }
    if (kind == TOW_DOCTOR_STATIC) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program",
                       "%s is linked statically: no loader gives it a " LIBCUDA, path);
        tow_doctor_mend(doctor, "link it without -static");
        return false;
    }
    if (loader_is_privileged(path)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program",
                       "%s gets rights by its file (setuid, setgid or capabilities): the loader "
                       "ignores LD_LIBRARY_PATH, which towline run sets",
                       path);
        tow_doctor_mend(doctor, "run a copy of yours: cp %s . && towline run -- ./%s", path,
                        strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path);
        return false;
    }
    if (strstr(loader, "/ld-musl-") != NULL) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program",
                       "%s is linked to musl (%s), and Towline's " LIBCUDA " to glibc", path,
                       loader);
        tow_doctor_mend(doctor, "take the program, or the image, of a system with glibc: Debian "
                                "instead of Alpine");
        return false;
    }
    if (loader[0] != '\0' && realpath(loader, one) == NULL) {
        tow_doctor_say(doctor, TOW_DOCTOR_WRONG, "program",
                       "%s wants the loader %s, which is not here", path, loader);
        tow_doctor_mend(doctor, "install the C library that the program was built for");
        return false;
    }
    /* Another loader is not run: whoever made the program chose it. */
    if (loader[0] != '\0' && (realpath(own_loader, other) == NULL || strcmp(one, other) != 0)) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "program",
                       "%s has a loader of its own, %s: what that does was not looked at", path,
                       loader);
        tow_doctor_mend(doctor,
                        "if it does not find Towline: LD_PRELOAD=%s/" LIBCUDA " towline run -- %s",
                        doctor->lib_dir, path);
        return false;
    }
    return true;
}

void tow_doctor_loader(struct tow_doctor *doctor)
{
    char path[PATH_MAX] = "/proc/self/exe", loader[PATH_MAX], own_loader[PATH_MAX];
    enum tow_doctor_kind kind;
    tow_doctor_group(doctor, "The loader");
    if (tow_doctor_elf_read(path, &kind, own_loader) < 0 || own_loader[0] == '\0' ||
        !doctor->installed) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "libcuda",
                       "nothing can be said of it without Towline's libraries");
        return;
    }
    if (doctor->program == NULL) {
        snprintf(path, sizeof path, "%s/towline", doctor->bin_dir);
        snprintf(loader, sizeof loader, "%s", own_loader);
    } else if (!loader_find(doctor, path, &kind, loader) ||
               !loader_can(doctor, path, kind, loader, own_loader)) {
        return;
    }
    struct loader_answer answer;
    struct tow_buf said;
    if (loader_ask(own_loader, path, doctor->lib_dir, &answer, &said) < 0) {
        tow_doctor_say(doctor, TOW_DOCTOR_WARNING, "libcuda", "the loader %s says nothing",
                       own_loader);
    } else if (strstr((const char *)said.data, "\tstatically linked") != NULL) {
        tow_doctor_say(doctor, TOW_DOCTOR_HINT, "libcuda",
                       "%s names no library, so the loader has nothing to say; name the program "
                       "that opens it",
                       path);
        tow_doctor_mend(doctor, "towline doctor -- PROGRAM");
    } else {
        loader_judge(doctor, &answer);
        tow_doctor_libraries(doctor, path, (const char *)said.data);
        loader_say_without(doctor, own_loader, path);
    }
    tow_buf_fini(&said);
    loader_say_others(doctor);
}
