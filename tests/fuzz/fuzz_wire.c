/* SPDX-License-Identifier: Apache-2.0
 *
 * What services and clients say to one another (fa_service.h): the first byte chooses the reader.
 * What a reader takes is written and read again, and must then be written as the same text.
 */
#include "fuzz.h"

#include "fa_tune.h"

long fuzz_taken;

/* Text that was read and written: reads it again and compares. */
#define AGAIN(read_it, write_it)                                 \
    do {                                                         \
        char *first = NULL, *second = NULL;                      \
        FUZZ_CHECK((write_it)(&first, &diag) == 0);              \
        FUZZ_CHECK((read_it)(first, strlen(first), &diag) == 0); \
        FUZZ_CHECK((write_it)(&second, &diag) == 0);             \
        if (strcmp(first, second) != 0)                          \
            fprintf(stderr, "%s\n%s\n", first, second);          \
        FUZZ_CHECK(strcmp(first, second) == 0);                  \
        free(first);                                             \
        free(second);                                            \
    } while (0)

static fa_diag diag;
static fa_ask ask;
static fa_answer answer = {.size = sizeof answer};
static fa_progress progress;
static fa_trial trial, best;
static fa_sweep sweep;
static fa_sweep_request asked;
static fa_sweep_item *items;
static char plan[512];
static fa_sweep_progress event;
static fa_sweep_parts parts;

static int read_ask(const char *text, size_t size, fa_diag *d)
{
    ask.size = sizeof ask;
    return fa_ask_read(text, size, &ask, d);
}

static int write_ask(char **ret, fa_diag *d)
{
    return fa_ask_write(&ask, ret, d);
}

static int read_answer(const char *text, size_t size, fa_diag *d)
{
    return fa_answer_read(text, size, &answer, d);
}

static int write_answer(char **ret, fa_diag *d)
{
    return fa_answer_write(&answer, ret, d);
}

static int read_progress(const char *text, size_t size, fa_diag *d)
{
    return fa_progress_read(text, size, &progress, &trial, &best, d);
}

static int write_progress(char **ret, fa_diag *d)
{
    return fa_progress_write(&progress, ret, d);
}

static int read_sweep(const char *text, size_t size, fa_diag *d)
{
    return fa_sweep_read(text, size, &sweep, d);
}

static int write_sweep(char **ret, fa_diag *d)
{
    return fa_sweep_write(&sweep, ret, d);
}

static int read_asked(const char *text, size_t size, fa_diag *d)
{
    fa_sweep_item *more = NULL;
    asked.size = sizeof asked;
    int rc = fa_sweep_ask_read(text, size, &asked, &more, plan, d);
    if (rc == 0) {
        free(items);
        items = more;
    }
    return rc;
}

static int write_asked(char **ret, fa_diag *d)
{
    return fa_sweep_ask_write(&asked, ret, d);
}

static int read_event(const char *text, size_t size, fa_diag *d)
{
    return fa_sweep_event_read(text, size, &event, &parts, d);
}

static int write_event(char **ret, fa_diag *d)
{
    return fa_sweep_event_write(&event, ret, d);
}

static void read_failure(const char *text, size_t size)
{
    int code = 0;
    fa_diag message;
    char *again = NULL;
    if (fa_failure_read(text, size, &code, &message, &diag) != 0)
        return;
    fuzz_taken++;
    FUZZ_CHECK(code < 0 && strlen(message.text) < sizeof message.text);
    FUZZ_CHECK(fa_failure_write(code, message.text, &again, &diag) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        char letter;
        int (*read)(const char *, size_t, fa_diag *);
        int (*write)(char **, fa_diag *);
    } readers[] = {{'k', read_ask, write_ask},           {'a', read_answer, write_answer},
                   {'p', read_progress, write_progress}, {'s', read_sweep, write_sweep},
                   {'q', read_asked, write_asked},       {'e', read_event, write_event}};
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (data[0] != readers[i].letter)
            continue;
        diag.text[0] = 0;
        int rc = readers[i].read(text, size - 1, &diag);
        FUZZ_CHECK(rc == 0 || diag.text[0] != 0);
        fuzz_taken += rc == 0;
        if (rc == 0)
            AGAIN(readers[i].read, readers[i].write);
    }
    if (data[0] == 'f')
        read_failure(text, size - 1);
    free(items);
    items = NULL;
    return 0;
}
