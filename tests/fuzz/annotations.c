/* annotations.c - any bytes as a COCO file to learn from. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "train/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = memfd_create("annotations", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    train_set s = {0};
    train_options o = {.annotations = path, .pictures = ".", .masks = true};
    (void)train_set_read(&s, &o, NULL);
    train_set_free(&s);
    close(fd);
    return 0;
}
