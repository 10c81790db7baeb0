/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to what the library takes, and from its answers to exit statuses.
 */
#include "error.h"
#include "rows.h"
#include "interrupt.h"
#include "json_make.h"
#include "text.h"
#include "verbs.h"

#include <string.h>

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* A store that is named is the one that is meant, whatever service the environment names. */
static const char *server_of(const cli_options *options)
{
    return options->server != NULL ? options->server : options->store != NULL ? "" : NULL;
}

const char *cli_location(const fa_tuner *tuner)
{
    const char *server = fa_server_location(tuner);
    return server[0] != 0 ? server : fa_store_location(tuner);
}

bool cli_asked_fleet(const fa_tuner *tuner)
{
    return fa_server_location(tuner)[0] == 0 &&
           strcmp(fa_store_location(tuner), fa_store_file(tuner)) != 0;
}

void cli_text_places(fa_buf *out, const fa_answer *answer, const fa_tuner *tuner)
{
    bool fleet = answer->in_fleet && cli_asked_fleet(tuner);
    if (answer->from_system) {
        fa_buf_text(out, "a system bundle");
        return;
    }
    if (fleet)
        cli_text_path(out, fa_store_location(tuner));
    if (fleet && answer->in_local)
        fa_buf_text(out, " and ");
    if (!fleet || answer->in_local)
        cli_text_path(out, fa_store_file(tuner));
}

void cli_json_location(cJSON *document, const fa_tuner *tuner)
{
    const char *server = fa_server_location(tuner);
    fa_json_add_text(document, "store", fa_store_location(tuner));
    if (server[0] != 0)
        fa_json_add_text(document, "server", server);
    else
        fa_json_add_null(document, "server");
}

fa_options cli_library_options(const cli_options *options)
{
    return (fa_options){
        .size = sizeof(fa_options),
        .store = options->store,
        .templates = options->templates,
        .compile_workers = options->jobs,
        .compile_timeout_ms = options->compile_timeout_s * 1000,
        .trial_timeout_ms = options->trial_timeout_s * 1000,
        .seed = options->seed,
        .server = server_of(options),
    };
}

static int open_tuner(const cli_options *options, bool existing_store, cli_progress *progress,
                      fa_tuner **ret_tuner)
{
    fa_diag diag = {{0}};
    fa_options library = cli_library_options(options);
    library.existing_store = existing_store;
    library.log = cli_progress_note;
    library.log_context = progress;
    int rc = fa_open(&library, ret_tuner, &diag);
    return rc != 0 ? cli_fail(rc, options, &diag) : 0;
}

int cli_open(const cli_options *options, cli_progress *progress, fa_tuner **ret_tuner)
{
    return open_tuner(options, false, progress, ret_tuner);
}

int cli_open_to_read(const cli_options *options, cli_progress *progress, fa_tuner **ret_tuner)
{
    return open_tuner(options, true, progress, ret_tuner);
}

fa_request cli_request(const cli_options *options)
{
    return (fa_request){
        .size = sizeof(fa_request),
        .problem = options->problem,
        .gpu = options->gpu,
        .ordinal = options->device >= 0 ? options->device : 0,
        .effort = options->effort,
        .again = options->again,
        .exact = options->exact,
        .first_contact = options->effort_given && options->effort == FA_EFFORT_MEASURE,
    };
}

int cli_fail(int rc, const cli_options *options, const fa_diag *diag)
{
    fa_diag told = *diag;
    if (told.text[0] == 0)
        fa_fail(&told, rc, "%s", fa_strerror(rc));
    cli_error(0, &told);
    if ((rc == FA_ENODEVICE || rc == FA_ENODRIVER) && options->gpu == NULL) {
        fa_fail(&told, rc,
                "name a GPU type to tune for it without having it, as in `fa-tune --gpu "
                "L4 --seq 512`; `fa-tune gpus` lists them, `fa-tune doctor` looks for causes");
        cli_error(0, &told);
    }
    if (rc == FA_ENOTFOUND && options->effort == FA_EFFORT_CACHED) {
        fa_fail(&told, rc, "leave --effort cached out to tune for it");
        cli_error(0, &told);
    }
    if (rc == FA_ECANCELED && cli_interrupted() != 0)
        return 128 + cli_interrupted();
    return rc == FA_EINVAL || rc == FA_EMANIFEST ? EXIT_USAGE : EXIT_FAILED;
}

int cli_check_gpu(const cli_options *options)
{
    fa_gpu gpu;
    fa_diag diag = {{0}};
    if (options->gpu == NULL)
        return 0;
    int rc = fa_gpu_find(options->gpu, &gpu, &diag);
    if (rc == 0)
        return 0;
    cli_fail(rc, options, &diag);
    return EXIT_USAGE;
}
