/* stb_image_write lives in this file alone, so that its warnings and names stay here. */
#include "png.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb/stb_image_write.h>

bool png_write(const char *path, int width, int height, const unsigned char *rgb)
{
    return stbi_write_png(path, width, height, 3, rgb, 3 * width) != 0;
}
