/* The dtypes of the safetensors format and what they are to us. Shared by its reader and writer. */
#ifndef LG_IO_SAFETENSORS_DTYPES_H
#define LG_IO_SAFETENSORS_DTYPES_H

#include <luge/base.h>

enum { LG_ST_MAX_HEADER = 100000000 }; /* bytes: the reference implementation's limit */

/* How elements become ours. */
typedef enum lg_st_form {
    LG_ST_AS_IS,
    LG_ST_BOOL, /* any byte but 0 is true */
    LG_ST_I8,   /* these are widened */
    LG_ST_I16,
    LG_ST_U16,
    LG_ST_U32,
    LG_ST_UNREADABLE
} lg_st_form;

typedef struct lg_st_dtype {
    const char *name;
    unsigned bits;    /* of an element */
    luge_dtype dtype; /* it is read as */
    lg_st_form form;
} lg_st_dtype;

/* Ours come first, in the order of luge_dtype; the name of the last is NULL. */
extern const lg_st_dtype lg_st_dtypes[];

#endif
