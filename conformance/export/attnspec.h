/* attnspec.h: judge an implementation of attention by exported cases, in C99 without dependencies.
 *
 * `attnspec export FOLDER --format raw` writes the cases (conformance/offline.md describes the files):
 *
 *     attnspec_suite suite;
 *     if (!attnspec_open(&suite, "FOLDER")) { puts(suite.error); return 2; }
 *     while (attnspec_next(&suite) > 0) {
 *         const attnspec_array *query = attnspec_input(&suite, "query");   ... compute, then for each output:
 *         attnspec_difference off;
 *         int ok = attnspec_judge(&suite, "output", "float32", axes, shape, data, &off);
 *     }
 *     attnspec_close(&suite);
 *
 * Every function that reads checks what it reads. After a failure, `suite.error` says what is wrong. */
#ifndef ATTNSPEC_H
#define ATTNSPEC_H
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTNSPEC_AXES = 8, ATTNSPEC_PARTS = 32, ATTNSPEC_NAME = 160, ATTNSPEC_LINE = 1024 };
#define ATTNSPEC_MOST ((int64_t)1 << 31) /* octets of one array: more is refused */

/* The outputs of all operations: a name that is not here is a mistake, and not an output that a case does not judge. */
static const char attnspec_names_of_outputs[] =
    " appended attention_factor bias d_bias d_features d_key d_key_bias d_key_rotary d_key_weight d_latent d_lses "
    "d_memory d_output_bias d_output_weight d_outputs d_query d_query_bias d_query_rotary d_query_weight d_scale "
    "d_sinks d_slopes d_tokens d_value d_value_bias d_value_weight dequantized gathered index_scores "
    "inverse_frequencies key_indices lse max merged output projected rotated scores split weights ";

typedef struct { /* an argument, or an output that is expected */
    char name[ATTNSPEC_NAME], dtype[64]; /* of an output: all dtypes that it may have, with commas */
    int axes;
    int64_t shape[ATTNSPEC_AXES], size, place, allowed_place;
    void *data;      /* of an argument: its elements, row-major, bool as 0 or 1 */
    double *expected, *allowed; /* of an output */
} attnspec_array;

typedef struct { char name[ATTNSPEC_NAME], kind[16], text[ATTNSPEC_NAME]; } attnspec_option;

typedef struct { /* the suite, and the case that was read last */
    char error[512];
    char name[ATTNSPEC_NAME], operation[64], dtype[16];
    char rule[32], level[16], link[ATTNSPEC_NAME]; /* of the main rule; level is MUST, SHOULD or MAY */
    char refusal[16], at_fault[ATTNSPEC_NAME];     /* never, may or must; which argument an error may name */
    attnspec_option options[ATTNSPEC_PARTS];
    attnspec_array inputs[ATTNSPEC_PARTS], outputs[ATTNSPEC_PARTS];
    int option_count, input_count, output_count;
    int64_t read, octets; /* cases that were read; octets in the file of arrays */
    FILE *index, *arrays;
    char **known;
    int known_count;
} attnspec_suite;

typedef struct { /* the first element that is off, or what else is wrong */
    const char *why; /* "" where nothing is wrong, else "name", "shape", "dtype", "non-finite" or "value" */
    int64_t element;
    double got, expected, allowed;
} attnspec_difference;

static inline int attnspec_fail(attnspec_suite *suite, const char *what, const char *got) {
    snprintf(suite->error, sizeof suite->error, "%s, got %.200s", what, got);
    return 0;
}

static inline int attnspec_open(attnspec_suite *suite, const char *folder) {
    char path[4096], line[ATTNSPEC_LINE], version[64];
    int format = 0;
    memset(suite, 0, sizeof *suite);
    snprintf(path, sizeof path, "%s/cases.txt", folder);
    suite->index = fopen(path, "r");
    snprintf(path, sizeof path, "%s/arrays.bin", folder);
    suite->arrays = fopen(path, "rb");
    if (!suite->index || !suite->arrays) return attnspec_fail(suite, "folder: expected cases.txt and arrays.bin", folder);
    if (!fgets(line, sizeof line, suite->index) || sscanf(line, "attnspec %d %63s", &format, version) != 2 || format != 1)
        return attnspec_fail(suite, "cases.txt: expected format 1 in the first line", format ? line : "another line");
    fseek(suite->arrays, 0, SEEK_END);
    suite->octets = ftell(suite->arrays);
    return 1;
}

static inline void attnspec_forget(attnspec_suite *suite) {
    for (int i = 0; i < suite->input_count; i++) free(suite->inputs[i].data);
    for (int i = 0; i < suite->output_count; i++) free(suite->outputs[i].expected), free(suite->outputs[i].allowed);
    suite->option_count = suite->input_count = suite->output_count = 0;
}

static inline void attnspec_close(attnspec_suite *suite) {
    attnspec_forget(suite);
    for (int i = 0; i < suite->known_count; i++) free(suite->known[i]);
    free(suite->known);
    if (suite->index) fclose(suite->index);
    if (suite->arrays) fclose(suite->arrays);
    memset(suite, 0, sizeof *suite);
}

static inline int attnspec_width(const char *dtype) {
    static const struct { const char *name; int width; } known[] = {
        {"bool", 1}, {"int8", 1}, {"uint8", 1}, {"int16", 2}, {"uint16", 2}, {"float16", 2}, {"bfloat16", 2},
        {"int32", 4}, {"uint32", 4}, {"float32", 4}, {"int64", 8}, {"uint64", 8}, {"float64", 8}, {"complex64", 8},
        {"complex128", 16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, dtype)) return known[i].width;
    return 0;
}

static inline void *attnspec_load(attnspec_suite *suite, int64_t place, int64_t octets) {
    if (place < 0 || octets > ATTNSPEC_MOST || place > suite->octets - octets) return NULL;
    void *data = calloc(1, octets ? (size_t)octets : 1);
    if (!data || fseek(suite->arrays, (long)place, SEEK_SET) || fread(data, 1, (size_t)octets, suite->arrays) != (size_t)octets)
        return free(data), NULL;
    return data;
}

/* Reads what follows the places: the number of axes and the shape. */
static inline int attnspec_shape(attnspec_array *array, const char *text, int width) {
    int used = 0;
    if (sscanf(text, "%d%n", &array->axes, &used) != 1 || array->axes < 0 || array->axes > ATTNSPEC_AXES) return 0;
    array->size = 1;
    for (int a = 0; a < array->axes; a++) {
        long long length = -1;
        text += used;
        if (sscanf(text, "%lld%n", &length, &used) != 1 || length < 0) return 0;
        if (length && array->size > ATTNSPEC_MOST / width / length) return 0; /* before memory is taken */
        array->shape[a] = length;
        array->size *= length;
    }
    return 1;
}

static inline int attnspec_part(attnspec_suite *suite, const char *line) {
    char word[16], name[ATTNSPEC_NAME];
    long long place = 0, allowed = 0;
    int used = 0, wide = 0;
    if (sscanf(line, "%15s %159s %n", word, name, &used) != 2) return 0;
    if (!strcmp(word, "rule")) {
        char level[16], link[ATTNSPEC_NAME];
        if (sscanf(line + used, "%15s %159s", level, link) != 2) return 0;
        if (!*suite->rule) snprintf(suite->rule, sizeof suite->rule, "%.31s", name),
            strcpy(suite->level, level), strcpy(suite->link, link);
    } else if (!strcmp(word, "refusal")) {
        snprintf(suite->refusal, sizeof suite->refusal, "%.15s", name);
        snprintf(suite->at_fault, sizeof suite->at_fault, " %.150s ", line + used);
        return !strcmp(name, "never") || !strcmp(name, "may") || !strcmp(name, "must");
    } else if (!strcmp(word, "array")) {
        if (suite->input_count == ATTNSPEC_PARTS) return 0;
        attnspec_array *one = &suite->inputs[suite->input_count];
        memset(one, 0, sizeof *one);
        if (sscanf(line + used, "%63s %lld %n", one->dtype, &place, &wide) != 2 || !attnspec_width(one->dtype)) return 0;
        strcpy(one->name, name);
        if (!attnspec_shape(one, line + used + wide, attnspec_width(one->dtype))) return 0;
        one->data = attnspec_load(suite, one->place = place, one->size * attnspec_width(one->dtype));
        return one->data ? ++suite->input_count : 0;
    } else if (!strcmp(word, "output")) {
        if (suite->output_count == ATTNSPEC_PARTS) return 0;
        attnspec_array *one = &suite->outputs[suite->output_count];
        memset(one, 0, sizeof *one);
        if (sscanf(line + used, "%63s %lld %lld %n", one->dtype, &place, &allowed, &wide) != 3) return 0;
        strcpy(one->name, name);
        if (!attnspec_shape(one, line + used + wide, 8)) return 0;
        suite->output_count++;
        one->expected = attnspec_load(suite, one->place = place, one->size * 8);
        one->allowed = attnspec_load(suite, one->allowed_place = allowed, one->size * 8);
        return one->expected && one->allowed;
    } else {
        if (suite->option_count == ATTNSPEC_PARTS) return 0;
        attnspec_option *one = &suite->options[suite->option_count++];
        strcpy(one->name, name), strcpy(one->kind, word);
        snprintf(one->text, sizeof one->text, "%.159s", line + used);
        return !strcmp(word, "flag") || !strcmp(word, "integer") || !strcmp(word, "number") || !strcmp(word, "word") ||
               !strcmp(word, "pair");
    }
    return 1;
}

/* Reads the next case: 1, or 0 after the last one, or -1 where a file is damaged. */
static inline int attnspec_next(attnspec_suite *suite) {
    char line[ATTNSPEC_LINE];
    long long count = -1;
    attnspec_forget(suite);
    *suite->rule = *suite->refusal = 0;
    if (!suite->index || !fgets(line, sizeof line, suite->index))
        return attnspec_fail(suite, "cases.txt: expected the number of cases at the end", "the end of the file"), -1;
    if (sscanf(line, "cases %lld", &count) == 1) {
        if (count == suite->read) return 0;
        return attnspec_fail(suite, "cases.txt: expected as many cases as its last line says", line), -1;
    }
    if (sscanf(line, "case %159s %63s %15s", suite->name, suite->operation, suite->dtype) != 3)
        return attnspec_fail(suite, "cases.txt: expected a case", line), -1;
    while (fgets(line, sizeof line, suite->index)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!strcmp(line, "end")) return *suite->rule && *suite->refusal ? (int)(++suite->read, 1)
            : (attnspec_fail(suite, "cases.txt: expected a rule and a refusal of each case", suite->name), -1);
        if (!attnspec_part(suite, line)) return attnspec_fail(suite, "cases.txt: expected a line that fits arrays.bin", line), -1;
    }
    return attnspec_fail(suite, "cases.txt: expected an end of each case", suite->name), -1;
}

static inline const attnspec_array *attnspec_of(const attnspec_array *found, int count, const char *name) {
    for (int i = 0; i < count; i++) if (!strcmp(found[i].name, name)) return &found[i];
    return NULL;
}
/* An argument that is an array, or NULL where the case has none. */
static inline const attnspec_array *attnspec_input(const attnspec_suite *suite, const char *name) {
    return attnspec_of(suite->inputs, suite->input_count, name);
}
static inline const attnspec_array *attnspec_output(const attnspec_suite *suite, const char *name) {
    return attnspec_of(suite->outputs, suite->output_count, name);
}
/* An argument that is no array, as text ("1", "0.5", "inf", "2 none"), or NULL where the case has none. */
static inline const char *attnspec_text(const attnspec_suite *suite, const char *name) {
    for (int i = 0; i < suite->option_count; i++) if (!strcmp(suite->options[i].name, name)) return suite->options[i].text;
    return NULL;
}
/* Whether all arguments are among those named, such as "query key value mask": a case that has others is not for you. */
static inline int attnspec_takes(const attnspec_suite *suite, const char *names) {
    char padded[ATTNSPEC_LINE], name[ATTNSPEC_NAME + 2];
    snprintf(padded, sizeof padded, " %s ", names);
    for (int i = 0; i < suite->input_count + suite->option_count; i++) {
        snprintf(name, sizeof name, " %s ", i < suite->input_count ? suite->inputs[i].name : suite->options[i - suite->input_count].name);
        if (!strstr(padded, name)) return 0;
    }
    return 1;
}

/* One element of an array of a floating-point dtype. */
static inline double attnspec_element(const void *data, const char *dtype, int64_t i) {
    uint16_t half;
    float single;
    double number;
    if (!strcmp(dtype, "float64")) return memcpy(&number, (const char *)data + 8 * i, 8), number;
    if (!strcmp(dtype, "float32")) return memcpy(&single, (const char *)data + 4 * i, 4), single;
    memcpy(&half, (const char *)data + 2 * i, 2);
    if (!strcmp(dtype, "bfloat16")) {
        uint32_t bits = (uint32_t)half << 16;
        return memcpy(&single, &bits, 4), single;
    }
    int exponent = half >> 10 & 31, fraction = half & 1023;
    number = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half >> 15 ? -number : number;
}

/* Judges an output: 1 where every element is allowed. The difference says what is not. */
static inline int attnspec_judge(const attnspec_suite *suite, const char *name, const char *dtype, int axes, const int64_t *shape,
                          const void *data, attnspec_difference *off) {
    const attnspec_array *one = attnspec_output(suite, name);
    char word[64], padded[80];
    memset(off, 0, sizeof *off);
    off->why = "";
    if (!one) { /* the case does not judge this output */
        snprintf(padded, sizeof padded, " %.70s ", name);
        int known = strstr(attnspec_names_of_outputs, padded) != NULL;
        return known ? 1 : (off->why = "name", 0);
    }
    off->why = "shape";
    if (axes != one->axes || (axes && memcmp(shape, one->shape, sizeof *shape * (size_t)axes))) return 0;
    off->why = "dtype";
    snprintf(word, sizeof word, ",%.60s,", dtype), snprintf(padded, sizeof padded, ",%s,", one->dtype);
    if (!strstr(padded, word)) return 0;
    for (int pass = 0; pass < 2; pass++) /* NaN and infinity first, then the numbers */
        for (int64_t i = 0; i < one->size; i++) {
            double got = attnspec_element(data, dtype, i), expected = one->expected[i], allowed = one->allowed[i];
            *off = (attnspec_difference){pass ? "value" : "non-finite", i, got, expected, allowed};
            if (isnan(allowed)) continue;
            if (!isfinite(got) || !isfinite(expected)) {
                int same = got == expected || (isnan(got) && (isnan(expected) || (isinf(allowed) && expected == INFINITY)));
                if (!same && !pass) return 0;
            } else if (pass && !(fabs(got - expected) <= allowed)) return 0;
        }
    memset(off, 0, sizeof *off);
    off->why = "";
    return 1;
}

/* Whether the text of an error names an argument at fault (ERR-12). */
static inline int attnspec_names(const attnspec_suite *suite, const char *message) {
    char names[ATTNSPEC_NAME];
    strcpy(names, suite->at_fault);
    for (char *name = strtok(names, " "); name; name = strtok(NULL, " ")) if (strstr(message, name)) return 1;
    return 0;
}

/* Reads a list of known failures: a name of a case in each line; # begins a comment. */
static inline int attnspec_read_known(attnspec_suite *suite, const char *path) {
    char line[ATTNSPEC_LINE], name[ATTNSPEC_NAME];
    FILE *file = fopen(path, "r");
    if (!file) return attnspec_fail(suite, "known failures: expected a file", path);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "#\r\n")] = 0;
        if (sscanf(line, "%159s", name) != 1) continue;
        char **more = realloc(suite->known, sizeof *more * (size_t)(suite->known_count + 1));
        char *copy = malloc(strlen(name) + 1);
        if (!more || !copy) return free(copy), fclose(file), attnspec_fail(suite, "known failures: expected memory", path);
        suite->known = more, suite->known[suite->known_count++] = strcpy(copy, name);
    }
    return fclose(file), 1;
}
static inline int attnspec_is_known(const attnspec_suite *suite) {
    for (int i = 0; i < suite->known_count; i++) if (!strcmp(suite->known[i], suite->name)) return 1;
    return 0;
}
#endif
