/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune, the command line: which verb, its options, its exit status.
 *
 * Doors include fa_tune.h and base, nothing else of ours. Results go to stdout, everything else
 * to stderr.
 */
#include "error.h"
#include "json_make.h"
#include "nearest.h"
#include "options_table.h"
#include "own_place.h"
#include "run.h"
#include "text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int version(cli_run *run)
{
    fa_buf_printf(&run->out, "fa-tune %s\n", fa_version());
    return 0;
}

static const cli_verb verbs[] = {
    {"tune",
     CLI_GROUP_PROBLEM | CLI_GROUP_GPU | CLI_GROUP_DEVICE | CLI_GROUP_EFFORT | CLI_GROUP_TUNE |
         CLI_GROUP_STORE | CLI_GROUP_ENGINE | CLI_GROUP_QUIET | CLI_GROUP_JSON | CLI_GROUP_TOP |
         CLI_GROUP_SERVER | CLI_GROUP_SEARCH,
     "find, prove and keep the fastest kernel for a problem (the default verb)",
     "Compiles the problem's whole space for the GPU, proves each kernel and times it where the\n"
     "GPU is here; elsewhere a model ranks the compiled kernels and the answer says \"predicted\".\n"
     "Lengths are tuned in buckets, eight in every octave; --exact tunes them as they are.\n"
     "Ctrl-C stops it; the same command goes on from there.\n"
     "A space of more than 20,000 configs is searched, and so is any with --strategy, --evaluations or\n"
     "--time; with --again a search goes on from what is on record.\n",
     cli_tune},
    {"explain",
     CLI_GROUP_PROBLEM | CLI_GROUP_GPU | CLI_GROUP_DEVICE | CLI_GROUP_STORE | CLI_GROUP_ENGINE |
         CLI_GROUP_QUIET | CLI_GROUP_JSON | CLI_GROUP_TOP,
     "every config of a problem's space, where it ended and why",
     "Compiles nothing: shows what the budget says and what earlier tunes have found.\n",
     cli_explain},
    {"check",
     CLI_GROUP_PROBLEM | CLI_GROUP_GPU | CLI_GROUP_DEVICE | CLI_GROUP_STORE | CLI_GROUP_ENGINE |
         CLI_GROUP_QUIET | CLI_GROUP_JSON,
     "whether a kernel of your own compiles and takes what its file says: no GPU",
     "  fa-tune check conv2d.cu --gpu A100\n\n"
     "Compiles the answer and the default config, and compares what each kernel takes with \"arguments\".\n"
     "For the device here, or an A100 where there is none. Keeps nothing. Exit status 1 when something\n"
     "is wrong.\n",
     cli_check},
    {"report",
     CLI_GROUP_REPORT | CLI_GROUP_FILTER | CLI_GROUP_GPU | CLI_GROUP_STORE | CLI_GROUP_ENGINE |
         CLI_GROUP_QUIET | CLI_GROUP_JSON | CLI_GROUP_TOP,
     "what the store knows of every problem, as a page, Markdown, CSV or JSON",
     "Options of a problem keep those problems that agree; what is not given may be anything, the\n"
     "defaults below do not count. Needs no GPU and changes nothing.\n\n"
     "  fa-tune report --out report.html     one file to open, send or print\n",
     cli_report},
    {"show",
     CLI_GROUP_SHOW | CLI_GROUP_PROBLEM | CLI_GROUP_GPU | CLI_GROUP_DEVICE | CLI_GROUP_STORE |
         CLI_GROUP_ENGINE | CLI_GROUP_QUIET | CLI_GROUP_JSON | CLI_GROUP_WHY | CLI_GROUP_SERVER,
     "the winners in the store or in a bundle, and with --why the way to one",
     "Newest first; --gpu keeps those of one GPU type. With --why and a problem: every winner that\n"
     "could serve it, in the order of trust, with why it is taken or passed over. Changes nothing.\n"
     "With a FILE.fab it checks that bundle wholly (hashes, signature, every cubin) and shows it; no\n"
     "store and no GPU are asked.\n",
     cli_show},
    {"export",
     CLI_GROUP_EXPORT | CLI_GROUP_FILTER | CLI_GROUP_GPU | CLI_GROUP_STORE | CLI_GROUP_ENGINE |
         CLI_GROUP_QUIET | CLI_GROUP_JSON,
     "write winners, their cubins and evidence into one signed file",
     "  fa-tune export --gpu L4 --out l4.fab\n\n"
     "The same store content gives the same bytes. Options of a problem keep those winners that\n"
     "agree; what is not given may be anything, the defaults below do not count.\n\n"
     "Records are a bundle's source as text, one winner a line, for version control:\n\n"
     "  fa-tune export --records FILE [--predict]             the store's winners into FILE\n"
     "  fa-tune export --from-records FILE --out all.fab      compile them into a bundle\n\n"
     "Trials in the T4 format, which other auto-tuners and `fa-tune replay` read:\n\n"
     "  fa-tune export --t4 FILE --gpu L4 --seq 512           all that was tried for this problem\n",
     cli_export},
    {"import",
     CLI_GROUP_IMPORT | CLI_GROUP_FILTER | CLI_GROUP_GPU | CLI_GROUP_STORE | CLI_GROUP_ENGINE |
         CLI_GROUP_QUIET | CLI_GROUP_JSON,
     "take the winners of a bundle or of records into the store",
     "  fa-tune import l4.fab\n"
     "  fa-tune import records.jsonl --gpu H200     compiled here, with their trials and baselines\n\n"
     "Options of a problem and --gpu keep those records that agree; a bundle is taken whole.\n"
     "All or nothing. A winner that the store already has for a problem and GPU stays when its origin\n"
     "is better; of equal ones the narrower interval stays, then the newer driver, then the later\n"
     "one. Every winner and what became of it is told.\n",
     cli_import},
    {"keygen", CLI_GROUP_KEYGEN | CLI_GROUP_JSON, "make a key to sign bundles with",
     "Prints the public half, which others add with `fa-tune trust add`. The secret half never\n"
     "leaves its file and is never written over.\n",
     cli_keygen},
    {"trust", CLI_GROUP_TRUST | CLI_GROUP_JSON,
     "whose bundles are imported: list, add KEY or remove KEY",
     "  fa-tune trust add KEY --name NAME\n\n"
     "A bundle's kernels run on this machine's GPU with this user's data: trust accordingly. The own\n"
     "key is always trusted.\n",
     cli_trust},
    {"rm",
     CLI_GROUP_FORGET | CLI_GROUP_FILTER | CLI_GROUP_GPU | CLI_GROUP_STORE | CLI_GROUP_ENGINE |
         CLI_GROUP_QUIET | CLI_GROUP_JSON,
     "forget winners, and all that tuning stored with them",
     "  fa-tune rm --gpu L4 --dry-run               what would go\n"
     "  fa-tune rm --seq 4096 --head-dim 128        these problems, on every GPU\n"
     "  fa-tune rm --older-than 30d\n"
     "  fa-tune rm --stale\n"
     "  fa-tune rm --all\n\n"
     "A winner goes with its trials, predictions and proofs, and with the cubins that nothing else\n"
     "needs: all of it or, when that fails, none. The problem is then as if it had never been tuned.\n"
     "Baselines stay, and so do the plans of sweeps, which tune the problem again. Options choose the\n"
     "problems that agree with all of them; the defaults below do not count.\n\n"
     "A winner is stale when neither this fa-tune's templates nor those of --templates make it any\n"
     "more: no lookup serves it. An older fa-tune that shares the store may still use it, and winners\n"
     "of your own families and operations are stale unless their --templates are given.\n\n"
     "Without its --templates an operation is chosen by --operation NAME, and its problems are listed\n"
     "as the store has them, in JSON. Options of a problem do not choose among them.\n\n"
     "Only the local store is changed. Lookups still find what a system bundle, the fleet's store or a\n"
     "service has, and a process keeps the kernels that it has loaded. The file gets smaller when a\n"
     "quarter of it is unused. The command waits up to ten seconds for tunes into this store.\n",
     cli_rm},
    {"sweep",
     CLI_GROUP_SWEEP | CLI_GROUP_DEVICE | CLI_GROUP_EFFORT | CLI_GROUP_TUNE | CLI_GROUP_STORE |
         CLI_GROUP_ENGINE | CLI_GROUP_QUIET | CLI_GROUP_JSON | CLI_GROUP_SERVER,
     "tune a grid of problems as one job that goes on where it was stopped",
     "Every combination of the lists is tuned, problems that share cubins next to one another.\n"
     "However it ends, the same command goes on from there and loses at most one trial. What\n"
     "failed is tried again by the next run. Budgets hold for all runs together. With --effort\n"
     "patient a problem that was under way begins anew.\n\n"
     "  fa-tune sweep --seq 512:16384:x2 --head-dim 64,128 --dtype fp16,bf16 --causal both \\\n"
     "                --tokens 16384 --hidden 2048 --time 30m --baseline torch.jsonl\n\n"
     "Exit status 1 when a problem failed.\n",
     cli_sweep},
    {"worker",
     CLI_GROUP_WORKER | CLI_GROUP_GPU | CLI_GROUP_DEVICE | CLI_GROUP_TUNE | CLI_GROUP_STORE |
         CLI_GROUP_ENGINE | CLI_GROUP_QUIET | CLI_GROUP_JSON,
     "work on the fleet's queue: one on each GPU, and one on each host without",
     "  export FA_TUNE_STORE=postgresql://tuner@db/fa_tune           or sqlite:///PATH on one machine\n"
     "  fa-tune sweep --enqueue --gpu L4,H100 --seq 512:16384:x2     anywhere\n"
     "  fa-tune worker --idle-exit 10m                               on each host\n"
     "  fa-tune queue --follow                                       anywhere\n\n"
     "With a GPU it measures the problems queued for that GPU type; without one it compiles for any,\n"
     "or for --gpu's, so that those with one find the cubins ready. SIGTERM and Ctrl-C hand the\n"
     "problem back; a worker that dies is missed after FA_TUNE_LEASE seconds (30), and the problem\n"
     "goes to another. How problems are tuned is said by who enqueued them.\n",
     cli_worker},
    {"queue",
     CLI_GROUP_QUEUE | CLI_GROUP_STORE | CLI_GROUP_ENGINE | CLI_GROUP_QUIET | CLI_GROUP_JSON,
     "how the fleet's queue stands: what is done, who holds what",
     "Refused are results that came too late: their worker had not been heard of for so long that\n"
     "the problem was another's.\n\n"
     "Exit status with --follow: 1 when a problem failed.\n",
     cli_queue},
    {"compare", CLI_GROUP_COMPARE | CLI_GROUP_JSON | CLI_GROUP_QUIET,
     "whether winners became slower: OLD NEW, two stores or JSON exports",
     "OLD and NEW are stores, or what `fa-tune show --json` or `fa-tune sweep --json` printed. Only\n"
     "measured winners of one problem on the same silicon are compared.\n\n"
     "Exit status 1 when one is slower by more than the margin with confidence (the low end of its\n"
     "interval in NEW over the high end in OLD), or when nothing could be compared.\n",
     cli_compare},
    {"replay", CLI_GROUP_REPLAY | CLI_GROUP_JSON,
     "how well each search strategy does on a space that was recorded: no GPU",
     "FILE is a cache file of Kernel Tuner or a result in the T4 format, as JSON, of a space that was\n"
     "measured whole. Each repeat searches it with so many evaluations; what breaks a restriction or does\n"
     "not compile costs none.\n\n"
     "  fa-tune replay A100.json --strategy all\n",
     cli_replay},
    {"doctor", CLI_GROUP_STORE | CLI_GROUP_ENGINE | CLI_GROUP_JSON | CLI_GROUP_SERVER,
     "whether driver, NVRTC, GPU, store and service are fit, and what to do",
     "Exit status 0 when nothing fails, 1 otherwise.\n", cli_doctor},
    {"gpus", CLI_GROUP_JSON, "the GPU types that --gpu takes", "", cli_gpus},
    {"serve", 0, "one engine for every process on this host, over HTTP", "", NULL},
    {"version", 0, "the version", "", version},
};

enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static const cli_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int unknown_verb(const char *name)
{
    const char *names[VERB_COUNT + 2];
    for (size_t i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i].name;
    names[VERB_COUNT] = "help";
    names[VERB_COUNT + 1] = NULL;
    const char *near = fa_nearest(name, names);
    char typed[CLI_SHORT_SIZE];
    fa_diag diag;
    cli_text_short(name, typed);
    if (near != NULL)
        fa_fail(&diag, FA_EINVAL, "there is no verb \"%s\": did you mean %s?", typed, near);
    else
        fa_fail(&diag, FA_EINVAL, "there is no verb \"%s\": `fa-tune help` lists them", typed);
    return cli_error(EXIT_USAGE, &diag);
}

static void overview(fa_buf *out)
{
    fa_buf_text(out, "fa-tune finds, proves and remembers the fastest FlashAttention kernel for a "
                     "problem on a GPU.\n\n"
                     "  fa-tune --gpu L4 --seq 512\n\n"
                     "usage: fa-tune [VERB] [OPTIONS]\n\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        fa_buf_printf(out, "  %-8s  %s\n", verbs[i].name, verbs[i].summary);
    fa_buf_text(out, "  help      this text, or `fa-tune help VERB`\n\n"
                     "Options of tune (fa-tune VERB --help tells those of the others):\n\n");
    cli_options_help(verbs[0].groups, fa_operation_of(NULL), out);
    fa_buf_text(out,
                "\nExit status: 0 done, 1 failed, 2 asked wrongly, 130 stopped by Ctrl-C.\n"
                "Environment: FA_TUNE_STORE, FA_TUNE_LOCAL_STORE, FA_TUNE_LEASE, FA_TUNE_SYSTEM, "
                "FA_TUNE_SERVER, FA_TUNE_TOKEN_FILE, FA_TUNE_TEMPLATES, FA_TUNE_NVRTC, "
                "FA_TUNE_LIBCUDA, FA_TUNE_WORKER.\n");
}

/* Help of one verb, or of all for NULL, on stdout. */
static int help(const cli_verb *verb, const fa_operation *operation)
{
    fa_buf out = {0};
    if (verb == NULL) {
        overview(&out);
    } else {
        fa_buf_printf(&out, "fa-tune %s: %s\n\nusage: fa-tune %s", verb->name, verb->summary,
                      verb->name);
        cli_options_operands(verb->groups, &out);
        fa_buf_text(&out, " [OPTIONS]\n");
        if (verb->details[0] != 0)
            fa_buf_printf(&out, "\n%s", verb->details);
        fa_buf_text(&out, "\n");
        cli_options_help(verb->groups, operation, &out);
    }
    int status = cli_write(&out);
    fa_buf_free(&out);
    return status;
}

struct listing {
    const fa_operation *operation;
    cJSON *options;
};

static void add_option(void *context, const cli_option_spec *spec)
{
    struct listing *listing = context;
    cJSON *option = cJSON_CreateObject();
    const char *const *choices = spec->kind == KIND_CHOICE ? spec->choices : NULL;
    if (spec->kind == KIND_FIELD)
        choices = listing->operation->field[cli_option_field(spec)].choice;
    fa_json_add_text(option, "name", spec->name);
    fa_json_add_text(option, "value", spec->value); /* absent: a flag */
    fa_json_add_text(option, "help", spec->help);
    cJSON *names = fa_json_add_array(option, "choices");
    for (int i = 0; choices != NULL && choices[i] != NULL; i++)
        if (choices[i][0] != 0)
            fa_json_push(names, cJSON_CreateString(choices[i]));
    fa_json_push(listing->options, option);
}

static cJSON *verb_json(const cli_verb *verb, const fa_operation *operation)
{
    cJSON *json = cJSON_CreateObject();
    fa_buf operands = {0};
    cli_options_operands(verb->groups, &operands);
    fa_json_add_text(json, "name", verb->name);
    fa_json_add_text(json, "summary", verb->summary);
    fa_json_add_text(json, "details", verb->details);
    fa_json_add_text(json, "operands", operands.size > 0 ? operands.data + 1 : "");
    struct listing listing = {operation, fa_json_add_array(json, "options")};
    if (verb->run != NULL) /* else it is another program, with options of its own */
        cli_options_each(verb->groups, operation, add_option, &listing);
    fa_buf_free(&operands);
    return json;
}

static int help_in_json(void)
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
    return cli_json_write(document);
}

/* The daemon is a program of its own, so that this one loads no HTTP server; it reads its own options.
 * Returns only where it cannot be started. */
static int serve(int count, char **arguments)
{
    char path[PATH_MAX];
    fa_diag diag;
    char **all = calloc((size_t)count + 2, sizeof *all);
    fa_own_program("fa-tune-serve", path, sizeof path);
    if (all == NULL)
        return 1;
    all[0] = path;
    for (int i = 0; i < count; i++)
        all[i + 1] = arguments[i];
    execv(path, all);
    int error = errno;
    free(all);
    fa_fail(&diag, FA_EIO, "cannot start %s: %s; it is installed with fa-tune", path,
            strerror(error));
    return cli_error(1, &diag);
}

static int help_on(int count, char **arguments)
{
    if (count > 0 && strcmp(arguments[0], "--json") == 0)
        return help_in_json();
    if (count > 0 && strcmp(arguments[0], "help") == 0)
        count = 0;
    const cli_verb *verb = count > 0 ? find_verb(arguments[0]) : NULL;
    char *serve_help[] = {(char *)(uintptr_t) "--help"};
    if (count > 0 && verb == NULL)
        return unknown_verb(arguments[0]);
    return verb != NULL && verb->run == NULL ? serve(1, serve_help)
                                             : help(verb, fa_operation_of(NULL));
}

/* A failure under --json is a document too, where nothing else was written. */
static int end_in_json(int status)
{
    cJSON *sentences = status != 0 ? cli_errors_take() : NULL;
    if (sentences == NULL)
        return status;
    cJSON *document = cJSON_CreateObject(), *error = fa_json_add_object(document, "error");
    fa_json_add_text(document, "fa_tune", fa_version());
    fa_json_add_number(error, "exit_status", status);
    fa_json_add(error, "sentences", sentences);
    cli_json_write(document);
    return status;
}

static bool asks_for_json(int count, char **arguments)
{
    for (int i = 1; i < count; i++)
        if (strcmp(arguments[i], "--json") == 0)
            return true;
    return false;
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
    int status = verb->run(&run);
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
    const cli_verb *verb = &verbs[0];
    int first = 1;
    if (count < 2) {
        fputs("fa-tune: say what to tune, as in `fa-tune --gpu L4 --seq 512`; `fa-tune help` tells "
              "the rest\n",
              stderr);
        return EXIT_USAGE;
    }
    if (strcmp(arguments[1], "--version") == 0 || strcmp(arguments[1], "-V") == 0)
        return run_verb(find_verb("version"), &(cli_options){0});
    if (strcmp(arguments[1], "help") == 0)
        return help_on(count - 2, arguments + 2);
    if (strcmp(arguments[1], "--help") == 0 || strcmp(arguments[1], "-h") == 0)
        return help(NULL, NULL);
    if (arguments[1][0] != '-' && !cli_names_specification(arguments[1])) {
        verb = find_verb(arguments[1]);
        if (verb == NULL)
            return unknown_verb(arguments[1]);
        first = 2;
    }
    if (verb->run == NULL)
        return serve(count - first, arguments + first);
    int rc = cli_options_parse(verb, count - first, arguments + first, &options, &diag);
    if (rc != 0)
        return cli_error(rc == FA_ENOMEM ? EXIT_FAILED : EXIT_USAGE, &diag);
    return options.help ? help(verb, options.problem.operation) : run_verb(verb, &options);
}

int main(int count, char **arguments)
{
    cli_symbols_init();
    int status = run_line(count, arguments);
    return asks_for_json(count, arguments) ? end_in_json(status) : status;
}
