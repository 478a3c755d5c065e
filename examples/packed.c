/* Packed attention in C, to be judged by attnspec over its protocol (conformance/protocol.md):
 *     cc -O2 -o packed packed.c -lm
 *     attnspec check --program ./packed -k packing
 * Calls come as lines of JSON, each name in them once, so that a search for it is parser enough. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_AXES 8
typedef struct {
    char dtype[16];
    long axes, size, shape[MOST_AXES];
    double *data; /* NULL where the dtype is none that we compute with */
} Tensor;

static char line[1 << 16], folder[4096];
/* What stands behind "name": in the line, NULL where it is not there. */
static const char *member(const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(line, key);
    return at ? at + strlen(key) : NULL;
}

static FILE *open_tensor(const char *name, const char *mode) {
    char path[5000];
    snprintf(path, sizeof path, "%s/%s.bin", folder, name);
    return fopen(path, mode);
}
static int load(const char *name, Tensor *tensor) {
    const char *at = member(name);
    memset(tensor, 0, sizeof *tensor);
    if (!at || sscanf(at, "{\"dtype\": \"%15[^\"]\"", tensor->dtype) != 1) return 0;
    tensor->size = 1;
    for (at = strchr(at, '[') + 1; *at != ']' && tensor->axes < MOST_AXES; at += strspn(at, ", ")) {
        tensor->shape[tensor->axes] = strtol(at, (char **)&at, 10);
        tensor->size *= tensor->shape[tensor->axes++];
    }
    int is_float = !strcmp(tensor->dtype, "float32"), is_signed = tensor->dtype[0] == 'i';
    const char *integer = strstr(tensor->dtype, "int");
    if (!is_float && !integer && strcmp(tensor->dtype, "float64")) return 1;
    size_t width = integer ? strtol(integer + 3, NULL, 10) / 8 : is_float ? 4 : 8;
    tensor->data = calloc(tensor->size + 1, sizeof(double));
    FILE *file = open_tensor(name, "rb");
    for (long i = 0; i < tensor->size; i++) {
        union { float single; double wide; uint64_t bits; } number = {.bits = 0}; /* least octet first */
        if (!file || fread(&number, width, 1, file) != 1) exit(2);
        if (is_signed && number.bits >> (8 * width - 1)) number.bits |= -((uint64_t)1 << (8 * width - 1));
        double whole = is_signed ? (double)(int64_t)number.bits : (double)number.bits;
        tensor->data[i] = integer ? whole : is_float ? number.single : number.wide;
    }
    fclose(file);
    return 1;
}

static void save(const char *name, const double *data, long size, int is_float) {
    FILE *file = open_tensor(name, "wb");
    for (long i = 0; i < size; i++) {
        float number = (float)data[i];
        fwrite(is_float ? (void *)&number : (void *)&data[i], is_float ? 4 : 8, 1, file);
    }
    fclose(file);
}

/* One sequence of one head: L queries and S keys, all of them rows that lie one after the other. */
static void sequence(const double *q, const double *k, const double *v, double *out, double *lse, long L, long S,
                     long D, long Dv, double scale, int causal, long offset) {
    double *score = calloc(S + 1, sizeof(double));
    for (long i = 0; i < L; i++) {
        long last = causal && i + offset < S - 1 ? i + offset : S - 1;
        double top = -INFINITY, sum = 0;
        for (long j = 0; j <= last; j++) {
            double dot = 0;
            for (long d = 0; d < D; d++) dot += q[i * D + d] * k[j * D + d];
            score[j] = scale * dot;
            if (!(score[j] <= top)) top = score[j]; /* NaN stays */
        }
        for (long j = 0; j <= last; j++) {
            double weight = exp(score[j] - top);
            sum += weight;
            for (long d = 0; d < Dv; d++) out[i * Dv + d] += weight * v[j * Dv + d];
        }
        for (long d = 0; last >= 0 && d < Dv; d++) out[i * Dv + d] /= sum;
        lse[i] = last >= 0 ? top + log(sum) : -INFINITY;
    }
    free(score);
}

/* Why boundaries do not fit, or NULL. */
static const char *misfit(const Tensor *starts, const Tensor *other, long rows, const char *why) {
    if (!strstr(starts->dtype, "int") || starts->axes != 1 || starts->size != other->size || !starts->size || starts->data[0] != 0) return why;
    for (long g = 1; g < starts->size; g++)
        if (starts->data[g] < starts->data[g - 1]) return why;
    return starts->data[starts->size - 1] > rows ? why : NULL;
}

/* Computes the call in the line and answers it; returns why not, where it is refused. */
static const char *attend(long id) {
    Tensor q, k, v, qs, ks, offsets;
    int packed = !strncmp(member("operation"), "\"packed", 7);
    load("query", &q), load("key", &k), load("value", &v), load("query_starts", &qs), load("key_starts", &ks);
    int each = load("query_offset", &offsets), is_float = !strcmp(q.dtype, "float32");
    if (!q.data || (!is_float && strcmp(q.dtype, "float64"))) return "query: expected float32 or float64";
    if (strcmp(k.dtype, q.dtype)) return "key: expected the dtype of query";
    if (strcmp(v.dtype, q.dtype)) return "value: expected the dtype of query";
    if (q.axes < 2 || (packed && q.axes != 3)) return "query: expected other axes";
    if (k.axes != q.axes || v.axes != q.axes) return "key, value: expected the axes of query";
    long a = q.axes, H = a > 2 ? q.shape[a - 3] : 1, shared = a > 2 ? k.shape[a - 3] : 1, batch = 1;
    long L = q.shape[a - 2], S = k.shape[a - 2], D = q.shape[a - 1], Dv = v.shape[a - 1];
    for (int b = 0; b < a - 3; b++) {
        if (k.shape[b] != q.shape[b] || v.shape[b] != q.shape[b]) return "key, value: expected the batch of query";
        batch *= q.shape[b];
    }
    if (!D || k.shape[a - 1] != D) return "key, query: expected one depth, which is not 0";
    if (!Dv || v.shape[a - 2] != S || (a > 2 && v.shape[a - 3] != shared)) return "value: expected the rows of key";
    if (shared ? H % shared : H) return "key: expected heads that divide those of query";
    const char *why = packed ? misfit(&qs, &ks, L, "query_starts: expected boundaries up to the rows of query") : NULL;
    if (packed && !why) why = misfit(&ks, &qs, S, "key_starts: expected as many boundaries, up to the rows of key");
    if (why) return why;
    const char *given = member("scale"), *causal = member("is_causal"), *offset = member("query_offset");
    if (given && *given == '"') return "scale: expected a finite number";
    if (each && (!strstr(offsets.dtype, "int") || offsets.axes != 1 || offsets.size != qs.size - 1))
        return "query_offset: expected an integer for each sequence";
    double scale = given && *given != 'n' ? strtod(given, NULL) : 1 / sqrt((double)D);

    double *out = calloc(batch * H * L * Dv + 1, 8), *lse = calloc(batch * H * L + 1, 8);
    for (long row = 0; row < batch * H * L; row++) lse[row] = -INFINITY; /* rows of no sequence stay so */
    for (long head = 0; head < batch * H; head++) {
        long other = head / H * shared + head % H / (H / shared);
        for (long g = 0; g < (packed ? qs.size - 1 : 1); g++) {
            long from = packed ? qs.data[g] : 0, to = packed ? qs.data[g + 1] : L;
            long first = packed ? ks.data[g] : 0, end = packed ? ks.data[g + 1] : S;
            long row = head * L + from, key = other * S + first;
            long at = each ? offsets.data[g] : offset ? strtol(offset, NULL, 10) : 0;
            sequence(q.data + row * D, k.data + key * D, v.data + key * Dv, out + row * Dv, lse + row, to - from,
                     end - first, D, Dv, scale, causal && *causal == 't', at);
        }
    }
    printf("{\"id\": %ld, \"status\": \"ok\", \"tensors\": {\"lse\": {\"dtype\": \"%s\", \"shape\": [", id, q.dtype);
    for (int b = 0; b < a - 1; b++) printf(b ? ", %ld" : "%ld", q.shape[b]);
    printf("]}, \"output\": {\"dtype\": \"%s\", \"shape\": [", q.dtype);
    for (int b = 0; b < a - 1; b++) printf("%ld, ", q.shape[b]);
    printf("%ld]}}}\n", Dv);
    save("output", out, batch * H * L * Dv, is_float), save("lse", lse, batch * H * L, is_float);
    free(q.data), free(k.data), free(v.data), free(qs.data), free(ks.data), free(offsets.data);
    return free(out), free(lse), NULL;
}

int main(void) {
    for (; fgets(line, sizeof line, stdin) && !strstr(line, "\"do\": \"stop\""); fflush(stdout)) {
        if (strstr(line, "\"do\": \"hello\"")) {
            puts("{\"protocol\": 1, \"name\": \"packed.c\", \"version\": \"1\", \"dtypes\": [\"float32\", \"float64\"],"
                 " \"operations\": {\"attention\": [\"scale\", \"is_causal\", \"return_lse\"], \"packed_attention\":"
                 " [\"query_starts\", \"key_starts\", \"scale\", \"is_causal\", \"query_offset\", \"return_lse\"]}}");
        } else {
            long id = strtol(member("id"), NULL, 10);
            sscanf(member("folder"), "\"%4095[^\"]\"", folder);
            const char *why = attend(id);
            if (why) printf("{\"id\": %ld, \"status\": \"refused\", \"message\": \"%s\"}\n", id, why);
        }
    }
}
