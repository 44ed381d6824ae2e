/* The safetensors format: 8 bytes of header length, a JSON header, the elements of all tensors in
 * row-major order without gaps. Readers check all of the header against the size of the file before
 * anything is allocated or read. https://github.com/huggingface/safetensors */
#ifndef LG_IO_SAFETENSORS_H
#define LG_IO_SAFETENSORS_H

#include "core/tensor.h"

/* ---- writing */

/* One tensor of a file to be written. An alias has no elements of its own: the file's metadata says
 * under which name they are, as PyTorch's save_model does. */
typedef struct lg_st_tensor {
    const char *name;
    luge_tensor *tensor;
    const char *alias_of; /* NULL: none */
} lg_st_tensor;

/* Writes a whole file, replacing what was there in one step. */
luge_status lg_safetensors_write(const char *path, const lg_st_tensor *tensors, int count);

/* ---- reading */

/* One tensor of a file. */
typedef struct lg_st_entry {
    const char *name;
    const char *stored; /* the file's name of its dtype, "BF16" */
    luge_dtype dtype;   /* how it is read; I8, I16 and U16 are widened to i32, U32 to i64 */
    bool readable;      /* false: a dtype that can only be skipped (F8, U64, complex, ...) */
    luge_shape shape;
    uint64_t begin, end; /* in the file */
} lg_st_entry;

typedef struct lg_safetensors lg_safetensors;

/* NULL with LUGE_ERR_IO, or LUGE_ERR_FORMAT for a file that breaks a rule of the format. */
lg_safetensors *lg_safetensors_open(const char *path);
void lg_safetensors_close(lg_safetensors *s);
int lg_safetensors_count(const lg_safetensors *s);
/* Sorted by name. */
const lg_st_entry *lg_safetensors_entry(const lg_safetensors *s, int i);
/* The number of the entry of that name, or -1. */
int lg_safetensors_find(const lg_safetensors *s, const char *name);
/* A new tensor on the host with an entry's elements, row-major; owned. */
luge_tensor *lg_safetensors_read(lg_safetensors *s, int i);

#endif
