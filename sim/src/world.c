/* Preloaded into a run: all randomness comes from the seed, and the wall clock is what the run says.

   REJOIN_SIM_SEED   the seed
   REJOIN_SIM_CLOCK  a file whose first 8 bytes are the Unix time in milliseconds */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t drawn;
static uint64_t seed;
static volatile uint64_t *clock_ms;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("REJOIN_SIM_SEED");
    seed = text ? strtoull(text, NULL, 10) : 0;
    const char *path = getenv("REJOIN_SIM_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(uint64_t), PROT_READ, MAP_SHARED, file, 0);
        clock_ms = mapped == MAP_FAILED ? NULL : mapped;
        close(file);
    }
}

/* SplitMix64 over the count of numbers drawn. */
static uint64_t draw(void) {
    uint64_t z = seed * 0xd1342543de82ef95u + 0x9e3779b97f4a7c15u * (1 + atomic_fetch_add(&drawn, 1));
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

ssize_t getrandom(void *bytes, size_t length, unsigned int flags) {
    (void)flags;
    unsigned char *out = bytes;
    uint64_t word = 0;
    for (size_t i = 0; i < length; i++, word >>= 8) {
        if (i % 8 == 0) {
            word = draw();
        }
        out[i] = (unsigned char)word;
    }
    return (ssize_t)length;
}

int getentropy(void *bytes, size_t length) {
    getrandom(bytes, length, 0);
    return 0;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    if (which == CLOCK_REALTIME && clock_ms != NULL) {
        now->tv_sec = (time_t)(*clock_ms / 1000);
        now->tv_nsec = (long)(*clock_ms % 1000) * 1000000;
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, which, now);
}
