/* Faults of a disk, for a process that is started with this before libc (LD_PRELOAD).
 *
 * REJOIN_FAULT names a file whose first byte says what happens to files of the database from now on:
 *   w  writes fail (EIO)            s  syncs fail (EIO)
 *   f  the disk is full (ENOSPC)    d  syncs take as many milliseconds as follow (50)
 * anything else: nothing. Each sync adds a byte to the file REJOIN_SYNCS, and copies the file that
 * was synced to the directory REJOIN_KEPT, if that is set: what a power cut would leave for sure.
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

#define PATH_SIZE 4096
#define FAULT_SIZE 16
#define DELAY_MS 50

/* The path of a file of the database; 0: it is another one. */
static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_SIZE - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, "/rejoin.db") && !strstr(path, "-shm");
}

/* The kind; what follows it goes to `more`. */
static char fault(int fd, char more[FAULT_SIZE])
{
    char path[PATH_SIZE], said[FAULT_SIZE + 1] = "";
    if (!path_of(fd, path))
        return 0;
    int control = open(getenv("REJOIN_FAULT"), O_RDONLY | O_CLOEXEC);
    if (control >= 0) {
        ssize_t count = read(control, said, FAULT_SIZE);
        said[count > 0 ? count : 0] = 0;
        close(control);
    }
    strcpy(more, said[0] ? said + 1 : "");
    return said[0] ? said[0] : '-';
}

static int refuses(int fd)
{
    char more[FAULT_SIZE], kind = fault(fd, more);
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
    return refuses(fd) ? -1 : syscall(SYS_write, fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    return refuses(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset)
{
    return refuses(fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, count, offset);
}

#define BLOCK_SIZE 4096

/* What a power cut would leave for sure of a file that was synced: all of it, but for what was
 * written before a sync that failed and not again since. The kernel took that for written.
 */
static void keep(int fd, int has_failed)
{
    char path[PATH_SIZE], kept[2 * PATH_SIZE], dropped[3 * PATH_SIZE], new[3 * PATH_SIZE];
    char block[BLOCK_SIZE], old[BLOCK_SIZE], gone[BLOCK_SIZE];
    const char *directory = getenv("REJOIN_KEPT");
    if (!directory || !path_of(fd, path))
        return;
    snprintf(kept, sizeof kept, "%s%s", directory, strrchr(path, '/'));
    snprintf(dropped, sizeof dropped, "%s.dropped", kept);
    snprintf(new, sizeof new, "%s.new", kept);
    int old_fd = open(kept, O_RDONLY | O_CLOEXEC), gone_fd = open(dropped, O_RDONLY | O_CLOEXEC);
    int copy = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t count;
    for (off_t at = 0; (count = pread(fd, block, BLOCK_SIZE, at)) > 0; at += count) {
        memset(old, 0, sizeof old);
        pread(old_fd, old, count, at);
        int is_gone = pread(gone_fd, gone, count, at) == count && !memcmp(gone, block, count);
        if (syscall(SYS_write, copy, is_gone && !has_failed ? old : block, count) != count)
            abort();
    }
    close(copy);
    close(old_fd);
    close(gone_fd);
    rename(new, has_failed ? dropped : kept);
}

static int sync_file(int fd, long call)
{
    char more[FAULT_SIZE], kind = fault(fd, more);
    if (kind) {
        int count = open(getenv("REJOIN_SYNCS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (count >= 0) {
            syscall(SYS_write, count, ".", 1);
            close(count);
        }
    }
    if (kind == 's') {
        keep(fd, 1);
        errno = EIO;
        return -1;
    }
    if (kind == 'd') {
        long delay_ms = *more ? atol(more) : DELAY_MS;
        struct timespec time = {delay_ms / 1000, delay_ms % 1000 * 1000 * 1000};
        nanosleep(&time, NULL);
    }
    int synced = syscall(call, fd);
    keep(fd, 0);
    return synced;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }

int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }
