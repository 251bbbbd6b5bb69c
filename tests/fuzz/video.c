/* video.c - fuzz target: any bytes as a video file; frames that come out must be whole. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "io/video.h"

#define MOST_FRAMES 20

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/samite-fuzz-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        return 0;
    ssize_t written = write(file, data, size);
    close(file);
    video_reader *v;
    if (written == (ssize_t)size && video_open(&v, path, NULL, NULL) == 0) {
        video_frame f;
        unsigned sum = 0;
        for (int i = 0; i < MOST_FRAMES && video_next(v, &f, NULL) == 1; i++) {
            size_t n = 3 * (size_t)f.picture.width * (size_t)f.picture.height;
            sum += f.picture.rgb[0] + f.picture.rgb[n - 1];
            pixels_free(&f.picture);
        }
        if (sum == 1)
            putchar(0);
        video_close(v);
    }
    unlink(path);
    return 0;
}
