/* patch_loss.c - patches against class vectors, and patches against a prompt, with gradients. */
#include "train/patch_loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_WEIGHT 0.15f
#define TINY 1e-6f

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *out, const float *x, float by, int n)
{
    #pragma omp simd
    for (int i = 0; i < n; i++)
        out[i] += by * x[i];
}

/* u = (x - mean) / length of that; returns the length. */
static float centre(float *u, const float *x, int d)
{
    float mean = 0;
    for (int i = 0; i < d; i++)
        mean += x[i];
    mean /= (float)d;
    for (int i = 0; i < d; i++)
        u[i] = x[i] - mean;
    float length = sqrtf(dot(u, u, d)) + TINY;
    for (int i = 0; i < d; i++)
        u[i] /= length;
    return length;
}

/* Adds to dx the gradient behind `centre`, given that at u, which is spoilt. */
static void centre_back(float *dx, float *du, const float *u, float length, int d)
{
    float mean = 0, along = dot(du, u, d);
    for (int i = 0; i < d; i++)
        mean += du[i];
    mean /= (float)d;
    for (int i = 0; i < d; i++)
        dx[i] += (du[i] - mean - u[i] * along) / length;
}

/* ---- class vectors ---- */

bool class_vectors_open(class_vectors *v, int classes, int d)
{
    size_t n = (size_t)classes * (size_t)d;
    *v = (class_vectors){classes, d, malloc(sizeof(float) * (n + 1)), malloc(sizeof(float) * (n + 1)),
                         malloc(sizeof(float) * ((size_t)classes + 1))};
    if (v->unit && v->dunit && v->length)
        return true;
    class_vectors_close(v);
    return false;
}

void class_vectors_close(class_vectors *v)
{
    free(v->unit), free(v->dunit), free(v->length);
    *v = (class_vectors){0};
}

static void subtract_mean(float *x, int rows, int d)
{
    for (int i = 0; i < d; i++) {
        float mean = 0;
        for (int c = 0; c < rows; c++)
            mean += x[(int64_t)c * d + i];
        mean /= (float)rows;
        for (int c = 0; c < rows; c++)
            x[(int64_t)c * d + i] -= mean;
    }
}

void class_vectors_make(class_vectors *v, const float *words, int n, const int *tokens)
{
    int d = v->d;
    memset(v->unit, 0, sizeof(float) * (size_t)v->classes * (size_t)d);
    memset(v->dunit, 0, sizeof(float) * (size_t)v->classes * (size_t)d);
    for (int c = 0; c < v->classes; c++)
        for (int k = 0; k < tokens[c]; k++)
            add_scaled(v->unit + (int64_t)c * d, words + ((int64_t)c * n + k) * d, 1 / (float)tokens[c], d);
    subtract_mean(v->unit, v->classes, d);
    for (int c = 0; c < v->classes; c++) {
        float *u = v->unit + (int64_t)c * d;
        v->length[c] = sqrtf(dot(u, u, d)) + TINY;
        for (int i = 0; i < d; i++)
            u[i] /= v->length[c];
    }
}

void class_vectors_back(class_vectors *v, float *dwords, int n, const int *tokens)
{
    int d = v->d;
    for (int c = 0; c < v->classes; c++) {
        float *du = v->dunit + (int64_t)c * d;
        const float *u = v->unit + (int64_t)c * d;
        float along = dot(du, u, d);
        for (int i = 0; i < d; i++)
            du[i] = (du[i] - u[i] * along) / v->length[c];
    }
    subtract_mean(v->dunit, v->classes, d);
    for (int c = 0; c < v->classes; c++)
        for (int k = 0; k < tokens[c]; k++)
            add_scaled(dwords + ((int64_t)c * n + k) * d, v->dunit + (int64_t)c * d, 1 / (float)tokens[c], d);
}

/* ---- which class ---- */

static int largest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Turns logits z[n] into probabilities; returns log of the sum. */
static float softmax(float *z, int n)
{
    float most = z[largest(z, n)], sum = 0;
    for (int i = 0; i < n; i++)
        sum += z[i] = expf(z[i] - most);
    for (int i = 0; i < n; i++)
        z[i] /= sum;
    return most + logf(sum);
}

static float covered(const float *share, int classes)
{
    float sum = 0;
    for (int c = 0; c < classes; c++)
        sum += share[c];
    return sum;
}

/* One patch, whose loss counts `weight`; returns it unweighted. z: classes + 1 numbers; u, du: d each. */
static double one_patch(patch_result *out, float *df, class_vectors *v, patch_head *h, const float *f,
                        const float *share, float weight, float *z, float *u)
{
    int d = v->d, n = v->classes;
    float *du = u + d, scale = expf(h->log_scale), length = centre(u, f, d), there = covered(share, n), loss = 0;
    for (int c = 0; c < n; c++)
        z[c] = scale * dot(u, v->unit + (int64_t)c * d, d);
    z[n] = scale * dot(u, h->background, d) + h->offset;
    for (int c = 0; c <= n; c++)
        loss -= z[c] * (c < n ? share[c] : 1 - there);
    if (there > 0.5f) {
        out->objects++;
        out->hits += largest(z, n + 1) == largest(share, n);
    }
    float last = z[n], log_sum, by_scale = 0;
    log_sum = softmax(z, n + 1);
    memset(du, 0, sizeof(float) * (size_t)d);
    for (int c = 0; c < n; c++) {
        float dz = weight * (z[c] - share[c]), *unit = v->unit + (int64_t)c * d;
        by_scale += dz * dot(u, unit, d);
        add_scaled(du, unit, dz * scale, d);
        add_scaled(v->dunit + (int64_t)c * d, u, dz * scale, d);
    }
    float dz = weight * (z[n] - (1 - there));
    by_scale += dz * (last - h->offset) / scale;
    add_scaled(du, h->background, dz * scale, d);
    add_scaled(h->dbackground, u, dz * scale, d);
    h->doffset += dz;
    h->dlog_scale += by_scale * scale;
    centre_back(df, du, u, length, d);
    return loss + log_sum;
}

void patch_loss(patch_result *out, float *df, class_vectors *v, patch_head *h, const float *f, const float *share,
                int patches, double weight, float *room)
{
    double all = 0;
    *out = (patch_result){0};
    for (int p = 0; p < patches; p++)
        all += LEAST_WEIGHT + covered(share + (int64_t)p * v->classes, v->classes);
    for (int p = 0; p < patches; p++) {
        const float *own = share + (int64_t)p * v->classes;
        double counts = (LEAST_WEIGHT + covered(own, v->classes)) / all;
        out->loss += counts * one_patch(out, df + (int64_t)p * v->d, v, h, f + (int64_t)p * v->d, own,
                                        (float)(weight * counts), room, room + v->classes + 1);
    }
}

/* ---- of the prompt or not ---- */

double match_loss(float *dx, float *dgain, const float *x, const float *gain, const float *belongs, const float *counts,
                  int patches, int d, double weight, float *room)
{
    double loss = 0, all = 0;
    float *u = room, *du = room + d, root = sqrtf((float)d);
    for (int p = 0; p < patches; p++)
        all += counts[p];
    for (int p = 0; p < patches; p++) {
        float length = centre(u, x + (int64_t)p * d, d), z = gain[d] + root * dot(u, gain, d), share = (float)(counts[p] / all);
        loss += share * (fmaxf(z, 0) - z * belongs[p] + log1pf(expf(-fabsf(z))));
        float dz = (float)weight * share * (1 / (1 + expf(-z)) - belongs[p]);
        for (int i = 0; i < d; i++)
            du[i] = dz * root * gain[i];
        add_scaled(dgain, u, dz * root, d);
        dgain[d] += dz;
        centre_back(dx + (int64_t)p * d, du, u, length, d);
    }
    return loss;
}
