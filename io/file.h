/* Files, written so that a crash at any moment leaves either the old file or the new one, and read with
 * every answer of the operating system looked at. Everything here can be made to fail by
 * LG_FAULT_FILE. */
#ifndef LG_IO_FILE_H
#define LG_IO_FILE_H

#include <luge/status.h>

/* ---- writing: to a temporary file in the same directory, which takes the name at the end */

typedef struct lg_writer {
    int fd; /* -1: not open */
    char *path, *temporary;
} lg_writer;

/* Calls in a row: after one has failed, the next do nothing and return its error. */
luge_status lg_writer_open(lg_writer *w, const char *path);
luge_status lg_writer_write(lg_writer *w, const void *data, size_t bytes);
/* Ends writing. If no error stands: syncs, closes, renames, syncs the directory. Otherwise removes the
 * temporary file. */
luge_status lg_writer_end(lg_writer *w);

/* ---- reading */

typedef struct lg_reader {
    int fd;        /* -1: not open */
    uint64_t size; /* of the file */
    char *path;
} lg_reader;

luge_status lg_reader_open(lg_reader *r, const char *path);
/* Exactly that many bytes; LUGE_ERR_FORMAT if the file ends before. */
luge_status lg_reader_read(lg_reader *r, uint64_t offset, void *to, size_t bytes);
void lg_reader_close(lg_reader *r);

#endif
