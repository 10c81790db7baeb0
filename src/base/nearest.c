/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours,
 * each of cost 1. Names here are short; the time is their lengths' product.
 */
#include "nearest.h"

#include <stddef.h>
#include <string.h>

enum { LONGEST = 63 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return n + m;
    size_t cost[LONGEST + 1]
               [LONGEST + 1]; /* cost[i][j]: from the first i of a to the first j of b */
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            size_t best = smaller(cost[i - 1][j], cost[i][j - 1]) + 1;
            best = smaller(best, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = smaller(best, cost[i - 2][j - 2] + 1);
            cost[i][j] = best;
        }
    }
    return cost[n][m];
}

/* One starts with the other: "--sequence" for "--seq", "--eff" for "--effort". */
static int starts(const char *a, const char *b)
{
    size_t n = smaller(strlen(a), strlen(b));
    return n >= 3 && strspn(a, "-") < n && strncmp(a, b, n) == 0;
}

const char *fa_nearest(const char *typed, const char *const *names)
{
    const char *nearest = NULL;
    size_t size = strlen(typed), least = size == 3 ? 2 : 3 < size / 2 ? 3 : size / 2;
    least *= 2; /* in halves; farther is not near */
    for (; *names != NULL; names++) {
        size_t d = 2 * distance(typed, *names);
        if (d > 3 && starts(typed, *names))
            d = 3; /* between one slip and two */
        if (d < least) {
            least = d;
            nearest = *names;
        }
    }
    return nearest;
}
