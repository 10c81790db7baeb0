/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a program, makes an allocation or an I/O call of its process fail: once, or that one and all
 * after it. tests/test_walks.py walks over whole commands with it.
 *
 *   FAIL_IN     the program's name; other processes that inherit the environment are left alone
 *   FAIL_KIND   "memory", "io"; "locks": of calls of I/O those alone
 *   FAIL_PLACE  the place whose calls are counted (failing_point.c), in hexadecimal; without it, all calls are
 *   FAIL_AT     n, from 1: the n-th call of the process fails; 0: none
 *   FAIL_AFTER  so many calls, from wherever, are not looked at: finding a call's place takes most of the time
 *   FAIL_ON     1: that call and all after it, from wherever
 *   FAIL_TOLD   a file as large as struct told, which tests/failing.py reads. It is told which places the program
 *               calls from when none fails, else that a call has failed. Where one call alone is to fail, the
 *               first process that comes to it takes it: of workers that are started anew one fails.
 *   FAIL_STACK  1: where the call came from, on standard error, and where the program crashes
 */
#include "failing_point.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- memory ---------------------------------------------------------------------------------*/
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

/* What the fake driver computes with is the device's. */
static bool refuse_memory(const void *caller)
{
    return failing_refuse(MEMORY, caller, "libcuda.so");
}

#define OR_NO_MEMORY(call) \
    (refuse_memory(__builtin_return_address(0)) ? (errno = ENOMEM, NULL) : (call))

void *malloc(size_t size)
{
    return OR_NO_MEMORY(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return OR_NO_MEMORY(__libc_calloc(count, size));
}

void *realloc(void *block, size_t size)
{
    return OR_NO_MEMORY(__libc_realloc(block, size));
}

void *reallocarray(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return OR_NO_MEMORY(__libc_memalign(alignment, size));
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *block =
        refuse_memory(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
    if (block == NULL)
        return ENOMEM;
    *ret = block;
    return 0;
}

/* libuv ends its process when its own pipe fails, which a program sees to before it starts a loop. */
static bool refuse_io(const void *caller)
{
    return failing_refuse(IO, caller, "libuv.so");
}

static bool refuse_lock(const void *caller)
{
    return refuse_io(caller) || failing_refuse(LOCKS, caller, NULL);
}

/* ---- I/O ------------------------------------------------------------------------------------*/
#define REAL(name)                 \
    static __typeof__(&name) real; \
    if (real == NULL)              \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

/* FAIL_ERRNO: the reason of all calls, as of a shared folder whose server is gone. */
static int reason(int usual)
{
    const char *asked = getenv("FAIL_ERRNO");
    return asked != NULL ? atoi(asked) : usual;
}

/* A call of the C library by its name, its result when it fails, and the reason that it gives then. */
#define WRAP(type, name, fail, why, parameters, arguments) \
    type name parameters                                   \
    {                                                      \
        REAL(name);                                        \
        if (refuse_io(__builtin_return_address(0))) {      \
            errno = reason(why);                           \
            return fail;                                   \
        }                                                  \
        return real arguments;                             \
    }

#define WRAP_OPEN(name, before, given)                \
    int name(before const char *path, int flags, ...) \
    {                                                 \
        REAL(name);                                   \
        va_list rest;                                 \
        va_start(rest, flags);                        \
        mode_t mode = (mode_t)va_arg(rest, int);      \
        va_end(rest);                                 \
        if (refuse_io(__builtin_return_address(0))) { \
            errno = reason(EMFILE);                   \
            return -1;                                \
        }                                             \
        return real(given path, flags, mode);         \
    }
#define COMMA ,
WRAP_OPEN(open, , )
WRAP_OPEN(open64, , )
WRAP_OPEN(openat, int at COMMA, at COMMA)
WRAP_OPEN(openat64, int at COMMA, at COMMA)

int fcntl64(int fd, int command, ...)
{
    REAL(fcntl64);
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;
    const void *caller = __builtin_return_address(0);
    if (locks ? refuse_lock(caller) : refuse_io(caller)) {
        errno = reason(locks ? ENOLCK : EMFILE);
        return -1;
    }
    return real(fd, command, argument);
}

int fcntl(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return fcntl64(fd, command, argument);
}

WRAP(ssize_t, read, -1, EIO, (int fd, void *bytes, size_t size), (fd, bytes, size))
ssize_t write(int fd, const void *bytes, size_t size)
{
    REAL(write);
    if (fd != 2 && refuse_io(__builtin_return_address(0))) { /* else nobody would read why */
        errno = ENOSPC;
        return -1;
    }
    return real(fd, bytes, size);
}

WRAP(ssize_t, pread, -1, EIO, (int fd, void *bytes, size_t size, off_t at), (fd, bytes, size, at))
WRAP(ssize_t, pread64, -1, EIO, (int fd, void *bytes, size_t size, off64_t at),
     (fd, bytes, size, at))
WRAP(ssize_t, pwrite, -1, ENOSPC, (int fd, const void *bytes, size_t size, off_t at),
     (fd, bytes, size, at))
WRAP(ssize_t, pwrite64, -1, ENOSPC, (int fd, const void *bytes, size_t size, off64_t at),
     (fd, bytes, size, at))
WRAP(int, fsync, -1, EIO, (int fd), (fd))
WRAP(int, fdatasync, -1, EIO, (int fd), (fd))
WRAP(int, ftruncate, -1, ENOSPC, (int fd, off_t size), (fd, size))
WRAP(int, ftruncate64, -1, ENOSPC, (int fd, off64_t size), (fd, size))
WRAP(int, rename, -1, EIO, (const char *from, const char *to), (from, to))
WRAP(int, link, -1, ENOSPC, (const char *from, const char *to), (from, to))
WRAP(int, mknod, -1, ENOSPC, (const char *path, mode_t mode, dev_t device), (path, mode, device))
WRAP(int, symlink, -1, ENOSPC, (const char *to, const char *path), (to, path))
WRAP(ssize_t, readlink, -1, EIO, (const char *path, char *ret, size_t size), (path, ret, size))
WRAP(int, unlink, -1, EIO, (const char *path), (path))
WRAP(int, unlinkat, -1, EIO, (int at, const char *path, int flags), (at, path, flags))
WRAP(int, rmdir, -1, EIO, (const char *path), (path))
WRAP(char *, mkdtemp, NULL, ENOSPC, (char *path), (path))
WRAP(DIR *, opendir, NULL, EMFILE, (const char *path), (path))
WRAP(DIR *, fdopendir, NULL, ENOMEM, (int fd), (fd))
WRAP(struct dirent64 *, readdir64, NULL, EIO, (DIR * stream), (stream))
WRAP(int, fstatat64, -1, EIO, (int at, const char *path, struct stat64 *ret, int flags),
     (at, path, ret, flags))
WRAP(int, statfs64, -1, EIO, (const char *path, struct statfs64 *ret), (path, ret))
WRAP(int, statvfs64, -1, EIO, (const char *path, struct statvfs64 *ret), (path, ret))
WRAP(int, fflush, EOF, ENOSPC, (FILE * stream), (stream))
WRAP(int, mkdir, -1, ENOSPC, (const char *path, mode_t mode), (path, mode))
WRAP(int, stat, -1, EIO, (const char *path, struct stat *ret), (path, ret))
WRAP(int, lstat, -1, EIO, (const char *path, struct stat *ret), (path, ret))
WRAP(int, fstat, -1, EIO, (int fd, struct stat *ret), (fd, ret))
WRAP(int, stat64, -1, EIO, (const char *path, struct stat64 *ret), (path, ret))
WRAP(int, lstat64, -1, EIO, (const char *path, struct stat64 *ret), (path, ret))
WRAP(int, fstat64, -1, EIO, (int fd, struct stat64 *ret), (fd, ret))
int flock(int fd, int how)
{
    REAL(flock);
    if (refuse_lock(__builtin_return_address(0))) {
        errno = ENOLCK;
        return -1;
    }
    return real(fd, how);
}
WRAP(int, fchmod, -1, EIO, (int fd, mode_t mode), (fd, mode))
WRAP(int, access, -1, EIO, (const char *path, int mode), (path, mode))
WRAP(int, pipe2, -1, EMFILE, (int ends[2], int flags), (ends, flags))
WRAP(int, socketpair, -1, EMFILE, (int domain, int type, int protocol, int ends[2]),
     (domain, type, protocol, ends))
WRAP(ssize_t, sendmsg, -1, ENOBUFS, (int fd, const struct msghdr *message, int flags),
     (fd, message, flags))
WRAP(ssize_t, sendto, -1, ENOBUFS,
     (int fd, const void *bytes, size_t size, int flags, __CONST_SOCKADDR_ARG to, socklen_t room),
     (fd, bytes, size, flags, to, room))
WRAP(ssize_t, send, -1, ENOBUFS, (int fd, const void *bytes, size_t size, int flags),
     (fd, bytes, size, flags))
WRAP(ssize_t, recv, -1, EIO, (int fd, void *bytes, size_t size, int flags),
     (fd, bytes, size, flags))
WRAP(void *, mmap, MAP_FAILED, ENOMEM,
     (void *at, size_t size, int protection, int flags, int fd, off_t offset),
     (at, size, protection, flags, fd, offset))
WRAP(void *, mmap64, MAP_FAILED, ENOMEM,
     (void *at, size_t size, int protection, int flags, int fd, off64_t offset),
     (at, size, protection, flags, fd, offset))
/* These tell why by what they return. */
WRAP(int, pthread_create, EAGAIN, EAGAIN,
     (pthread_t * ret, const pthread_attr_t *how, void *(*run)(void *), void *context),
     (ret, how, run, context))
WRAP(int, posix_spawn, EAGAIN, EAGAIN,
     (pid_t * ret, const char *path, const posix_spawn_file_actions_t *actions,
      const posix_spawnattr_t *how, char *const *arguments, char *const *environment),
     (ret, path, actions, how, arguments, environment))

/* As one call, which may fail in either way: after an allocation has failed within it, glibc 2.36 gives the
 * library no thread-local variables when it is loaded again. */
void *dlopen(const char *path, int flags)
{
    REAL(dlopen);
    const void *caller = __builtin_return_address(0);
    if (refuse_memory(caller) || refuse_io(caller))
        path = "/dev/null/no-library"; /* so that dlerror() has something to tell */
    bool before = failing_set_inside(true);
    void *library = real(path, flags);
    failing_set_inside(before);
    return library;
}

WRAP(FILE *, fopen, NULL, EMFILE, (const char *path, const char *mode), (path, mode))
WRAP(FILE *, fopen64, NULL, EMFILE, (const char *path, const char *mode), (path, mode))
WRAP(int, mkostemp, -1, ENOSPC, (char *path, int flags), (path, flags))
WRAP(int, mkostemp64, -1, ENOSPC, (char *path, int flags), (path, flags))
