/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding NVRTC, telling its build, and compiling with it. What needs a real NVRTC is skipped
 * without one; finding is proved with made-up directories.
 */
#define CHECK_OWN_MAIN
#include "check.h"

#include "buf.h"
#include "compile_pool.h"
#include "nvrtc.h"

#include <elf.h>
#include <fcntl.h>

static char folder[256], real_directory[4096];

/* ---- made-up libraries -----------------------------------------------------------------------*/

static char *path_of(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static bool write_file(const char *name, const void *bytes, size_t size)
{
    return check_write_file(path_of(name), bytes, size);
}

/* A header, one PT_NOTE segment, and in it the build-id; id_size 0: none. */
static bool write_library(const char *name, unsigned char first, size_t id_size, int machine)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr segment;
        Elf64_Nhdr note;
        char owner[4];
        unsigned char id[64];
    } file = {
        .header = {.e_type = ET_DYN,
                   .e_machine = (uint16_t)machine,
                   .e_phoff = sizeof(Elf64_Ehdr),
                   .e_phentsize = sizeof(Elf64_Phdr),
                   .e_phnum = id_size == 0 ? 0 : 1},
        .note = {.n_namesz = 4, .n_descsz = (uint32_t)id_size, .n_type = NT_GNU_BUILD_ID},
        .owner = "GNU",
    };
    file.segment = (Elf64_Phdr){.p_type = PT_NOTE};
    file.segment.p_offset = sizeof file.header + sizeof file.segment;
    file.segment.p_filesz = sizeof file.note + 4 + (id_size + 3) / 4 * 4;
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    memset(file.id, first, sizeof file.id);
    return write_file(name, &file, sizeof file);
}

#if defined(__x86_64__)
enum { OWN = EM_X86_64, OTHER = EM_AARCH64 };
#else
enum { OWN = EM_AARCH64, OTHER = EM_X86_64 };
#endif

static void clear_folder(void)
{
    check_remove_folder(folder);
    mkdir(folder, 0700);
}

static int locate(fa_nvrtc_location *ret)
{
    setenv("FA_TUNE_NVRTC", folder, 1);
    return fa_nvrtc_locate(ret, &diag);
}

TEST(the_identity_holds_the_version_and_both_build_ids)
{
    fa_nvrtc_location location;
    clear_folder();
    CHECK(write_library("libnvrtc.so.13", 0xab, 20, OWN));
    CHECK(write_library("libnvrtc-builtins.so.13.0", 0x01, 8, OWN));
    CHECK_OK(locate(&location), diag);
    CHECK_INT(location.major, 13);
    CHECK_INT(location.minor, 0);
    CHECK(location.library[0] == '/' && location.builtins[0] == '/');
    CHECK_TEXT(location.identity, "13.0 abababababababababababababababababababab 0101010101010101");
}

/* The driver of the script's version, or none: the made-up NVRTC is located. */
static int locate_under(const char *script, fa_nvrtc_location *ret)
{
    setenv("FA_TUNE_LIBCUDA", script != NULL ? getenv("FA_TEST_FAKE_CUDA") : "no-libcuda.so.1", 1);
    bool written = script == NULL || write_file("script", script, strlen(script));
    setenv("FAKE_CUDA_SCRIPT", path_of("script"), 1);
    int rc = written ? locate(ret) : FA_EIO;
    unsetenv("FA_TUNE_LIBCUDA");
    unsetenv("FAKE_CUDA_SCRIPT");
    remove(path_of("script"));
    return rc;
}

TEST(an_nvrtc_that_is_too_new_for_the_driver_gives_way_to_an_older_one)
{
    fa_nvrtc_location location;
    clear_folder();
    CHECK(write_library("libnvrtc.so.13", 1, 20, OWN));
    CHECK(write_library("libnvrtc-builtins.so.13.0", 2, 20, OWN));
    CHECK_OK(locate_under("driver 12080\n", &location), diag); /* better than none */
    CHECK_INT(location.major, 13);
    CHECK(write_library("libnvrtc.so.12", 3, 20, OWN));
    CHECK(write_library("libnvrtc-builtins.so.12.8", 4, 20, OWN));
    CHECK_OK(locate_under("driver 12080\n", &location), diag);
    CHECK_INT(location.major, 12);
    CHECK_HAS(location.library, "/libnvrtc.so.12");
    CHECK_OK(locate_under("driver 13000\n", &location), diag);
    CHECK_INT(location.major, 13);
    CHECK_OK(locate_under(NULL, &location), diag);
    CHECK_INT(location.major, 13);
}

TEST(the_alt_build_is_never_taken)
{
    fa_nvrtc_location location;
    clear_folder();
    CHECK(write_library("libnvrtc.alt.so.13", 1, 20, OWN));
    CHECK(write_library("libnvrtc-builtins.alt.so.13.0", 2, 20, OWN));
    CHECK_INT(locate(&location), FA_ENONVRTC);
    CHECK(write_library("libnvrtc.so.13", 1, 20, OWN)); /* no builtins of its kind yet */
    CHECK_FAILS(locate(&location), FA_ENONVRTC, folder);
}

TEST(a_library_for_another_machine_is_refused)
{
    fa_nvrtc_location location;
    clear_folder();
    CHECK(write_library("libnvrtc.so.13", 1, 20, OTHER));
    CHECK(write_library("libnvrtc-builtins.so.13.0", 2, 20, OWN));
    CHECK_FAILS(locate(&location), FA_ENONVRTC, "another architecture");
    CHECK(write_file("libnvrtc.so.13", "text", 4));
    CHECK_FAILS(locate(&location), FA_ENONVRTC, "not a shared library");
}

TEST(damaged_notes_are_survived)
{
    unsigned char bytes[256];
    clear_folder();
    CHECK(write_library("libnvrtc-builtins.so.13.0", 2, 20, OWN));
    uint32_t state = 7;
    for (int i = 0; i < 2000; i++) {
        CHECK(i % 50 != 0 || write_library("libnvrtc.so.13", 1, 20, OWN));
        int fd = open(path_of("libnvrtc.so.13"), O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        ssize_t size = read(fd, bytes, sizeof bytes);
        state = state * 1664525 + 1013904223;
        size_t at = 20 + (state >> 8) % 140;
        unsigned char value = (unsigned char)(state >> 24);
        CHECK(size > 160 && pwrite(fd, &value, 1, (off_t)at) == 1);
        close(fd);
        fa_nvrtc_location location;
        int rc = locate(&location);
        CHECK(rc == 0 || rc == FA_ENONVRTC);
    }
}

/* A copy, as a library of its own. */
static bool copy_fake(const char *name)
{
    FA_ENDS(fa_buf_free) fa_buf bytes = {0};
    return fa_buf_read_file(&bytes, getenv("FA_TEST_FAKE_NVRTC"), 1 << 24) == 0 &&
           write_file(name, bytes.data, bytes.size);
}

/* Opens a made-up NVRTC of that version and has it compile something with these options; NULL: with ours alone. */
static int compile_with(const char *version, const char *option, const char *architecture)
{
    fa_nvrtc_location location;
    FA_ENDS(fa_buf_free) fa_buf code = {0}, log = {0};
    char library[64], builtins[64];
    fa_compile_request request = {.source = "", .name = "a.cu", .architecture = architecture};
    if (option != NULL) {
        request.options = &option;
        request.option_count = 1;
    }
    clear_folder();
    snprintf(library, sizeof library, "libnvrtc.so.%.2s", version);
    snprintf(builtins, sizeof builtins, "libnvrtc-builtins.so.%s", version);
    int rc = copy_fake(library) && copy_fake(builtins) ? locate(&location) : FA_EIO;
    if (rc == 0)
        rc = fa_nvrtc_open(&location, &diag);
    if (rc == 0)
        rc = fa_nvrtc_compile(&request, &code, &log, &diag);
    remove(path_of(library));
    remove(path_of(builtins));
    return rc;
}

TEST(no_compiler_is_given_an_option_that_it_does_not_know)
{
    static const char *const versions[] = {"12.0", "12.3", "12.4", "12.8", "12.9", "13.0"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        CHECK_OK(compile_with(versions[i], NULL, "sm_80"), diag);
}

TEST(an_authors_option_that_this_version_lacks_is_the_kernels_fault)
{
    CHECK_FAILS(compile_with("12.8", "-std=c++23", "sm_80"), FA_ECOMPILE,
                "NVRTC 12.8 does not take -std=c++23: ");
    CHECK_OK(compile_with("12.8", "-std=c++20", "sm_80"), diag);
}

TEST(a_gpu_that_this_version_does_not_know_has_a_sentence)
{
    CHECK_FAILS(compile_with("12.4", NULL, "sm_120"), FA_ENOTSUP,
                "NVRTC 12.4 does not compile for sm_120: use 12.8 or newer");
    CHECK_OK(compile_with("12.8", NULL, "sm_120"), diag);
    CHECK_FAILS(compile_with("12.8", NULL, "sm_120f"), FA_ENOTSUP,
                "NVRTC 12.8 does not compile for sm_120f: a newer one may");
    CHECK_OK(compile_with("12.8", NULL, "sm_70"), diag);
    CHECK_FAILS(compile_with("13.0", NULL, "sm_70"), FA_ENOTSUP,
                "NVRTC 13.0 does not compile for sm_70: an older one may");
}

/* ---- several: as packages lie in a site-packages, CUDA 13's first ----------------------------*/
static const char *const of_13[] = {"%d/nvidia/cu13/lib/libnvrtc.so.13",
                                    "%d/nvidia/cu13/lib/libnvrtc-builtins.so.13.0"},
                         *const of_12[] = {"%d/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
                                           "%d/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.%s"};

static int place; /* another one for each case, since a process remembers what it tried */

static const char *in_place(const char *pattern, const char *version)
{
    static char name[200];
    snprintf(name, sizeof name, pattern, place, version);
    return name;
}

static bool make_two(const char *version_of_12)
{
    static const char *const folders[] = {"%d",
                                          "%d/nvidia",
                                          "%d/nvidia/cu13",
                                          "%d/nvidia/cu13/lib",
                                          "%d/nvidia/cuda_nvrtc",
                                          "%d/nvidia/cuda_nvrtc/lib"};
    bool made = true;
    place++;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        made = made && mkdir(path_of(in_place(folders[i], "")), 0755) == 0;
    setenv("FA_TUNE_NVRTC", path_of(in_place("%d", "")), 1);
    for (int i = 0; i < 2; i++)
        made = made && copy_fake(in_place(of_13[i], "")) &&
               copy_fake(in_place(of_12[i], version_of_12));
    return made;
}

static int choose(int sm, fa_nvrtc_location *ret, fa_buf *passed)
{
    setenv("FA_TUNE_LIBCUDA", "no-libcuda.so.1", 1);
    fa_buf_clear(passed);
    int rc = fa_compiler_choose(getenv("FA_TUNE_WORKER"), sm, ret, passed, &diag);
    unsetenv("FA_TUNE_LIBCUDA");
    return rc;
}

TEST(a_compiler_that_does_not_compile_is_passed_over)
{
    fa_nvrtc_location location;
    FA_ENDS(fa_buf_free) fa_buf passed = {0};
    CHECK(make_two("12.4"));
    CHECK_OK(choose(0, &location, &passed), diag);
    CHECK_INT(location.major, 13);
    CHECK_INT(passed.size, 0);
    CHECK(make_two("12.4") && write_file(in_place("%d/nvidia/cu13/lib/broken", ""), "", 0));
    CHECK_OK(choose(0, &location, &passed), diag);
    CHECK_INT(location.major, 12);
    CHECK_HAS(passed.data, "/nvidia/cu13/lib/libnvrtc.so.13: ");
    CHECK_HAS(passed.data, "NVRTC_ERROR_INTERNAL_ERROR");
    CHECK(make_two("12.4") && write_library(in_place(of_13[0], ""), 1, 20, OTHER));
    CHECK_OK(choose(0, &location, &passed), diag);
    CHECK_INT(location.major, 12);
    CHECK_HAS(passed.data, "another architecture");
    CHECK(make_two("12.4") && write_file(in_place(of_13[0], ""), "text", 4) &&
          write_file(in_place("%d/nvidia/cuda_nvrtc/lib/broken", ""), "", 0));
    CHECK_INT(choose(0, &location, &passed), FA_ENONVRTC); /* the first one's reason */
    CHECK_HAS(diag.text, "not a shared library");
    const char *worker = getenv("FA_TUNE_WORKER");
    CHECK(make_two("12.4"));
    setenv("FA_TUNE_WORKER", "/nowhere", 1);
    int rc = choose(0, &location, &passed);
    setenv("FA_TUNE_WORKER", worker, 1);
    CHECK_INT(rc, FA_EWORKER); /* NVRTC is not to blame */
}

TEST(a_compiler_that_does_not_know_the_gpu_gives_way_to_one_that_does)
{
    fa_nvrtc_location location;
    FA_ENDS(fa_buf_free) fa_buf passed = {0};
    CHECK(make_two("12.8") && mkdir(path_of(in_place("%d/lib64", "")), 0755) == 0);
    CHECK(copy_fake(in_place("%d/lib64/libnvrtc.so.12", "")) &&
          copy_fake(in_place("%d/lib64/libnvrtc-builtins.so.12.4", "")));
    CHECK_OK(choose(89, &location, &passed), diag); /* the first in order */
    CHECK_INT(location.minor, 4);
    CHECK_OK(choose(120, &location, &passed), diag);
    CHECK_INT(location.major, 13);
    CHECK_HAS(passed.data, "/lib64/libnvrtc.so.12: the GPU needs NVRTC 12.8 or newer");
    CHECK_OK(choose(107, &location, &passed), diag); /* none knows it: the compile says so */
    CHECK_INT(location.minor, 4);
}

/* ---- the real one ----------------------------------------------------------------------------*/

static fa_buf cubin, compile_log;

static int compile(const char *source, const char *architecture)
{
    static const char *const names[] = {"answer.h"}, *const texts[] = {"#define ANSWER 42\n"};
    fa_compile_request request = {.source = source,
                                  .name = "fa_tune.cu",
                                  .header_names = names,
                                  .header_texts = texts,
                                  .header_count = 1,
                                  .architecture = architecture};
    return fa_nvrtc_compile(&request, &cubin, &compile_log, &diag);
}

TEST(the_library_agrees_with_what_was_located)
{
    fa_nvrtc_location location;
    if (real_directory[0] == 0)
        SKIP("no NVRTC");
    setenv("FA_TUNE_NVRTC", real_directory, 1);
    CHECK_OK(fa_nvrtc_locate(&location, &diag), diag);
    CHECK_OK(fa_nvrtc_open(&location, &diag), diag);
}

static const char clean[] = "#include \"answer.h\"\n"
                            "extern \"C\" __global__ void k(int *x) { *x = ANSWER; }\n";

TEST(in_memory_headers_compile_to_identical_cubins)
{
    if (real_directory[0] == 0)
        SKIP("no NVRTC");
    CHECK_OK(compile(clean, "sm_89"), diag);
    CHECK(cubin.size > 1000 && memcmp(cubin.data, ELFMAG, SELFMAG) == 0);
    CHECK_INT(compile_log.size, 0);
    FA_ENDS(fa_free_at) char *first = malloc(cubin.size);
    size_t size = cubin.size;
    CHECK(first != NULL);
    memcpy(first, cubin.data, size);
    int rc = compile(clean, "sm_89");
    bool same = cubin.size == size && memcmp(first, cubin.data, size) == 0;
    CHECK_OK(rc, diag);
    CHECK(same);
}

TEST(of_a_header_that_is_missing_is_said_where_cudas_are)
{
    if (real_directory[0] == 0)
        SKIP("no NVRTC");
    CHECK_FAILS(compile("#include <cuda_fp16.h>\n", "sm_80"), FA_ECOMPILE, "cuda_fp16.h");
    CHECK_HAS(diag.text, "in PyPI's nvidia-cuda-runtime");
}

/* Again, too: a cache of NVRTC's or the driver's would give the cubin without its log. */
TEST(spills_are_warned_of_in_the_log)
{
    if (real_directory[0] == 0)
        SKIP("no NVRTC");
    for (int i = 0; i < 2; i++) {
        CHECK_OK(compile("extern \"C\" __global__ void k(float *a, int n) { float x[64];\n"
                         "for (int i = 0; i < 64; i++) x[i] = a[i];\n"
                         "for (int i = 0; i < n; i++) x[i & 63] += x[(i * n) & 63];\n"
                         "for (int i = 0; i < 64; i++) a[i] = x[i]; }\n",
                         "sm_90a"),
                 diag);
        CHECK_HAS(compile_log.data, "Local memory used");
    }
}

TEST(an_unknown_architecture_is_refused)
{
    if (real_directory[0] == 0)
        SKIP("no NVRTC");
    CHECK_FAILS(compile(clean, "sm_35"), FA_ENOTSUP, "sm_35");
    CHECK_INT(compile(clean, "sm_999"), FA_ENOTSUP);
}

int main(void)
{
    fa_nvrtc_location location;
    if (fa_nvrtc_locate(&location, &diag) == 0) {
        snprintf(real_directory, sizeof real_directory, "%s", location.library);
        *strrchr(real_directory, '/') = 0;
    }
    check_make_folder(folder, NULL);
    check_all();
    fa_buf_free(&cubin);
    fa_buf_free(&compile_log);
    check_remove_folder(folder);
    return check_done();
}
