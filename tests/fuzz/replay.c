/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target over the files of a directory, each as it is and then with changes that are
 * the same in every run: bytes flipped, cut off, taken twice, put in from another file. For builds
 * without libFuzzer; it covers less, but it runs everywhere. Prints TAP: one test a target.
 * A file must be taken by its reader as it is, unless its name begins with "not-".
 *
 *   replay_NAME DIRECTORY [CHANGES]
 */
#include "fuzz.h"

#include <dirent.h>

enum { FILES_MAX = 256, BYTES_MAX = 1 << 16 };

static struct {
    char name[256];
    uint8_t *bytes;
    size_t size;
} file[FILES_MAX];
static int files;
static uint64_t state = 0x9e3779b97f4a7c15u;

static size_t below(size_t bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound == 0 ? 0 : (size_t)(state % bound);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b); /* the name comes first */
}

static int read_files(const char *directory)
{
    char path[1024];
    DIR *stream = opendir(directory);
    struct dirent *entry;
    while (stream != NULL && files < FILES_MAX && (entry = readdir(stream)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        FILE *in = entry->d_name[0] != '.' ? fopen(path, "rb") : NULL;
        if (in == NULL)
            continue;
        snprintf(file[files].name, sizeof file[files].name, "%s", entry->d_name);
        file[files].bytes = malloc(BYTES_MAX);
        if (file[files].bytes != NULL)
            file[files].size = fread(file[files].bytes, 1, BYTES_MAX, in);
        files += file[files].bytes != NULL;
        fclose(in);
    }
    if (stream != NULL)
        closedir(stream);
    qsort(file, (size_t)files, sizeof *file, by_name);
    return files;
}

/* In a block of exactly that size, so that a sanitizer sees a read behind its end. */
static void run(const uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size + (size == 0));
    if (exact == NULL)
        return;
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* One change; returns the new size. */
static size_t change(uint8_t *bytes, size_t size)
{
    static const char *const words[] = {"-1",      "1e999",   "null", "4294967296",
                                        "\\ud800", "{\"a\":", "\xff", "99999999999999999999",
                                        "[[[[",    "\"\"",    "\r\n", "NaN"};
    size_t at = below(size), other, count;
    switch (size < 2 ? 3 : below(6)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << below(8));
        return size;
    case 1:
        bytes[at] = (uint8_t)below(256);
        return size;
    case 2: /* cut off */
        return at;
    case 3: { /* a word put over it */
        const char *word = words[below(sizeof words / sizeof *words)];
        count = strlen(word);
        if (at + count > BYTES_MAX)
            return size;
        memcpy(bytes + at, word, count);
        return at + count > size ? at + count : size;
    }
    case 4: /* a piece taken out */
        count = below(size - at) + (at < size);
        memmove(bytes + at, bytes + at + count, size - at - count);
        return size - count;
    default: /* a piece of another put in */
        other = below((size_t)files);
        count = below(file[other].size + 1);
        if (size + count > BYTES_MAX)
            return size;
        memmove(bytes + at + count, bytes + at, size - at);
        memcpy(bytes + at, file[other].bytes + below(file[other].size - count + 1), count);
        return size + count;
    }
}

int main(int argc, char **argv)
{
    static uint8_t bytes[BYTES_MAX];
    long changes = argc > 2 ? atol(argv[2]) : 1000;
    if (argc < 2 || read_files(argv[1]) == 0) {
        printf("1..1\nnot ok 1 - there is no corpus in %s\n", argc > 1 ? argv[1] : "nothing");
        return 1;
    }
    run((const uint8_t *)"", 0);
    for (int i = 0; i < files; i++) {
        long before = fuzz_taken;
        run(file[i].bytes, file[i].size);
        if ((fuzz_taken > before) != (strncmp(file[i].name, "not-", 4) != 0)) {
            printf("1..1\nnot ok 1 - %s was %s\n", file[i].name,
                   fuzz_taken > before ? "taken" : "refused");
            return 1;
        }
    }
    for (long i = 0; i < changes; i++) {
        size_t from = below((size_t)files), size = file[from].size;
        memcpy(bytes, file[from].bytes, size);
        for (size_t n = below(4) + 1; n > 0; n--)
            size = change(bytes, size);
        run(bytes, size);
    }
    printf("1..1\nok 1 - %d files and %ld changes of them do no harm\n", files, changes);
    return 0;
}
