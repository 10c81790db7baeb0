/* SPDX-License-Identifier: Apache-2.0
 *
 * PostgreSQL's client library, opened when the first store needs it and kept. Its functions by
 * name, in a table, so that nothing links it.
 */
#include "libpq.h"

#include "../src/base/error.h"

#include <dlfcn.h>
#include <pthread.h>

static fa_pq table;
static const char *missing; /* what of it was not found; NULL: all is there */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load_libpq(void)
{
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        missing = "libpq.so.5";
        return;
    }
#define LOAD(name)                                              \
    *(void **)(void *)&table.name = dlsym(library, "PQ" #name); \
    if (table.name == NULL)                                     \
        missing = "PQ" #name;
    FA_PQ_FUNCTIONS(LOAD)
#undef LOAD
}

int fa_pq_load(const fa_pq **ret_pq, fa_diag *diag)
{
    pthread_once(&once, load_libpq);
    if (missing != NULL)
        return fa_fail(diag, FA_ENOTSUP,
                       "a store on a PostgreSQL server needs libpq, and %s is not here: install "
                       "Debian's package libpq5, or set FA_TUNE_STORE to a file",
                       missing);
    *ret_pq = &table;
    return 0;
}
