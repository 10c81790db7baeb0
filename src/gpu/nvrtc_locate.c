/* SPDX-License-Identifier: Apache-2.0
 *
 * Where NVRTC is, which build it is, and which of several is taken, without loading it.
 *
 * Workload: once a tune. Of a library the first and the last page are read, and all of it only where neither has a build-id.
 *
 * Only the two exact name patterns libnvrtc.so.MAJOR and libnvrtc-builtins.so.MAJOR.MINOR count.
 * Packages carry libnvrtc.alt beside them, which is built for a 4-byte long.
 */
#include "nvrtc.h"

#include "buf.h"
#include "driver.h"
#include "error.h"
#include "hash.h"
#include "own_place.h"
#include "places.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LIBRARY_BYTES = 1 << 30, FOUND_MAX = 16, PAGE = 4096, MINORS = 100 };

/* ---- identity --------------------------------------------------------------------------------*/
#if defined(__x86_64__)
enum { OWN_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OWN_MACHINE = EM_AARCH64 };
#else
#error "fa-tune runs on x86-64 and aarch64, where NVRTC exists"
#endif

/* A note is {u32 name size, u32 data size, u32 type, name, data}. */
static bool build_id_in(const unsigned char *page, ssize_t size, char ret_hex[FA_HASH_HEX])
{
    static const unsigned char owner[] = {4, 0, 0, 0}, type[] = "\3\0\0\0GNU";
    for (ssize_t at = 0; at + 20 <= size; at += 4) {
        const ssize_t id = page[at + 4];
        if (memcmp(page + at, owner, 4) != 0 || memcmp(page + at + 8, type, 8) != 0 || id < 8 ||
            id > 32 || at + 16 + id > size)
            continue;
        for (ssize_t i = 0; i < id; i++)
            snprintf(ret_hex + 2 * i, 3, "%02x", page[at + 16 + i]);
        return true;
    }
    return false;
}

/* The build-id in lower-case hex, or the hash of the whole file. Linkers put the build-id behind the headers; patchelf, which
 * made some wheels, moves it to the end and leaves the program header as it was. */
static int identify_file(const char *path, char ret_text[FA_HASH_HEX], fa_diag *diag)
{
    union {
        Elf64_Ehdr header;
        unsigned char byte[PAGE];
    } first = {.byte = {0}}, last;
    fa_buf bytes;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fa_fail(diag, FA_ENONVRTC, "cannot open %s: %s", path, strerror(errno));
    const ssize_t size = pread(fd, first.byte, PAGE, 0);
    const off_t end = lseek(fd, 0, SEEK_END);
    const ssize_t rest = pread(fd, last.byte, PAGE, end > PAGE ? (end - PAGE + 3) / 4 * 4 : 0);
    close(fd);
    if (size < (ssize_t)sizeof first.header || memcmp(first.header.e_ident, ELFMAG, SELFMAG) != 0)
        return fa_fail(diag, FA_ENONVRTC, "%s is not a shared library", path);
    if (first.header.e_ident[EI_CLASS] != ELFCLASS64 || first.header.e_machine != OWN_MACHINE)
        return fa_fail(diag, FA_ENONVRTC, "%s is built for another architecture (ELF machine %u)",
                       path, first.header.e_machine);
    if (build_id_in(first.byte, size, ret_text) || build_id_in(last.byte, rest, ret_text))
        return 0;
    if (fa_buf_read_file(&bytes, path, MAX_LIBRARY_BYTES) != 0)
        return fa_fail(diag, FA_ENONVRTC, "cannot read %s to tell its version", path);
    fa_hash_bytes(bytes.data, bytes.size, ret_text);
    fa_buf_free(&bytes);
    return 0;
}

static int identify(fa_nvrtc_location *nvrtc, fa_diag *diag)
{
    char library[FA_HASH_HEX], builtins[FA_HASH_HEX];
    int rc = identify_file(nvrtc->library, library, diag);
    if (rc == 0)
        rc = identify_file(nvrtc->builtins, builtins, diag);
    if (rc == 0)
        snprintf(nvrtc->identity, sizeof nvrtc->identity, "%d.%d %s %s", nvrtc->major, nvrtc->minor,
                 library, builtins);
    return rc;
}

/* ---- places ----------------------------------------------------------------------------------*/
/* All that there are, in the order in which they are looked for. */
struct found {
    int count;
    struct candidate {
        fa_nvrtc_location location;
        bool tried;
        char why[300]; /* it is passed over; "": it is not */
    } at[FOUND_MAX];
};

static bool regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, R_OK) == 0;
}

/* Adds what lies in a directory, which is made absolute: the newest first. With each its builtins: of its own version where it
 * is a link to libnvrtc.so.MAJOR.MINOR.PATCH, else the newest that there are. */
static void look_in(const char *directory, struct found *all)
{
    char absolute[PATH_MAX], target[PATH_MAX];
    if (realpath(directory, absolute) == NULL || strlen(absolute) > PATH_MAX - 64)
        return;
    for (int major = 13; major >= 12 && all->count < FOUND_MAX; major--) {
        fa_nvrtc_location *at = &all->at[all->count].location;
        int own = MINORS;
        bool known = false;
        snprintf(at->library, sizeof at->library, "%.4000s/libnvrtc.so.%d", absolute, major);
        for (int i = 0; i < all->count; i++)
            known = known || strcmp(all->at[i].location.library, at->library) == 0;
        if (known || !regular(at->library))
            continue;
        if (realpath(at->library, target) != NULL)
            sscanf(strrchr(target, '/'), "/libnvrtc.so.%*d.%2d", &own);
        at->major = major;
        for (int i = MINORS, there = 0; i >= 0 && !there; i--) {
            at->minor = i == MINORS ? own : i;
            snprintf(at->builtins, sizeof at->builtins, "%.4000s/libnvrtc-builtins.so.%d.%d",
                     absolute, major, at->minor);
            there = regular(at->builtins);
            all->count += there;
        }
    }
}

/* Where packages put the library below the directory that a person would name. */
static void look_below(const char *root, struct found *all)
{
    static const char *const layouts[] = {
        "",                          /* the directory itself */
        "/lib64",                    /* CUDA toolkit */
        "/lib",                      /* conda */
        "/targets/x86_64-linux/lib", /* CUDA toolkit, cross layout */
        "/targets/sbsa-linux/lib",
        "/nvidia/cu13/lib", /* Python wheels: site-packages */
        "/cu13/lib",
        "/nvidia/cuda_nvrtc/lib",
    };
    char directory[PATH_MAX];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts && root != NULL && root[0] != 0; i++)
        if (snprintf(directory, sizeof directory, "%s%s", root, layouts[i]) < PATH_MAX)
            look_in(directory, all);
}

static int newest_first(const void *a, const void *b)
{
    return strverscmp(*(char *const *)b, *(char *const *)a);
}

/* Where the administrator and the dynamic linker have it: the newest toolkit, the folders of the linker's configuration, and
 * those that it always knows. */
static void look_in_the_system(struct found *all)
{
    glob_t paths = {0};
    look_below("/usr/local/cuda", all); /* the administrator's choice */
    if (glob("/usr/local/cuda-*", GLOB_NOSORT, NULL, &paths) == 0)
        qsort(paths.gl_pathv, paths.gl_pathc, sizeof *paths.gl_pathv, newest_first);
    for (size_t i = 0; i < paths.gl_pathc; i++)
        look_below(paths.gl_pathv[i], all);
    globfree(&paths);
    glob("/etc/ld.so.conf.d/*.conf", 0, NULL, &paths);
    for (size_t i = 0; i < paths.gl_pathc; i++) {
        fa_buf text = {0};
        char *rest = NULL;
        if (fa_buf_read_file(&text, paths.gl_pathv[i], 1 << 16) == 0 && text.size > 0)
            for (char *line = strtok_r(text.data, "\n", &rest); line != NULL;
                 line = strtok_r(NULL, "\n", &rest))
                if (line[0] == '/')
                    look_in(line, all);
        fa_buf_free(&text);
    }
    globfree(&paths);
    look_in("/usr/lib64", all);
    look_in("/usr/lib", all);
}

/* ---- the choice ------------------------------------------------------------------------------*/
int fa_nvrtc_since(int sm)
{
    static const struct {
        int sm, since;
    } known[] = {{90, 1203},  {100, 1208}, {101, 1208}, {120, 1208}, {103, 1209},
                 {121, 1209}, {88, 1300},  {110, 1300}, {107, 1304}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].sm == sm)
            return known[i].since;
    return 0;
}

const char *fa_nvrtc_advice(void)
{
    const int driver = fa_driver_peek_version();
    return driver != 0 && driver < 13000
               ? "install the CUDA 12 toolkit, or the Python package nvidia-cuda-nvrtc-cu12 (pip install "
                 "'fa-tune[nvrtc12]' beside the wheel), or set FA_TUNE_NVRTC to the directory that holds it"
               : "install the CUDA toolkit, or the Python package nvidia-cuda-nvrtc (pip install "
                 "'fa-tune[nvrtc]' beside the wheel), or set FA_TUNE_NVRTC to the directory that holds it";
}

/* Whether a driver loads what it makes, and it knows the GPU; else says why. */
static bool suits(struct candidate *candidate, int driver, int since)
{
    const fa_nvrtc_location *nvrtc = &candidate->location;
    candidate->why[0] = 0;
    if (driver != 0 && driver / 1000 < nvrtc->major)
        snprintf(candidate->why, sizeof candidate->why, "the driver knows CUDA %d.%d only",
                 driver / 1000, driver % 1000 / 10);
    else if (100 * nvrtc->major + nvrtc->minor < since)
        snprintf(candidate->why, sizeof candidate->why, "the GPU needs NVRTC %d.%d or newer",
                 since / 100, since % 100);
    return candidate->why[0] == 0;
}

/* The first that suits and works, else the first that works. What says nothing of NVRTC ends the search. */
static int choose(struct found *all, const fa_nvrtc_judge *judge, const struct candidate **ret,
                  fa_diag *diag)
{
    bool newer = false;
    fa_diag own;
    int rc = 0;
    for (int i = 0; i < all->count; i++)
        newer = newer || all->at[i].location.major > 12;
    /* The driver is asked only where the answer may matter: every driver that is served loads what NVRTC 12 makes. */
    const int driver = newer ? fa_driver_peek_version() : 0;
    for (int i = 0; i < 2 * all->count; i++) {
        struct candidate *one = &all->at[i % all->count];
        if (one->tried || (i < all->count && !suits(one, driver, judge->since)))
            continue;
        one->tried = true;
        int is = identify(&one->location, &own);
        if (is == 0 && judge->try != NULL && all->count > 1)
            is = judge->try(judge->context, &one->location, &own);
        if (is == 0) {
            *ret = one;
            return 0;
        }
        snprintf(one->why, sizeof one->why, "%.299s", own.text);
        if (is == FA_ENOMEM || is == FA_ETIMEOUT)
            return fa_fail(diag, is, "%s", own.text);
        if (rc == 0) /* the first one's reason is told */
            rc = fa_fail(diag, is == FA_EWORKER ? is : FA_ENONVRTC, "%s", own.text);
    }
    return rc;
}

int fa_nvrtc_choose(const fa_nvrtc_judge *judge, fa_nvrtc_location *ret_location, fa_diag *diag)
{
    /* Beside this library, SITE/fa_tune/_native/libfa_tune.so: Python packages, and conda's PREFIX/lib. */
    static const char *const packages[] = {"/../../nvidia/cu13/lib", "/../../nvidia/cuda_nvrtc/lib",
                                           "/../../../.."};
    const struct candidate *chosen = NULL;
    const char *named = getenv("FA_TUNE_NVRTC");
    char here[PATH_MAX - 64], directory[PATH_MAX];
    int rc = fa_descriptors_check(diag); /* without one nothing would be found */
    if (rc != 0)
        return rc;
    struct found *all = calloc(1, sizeof *all);
    if (all == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory looking for NVRTC");
    if (named != NULL && named[0] != 0) { /* taken or refused, never silently replaced by another */
        look_below(named, all);
    } else {
        named = NULL;
        look_below(FA_TUNE_NVRTC_DIR, all);
        fa_own_directory(here, sizeof here);
        for (size_t i = 0; i < sizeof packages / sizeof *packages && here[0] != 0; i++) {
            snprintf(directory, sizeof directory, "%s%s", here, packages[i]);
            look_in(directory, all);
        }
        look_below(getenv("CUDA_HOME"), all);
        look_below(getenv("CUDA_PATH"), all);
        look_in_the_system(all);
    }
    if (all->count > 0)
        rc = choose(all, judge, &chosen, diag);
    else if (named != NULL)
        rc = fa_fail(diag, FA_ENONVRTC,
                     "FA_TUNE_NVRTC names %s, which holds no libnvrtc.so.13 or .12 with its "
                     "libnvrtc-builtins.so: name the directory of both",
                     named);
    else
        rc = fa_fail(diag, FA_ENONVRTC,
                     "NVRTC (libnvrtc.so.13 or .12 with its builtins) was not found: %s",
                     fa_nvrtc_advice());
    if (chosen != NULL)
        *ret_location = chosen->location;
    for (int i = 0; i < all->count && judge->passed != NULL; i++)
        if (&all->at[i] != chosen && all->at[i].why[0] != 0)
            fa_buf_printf(judge->passed, "%s: %s\n", all->at[i].location.library, all->at[i].why);
    free(all);
    return rc;
}

int fa_nvrtc_locate(fa_nvrtc_location *ret_location, fa_diag *diag)
{
    return fa_nvrtc_choose(&(fa_nvrtc_judge){.since = 0}, ret_location, diag);
}
