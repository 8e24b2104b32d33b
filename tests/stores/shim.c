/* While the file named by FAIL_SYNC exists, every fsync and fdatasync fails with EIO; while the one named by HOLD_SYNC
   exists, each of them waits for it to go away. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int there(const char *variable) {
    const char *name = getenv(variable);
    return name && access(name, F_OK) == 0;
}

static int refused(void) {
    while (there("HOLD_SYNC")) usleep(1000);
    return there("FAIL_SYNC");
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (refused()) { errno = EIO; return -1; }
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}

int fsync(int fd) {
    static int (*real)(int);
    if (refused()) { errno = EIO; return -1; }
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}
