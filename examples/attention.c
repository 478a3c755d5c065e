/* Attention in C, to be judged by attnspec over its protocol (conformance/protocol.md):
 *     cc -O2 -o attention attention.c -lm
 *     attnspec check --program ./attention
 * Calls come as lines of JSON, each name in them once, so that a search for it is parser enough. */
#include <math.h>
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
    int is_float = !strcmp(tensor->dtype, "float32"), is_bool = !strcmp(tensor->dtype, "bool");
    if (!is_float && !is_bool && strcmp(tensor->dtype, "float64")) return 1;
    size_t width = is_bool ? 1 : is_float ? 4 : 8;
    tensor->data = calloc(tensor->size + 1, sizeof(double));
    FILE *file = open_tensor(name, "rb");
    for (long i = 0; i < tensor->size; i++) {
        unsigned char bytes[8];
        float number = 0;
        if (!file || fread(bytes, width, 1, file) != 1) exit(2);
        memcpy(is_float ? (void *)&number : (void *)&tensor->data[i], bytes, width);
        if (width < 8) tensor->data[i] = is_bool ? bytes[0] : number;
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

/* The number of features (0), of positions (1) or of heads (2). */
static long axis(const Tensor *tensor, int from_last) {
    return tensor->axes > from_last ? tensor->shape[tensor->axes - 1 - from_last] : 1;
}

/* Computes the call in the line and answers it; returns why not, where it is refused. */
static const char *attend(long id) {
    Tensor q, k, v, mask;
    load("query", &q), load("key", &k), load("value", &v);
    int masked = load("mask", &mask), is_float = !strcmp(q.dtype, "float32");
    if (!q.data || !strcmp(q.dtype, "bool")) return "query: expected float32 or float64";
    if (strcmp(k.dtype, q.dtype)) return "key: expected the dtype of query";
    if (strcmp(v.dtype, q.dtype)) return "value: expected the dtype of query";
    if (q.axes < 2 || k.axes != q.axes) return "key: expected as many axes as query, two or more";
    if (v.axes != q.axes) return "value: expected as many axes as query";
    long L = axis(&q, 1), S = axis(&k, 1), D = axis(&q, 0), Dv = axis(&v, 0);
    long H = axis(&q, 2), shared = axis(&k, 2), batch = 1;
    for (int a = 0; a < q.axes - 3; a++) {
        if (k.shape[a] != q.shape[a]) return "key: expected the batch axes of query";
        if (v.shape[a] != q.shape[a]) return "value: expected the batch axes of query";
        batch *= q.shape[a];
    }
    if (!D || axis(&k, 0) != D) return "key, query: expected one depth, which is not 0";
    if (!Dv || axis(&v, 1) != S || axis(&v, 2) != shared) return "value: expected the heads and positions of key";
    if (shared ? H % shared : H) return "key: expected heads that divide those of query";
    if (masked && strcmp(mask.dtype, "bool")) return "mask: expected booleans";
    long step[MOST_AXES], full[MOST_AXES], stride = 1; /* of the mask, 0 where it is broadcast */
    for (int a = 0; a < q.axes; a++) full[a] = a < q.axes - 1 ? q.shape[a] : S;
    if (masked && mask.axes > q.axes) return "mask: expected no more axes than the scores";
    for (int a = q.axes - 1, m = mask.axes - 1; a >= 0; a--, m--) {
        step[a] = masked && m >= 0 && mask.shape[m] != 1 ? stride : 0;
        if (step[a] && mask.shape[m] != full[a]) return "mask: expected a shape that fits the scores";
        if (masked && m >= 0) stride *= mask.shape[m];
    }
    const char *given = member("scale");
    double scale = given && *given != 'n' ? strtod(given, NULL) : 1 / sqrt((double)D);
    if (given && *given == '"') return "scale: expected a finite number";
    int causal = member("is_causal") && *member("is_causal") == 't';

    long rows = batch * H * L;
    double *out = calloc(rows * Dv + 1, 8), *lse = calloc(rows + 1, 8), *score = calloc(S + 1, 8);
    for (long row = 0; row < rows; row++) {
        long i = row % L, head = row / L, shared_head = H ? head / H * shared + head % H / (H / shared) : 0;
        double top = -INFINITY, sum = 0;
        for (long j = 0; j < S; j++) {
            long at = j * step[q.axes - 1], rest = row;
            for (int a = q.axes - 2; a >= 0; rest /= full[a--]) at += rest % full[a] * step[a];
            score[j] = -INFINITY;
            if ((causal && j > i) || (masked && !mask.data[at])) continue;
            double dot = 0;
            for (long d = 0; d < D; d++) dot += q.data[row * D + d] * k.data[(shared_head * S + j) * D + d];
            score[j] = scale * dot;
            if (score[j] > top) top = score[j];
        }
        for (long j = 0; j < S; j++) {
            if (score[j] == -INFINITY) continue; /* deleted, whatever its value holds */
            double weight = exp(score[j] - top);
            sum += weight;
            for (long d = 0; d < Dv; d++) out[row * Dv + d] += weight * v.data[(shared_head * S + j) * Dv + d];
        }
        for (long d = 0; sum != 0 && d < Dv; d++) out[row * Dv + d] /= sum;
        lse[row] = sum != 0 ? top + log(sum) : -INFINITY;
    }
    printf("{\"id\": %ld, \"status\": \"ok\", \"tensors\": {\"lse\": {\"dtype\": \"%s\", \"shape\": [", id, q.dtype);
    for (int a = 0; a < q.axes - 1; a++) printf(a ? ", %ld" : "%ld", q.shape[a]);
    printf("]}, \"output\": {\"dtype\": \"%s\", \"shape\": [", q.dtype);
    for (int a = 0; a < q.axes - 1; a++) printf("%ld, ", q.shape[a]);
    printf("%ld]}}}\n", Dv);
    save("output", out, rows * Dv, is_float), save("lse", lse, rows, is_float);
    return free(q.data), free(k.data), free(v.data), free(mask.data), free(out), free(lse), free(score), NULL;
}

int main(void) {
    for (; fgets(line, sizeof line, stdin) && !strstr(line, "\"do\": \"stop\""); fflush(stdout)) {
        if (strstr(line, "\"do\": \"hello\"")) {
            puts("{\"protocol\": 1, \"name\": \"attention.c\", \"version\": \"1\", \"dtypes\": [\"float32\", \"float64\"],"
                 " \"operations\": {\"attention\": [\"scale\", \"mask\", \"is_causal\", \"return_lse\"]}}");
        } else {
            long id = strtol(member("id"), NULL, 10);
            sscanf(member("folder"), "\"%4095[^\"]\"", folder);
            const char *why = attend(id);
            if (why) printf("{\"id\": %ld, \"status\": \"refused\", \"message\": \"%s\"}\n", id, why);
        }
    }
}
