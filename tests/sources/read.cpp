#include <cstdio>
#include "attnspec.h"
int main(int, char **words) {
    attnspec_suite suite;
    if (!attnspec_open(&suite, words[1])) return 2;
    int next = 1, cases = 0;
    while ((next = attnspec_next(&suite)) > 0) cases++;
    attnspec_close(&suite);
    std::printf("%d", cases);
    return next < 0;
}
