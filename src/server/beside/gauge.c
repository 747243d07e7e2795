/* SPDX-License-Identifier: Apache-2.0 */
/* The gauges' process: asks NVIDIA's management library and lays numbers into shared memory. */
#include "server/beside/gauge.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/gauges.h"

enum { DEVICES_MAX = 64, TEXT_MAX = 96, CLOSE_MAX = 4096 };

/* Rounds begin at least this far apart, however often clients ask: NVIDIA's library takes locks in
 * the driver. */
static const int64_t apart_ns = 8 * TOW_TIME_MS;
/* What hardly ever changes is asked for this often. */
static const int64_t facts_ns = TOW_TIME_S;
/* Reading the infoROM keeps the driver busy for some 70 ms. */
static const int64_t inforom_ns = 60 * TOW_TIME_S;

struct gauge_device {
    char uuid[TEXT_MAX], serial[TEXT_MAX], vbios[TEXT_MAX];
    uint64_t known; /* bit i: value[i] is there */
    int64_t value[TOW_GAUGE_COUNT];
};

struct gauge_numbers {
    int64_t taken_ns;
    char driver[TEXT_MAX], library[TEXT_MAX];
    uint32_t count;
    struct gauge_device devices[DEVICES_MAX];
};

/* Two places: the process fills the one that is not shown, then shows it. Whoever reads for longer
 * than a whole round may mix two moments, which no number here minds. */
struct tows_gauge_page {
    atomic_uint shown;         /* 0: nothing yet; else the number of rounds */
    _Atomic uint64_t wanted;   /* questions of the listener, counted */
    _Atomic uint64_t answered; /* `wanted` when the round that is shown began */
    struct gauge_numbers numbers[2];
};

_Static_assert(TOW_GAUGE_COUNT <= 64, "a word of bits says which gauges are known");

/* ---- in the process: NVIDIA's library ---- */

typedef void *nvml_device;

static void *library;

static void *gauge_symbol(const char *name)
{
    return dlsym(library, name);
}

enum { NVML_OK = 0, NVML_CORRUPTED_INFOROM = 14 };

/* Its functions by what they take; all return 0 for success. */
typedef int nvml_plain(void);
typedef int nvml_text(char *, unsigned);
typedef int nvml_count(unsigned *);
typedef int nvml_by_index(unsigned, nvml_device *);
typedef int nvml_device_text(nvml_device, char *, unsigned);
typedef int nvml_check(nvml_device);
typedef int nvml_one(nvml_device, unsigned *);
typedef int nvml_two(nvml_device, unsigned *, unsigned *);
typedef int nvml_of(nvml_device, unsigned, unsigned *);
typedef int nvml_wide(nvml_device, unsigned long long *);
typedef int nvml_errors(nvml_device, unsigned, unsigned, unsigned long long *);
typedef int nvml_record(nvml_device, void *);

static void gauge_set(struct gauge_device *device, enum tow_gauge_id id, int64_t value)
{
    device->known |= UINT64_C(1) << id;
    device->value[id] = value;
}

static void take_one(struct gauge_device *out, nvml_device device, const char *name,
                     enum tow_gauge_id id)
{
    nvml_one *ask = (nvml_one *)gauge_symbol(name);
    unsigned value = 0;
    if (ask != NULL && ask(device, &value) == 0) {
        gauge_set(out, id, value);
    }
}

static void take_two(struct gauge_device *out, nvml_device device, const char *name,
                     enum tow_gauge_id first, enum tow_gauge_id second)
{
    nvml_two *ask = (nvml_two *)gauge_symbol(name);
    unsigned a = 0, b = 0;
    if (ask != NULL && ask(device, &a, &b) == 0) {
        gauge_set(out, first, a);
        gauge_set(out, second, b);
    }
}

static void take_of(struct gauge_device *out, nvml_device device, const char *name, unsigned which,
                    enum tow_gauge_id id)
{
    nvml_of *ask = (nvml_of *)gauge_symbol(name);
    unsigned value = 0;
    if (ask != NULL && ask(device, which, &value) == 0) {
        gauge_set(out, id, value);
    }
}

static void take_device_text(nvml_device device, const char *name, char text[TEXT_MAX])
{
    nvml_device_text *ask = (nvml_device_text *)gauge_symbol(name);
    if (ask == NULL || ask(device, text, TEXT_MAX) != 0) {
        text[0] = '\0';
    }
    text[TEXT_MAX - 1] = '\0';
}

static void take_memory(struct gauge_device *out, nvml_device device)
{
    struct {
        unsigned version;
        unsigned long long total, reserved, free, used;
    } memory = {.version = sizeof memory | 2u << 24};
    struct {
        unsigned long long total, free, used;
    } plain = {0};
    nvml_record *ask = (nvml_record *)gauge_symbol("nvmlDeviceGetMemoryInfo");
    if (ask != NULL && ask(device, &plain) == 0) {
        gauge_set(out, TOW_GAUGE_memory_total, (int64_t)plain.total);
        gauge_set(out, TOW_GAUGE_memory_free, (int64_t)plain.free);
        gauge_set(out, TOW_GAUGE_memory_used, (int64_t)plain.used);
    }
    ask = (nvml_record *)gauge_symbol("nvmlDeviceGetMemoryInfo_v2");
    if (ask != NULL && ask(device, &memory) == 0) {
        gauge_set(out, TOW_GAUGE_memory_reserved, (int64_t)memory.reserved);
    }
    ask = (nvml_record *)gauge_symbol("nvmlDeviceGetBAR1MemoryInfo");
    if (ask != NULL && ask(device, &plain) == 0) {
        gauge_set(out, TOW_GAUGE_bar1_total, (int64_t)plain.total);
        gauge_set(out, TOW_GAUGE_bar1_free, (int64_t)plain.free);
        gauge_set(out, TOW_GAUGE_bar1_used, (int64_t)plain.used);
    }
}

static void take_load(struct gauge_device *out, nvml_device device)
{
    struct {
        unsigned gpu, memory;
    } load = {0};
    nvml_record *ask = (nvml_record *)gauge_symbol("nvmlDeviceGetUtilizationRates");
    if (ask != NULL && ask(device, &load) == 0) {
        gauge_set(out, TOW_GAUGE_util_gpu, load.gpu);
        gauge_set(out, TOW_GAUGE_util_memory, load.memory);
    }
    /* The second number is a sampling period that nobody asks us for. */
    nvml_two *codec = (nvml_two *)gauge_symbol("nvmlDeviceGetEncoderUtilization");
    unsigned busy = 0, period = 0;
    if (codec != NULL && codec(device, &busy, &period) == 0) {
        gauge_set(out, TOW_GAUGE_util_encoder, busy);
    }
    codec = (nvml_two *)gauge_symbol("nvmlDeviceGetDecoderUtilization");
    if (codec != NULL && codec(device, &busy, &period) == 0) {
        gauge_set(out, TOW_GAUGE_util_decoder, busy);
    }
    nvml_wide *wide = (nvml_wide *)gauge_symbol("nvmlDeviceGetTotalEnergyConsumption");
    unsigned long long energy = 0;
    if (wide != NULL && wide(device, &energy) == 0) {
        gauge_set(out, TOW_GAUGE_energy, (int64_t)energy);
    }
}

/* Memory errors: corrected or not, since the driver was loaded or ever. */
static void take_ecc(struct gauge_device *out, nvml_device device)
{
    nvml_errors *ask = (nvml_errors *)gauge_symbol("nvmlDeviceGetTotalEccErrors");
    for (unsigned i = 0; i < 4 && ask != NULL; i++) {
        unsigned long long errors = 0;
        if (ask(device, i / 2, i % 2, &errors) == 0) {
            gauge_set(out, TOW_GAUGE_ecc_corrected + i, (int64_t)errors);
        }
    }
}

struct gauge_name {
    const char *name;
    enum tow_gauge_id id;
};

/* What is new in each round. */
static void take_state(struct gauge_device *out, nvml_device device)
{
    static const struct gauge_name ones[] = {
        {"nvmlDeviceGetPowerUsage", TOW_GAUGE_power},
        {"nvmlDeviceGetPerformanceState", TOW_GAUGE_performance_state},
        {"nvmlDeviceGetFanSpeed", TOW_GAUGE_fan_speed},
        {"nvmlDeviceGetCurrPcieLinkGeneration", TOW_GAUGE_pcie_generation},
        {"nvmlDeviceGetCurrPcieLinkWidth", TOW_GAUGE_pcie_width},
    };
    static const enum tow_gauge_id clocks[] = {TOW_GAUGE_clock_graphics, TOW_GAUGE_clock_sm,
                                               TOW_GAUGE_clock_memory, TOW_GAUGE_clock_video};
    take_memory(out, device);
    take_load(out, device);
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        take_one(out, device, ones[i].name, ones[i].id);
    }
    take_of(out, device, "nvmlDeviceGetTemperature", 0, TOW_GAUGE_temperature);
    for (unsigned i = 0; i < 4; i++) {
        take_of(out, device, "nvmlDeviceGetClockInfo", i, clocks[i]);
    }
}

/* What the device is, and how it is set up. */
static void take_facts(struct gauge_device *out, nvml_device device)
{
    static const struct gauge_name ones[] = {
        {"nvmlDeviceGetEnforcedPowerLimit", TOW_GAUGE_power_limit},
        {"nvmlDeviceGetPowerManagementLimit", TOW_GAUGE_power_management_limit},
        {"nvmlDeviceGetPowerManagementDefaultLimit", TOW_GAUGE_power_default_limit},
        {"nvmlDeviceGetMinorNumber", TOW_GAUGE_minor},
        {"nvmlDeviceGetBrand", TOW_GAUGE_brand},
        {"nvmlDeviceGetMaxPcieLinkGeneration", TOW_GAUGE_pcie_generation_max},
        {"nvmlDeviceGetMaxPcieLinkWidth", TOW_GAUGE_pcie_width_max},
        {"nvmlDeviceGetPersistenceMode", TOW_GAUGE_persistence},
        {"nvmlDeviceGetComputeMode", TOW_GAUGE_compute_mode},
        {"nvmlDeviceGetDisplayActive", TOW_GAUGE_display_active},
        {"nvmlDeviceGetDisplayMode", TOW_GAUGE_display_mode},
        {"nvmlDeviceGetNumGpuCores", TOW_GAUGE_cores},
        {"nvmlDeviceGetMaxMigDeviceCount", TOW_GAUGE_mig_devices_max},
        {"nvmlDeviceGetVirtualizationMode", TOW_GAUGE_virtualization},
        {"nvmlDeviceGetMemoryBusWidth", TOW_GAUGE_bus_width},
    };
    static const enum tow_gauge_id max_clocks[] = {
        TOW_GAUGE_max_clock_graphics, TOW_GAUGE_max_clock_sm, TOW_GAUGE_max_clock_memory,
        TOW_GAUGE_max_clock_video};
    struct {
        char legacy[16];
        unsigned domain, bus, device, device_id, subsystem_id;
        char id[32];
    } pci = {.legacy = ""};
    take_device_text(device, "nvmlDeviceGetSerial", out->serial);
    take_device_text(device, "nvmlDeviceGetVbiosVersion", out->vbios);
    nvml_record *ask = (nvml_record *)gauge_symbol("nvmlDeviceGetPciInfo_v3");
    if (ask != NULL && ask(device, &pci) == 0) {
        gauge_set(out, TOW_GAUGE_pci_device_id, pci.device_id);
        gauge_set(out, TOW_GAUGE_pci_subsystem_id, pci.subsystem_id);
    }
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        take_one(out, device, ones[i].name, ones[i].id);
    }
    take_two(out, device, "nvmlDeviceGetPowerManagementLimitConstraints", TOW_GAUGE_power_min_limit,
             TOW_GAUGE_power_max_limit);
    take_two(out, device, "nvmlDeviceGetEccMode", TOW_GAUGE_ecc_current, TOW_GAUGE_ecc_pending);
    take_ecc(out, device);
    take_two(out, device, "nvmlDeviceGetMigMode", TOW_GAUGE_mig_current, TOW_GAUGE_mig_pending);
    take_of(out, device, "nvmlDeviceGetTemperatureThreshold", 0, TOW_GAUGE_temperature_shutdown);
    take_of(out, device, "nvmlDeviceGetTemperatureThreshold", 1, TOW_GAUGE_temperature_slowdown);
    for (unsigned i = 0; i < 4; i++) {
        take_of(out, device, "nvmlDeviceGetMaxClockInfo", i, max_clocks[i]);
    }
}

static bool is_old(int64_t taken_ns, int64_t now_ns, int64_t good_ns)
{
    return taken_ns == 0 || now_ns - taken_ns >= good_ns;
}

/* One device: its facts as they were kept, if they are of this device and not old. */
static void take_device(struct gauge_device *out, unsigned index, nvml_device device)
{
    static struct {
        int64_t taken_ns, checked_ns; /* 0: never */
        int inforom;                  /* the result is what there is to know */
        struct gauge_device facts;
    } kept[DEVICES_MAX];
    char uuid[TEXT_MAX];
    int64_t now_ns = tow_time_now_ns();
    take_device_text(device, "nvmlDeviceGetUUID", uuid);
    bool another = strcmp(kept[index].facts.uuid, uuid) != 0;
    if (another || is_old(kept[index].checked_ns, now_ns, inforom_ns)) {
        nvml_check *validate = (nvml_check *)gauge_symbol("nvmlDeviceValidateInforom");
        kept[index].inforom = validate != NULL ? validate(device) : -1;
        kept[index].checked_ns = now_ns;
    }
    if (another || is_old(kept[index].taken_ns, now_ns, facts_ns)) {
        memset(&kept[index].facts, 0, sizeof kept[index].facts);
        memcpy(kept[index].facts.uuid, uuid, sizeof uuid);
        take_facts(&kept[index].facts, device);
        kept[index].taken_ns = now_ns;
    }
    *out = kept[index].facts;
    if (kept[index].inforom == NVML_OK || kept[index].inforom == NVML_CORRUPTED_INFOROM) {
        gauge_set(out, TOW_GAUGE_inforom, kept[index].inforom);
    }
    take_state(out, device);
}

static void take_all(struct tows_gauge_page *page)
{
    unsigned round = atomic_load(&page->shown) + 1;
    struct gauge_numbers *out = &page->numbers[round & 1];
    unsigned count = 0;
    nvml_text *text = (nvml_text *)gauge_symbol("nvmlSystemGetDriverVersion");
    if (text == NULL || text(out->driver, TEXT_MAX) != 0) {
        out->driver[0] = '\0';
    }
    text = (nvml_text *)gauge_symbol("nvmlSystemGetNVMLVersion");
    if (text == NULL || text(out->library, TEXT_MAX) != 0) {
        out->library[0] = '\0';
    }
    nvml_count *ask = (nvml_count *)gauge_symbol("nvmlDeviceGetCount_v2");
    nvml_by_index *find = (nvml_by_index *)gauge_symbol("nvmlDeviceGetHandleByIndex_v2");
    if (ask == NULL || find == NULL || ask(&count) != 0) {
        count = 0;
    }
    out->count = 0;
    for (unsigned i = 0; i < count && out->count < DEVICES_MAX; i++) {
        nvml_device device;
        if (find(i, &device) == 0) {
            take_device(&out->devices[out->count], out->count, device);
            out->count++;
        }
    }
    out->taken_ns = tow_time_now_ns();
    atomic_store(&page->shown, round);
}

/* Opens one candidate, unless it is ours. */
static bool try_open(const char *path)
{
    library = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        return false;
    }
    const char *(*name)(int) = (const char *(*)(int))gauge_symbol("nvmlErrorString");
    nvml_plain *init = (nvml_plain *)gauge_symbol("nvmlInit_v2");
    if (name != NULL && init != NULL && strcmp(name(TOW_NVML_OURS_CODE), TOW_NVML_OURS_TEXT) != 0 &&
        init() == 0) {
        return true;
    }
    dlclose(library);
    library = NULL;
    return false;
}

static bool open_library(const char *driver)
{
    static const char *const folders[] = {
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
        "/usr/lib/nvidia",
        "/usr/local/nvidia/lib64",
        "/usr/lib",
    };
    char path[PATH_MAX];
    const char *slash = strrchr(driver, '/');
    if (slash != NULL) {
        snprintf(path, sizeof path, "%.*s/libnvidia-ml.so.1", (int)(slash - driver), driver);
        if (try_open(path)) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", folders[i]);
        if (try_open(path)) {
            return true;
        }
    }
    return false;
}

static void gauge_serve(struct tows_gauge_page *page, int asked, int tell, const char *driver)
{
    char bytes[256];
    int64_t began_ns = 0;
    if (!open_library(driver)) {
        return;
    }
    do {
        if (began_ns != 0 && atomic_load(&page->wanted) == atomic_load(&page->answered)) {
            continue; /* the last round has answered this, too */
        }
        int64_t early_ns = began_ns + apart_ns - tow_time_now_ns();
        if (began_ns != 0 && early_ns > 0) {
            tow_time_sleep(early_ns);
        }
        uint64_t wanted = atomic_load(&page->wanted);
        began_ns = tow_time_now_ns();
        take_all(page);
        atomic_store(&page->answered, wanted);
        if (write(tell, "", 1) < 0) {
            continue; /* full: the listener has enough to read */
        }
    } while (read(asked, bytes, sizeof bytes) > 0);
}

/* ---- in the listener ---- */

static void close_both(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

/* The process: keeps two descriptors and watches. */
static _Noreturn void be_gauge(struct tows_gauge_page *page, pid_t parent, int asked, int tell,
                               const char *driver)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGUSR1, SIG_IGN); /* the listener's, as are these: */
    signal(SIGUSR2, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "towline-gauge");
    if (getppid() != parent) {
        _exit(0);
    }
    for (int fd = 3; fd < CLOSE_MAX; fd++) {
        if (fd != asked && fd != tell) {
            close(fd);
        }
    }
    gauge_serve(page, asked, tell, driver);
    _exit(0);
}

int tows_gauge_start(struct tows_gauge *gauge, const char *driver)
{
    int ask[2], tell[2], error;
    pid_t parent = getpid();
    void *page =
        mmap(NULL, sizeof *gauge->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return -errno;
    }
    if (pipe2(ask, O_CLOEXEC) != 0) {
        error = -errno;
        goto unmap;
    }
    if (pipe2(tell, O_CLOEXEC | O_NONBLOCK) != 0) {
        error = -errno;
        goto close_ask;
    }
    pid_t pid = fork();
    if (pid < 0) {
        error = -errno;
        goto close_tell;
    }
    if (pid == 0) {
        be_gauge(page, parent, ask[0], tell[1], driver);
    }
    close(ask[0]);
    close(tell[1]);
    fcntl(ask[1], F_SETFL, O_NONBLOCK);
    *gauge = (struct tows_gauge){.page = page, .ask = ask[1], .told = tell[0], .pid = pid};
    return 0;

close_tell:
    close_both(tell);
close_ask:
    close_both(ask);
unmap:
    munmap(page, sizeof *gauge->page);
    return error;
}

static bool is_running(const struct tows_gauge *gauge)
{
    return gauge->page != NULL && gauge->told >= 0;
}

int tows_gauge_fd(const struct tows_gauge *gauge)
{
    return is_running(gauge) ? gauge->told : -1;
}

void tows_gauge_hear(struct tows_gauge *gauge)
{
    char bytes[256];
    while (is_running(gauge)) {
        ssize_t n = read(gauge->told, bytes, sizeof bytes);
        if (n == 0) {
            close(gauge->told);
            gauge->told = -1;
        } else if (n < 0) {
            return;
        }
    }
}

void tows_gauge_stop(struct tows_gauge *gauge)
{
    tows_gauge_hear(gauge);
    if (gauge->page != NULL) {
        close(gauge->ask);
        if (gauge->told >= 0) {
            /* It has not ended by itself: the number is still its own. */
            close(gauge->told);
            kill(gauge->pid, SIGKILL);
            waitpid(gauge->pid, NULL, 0);
        }
        munmap(gauge->page, sizeof *gauge->page);
        gauge->page = NULL;
    }
}

uint64_t tows_gauge_ask(struct tows_gauge *gauge)
{
    if (!is_running(gauge)) {
        return 0;
    }
    uint64_t ticket = atomic_fetch_add(&gauge->page->wanted, 1) + 1;
    /* SIGPIPE is ignored in the listener: a process that is gone is asked in vain. A full pipe is
     * as good as one more byte. */
    if (write(gauge->ask, "", 1) < 0 && errno != EAGAIN) {
        return 0;
    }
    return ticket;
}

bool tows_gauge_has(const struct tows_gauge *gauge, uint64_t ticket)
{
    return !is_running(gauge) || atomic_load(&gauge->page->answered) >= ticket;
}

static void write_device(struct tow_json *json, const struct gauge_device *device)
{
    static const char *const names[] = {
#define TOW_GAUGE_NAME(name) #name,
        TOW_GAUGES(TOW_GAUGE_NAME)
#undef TOW_GAUGE_NAME
    };
    tow_json_object(json, NULL);
    tow_json_str(json, "uuid", device->uuid);
    tow_json_str(json, "serial", device->serial);
    tow_json_str(json, "vbios", device->vbios);
    for (unsigned i = 0; i < TOW_GAUGE_COUNT; i++) {
        if (device->known >> i & 1) {
            tow_json_i64(json, names[i], device->value[i]);
        }
    }
    tow_json_end(json);
}

uint64_t tows_gauge_free(const struct tows_gauge *gauge)
{
    unsigned shown = is_running(gauge) ? atomic_load(&gauge->page->shown) : 0;
    const struct gauge_numbers *numbers = shown != 0 ? &gauge->page->numbers[shown & 1] : NULL;
    uint64_t sum = 0;
    bool known = false;
    for (uint32_t i = 0; numbers != NULL && i < numbers->count && i < DEVICES_MAX; i++) {
        const struct gauge_device *device = &numbers->devices[i];
        uint64_t free = (uint64_t)device->value[TOW_GAUGE_memory_free];
        if ((device->known >> TOW_GAUGE_memory_free & 1) != 0) {
            known = true;
            sum += free;
        }
    }
    return known ? sum : UINT64_MAX;
}

void tows_gauge_write(const struct tows_gauge *gauge, struct tow_json *json)
{
    unsigned shown = gauge->page != NULL ? atomic_load(&gauge->page->shown) : 0;
    tow_json_object(json, "gauges");
    tow_json_bool(json, "running", is_running(gauge));
    if (shown != 0) {
        const struct gauge_numbers *numbers = &gauge->page->numbers[shown & 1];
        tow_json_str(json, "driver", numbers->driver);
        tow_json_str(json, "library", numbers->library);
        tow_json_f64(json, "age_s",
                     (double)(tow_time_now_ns() - numbers->taken_ns) / (double)TOW_TIME_S);
        tow_json_array(json, "devices");
        /* Of a process that has ended the numbers are old for ever. */
        for (uint32_t i = 0; is_running(gauge) && i < numbers->count && i < DEVICES_MAX; i++) {
            write_device(json, &numbers->devices[i]);
        }
        tow_json_end(json);
    }
    tow_json_end(json);
}
