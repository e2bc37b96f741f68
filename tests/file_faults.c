/* A library to preload: one file operation below a folder fails, is torn, or ends the process.

   It reads these variables of the environment at each operation, so that a fork can set its own:

   FAULT_FOLDER  operations on paths that begin with this are counted from 1; without it, nothing happens
   FAULT_LOG     a file that gets a line for each of them: its number, its name, its path
   FAULT_AT      the number of the operation at which the fault comes; without it, they are only counted
   FAULT_KIND    kill: SIGKILL instead of the operation
                 tear: half of a write, or another operation as a whole, and then SIGKILL
                 signal: the signal FAULT_NUMBER, and then the operation
                 fail: the operation fails with the error FAULT_NUMBER
                 stay: so do all that follow; the first, if it is a write, writes half, as on a disk that fills up

   What only reads is no operation here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum fate { RUNS, FAILS, RUNS_BY_HALF, IS_TORN };

static _Noreturn void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* The absolute path of a name beside an open folder, or, without a name, of what is open; empty if it has none. */
static void find_path(char path[2 * PATH_MAX], int descriptor, const char *name)
{
    char link[64] = "/proc/self/cwd";
    if (descriptor != AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = 0;
    if (name == NULL || name[0] != '/')
        length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        length = 0;
    path[length] = '\0';
    if (name != NULL)
        snprintf(path + length, PATH_MAX, length > 0 ? "/%s" : "%s", name);
}

static void report(int number, const char *operation, const char *path)
{
    FILE *log = getenv("FAULT_LOG") == NULL ? NULL : fopen(getenv("FAULT_LOG"), "a");
    if (log == NULL)
        return;
    fprintf(log, "%d %s %s\n", number, operation, path);
    fclose(log);
}

/* Count an operation, and return what becomes of it; where it fails, errno is set. */
static enum fate fate_of(const char *operation, int descriptor, const char *name)
{
    static atomic_int count;
    const char *folder = getenv("FAULT_FOLDER"), *at = getenv("FAULT_AT"), *kind = getenv("FAULT_KIND");
    char path[2 * PATH_MAX];
    int before = errno;
    if (folder == NULL)
        return RUNS;
    find_path(path, descriptor, name);
    errno = before;
    if (strncmp(path, folder, strlen(folder)) != 0)
        return RUNS;
    int number = atomic_fetch_add(&count, 1) + 1;
    report(number, operation, path);
    errno = before;
    if (at == NULL || kind == NULL || number < atoi(at) || (number > atoi(at) && strcmp(kind, "stay") != 0))
        return RUNS;
    if (strcmp(kind, "kill") == 0)
        die();
    if (strcmp(kind, "tear") == 0)
        return IS_TORN;
    if (strcmp(kind, "signal") == 0) {
        kill(getpid(), atoi(getenv("FAULT_NUMBER")));
        return RUNS;
    }
    errno = atoi(getenv("FAULT_NUMBER"));
    return strcmp(kind, "stay") == 0 && number == atoi(at) ? RUNS_BY_HALF : FAILS;
}

/* Define an operation that is done as a whole or not at all. */
#define OPERATION(function, descriptor, name, parameters, ...)  \
    int function parameters                                     \
    {                                                           \
        enum fate fate = fate_of(#function, descriptor, name);  \
        if (fate == FAILS || fate == RUNS_BY_HALF)              \
            return -1;                                          \
        int(*real) parameters = dlsym(RTLD_NEXT, #function);    \
        int result = real(__VA_ARGS__);                         \
        if (fate == IS_TORN)                                    \
            die();                                              \
        return result;                                          \
    }

/* Define an operation that writes `size` bytes; it can write half of them. */
#define WRITING(function, parameters, ...)                      \
    ssize_t function parameters                                 \
    {                                                           \
        enum fate fate = fate_of(#function, descriptor, NULL);  \
        if (fate == FAILS || (fate == RUNS_BY_HALF && size < 2)) \
            return -1;                                          \
        if (fate != RUNS)                                       \
            size /= 2;                                          \
        ssize_t(*real) parameters = dlsym(RTLD_NEXT, #function); \
        ssize_t result = real(__VA_ARGS__);                     \
        if (fate == IS_TORN)                                    \
            die();                                              \
        return result;                                          \
    }

/* Define a function that opens a file; it is an operation if the file is opened to be written, or made. */
#define OPENING(function, descriptor, parameters, ...)                                  \
    int function parameters                                                             \
    {                                                                                   \
        int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0;         \
        enum fate fate = writes ? fate_of(#function, descriptor, name) : RUNS;          \
        if (fate == FAILS || fate == RUNS_BY_HALF)                                      \
            return -1;                                                                  \
        va_list rest;                                                                   \
        va_start(rest, flags);                                                          \
        mode_t mode = va_arg(rest, mode_t);                                             \
        va_end(rest);                                                                   \
        int(*real) parameters = dlsym(RTLD_NEXT, #function);                            \
        int result = real(__VA_ARGS__, mode);                                           \
        if (fate == IS_TORN)                                                            \
            die();                                                                      \
        return result;                                                                  \
    }

OPENING(open, AT_FDCWD, (const char *name, int flags, ...), name, flags)
OPENING(open64, AT_FDCWD, (const char *name, int flags, ...), name, flags)
OPENING(openat, folder, (int folder, const char *name, int flags, ...), folder, name, flags)
OPENING(openat64, folder, (int folder, const char *name, int flags, ...), folder, name, flags)

WRITING(write, (int descriptor, const void *bytes, size_t size), descriptor, bytes, size)
WRITING(pwrite, (int descriptor, const void *bytes, size_t size, off_t at), descriptor, bytes, size, at)
WRITING(pwrite64, (int descriptor, const void *bytes, size_t size, off64_t at), descriptor, bytes, size, at)
WRITING(sendfile, (int descriptor, int from, off_t *at, size_t size), descriptor, from, at, size)
WRITING(sendfile64, (int descriptor, int from, off64_t *at, size_t size), descriptor, from, at, size)

OPERATION(fsync, descriptor, NULL, (int descriptor), descriptor)
OPERATION(fdatasync, descriptor, NULL, (int descriptor), descriptor)
OPERATION(ftruncate, descriptor, NULL, (int descriptor, off_t size), descriptor, size)
OPERATION(ftruncate64, descriptor, NULL, (int descriptor, off64_t size), descriptor, size)
OPERATION(mkdir, AT_FDCWD, name, (const char *name, mode_t mode), name, mode)
OPERATION(mkdirat, folder, name, (int folder, const char *name, mode_t mode), folder, name, mode)
OPERATION(rmdir, AT_FDCWD, name, (const char *name), name)
OPERATION(unlink, AT_FDCWD, name, (const char *name), name)
OPERATION(unlinkat, folder, name, (int folder, const char *name, int flags), folder, name, flags)
OPERATION(rename, AT_FDCWD, to, (const char *from, const char *to), from, to)
OPERATION(renameat, beside, to, (int folder, const char *from, int beside, const char *to), folder, from, beside, to)
OPERATION(link, AT_FDCWD, to, (const char *from, const char *to), from, to)
OPERATION(linkat, beside, to, (int folder, const char *from, int beside, const char *to, int flags),
          folder, from, beside, to, flags)

/* A file that was opened to be written is closed in any case, but its last bytes may be lost. */
int close(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    int writes = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
    enum fate fate = writes ? fate_of("close", descriptor, NULL) : RUNS;
    int error = errno;
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    int result = real(descriptor);
    if (fate == IS_TORN)
        die();
    if (fate == RUNS)
        return result;
    errno = error;
    return -1;
}
