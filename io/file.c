/* Reading files, and replacing them in one step: write, fsync, close, rename, fsync of the directory.
 * Nothing that the operating system answers is left unread. */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/thread.h"

enum { ONE_CALL = 1 << 30 }; /* bytes: some systems refuse more than 2 GiB in one read or write */

/* Whether the call may be made: else as if the system had refused it. */
static bool allowed(void)
{
    if (!lg_fault(LG_FAULT_FILE)) return true;
    errno = EIO;
    return false;
}

static luge_status refuse(const char *verb, const char *path)
{
    const int code = errno;
    char reason[128];
    if (strerror_r(code, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "error %d", code);
    return lg_fail(LUGE_ERR_IO, "cannot %s %s: %s", verb, path, reason);
}

/* ---- writing */

/* A name beside `path` that no other save uses: the file must not exist. */
static int create_temporary(lg_writer *w)
{
    static _Atomic unsigned number;
    const size_t room = strlen(w->path) + 48;
    w->temporary = lg_alloc(room);
    if (w->temporary == NULL) return -1;
    for (int tries = 0; tries < 1000; ++tries) {
        snprintf(w->temporary, room, "%s.%ld.%u.tmp", w->path, (long)getpid(), number++);
        const int fd = allowed() ? open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
        if (fd >= 0 || (errno != EEXIST && errno != EINTR)) return fd;
    }
    return -1;
}

luge_status lg_writer_open(lg_writer *w, const char *path)
{
    *w = (lg_writer){.fd = -1};
    if (!lg_ok()) return lg_error();
    w->path = lg_copy_text(path);
    if (w->path == NULL) return lg_error();
    w->fd = create_temporary(w);
    if (w->fd < 0 && lg_ok()) refuse("create", w->temporary);
    return lg_error();
}

luge_status lg_writer_write(lg_writer *w, const void *data, size_t bytes)
{
    if (!lg_ok()) return lg_error();
    const char *from = data;
    while (bytes > 0) {
        const ssize_t n = allowed() ? write(w->fd, from, bytes < ONE_CALL ? bytes : ONE_CALL) : -1;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refuse("write", w->temporary);
        from += n;
        bytes -= (size_t)n;
    }
    return LUGE_OK;
}

static int sync_file(int fd)
{
    int result;
    do result = allowed() ? fsync(fd) : -1;
    while (result < 0 && errno == EINTR);
    return result;
}

/* After a failing close the descriptor is gone all the same. */
static int close_file(int *fd)
{
    const int closed = close(*fd);
    *fd = -1;
    return allowed() ? closed : -1;
}

/* The rename is not durable before the directory is. */
static luge_status sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char *directory = lg_alloc(length + 2);
    if (directory == NULL) return lg_error();
    memcpy(directory, path, length);
    memcpy(directory + length, length == 0 ? "." : "", length == 0 ? 2 : 1);

    int fd = allowed() ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool good = fd >= 0;
    /* Some file systems have no sync of directories, and need none. */
    if (good) good = sync_file(fd) == 0 || errno == EINVAL || errno == ENOTSUP;
    if (!good) refuse("sync the directory", directory);
    if (fd >= 0 && close_file(&fd) != 0 && good) refuse("close the directory", directory);
    lg_free(directory);
    return lg_error();
}

static luge_status replace(lg_writer *w)
{
    if (sync_file(w->fd) != 0) return refuse("sync", w->temporary);
    if (close_file(&w->fd) != 0) return refuse("close", w->temporary);
    if (!allowed() || rename(w->temporary, w->path) != 0) return refuse("replace", w->path);
    lg_free(w->temporary);
    w->temporary = NULL;
    return sync_directory(w->path);
}

luge_status lg_writer_end(lg_writer *w)
{
    const bool created = w->fd >= 0;
    if (created && lg_ok()) replace(w);
    if (w->fd >= 0) close(w->fd);
    if (created && w->temporary != NULL) unlink(w->temporary); /* the error that led here stands */
    lg_free(w->temporary);
    lg_free(w->path);
    *w = (lg_writer){.fd = -1};
    return lg_error();
}

/* ---- reading */

luge_status lg_reader_open(lg_reader *r, const char *path)
{
    *r = (lg_reader){.fd = -1};
    if (!lg_ok()) return lg_error();
    r->path = lg_copy_text(path);
    if (r->path == NULL) return lg_error();
    /* O_NONBLOCK: opening a pipe must not wait for its writer. */
    do r->fd = allowed() ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    while (r->fd < 0 && errno == EINTR);
    struct stat info;
    if (r->fd < 0 || !allowed() || fstat(r->fd, &info) != 0) {
        refuse("open", path);
    } else if (!S_ISREG(info.st_mode)) {
        lg_fail(LUGE_ERR_IO, "%s is not a regular file", path);
    } else {
        r->size = (uint64_t)info.st_size;
        return LUGE_OK;
    }
    lg_reader_close(r);
    return lg_error();
}

luge_status lg_reader_read(lg_reader *r, uint64_t offset, void *to, size_t bytes)
{
    char *at = to;
    while (bytes > 0) {
        const ssize_t n = allowed() ? pread(r->fd, at, bytes < ONE_CALL ? bytes : ONE_CALL, (off_t)offset) : -1;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return refuse("read", r->path);
        if (n == 0) return lg_fail(LUGE_ERR_FORMAT, "%s is shorter than it says", r->path);
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return LUGE_OK;
}

void lg_reader_close(lg_reader *r)
{
    if (r->fd >= 0) close(r->fd); /* nothing was written: nothing can be lost */
    lg_free(r->path);
    *r = (lg_reader){.fd = -1};
}
