#include "attnspec.h"
int main(int count, char **words) {
    attnspec_suite suite;
    attnspec_difference off;
    int64_t shape[2] = {2, (count - 2) / 2}, lists[8];
    for (int i = 2; i < count; i++) lists[i - 2] = atoll(words[i]);
    if (!attnspec_open(&suite, words[1])) return 3;
    while (attnspec_next(&suite) > 0)
        if (!strcmp(suite.name, "selection-plain-float16") && attnspec_choose(&suite, "float32", "full"))
            return !attnspec_judge(&suite, "key_indices", "int64", 2, shape, lists, &off);
    return 3;
}
