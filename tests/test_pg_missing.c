/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine without libpq: a store on a server says what to install, one in a file is as ever.
 */
#include "db_fixture.h"

#include <dlfcn.h>

/* Stands before the C library's own for this program. */
void *dlopen(const char *name, int flags)
{
    if (name != NULL && strstr(name, "libpq") != NULL)
        return NULL;
    void *(*own)(const char *, int) = NULL;
    *(void **)(void *)&own = dlsym(RTLD_NEXT, "dlopen");
    return own(name, flags);
}

DB_TEST(without_libpq_a_server_is_refused_with_what_to_install)
{
    fa_store *store = NULL;
    for (int i = 0; i < 2; i++) {
        CHECK_FAILS(fa_store_open("postgresql://fa:s3cret@/fleet", FA_STORE_READ_WRITE, NULL,
                                  &store, NULL, &diag),
                    FA_ENOTSUP, "libpq5");
        CHECK(strstr(diag.text, "s3cret") == NULL && store == NULL);
    }
}
