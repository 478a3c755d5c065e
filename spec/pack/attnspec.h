/* attnspec.h: judge an implementation of attention by exported cases, in C99 or C++11 without dependencies.
 *
 * The cases are those of the pack, or what `attnspec export FOLDER --format raw` writes. The page of the pack,
 * spec/pack/README.md, describes the files:
 *
 *     attnspec_suite suite;
 *     if (!attnspec_open(&suite, "FOLDER")) { puts(suite.error); return 2; }
 *     while (attnspec_next(&suite) > 0) {
 *         if (!attnspec_choose(&suite, "float32", "full")) continue; // the call is not for this dtype
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

enum { ATTNSPEC_AXES = 8, ATTNSPEC_PARTS = 32, ATTNSPEC_ALLOWED = 8, ATTNSPEC_NAME = 160, ATTNSPEC_LINE = 1024 };
#define ATTNSPEC_MOST ((int64_t)1 << 31) /* octets of one array: more is rejected */

/* The outputs of all operations: a name that is not here is a mistake, and not an output that a case does not judge. */
static const char attnspec_names_of_outputs[] =
    " appended attention_factor bias d_bias d_features d_key d_key_bias d_key_rotary d_key_weight d_latent d_lses "
    "d_memory d_output_bias d_output_weight d_outputs d_query d_query_bias d_query_rotary d_query_weight d_scale "
    "d_sinks d_slopes d_tokens d_value d_value_bias d_value_weight dequantized gathered index_scores "
    "inverse_frequencies key_indices lse max merged output projected rotated scores split weights ";

typedef struct { /* an argument, or an output that is expected */
    char name[ATTNSPEC_NAME];
    char option[48]; /* of an output: the flag that asks for it, or - */
    char kind[16];  /* number: it has the dtype of the call; lse: that of an lse; own: the dtype that it is stored in;
                       of an output also wider: the dtype of the call or a wider one; or the name of a dtype */
    char dtype[16]; /* in which the elements are stored */
    int axes;
    int64_t shape[ATTNSPEC_AXES], size;
    void *data; /* the elements, row-major, bool as 0 or 1 */
    int strided; /* whether the call has the array in memory of another size and order, in elements: */
    int64_t memory, first, strides[ATTNSPEC_AXES];
    int allowed_count;
    struct { char dtype[16], accuracy[16], stored[16]; void *data; } allowed[ATTNSPEC_ALLOWED];
} attnspec_array;

typedef struct { char name[ATTNSPEC_NAME], kind[16], text[ATTNSPEC_NAME]; } attnspec_option;

typedef struct { /* the suite, and the case that was read last */
    char error[512];
    char folder[4096], name[ATTNSPEC_NAME], operation[96], title[ATTNSPEC_LINE], dtypes[ATTNSPEC_NAME], results[512];
    char dtype[16], accuracy[16];                  /* that were chosen */
    char rule[32], level[16];                      /* of the main rule; level is MUST, SHOULD or MAY */
    char catches[ATTNSPEC_NAME];                   /* the first wrong implementation that the case is there for */
    char rejection[16], at_fault[ATTNSPEC_NAME];   /* never, may or must; which argument an error may name */
    attnspec_option options[ATTNSPEC_PARTS];
    attnspec_array inputs[ATTNSPEC_PARTS], outputs[ATTNSPEC_PARTS];
    int option_count, input_count, output_count;
    int64_t read, octets; /* cases that were read; octets in the file of arrays of the chapter */
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
    snprintf(suite->folder, sizeof suite->folder, "%.4000s", folder);
    snprintf(path, sizeof path, "%.4000s/cases.txt", folder);
    suite->index = fopen(path, "r");
    if (!suite->index) return attnspec_fail(suite, "folder: expected cases.txt", folder);
    if (!fgets(line, sizeof line, suite->index) || sscanf(line, "attnspec %d %63s", &format, version) != 2 || format != 2)
        return attnspec_fail(suite, "cases.txt: expected format 2 in the first line", format ? line : "another line");
    return 1;
}

static inline void attnspec_forget(attnspec_suite *suite) {
    for (int i = 0; i < suite->input_count; i++) free(suite->inputs[i].data);
    for (int i = 0; i < suite->output_count; i++) {
        attnspec_array *output = &suite->outputs[i];
        for (int k = 0; k < output->allowed_count; k++) free(output->allowed[k].data);
        free(output->data);
    }
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
    if (!suite->arrays || place < 0 || octets > ATTNSPEC_MOST || place > suite->octets - octets) return NULL;
    void *data = calloc(1, octets ? (size_t)octets : 1);
    if (data && !fseek(suite->arrays, (long)place, SEEK_SET) && fread(data, 1, (size_t)octets, suite->arrays) == (size_t)octets)
        return data;
    free(data);
    return NULL;
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

/* Opens the arrays of a chapter. Its name is letters and underscores, and never a path. */
static inline int attnspec_chapter(attnspec_suite *suite, const char *name) {
    char path[4096 + ATTNSPEC_NAME];
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz_") != strlen(name)) return 0;
    if (suite->arrays) fclose(suite->arrays);
    snprintf(path, sizeof path, "%s/%.150s.bin", suite->folder, name);
    suite->arrays = fopen(path, "rb");
    if (!suite->arrays || fseek(suite->arrays, 0, SEEK_END)) return 0;
    suite->octets = ftell(suite->arrays);
    return 1;
}

static inline int attnspec_part(attnspec_suite *suite, const char *line) {
    char word[16], name[ATTNSPEC_NAME];
    long long place = 0;
    int used = 0, wide = 0;
    if (sscanf(line, "%15s %159s %n", word, name, &used) != 2) return 0;
    if (!strcmp(word, "title")) {
        snprintf(suite->title, sizeof suite->title, "%s", line + 6);
    } else if (!strcmp(word, "dtypes")) {
        snprintf(suite->dtypes, sizeof suite->dtypes, " %.150s ", line + 7);
    } else if (!strcmp(word, "results")) {
        snprintf(suite->results, sizeof suite->results, " %.500s ", line + 8);
    } else if (!strcmp(word, "catches")) {
        if (!*suite->catches) strcpy(suite->catches, name);
    } else if (!strcmp(word, "rule")) {
        char level[16];
        if (sscanf(line + used, "%15s", level) != 1) return 0;
        if (!*suite->rule) snprintf(suite->rule, sizeof suite->rule, "%.31s", name), strcpy(suite->level, level);
    } else if (!strcmp(word, "rejection")) {
        snprintf(suite->rejection, sizeof suite->rejection, "%.15s", name);
        snprintf(suite->at_fault, sizeof suite->at_fault, " %.150s ", line + used);
        return !strcmp(name, "never") || !strcmp(name, "may") || !strcmp(name, "must");
    } else if (!strcmp(word, "array") || !strcmp(word, "output")) {
        int *count = *word == 'a' ? &suite->input_count : &suite->output_count;
        if (*count == ATTNSPEC_PARTS) return 0;
        attnspec_array *array = &(*word == 'a' ? suite->inputs : suite->outputs)[*count];
        memset(array, 0, sizeof *array);
        if (*word == 'a' ? sscanf(line + used, "%15s %15s %lld %n", array->kind, array->dtype, &place, &wide) != 3
                         : sscanf(line + used, "%15s %47s %15s %lld %n", array->kind, array->option, array->dtype, &place, &wide) != 4)
            return 0;
        strcpy(array->name, name);
        int width = attnspec_width(array->dtype);
        if (!width || !attnspec_shape(array, line + used + wide, width)) return 0;
        array->data = attnspec_load(suite, place, array->size * width);
        return array->data ? ++*count : 0;
    } else if (!strcmp(word, "layout")) {
        for (int i = 0; i < suite->input_count; i++) {
            attnspec_array *array = &suite->inputs[i];
            if (strcmp(array->name, name)) continue;
            const char *text = line + used;
            long long numbers[ATTNSPEC_AXES + 2];
            for (int a = 0; a < array->axes + 2; a++, text += wide)
                if (sscanf(text, "%lld%n", &numbers[a], &wide) != 1) return 0;
            array->strided = 1, array->memory = numbers[0], array->first = numbers[1];
            for (int a = 0; a < array->axes; a++) array->strides[a] = numbers[a + 2];
            return 1;
        }
        return 0;
    } else if (!strcmp(word, "allowed")) {
        attnspec_array *output = suite->output_count ? &suite->outputs[suite->output_count - 1] : NULL;
        if (!output || output->allowed_count == ATTNSPEC_ALLOWED) return 0;
        char accuracy[16], stored[16];
        if (sscanf(line + used, "%15s %15s %lld", accuracy, stored, &place) != 3 || !attnspec_width(stored)) return 0;
        void *data = attnspec_load(suite, place, output->size * attnspec_width(stored));
        if (!data) return 0;
        snprintf(output->allowed[output->allowed_count].dtype, 16, "%.15s", name);
        strcpy(output->allowed[output->allowed_count].accuracy, accuracy);
        strcpy(output->allowed[output->allowed_count].stored, stored);
        output->allowed[output->allowed_count++].data = data;
    } else {
        if (suite->option_count == ATTNSPEC_PARTS) return 0;
        attnspec_option *option = &suite->options[suite->option_count++];
        strcpy(option->name, name), strcpy(option->kind, word);
        snprintf(option->text, sizeof option->text, "%.159s", line + used);
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
    *suite->rule = *suite->rejection = *suite->catches = *suite->dtypes = *suite->dtype = 0;
    if (!suite->index || !fgets(line, sizeof line, suite->index))
        return attnspec_fail(suite, "cases.txt: expected the number of cases at the end", "the end of the file"), -1;
    line[strcspn(line, "\r\n")] = 0;
    while (!strncmp(line, "chapter ", 8)) {
        if (!attnspec_chapter(suite, line + 8))
            return attnspec_fail(suite, "cases.txt: expected a chapter with a file of arrays", line), -1;
        if (!fgets(line, sizeof line, suite->index)) *line = 0;
        line[strcspn(line, "\r\n")] = 0;
    }
    if (sscanf(line, "cases %lld", &count) == 1) {
        if (count == suite->read) return 0;
        return attnspec_fail(suite, "cases.txt: expected as many cases as its last line says", line), -1;
    }
    if (sscanf(line, "case %159s %95s", suite->name, suite->operation) != 2)
        return attnspec_fail(suite, "cases.txt: expected a case", line), -1;
    while (fgets(line, sizeof line, suite->index)) {
        line[strcspn(line, "\r\n")] = 0;
        if (!strcmp(line, "end")) return *suite->rule && *suite->rejection && *suite->dtypes ? (int)(++suite->read, 1)
            : (attnspec_fail(suite, "cases.txt: expected a rule, dtypes and a rejection of each case", suite->name), -1);
        if (!attnspec_part(suite, line)) return attnspec_fail(suite, "cases.txt: expected a line that fits the arrays", line), -1;
    }
    return attnspec_fail(suite, "cases.txt: expected an end of each case", suite->name), -1;
}

/* Whether the call can be made in a dtype. The class of budget is full, or cast in half precision (NUM-3). */
static inline int attnspec_choose(attnspec_suite *suite, const char *dtype, const char *accuracy) {
    char word[20];
    snprintf(word, sizeof word, " %.15s ", dtype);
    snprintf(suite->dtype, sizeof suite->dtype, "%.15s", dtype);
    snprintf(suite->accuracy, sizeof suite->accuracy, "%.15s", accuracy);
    return strstr(suite->dtypes, word) != NULL;
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
/* Whether all arguments are among those named, such as "query key value mask": a case that has others is not for you.
 * A case that has arrays in other memory orders is for you if "layout" is among the names. */
static inline int attnspec_takes(const attnspec_suite *suite, const char *names) {
    char padded[ATTNSPEC_LINE], name[ATTNSPEC_NAME + 2];
    snprintf(padded, sizeof padded, " %s ", names);
    for (int i = 0; i < suite->input_count + suite->option_count; i++) {
        snprintf(name, sizeof name, " %s ", i < suite->input_count ? suite->inputs[i].name : suite->options[i - suite->input_count].name);
        if (!strstr(padded, name)) return 0;
        if (i < suite->input_count && suite->inputs[i].strided && !strstr(padded, " layout ")) return 0;
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

/* Whether an output of a kind may have a dtype (NUM-1, NUM-7, POS-8). */
static inline int attnspec_accepts(const char *kind, const char *call, const char *dtype) {
    int single = !strcmp(dtype, "float32") && strcmp(call, "float64"), wide = !strcmp(dtype, "float64");
    if (!strcmp(kind, "lse")) return single || wide;
    if (!strcmp(kind, "wider")) return !strcmp(call, dtype) || single || wide;
    return !strcmp(strcmp(kind, "number") ? kind : call, dtype);
}

/* How often each place is in each list of an output, and how many entries are -1; infinitely many if one is no place. */
static inline double *attnspec_counts(const attnspec_array *output, const void *data, const char *dtype, int64_t length) {
    int64_t places = output->shape[output->axes - 1], rows = places ? output->size / places : 0;
    double *counts = (double *)calloc((size_t)output->size + 1, sizeof *counts);
    for (int64_t i = 0; counts && i < rows * length; i++) {
        int64_t place = 0;
        int32_t narrow = 0;
        if (!strcmp(dtype, "int64")) memcpy(&place, (const char *)data + 8 * i, 8);
        else memcpy(&narrow, (const char *)data + 4 * i, 4), place = narrow;
        int known = place >= -1 && place < places - 1;
        counts[i / length * places + (known && place >= 0 ? place : places - 1)] += known ? 1 : INFINITY;
    }
    return counts;
}

/* Judges an output of the call in the dtype and class that were chosen: 1 where every element is allowed. The
 * difference says what is not. */
static inline int attnspec_judge(const attnspec_suite *suite, const char *name, const char *dtype, int axes, const int64_t *shape,
                          const void *data, attnspec_difference *off) {
    const attnspec_array *output = attnspec_output(suite, name);
    char padded[80];
    int chosen = 0;
    memset(off, 0, sizeof *off);
    off->why = "";
    if (!output) { /* the case does not judge this output */
        snprintf(padded, sizeof padded, " %.70s ", name);
        if (strstr(attnspec_names_of_outputs, padded)) return 1;
        off->why = "name";
        return 0;
    }
    int listed = !strcmp(output->kind, "counts"), last = listed && axes ? axes - 1 : axes;
    const char *length = attnspec_text(suite, "top_k");
    off->why = "shape";
    if (listed && (!axes || !length || shape[axes - 1] != atoll(length))) return 0;
    if (axes != output->axes || (last && memcmp(shape, output->shape, sizeof *shape * (size_t)last))) return 0;
    off->why = "dtype";
    if (listed ? strcmp(dtype, "int32") && strcmp(dtype, "int64") : !attnspec_accepts(output->kind, suite->dtype, dtype)) return 0;
    while (chosen < output->allowed_count && (strcmp(output->allowed[chosen].dtype, suite->dtype) ||
                                              strcmp(output->allowed[chosen].accuracy, suite->accuracy))) chosen++;
    off->why = "class";
    if (chosen == output->allowed_count) return 0;
    double *counts = listed ? attnspec_counts(output, data, dtype, shape[axes - 1]) : NULL;
    int wrong = listed && !counts;
    for (int pass = 0; pass < 2 && !wrong; pass++) /* NaN and infinity first, then the numbers */
        for (int64_t i = 0; i < output->size && !wrong; i++) {
            double got = listed ? counts[i] : attnspec_element(data, dtype, i), expected = attnspec_element(output->data, output->dtype, i);
            double allowed = attnspec_element(output->allowed[chosen].data, output->allowed[chosen].stored, i);
            off->why = pass ? "value" : "non-finite";
            off->element = i, off->got = got, off->expected = expected, off->allowed = allowed;
            if (isnan(allowed)) continue;
            if (!isfinite(got) || !isfinite(expected)) {
                int same = got == expected || (isnan(got) && (isnan(expected) || (isinf(allowed) && expected == INFINITY)));
                wrong = !same && !pass;
            } else wrong = pass && !(fabs(got - expected) <= allowed);
        }
    free(counts);
    if (wrong) return 0;
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
        char **more = (char **)realloc(suite->known, sizeof *more * (size_t)(suite->known_count + 1));
        char *copy = (char *)malloc(strlen(name) + 1);
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
