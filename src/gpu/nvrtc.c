/* SPDX-License-Identifier: Apache-2.0
 *
 * NVRTC through dlopen: source in, cubin out, with one fixed list of options.
 *
 * Workload: 16 to 400 ms per compile in compile workers, up to 90 MB each, and about 8 MB of stack
 * on the calling thread. The front end is serialised inside a process. A compile cannot be stopped
 * from inside: the process that calls this must be one that may be killed.
 *
 * Safety: NVRTC is a file reader. "-no-source-include" keeps it from the working directory, but
 * #include of an absolute path, __has_include, #embed and .incbin cannot be turned off by an
 * option, and a FIFO would hang it. The sandbox of the worker (no environment, no file system,
 * limits) is what confines it, not this file.
 *
 * Invariants: no option comes from a caller but those of a list and the architecture; the
 * builtins stay loaded as long as the library, which opens them by bare name during compiles.
 *
 * And where NVRTC is, which build it is, and which of several is taken, without loading it: once a tune. Of a library the
 * first and the last page are read, and all of it only where neither has a build-id. Only the two exact name patterns
 * libnvrtc.so.MAJOR and libnvrtc-builtins.so.MAJOR.MINOR count: packages carry libnvrtc.alt beside them, which is built for
 * a 4-byte long.
 */
#include "nvrtc.h"

#include "buf.h"
#include "driver.h"
#include "error.h"
#include "places.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct program_state *program; /* nvrtcProgram */

enum { RESULT_OK = 0, RESULT_OUT_OF_MEMORY = 1, RESULT_INVALID_OPTION = 5, RESULT_COMPILATION = 6 };
enum { MAX_OPTIONS = 32 };

/* The one that this process has opened; never unmapped, since it keeps thread-local state. */
static struct {
    char path[4096];
    int major, minor;
    int (*version)(int *, int *);
    int (*create)(program *, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*destroy)(program *);
    int (*compile)(program, int, const char *const *);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
    int (*cubin_size)(program, size_t *);
    int (*cubin)(program, char *);
    const char *(*error_text)(int);
} nvrtc;

#define SYMBOLS(X)                        \
    X(version, "nvrtcVersion")            \
    X(create, "nvrtcCreateProgram")       \
    X(destroy, "nvrtcDestroyProgram")     \
    X(compile, "nvrtcCompileProgram")     \
    X(log_size, "nvrtcGetProgramLogSize") \
    X(log, "nvrtcGetProgramLog")          \
    X(cubin_size, "nvrtcGetCUBINSize")    \
    X(cubin, "nvrtcGetCUBIN")             \
    X(error_text, "nvrtcGetErrorString")

/* After --gpu-architecture. --no-cache: otherwise NVRTC opens libcuda and the driver's cache. */
static const struct fixed_option {
    const char *text;
    int since; /* the first version that knows it, as 100 * major + minor; 0: all do */
} fixed_options[] = {
    {"--no-cache", 1209},      {"--minimal", 1204}, {"--modify-stack-limit=false", 0},
    {"-no-source-include", 0}, {"-std=c++17", 0},   {"-Xptxas", 0},
    {"-warn-spills", 0},       {"-Xptxas", 0},      {"-warn-lmem-usage", 0},
};
enum { FIXED_OPTIONS = sizeof fixed_options / sizeof *fixed_options };

int fa_nvrtc_open(const fa_nvrtc_location *location, fa_diag *diag)
{
    const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    if (dlopen(location->builtins, flags) == NULL)
        return fa_fail(diag, FA_ENONVRTC, "cannot load NVRTC's builtins: %s", dlerror());
    void *library = dlopen(location->library, flags);
    if (library == NULL)
        return fa_fail(diag, FA_ENONVRTC, "cannot load NVRTC: %s", dlerror());
    snprintf(nvrtc.path, sizeof nvrtc.path, "%s", location->library);
#define LOAD(member, name)                                                                         \
    *(void **)&nvrtc.member = dlsym(library, name);                                                \
    if (nvrtc.member == NULL)                                                                      \
        return fa_fail(diag, FA_ENONVRTC, "%s has no function " name ": it is too old or damaged", \
                       nvrtc.path);
    SYMBOLS(LOAD)
#undef LOAD
    if (nvrtc.version(&nvrtc.major, &nvrtc.minor) != RESULT_OK)
        return fa_fail(diag, FA_ENONVRTC, "%s does not tell its version", nvrtc.path);
    if (nvrtc.major != location->major || nvrtc.minor != location->minor)
        return fa_fail(diag, FA_ENONVRTC,
                       "%s is version %d.%d but the builtins beside it are "
                       "%d.%d: reinstall NVRTC or set FA_TUNE_NVRTC to another one",
                       nvrtc.path, nvrtc.major, nvrtc.minor, location->major, location->minor);
    return 0;
}

void fa_nvrtc_options(const char *architecture, char *ret_text, size_t size)
{
    int n = snprintf(ret_text, size, "--gpu-architecture=%s", architecture);
    for (int i = 0; i < FIXED_OPTIONS && (size_t)n < size; i++)
        n += snprintf(ret_text + n, size - (size_t)n, " %s", fixed_options[i].text);
}

/* Appends what `get` writes, without the NUL that NVRTC counts. */
static bool fetch(program prog, int (*get_size)(program, size_t *), int (*get)(program, char *),
                  bool text, fa_buf *to)
{
    size_t size = 0;
    if (get_size(prog, &size) != RESULT_OK || size > (size_t)1 << 30)
        return false;
    if (size == 0)
        return true;
    FA_ENDS(fa_free_at) char *bytes = malloc(size);
    if (bytes == NULL) {
        to->failed = true;
        return true;
    }
    bool ok = get(prog, bytes) == RESULT_OK;
    if (ok)
        fa_buf_append(to, bytes, text ? strnlen(bytes, size) : size);
    return ok;
}

/* The first line that names an error, else the first line. */
static void first_error(const char *log, char *ret_line, size_t size)
{
    const char *line = log;
    for (const char *at = log; at != NULL && *at != 0;) {
        const char *end = strchrnul(at, '\n');
        if (memmem(at, (size_t)(end - at), "error", 5) != NULL ||
            memmem(at, (size_t)(end - at), "fatal", 5) != NULL) {
            line = at;
            break;
        }
        at = *end == 0 ? end : end + 1;
    }
    snprintf(ret_line, size, "%.*s", (int)strcspn(line, "\n"), line);
}

static int list_options(const fa_compile_request *request, const char *architecture,
                        const char *ret_option[1 + FIXED_OPTIONS + MAX_OPTIONS], int *ret_count,
                        fa_diag *diag)
{
    int count = 0;
    bool own_standard = false;
    ret_option[count++] = architecture;
    if (request->option_count < 0 || request->option_count > MAX_OPTIONS)
        return fa_fail(diag, FA_EINVAL, "%d options: at most %d", request->option_count,
                       MAX_OPTIONS);
    for (int i = 0; i < request->option_count; i++) {
        const char *option = request->options[i];
        if (!fa_nvrtc_allows(option))
            return fa_fail(diag, FA_EINVAL, "\"%.60s\" is no option that may be set", option);
        own_standard = own_standard || strncmp(option + strspn(option, "-"), "std=", 4) == 0;
    }
    for (int i = 0; i < FIXED_OPTIONS; i++) {
        const char *fixed = fixed_options[i].text;
        bool replaced = (strcmp(fixed, "--minimal") == 0 && request->options != NULL) ||
                        (strncmp(fixed, "-std=", 5) == 0 && own_standard);
        if (fixed_options[i].since <= 100 * nvrtc.major + nvrtc.minor && !replaced)
            ret_option[count++] = fixed;
    }
    for (int i = 0; i < request->option_count; i++)
        ret_option[count++] = request->options[i];
    *ret_count = count;
    return 0;
}

/* NVRTC names one option that it does not take: an author's, the architecture, or else one of ours. */
static int refuse_option(const fa_compile_request *request, const char *line, fa_diag *diag)
{
    if (strstr(line, "--gpu-architecture") != NULL) {
        enum { EACH_KNEW = 87 }; /* and those before it, of which newer ones know fewer */
        const int sm = (int)strtol(request->architecture + 3, NULL, 10), since = fa_nvrtc_since(sm);
        char use[40];
        snprintf(use, sizeof use, "%s one may", sm <= EACH_KNEW ? "an older" : "a newer");
        if (since > 100 * nvrtc.major + nvrtc.minor)
            snprintf(use, sizeof use, "use %d.%d or newer", since / 100, since % 100);
        return fa_fail(diag, FA_ENOTSUP, "NVRTC %d.%d does not compile for %s: %s", nvrtc.major,
                       nvrtc.minor, request->architecture, use);
    }
    const char *named = "an option of this kernel";
    for (int i = 0; i < request->option_count; i++) {
        const char *name = request->options[i] + strspn(request->options[i], "-");
        if (memmem(line, strlen(line), name, strcspn(name, "=")) != NULL)
            named = request->options[i];
    }
    if (request->option_count > 0)
        return fa_fail(diag, FA_ECOMPILE, "NVRTC %d.%d does not take %s: %s", nvrtc.major,
                       nvrtc.minor, named, line);
    return fa_fail(diag, FA_ENONVRTC, "NVRTC %d.%d (%s) cannot compile: %s", nvrtc.major,
                   nvrtc.minor, nvrtc.path, line);
}

/* A source failed: CUDA's headers, or a compiler that is too old for ours, may be why. */
static int fail_source(const fa_compile_request *request, const char *line, fa_diag *diag)
{
    const int own = 1000 * nvrtc.major + 10 * nvrtc.minor, headers = request->cuda_headers;
    const char *of = nvrtc.major == 12 ? "-cu12" : "";
    char why[200] = "";
    if (strstr(line, "open source file \"") != NULL)
        snprintf(why, sizeof why,
                 " (CUDA's are in its toolkit, or in PyPI's nvidia-cuda-runtime%s and "
                 "nvidia-cuda-cccl%s ==%d.%d.*; CUDA_HOME says where)",
                 of, of, nvrtc.major, nvrtc.minor);
    else if (headers != 0 && headers != own)
        snprintf(why, sizeof why, " (headers of CUDA %d.%d, read by NVRTC %d.%d)", headers / 1000,
                 headers % 1000 / 10, nvrtc.major, nvrtc.minor);
    else if (request->options == NULL && own < 12040)
        snprintf(why, sizeof why, " (by NVRTC %d.%d; 12.4 and newer compile all our families)",
                 nvrtc.major, nvrtc.minor);
    return fa_fail(diag, FA_ECOMPILE, "%s%s", line[0] != 0 ? line : "NVRTC gives no reason", why);
}

static int compile_program(program prog, const fa_compile_request *request, fa_buf *ret_cubin,
                           fa_buf *ret_log, fa_diag *diag)
{
    char arch_option[64], line[512];
    const char *options[1 + FIXED_OPTIONS + MAX_OPTIONS], *architecture = request->architecture;
    int count = 0;
    snprintf(arch_option, sizeof arch_option, "--gpu-architecture=%s", architecture);
    FA_OR_RETURN(list_options(request, arch_option, options, &count, diag));
    int result = nvrtc.compile(prog, count, options);
    fetch(prog, nvrtc.log_size, nvrtc.log, true, ret_log);
    if (ret_log->failed)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a compiler's log");
    first_error(ret_log->data == NULL ? "" : ret_log->data, line, sizeof line);
    if (result == RESULT_INVALID_OPTION)
        return refuse_option(request, line, diag);
    if (result == RESULT_OUT_OF_MEMORY)
        return fa_fail(diag, FA_ENOMEM, "NVRTC ran out of memory");
    if (result == RESULT_COMPILATION)
        return fail_source(request, line, diag);
    if (result != RESULT_OK)
        return fa_fail(diag, FA_ECOMPILE, "NVRTC failed with %s%s%s", nvrtc.error_text(result),
                       line[0] != 0 ? ": " : "", line);
    bool made = fetch(prog, nvrtc.cubin_size, nvrtc.cubin, false, ret_cubin);
    if (ret_cubin->failed)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a cubin");
    return made && ret_cubin->size > 0
               ? 0
               : fa_fail(diag, FA_ECOMPILE, "NVRTC gave no cubin for %s", architecture);
}

int fa_nvrtc_compile(const fa_compile_request *request, fa_buf *ret_cubin, fa_buf *ret_log,
                     fa_diag *diag)
{
    fa_buf_clear(ret_cubin);
    fa_buf_clear(ret_log);
    program prog = NULL;
    int result = nvrtc.create(&prog, request->source, request->name, request->header_count,
                              request->header_texts, request->header_names);
    if (result == RESULT_OUT_OF_MEMORY)
        return fa_fail(diag, FA_ENOMEM, "NVRTC ran out of memory");
    if (result != RESULT_OK)
        return fa_fail(diag, FA_ECOMPILE, "NVRTC cannot start a program: %s",
                       nvrtc.error_text(result));
    int rc = compile_program(prog, request, ret_cubin, ret_log, diag);
    nvrtc.destroy(&prog);
    if (rc != 0)
        fa_buf_clear(ret_cubin);
    return rc;
}

/* ---- options that an author may set -----------------------------------------------------------*/
/* All that may be set, by a pattern: none of it names a file, runs anything, or changes what a compile gives back. */
static const char allowed[] =
    "^--?(std=c\\+\\+(03|11|14|17|20|23)"
    "|use_fast_math|extra-device-vectorization|restrict|lineinfo|generate-line-info"
    "|w|disable-warnings|default-device|device-as-default-execution-space|device-int128"
    "|(fmad|ftz|prec-div|prec-sqrt)=(true|false)"
    "|(maxrregcount|diag-suppress)=[0-9,]+"
    "|(D|define-macro=|U|undefine-macro=)[[:alpha:]_][[:alnum:]_]*(=.*)?"
    "|(Xptxas|ptxas-options)=-(O[0-3]|dlcm=c[agsv]))$";

bool fa_nvrtc_allows(const char *text)
{
    regex_t pattern;
    size_t size = 0;
    while (text[size] >= ' ' && text[size] <= '~') /* as in any locale; a line */
        size++;
    if (text[size] != 0 || size > 200 || regcomp(&pattern, allowed, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    const bool matches = regexec(&pattern, text, 0, NULL, 0) == 0;
    regfree(&pattern);
    return matches;
}

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
    FA_ENDS(fa_buf_free) fa_buf bytes = {0};
    FA_ENDS(fa_close_at) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fa_fail(diag, FA_ENONVRTC, "cannot open %s: %s", path, strerror(errno));
    const ssize_t size = pread(fd, first.byte, PAGE, 0);
    const off_t end = lseek(fd, 0, SEEK_END);
    const ssize_t rest = pread(fd, last.byte, PAGE, end > PAGE ? (end - PAGE + 3) / 4 * 4 : 0);
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
    return 0;
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
        FA_ENDS(fa_buf_free) fa_buf text = {0};
        char *rest = NULL;
        if (fa_buf_read_file(&text, paths.gl_pathv[i], 1 << 16) == 0 && text.size > 0)
            for (char *line = strtok_r(text.data, "\n", &rest); line != NULL;
                 line = strtok_r(NULL, "\n", &rest))
                if (line[0] == '/')
                    look_in(line, all);
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
        fa_nvrtc_location *nvrtc = &one->location;
        char library[FA_HASH_HEX], builtins[FA_HASH_HEX];
        int is = identify_file(nvrtc->library, library, &own);
        if (is == 0)
            is = identify_file(nvrtc->builtins, builtins, &own);
        if (is == 0)
            snprintf(nvrtc->identity, sizeof nvrtc->identity, "%d.%d %s %s", nvrtc->major,
                     nvrtc->minor, library, builtins);
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
    int rc;
    FA_ENDS(fa_free_at) struct found *all = calloc(1, sizeof *all);
    FA_OR_RETURN(fa_have(all != NULL, "NVRTC's places", diag));
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
    return rc;
}

int fa_nvrtc_locate(fa_nvrtc_location *ret_location, fa_diag *diag)
{
    return fa_nvrtc_choose(&(fa_nvrtc_judge){.since = 0}, ret_location, diag);
}

/* ---- CUDA's own headers: those of NVRTC's version, where there are some -----------------------*/
/* Workload: once for each kernel of a user's own that includes some. */
/* 13000 for CUDA 13.0; 0: it cannot be told. */
static int version_of_headers(const char *folder)
{
    static const char word[] = "#define CUDART_VERSION";
    char path[PATH_MAX], text[1 << 14];
    int version = 0;
    if (snprintf(path, sizeof path, "%s/cuda_runtime_api.h", folder) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *at = strstr(text, word);
    return at != NULL && sscanf(at + sizeof word - 1, "%d", &version) == 1 ? version : 0;
}

/* Takes a folder that fits NVRTC's version better than what was taken before. */
static void take_headers(const char *root, const char *below, const fa_nvrtc_location *nvrtc,
                         fa_cuda_headers *ret)
{
    char path[PATH_MAX], folder[PATH_MAX];
    if (root == NULL || root[0] == 0 ||
        snprintf(path, sizeof path, "%s%s", root, below) >= (int)sizeof path ||
        realpath(path, folder) == NULL || strlen(folder) >= sizeof ret->folder ||
        snprintf(path, sizeof path, "%s/cuda_fp16.h", folder) >= (int)sizeof path ||
        access(path, R_OK) != 0)
        return;
    const int version = version_of_headers(folder);
    const int own = 1000 * nvrtc->major + 10 * nvrtc->minor; /* version 0: a person's headers */
    const unsigned fit = version == 0 || version == own   ? FA_HEADERS_SAME
                         : version / 1000 == nvrtc->major ? FA_HEADERS_SAME_MAJOR
                                                          : FA_HEADERS_OTHER;
    if (fit <= ret->fit)
        return;
    *ret = (fa_cuda_headers){.version = version, .fit = fit};
    memcpy(ret->folder, folder, strlen(folder));
}

void fa_cuda_headers_find(fa_cuda_headers *ret_headers)
{
    fa_nvrtc_location nvrtc = {.major = 0};
    char here[PATH_MAX - 64];
    *ret_headers = (fa_cuda_headers){.version = 0};
    fa_own_directory(here, sizeof here);
    if (fa_nvrtc_locate(&nvrtc, NULL) == 0)
        *strrchr(nvrtc.library, '/') = 0;
    const char *const places[][2] = {
        {nvrtc.library, "/../include"}, /* of a toolkit, and of packages of CUDA 13 */
        {nvrtc.library, "/../../cuda_runtime/include"}, /* of CUDA 12's */
        {getenv("CUDA_HOME"), "/include"},
        {getenv("CUDA_PATH"), "/include"},
        {here, "/../../nvidia/cu13/include"},
        {here, "/../../nvidia/cuda_runtime/include"},
        {FA_TUNE_NVRTC_DIR, "/../include"},
        {"/usr/local/cuda", "/include"},
        {"/usr", "/include"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        take_headers(places[i][0], places[i][1], &nvrtc, ret_headers);
    glob_t folders;
    if (glob("/usr/local/cuda-*", 0, NULL, &folders) == 0)
        for (size_t i = 0; i < folders.gl_pathc; i++)
            take_headers(folders.gl_pathv[i], "/include", &nvrtc, ret_headers);
    globfree(&folders);
}
