/* SPDX-License-Identifier: Apache-2.0 */
/* The driver-API program, which finds libcuda.so.1 at run time: half of the functions by dlsym,
 * half by cuGetProcAddress. */
#include <cuda.h>
#include <dlfcn.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
#define CALL(function) JOIN(p_, function)

#include "driver_functions.h"
#define DECLARE(function) static __typeof__(function) *JOIN(p_, function);
FUNCTIONS(DECLARE)

#include "driver_body.h"

/* CUDA 13 gave these a version with one more parameter, and cuGetProcAddress finds that one, while
 * cuda.h still declares the old one under the plain name. */
static int is_old_name(const char *name)
{
    return strcmp(name, "cuCtxGetDevice") == 0 || strcmp(name, "cuCtxSynchronize") == 0;
}

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "FAILED: %s\n", dlerror());
        return 1;
    }
    __typeof__(cuGetProcAddress) *find = dlsym(library, "cuGetProcAddress_v2");
    EXPECT(find != NULL);
    int turn = 0;
#define FIND(function)                                                                             \
    {                                                                                              \
        void *address = NULL;                                                                      \
        CUdriverProcAddressQueryResult status;                                                     \
        const char *plain =                                                                        \
            #function; /* the name without version, as cuGetProcAddress wants it */                \
        if (turn++ % 2 == 0 || is_old_name(plain)) {                                               \
            address = dlsym(library, TEXT(function));                                              \
        } else {                                                                                   \
            CHECK(find(plain, &address, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &status));      \
        }                                                                                          \
        if (address == NULL) {                                                                     \
            fprintf(stderr, "FAILED: %s was not found\n", plain);                                  \
            return 1;                                                                              \
        }                                                                                          \
        JOIN(p_, function) = (__typeof__(function) *)address;                                      \
    }
    FUNCTIONS(FIND)
    EXPECT(dlsym(library, "cuNoSuchFunction") == NULL);
    return body();
}
