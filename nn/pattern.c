/* Matching of parameter names, in one place for everything that takes a pattern. */
#include "nn/pattern.h"

#include <string.h>

#include "core/thread.h"

static const char vectors[] = "@vectors";

static size_t alternative_length(const char *pattern)
{
    return strcspn(pattern, "|");
}

static bool is_vectors(const char *alternative, size_t length)
{
    return length == sizeof vectors - 1 && memcmp(alternative, vectors, length) == 0;
}

luge_status lg_pattern_check(const char *pattern, const char *what)
{
    if (pattern == NULL) return LUGE_OK;
    for (const char *at = pattern;; ++at) {
        const size_t length = alternative_length(at);
        if (at[0] == '@' && !is_vectors(at, length)) {
            return lg_fail(LUGE_ERR_ARGUMENT, "%s: \"%.*s\" is no class of parameters; there is \"%s\"", what,
                           (int)(length < 64 ? length : 64), at, vectors);
        }
        at += length;
        if (*at == '\0') return LUGE_OK;
    }
}

/* The character after the one that begins at `c`, which may take several bytes of UTF-8. */
static const char *next_character(const char *c)
{
    ++c;
    while (((unsigned char)*c & 0xc0u) == 0x80u) ++c;
    return c;
}

/* Each * first takes nothing; where the rest does not fit, the last * takes one character more and
 * the rest is tried again. Earlier ones need not be tried again: that is enough, and never exponential. */
static bool glob(const char *pattern, const char *end, const char *name)
{
    const char *star = NULL, *resume = NULL;
    while (*name != '\0') {
        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            resume = name;
        } else if (pattern < end && *pattern == '?') {
            ++pattern;
            name = next_character(name);
        } else if (pattern < end && *pattern == *name) {
            ++pattern;
            ++name;
        } else if (star != NULL) {
            pattern = star;
            name = resume = next_character(resume);
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*') ++pattern;
    return pattern == end;
}

bool lg_pattern_match(const char *pattern, const char *name, int rank)
{
    if (pattern == NULL) return true;
    for (const char *at = pattern;; ++at) {
        const size_t length = alternative_length(at);
        if (is_vectors(at, length) ? rank <= 1 : glob(at, at + length, name)) return true;
        at += length;
        if (*at == '\0') return false;
    }
}
