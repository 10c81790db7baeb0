/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune, the command line: its verbs, and their help; which verb, its options, its exit status.
 *
 * Doors include fa_tune.h and base, nothing else of ours. Results go to stdout, everything else
 * to stderr.
 */
#include "error.h"
#include "json.h"
#include "options.h"
#include "run.h"
#include "text.h"
#include "words.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int version(cli_run *run)
{
    fa_buf_printf(&run->out, "fa-tune %s\n", fa_version());
    return 0;
}

/* Groups that many verbs take. */
enum {
    STORED = CLI_GROUP_STORE | CLI_GROUP_ENGINE | CLI_GROUP_QUIET | CLI_GROUP_JSON,
    ONE_PROBLEM = CLI_GROUP_PROBLEM | CLI_GROUP_GPU | CLI_GROUP_DEVICE,
    FILTERS = CLI_GROUP_FILTER | CLI_GROUP_GPU,
    TUNES = CLI_GROUP_EFFORT | CLI_GROUP_TUNE
};

static const cli_verb verbs[] = {
    {"tune", ONE_PROBLEM | TUNES | STORED | CLI_GROUP_TOP | CLI_GROUP_SEARCH | CLI_GROUP_SERVER,
     "find, prove and keep the fastest kernel for a problem (the default verb)",
     "With the GPU in this machine each kernel of the space is compiled, proved and timed; without it a "
     "model ranks them, and the answer says \"predicted\". Lengths are tuned in buckets, eight per octave. "
     "After Ctrl-C the same command continues. A space of more than 20,000 configs is searched, and so is "
     "any with --strategy, --evaluations or --time.\n",
     cli_tune, CLI_KEEPS | CLI_KNOWN_GPU | CLI_STOPS, "Tune"},
    {"sweep", CLI_GROUP_SWEEP | CLI_GROUP_SWEEP_RUN | CLI_GROUP_DEVICE | TUNES | STORED,
     "tune a grid of problems as one job that can be stopped and continued",
     "  fa-tune sweep --seq 512:16384:x2 --head-dim 64,128 --causal both --time 30m\n\n"
     "Tunes every combination of the lists, as in 512,1024 or 512:16384:x2 or 512:2048:+512. The same command "
     "continues, and tries failed problems again. Budgets apply to all runs together. Exit status 1 when "
     "a problem failed.\n",
     cli_sweep, CLI_STOPS, NULL},
    {"explain", ONE_PROBLEM | STORED | CLI_GROUP_TOP,
     "list every config of a problem's space with its outcome and the reason",
     "Compiles nothing: shows what the budget says and what earlier tunes found.\n", cli_explain,
     CLI_READS | CLI_KNOWN_GPU, NULL},
    {"check", CLI_GROUP_CHECK | ONE_PROBLEM | STORED,
     "check that a kernel of your own compiles and fits its specification, without a GPU",
     "  fa-tune check conv2d.cu --gpu A100\n"
     "  fa-tune check conv2d.cu --help          lists the sizes of that file, too\n\n"
     "Compiles the answer and the default config for the GPU here, or for an A100, and compares the "
     "parameters of each kernel with \"arguments\". Exit status 1 when something is wrong.\n",
     cli_check, CLI_KNOWN_GPU, NULL},
    {"show", CLI_GROUP_SHOW | ONE_PROBLEM | STORED | CLI_GROUP_WHY,
     "list the winners in the store or in a bundle; --why explains a lookup",
     "Newest first; --gpu and options of a problem are filters. --why says which winners could serve a "
     "problem, and why each is taken or passed over. A FILE.fab is verified, and its winners are listed.\n",
     cli_show, 0, "Look at results"},
    {"report", CLI_GROUP_REPORT | FILTERS | STORED,
     "write the results in the store as a page, a document or a table",
     "  fa-tune report --out report.html     one file to open, send or print\n\n"
     "Options of a problem are filters here. Needs no GPU and changes nothing.\n",
     cli_report, CLI_READS | CLI_STOPS, NULL},
    {"run", CLI_GROUP_RUN | ONE_PROBLEM | CLI_GROUP_TUNE | STORED,
     "prove and launch a tuned kernel, for a profiler to watch",
     "  fa-tune run --seq 4096 --config 2 --launches 10\n"
     "  ncu --profile-from-start off fa-tune run --seq 4096\n"
     "  python -m fa_tune.profile --seq 4096        what bounds it, in a sentence\n\n"
     "A worker process proves the config and then launches it between cuProfilerStart and "
     "cuProfilerStop. Stores nothing.\n",
     cli_run_config, CLI_READS | CLI_KNOWN_GPU | CLI_STOPS, NULL},
    {"export", CLI_GROUP_EXPORT | FILTERS | STORED,
     "write winners, their cubins and evidence into one signed file",
     "  fa-tune export --gpu L4 --out l4.fab\n"
     "  fa-tune export --from-records FILE --out all.fab    compiled here, from winners as text\n\n"
     "The same store content gives the same bytes. Options of a problem are filters here.\n",
     cli_export, CLI_READS | CLI_KNOWN_GPU | CLI_STOPS, "Share"},
    {"import", CLI_GROUP_IMPORT | FILTERS | STORED,
     "add the winners of a bundle or of records to the store",
     "  fa-tune import l4.fab\n"
     "  fa-tune import conv2d.cu conv2d.fab         of a kernel of your own\n"
     "  fa-tune import records.jsonl --gpu H200     compiled here, with trials\n\n"
     "Records are the winners of `show --json`, one a line (of a problem and GPU the first counts); --gpu and "
     "options of a problem filter them. A bundle is imported whole or not at all. Of two winners of a problem the "
     "one with the more trusted origin stays, then the narrower interval.\n",
     cli_import, CLI_KNOWN_GPU | CLI_STOPS, NULL},
    {"keygen", CLI_GROUP_JSON, "make a key that signs bundles",
     "A pair in minisign's format; no file is overwritten. Prints the public half, which is in "
     "fa-tune/trusted/own.pub in the configuration directory, too. Bundles are imported whose signer's "
     ".pub file lies in that folder: trust only people whose programs you would run.\n",
     cli_keygen, 0, NULL},
    {"serve", CLI_GROUPS_SERVE, "one engine for every process on this host, over HTTP",
     "Listens on a Unix socket that only this user can use, until SIGTERM stops it. Kernels of your own "
     "are served from their files; no client's source is compiled.\n",
     NULL, 0, "Hosts and fleets"},
    {"worker", CLI_GROUP_WORKER | CLI_GROUP_GPU | CLI_GROUP_DEVICE | CLI_GROUP_TUNE | STORED,
     "work on the store's queue: run one per GPU, and one per host without a GPU",
     "  export FA_TUNE_STORE=postgresql://tuner@db/fa_tune     on every host\n"
     "  fa-tune sweep --enqueue --gpu L4,H100 --seq 512        anywhere\n"
     "  fa-tune worker --idle-exit 10m                         on each host\n\n"
     "A worker with a GPU measures the problems that are queued for its GPU type; one without compiles for "
     "any type, or for that of --gpu. A worker that ends returns its problem to the queue.\n",
     cli_worker, CLI_KEEPS | CLI_STOPS, NULL},
    {"queue", CLI_GROUP_QUEUE | STORED,
     "show the store's queue: finished problems and those that somebody works on", "", cli_queue,
     CLI_READS, NULL},
    {"push", STORED, "bring the local file's winners to the server that was away",
     "While the server of FA_TUNE_STORE does not answer, winners are kept in a local file "
     "(FA_TUNE_LOCAL_STORE). Of two winners the better one stays; the file is left as it is.\n",
     cli_push, CLI_KEEPS, NULL},
    {"rm", CLI_GROUP_FORGET | FILTERS | STORED,
     "delete winners, with everything that tuning stored for them",
     "  fa-tune rm --gpu L4 --dry-run               lists what would be deleted\n"
     "  fa-tune rm --seq 4096 --head-dim 128        these problems, on every GPU\n\n"
     "Deletes winners with their trials and proofs, and cubins that nothing else needs, in one transaction. "
     "Lookups still find winners of system bundles and of a service.\n",
     cli_rm, CLI_READS, "Maintenance"},
    {"doctor", CLI_GROUP_STORE | CLI_GROUP_ENGINE | CLI_GROUP_JSON | CLI_GROUP_SERVER,
     "check driver, NVRTC, GPU, store and service, with advice",
     "Exit status 0 when nothing fails, 1 otherwise.\n", cli_doctor, 0, NULL},
    {"gpus", CLI_GROUP_GPU | CLI_GROUP_JSON | CLI_GROUP_QUIET, "the GPU types that --gpu takes",
     "  fa-tune gpus --gpu A100             its variants\n", cli_gpus, CLI_KNOWN_GPU, NULL},
    {"version", CLI_GROUP_JSON, "the version", "", version, 0, NULL},
};

enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

enum { COLUMN = 26 /* where an option's help begins */ };

static void put_wrapped(fa_buf *out, const char *text, size_t column, size_t indent)
{
    fa_wrap(out, text, strlen(text), column, indent);
    fa_buf_text(out, "\n");
}

/* ---- help: options --------------------------------------------------------------------------------*/
static void put_options(unsigned groups, const fa_operation *operation, fa_buf *out)
{
    static cli_option_list list;
    cli_option_list_make(groups, operation, &list);
    for (size_t i = 0; i < list.count; i++) {
        const cli_option_spec *spec = list.spec[i];
        if (spec->kind == KIND_HEADING) {
            fa_buf_printf(out, "\n%s\n", spec->help);
            continue;
        }
        char left[128], letter = cli_option_letter(spec);
        snprintf(left, sizeof left, "  %c%c%c %s%s%s", letter != 0 ? '-' : ' ',
                 letter != 0 ? letter : ' ', letter != 0 ? ',' : ' ', spec->name,
                 spec->value != NULL ? " " : "", spec->value != NULL ? spec->value : "");
        if (strlen(left) + 2 > COLUMN)
            fa_buf_printf(out, "%s\n%*s", left, COLUMN, "");
        else
            fa_buf_printf(out, "%-*s", COLUMN, left);
        put_wrapped(out, spec->help, COLUMN, COLUMN);
    }
}

/* ---- help: verbs -----------------------------------------------------------------------------------*/
static void put_overview(fa_buf *out)
{
    put_wrapped(
        out,
        "fa-tune finds, proves and remembers the fastest CUDA kernel for a problem on a GPU: "
        "attention, with kernels that it brings, or a kernel of your own.",
        0, 0);
    fa_buf_text(out, "\n  fa-tune --gpu L4 --seq 512        attention\n"
                     "  fa-tune conv2d.cu --gpu L4        a kernel of your own\n\n"
                     "usage: fa-tune [VERB] [FILE.cu] [OPTIONS]\n");
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (verbs[i].heading != NULL)
            fa_buf_printf(out, "\n%s\n", verbs[i].heading);
        fa_buf_printf(out, "  %-10s  ", verbs[i].name);
        put_wrapped(out, verbs[i].summary, 14, 14);
    }
    fa_buf_text(out, "\n");
    put_wrapped(
        out,
        "`fa-tune tune --help` has the options of tune, the default verb, `fa-tune VERB --help` those of "
        "another. Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.",
        0, 0);
}

/* `check` is of a file: without it there are no sizes to tell, and the fields of attention are not among them. */
static unsigned groups_told(const cli_verb *verb, const fa_operation *operation)
{
    bool no_file = (verb->groups & CLI_GROUP_CHECK) != 0 && operation == fa_operation_of(NULL);
    return no_file ? verb->groups & ~(unsigned)CLI_GROUP_PROBLEM : verb->groups;
}

static void put_operands(unsigned groups, fa_buf *out)
{
    if (groups & CLI_GROUPS_SPECIFIED)
        fa_buf_text(out, groups & CLI_GROUP_CHECK ? " FILE.cu" : " [FILE.cu]");
    if (cli_operand(groups) != NULL)
        fa_buf_printf(out, " %s", cli_operand(groups));
}

/* With all of its options, those of the operation's problems among them. */
static void put_verb(const cli_verb *verb, const fa_operation *operation, fa_buf *out)
{
    fa_buf_printf(out, "fa-tune %s: ", verb->name);
    put_wrapped(out, verb->summary, strlen(verb->name) + 10, 0);
    fa_buf_printf(out, "\nusage: fa-tune %s", verb->name);
    put_operands(verb->groups, out);
    fa_buf_text(out, verb->details[0] != 0 ? " [OPTIONS]\n\n" : " [OPTIONS]\n");
    /* Each line is a paragraph, which is filled, unless it stands in from the margin. */
    for (const char *at = verb->details; *at != 0; at += *at == '\n') {
        const size_t length = strcspn(at, "\n");
        if (*at == ' ')
            fa_buf_append(out, at, length);
        else
            fa_wrap(out, at, length, 0, 0);
        fa_buf_text(out, "\n");
        at += length;
    }
    put_options(groups_told(verb, operation), operation, out);
}

/* ---- help as JSON -----------------------------------------------------------------------------------*/
static cJSON *option_json(const cli_option_spec *spec, const fa_operation *operation, bool sweeps)
{
    cJSON *option = cJSON_CreateObject();
    int index = cli_option_field(spec);
    const fa_field *field = index >= 0 ? &operation->field[index] : NULL;
    bool list = spec->kind == KIND_TEXT && (field != NULL || strcmp(spec->value, "LIST") == 0);
    const char *const *choices = field != NULL ? field->choice : spec->choices;
    const char letter[] = {'-', cli_option_letter(spec), 0};
    fa_json_add_text(option, "name", spec->name);
    fa_json_add_text(option, "short", letter[1] != 0 ? letter : NULL);
    fa_json_add_text(option, "value", spec->value); /* absent: a flag */
    fa_json_add_text(option, "help", spec->help);
    fa_json_add_bool(option, "list", list); /* several values between commas */
    cJSON *names = fa_json_add_array(option, "choices");
    for (int i = 0; choices != NULL && choices[i] != NULL; i++)
        if (!(sweeps && strcmp(choices[i], "cached") == 0)) /* is refused */
            fa_json_push(names, cJSON_CreateString(choices[i]));
    if (list && field != NULL && fa_field_may_be_bare(field))
        fa_json_push(names, cJSON_CreateString("both"));
    for (int i = 0; strcmp(spec->name, "--operation") == 0 && fa_operation_at(i) != NULL; i++)
        fa_json_push(names, cJSON_CreateString(fa_operation_at(i)->name));
    return option;
}

static cJSON *verb_json(const cli_verb *verb, const fa_operation *operation)
{
    static cli_option_list list;
    FA_ENDS(fa_buf_free) fa_buf operands = {0};
    put_operands(verb->groups, &operands);
    cJSON *json = operands.failed ? NULL : cJSON_CreateObject();
    fa_json_add_text(json, "name", verb->name);
    fa_json_add_text(json, "summary", verb->summary);
    fa_json_add_text(json, "details", verb->details);
    fa_json_add_text(json, "operands", operands.size > 0 ? operands.data + 1 : "");
    cJSON *options = fa_json_add_array(json, "options");
    cli_option_list_make(groups_told(verb, operation), operation, &list);
    for (size_t i = 0; i < list.count; i++)
        if (list.spec[i]->kind != KIND_HEADING)
            fa_json_push(options, option_json(list.spec[i], operation,
                                              (verb->groups & CLI_GROUP_SWEEP) != 0));
    return json;
}

static cJSON *help_json(void)
{
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "fa_tune", fa_version());
    cJSON *list = fa_json_add_array(document, "verbs"), *gpus = fa_json_add_array(document, "gpus");
    for (size_t i = 0; i < VERB_COUNT; i++)
        fa_json_push(list, verb_json(&verbs[i], fa_operation_of(NULL)));
    fa_gpu gpu;
    const char *refused;
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++)
        if (refused == NULL)
            fa_json_push(gpus, cJSON_CreateString(gpu.name));
    return document;
}

/* ---- running a verb --------------------------------------------------------------------------*/
static const cli_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

/* Prints help; returns the exit status. */
static int put_help(const cli_verb *verb, const fa_operation *operation)
{
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    if (verb != NULL)
        put_verb(verb, operation, &out);
    else
        put_overview(&out);
    return cli_write(&out);
}

/* The daemon is a program of its own, so that this one loads no HTTP server; it reads these options again, which NULL ends
 * and which have room before them. Returns only where it cannot be started. */
static int serve(char **arguments)
{
    char path[PATH_MAX];
    fa_diag diag;
    fa_own_file("fa-tune-serve", path, sizeof path);
    arguments[-1] = path;
    execv(path, arguments - 1);
    fa_fail(&diag, FA_EIO, "cannot start %s: %s; it is installed with fa-tune", path,
            strerror(errno));
    return cli_error(1, &diag);
}

/* The frame of every verb: what it needs is ready, its result is printed, or why there is none, and what it
 * opened is closed. Returns the exit status. */
static int run_verb(const cli_verb *verb, const cli_options *options)
{
    cli_run run = {.options = options};
    cli_progress_init(&run.progress, options);
    if (options->json) {
        run.document = cJSON_CreateObject();
        fa_json_add_text(run.document, "fa_tune", fa_version());
    }
    int status = verb->needs & CLI_KNOWN_GPU ? cli_check_gpu(&run) : 0;
    if (verb->needs & CLI_STOPS)
        cli_interrupt_install();
    if (status == 0 && (verb->needs & (CLI_READS | CLI_KEEPS)))
        status = cli_open(&run, (verb->needs & CLI_READS) != 0);
    if (status == 0)
        status = verb->run(&run);
    cli_progress_end(&run.progress);
    if (status < 0)
        status = cli_fail(&run, status);
    else if (status == 0 && !run.printed)
        status = cli_print(&run);
    fa_close(&run.tuner);
    fa_buf_free(&run.out);
    cJSON_Delete(run.document);
    return status;
}

static int run_line(int count, char **arguments)
{
    cli_options options;
    fa_diag diag;
    const char *names[VERB_COUNT + 2] = {[VERB_COUNT] = "help"};
    const char *first = count > 1 ? arguments[1] : "", *topic = count > 2 ? arguments[2] : "help";
    const bool typed = first[0] != '-' && !cli_names_specification(first);
    if (count < 2) {
        cli_tell(
            "say what to tune, as in `fa-tune --gpu L4 --seq 512`; `fa-tune help` tells the rest");
        return EXIT_USAGE;
    }
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0)
        return run_verb(find_verb("version"), &(cli_options){0});
    const bool help =
        strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0;
    if (help && strcmp(topic, "--json") == 0)
        return cli_json_write(help_json());
    if (help && strcmp(topic, "help") == 0)
        return put_help(NULL, NULL);
    const cli_verb *verb = help ? find_verb(topic) : typed ? find_verb(first) : &verbs[0];
    if (verb == NULL) {
        for (size_t i = 0; i < VERB_COUNT; i++)
            names[i] = verbs[i].name;
        cli_refuse(NULL, help ? topic : first, "a verb (`fa-tune help` lists them)", names, &diag);
        return cli_error(EXIT_USAGE, &diag);
    }
    if (help)
        return put_help(verb, fa_operation_of(NULL));
    count -= 1 + typed;
    arguments += 1 + typed;
    int rc = cli_options_parse(verb, typed, count, arguments, &options, &diag);
    if (rc != 0)
        return cli_error(rc == FA_ENOMEM || rc == FA_EIO ? EXIT_FAILED : EXIT_USAGE, &diag);
    if (options.help)
        return put_help(verb, options.request.problem.operation);
    return verb->run == NULL ? serve(arguments) : run_verb(verb, &options);
}

int main(int count, char **arguments)
{
    bool json = false;
    signal(SIGXFSZ, SIG_IGN); /* a write past the limit on file sizes fails with EFBIG */
    for (int i = 1; i < count; i++)
        json |= strcmp(arguments[i], "--json") == 0;
    int status = run_line(count, arguments);
    cJSON *sentences = json && status != 0 ? cli_errors_take() : NULL;
    if (sentences == NULL) /* else the failure is a document, too, and nothing else was written */
        return status;
    cJSON *document = cJSON_CreateObject();
    fa_json_add_text(document, "fa_tune", fa_version());
    cJSON *error = fa_json_add_object(document, "error");
    fa_json_add_number(error, "exit_status", status);
    fa_json_add(error, "sentences", sentences);
    cli_json_write(document);
    return status;
}
