/* SPDX-License-Identifier: Apache-2.0 */
/* Included before every file: makes a build on a new C library run on an old one, down to
 * glibc 2.28.
 *
 * glibc 2.34 moved the thread and loader functions into libc.so.6 under a new symbol version,
 * though they are the same functions. Here references ask for the version they have always had;
 * libcuda.so.1 names libpthread.so.0 and libdl.so.2 as needed, which hold them on an old system and
 * are empty on a new one.
 */
#ifndef TOW_BASE_OLDLIBC_H
#define TOW_BASE_OLDLIBC_H

#if defined(__x86_64__)
#define TOW_OLD "GLIBC_2.2.5"
#define TOW_OLD_SETNAME "GLIBC_2.12"
#define TOW_OLD_SETCLOCK "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define TOW_OLD "GLIBC_2.17"
#define TOW_OLD_SETNAME "GLIBC_2.17"
#define TOW_OLD_SETCLOCK "GLIBC_2.17"
#endif

#if defined(TOW_OLD)
#define TOW_SYMVER(name, version) __asm__(".symver " #name "," #name "@" version)
TOW_SYMVER(pthread_create, TOW_OLD);
TOW_SYMVER(pthread_detach, TOW_OLD);
TOW_SYMVER(pthread_join, TOW_OLD);
TOW_SYMVER(pthread_key_create, TOW_OLD);
TOW_SYMVER(pthread_key_delete, TOW_OLD);
TOW_SYMVER(pthread_getspecific, TOW_OLD);
TOW_SYMVER(pthread_setspecific, TOW_OLD);
TOW_SYMVER(pthread_mutex_trylock, TOW_OLD);
TOW_SYMVER(pthread_mutex_timedlock, TOW_OLD);
TOW_SYMVER(pthread_mutexattr_init, TOW_OLD);
TOW_SYMVER(pthread_mutexattr_settype, TOW_OLD);
TOW_SYMVER(pthread_mutexattr_destroy, TOW_OLD);
TOW_SYMVER(pthread_once, TOW_OLD);
TOW_SYMVER(pthread_rwlock_rdlock, TOW_OLD);
TOW_SYMVER(pthread_rwlock_wrlock, TOW_OLD);
TOW_SYMVER(pthread_rwlock_unlock, TOW_OLD);
TOW_SYMVER(pthread_rwlock_init, TOW_OLD);
TOW_SYMVER(pthread_rwlock_destroy, TOW_OLD);
TOW_SYMVER(pthread_sigmask, TOW_OLD);
TOW_SYMVER(pthread_kill, TOW_OLD);
TOW_SYMVER(pthread_attr_setstacksize, TOW_OLD);
TOW_SYMVER(pthread_setname_np, TOW_OLD_SETNAME);
TOW_SYMVER(pthread_condattr_setclock, TOW_OLD_SETCLOCK);
TOW_SYMVER(sem_init, TOW_OLD);
TOW_SYMVER(sem_wait, TOW_OLD);
TOW_SYMVER(sem_post, TOW_OLD);
TOW_SYMVER(sem_destroy, TOW_OLD);
TOW_SYMVER(dlopen, TOW_OLD);
TOW_SYMVER(dlsym, TOW_OLD);
TOW_SYMVER(dlclose, TOW_OLD);
TOW_SYMVER(dlerror, TOW_OLD);
TOW_SYMVER(dladdr, TOW_OLD);
#endif

#endif
