/* SPDX-License-Identifier: Apache-2.0
 *
 * Where NVRTC is and which build it is, without loading it.
 *
 * Workload: once per process. Files are opened read-only; only ELF headers, notes and the dynamic
 * linker's cache are read, and each of them may be damaged: every offset is checked.
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

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LIBRARY_BYTES = 1 << 30, MAX_CACHE_BYTES = 64 << 20 };

/* ---- the build-id of a library, without loading it -------------------------------------------*/
/* Reads ELF notes with pread: the libraries are 100 MB, the note is 36 bytes near the start.
 *
 * Invariants: sizes out of the file bound nothing but a read into a fixed buffer; a damaged file
 * gives a sentence or "no build-id", never a read outside that buffer. */
enum { MAX_PROGRAM_HEADERS = 256, MIN_ID = 8, MAX_ID = 32 };

#if defined(__x86_64__)
enum { OWN_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OWN_MACHINE = EM_AARCH64 };
#else
#error "fa-tune runs on x86-64 and aarch64, where NVRTC exists"
#endif

/* Walks a note segment: {u32 name size, u32 data size, u32 type, name, data}, padded to 4. */
static bool build_id_in(const unsigned char *notes, size_t size, char ret_hex[FA_HASH_HEX])
{
    for (size_t at = 0; size - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        at += sizeof note;
        uint64_t name = ((uint64_t)note.n_namesz + 3) & ~(uint64_t)3;
        uint64_t data = ((uint64_t)note.n_descsz + 3) & ~(uint64_t)3;
        if (name + data > size - at)
            return false;
        const unsigned char *id = notes + at + name;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + at, "GNU", 4) == 0 && note.n_descsz >= MIN_ID &&
            note.n_descsz <= MAX_ID) {
            for (size_t i = 0; i < note.n_descsz; i++)
                snprintf(ret_hex + 2 * i, 3, "%02x", id[i]);
            return true;
        }
        at += (size_t)(name + data);
    }
    return false;
}

static int find_build_id(int fd, const char *path, char ret_hex[FA_HASH_HEX], fa_diag *diag)
{
    Elf64_Ehdr header;
    if (fa_read_at(fd, &header, sizeof header, 0) != 0 ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return fa_fail(diag, FA_ENONVRTC, "%s is not a shared library", path);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != OWN_MACHINE)
        return fa_fail(diag, FA_ENONVRTC, "%s is built for another architecture (ELF machine %u)",
                       path, header.e_machine);
    if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > MAX_PROGRAM_HEADERS)
        return FA_ENOTFOUND;
    for (uint64_t i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        unsigned char notes[4096];
        if (header.e_phoff > INT64_MAX / 2 ||
            fa_read_at(fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment) != 0)
            return FA_ENOTFOUND;
        if (segment.p_type == PT_NOTE && segment.p_filesz <= sizeof notes &&
            fa_read_at(fd, notes, (size_t)segment.p_filesz, segment.p_offset) == 0 &&
            build_id_in(notes, (size_t)segment.p_filesz, ret_hex))
            return 0;
    }
    return FA_ENOTFOUND;
}

/* As lower-case hex. FA_ENOTFOUND: a good ELF file without a build-id of 8 to 32 bytes (no sentence); FA_ENONVRTC:
 * unreadable, not ELF, or for another architecture. */
static int elf_build_id(const char *path, char ret_hex[FA_HASH_HEX], fa_diag *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fa_fail(diag, FA_ENONVRTC, "cannot open %s: %s", path, strerror(errno));
    int rc = find_build_id(fd, path, ret_hex, diag);
    close(fd);
    return rc;
}

/* ---- places ---------------------------------------------------------------------------------*/
/* Newest first. */
static const int majors[] = {13, 12};
enum { NEWEST = 13 };

/* What is looked for, and what was found. */
typedef struct search {
    int newest; /* major version */
    fa_nvrtc_location found;
} search;

/* Where packages put the library below the directory that a person would name. */
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

/* "libnvrtc-builtins.so.13.0" -> 13, 0; false for any other name. */
static bool parse_builtins(const char *name, int *ret_major, int *ret_minor)
{
    int end = 0;
    return sscanf(name, "libnvrtc-builtins.so.%2d.%2d%n", ret_major, ret_minor, &end) == 2 &&
           name[end] == 0 && *ret_major >= 0 && *ret_minor >= 0 && strchr(name, '+') == NULL;
}

/* The minor version when the link libnvrtc.so.MAJOR leads to libnvrtc.so.MAJOR.MINOR.PATCH;
 * -1 otherwise. */
static int linked_minor(const char *library, int major)
{
    char target[PATH_MAX];
    if (realpath(library, target) == NULL)
        return -1;
    const char *name = strrchr(target, '/');
    int file_major, minor;
    if (name == NULL || sscanf(name, "/libnvrtc.so.%2d.%2d", &file_major, &minor) != 2)
        return -1;
    return file_major == major ? minor : -1;
}

/* The builtins of the library: those of its own version where its name tells it, else the newest
 * of the same major. */
static bool find_builtins(const char *directory, int major, int wanted_minor, int *ret_minor)
{
    DIR *dir = opendir(directory);
    if (dir == NULL)
        return false;
    int best = -1;
    bool exact = false;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        int file_major, minor;
        if (!parse_builtins(entry->d_name, &file_major, &minor) || file_major != major)
            continue;
        exact = exact || minor == wanted_minor;
        best = minor > best ? minor : best;
    }
    closedir(dir);
    if (exact)
        best = wanted_minor;
    if (best < 0)
        return false;
    *ret_minor = best;
    return true;
}

static bool regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, R_OK) == 0;
}

/* Looks in one directory, which is made absolute. */
static bool look_in(const char *directory, search *ret)
{
    char absolute[PATH_MAX];
    if (realpath(directory, absolute) == NULL)
        return false;
    for (size_t i = 0; i < sizeof majors / sizeof *majors; i++) {
        fa_nvrtc_location found = {.major = majors[i]};
        if (majors[i] > ret->newest)
            continue;
        int n = snprintf(found.library, sizeof found.library, "%s/libnvrtc.so.%d", absolute,
                         found.major);
        if (n < 0 || (size_t)n >= sizeof found.library || !regular(found.library))
            continue;
        if (!find_builtins(absolute, found.major, linked_minor(found.library, found.major),
                           &found.minor))
            continue;
        n = snprintf(found.builtins, sizeof found.builtins, "%s/libnvrtc-builtins.so.%d.%d",
                     absolute, found.major, found.minor);
        if (n < 0 || (size_t)n >= sizeof found.builtins || !regular(found.builtins))
            continue;
        ret->found = found;
        return true;
    }
    return false;
}

static bool look_below(const char *root, search *ret)
{
    if (root == NULL || root[0] == 0)
        return false;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char directory[PATH_MAX];
        int n = snprintf(directory, sizeof directory, "%s%s", root, layouts[i]);
        if (n > 0 && (size_t)n < sizeof directory && look_in(directory, ret))
            return true;
    }
    return false;
}

/* Python packages beside the one that this library is in: SITE/fa_tune/_native/libfa_tune.so. */
static bool look_in_site_packages(search *ret)
{
    static const char *const packages[] = {"%s/../../nvidia/cu13/lib",
                                           "%s/../../nvidia/cuda_nvrtc/lib"};
    char here[PATH_MAX - 64], directory[PATH_MAX];
    fa_own_directory(here, sizeof here);
    for (size_t i = 0; i < sizeof packages / sizeof *packages && here[0] != 0; i++) {
        snprintf(directory, sizeof directory, packages[i], here);
        if (look_in(directory, ret))
            return true;
    }
    return false;
}

static int is_cuda_folder(const struct dirent *entry)
{
    return strncmp(entry->d_name, "cuda", 4) == 0;
}

/* /usr/local/cuda first (the administrator's choice), then cuda-13.1, cuda-13.0, … */
static bool look_in_usr_local(search *ret)
{
    if (look_below("/usr/local/cuda", ret))
        return true;
    struct dirent **entries;
    int count = scandir("/usr/local", &entries, is_cuda_folder, versionsort);
    bool found = false;
    for (int i = count - 1; i >= 0; i--) {
        char directory[PATH_MAX];
        snprintf(directory, sizeof directory, "/usr/local/%s", entries[i]->d_name);
        found = found || look_below(directory, ret);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return found;
}

/* The dynamic linker's cache, format 1.1 of glibc (dl-cache.h): a header of 48 bytes with the
 * entry count at 20, entries of 24 bytes {i32 flags, u32 key, u32 value, u32 os, u64 hwcap}, all
 * offsets from the start of the file. An older format may precede it; then the header is found by
 * its magic. Entries for another architecture are refused by elf_build_id. */
static bool look_in_cache(search *ret)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    fa_buf cache;
    if (fa_buf_read_file(&cache, "/etc/ld.so.cache", MAX_CACHE_BYTES) != 0)
        return false;
    bool found = false;
    const char *start =
        cache.size == 0 ? NULL : memmem(cache.data, cache.size, magic, sizeof magic - 1);
    size_t size = start == NULL ? 0 : cache.size - (size_t)(start - cache.data);
    uint32_t count = 0;
    if (size >= 48)
        memcpy(&count, start + 20, sizeof count);
    for (size_t m = 0; m < sizeof majors / sizeof *majors && !found; m++) {
        char wanted[32];
        if (majors[m] > ret->newest)
            continue;
        snprintf(wanted, sizeof wanted, "libnvrtc.so.%d", majors[m]);
        for (size_t i = 0; i < count && size >= 48 + (i + 1) * 24 && !found; i++) {
            uint32_t key, value;
            memcpy(&key, start + 48 + i * 24 + 4, sizeof key);
            memcpy(&value, start + 48 + i * 24 + 8, sizeof value);
            /* The buffer ends with a NUL of its own, so strings inside it always end. */
            if (key >= size || value >= size || strcmp(start + key, wanted) != 0)
                continue;
            char directory[PATH_MAX];
            int n = snprintf(directory, sizeof directory, "%s", start + value);
            char *slash = strrchr(directory, '/');
            if (n < 0 || (size_t)n >= sizeof directory || slash == NULL || slash == directory)
                continue;
            *slash = 0;
            found = look_in(directory, ret);
        }
    }
    fa_buf_free(&cache);
    return found;
}

/* Build-id in hex, or the hash of the whole file. */
static int file_identity(const char *path, char ret_text[FA_HASH_HEX], fa_diag *diag)
{
    int rc = elf_build_id(path, ret_text, diag);
    if (rc != FA_ENOTFOUND)
        return rc;
    fa_buf bytes;
    if (fa_buf_read_file(&bytes, path, MAX_LIBRARY_BYTES) != 0)
        return fa_fail(diag, FA_ENONVRTC, "cannot read %s to tell its version", path);
    fa_hash_bytes(bytes.data, bytes.size, ret_text);
    fa_buf_free(&bytes);
    return 0;
}

static int identify(fa_nvrtc_location *location, fa_diag *diag)
{
    char library[FA_HASH_HEX], builtins[FA_HASH_HEX];
    int rc = file_identity(location->library, library, diag);
    if (rc == 0)
        rc = file_identity(location->builtins, builtins, diag);
    if (rc != 0)
        return rc;
    snprintf(location->identity, sizeof location->identity, "%d.%d %s %s", location->major,
             location->minor, library, builtins);
    return 0;
}

/* A person's own choice is taken or refused, never silently replaced by another place. */
static bool look_everywhere(const char *named, search *ret)
{
    if (named != NULL && named[0] != 0)
        return look_below(named, ret);
    return look_below(FA_TUNE_NVRTC_DIR, ret) || look_in_site_packages(ret) ||
           look_below(getenv("CUDA_HOME"), ret) || look_below(getenv("CUDA_PATH"), ret) ||
           look_in_usr_local(ret) || look_in_cache(ret);
}

/* The driver is asked only where the answer may matter: every driver that is served loads what NVRTC 12
 * makes. */
static void prefer_loadable(const char *named, fa_nvrtc_location *location)
{
    if (location->major <= majors[sizeof majors / sizeof *majors - 1])
        return;
    int driver = fa_driver_peek_version();
    search older = {.newest = driver / 1000};
    if (driver == 0 || driver / 1000 >= location->major || !look_everywhere(named, &older))
        return;
    memcpy(older.found.passed_over, location->library, sizeof older.found.passed_over);
    older.found.driver_version = driver;
    *location = older.found;
}

int fa_nvrtc_locate(fa_nvrtc_location *ret_location, fa_diag *diag)
{
    const char *named = getenv("FA_TUNE_NVRTC");
    search all = {.newest = NEWEST};
    int rc = fa_descriptors_check(diag); /* without one nothing would be found */
    if (rc != 0)
        return rc;
    if (!look_everywhere(named, &all))
        return named != NULL && named[0] != 0
                   ? fa_fail(
                         diag, FA_ENONVRTC,
                         "FA_TUNE_NVRTC names %s, which holds no libnvrtc.so.13 or .12 with its "
                         "libnvrtc-builtins.so: name the directory of both",
                         named)
                   : fa_fail(
                         diag, FA_ENONVRTC,
                         "NVRTC (libnvrtc.so.13 or .12 with its builtins) was not found: install the "
                         "CUDA toolkit, or the Python package nvidia-cuda-nvrtc (pip install "
                         "'fa-tune[nvrtc]' beside the wheel), or set FA_TUNE_NVRTC to the directory "
                         "that holds it");
    prefer_loadable(named, &all.found);
    rc = identify(&all.found, diag);
    if (rc != 0)
        return rc;
    *ret_location = all.found;
    return 0;
}

/* ---- CUDA's own headers ---------------------------------------------------------------------*/
static bool has_headers(const char *root, const char *below, char *ret_folder, size_t size)
{
    char path[PATH_MAX], folder[PATH_MAX];
    if (root == NULL || root[0] == 0 ||
        snprintf(path, sizeof path, "%s%s", root, below) >= (int)sizeof path ||
        realpath(path, folder) == NULL ||
        snprintf(path, sizeof path, "%s/cuda_fp16.h", folder) >= (int)sizeof path || !regular(path))
        return false;
    return snprintf(ret_folder, size, "%s", folder) < (int)size;
}

bool fa_cuda_include(char *ret_folder, size_t size)
{
    const char *named = getenv("FA_TUNE_NVRTC");
    search all = {.newest = NEWEST};
    char here[PATH_MAX - 64], beside[PATH_MAX] = "";
    fa_own_directory(here, sizeof here);
    if (look_everywhere(named, &all)) {
        prefer_loadable(named, &all.found);
        snprintf(beside, sizeof beside, "%s", all.found.library);
        *strrchr(beside, '/') = 0;
    }
    const char *const places[][2] = {
        {beside, "/../include"},                 /* of a toolkit, and of packages of CUDA 13 */
        {beside, "/../../cuda_runtime/include"}, /* of CUDA 12's */
        {getenv("CUDA_HOME"), "/include"},
        {getenv("CUDA_PATH"), "/include"},
        {here, "/../../nvidia/cu13/include"},
        {here, "/../../nvidia/cuda_runtime/include"},
        {FA_TUNE_NVRTC_DIR, "/../include"},
        {"/usr/local/cuda", "/include"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (has_headers(places[i][0], places[i][1], ret_folder, size))
            return true;
    return false;
}
