/* What lies between a node and its system: a wall clock that is wrong, a disk that is slow or
 * fails. Loaded before the C library (LD_PRELOAD); takes its orders from a page of memory that it
 * shares with the harness, the file KRAFTPY_SHIM. Monotonic clocks and sleeping are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct orders {
    int64_t jump_ns;
    int64_t strobe_ns;
    int64_t strobe_period_ns;
    int64_t sync_delay_ns;
    int64_t sync_errno;
    int64_t write_errno;
};

static const volatile struct orders *orders;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off64_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off64_t, int);

__attribute__((constructor)) static void begin(void) {
    static const struct orders none;
    const char *path = getenv("KRAFTPY_SHIM");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev64");
    real_pwritev2 = dlsym(RTLD_NEXT, "pwritev64v2");
    orders = &none;
    if (path == NULL)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof(struct orders), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        orders = page;
}

static int64_t ahead_ns(void) {
    int64_t ahead = orders->jump_ns;
    if (orders->strobe_period_ns > 0) {
        struct timespec now;
        real_clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t now_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
        if (now_ns / orders->strobe_period_ns % 2 == 0)
            ahead += orders->strobe_ns;
    }
    return ahead;
}

int clock_gettime(clockid_t id, struct timespec *time) {
    int code = real_clock_gettime(id, time);
    if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = time->tv_sec * INT64_C(1000000000) + time->tv_nsec + ahead_ns();
        time->tv_sec = ns / INT64_C(1000000000);
        time->tv_nsec = ns % INT64_C(1000000000);
    }
    return code;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into != NULL)
        *into = now.tv_sec;
    return now.tv_sec;
}

static int sync_with(int (*real)(int), int file) {
    if (orders->sync_delay_ns > 0) {
        struct timespec delay = {orders->sync_delay_ns / INT64_C(1000000000),
                                 orders->sync_delay_ns % INT64_C(1000000000)};
        nanosleep(&delay, NULL);
    }
    if (orders->sync_errno != 0) {
        errno = (int)orders->sync_errno;
        return -1;
    }
    return real(file);
}

int fsync(int file) { return sync_with(real_fsync, file); }

int fdatasync(int file) { return sync_with(real_fdatasync, file); }

static int write_fails(void) {
    errno = (int)orders->write_errno;
    return orders->write_errno != 0;
}

ssize_t pwrite64(int file, const void *data, size_t length, off64_t position) {
    return write_fails() ? -1 : real_pwrite(file, data, length, position);
}

ssize_t pwrite(int file, const void *data, size_t length, off_t position) {
    return pwrite64(file, data, length, position);
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t position) {
    return write_fails() ? -1 : real_pwritev(file, parts, count, position);
}

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t position) {
    return pwritev64(file, parts, count, position);
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t position, int flags) {
    return write_fails() ? -1 : real_pwritev2(file, parts, count, position, flags);
}

ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t position, int flags) {
    return pwritev64v2(file, parts, count, position, flags);
}
