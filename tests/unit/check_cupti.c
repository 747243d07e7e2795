/* SPDX-License-Identifier: Apache-2.0 */
/* Holds backend/cuda/cupti_layout.h against a toolkit's headers: it compiles, or it does not. */
#include <stddef.h>

#include <cupti.h>

#include "backend/cuda/cupti_layout.h"

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 newest_kernel;
typedef CUpti_ActivityMemcpy6 newest_memcpy;
typedef CUpti_ActivityMemcpyPtoP4 newest_memcpy2;
#elif CUPTI_API_VERSION >= 18
typedef CUpti_ActivityKernel9 newest_kernel;
typedef CUpti_ActivityMemcpy5 newest_memcpy;
typedef CUpti_ActivityMemcpyPtoP4 newest_memcpy2;
#else
typedef CUpti_ActivityKernel4 newest_kernel;
typedef CUpti_ActivityMemcpy newest_memcpy;
typedef CUpti_ActivityMemcpyPtoP newest_memcpy2;
#endif

#define SAME(theirs, field, ours, own)                                                             \
    _Static_assert(offsetof(theirs, field) == offsetof(struct ours, own) &&                        \
                       sizeof(((theirs *)0)->field) == sizeof(((struct ours *)0)->own),            \
                   #theirs "." #field)
#define SAME_WORK(theirs, ours)                                                                    \
    SAME(theirs, kind, ours, kind);                                                                \
    SAME(theirs, start, ours, start);                                                              \
    SAME(theirs, end, ours, end);                                                                  \
    SAME(theirs, streamId, ours, stream);                                                          \
    SAME(theirs, correlationId, ours, correlation)

SAME_WORK(newest_kernel, tow_cupti_kernel);
SAME(newest_kernel, name, tow_cupti_kernel, name);
SAME_WORK(newest_memcpy, tow_cupti_memcpy);
SAME(newest_memcpy, copyKind, tow_cupti_memcpy, copy);
SAME(newest_memcpy, bytes, tow_cupti_memcpy, bytes);
SAME_WORK(newest_memcpy2, tow_cupti_memcpy2);
SAME(newest_memcpy2, copyKind, tow_cupti_memcpy2, copy);
SAME(newest_memcpy2, bytes, tow_cupti_memcpy2, bytes);
SAME_WORK(CUpti_ActivityMemset4, tow_cupti_memset);
SAME(CUpti_ActivityMemset4, bytes, tow_cupti_memset, bytes);
SAME(CUpti_CallbackData, callbackSite, tow_cupti_call, site);
SAME(CUpti_CallbackData, correlationId, tow_cupti_call, correlation);

_Static_assert(TOW_CUPTI_MEMCPY == (int)CUPTI_ACTIVITY_KIND_MEMCPY &&
                   TOW_CUPTI_MEMSET == (int)CUPTI_ACTIVITY_KIND_MEMSET &&
                   TOW_CUPTI_MEMCPY2 == (int)CUPTI_ACTIVITY_KIND_MEMCPY2 &&
                   TOW_CUPTI_CONCURRENT_KERNEL == (int)CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
               "kinds of records");
_Static_assert(TOW_CUPTI_DRIVER_API == (int)CUPTI_CB_DOMAIN_DRIVER_API &&
                   TOW_CUPTI_API_ENTER == (int)CUPTI_API_ENTER,
               "callbacks");
#define NUMBER(name, number)                                                                       \
    _Static_assert(CUPTI_DRIVER_TRACE_CBID_##name == number, #name " has another number");
TOW_CUPTI_FUNCTIONS(NUMBER)

int main(void)
{
    return 0;
}
