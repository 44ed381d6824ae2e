/* Writing PNG files, by stb_image_write. */
#ifndef EXAMPLES_PNG_H
#define EXAMPLES_PNG_H

#include <stdbool.h>

/* [height, width, 3] bytes of red, green and blue. False if the file cannot be written. */
bool png_write(const char *path, int width, int height, const unsigned char *rgb);

#endif
