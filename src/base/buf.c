/* SPDX-License-Identifier: Apache-2.0 */
#include "buf.h"

#include "error.h"
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool reserve(fa_buf *buf, size_t more)
{
    if (buf->failed || more > (size_t)1 << 40) {
        buf->failed = true;
        return false;
    }
    size_t need = buf->size + more + 1;
    if (need <= buf->capacity)
        return true;
    size_t capacity = buf->capacity * 2 > need ? buf->capacity * 2 : need + 64;
    char *data = realloc(buf->data, capacity);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void fa_buf_append(fa_buf *buf, const void *bytes, size_t size)
{
    if (!reserve(buf, size))
        return;
    if (size != 0)
        memcpy(buf->data + buf->size, bytes, size);
    buf->size += size;
    buf->data[buf->size] = 0;
}

void fa_buf_text(fa_buf *buf, const char *text)
{
    fa_buf_append(buf, text, strlen(text));
}

void fa_buf_printf(fa_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const size_t room = buf->failed ? 0 : buf->capacity - buf->size; /* it mostly fits */
    int n = vsnprintf(room > 0 ? buf->data + buf->size : NULL, room, format, args);
    va_end(args);
    if (n < 0)
        buf->failed = true;
    else if (reserve(buf, (size_t)n)) {
        if ((size_t)n >= room)
            vsnprintf(buf->data + buf->size, (size_t)n + 1, format, again);
        buf->size += (size_t)n;
    }
    va_end(again);
}

void fa_digits(double number, char ret_text[FA_DIGITS_MAX])
{
    char text[FA_DIGITS_MAX];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    /* the locale's decimal point, of whatever bytes */
    int whole = (int)strspn(text, "-0123456789"), point = (int)strcspn(text + whole, "0123456789e");
    snprintf(ret_text, FA_DIGITS_MAX, "%.*s%s%s", whole, text, point > 0 ? "." : "",
             text + whole + point);
}

bool fa_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

void fa_buf_clear(fa_buf *buf)
{
    buf->size = 0;
    buf->failed = false;
    if (buf->data != NULL)
        buf->data[0] = 0;
}

void fa_buf_free(fa_buf *buf)
{
    if (buf == NULL)
        return;
    free(buf->data);
    *buf = (fa_buf){0};
}

int fa_buf_read_fd(fa_buf *buf, int fd, size_t limit)
{
    struct stat st;
    char chunk[16384];
    *buf = (fa_buf){0};
    int rc = fstat(fd, &st) != 0                                     ? FA_EIO
             : !S_ISREG(st.st_mode) || (uintmax_t)st.st_size > limit ? FA_EINVAL
                                                                     : 0;
    for (ssize_t n = 1; rc == 0 && n != 0;) {
        n = read(fd, chunk, sizeof chunk);
        if (n < 0)
            rc = errno == EINTR ? 0 : FA_EIO;
        else if (buf->size + (size_t)n > limit)
            rc = FA_EINVAL;
        else /* the end, too: an empty file is an empty string, not NULL */
            fa_buf_append(buf, chunk, (size_t)n);
    }
    if (rc == 0 && buf->failed)
        rc = FA_ENOMEM;
    if (rc != 0)
        fa_buf_free(buf);
    return rc;
}

int fa_buf_read_file(fa_buf *buf, const char *path, size_t limit)
{
    *buf = (fa_buf){0};
    /* O_NONBLOCK: opening a FIFO must not hang. */
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? FA_ENOTFOUND : FA_EIO;
    return fa_buf_read_fd(buf, fd, limit);
}

int fa_input_read(fa_buf *buf, const char *path, size_t limit, fa_diag *diag)
{
    struct stat st;
    errno = 0;
    int rc = fa_buf_read_file(buf, path, limit), error = errno;
    if (rc == 0 && buf->size >= 3 && memcmp(buf->data, "\xef\xbb\xbf", 3) == 0)
        memset(buf->data, ' ', 3); /* a byte-order mark */
    if (rc == 0)
        return 0;
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, rc, "there is no such file");
    if (rc != FA_EINVAL)
        return fa_fail(diag, rc, "it cannot be read: %s",
                       rc == FA_EIO && error != 0 ? strerror(error) : fa_error_text(rc));
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fa_fail(diag, rc, "it is a folder: name a file in it");
    return fa_fail(diag, rc, "it is no regular file of at most %zu %s",
                   limit >> (limit < 1 << 20 ? 10 : 20), limit < 1 << 20 ? "KiB" : "MiB");
}

int fa_read_at(int fd, void *ret_bytes, size_t size, uint64_t at)
{
    errno = 0;
    for (char *to = ret_bytes; size > 0;) {
        ssize_t n = at <= INT64_MAX ? pread(fd, to, size, (off_t)at) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return FA_EIO;
        to += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

int fa_write_all(int fd, const void *bytes, size_t size)
{
    for (const char *from = bytes; size > 0;) {
        errno = EIO; /* where nothing is written for no reason */
        ssize_t n = write(fd, from, size);
        if (n <= 0 && errno != EINTR)
            return FA_EIO;
        if (n > 0) {
            from += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

int fa_append(void *ret_items, size_t *count, size_t *capacity, const void *item, size_t size)
{
    char *items;
    memcpy(&items, ret_items, sizeof items);
    if (*count == *capacity) {
        const size_t wanted = *capacity == 0 ? 32 : *capacity * 2;
        items = reallocarray(items, wanted, size);
        if (items == NULL)
            return FA_ENOMEM;
        *capacity = wanted;
        memcpy(ret_items, &items, sizeof items);
    }
    memcpy(items + (*count)++ * size, item, size);
    return 0;
}

void fa_directory_of(const char *path, char ret_directory[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(ret_directory, PATH_MAX, "%.*s",
             slash == NULL || slash == path ? 1 : (int)(slash - path), slash == NULL ? "." : path);
}

/* Not mkostemp(), which leaves the umask out. */
static int open_new(fa_buf *path, const char *wanted, unsigned mode)
{
    static _Atomic unsigned count;
    int fd;
    do {
        fa_buf_clear(path);
        fa_buf_printf(path, "%s.new-%ld-%u", wanted, (long)getpid(), count++);
        errno = ENOMEM;
        fd = path->failed ? -1
                          : open(path->data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
    } while (fd < 0 && errno == EEXIST); /* of a process that was killed and had our number */
    return fd;
}

int fa_replace_file(const char *path, const void *bytes, size_t size, unsigned mode)
{
    FA_ENDS(fa_buf_free) fa_buf temporary = {0};
    char directory[PATH_MAX];
    int fd = open_new(&temporary, path, mode);
    int failed = fd < 0 ? errno : 0;
    if (fd >= 0 && (fa_write_all(fd, bytes, size) != 0 || fsync(fd) != 0))
        failed = errno;
    if (fd >= 0 && close(fd) != 0 && failed == 0)
        failed = errno;
    if (failed == 0 && rename(temporary.data, path) != 0)
        failed = errno;
    if (failed != 0 && fd >= 0)
        unlink(temporary.data);
    /* A rename survives a power cut once its directory is synced; some file systems cannot sync a directory. */
    fa_directory_of(path, directory);
    fd = failed == 0 ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    return failed;
}

/* ---- arrays that a call returns --------------------------------------------------------------*/
void fa_list_add(fa_list *list, const void *record, size_t size)
{
    fa_buf_append(&list->records, record, size);
    list->count++;
}

/* In a list a pointer is a place in `kept`, from 1 on. */
const void *fa_list_keep(fa_list *list, const void *bytes, size_t size)
{
    static const char zeros[_Alignof(max_align_t)];
    if (bytes == NULL)
        return NULL;
    const size_t at = list->kept.size;
    fa_buf_append(&list->kept, bytes, size);
    fa_buf_append(&list->kept, zeros, sizeof zeros - size % sizeof zeros);
    return (const void *)(uintptr_t)(at + 1);
}

const char *fa_list_keep_text(fa_list *list, const char *text)
{
    return fa_list_keep(list, text, text != NULL ? strlen(text) + 1 : 0);
}

int fa_list_end(fa_list *list, int rc, const size_t *pointers, void *ret_rows, size_t *ret_count,
                fa_diag *diag)
{
    const size_t count = list->count, size = count > 0 ? list->records.size / count : 0;
    const size_t gap = -list->records.size % _Alignof(max_align_t);
    char *rows = NULL;
    if (rc == 0 && count > 0 && !list->records.failed && !list->kept.failed)
        rows = malloc(list->records.size + gap + list->kept.size);
    if (rc == 0 && count > 0 && rows == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a list of %zu", count);
    if (rows != NULL) {
        char *kept = rows + list->records.size + gap;
        memcpy(rows, list->records.data, list->records.size);
        if (list->kept.size > 0)
            memcpy(kept, list->kept.data, list->kept.size);
        for (size_t i = 0; i < count; i++)
            for (const size_t *at = pointers; at != NULL && *at != SIZE_MAX; at++) {
                uintptr_t place;
                memcpy(&place, rows + i * size + *at, sizeof place);
                const char *pointer = place != 0 ? kept + place - 1 : NULL;
                memcpy(rows + i * size + *at, &pointer, sizeof pointer);
            }
    }
    fa_buf_free(&list->records);
    fa_buf_free(&list->kept);
    list->count = 0;
    if (rc == 0) {
        memcpy(ret_rows, &rows, sizeof rows);
        *ret_count = count;
    }
    return rc;
}

/* ---- numbers and times ----------------------------------------------------------------------*/
const char *fa_commas(int64_t number, char buffer[FA_COMMAS_MAX])
{
    char digits[24];
    uint64_t magnitude = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    int size = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    char *out = buffer;
    if (number < 0)
        *out++ = '-';
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = 0;
    return buffer;
}

void fa_words_grouped(fa_buf *out, int64_t value)
{
    char buffer[FA_COMMAS_MAX];
    fa_buf_text(out, fa_commas(value, buffer));
}

/* With so many digits after the point; from 10,000 on whole, in groups of three. */
static void put_us(fa_buf *out, double us, int digits)
{
    if (us >= 9999.5 && us < 1e15)
        fa_words_grouped(out, (int64_t)(us + 0.5));
    else
        fa_buf_printf(out, "%.*f", digits, us);
    fa_buf_text(out, " µs");
}

void fa_words_us(fa_buf *out, double us)
{
    put_us(out, us, us < 9.995 ? 2 : us < 999.95 ? 1 : 0);
}

void fa_words_about(fa_buf *out, double us)
{
    fa_buf_text(out, "~");
    put_us(out, us, us < 99.95 ? 1 : 0);
}

static void put_time(fa_buf *out, int64_t unix_time, bool utc, const char *format)
{
    time_t seconds = (time_t)unix_time;
    struct tm tm;
    char text[40];
    if ((utc ? gmtime_r(&seconds, &tm) : localtime_r(&seconds, &tm)) == NULL ||
        strftime(text, sizeof text, format, &tm) == 0)
        snprintf(text, sizeof text, "time %" PRId64, unix_time);
    fa_buf_text(out, text);
}

void fa_words_time(fa_buf *out, int64_t unix_time)
{
    put_time(out, unix_time, false, "%Y-%m-%d %H:%M");
}

void fa_words_day(fa_buf *out, int64_t unix_time)
{
    put_time(out, unix_time, true, "%Y-%m-%d");
}

/* ---- gates ----------------------------------------------------------------------------------*/
const struct fa_gate fa_gates[FA_GATES] = {
    {FA_STATUS_CONSTRAINT, "impossible"},
    {FA_STATUS_BUDGET, "do not fit the shared memory"},
    {FA_STATUS_REGISTERS, "do not fit the registers, by an estimate"},
    {FA_STATUS_DOES_NOT_PAY, "possible, but known to be slower"},
    {FA_STATUS_PENDING, "fit the budget and were not tried yet"},
    {FA_STATUS_COMPILE_TIMEOUT, "compile too long"},
    {FA_STATUS_COMPILE_FAILED, "do not compile"},
    {FA_STATUS_CUBIN, "contradict their budget"},
    {FA_STATUS_SPILLS, "spill registers to local memory"},
    {FA_STATUS_LOAD_FAILED, "did not load"},
    {FA_STATUS_LAUNCH_FAILED, "did not launch"},
    {FA_STATUS_OUT_OF_MEMORY, "did not fit the device's memory"},
    {FA_STATUS_TIMEOUT, "ran past their time limit"},
    {FA_STATUS_CRASHED, "took their worker down"},
    {FA_STATUS_WRONG, "gave wrong results"},
    {FA_STATUS_OTHER_BITS, "gave right results in other bits"},
    {FA_STATUS_COMPILED, "compiled clean, not timed"},
    {FA_STATUS_MEASURED, "proved and timed"},
};

/* Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours,
 * each of cost 1. Names here are short; the time is their lengths' product. */
enum { LONGEST = 63 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return n + m;
    /* cost[i][j]: from the first i of a to the first j of b */
    size_t cost[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            size_t best = smaller(cost[i - 1][j], cost[i][j - 1]) + 1;
            best = smaller(best, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = smaller(best, cost[i - 2][j - 2] + 1);
            cost[i][j] = best;
        }
    }
    return cost[n][m];
}

/* One starts with the other, "--sequence" for "--seq", "--eff" for "--effort", or ends with its words: "--is-causal". */
static int extends(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), least = smaller(n, m);
    const char *longer = n > m ? a : b, *words = n > m ? b : a;
    words += strspn(words, "-");
    const char *end = longer + strlen(longer) - smaller(strlen(words), strlen(longer));
    return (least >= 3 && strspn(a, "-") < least && strncmp(a, b, least) == 0) ||
           (strlen(words) >= 3 && end > longer && strchr("-_", end[-1]) != NULL &&
            strcmp(end, words) == 0);
}

const char *fa_nearest(const char *typed, const char *const *names)
{
    const char *nearest = NULL;
    size_t size = strlen(typed), least = size == 3 ? 2 : 3 < size / 2 ? 3 : size / 2;
    least *= 2; /* in halves; farther is not near */
    for (; *names != NULL; names++) {
        size_t d = strcasecmp(typed, *names) == 0 ? 0 : 2 * distance(typed, *names);
        if (d > 3 && extends(typed, *names))
            d = 3; /* between one slip and two */
        if (d < least) {
            least = d;
            nearest = *names;
        }
    }
    return nearest;
}

/* ---- columns ---------------------------------------------------------------------------------*/
size_t fa_terminal_columns(int descriptor)
{
    struct winsize size;
    bool known =
        isatty(descriptor) == 1 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col : 0;
}

size_t fa_columns_of(const char *text, size_t size)
{
    size_t columns = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\033')
            while (i < size && text[i] != 'm')
                i++;
        else
            columns += ((unsigned char)text[i] & 0xc0) != 0x80; /* continuation bytes take none */
    }
    return columns;
}

void fa_wrap(fa_buf *out, const char *text, size_t size, size_t column, size_t indent)
{
    const char *end = text + size;
    bool first = true;
    while (text < end) {
        size_t spaces = strspn(text, " "), left = (size_t)(end - text);
        spaces = spaces < left ? spaces : left;
        text += spaces;
        const char *space = memchr(text, ' ', (size_t)(end - text));
        size_t length = (size_t)((space != NULL ? space : end) - text);
        size_t columns = fa_columns_of(text, length);
        if (!first && length > 0 && column + spaces + columns > 80) {
            fa_buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else {
            fa_buf_printf(out, "%*s", (int)spaces, "");
            column += spaces;
        }
        fa_buf_append(out, text, length);
        column += columns;
        text += length;
        first = false;
    }
}

/* ---- decimals and durations -------------------------------------------------------------------*/
static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double fa_strtod(const char *text, char **ret_end)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale != (locale_t)0 ? strtod_l(text, ret_end, c_locale) : strtod(text, ret_end);
}

bool fa_decimal_parse(const char *text, size_t length, double high, double *ret)
{
    char copy[32], *end;
    if (length == 0 || length >= sizeof copy || strspn(text, "0123456789.") < length)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    double value = fa_strtod(copy, &end); /* stops at a second point */
    if (end != copy + length || !(value >= 0 && value <= high))
        return false;
    *ret = value;
    return true;
}

bool fa_duration_parse(const char *text, double high, double *ret_seconds)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    const size_t length = strlen(text);
    const char *unit = length > 0 ? strchr(units, text[length - 1]) : NULL;
    const double scale = unit != NULL ? seconds[unit - units] : 1;
    double value = 0;
    if (!fa_decimal_parse(text, length - (unit != NULL), high / scale, &value) || !(value > 0))
        return false;
    *ret_seconds = value * scale;
    return true;
}

void fa_words_or(fa_buf *out, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++)
        fa_buf_printf(out, "%s%s", i == 0 ? "" : words[i + 1] != NULL ? ", " : " or ", words[i]);
}

/* ---- where this library or program itself lies, and files that are believed -------------------*/
/* The kernel's table of mappings tells the file whose code runs. The dynamic linker only repeats the name that it
 * was given, which is "fa-tune" for a program found through PATH, and relative for a library opened by a
 * relative name: resolved against the current folder it may be anybody's file. */
void fa_own_directory(char *ret_path, size_t size)
{
    const uintptr_t here = (uintptr_t)&fa_own_directory;
    char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "re");
    ret_path[0] = 0;
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        uintptr_t begin, end;
        int path = 0; /* "55e0-55f0 r-xp 00001000 fe:01 1234   /usr/bin/fa-tune" */
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &begin, &end, &path) < 2 ||
            here < begin || here >= end)
            continue;
        if (line[path] == '/') {
            size_t length = (size_t)(strrchr(line + path, '/') - (line + path));
            length = length > 0 ? length : 1; /* the root's slash is its name */
            if (length < size)
                snprintf(ret_path, size, "%.*s", (int)length, line + path);
        }
        break;
    }
    if (maps != NULL)
        fclose(maps);
}

void fa_own_file(const char *name, char *ret_path, size_t size)
{
    static const char *const places[] = {"%s/%s", "%s/../%s", "%s/../libexec/fa-tune/%s",
                                         "%s/../../libexec/fa-tune/%s"}; /* of lib/MULTIARCH */
    char here[PATH_MAX];
    fa_own_directory(here, sizeof here);
    for (size_t i = 0; i < sizeof places / sizeof *places && here[0] != 0; i++) {
        int length = snprintf(ret_path, size, places[i], here, name);
        if (length > 0 && (size_t)length < size && access(ret_path, R_OK) == 0)
            return;
    }
    snprintf(ret_path, size, "%s/%s", FA_TUNE_LIBEXECDIR, name);
}

int fa_own_config(const char *file, char *ret_path, size_t size)
{
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    int n;
    if (config != NULL && config[0] == '/')
        n = snprintf(ret_path, size, "%s/fa-tune%s", config, file);
    else if (home != NULL && home[0] == '/')
        n = snprintf(ret_path, size, "%s/.config/fa-tune%s", home, file);
    else
        return FA_ENOTFOUND;
    return n > 0 && (size_t)n < size ? 0 : FA_EINVAL;
}

int fa_owned_check(const struct stat *st, const char *path, const char *what, const char *which,
                   fa_diag *diag)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return fa_fail(diag, FA_ESTORE, "%s %s: %s belongs to user %ld, neither to you nor to root",
                       what, path, which, (long)st->st_uid);
    if ((st->st_mode & 022) != 0)
        return fa_fail(diag, FA_ESTORE,
                       "%s %s: other users can write %s (mode %04o); chmod go-w it if it is yours "
                       "alone, or name another file",
                       what, path, which, (unsigned)(st->st_mode & 07777));
    return 0;
}

int fa_owned_open(const char *path, const char *what, int *ret_fd, fa_diag *diag)
{
    struct stat st, folder;
    char directory[PATH_MAX];
    fa_directory_of(path, directory);
    /* O_NONBLOCK: opening a FIFO must not hang. */
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    int rc = 0;
    if (fd < 0)
        return fa_fail(diag, errno == ENOENT || errno == ENOTDIR ? FA_ENOTFOUND : FA_EIO,
                       "%s %s: %s", what, path,
                       errno == ELOOP ? "is a symbolic link" : strerror(errno));
    if (fstat(fd, &st) != 0 || stat(directory, &folder) != 0)
        rc = fa_fail(diag, FA_EIO, "%s %s: %s", what, path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = fa_fail(diag, FA_ESTORE, "%s %s: not a regular file", what, path);
    if (rc == 0)
        rc = fa_owned_check(&st, path, what, "the file", diag);
    if (rc == 0)
        rc = fa_owned_check(&folder, path, what, "its directory", diag);
    if (rc == 0)
        *ret_fd = fd, fd = -1;
    return rc;
}

int fa_own_token(const char *path, unsigned refused, size_t least, size_t room, char *ret_token,
                 fa_diag *diag)
{
    struct stat st;
    FA_ENDS(fa_buf_free) fa_buf text = {0};
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int rc = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || fa_buf_read_fd(&text, fd, 4096) != 0)
        rc = fa_fail(diag, FA_EIO, "the token file %s cannot be read", path);
    else if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & refused) != 0)
        rc = fa_fail(diag, FA_EUNTRUSTED,
                     "the token file %s is another user's, or others can %s it: chmod 600 it", path,
                     (refused & 044) != 0 ? "read" : "write to");
    size_t size = text.size, plain = 0;
    while (size > 0 && strchr("\r\n \t", text.data[size - 1]) != NULL)
        size--;
    while (plain < size && text.data[plain] > ' ' && text.data[plain] <= '~')
        plain++;
    if (rc == 0 && (plain < size || size < least || size >= room))
        rc = fa_fail(diag, FA_EINVAL,
                     "the token file %s must hold one word of %zu to %zu printable bytes", path,
                     least, room - 1);
    if (rc == 0)
        snprintf(ret_token, room, "%.*s", (int)size, text.data);
    if (text.data != NULL)
        explicit_bzero(text.data, text.size);
    return rc;
}
