/* onnx.c - bytes as an ONNX file: read, and checked. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    samite_error err;
    char path[64];
    int fd = memfd_create("onnx", 0);
    if (fd < 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (write(fd, data, size) == (ssize_t)size)
        onnx_check(path, false, &err);
    close(fd);
    return 0;
}
