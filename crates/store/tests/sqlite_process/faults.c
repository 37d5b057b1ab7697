/* Faults of a disk, for a process that is started with this before libc (LD_PRELOAD).
 *
 * REJOIN_FAULT names a file whose first byte says what happens to files of the database from now on:
 *   w  writes fail (EIO)            s  syncs fail (EIO)
 *   f  the disk is full (ENOSPC)    d  syncs take 50 ms
 * anything else: nothing. Each sync adds a byte to the file REJOIN_SYNCS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static char fault(int fd)
{
    char link[64], path[4096], kind = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (!strstr(path, "rejoin.db") || strstr(path, "-shm"))
        return 0;
    int control = open(getenv("REJOIN_FAULT"), O_RDONLY | O_CLOEXEC);
    if (control >= 0) {
        if (read(control, &kind, 1) != 1)
            kind = 0;
        close(control);
    }
    return kind ? kind : '-';
}

static int refuses(char kind)
{
    if (kind == 'w')
        errno = EIO;
    else if (kind == 'f')
        errno = ENOSPC;
    else
        return 0;
    return 1;
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    return refuses(fault(fd)) ? -1 : syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return refuses(fault(fd)) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    return refuses(fault(fd)) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

static int sync_file(int fd, long call)
{
    char kind = fault(fd);
    if (kind) {
        int count = open(getenv("REJOIN_SYNCS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (count >= 0) {
            syscall(SYS_write, count, ".", 1);
            close(count);
        }
    }
    if (kind == 's') {
        errno = EIO;
        return -1;
    }
    if (kind == 'd') {
        struct timespec time = {0, 50 * 1000 * 1000};
        nanosleep(&time, NULL);
    }
    return syscall(call, fd);
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }

int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }
