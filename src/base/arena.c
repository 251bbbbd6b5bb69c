/* arena.c - a stack of scratch memory in one reserved address range. */
#define _GNU_SOURCE
#include "base/arena.h"

#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define DEFAULT_LIMIT ((size_t)1 << 40)
#define SMALLEST_LIMIT ((size_t)1 << 28)
#define COMMIT_STEP ((size_t)16 << 20)     /* a multiple of the huge page size */

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static void *reserve(size_t size)
{
    void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool arena_open(arena *a, size_t limit, bool counting)
{
    memset(a, 0, sizeof *a);
    a->counting = counting;
    if (counting)
        return true;
    bool fixed = limit != 0;
    size_t size = fixed ? limit : DEFAULT_LIMIT;
    if (size > SIZE_MAX - COMMIT_STEP)
        return false;
    size = round_up(size, COMMIT_STEP);
    a->base = reserve(size);
    while (!a->base && !fixed && size > SMALLEST_LIMIT)
        a->base = reserve(size /= 2);
    a->reserved = a->base ? size : 0;
    return a->base != NULL;
}

void arena_close(arena *a)
{
    if (a->base) {
        UNPOISON(a->base, a->committed);
        munmap(a->base, a->reserved);
    }
    memset(a, 0, sizeof *a);
}

/* Makes the first `need` bytes usable. */
static bool commit(arena *a, size_t need)
{
    if (need <= a->committed)
        return true;
    size_t target = round_up(need, COMMIT_STEP);
    char *from = a->base + a->committed;
    size_t size = target - a->committed;
    if (mprotect(from, size, PROT_READ | PROT_WRITE) != 0)
        return false;
    madvise(from, size, MADV_HUGEPAGE);
    POISON(from, size);
    a->committed = target;
    return true;
}

static void *refuse(arena *a, size_t size)
{
    a->full = true;
    a->wanted = size;
    return NULL;
}

void *arena_take(arena *a, size_t size)
{
    size_t limit = a->counting ? SIZE_MAX : a->reserved;
    if (size > SIZE_MAX - ARENA_ALIGN)
        return refuse(a, size);
    size_t step = round_up(size, ARENA_ALIGN);
    if (step > limit - a->used || (!a->counting && !commit(a, a->used + step)))
        return refuse(a, size);
    char *p = a->counting ? NULL : a->base + a->used;
    if (p)
        UNPOISON(p, size);
    a->used += step;
    if (a->used > a->peak)
        a->peak = a->used;
    return p;
}

size_t arena_mark(const arena *a)
{
    return a->used;
}

void arena_release(arena *a, size_t mark)
{
    if (mark > a->used)
        return;
    if (!a->counting && a->base) {
        POISON(a->base + mark, a->used - mark);
        size_t keep = round_up(mark, COMMIT_STEP) + ARENA_SLACK;
        if (keep < a->committed) {
            size_t size = a->committed - keep;
            UNPOISON(a->base + keep, size);
            madvise(a->base + keep, size, MADV_DONTNEED);
            mprotect(a->base + keep, size, PROT_NONE);
            a->committed = keep;
        }
    }
    a->used = mark;
    if (mark == 0)
        a->full = false;
}
