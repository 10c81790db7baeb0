/* SPDX-License-Identifier: Apache-2.0
 *
 * What services and clients say to one another (fa_service.h): the first byte chooses the reader.
 * What a reader takes is written and read again, and must then be written as the same text.
 */
#include "fuzz.h"

#include "fa_tune.h"
#include "sources.h"

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

static int read_ask(const char *text, size_t size, fa_diag *d)
{
    return fa_ask_read(text, size, &ask, d);
}

static int write_ask(char **ret, fa_diag *d)
{
    return fa_ask_write(&ask, ret, d);
}

static int read_answer(const char *text, size_t size, fa_diag *d)
{
    char *reply = NULL;
    const int length = asprintf(&reply, "{\"answer\":%.*s}", (int)size, text);
    FUZZ_CHECK(length > 0);
    const int rc = fa_kernel_read(reply, (size_t)length, &answer, d);
    free(reply);
    return rc;
}

static int write_answer(char **ret, fa_diag *d)
{
    return fa_answer_write(&answer, ret, d);
}

static void read_asked(const char *text, size_t size)
{
    fa_sweep_ask asked = {.items = NULL};
    if (fa_sweep_ask_read(text, size, &asked, &diag) == 0) {
        fuzz_taken++;
        FUZZ_CHECK(asked.request.items == asked.items && asked.request.count > 0 &&
                   asked.request.count <= FA_SWEEP_ITEMS_MAX);
    }
    free(asked.items);
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
    } readers[] = {{'k', read_ask, write_ask}, {'a', read_answer, write_answer}};
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
    if (data[0] == 'q')
        read_asked(text, size - 1);
    if (data[0] == 'f')
        read_failure(text, size - 1);
    return 0;
}
