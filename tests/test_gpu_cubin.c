/* SPDX-License-Identifier: Apache-2.0
 *
 * The cubin reader: what it finds in good cubins, and that no damaged one makes it read outside
 * its bytes (run under ASan: every buffer is a heap block of exactly the file's size).
 */
#include "check.h"
#include "fake_cubin.h"

#include "cubin.h"
#include "nvrtc.h"

static const fake_cubin good = {
    .sm = 89, .entry = "attn_fwd", .registers = 168, .stack = 16, .static_smem = 512,
    .threads_x = 64, .threads_y = 2, .parameters = 168, .marker = "family=x;",
};

static unsigned char bytes[FAKE_CUBIN_MAX];
static fa_cubin_info info;

/* On the heap, so that a sanitizer sees one byte too far. */
static unsigned char *copied(const void *of, size_t size)
{
    unsigned char *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL)
        abort();
    return memcpy(copy, of, size);
}

static int read_copy(const void *of, size_t size, const char *entry)
{
    FA_ENDS(fa_free_at) unsigned char *copy = copied(of, size);
    return fa_cubin_read(copy, size, entry, &info, &diag);
}

/* Of one that is made so. */
static int read_made(const fake_cubin *cubin)
{
    return read_copy(bytes, fake_cubin_build(cubin, bytes), "attn_fwd");
}

TEST(everything_that_ptxas_decided_is_read)
{
    fake_cubin c = good;
    CHECK_OK(read_made(&c), diag);
    CHECK_INT(info.sm, 89);
    CHECK_INT(info.registers, 168);
    CHECK_INT(info.stack_bytes, 16);
    CHECK_INT(info.static_smem_bytes, 512);
    CHECK_INT(info.max_threads, 128);
    CHECK_INT(info.parameter_bytes, 168);
    c.threads_x = 0; /* no launch bounds, no limit */
    CHECK_OK(read_made(&c), diag);
    CHECK_INT(info.max_threads, 0);
}

TEST(both_encodings_of_the_architecture_are_read)
{
    fake_cubin c = good;
    for (c.abi = 7; c.abi <= 8; c.abi++) {
        CHECK_OK(read_made(&c), diag);
        CHECK_INT(info.sm, 89);
    }
    CHECK_FAILS(read_made(&c), FA_ECORRUPT, "ABI version 9");
}

TEST(a_missing_entry_is_not_found)
{
    info.sm = -1;
    CHECK_FAILS(read_copy(bytes, fake_cubin_build(&good, bytes), "attn_bwd"), FA_ENOTFOUND,
                "attn_bwd");
    CHECK_INT(info.sm, -1); /* outputs are set only on success */
}

TEST(what_is_no_cubin_is_refused)
{
    static const char text[] = ".version 9.0\n.target sm_89\n.address_size 64\n// PTX is no cubin";
    CHECK_INT(fa_cubin_read(NULL, 0, "attn_fwd", &info, &diag), FA_ECORRUPT);
    CHECK_INT(read_copy("", 0, "attn_fwd"), FA_ECORRUPT);
    CHECK_INT(read_copy(text, sizeof text, "attn_fwd"), FA_ECORRUPT);
    fake_cubin_build(&good, bytes);
    bytes[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
    CHECK_FAILS(read_copy(bytes, FAKE_CUBIN_MAX, "attn_fwd"), FA_ECORRUPT, "not CUDA");
}

TEST(impossible_numbers_are_refused)
{
    fake_cubin cases[] = {good, good, good, good, good, good};
    cases[0].registers = 0;
    cases[1].registers = 256;
    cases[2].stack = 0x80000000u;
    cases[3].threads_x = 2048;
    cases[4].threads_x = 0x10000; /* its square overflows 32 bits */
    cases[4].threads_y = 0x10000;
    cases[5].static_smem = 0x7fffffff;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_INT(read_made(&cases[i]), FA_ECORRUPT);
}

TEST(every_truncation_is_refused)
{
    size_t size = fake_cubin_build(&good, bytes);
    for (size_t n = 0; n < size; n++) /* the section table is last, so every cut damages it */
        CHECK_INT(read_copy(bytes, n, "attn_fwd"), FA_ECORRUPT);
}

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((random_state >> 33) % limit);
}

/* Any damage gives success or a code of the contract, in bounds (fuzz_cubin does it to those made here). */
static bool survives_damage(const char *of, size_t size, const char *entry, int rounds)
{
    FA_ENDS(fa_free_at) char *copy = malloc(size);
    bool ok = copy != NULL;
    for (int i = 0; ok && i < rounds; i++) {
        memcpy(copy, of, size);
        for (uint32_t flips = 1 + random_below(8); flips > 0; flips--)
            copy[random_below(3) == 0 ? random_below(64) : random_below((uint32_t)size)] =
                (char)random_below(256);
        size_t cut = random_below(4) == 0 ? random_below((uint32_t)size) : 0;
        int rc = fa_cubin_read(copy, size - cut, entry, &info, NULL);
        ok = rc == 0 ? info.registers >= 1 && info.registers <= 255 && info.stack_bytes >= 0 &&
                           info.static_smem_bytes >= 0 && info.max_threads <= 1024
                     : rc == FA_ECORRUPT || rc == FA_ENOTFOUND;
    }
    return ok;
}

TEST(hostile_section_headers_are_survived)
{
    static const uint64_t values[] = {0,
                                      1,
                                      0x7fffffff,
                                      0xffffffff,
                                      0x100000000ull,
                                      0x7fffffffffffffffull,
                                      0x8000000000000000ull,
                                      UINT64_MAX};
    size_t size = fake_cubin_build(&good, bytes);
    Elf64_Ehdr header;
    memcpy(&header, bytes, sizeof header);
    for (size_t at = header.e_shoff; at + 8 <= size; at += 4) {
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            unsigned char damaged[FAKE_CUBIN_MAX];
            memcpy(damaged, bytes, size);
            memcpy(damaged + at, &values[i], 8);
            int rc = read_copy(damaged, size, "attn_fwd");
            CHECK(rc == 0 || rc == FA_ECORRUPT || rc == FA_ENOTFOUND);
        }
    }
}

/* ---- constants -------------------------------------------------------------------------------*/

static const uint32_t wanted_boxes[6] = {64, 128, 1, 96, 80, 64};

static size_t build_constant(void)
{
    fake_cubin c = good;
    c.boxes = wanted_boxes;
    return fake_cubin_build(&c, bytes);
}

static uint32_t boxes[6];

static int constant_copy(const void *of, size_t size)
{
    FA_ENDS(fa_free_at) unsigned char *copy = copied(of, size);
    return fa_cubin_constant(copy, size, "fa_attn_boxes_wanted", boxes, sizeof boxes, &diag);
}

TEST(a_constant_is_read_by_its_name)
{
    size_t size = build_constant();
    CHECK_OK(constant_copy(bytes, size), diag);
    CHECK(memcmp(boxes, wanted_boxes, sizeof boxes) == 0);
    CHECK_OK(read_copy(bytes, size, "attn_fwd"), diag);
    CHECK_INT(fa_cubin_constant(bytes, size, "fa_attn_boxes", boxes, sizeof boxes, &diag),
              FA_ENOTFOUND);
    CHECK_INT(fa_cubin_constant(bytes, size, "attn_fwd", boxes, sizeof boxes, &diag),
              FA_ENOTFOUND); /* a function */
    size = fake_cubin_build(&good, bytes);
    CHECK_INT(constant_copy(bytes, size), FA_ENOTFOUND);
    CHECK(memcmp(boxes, wanted_boxes, sizeof boxes) == 0);
}

TEST(a_variable_tells_its_size)
{
    uint64_t has = 0;
    size_t size = build_constant();
    CHECK_OK(fa_cubin_variable(bytes, size, "fa_attn_boxes_wanted", &has, &diag), diag);
    CHECK_INT((long long)has, (long long)sizeof wanted_boxes);
    CHECK_INT(fa_cubin_variable(bytes, size, "attn_fwd", &has, &diag), FA_ENOTFOUND);
    CHECK(strstr(diag.text, "no variable attn_fwd: declare it __constant__") != NULL);
    for (size_t n = 0; n < size; n += 7)
        CHECK_INT(fa_cubin_variable(bytes, n, "fa_attn_boxes_wanted", &has, NULL), FA_ECORRUPT);
}

TEST(every_truncation_under_a_constant_is_refused)
{
    size_t size = build_constant();
    for (size_t n = 0; n < size; n++)
        CHECK_INT(constant_copy(bytes, n), FA_ECORRUPT);
}

/* The constant's symbol is the last of the table. */
static size_t symbol_at(const unsigned char *bytes)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, bytes, sizeof header);
    for (size_t i = 0; i < header.e_shnum; i++) {
        memcpy(&section, bytes + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type == SHT_SYMTAB)
            break;
    }
    return section.sh_offset + section.sh_size - sizeof(Elf64_Sym);
}

TEST(a_constant_outside_its_section_is_refused)
{
    static const struct {
        size_t field, bytes;
        uint64_t value;
        const char *sentence;
    } rows[] = {
        {offsetof(Elf64_Sym, st_value), 8, 13, "outside"}, /* one byte too far */
        {offsetof(Elf64_Sym, st_value), 8, 37, "outside"},
        {offsetof(Elf64_Sym, st_value), 8, UINT64_MAX, "outside"},
        {offsetof(Elf64_Sym, st_value), 8, UINT64_MAX - 23, "outside"},
        {offsetof(Elf64_Sym, st_size), 8, 25, "25 bytes, not 24"},
        {offsetof(Elf64_Sym, st_size), 8, 0, "0 bytes, not 24"},
        {offsetof(Elf64_Sym, st_size), 8, UINT64_MAX, "bytes, not 24"},
        {offsetof(Elf64_Sym, st_shndx), 2, SHN_UNDEF, "outside"},
        {offsetof(Elf64_Sym, st_shndx), 2, SHN_ABS, "outside"},
        {offsetof(Elf64_Sym, st_shndx), 2, 14, "outside"}, /* no such section */
    };
    size_t size = build_constant(), at = symbol_at(bytes);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char damaged[FAKE_CUBIN_MAX];
        memcpy(damaged, bytes, size);
        memcpy(damaged + at + rows[i].field, &rows[i].value, rows[i].bytes);
        CHECK_INT(constant_copy(damaged, size), FA_ECORRUPT);
        CHECK_HAS(diag.text, rows[i].sentence);
    }
}

/* Uninitialised variables and code are no values. */
TEST(a_constant_without_bytes_in_the_file_is_refused)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    size_t size = build_constant();
    Elf64_Sym symbol;
    memcpy(&symbol, bytes + symbol_at(bytes), sizeof symbol);
    memcpy(&header, bytes, sizeof header);
    size_t at = header.e_shoff + symbol.st_shndx * sizeof section;
    memcpy(&section, bytes + at, sizeof section);
    section.sh_type = SHT_NOBITS;
    memcpy(bytes + at, &section, sizeof section);
    CHECK_INT(constant_copy(bytes, size), FA_ECORRUPT);
}

/* ---- cubins of the real compiler -------------------------------------------------------------*/

static const char kernels[] =
    "struct boxes { unsigned n[6]; };\n"
    "extern \"C\" __constant__ boxes fa_attn_boxes_wanted = {{64, 128, 1, 96, 80, 64}};\n"
    "struct params { const float *in; float *out; long long n; };\n"
    "extern \"C\" __global__ void __launch_bounds__(128)\n"
    "clean(const __grid_constant__ params p) {\n"
    "  extern __shared__ float dynamic[]; __shared__ float fixed[256];\n"
    "  fixed[threadIdx.x] = p.in[threadIdx.x]; dynamic[threadIdx.x] = 2; __syncthreads();\n"
    "  p.out[threadIdx.x] = fixed[threadIdx.x ^ 1] + dynamic[threadIdx.x ^ 2]; }\n"
    "extern \"C\" __global__ void spills(const float *a, float *b, int n, int m) {\n"
    "  float kept[64]; for (int i = 0; i < 64; i++) kept[i] = a[i];\n"
    "  for (int i = 0; i < n; i++) kept[(i * m) & 63] += kept[i & 63];\n"
    "  for (int i = 0; i < 64; i++) b[i] = kept[i]; }\n";

TEST(real_cubins_of_every_architecture_are_read)
{
    static const struct {
        const char *architecture;
        int sm;
    } rows[] = {{"sm_75", 75}, {"sm_80", 80}, {"sm_86", 86}, {"sm_89", 89},
                {"sm_90", 90}, {"sm_90a", 90}, {"sm_100a", 100}, {"sm_120", 120}};
    fa_nvrtc_location location;
    FA_ENDS(fa_buf_free) fa_buf cubin = {0}, log = {0};
    if (fa_nvrtc_locate(&location, &diag) != 0)
        SKIP("no NVRTC");
    CHECK_OK(fa_nvrtc_open(&location, &diag), diag);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_compile_request request = {
            .source = kernels, .name = "test.cu", .architecture = rows[i].architecture};
        CHECK_OK(fa_nvrtc_compile(&request, &cubin, &log, &diag), diag);
        CHECK_OK(read_copy(cubin.data, cubin.size, "clean"), diag);
        CHECK_INT(info.sm, rows[i].sm);
        CHECK(info.registers >= 8 && info.registers <= 40);
        CHECK_INT(info.stack_bytes, 0);
        CHECK_INT(info.static_smem_bytes, 1024);
        CHECK_INT(info.max_threads, 128);
        CHECK_INT(info.parameter_bytes, 24);
        CHECK_INT(info.parameter_count, 1);
        CHECK_INT(info.parameter_size[0], 24);
        CHECK_INT(info.parameter_size[1], 0);
        memset(boxes, 0, sizeof boxes); /* no kernel uses it */
        CHECK_OK(constant_copy(cubin.data, cubin.size), diag);
        CHECK(memcmp(boxes, wanted_boxes, sizeof boxes) == 0);
        CHECK_OK(read_copy(cubin.data, cubin.size, "spills"), diag);
        CHECK(info.stack_bytes >= 256);
        CHECK_INT(info.parameter_count, 4);
        CHECK_INT(info.parameter_size[1], 8);
        CHECK_INT(info.static_smem_bytes, 0);
        CHECK_INT(info.max_threads, 0);
        CHECK(survives_damage(cubin.data, cubin.size, "clean", 2000));
    }
}

/* What a compiler was told beside the code, as in NVRTC's cubins of two hints. */
TEST(code_is_equal_where_only_names_differ)
{
    static const char told[] =
        "extern \"C\" __device__ const char told[] = \"fa_tune_config=%s\";\n"
        "extern \"C\" __global__ void __launch_bounds__(128, %d) f(float *a, int n)\n"
        "{ a[threadIdx.x] = (float)(%s); }\n";
    static const struct {
        const char *name, *value;
        int blocks;
    } rows[] = {{"a", "n", 1}, {"b", "n", 2}, {"a", "n + 1", 1}};
    fa_nvrtc_location location;
    char code[3][FA_HASH_HEX], wanted[FA_HASH_HEX];
    if (fa_nvrtc_locate(&location, &diag) != 0)
        SKIP("no NVRTC");
    CHECK_OK(fa_nvrtc_open(&location, &diag), diag);
    for (int i = 0; i < 3; i++) {
        fa_buf cubin = {0}, log = {0};
        char source[512];
        snprintf(source, sizeof source, told, rows[i].name, rows[i].blocks, rows[i].value);
        fa_compile_request request = {.source = source, .name = "test.cu", .architecture = "sm_89"};
        CHECK_OK(fa_nvrtc_compile(&request, &cubin, &log, &diag), diag);
        CHECK_OK(fa_cubin_code(cubin.data, cubin.size, "f", code[i], &diag), diag);
        CHECK_INT(fa_cubin_code(cubin.data, cubin.size, "g", wanted, &diag), FA_ENOTFOUND);
        for (size_t size = 0; size < cubin.size; size += 61) {
            unsigned char *cut = copied(cubin.data, size);
            fa_cubin_code(cut, size, "f", wanted, NULL); /* refused or not: read in bounds */
            free(cut);
        }
        fa_buf_free(&cubin);
        fa_buf_free(&log);
    }
    CHECK_TEXT(code[0], code[1]);
    CHECK(strcmp(code[0], code[2]) != 0);
}
