/* SPDX-License-Identifier: Apache-2.0 */
/* Opens OpenSSL and finds its functions. */
#include "transport/tls_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* crypto.h and ssl.h. */
#define INIT_NO_ATEXIT UINT64_C(0x00080000)

static struct tow_tls_lib lib;
static int lib_error;
static char lib_why[384];

static void *lib_open(const char *name)
{
    int flags = RTLD_NOW | RTLD_LOCAL;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* A program that has a TLS library linked in and exports its names must not get our calls; the
     * sanitizers cannot work with it. */
    flags |= RTLD_DEEPBIND;
#endif
    return dlopen(name, flags);
}

static void *lib_find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL && lib_error == 0) {
        lib_error = -ENOTSUP;
        snprintf(lib_why, sizeof lib_why,
                 "encrypted connections need OpenSSL 3.0 or later: the libssl.so.3 that was found "
                 "has no %s",
                 name);
    }
    return found;
}

static void lib_load(void)
{
    lib.crypto_library = lib_open("libcrypto.so.3");
    lib.ssl_library = lib.crypto_library == NULL ? NULL : lib_open("libssl.so.3");
    if (lib.ssl_library == NULL) {
        lib_error = -ENOTSUP;
        const char *reason = dlerror();
        snprintf(lib_why, sizeof lib_why,
                 "encrypted connections need OpenSSL 3: install the package libssl3 (Debian, "
                 "Ubuntu; libssl3t64 from 24.04 on) or openssl-libs (Fedora, RHEL 9): %.160s",
                 reason != NULL ? reason : "libssl.so.3 cannot be opened");
        return;
    }
#define FIND_SSL(type, name, arguments)                                                            \
    lib.name = (type(*) arguments)(uintptr_t)lib_find(lib.ssl_library, #name);
#define FIND_CRYPTO(type, name, arguments)                                                         \
    lib.name = (type(*) arguments)(uintptr_t)lib_find(lib.crypto_library, #name);
    TOW_TLS_SSL_FUNCTIONS(FIND_SSL)
    TOW_TLS_CRYPTO_FUNCTIONS(FIND_CRYPTO)
    if (lib_error != 0) {
        return;
    }
    /* Before anything else of it: any other call has it clean up at exit, under our threads. */
    bool started = lib.OPENSSL_init_crypto(INIT_NO_ATEXIT, NULL) == 1;
    lib.ERR_set_mark();
    if (!started || lib.OPENSSL_init_ssl(INIT_NO_ATEXIT, NULL) != 1 ||
        (lib.context = lib.OSSL_LIB_CTX_new()) == NULL ||
        (lib.cipher = lib.EVP_CIPHER_fetch(lib.context, "AES-128-GCM", "")) == NULL) {
        lib_error = -ENOTSUP;
        snprintf(lib_why, sizeof lib_why,
                 "encrypted connections need OpenSSL 3 with AES-128-GCM; the one of this system "
                 "does not start");
    }
    lib.ERR_pop_to_mark();
}

int tow_tls_lib(const struct tow_tls_lib **ret_lib, char *ret_why, size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, lib_load);
    if (lib_error != 0) {
        snprintf(ret_why, size, "%s", lib_why);
        return lib_error;
    }
    *ret_lib = &lib;
    return 0;
}
