/* Makes the Nth and every following fsync or fdatasync fail with EIO while the file named by FAIL_SYNC exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int refused(void) {
    const char *name = getenv("FAIL_SYNC");
    return name && access(name, F_OK) == 0;
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
