/* SPDX-License-Identifier: Apache-2.0
 *
 * What the speed of attn_fwd_sm90a relies on, read out of its cubins without a GPU and without a
 * disassembler: no warning of the assembler, no spills, the registers of its launch bounds; and in the
 * loop over the keys, whatever the compiler's version, descriptors that stay in uniform registers and
 * exponentials that run before the wait for P V. And what these kernels read out of the size of their shared memory, for
 * every config: a kernel that reads another layout ends in a trap.
 *
 * An instruction of sm_90 has 16 bytes; its low 12 bits are the opcode (as nvdisasm 13.0 prints them).
 */
#include "check.h"

#include "attn_fixture.h"
#include "cubin.h"

#include <elf.h>

enum {
    R2UR = 0x2ca,
    MUFU = 0x308,
    WARPGROUP = 0x9c5, /* its bit 47: DEPBAR, else ARRIVE */
    BRANCH = 0x947,
    HGMMA_SHARED = 0x9f0, /* A in shared memory: Q K^T */
    HGMMA_REGISTERS = 0xdf0,
    INSTRUCTION = 16
};

#define DENSE "attn_fwd_sm90a"
#define PREFILL "attn_fwd_prefill_sm90a"

struct kernel {
    fa_buf cubin, log;
    fa_cubin_info info;
    int32_t threads;
};

/* A family's default config for a problem on an H200, compiled. */
static int build(const char *family, int32_t head_dim, fa_causal causal, bool softcap,
                 struct kernel *k, fa_diag *diag)
{
    struct fixture f;
    fa_candidate candidate;
    fa_gpu gpu;
    FA_ENDS(fa_buf_free) fa_buf source = {0};
    fa_problem problem = {.head_dim = head_dim,
                          .causal = causal,
                          .batch = 4,
                          .heads_q = 16,
                          .heads_kv = 16,
                          .seq_q = 4096,
                          .seq_k = 4096,
                          .varlen = strcmp(family, PREFILL) == 0,
                          .softcap = softcap};
    problem.lengths_k = problem.varlen ? FA_LENGTHS_CU_SEQLENS : FA_LENGTHS_FIXED;
    int rc = fixture_open(&f, diag);
    if (rc == 0)
        rc = fa_catalogue_find("H200", &gpu, diag);
    if (rc == 0)
        rc = fixture_nvrtc(diag);
    if (rc == 0)
        rc = fixture_pick(&f, family, &problem, &gpu, true, 0, &candidate, diag);
    if (rc == 0)
        rc = fa_render(f.templates, &(fa_task){&f.families, &problem, &gpu}, &candidate, &source,
                       diag);
    const fa_compile_request request = fixture_request(&f, "hopper.cu", &source, "sm_90a");
    if (rc == 0)
        rc = fa_nvrtc_compile(&request, &k->cubin, &k->log, diag);
    if (rc == 0)
        rc = fa_cubin_read(k->cubin.data, k->cubin.size, "attn_fwd", &k->info, diag);
    k->threads = candidate.trial.threads;
    fixture_close(&f);
    return rc;
}

/* The instructions of the kernel; the cubin has been read, so its tables lie inside. */
static const uint64_t *instructions(const struct kernel *k, int *ret_count)
{
    const Elf64_Ehdr *elf = (const void *)k->cubin.data;
    const Elf64_Shdr *section = (const void *)(k->cubin.data + elf->e_shoff);
    const char *names = k->cubin.data + section[elf->e_shstrndx].sh_offset;
    for (int i = 0; i < elf->e_shnum; i++)
        if (strcmp(names + section[i].sh_name, ".text.attn_fwd") == 0) {
            *ret_count = (int)(section[i].sh_size / INSTRUCTION);
            return (const void *)(k->cubin.data + section[i].sh_offset);
        }
    *ret_count = 0;
    return NULL;
}

static int opcode(const uint64_t *code, int at)
{
    return (int)(code[2 * at] & 0xfff);
}

/* Where a branch leads: bits 16..23 and 34.. of its word, in units of 4 bytes. */
static int target(const uint64_t *code, int at)
{
    int64_t high = (int64_t)code[2 * at] >> 34;
    int64_t offset = (int64_t)((uint64_t)high << 8 | (code[2 * at] >> 16 & 0xff)) * 4;
    return at + 1 + (int)(offset / INSTRUCTION);
}

static int count(const uint64_t *code, int from, int to, int wanted)
{
    int found = 0;
    for (int i = from; i < to; i++)
        found += opcode(code, i) == wanted;
    return found;
}

/* The shortest loop that multiplies with operands of both kinds: a step of the keys. */
static bool find_step(const uint64_t *code, int size, int *ret_from, int *ret_to)
{
    int best = size;
    for (int i = 0; i < size; i++) {
        int from = opcode(code, i) == BRANCH ? target(code, i) : i + 1;
        if (from < 0 || from > i || i - from >= best || count(code, from, i, HGMMA_SHARED) == 0 ||
            count(code, from, i, HGMMA_REGISTERS) == 0)
            continue;
        best = i - from;
        *ret_from = from;
        *ret_to = i + 1;
    }
    return best < size;
}

/* What is not as it must be; "": nothing. q_k, p_v: the products of a step. */
static const char *fault_of(const struct kernel *k, const uint64_t *code, int size, int q_k,
                            int p_v)
{
    int from = 0, to = 0, last_wait = 0;
    if (k->log.data != NULL && strstr(k->log.data, "(C75") != NULL)
        return "the assembler gave something up";
    if (k->info.stack_bytes != 0 || k->info.registers != 65536 / k->threads / 8 * 8)
        return "spills, or other registers than the launch bounds give";
    if (!find_step(code, size, &from, &to))
        return "no loop over the keys";
    if (count(code, from, to, HGMMA_SHARED) != q_k || count(code, from, to, HGMMA_REGISTERS) != p_v)
        return "other products than a step has";
    if (count(code, from, to, R2UR) != 0)
        return "a descriptor comes out of a register";
    for (int i = from; i < to; i++) /* a wait has this bit */
        if (opcode(code, i) == WARPGROUP && (code[2 * i] >> 47 & 1) != 0)
            last_wait = i;
    if (last_wait <= from || count(code, from, last_wait, MUFU) < 32)
        return "few exponentials before the wait";
    return count(code, last_wait, to, MUFU) == 0 ? "" : "exponentials behind the wait";
}

static void check_kernel(const char *family, int32_t head_dim, fa_causal causal, bool softcap,
                         int q_k, int p_v)
{
    struct kernel k = {.threads = 1};
    fa_diag diag = {{0}};
    int rc = build(family, head_dim, causal, softcap, &k, &diag), size = 0;
    if (rc == FA_ENOTFOUND && k.cubin.data == NULL)
        SKIP(diag.text);
    CHECK_OK(rc, diag);
    const uint64_t *code = instructions(&k, &size);
    CHECK(code != NULL);
    CHECK_TEXT(fault_of(&k, code, size, q_k, p_v), "");
    fa_buf_free(&k.cubin);
    fa_buf_free(&k.log);
}

/* The products of a step: head_dim / 16 for Q K^T, keys of the default config / 16 for P V. */
TEST(the_step_of_head_dim_64_is_lean)
{
    check_kernel(DENSE, 64, FA_CAUSAL_NONE, false, 4, 8);
}

TEST(the_causal_step_of_head_dim_128_is_lean)
{
    check_kernel(DENSE, 128, FA_CAUSAL_TOP_LEFT, false, 8, 8);
}

TEST(the_causal_step_of_head_dim_256_is_lean)
{
    if (getenv("FA_TEST_SLOW") == NULL)
        SKIP("only with --slow: it compiles for two seconds");
    check_kernel(DENSE, 256, FA_CAUSAL_TOP_LEFT, false, 16, 4);
}

TEST(the_step_of_sequences_of_their_own_lengths_is_lean)
{
    if (getenv("FA_TEST_SLOW") == NULL)
        SKIP("only with --slow: it compiles for two seconds");
    check_kernel(PREFILL, 128, FA_CAUSAL_BOTTOM_RIGHT, false, 8, 8);
}

TEST(the_step_of_a_softcap_at_head_dim_256_is_lean)
{
    check_kernel(PREFILL, 256, FA_CAUSAL_BOTTOM_RIGHT, true, 16, 4);
}

static int32_t value_of(const fa_candidate *candidate, const char *name, int32_t preset)
{
    const fa_config *config = &candidate->trial.config;
    for (int i = 0; i < config->count; i++)
        if (strcmp(config->tunable[i].name, name) == 0)
            return config->tunable[i].value;
    for (int i = 0; i < candidate->let_count; i++)
        if (strcmp(candidate->let[i].name, name) == 0)
            return candidate->let[i].value;
    return preset;
}

/* As Shared of attn_wgmma.cuh takes a size apart. */
static bool size_tells(const fa_candidate *c)
{
    int32_t size = c->trial.smem_bytes, head = value_of(c, "D_TILE", 0);
    int32_t values = value_of(c, "DV_TILE", head), rows = value_of(c, "BLOCK_M", 0);
    int32_t stages = (size >> 8 & 3) + 1, parts = (size >> 7 & 1) + 1, slabs = (size >> 4 & 3) + 1;
    int32_t inputs =
        stages * value_of(c, "BLOCK_N", 0) * (head + values) * 2 + parts * rows * head * 2;
    int32_t output = slabs * rows * value_of(c, "SLAB", 0) * 2;
    return stages == value_of(c, "STAGES", 0) && parts == value_of(c, "Q_STAGES", 0) &&
           (size >> 6 & 1) == value_of(c, "PINGPONG", 0) && (size & 1023) >= 256 &&
           inputs + output == (size & ~1023) - value_of(c, "WORK_BYTES", 0);
}

TEST(the_size_of_shared_memory_tells_every_config)
{
    static const int32_t heads[][3] = {
        {8, 0},      {64, 0},   {80, 0},   {128, 0},     {192, 0},     {256, 0},       {80, 256}, {24, 192},
        {192, 128},  {64, 256}, {256, 96}, {128, 32},    {32, 0, 1},   {64, 0, 1},     {80, 0, 1},
        {128, 0, 1}, {192, 0, 1}, {256, 0, 1}, {192, 128, 1}, {64, 256, 1}}; /* 1: of fp8 keys */
    struct fixture f;
    fa_gpu gpu;
    fa_diag diag = {{0}};
    int seen = 0, of_fp8 = 0;
    CHECK_OK(fixture_open(&f, &diag), diag);
    CHECK_OK(fa_catalogue_find("H200", &gpu, &diag), diag);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        fa_space space = {0};
        fa_problem problem = some_problem();
        problem.head_dim = heads[i][0], problem.head_dim_v = heads[i][1];
        problem.kv_dtype = (fa_kv_dtype)heads[i][2];
        CHECK_OK(fa_space_enumerate(&(fa_task){&f.families, &problem, &gpu}, &space, &diag), diag);
        for (int j = 0; j < space.count; j++) {
            const fa_candidate *c = &space.candidate[j];
            char text[FA_CONFIG_TEXT_MAX] = "";
            if (c->trial.status != FA_STATUS_PENDING ||
                strstr(c->trial.config.family, "_sm90a") == NULL)
                continue;
            fa_config_text(&c->trial.config, text);
            CHECK_TEXT(size_tells(c) ? "" : text, "");
            seen++;
            of_fp8 += problem.kv_dtype == FA_KV_FP8;
        }
        fa_space_free(&space);
    }
    CHECK(seen > 200 && of_fp8 > 50);
    fixture_close(&f);
}
