/* The idx format of MNIST and its relatives, plain or in gzip: two zero bytes, the element type, the
 * rank, the sizes as big-endian 32-bit integers, then the elements. What a file is, its first bytes
 * say, not its name; nothing is allocated for sizes that the file cannot hold. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/alloc.h"
#include "core/fault.h"
#include "core/thread.h"
#include "data/dataset.h"

enum { IDX_U8 = 0x08, CHUNK = 64 << 10, HEADER_MAX = 4 + 4 * LUGE_MAX_RANK };

/* Deflate cannot shrink anything below 1/1032 of its size (258 bytes in two bits of a block). */
enum { DEFLATE_MAX_RATIO = 1032 };

/* A file that is read from front to end, through inflate if it is gzip. */
typedef struct source {
    const char *path;
    int file;                /* -1: closed */
    int64_t bytes;           /* of the file as it lies on the disk */
    bool gzip, stream_open;
    bool ended;              /* gzip: the end of its data has been seen, and its checksum was right */
    z_stream stream;
    unsigned char *chunk;    /* gzip: what inflate reads from */
} source;

static luge_status wrong(const source *s, const char *what)
{
    return lg_fail(LUGE_ERR_FORMAT, "%s: %s", s->path, what);
}

static luge_status refused(const source *s, const char *doing)
{
    return lg_fail(LUGE_ERR_IO, "%s: cannot %s: %s", s->path, doing, strerror(errno));
}

static bool fault(void)
{
    if (!lg_fault(LG_FAULT_FILE)) return false;
    errno = EIO;
    return true;
}

/* Up to `n` bytes of the file as it lies on the disk; fewer only at its end. -1 on error. */
static int64_t read_raw(source *s, unsigned char *to, size_t n)
{
    size_t got = 0;
    while (got < n) {
        const ssize_t more = fault() ? -1 : read(s->file, to + got, n - got);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) {
            refused(s, "read");
            return -1;
        }
        if (more == 0) break;
        got += (size_t)more;
    }
    return (int64_t)got;
}

static voidpf zlib_alloc(voidpf user, uInt items, uInt size)
{
    (void)user;
    return lg_alloc((size_t)items * size);
}

static void zlib_free(voidpf user, voidpf memory)
{
    (void)user;
    lg_free(memory);
}

static luge_status inflate_error(const source *s, int code)
{
    if (code == Z_MEM_ERROR) return lg_fail(LUGE_ERR_OUT_OF_MEMORY, "%s: no memory to inflate it", s->path);
    return lg_fail(LUGE_ERR_FORMAT, "%s: its gzip data is damaged (%s)", s->path,
                   s->stream.msg != NULL ? s->stream.msg : "zlib");
}

/* Up to `n` bytes of what is packed; fewer only at its end. -1 on error, a truncated file included. */
static int64_t read_gzip(source *s, unsigned char *to, size_t n)
{
    size_t got = 0;
    while (got < n && !s->ended) {
        if (s->stream.avail_in == 0) {
            const int64_t raw = read_raw(s, s->chunk, CHUNK);
            if (raw < 0) return -1;
            if (raw == 0) {
                wrong(s, "truncated: its gzip data stops before its end; get the file again");
                return -1;
            }
            s->stream.next_in = s->chunk;
            s->stream.avail_in = (uInt)raw;
        }
        const uInt room = n - got > CHUNK ? CHUNK : (uInt)(n - got);
        s->stream.next_out = to + got;
        s->stream.avail_out = room;
        const int code = inflate(&s->stream, Z_NO_FLUSH);
        got += room - s->stream.avail_out;
        if (code == Z_STREAM_END) s->ended = true;
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
            inflate_error(s, code);
            return -1;
        }
    }
    return (int64_t)got;
}

static int64_t read_some(source *s, unsigned char *to, size_t n)
{
    return s->gzip ? read_gzip(s, to, n) : read_raw(s, to, n);
}

/* Whether anything follows: bytes of the data, or of the file behind its gzip data. -1 on error. */
static int more_follows(source *s)
{
    unsigned char byte;
    int64_t n = read_some(s, &byte, 1); /* makes inflate check the trailer, too */
    if (n == 0 && s->gzip) n = s->stream.avail_in > 0 ? 1 : read_raw(s, &byte, 1);
    return (int)n;
}

static luge_status open_source(source *s, const char *path)
{
    *s = (source){.path = path, .file = -1};
    /* Not blocking: a pipe is refused below, not waited for. */
    s->file = fault() ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->file < 0) return refused(s, "open");
    struct stat info;
    if (fault() || fstat(s->file, &info) != 0) return refused(s, "ask for its size");
    if (!S_ISREG(info.st_mode)) return lg_fail(LUGE_ERR_IO, "%s: not a regular file", path);
    s->bytes = (int64_t)info.st_size;
    return LUGE_OK;
}

static luge_status start_gzip(source *s)
{
    s->gzip = true;
    if (lseek(s->file, 0, SEEK_SET) != 0) return refused(s, "seek");
    s->chunk = lg_alloc(CHUNK);
    if (s->chunk == NULL) return lg_error();
    s->stream.zalloc = zlib_alloc;
    s->stream.zfree = zlib_free;
    const int code = inflateInit2(&s->stream, 16 + MAX_WBITS); /* 16: gzip and nothing else */
    s->stream_open = code == Z_OK;
    return code == Z_OK ? LUGE_OK : inflate_error(s, code);
}

static void close_source(source *s)
{
    if (s->stream_open) inflateEnd(&s->stream);
    lg_free(s->chunk);
    if (s->file >= 0) close(s->file);
}

/* ---- the header */

static bool is_gzip(const unsigned char *b, int64_t n) { return n >= 2 && b[0] == 0x1f && b[1] == 0x8b; }

/* What a file is that does not begin like idx; the beginning of `b` is `n` bytes. */
static luge_status not_idx(const source *s, const unsigned char *b, int64_t n)
{
    if (is_gzip(b, n)) return wrong(s, "gzip-compressed inside of its gzip compression: unpack it once");
    int64_t i = 0;
    while (i < n && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t')) ++i;
    if (i < n && b[i] == '<') return wrong(s, "an HTML or XML page, not an idx file: a download that failed");
    if (n == 0) return wrong(s, "empty; an idx file begins with 00 00 08 and its rank");
    if (n < 4) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: %" PRId64 " bytes are too few for an idx file, which begins with 00 00 08 "
                       "and its rank", s->path, n);
    }
    return lg_fail(LUGE_ERR_FORMAT, "%s: not an idx file: it begins with %02x %02x %02x %02x, not 00 00 08",
                   s->path, b[0], b[1], b[2], b[3]);
}

static const char *type_name(unsigned type)
{
    switch (type) {
    case 0x09: return "i8";
    case 0x0b: return "i16";
    case 0x0c: return "i32";
    case 0x0d: return "f32";
    case 0x0e: return "f64";
    default: return NULL;
    }
}

/* Reads the header and opens gzip data where there is some. `rank` 0: any. */
static luge_status read_header(source *s, int rank, luge_shape *shape)
{
    unsigned char b[HEADER_MAX];
    int64_t n = read_raw(s, b, 4);
    if (n < 0) return lg_error();
    if (is_gzip(b, n)) {
        if (start_gzip(s) != LUGE_OK) return lg_error();
        n = read_gzip(s, b, 4);
        if (n < 0) return lg_error();
    }
    if (n < 4 || b[0] != 0 || b[1] != 0) return not_idx(s, b, n);
    if (b[2] != IDX_U8 && type_name(b[2]) == NULL) return not_idx(s, b, n);
    if (b[2] != IDX_U8) {
        return lg_fail(LUGE_ERR_UNSUPPORTED, "%s: its elements are %s (type %02x); only u8 (08) is read", s->path,
                       type_name(b[2]), b[2]);
    }
    if (b[3] < 1 || b[3] > LUGE_MAX_RANK) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: of rank %d; 1 to %d is read", s->path, b[3], LUGE_MAX_RANK);
    }
    if (rank != 0 && b[3] != rank) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: of rank %d, expected %d (%s)", s->path, b[3], rank,
                       rank == 1 ? "labels" : "images");
    }
    shape->rank = b[3];
    n = read_some(s, b, 4 * (size_t)shape->rank);
    if (n < 0) return lg_error();
    if (n < 4 * shape->rank) return wrong(s, "truncated within its header");
    for (int i = 0; i < shape->rank; ++i) {
        const unsigned char *d = b + 4 * i;
        shape->dim[i] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
    }
    return LUGE_OK;
}

/* Whether as many elements can be in the file at all; exact where it is not packed. */
static luge_status check_size(const source *s, const luge_shape *shape)
{
    char text[LG_SHAPE_TEXT];
    const int64_t elements = lg_shape_numel(shape);
    const int64_t expected = 4 + 4 * (int64_t)shape->rank + elements;
    if (elements < 0) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: its header claims the impossible shape %s", s->path,
                       lg_shape_text(text, shape));
    }
    if (!s->gzip && s->bytes != expected) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: has %" PRId64 " bytes, but its header says %s, which takes %" PRId64 "%s",
                       s->path, s->bytes, lg_shape_text(text, shape), expected,
                       s->bytes < expected ? ": truncated?" : ": bytes follow its end");
    }
    if (s->gzip && expected / DEFLATE_MAX_RATIO > s->bytes) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: its header says %s, which %" PRId64 " bytes of gzip cannot hold", s->path,
                       lg_shape_text(text, shape), s->bytes);
    }
    return LUGE_OK;
}

static luge_status read_elements(source *s, luge_tensor *t)
{
    char text[LG_SHAPE_TEXT];
    const int64_t n = read_some(s, lg_data(t), (size_t)t->numel);
    if (n < 0) return lg_error();
    if (n < t->numel) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: truncated: has %" PRId64 " elements, but its header says %s", s->path, n,
                       lg_shape_text(text, &t->shape));
    }
    const int more = more_follows(s);
    if (more < 0) return lg_error();
    if (more > 0) {
        return lg_fail(LUGE_ERR_FORMAT, "%s: bytes follow the end of the %s elements that its header says", s->path,
                       lg_shape_text(text, &t->shape));
    }
    return LUGE_OK;
}

static luge_tensor *read_source(source *s, int rank)
{
    luge_shape shape = {0};
    lg_device *host = lg_device_get(luge_device_cpu());
    if (host == NULL || read_header(s, rank, &shape) != LUGE_OK || check_size(s, &shape) != LUGE_OK) return NULL;
    luge_tensor *t = lg_tensor_create(host, LUGE_U8, &shape, NULL);
    if (t != NULL && read_elements(s, t) != LUGE_OK) {
        luge_release(t);
        t = NULL;
    }
    return t;
}

luge_tensor *lg_read_idx(const char *path, int rank)
{
    source s;
    luge_tensor *t = open_source(&s, path) == LUGE_OK ? read_source(&s, rank) : NULL;
    close_source(&s);
    return t;
}

luge_tensor *luge_read_idx(const char *path)
{
    if (!lg_ok()) return NULL;
    if (path == NULL || path[0] == '\0') {
        lg_fail(LUGE_ERR_ARGUMENT, "luge_read_idx: the path is %s", path == NULL ? "NULL" : "empty");
        return NULL;
    }
    return lg_borrow(lg_read_idx(path, 0));
}
