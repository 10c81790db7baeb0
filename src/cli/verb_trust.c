/* SPDX-License-Identifier: Apache-2.0
 *
 * trust: the keys whose bundles are imported.
 */
#include "error.h"
#include "rows.h"
#include "json_make.h"
#include "text.h"
#include "verbs.h"

#include <string.h>

struct listing {
    fa_buf out;
    cJSON *array;
};

static int list_one(void *context, const fa_trusted_key *key)
{
    struct listing *listing = context;
    if (listing->array != NULL) {
        cJSON *item = cJSON_CreateObject();
        fa_json_add_text(item, "key", key->key);
        fa_json_add_text(item, "name", key->name);
        fa_json_add_bool(item, "own", key->own);
        fa_json_push(listing->array, item);
        return 0;
    }
    fa_buf_printf(&listing->out, "%s  ", key->key);
    cli_text_safe(&listing->out, key->name);
    fa_buf_text(&listing->out, "\n");
    return 0;
}

static int list(const cli_options *options)
{
    struct listing listing = {{0}, NULL};
    fa_diag diag = {{0}};
    cJSON *document = NULL;
    if (options->json) {
        document = cJSON_CreateObject();
        listing.array = fa_json_add_array(document, "keys");
    }
    int rc = fa_trust_list(list_one, &listing, &diag), status;
    if (rc != 0) {
        cJSON_Delete(document);
        status = cli_fail(rc, options, &diag);
    } else if (options->json) {
        status = cli_json_write(document);
    } else {
        if (listing.out.size == 0)
            fa_buf_text(&listing.out, "no key is trusted: `fa-tune trust add KEY` adds one\n");
        status = cli_write(&listing.out);
    }
    fa_buf_free(&listing.out);
    return status;
}

int cli_trust(const cli_options *options)
{
    const char *what = options->operand[0], *key = options->operand[1];
    fa_diag diag = {{0}};
    bool add = strcmp(what, "add") == 0, remove = strcmp(what, "remove") == 0;
    if (strcmp(what, "list") == 0 && key == NULL)
        return list(options);
    if ((!add && !remove) || key == NULL) {
        fa_fail(&diag, FA_EINVAL,
                "use `fa-tune trust list`, `fa-tune trust add KEY` or `fa-tune trust remove KEY`");
        return cli_error(2, &diag);
    }
    int rc = add ? fa_trust_add(key, options->bundle.name, &diag) : fa_trust_remove(key, &diag);
    if (rc != 0)
        return cli_fail(rc, options, &diag);
    fa_buf out = {0};
    if (options->json)
        fa_buf_text(&out, "{}\n");
    else
        fa_buf_text(&out, add ? "trusted from now on\n" : "no longer trusted\n");
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}
