#include "attnspec.h"
attnspec_suite suite;
int choose(const char *dtype, const char *accuracy) { return attnspec_choose(&suite, dtype, accuracy); }
int open_suite(const char *folder) { return attnspec_open(&suite, folder); }
int next_case(void) { return attnspec_next(&suite); }
const char *name_of(void) { return suite.name; }
const char *error_of(void) { return suite.error; }
const char *level_of(void) { return suite.level; }
int names(const char *message) { return attnspec_names(&suite, message); }
void close_suite(void) { attnspec_close(&suite); }
attnspec_difference off;
const char *why(void) { return off.why; }
int judge(const char *name, const char *dtype, int axes, const int64_t *shape, const void *data) {
    return attnspec_judge(&suite, name, dtype, axes, shape, data, &off);
}
