/* SPDX-License-Identifier: Apache-2.0 */
/* The client's beginning: cuInit, versions, forks, and the order of devices. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/session/state.h"
#include "client/link/device.h"
#include "client/link/link.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/device_client.h"

static const uint8_t cudart_id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                      0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

static void nothing_works_before_initialising_but_what_must(void **state)
{
    int count = 0;
    CUcontext context = NULL;
    void *entry = NULL;
    const void *table = NULL;
    const char *name = NULL;
    CUuuid id;
    memcpy(id.bytes, cudart_id, 16);
    assert_int_equal(towc_cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(towc_cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(towc_cuGetProcAddress_v2("cuInit", &entry, 13000, 0, NULL), CUDA_SUCCESS);
    assert_non_null(entry);
    assert_int_equal(towc_cuGetExportTable(&table, &id), CUDA_SUCCESS);
    assert_int_equal(((const size_t *)table)[0], 13 * 8);
    memset(id.bytes, 0x5a, 16);
    assert_int_equal(towc_cuGetExportTable(&table, &id), CUDA_ERROR_INVALID_VALUE);
    assert_null(table);
    assert_int_equal(towc_cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &name), CUDA_SUCCESS);
    assert_string_equal(name, "CUDA_ERROR_INVALID_VALUE");
    assert_int_equal(towc_cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &name), CUDA_SUCCESS);
    assert_string_equal(name, "there is not enough memory");
    assert_int_equal(towc_client_link_count(), 0);
}

/* A child of a process that only asked for the version may use CUDA. */
static void a_child_of_one_that_only_asked_connects_anew(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip_because("the thread sanitizer allows no new threads after a fork");
#endif
    int version = 0;
    assert_int_equal(towc_cuDriverGetVersion(&version), CUDA_SUCCESS);
    assert_int_equal(version, 13000);
    assert_int_equal(towc_client_link_count(), 1);
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        _exit(towc_cuInit(0) == CUDA_SUCCESS && towc_cuDeviceGetCount(&count) == CUDA_SUCCESS &&
                      count == 2
                  ? 0
                  : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* What a child that connects anew, with these two variables, calls its devices. */
static bool devices_are_named(const char *order, const char *visible, const char *const *names)
{
    int count = 0;
    char name[64];
    order != NULL ? setenv("CUDA_DEVICE_ORDER", order, 1) : unsetenv("CUDA_DEVICE_ORDER");
    visible != NULL ? setenv("CUDA_VISIBLE_DEVICES", visible, 1) : unsetenv("CUDA_VISIBLE_DEVICES");
    bool right = towc_cuInit(0) == CUDA_SUCCESS && towc_cuDeviceGetCount(&count) == CUDA_SUCCESS;
    for (int i = 0; right && i < count; i++) {
        right = names[i] != NULL && towc_cuDeviceGetName(name, sizeof name, i) == CUDA_SUCCESS &&
                strcmp(name, names[i]) == 0;
    }
    return right && names[count] == NULL;
}

/* The fake devices' bus numbers fall. The variable counts before CUDA_VISIBLE_DEVICES does. */
static void devices_may_be_in_the_order_of_their_bus_numbers(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip_because("the thread sanitizer allows no new threads after a fork");
#endif
    static const struct {
        const char *order, *visible, *names[4];
    } cases[] = {
        {NULL, NULL, {"Fake 0", "Fake 1", "Fake 2"}},
        {"FASTEST_FIRST", NULL, {"Fake 0", "Fake 1", "Fake 2"}},
        {"PCI_BUS_ID", NULL, {"Fake 2", "Fake 1", "Fake 0"}},
        {"FASTEST_FIRST", "2,1", {"Fake 2", "Fake 1"}},
        {"PCI_BUS_ID", "2,1", {"Fake 0", "Fake 1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(devices_are_named(cases[i].order, cases[i].visible, cases[i].names) ? 0 : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0) {
            fail_msg("CUDA_DEVICE_ORDER=%s CUDA_VISIBLE_DEVICES=%s", cases[i].order,
                     cases[i].visible);
        }
    }
}

/* Not "not found": a runtime would ask for a newer driver. */
static void graphics_are_refused_by_name(void **state)
{
    static const char *const names[] = {"cuGraphicsGLRegisterBuffer", "cuGLGetDevices",
                                        "cuEGLStreamConsumerConnect", "cuGraphicsVDPAURegister..."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CUresult (*entry)(void) = NULL;
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        assert_int_equal(towc_cuGetProcAddress_v2(names[i], (void **)&entry, 13000, 0, &found),
                         CUDA_SUCCESS);
        assert_int_equal(found, CU_GET_PROC_ADDRESS_SUCCESS);
        assert_int_equal(entry(), CUDA_ERROR_NOT_SUPPORTED);
    }
    void *none = &none;
    assert_int_equal(towc_cuGetProcAddress_v2("cuGreatIdea", &none, 13000, 0, NULL), CUDA_SUCCESS);
    assert_null(none);
}

/* As the server's driver describes it, where it does. */
static void errors_are_described_in_the_drivers_words(void **state)
{
    const char *text = NULL;
    assert_int_equal(towc_cuInit(0), CUDA_SUCCESS);
    assert_int_equal(towc_cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
    assert_string_equal(text, "fake memory is used up");
    assert_int_equal(towc_cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
    assert_string_equal(text, "an argument has a value that is not allowed");
    assert_int_equal(towc_cuGetErrorString((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
}

static void devices_are_those_that_are_visible_in_their_order(void **state)
{
    int count = 0;
    char name[64];
    size_t bytes = 0;
    int value = 0;
    CUdevice device = -1;
    assert_int_equal(towc_cuInit(1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(towc_cuInit(0), CUDA_SUCCESS);
    assert_int_equal(towc_cuInit(0), CUDA_SUCCESS);
    assert_int_equal(towc_cuDeviceGetCount(&count), CUDA_SUCCESS);
    assert_int_equal(count, 2);
    assert_int_equal(towc_cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
    assert_string_equal(name, "Fake 2");
    assert_int_equal(towc_cuDeviceTotalMem_v2(&bytes, 1), CUDA_SUCCESS);
    assert_int_equal(bytes, (size_t)1 << 30);
    assert_int_equal(towc_cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(towc_cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0),
                     CUDA_SUCCESS);
    assert_int_equal(value, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    assert_int_equal(towc_cuDeviceGetAttribute(&value, 9999, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(
        towc_cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0),
        CUDA_SUCCESS);
    assert_int_equal(value, 0);
    char bus[32];
    assert_int_equal(towc_cuDeviceGetPCIBusId(bus, sizeof bus, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuDeviceGetByPCIBusId(&device, bus), CUDA_SUCCESS);
    assert_int_equal(device, 0);
    assert_int_equal(towc_cuDeviceGetPCIBusId(bus, 12, 0), CUDA_ERROR_INVALID_VALUE);
}

static void a_forked_child_is_not_initialised(void **state)
{
    pid_t child = fork();
    if (child == 0) {
        int count = 0;
        CUcontext context = NULL;
        bool right = towc_cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                     towc_cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                     towc_cuDevicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_NOT_INITIALIZED;
#ifdef __SANITIZE_ADDRESS__
        _exit(right ? 0 : 1); /* it would take what the parent's threads own for lost */
#endif
        exit(right ? 0 : 1); /* exit handlers must not disturb the parent's session */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    CUcontext context = NULL;
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

int main(void)
{
    setenv("TOWLINE_SERVER", "self:", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_works_before_initialising_but_what_must),
        cmocka_unit_test(a_child_of_one_that_only_asked_connects_anew),
        cmocka_unit_test(devices_may_be_in_the_order_of_their_bus_numbers),
        cmocka_unit_test(devices_are_those_that_are_visible_in_their_order),
        cmocka_unit_test(errors_are_described_in_the_drivers_words),
        cmocka_unit_test(graphics_are_refused_by_name),
        cmocka_unit_test(a_forked_child_is_not_initialised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
