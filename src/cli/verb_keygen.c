/* SPDX-License-Identifier: Apache-2.0
 *
 * keygen: a key pair to sign bundles with.
 */
#include "error.h"
#include "rows.h"
#include "json_make.h"
#include "text.h"
#include "verbs.h"

int cli_keygen(const cli_options *options)
{
    char key[FA_KEY_TEXT_MAX], path[4096] = "";
    fa_diag diag = {{0}};
    int rc = fa_keygen(options->bundle.out, key, path, sizeof path, &diag);
    if (rc != 0)
        return cli_fail(rc, options, &diag);
    if (options->json) {
        cJSON *document = cJSON_CreateObject();
        fa_json_add_text(document, "key", key);
        fa_json_add_text(document, "file", path);
        return cli_json_write(document);
    }
    fa_buf out = {0};
    fa_buf_printf(&out, "%s\nsecret half in ", key);
    cli_text_path(&out, path);
    fa_buf_printf(&out, "; who is to import your bundles runs: fa-tune trust add %s\n", key);
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}
