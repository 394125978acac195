/* A disk that fails: the N-th call that writes below one directory returns an error. Loaded with LD_PRELOAD.
 *
 * The state lies in shared memory, so a parent sees what its forks did. Calls that go round the C library escape, and
 * so do writes through a mapping.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct state {
    char below[PATH_MAX]; /* calls on paths that begin so are counted; empty: none */
    long at;              /* the call that fails; 0: none */
    int error;
    int lasting;          /* every later call fails, too; of a full disk, those that need room */
    long count;
    long failed;
    char what[64];        /* the first call that failed, */
    char path[PATH_MAX];  /* and on what */
};

static struct state *state;

__attribute__((constructor)) static void begin(void) {
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void failing_arm(const char *below, long at, int error, int lasting) {
    snprintf(state->below, sizeof state->below, "%s", below);
    state->at = at, state->error = error, state->lasting = lasting;
    state->count = state->failed = 0;
    state->what[0] = state->path[0] = 0;
}

long failing_count(void) { return state->count; }
long failing_failed(void) { return state->failed; }
const char *failing_what(void) { return state->what; }
const char *failing_path(void) { return state->path; }

static int fails(const char *what, const char *path) {
    if (!state->below[0] || strncmp(path, state->below, strlen(state->below)) != 0)
        return 0;
    long number = __sync_add_and_fetch(&state->count, 1);
    int needs_room = strcmp(what, "open") == 0 || strcmp(what, "write") == 0 || strcmp(what, "mkdir") == 0;
    int later = state->lasting && number > state->at && (state->error != ENOSPC || needs_room);
    if (!state->at || (number != state->at && !later))
        return 0;
    if (__sync_fetch_and_add(&state->failed, 1) == 0) {
        snprintf(state->what, sizeof state->what, "%s", what);
        snprintf(state->path, sizeof state->path, "%s", path);
    }
    errno = state->error;
    return 1;
}

static int fails_fd(const char *what, int fd) {
    char link[64], path[PATH_MAX];
    if (!state || !state->below[0])
        return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    errno = before;
    if (size < 0)
        return 0;
    path[size] = 0;
    return fails(what, path);
}

static int fails_at(const char *what, int fd, const char *name) {
    char link[64], path[PATH_MAX * 2];
    if (!state || !state->below[0])
        return 0;
    if (name[0] == '/')
        return fails(what, name);
    int before = errno;
    snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    errno = before;
    if (size < 0)
        return 0;
    snprintf(path + size, sizeof path - size, "/%s", name);
    return fails(what, path);
}

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

#define OPEN(name)                                                                                                   \
    int name(const char *path, int flags, ...) {                                                                     \
        va_list rest;                                                                                                \
        va_start(rest, flags);                                                                                       \
        mode_t mode = va_arg(rest, mode_t);                                                                          \
        va_end(rest);                                                                                                \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && fails_at("open", AT_FDCWD, path))                             \
            return -1;                                                                                               \
        return REAL(name)(path, flags, mode);                                                                        \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                 \
    int name(int fd, const char *path, int flags, ...) {                                                             \
        va_list rest;                                                                                                \
        va_start(rest, flags);                                                                                       \
        mode_t mode = va_arg(rest, mode_t);                                                                          \
        va_end(rest);                                                                                                \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && fails_at("open", fd, path))                                   \
            return -1;                                                                                               \
        return REAL(name)(fd, path, flags, mode);                                                                    \
    }
OPENAT(openat)
OPENAT(openat64)

#define ON_FD(type, name, what, parameters, arguments)                                                               \
    type name parameters { return fails_fd(what, fd) ? -1 : REAL(name) arguments; }
ON_FD(ssize_t, write, "write", (int fd, const void *from, size_t size), (fd, from, size))
ON_FD(ssize_t, pwrite, "write", (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
ON_FD(ssize_t, pwrite64, "write", (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))
ON_FD(ssize_t, writev, "write", (int fd, const struct iovec *from, int count), (fd, from, count))
ON_FD(ssize_t, pwritev, "write", (int fd, const struct iovec *from, int count, off_t at), (fd, from, count, at))
ON_FD(int, fsync, "fsync", (int fd), (fd))
ON_FD(int, fdatasync, "fsync", (int fd), (fd))
ON_FD(int, ftruncate, "truncate", (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, "truncate", (int fd, off64_t size), (fd, size))
ON_FD(int, fchmod, "chmod", (int fd, mode_t mode), (fd, mode))

int close(int fd) { /* a descriptor is gone even where its last bytes could not be written */
    int before = errno, written = 0;
    if (state && state->below[0]) {
        int flags = fcntl(fd, F_GETFL);
        written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
        errno = before;
    }
    int failed = written && fails_fd("close", fd);
    int result = REAL(close)(fd);
    if (failed) {
        errno = state->error;
        return -1;
    }
    return result;
}

int rename(const char *from, const char *to) {
    return fails_at("rename", AT_FDCWD, to) ? -1 : REAL(rename)(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
    return fails_at("rename", b, to) ? -1 : REAL(renameat)(a, from, b, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    return fails_at("rename", b, to) ? -1 : REAL(renameat2)(a, from, b, to, flags);
}

#define ON_PATH(name, what, parameters, arguments)                                                                   \
    int name parameters { return fails_at(what, AT_FDCWD, path) ? -1 : REAL(name) arguments; }
ON_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
ON_PATH(unlink, "unlink", (const char *path), (path))
ON_PATH(rmdir, "unlink", (const char *path), (path))
ON_PATH(chmod, "chmod", (const char *path, mode_t mode), (path, mode))
ON_PATH(truncate, "truncate", (const char *path, off_t size), (path, size))
ON_PATH(truncate64, "truncate", (const char *path, off64_t size), (path, size))

#define ON_PATH_AT(name, what, parameters, arguments)                                                                \
    int name parameters { return fails_at(what, fd, path) ? -1 : REAL(name) arguments; }
ON_PATH_AT(mkdirat, "mkdir", (int fd, const char *path, mode_t mode), (fd, path, mode))
ON_PATH_AT(unlinkat, "unlink", (int fd, const char *path, int flags), (fd, path, flags))
ON_PATH_AT(fchmodat, "chmod", (int fd, const char *path, mode_t mode, int flags), (fd, path, mode, flags))
