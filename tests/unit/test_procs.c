/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: names, versions, per-thread forms. */
#include "cmocka_all.h"

#include "gen/context.h"
#include "gen/core_client.h"
#include "gen/memory.h"
#include "gen/stream.h"

/* The public entries, to compare with. */
CUresult cuGetProcAddress(const char *, void **, int, cuuint64_t);
CUresult cuGetProcAddress_v2(const char *, void **, int, cuuint64_t,
                             CUdriverProcAddressQueryResult *);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamSynchronize_ptsz(CUstream);
CUresult cuCtxGetDevice(CUdevice *);
CUresult cuCtxGetDevice_v2(CUdevice *, CUcontext);
CUresult cuDevicePrimaryCtxRelease(CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);

static void *find(const char *name, int version, cuuint64_t flags, int want_status)
{
    void *entry = (void *)find;
    CUdriverProcAddressQueryResult status = 99;
    assert_int_equal(towc_cuGetProcAddress_v2(name, &entry, version, flags, &status), CUDA_SUCCESS);
    assert_int_equal(status, want_status);
    return entry;
}

static void the_newest_version_that_is_not_too_new_is_found(void **state)
{
    assert_ptr_equal(find("cuMemAlloc", 3020, 0, 0), cuMemAlloc_v2);
    assert_ptr_equal(find("cuMemAlloc", 99000, 0, 0), cuMemAlloc_v2);
    assert_ptr_equal(find("cuCtxGetDevice", 12090, 0, 0), cuCtxGetDevice);
    assert_ptr_equal(find("cuCtxGetDevice", 13000, 0, 0), cuCtxGetDevice_v2);
    assert_ptr_equal(find("cuGetProcAddress", 11030, 0, 0), cuGetProcAddress);
    assert_ptr_equal(find("cuGetProcAddress", 12000, 0, 0), cuGetProcAddress_v2);
    assert_ptr_equal(find("cuDevicePrimaryCtxRelease", 7000, 0, 0), cuDevicePrimaryCtxRelease);
    assert_ptr_equal(find("cuDevicePrimaryCtxRelease", 11000, 0, 0), cuDevicePrimaryCtxRelease_v2);
}

static void what_is_not_there_is_null_and_says_why(void **state)
{
    assert_null(find("", 0, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(find("cuNoSuchThing", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(find("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(find("cuLibraryLoadData", 11080, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    void *entry = (void *)find;
    assert_int_equal(towc_cuGetProcAddress_v2("cuInit", &entry, 13000, 4, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ptr_equal(entry, (void *)find);
    assert_int_equal(towc_cuGetProcAddress("cuNoSuchThing", &entry, 13000, 0),
                     CUDA_ERROR_NOT_FOUND);
    assert_int_equal(towc_cuGetProcAddress("cuLibraryLoadData", &entry, 11080, 0),
                     CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(entry, (void *)find);
    assert_int_equal(towc_cuGetProcAddress("cuMemAlloc", &entry, 11080, 0), CUDA_SUCCESS);
    assert_ptr_equal(entry, cuMemAlloc_v2);
}

static void per_thread_variants_are_found_where_there_are_any(void **state)
{
    assert_ptr_equal(find("cuStreamSynchronize", 13000, 2, 0), cuStreamSynchronize_ptsz);
    assert_ptr_equal(find("cuStreamSynchronize", 13000, 1, 0), cuStreamSynchronize);
    assert_ptr_equal(find("cuStreamSynchronize", 13000, 3, 0), cuStreamSynchronize_ptsz);
    assert_null(find("cuStreamSynchronize", 6050, 2, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_ptr_equal(find("cuMemAlloc", 13000, 2, 0), cuMemAlloc_v2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_version_that_is_not_too_new_is_found),
        cmocka_unit_test(what_is_not_there_is_null_and_says_why),
        cmocka_unit_test(per_thread_variants_are_found_where_there_are_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
