/* versions.h - names the picture libraries in use. */
#ifndef IO_VERSIONS_H
#define IO_VERSIONS_H

#include <stddef.h>

/* "libjpeg-turbo 2.1.5, libpng 1.6.39, ..." into out[room]. */
void io_versions(char *out, size_t room);

#endif
