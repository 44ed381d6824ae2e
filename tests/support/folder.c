/* Folders and files of tests. */
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

static char *next_path(void)
{
    static char path[4][1024];
    static int turn;
    return path[turn++ % 4];
}

void folder_begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/luge_test_XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
}

static int each_file(void (*visit)(const char *path))
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        ++count;
        if (visit != NULL) visit(in_folder(e->d_name));
    }
    closedir(dir);
    return count;
}

static void remove_file(const char *path)
{
    remove(path);
}

void folder_end(void)
{
    each_file(remove_file);
    rmdir(folder);
}

int folder_count(void)
{
    return each_file(NULL);
}

const char *in_folder(const char *name)
{
    char *path = next_path();
    snprintf(path, 1024, "%s/%s", folder, name);
    return path;
}

void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

unsigned char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

const char *test_data(const char *name)
{
    const char *data = getenv("LUGE_TEST_DATA");
    if (data == NULL) return NULL;
    char *path = next_path();
    snprintf(path, 1024, "%s/%s", data, name);
    return path;
}
