/* signals.c - a signal that comes in the middle of a product finds the stack where it belongs. */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/onednn.h"

#include <cmocka.h>

enum { ENOUGH = 50, MOST_ROUNDS = 20000, EVERY_US = 100, OWN_STACK = 1 << 18 };

static const char *stack_low, *stack_high;
static volatile sig_atomic_t caught, astray;

static void on_alarm(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    caught++;
#if defined(__x86_64__) && defined(__linux__)
    const char *at = (const char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
    astray += at < stack_low || at > stack_high;
#else
    (void)context;
#endif
}

static void find_stack(void)
{
    pthread_attr_t a;
    void *low;
    size_t size;
    assert_int_equal(pthread_getattr_np(pthread_self(), &a), 0);
    assert_int_equal(pthread_attr_getstack(&a, &low, &size), 0);
    pthread_attr_destroy(&a);
    stack_low = low;
    stack_high = stack_low + size;
}

/* Handlers run on a stack of their own here, so that a stray frame does no harm before it is counted. */
static void alarms(bool on)
{
    static char own[OWN_STACK];
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    struct itimerval every = {{0, on ? EVERY_US : 0}, {0, on ? EVERY_US : 0}};
    stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaltstack(&stack, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static float *numbers(size_t n)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 13) - 6;
    return x;
}

static void begin(void)
{
    find_stack();
    caught = astray = 0;
    alarms(true);
}

static void end(void)
{
    alarms(false);
    assert_int_equal(astray, 0);
}

/* Sides for which oneDNN takes different kernels. */
static void test_products(void **state)
{
    static const int64_t sides[][3] = {{96, 48, 300}, {64, 40, 3000}, {24, 16, 9000}, {1, 64, 5000}};
    float *a = numbers(96 * 9000), *b = numbers(64 * 9000), *c = numbers(96 * 64);
    (void)state;
    for (int i = 0; i < 8; i++) {
        const int64_t *s = sides[i / 2];
        begin();
        for (int round = 0; round < MOST_ROUNDS && caught < ENOUGH; round++)
            assert_true(i % 2 ? gemm(true, false, s[0], s[1], s[2], 1, a, s[0], b, s[1], 0, c, s[1])
                              : gemm(false, true, s[0], s[1], s[2], 1, a, s[2], b, s[2], 1, c, s[1]));
        end();
    }
    free(a), free(b), free(c);
}

static void test_packed_products(void **state)
{
    float *x = numbers(16 * 9000), *from = numbers(40 * 9000), *y = numbers(16 * 40);
    gemm_weights *w = gemm_pack(from, NULL, 40, 9000, 9000, GEMM_F32);
    (void)state;
    assert_non_null(w);
    begin();
    for (int round = 0; round < MOST_ROUNDS && caught < ENOUGH; round++)
        assert_true(gemm_run(w, y, 40, x, 9000, 16, ACT_NONE, NULL, NULL));
    end();
    gemm_weights_free(w);
    free(x), free(from), free(y);
}

static void test_convolution_backward(void **state)
{
    const conv_shape s = {.in = 32, .out = 32, .kernel = 3, .stride = 1, .pad = 1, .groups = 1};
    float *x = numbers(32 * 32 * 32), *dy = numbers(32 * 32 * 32), *w = numbers(32 * 32 * 9);
    float *dx = numbers(32 * 32 * 32), *dw = numbers(32 * 32 * 9);
    (void)state;
    begin();
    for (int round = 0; round < MOST_ROUNDS && caught < ENOUGH; round++)
        assert_true(conv_backward(dx, dw, NULL, dy, x, w, &s, 1, 32, 32, GEMM_F32));
    end();
    free(x), free(dy), free(w), free(dx), free(dw);
}

static int threads_that_listen(int threads)
{
    int n = 0;
#pragma omp parallel num_threads(threads) reduction(+ : n)
    {
        sigset_t held;
        pthread_sigmask(SIG_BLOCK, NULL, &held);
        n += !sigismember(&held, SIGINT);
    }
    return n;
}

/* A signal to the process must not find a thread of OpenMP inside a product; the calling thread still listens. */
static void test_workers(void **state)
{
    float *x = numbers(64 * 64), *y = numbers(64 * 64);

    (void)state;
    omp_set_num_threads(4);
    assert_int_equal(threads_that_listen(4), 4);
    assert_true(onednn_ready());
    assert_true(onednn_sgemm('N', 'N', 64, 64, 64, 1, x, 64, x, 64, 0, y, 64));
    assert_int_equal(threads_that_listen(4), 1);
    omp_set_num_threads(1);
    free(x), free(y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workers), cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_packed_products),
                                       cmocka_unit_test(test_convolution_backward)};
    omp_set_num_threads(1);      /* the stack looked at is this thread's */
    if (argc > 1 && !kernels_cap(argv[1]))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
