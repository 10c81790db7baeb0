/* SPDX-License-Identifier: Apache-2.0
 *
 * Records into the store: they are compiled into a bundle that nobody signs, in a folder of its own, which is
 * imported and goes away; then their baselines.
 */
#include "bundle_work.h"

#include "buf.h"
#include "error.h"
#include "records_file.h"
#include "session.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fa_is_records(const char *path)
{
    static const char begin[] = "{\"fa_tune_records\"";
    char head[sizeof begin - 1];
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    bool is = fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head &&
              memcmp(head, begin, sizeof head) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

static int import_baselines(fa_tuner *tuner, const fa_records_options *options, fa_diag *diag)
{
    fa_records records = {0};
    int rc = fa_records_read(options->records, &records, diag);
    if (rc != 0)
        return rc;
    if (options->output->keep != NULL)
        fa_records_keep(&records, options->output->keep, options->output->context);
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_baselines_put(tuner->store, records.baseline, (size_t)records.baselines, diag);
    pthread_mutex_unlock(&tuner->work);
    fa_records_free(&records);
    return rc;
}

int fa_import_records(fa_tuner *tuner, const fa_records_options *options,
                      const fa_import_options *import, fa_records_info *ret_info,
                      fa_bundle_info *ret_bundle, fa_diag *diag)
{
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_records_options_check(options, diag);
    if (rc == 0 && (options->output == NULL || options->output->size != sizeof *options->output ||
                    import == NULL || import->size != sizeof *import))
        rc = fa_fail(diag, FA_EINVAL, "output or import is NULL, or of another size");
    if (rc != 0)
        return rc;
    const char *temporary = getenv("TMPDIR");
    char folder[3000], file[sizeof folder + 16];
    snprintf(folder, sizeof folder, "%.2900s/fa-tune-records-XXXXXX",
             temporary != NULL && temporary[0] == '/' ? temporary : "/tmp");
    if (mkdtemp(folder) == NULL)
        return fa_fail(diag, FA_EIO, "cannot make a folder %s", folder);
    snprintf(file, sizeof file, "%s/records.fab", folder);
    fa_export_options output = *options->output;
    output.file = file;
    output.no_signature = true;
    fa_records_options compile = *options;
    compile.output = &output;
    fa_import_options unsigned_one = *import;
    unsigned_one.file = file;
    unsigned_one.allow_unsigned = true;
    rc = fa_export_from_records(tuner, &compile, ret_info, NULL, diag);
    if (rc == 0)
        rc = fa_import(tuner, &unsigned_one, ret_bundle, diag);
    unlink(file);
    rmdir(folder);
    return rc == 0 && !import->dry_run ? import_baselines(tuner, options, diag) : rc;
}
