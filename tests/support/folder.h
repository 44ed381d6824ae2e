/* A folder of its own for a test that writes files. */
#ifndef LG_TESTS_FOLDER_H
#define LG_TESTS_FOLDER_H

#include <stddef.h>

/* Makes an empty folder, and removes it with the files in it. */
void folder_begin(void);
void folder_end(void);
/* The path of a file in it; valid until the fourth call after. */
const char *in_folder(const char *name);
/* How many files are in it. */
int folder_count(void);
/* Writes / reads a whole file; the test fails if that fails. What is read is malloc'd. */
void write_file(const char *path, const void *data, size_t size);
unsigned char *read_file(const char *path, size_t *size);
/* The path of a file in $LUGE_TEST_DATA, or NULL where that is not set; likewise. */
const char *test_data(const char *name);

#endif
