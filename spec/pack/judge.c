/* Judges attention in C by the pack, or by what `attnspec export cases --format raw` writes:
 *     cc -std=c99 -O2 -I . -o judge judge.c -lm && ./judge . [known_failures.txt]
 * The exit status is 1 where a case fails that is not a known failure, and 2 where a file is damaged. */
#include "attnspec.h"

/* The function that is judged. A mask has every axis of the scores; NULL is no mask. */
void attend(const double *q, const double *k, const double *v, const unsigned char *mask, double scale, int causal,
            long batch, long heads, long shared, long L, long S, long D, long Dv, double *out, double *lse) {
    double *score = calloc((size_t)S + 1, sizeof *score);
    for (long row = 0; row < batch * heads * L; row++) {
        long i = row % L, head = row / L, from = head / heads * shared + head % heads / (heads / shared);
        double top = -INFINITY, sum = 0;
        for (long j = 0; j < S; j++) {
            score[j] = -INFINITY;
#ifdef LATE /* the bug that the tests look for */
            if (causal && j > i + 1) continue;
#else
            if (causal && j > i) continue;
#endif
            if (mask && !mask[row * S + j]) continue;
            double dot = 0;
            for (long d = 0; d < D; d++) dot += q[row * D + d] * k[(from * S + j) * D + d];
            score[j] = scale * dot;
            if (score[j] > top || isnan(score[j])) top = score[j];
        }
        for (long d = 0; d < Dv; d++) out[row * Dv + d] = 0;
        for (long j = 0; j < S; j++) {
            if (score[j] == -INFINITY) continue; /* deleted, whatever its value holds */
            double weight = exp(score[j] - top);
            sum += weight;
            for (long d = 0; d < Dv; d++) out[row * Dv + d] += weight * v[(from * S + j) * Dv + d];
        }
        for (long d = 0; sum != 0 && d < Dv; d++) out[row * Dv + d] /= sum;
        lse[row] = sum != 0 ? top + log(sum) : -INFINITY;
    }
    free(score);
}

#ifndef LIBRARY
static double *doubles(const attnspec_array *array) {
    double *found = calloc((size_t)array->size + 1, sizeof *found);
    for (int64_t i = 0; i < array->size; i++) found[i] = attnspec_element(array->data, array->dtype, i);
    return found;
}

/* Repeats a mask along the axes in which it is broadcast. NULL where it does not fit. */
static unsigned char *whole(const attnspec_array *mask, const attnspec_array *query, int64_t keys) {
    int64_t size = query->size / query->shape[query->axes - 1] * keys;
    unsigned char *found = calloc((size_t)size + 1, 1);
    for (int64_t at = 0; at < size; at++) {
        int64_t rest = at, place = 0, stride = 1;
        for (int a = query->axes - 1, m = mask->axes - 1; m >= 0; a--, m--) {
            int64_t length = a == query->axes - 1 ? keys : query->shape[a];
            place += mask->shape[m] == 1 ? 0 : rest % length * stride;
            stride *= mask->shape[m], rest /= length;
        }
        found[at] = ((unsigned char *)mask->data)[place];
    }
    return found;
}

/* Narrows an output to the dtype of the call, and judges it. */
static int judge(const attnspec_suite *suite, const char *name, int axes, const int64_t *shape, double *data, int64_t size) {
    attnspec_difference off;
    if (!strcmp(suite->dtype, "float32"))
        for (int64_t i = 0; i < size; i++) ((float *)data)[i] = (float)data[i]; /* in place: each is read before */
    int ok = attnspec_judge(suite, name, suite->dtype, axes, shape, data, &off);
    if (!ok)
        printf("%s %s: %s%s[%lld] %s %s: got %.9g, expected %.17g, allowed %.3g (%s)\n", suite->level, suite->rule, suite->name,
               attnspec_is_known(suite) ? ", known" : "", (long long)off.element, suite->dtype, name, off.got, off.expected,
               off.allowed, off.why);
    return ok;
}

/* Makes the call in one dtype: 1 where every output is allowed. */
static int passes(const attnspec_suite *suite) {
    const attnspec_array *q = attnspec_input(suite, "query"), *k = attnspec_input(suite, "key"),
                         *v = attnspec_input(suite, "value"), *mask = attnspec_input(suite, "mask");
    int last = q->axes - 1;
    int64_t heads = last > 1 ? q->shape[last - 2] : 1, shared = last > 1 ? k->shape[last - 2] : 1, batch = 1;
    int64_t L = q->shape[last - 1], S = k->shape[last - 1], D = q->shape[last], Dv = v->shape[last], shape[ATTNSPEC_AXES];
    for (int a = 0; a < last - 2; a++) batch *= q->shape[a];
    const char *scale = attnspec_text(suite, "scale"), *causal = attnspec_text(suite, "is_causal");
    double *dq = doubles(q), *dk = doubles(k), *dv = doubles(v);
    double *out = calloc((size_t)(batch * heads * L * Dv) + 1, 8), *lse = calloc((size_t)(batch * heads * L) + 1, 8);
    unsigned char *all = mask ? whole(mask, q, S) : NULL;
    attend(dq, dk, dv, all, scale ? strtod(scale, NULL) : 1 / sqrt((double)D), causal && *causal == '1', batch, heads,
           shared, L, S, D, Dv, out, lse);
    memcpy(shape, q->shape, sizeof shape);
    shape[last] = Dv;
    int ok = judge(suite, "output", q->axes, shape, out, batch * heads * L * Dv);
    ok &= judge(suite, "lse", last, shape, lse, batch * heads * L);
    free(dq), free(dk), free(dv), free(out), free(lse), free(all);
    return ok;
}

int main(int count, char **words) {
    attnspec_suite suite;
    int passed = 0, failed = 0, known = 0, others = 0, next = 1;
    if (count < 2 || !attnspec_open(&suite, words[1]) || (count > 2 && !attnspec_read_known(&suite, words[2])))
        return fprintf(stderr, "%s\n", count < 2 ? "usage: judge FOLDER [KNOWN]" : suite.error), 2;
    while ((next = attnspec_next(&suite)) > 0) {
        /* This function offers no more than this, and leaves rejections to its caller. */
        int ours = !strcmp(suite.operation, "attention") && !strcmp(suite.rejection, "never") &&
                   attnspec_takes(&suite, "query key value mask is_causal scale"), ok = 1, calls = 0;
        for (int wide = 0; ours && wide < 2; wide++)
            if (attnspec_choose(&suite, wide ? "float64" : "float32", "full")) ok &= passes(&suite), calls++;
        /* A broken SHOULD is told, and is no failure. */
        if (!calls) others++;
        else if (ok || strcmp(suite.level, "MUST")) passed++;
        else attnspec_is_known(&suite) ? known++ : failed++;
    }
    if (next < 0) fprintf(stderr, "%s\n", suite.error);
    printf("%d pass, %d fail, %d fail as known, %d are for other functions\n", passed, failed, known, others);
    attnspec_close(&suite);
    return next < 0 ? 2 : failed > 0;
}
#endif
