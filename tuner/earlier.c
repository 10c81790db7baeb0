/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners of earlier versions of the built-in templates: which of them still hold.
 *
 * A winner's key names the closure hash of all templates that it was chosen from, so any change of
 * any file would orphan every winner. A row of the table says: under this closure the family had this
 * text. Where a family's text today is the same, so is the source that its configs render to, and its
 * winners hold. A row whose family has changed holds no winner and can be deleted.
 *
 * Workload: three hashes of some sixty kilobytes, once per process, when an earlier winner is asked for.
 */
#include "earlier.h"

#include "error.h"
#include "render.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct earlier {
    const char *operation, *closure, *family;
    const char *family_hash; /* as of fa_render_family_hash */
};

/* 0.1.0, the last with all files in one folder. */
#define CLOSURE_0_1_0 "c0100a3dcf0b876a9d97c7fa82543b51808238033879730fc25782e8832e1ae9"

/* 0.2.0 before serving attention. */
#define CLOSURE_DENSE "949bcbda8e9d65bbd5d0ac77c085b546fe512a8f41224bc8b235c8eab7b1c48e"

static const struct earlier earlier[] = {
    {"attn_fwd", CLOSURE_0_1_0, "attn_fwd_sm75",
     "96cd9d89f8d35cfea8f0d9322a700d4b2a20d22cad30b53a324e7ef8be73a5de"},
    {"attn_fwd", CLOSURE_0_1_0, "attn_fwd_sm80",
     "5a0165bc1f623293c0d8a1f2cc62951e361845f23ed8fe855dd33c54cf92c0f4"},
    {"attn_fwd", CLOSURE_0_1_0, "attn_fwd_sm90a",
     "c988f56df36f810318af507e335e26930561881bd2bbbe3e11d4468afdc05613"},
    {"attn_fwd", CLOSURE_DENSE, "attn_fwd_sm75",
     "96cd9d89f8d35cfea8f0d9322a700d4b2a20d22cad30b53a324e7ef8be73a5de"},
    {"attn_fwd", CLOSURE_DENSE, "attn_fwd_sm80",
     "5a0165bc1f623293c0d8a1f2cc62951e361845f23ed8fe855dd33c54cf92c0f4"},
    {"attn_fwd", CLOSURE_DENSE, "attn_fwd_sm90a",
     "59b60d1f3fa0b101ac979c9bc1fc2a7da079d205363930b119be66e247f92d23"},
};
enum { ROWS = sizeof earlier / sizeof *earlier };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static bool compared, unchanged[ROWS];
static char builtin_hash[ROWS][FA_HASH_HEX]; /* of the row's operation */

static int hash_for(const fa_templates *templates, int row, const char **ret_hash)
{
    const fa_operation *operation = NULL;
    int rc = fa_operation_find(earlier[row].operation, &operation, NULL);
    if (rc == 0)
        *ret_hash = fa_templates_hash(templates, operation);
    return rc;
}

/* Once per process, but for a failure, which the next call tries to mend. */
static int compare_families(void)
{
    fa_templates *builtin = NULL;
    const char *today = "";
    char hash[ROWS][FA_HASH_HEX] = {""}; /* of a family, in the first row that names it */
    pthread_mutex_lock(&mutex);
    int rc = compared ? 0 : fa_templates_open(NULL, &builtin, NULL);
    for (int i = 0; rc == 0 && !compared && i < ROWS; i++) {
        int first = 0;
        while (strcmp(earlier[first].family, earlier[i].family) != 0)
            first++;
        if (first == i)
            rc = fa_render_family_hash(builtin, earlier[i].family, hash[i]);
        if (rc == FA_ENOTFOUND) { /* there is no such family any more */
            hash[i][0] = 0;
            rc = 0;
        }
        unchanged[i] = strcmp(hash[first], earlier[i].family_hash) == 0;
        if (rc == 0)
            rc = hash_for(builtin, i, &today);
        if (rc == 0)
            snprintf(builtin_hash[i], FA_HASH_HEX, "%s", today);
    }
    fa_templates_close(&builtin);
    compared = rc == 0;
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* Whether the row holds for these templates: where a directory changes or joins the operation's families,
 * they stand beside others than the winners of the table were chosen among. 1, 0 or negative. */
static int row_holds(const fa_templates *templates, int row)
{
    const char *today = "";
    int rc = compare_families();
    if (rc == 0)
        rc = hash_for(templates, row, &today);
    if (rc != 0)
        return rc;
    return unchanged[row] && strcmp(today, builtin_hash[row]) == 0 &&
           strcmp(today, earlier[row].closure) != 0;
}

static bool is_own_hash(const fa_templates *templates, const char *closure)
{
    bool own = strcmp(closure, fa_templates_hash(templates, NULL)) == 0;
    for (int i = 0; !own && fa_operation_at(i) != NULL; i++)
        own = strcmp(closure, fa_templates_hash(templates, fa_operation_at(i))) == 0;
    return own;
}

int fa_templates_hold(const fa_templates *templates, const char *closure, const char *family,
                      fa_diag *diag)
{
    if (is_own_hash(templates, closure))
        return 1;
    for (int i = 0; i < ROWS; i++)
        if (strcmp(closure, earlier[i].closure) == 0 && strcmp(family, earlier[i].family) == 0) {
            int holds = row_holds(templates, i);
            return holds >= 0 ? holds : fa_fail(diag, holds, "earlier winners: out of memory");
        }
    return 0;
}

int fa_templates_earlier(const fa_templates *templates, int index, const char **ret_closure)
{
    for (int i = 0; i < ROWS; i++) {
        bool repeated = false;
        int holds = row_holds(templates, i);
        if (holds < 0)
            return holds;
        for (int j = 0; j < i && !repeated; j++)
            repeated =
                strcmp(earlier[j].closure, earlier[i].closure) == 0 && row_holds(templates, j) > 0;
        if (!repeated && holds > 0 && index-- == 0) {
            *ret_closure = earlier[i].closure;
            return 0;
        }
    }
    return FA_ENOTFOUND;
}
