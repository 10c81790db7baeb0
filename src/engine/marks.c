/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of proofs under other drivers: in the store, else in the session.
 */
#include "marks.h"

#include "store.h"

#include <string.h>
#include <time.h>

int64_t fa_reproof_rest_s(const fa_verification *mark)
{
    enum { FIRST_S = 60, DOUBLINGS = 10 };
    int64_t since = (int64_t)time(NULL) - mark->unix_time;
    if (mark->late == 0 || since < 0) /* the clock was set back: treat the mark as made now */
        return 0;
    int64_t rest = (int64_t)FIRST_S << (mark->late - 1 < DOUBLINGS ? mark->late - 1 : DOUBLINGS);
    return since < rest ? rest - since : 0;
}

static bool same_mark(const fa_verification *mark, const char *cubin_key, const char *silicon,
                      int32_t driver_version)
{
    return mark->driver_version == driver_version && strcmp(mark->cubin_key, cubin_key) == 0 &&
           strcmp(mark->silicon, silicon) == 0;
}

bool fa_reproof_mark(fa_tuner *tuner, const char *cubin_key, const char *silicon,
                     int32_t driver_version, fa_verification *ret_mark)
{
    bool known = fa_store_verification_get(tuner->store, cubin_key, silicon, driver_version,
                                           ret_mark, NULL) == 0;
    for (int i = 0; i < FA_UNKEPT_MAX; i++) {
        const fa_verification *mark = &tuner->unkept[i];
        if (!same_mark(mark, cubin_key, silicon, driver_version) ||
            (known && ret_mark->unix_time > mark->unix_time))
            continue;
        *ret_mark = *mark;
        known = true;
    }
    return known;
}

/* Without this every ask would prove it again. */
static void remember(fa_tuner *tuner, const fa_verification *mark)
{
    int at = 0;
    while (at < FA_UNKEPT_MAX &&
           !same_mark(&tuner->unkept[at], mark->cubin_key, mark->silicon, mark->driver_version))
        at++;
    if (at == FA_UNKEPT_MAX)
        at = tuner->unkept_next++ % FA_UNKEPT_MAX;
    tuner->unkept[at] = *mark;
    tuner->unkept[at].unix_time = (int64_t)time(NULL);
}

void fa_reproof_keep(fa_tuner *tuner, const fa_scope *scope, const fa_verification *mark)
{
    fa_diag why = {{0}};
    bool read_only = fa_store_is_read_only(tuner->store);
    int rc = read_only ? FA_EREADONLY : fa_store_verification_put(tuner->store, mark, scope, &why);
    if (rc != 0 && !read_only)
        fa_note(tuner, "what became of a winner's proof under driver %d could not be kept: %s",
                mark->driver_version, why.text);
    if (rc != 0 && !mark->passed)
        remember(tuner, mark);
}
