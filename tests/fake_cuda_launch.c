/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules, functions and launches of the fake CUDA driver.
 */
#include "fake_cuda_emulated.h"
#include "fake_cuda_state.h"

#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 1024 };

void fake_free_module(struct module **link)
{
    struct module *m = *link;
    *link = m->next;
    for (int i = 0; i < m->function_count; i++) {
        m->functions[i]->next = fake.dead;
        fake.dead = m->functions[i];
    }
    for (struct block **b = &fake.blocks; *b != NULL;) {
        int i = 0;
        while (i < m->variable_count && m->variables[i].block != *b)
            i++;
        if (i < m->variable_count)
            fake_free_block(b);
        else
            b = &(*b)->next;
    }
    fa_expr_free(&m->build.score.expr);
    fa_expr_free(&m->build.mask.expr);
    free(m->image);
    free(m);
}

/* ---- modules ---------------------------------------------------------------------------------*/

/* An ELF file tells its size by its headers: the driver gets no other. 0: not a cubin. */
static size_t image_size(const void *image)
{
    Elf64_Ehdr h;
    memcpy(&h, image, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_machine != EM_CUDA)
        return 0;
    size_t size = h.e_shoff + (size_t)h.e_shnum * sizeof(Elf64_Shdr);
    size_t segments = h.e_phoff + (size_t)h.e_phnum * sizeof(Elf64_Phdr);
    size = segments > size ? segments : size;
    for (size_t i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        memcpy(&s, (const char *)image + h.e_shoff + i * sizeof s, sizeof s);
        if (s.sh_type != SHT_NOBITS && s.sh_offset + s.sh_size > size)
            size = s.sh_offset + s.sh_size;
    }
    return size;
}

static int image_sm(const void *image)
{
    Elf64_Ehdr h;
    memcpy(&h, image, sizeof h);
    return (int)((h.e_ident[EI_ABIVERSION] == 8 ? h.e_flags >> 8 : h.e_flags) & 0xff);
}

static bool marker_value(const char *marker, const char *name, int *ret)
{
    const char *at = strstr(marker, name);
    if (at == NULL)
        return false;
    *ret = atoi(at + strlen(name));
    return true;
}

static void read_snippet(struct module *m, const char *name, bool mask, struct snippet *ret)
{
    const char *at = strstr(m->marker, name), *text = at != NULL ? at + strlen(name) : ";";
    char *copy = strndup(text, strcspn(text, ";"));
    if (copy != NULL && strlen(copy) > 1)
        *ret = snippet_read(copy, m->build.buffers, mask);
    m->build.serving |= ret->expr != NULL;
    free(copy);
}

static void read_marker(struct module *m)
{
    static const char start[] = "fa_tune_config=";
    const char *at = memmem(m->image, m->size, start, sizeof start - 1);
    if (at == NULL)
        return;
    at += sizeof start - 1;
    size_t left = m->size - (size_t)(at - (const char *)m->image);
    snprintf(m->marker, sizeof m->marker, "%.*s", (int)strnlen(at, left < MARKER ? left : MARKER),
             at);
    if (marker_value(m->marker, "COLUMNS=", &m->build.columns)) {
        marker_value(m->marker, "PARTS=", &m->build.parts);
        m->built = marker_value(m->marker, "DTYPE_BF16=", &m->build.bf16);
        return;
    }
    if (strstr(m->marker, "HEAD_DIM=") == NULL) { /* a specification's, or checks alone */
        marker_value(m->marker, "fw=", &m->build.filter_w);
        marker_value(m->marker, "fh=", &m->build.filter_h);
        marker_value(m->marker, "BLOCKS=", &m->build.blocks);
        m->built = true;
        return;
    }
    const struct {
        const char *name;
        int *value;
    } features[] = {{"VARLEN_Q=", &m->build.varlen},      {"VARLEN=", &m->build.varlen},
                    {"LENGTHS_K=", &m->build.lengths_k},  {"PAGE_SIZE=", &m->build.page},
                    {"WINDOW=", &m->build.window},        {"SOFTCAP=", &m->build.softcap},
                    {"SINKS=", &m->build.sinks},          {"KV_FP8=", &m->build.fp8},
                    {"Q_FP8=", &m->build.q_fp8},          {"D_LSE=", &m->build.d_lse},
                    {"HEAD_DIM_V=", &m->build.head_dim_v}};
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (marker_value(m->marker, features[i].name, features[i].value) && *features[i].value != 0)
            m->build.serving = 1;
    const char *buffers = strstr(m->marker, ";BUFFERS=");
    if (buffers != NULL && buffers[9] != '0')
        m->build.serving |= snprintf(m->build.buffers, sizeof m->build.buffers, "%.*s",
                                     (int)strcspn(buffers + 9, ";"), buffers + 9) > 0;
    read_snippet(m, "SCORE_SNIPPET=", false, &m->build.score);
    read_snippet(m, "MASK_SNIPPET=", true, &m->build.mask);
    m->built = marker_value(m->marker, "HEAD_DIM=", &m->build.head_dim) &&
               marker_value(m->marker, "DTYPE_BF16=", &m->build.bf16) &&
               marker_value(m->marker, "CAUSAL=", &m->build.causal) && m->build.head_dim >= 8 &&
               m->build.head_dim <= 576;
}

CUDA cuModuleLoadData(struct module **ret, const void *image)
{
    ENTER;
    if (fake.capturing)
        return FAKE_CAPTURE_UNSUPPORTED;
    const struct fake_device *device = &fake.script.device[fake_current()->device];
    size_t size = image_size(image);
    if (size == 0)
        return FAKE_INVALID_IMAGE;
    int sm = image_sm(image);
    if (sm / 10 != device->gpu.sm / 10 || sm > device->gpu.sm)
        return FAKE_NO_BINARY;
    struct module *m = calloc(1, sizeof *m);
    if (m == NULL || (m->image = malloc(size)) == NULL) {
        free(m);
        return FAKE_OUT_OF_MEMORY;
    }
    memcpy(m->image, image, size);
    m->size = size;
    m->device = fake_current()->device;
    read_marker(m);
    fake_note("load %s", m->marker);
    if (fake_script_fault(&fake.script, m->marker, FAKE_LOAD_FAILURE)) {
        free(m->image);
        free(m);
        return FAKE_INVALID_IMAGE;
    }
    m->next = fake.modules;
    fake.modules = m;
    *ret = m;
    return FAKE_OK;
}

CUDA cuModuleUnload(struct module *module)
{
    ENTER;
    for (struct module **link = &fake.modules; *link != NULL; link = &(*link)->next) {
        if (*link != module)
            continue;
        fake_free_module(link);
        return FAKE_OK;
    }
    return FAKE_INVALID_HANDLE;
}

/* The entry that a symbol of C++ linkage stands for: the last name in it; other symbols are entries themselves. */
static const char *entry_of(const char *symbol, char room[ENTRY])
{
    for (size_t i = 0, n = strlen(symbol); symbol[0] == '_' && i < n; i++)
        for (size_t size = 1; i + size <= n && size < ENTRY; size++) {
            snprintf(room, ENTRY, "%.*s", (int)size, symbol + i);
            if (fa_cubin_is_called(symbol, room))
                return room;
        }
    return symbol;
}

/* By a symbol alone, as the driver. */
static bool has_symbol(const struct module *m, const char *symbol)
{
    char section[FAKE_TEXT];
    size_t size = (size_t)snprintf(section, sizeof section, ".nv.info.%s", symbol) + 1;
    return size <= sizeof section && memmem(m->image, m->size, section, size) != NULL;
}

CUDA cuModuleGetFunction(struct function **ret, struct module *m, const char *symbol)
{
    ENTER;
    fa_cubin_info info;
    char room[ENTRY];
    const char *entry = entry_of(symbol, room);
    if (!has_symbol(m, symbol))
        return FAKE_NOT_FOUND;
    for (int i = 0; i < m->function_count; i++) {
        if (strcmp(m->functions[i]->entry, entry) == 0) {
            *ret = m->functions[i];
            return FAKE_OK;
        }
    }
    if (!fake_kernel_known(entry) || !m->built || m->function_count == FUNCTIONS ||
        fa_cubin_read(m->image, m->size, symbol, &info, NULL) != 0) {
        fake_note("no function %s in %s", entry, m->marker);
        return FAKE_NOT_FOUND;
    }
    struct function *f = calloc(1, sizeof *f);
    if (f == NULL)
        return FAKE_OUT_OF_MEMORY;
    *f = (struct function){.module = m, .info = info, .allowed_smem = 49152};
    snprintf(f->entry, sizeof f->entry, "%s", entry);
    m->functions[m->function_count++] = f;
    *ret = f;
    return FAKE_OK;
}

CUDA cuModuleGetGlobal_v2(uint64_t *ret, size_t *ret_size, struct module *m, const char *symbol)
{
    ENTER;
    char room[ENTRY];
    const char *name = entry_of(symbol, room);
    uint64_t size = 0;
    int i = 0;
    if (memmem(m->image, m->size, symbol, strlen(symbol) + 1) == NULL ||
        fa_cubin_variable(m->image, m->size, name, &size, NULL) != 0)
        return FAKE_NOT_FOUND;
    while (i < m->variable_count && strcmp(m->variables[i].name, name) != 0)
        i++;
    if (i == m->variable_count) {
        struct block *block = i < VARIABLES ? fake_make_block(size) : NULL;
        if (block == NULL)
            return FAKE_OUT_OF_MEMORY;
        snprintf(m->variables[i].name, sizeof m->variables[i].name, "%s", name);
        m->variables[i].block = block;
        m->build.variable = block->address;
        m->variable_count++;
    }
    *ret = m->variables[i].block->address;
    *ret_size = size;
    return FAKE_OK;
}

CUDA cuFuncSetAttribute(struct function *f, int attribute, int value)
{
    ENTER;
    int most = fake.script.device[f->module->device].gpu.smem_per_block;
    if (attribute != 8 || value < 0 || value + f->info.static_smem_bytes > most)
        return FAKE_INVALID_VALUE;
    f->allowed_smem = value;
    return FAKE_OK;
}

CUDA cuFuncGetAttribute(int *ret_value, int attribute, struct function *f)
{
    ENTER;
    *ret_value = attribute == 8 ? f->allowed_smem : f->info.static_smem_bytes;
    return attribute == 8 || attribute == 1 ? FAKE_OK : FAKE_INVALID_VALUE;
}

static int most_threads(const struct function *f)
{
    int by_registers = 65536 / (f->info.registers * 32) * 32;
    int most = f->info.max_threads > 0 ? f->info.max_threads : MAX_THREADS;
    return by_registers < most ? by_registers : most;
}

/* ---- launches --------------------------------------------------------------------------------*/

static bool strikes(const struct module *m, enum fake_fault_kind kind)
{
    return fake_script_fault(&fake.script, m->marker, kind);
}

/* Faults that end the launch; FAKE_OK: run it. The sticky ones let the launch itself succeed. */
static int launch_fault(const struct module *m, bool *ret_run)
{
    *ret_run = false;
    if (strikes(m, FAKE_LAUNCH_FAILURE))
        return FAKE_OUT_OF_RESOURCES;
    if (strikes(m, FAKE_FAULT_OUT_OF_MEMORY))
        return FAKE_OUT_OF_MEMORY;
    if (strikes(m, FAKE_CRASH)) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strikes(m, FAKE_FAULT_ILLEGAL_ADDRESS)) {
        fake.sticky = FAKE_ILLEGAL_ADDRESS;
        return FAKE_OK;
    }
    if (strikes(m, FAKE_FAULT_ECC)) {
        fake.sticky = FAKE_UNCORRECTABLE;
        return FAKE_OK;
    }
    if (strikes(m, FAKE_HANG)) {
        fake.hanging = true;
        return FAKE_OK;
    }
    *ret_run = true;
    return FAKE_OK;
}

/* Where and how large a launch is. */
struct shape {
    unsigned grid[3], threads, smem;
};

static int launch_candidate(struct function *f, const struct shape *shape,
                            const struct handle *stream, void **arguments)
{
    struct module *m = f->module;
    char emulated[FAKE_TEXT];
    bool run;
    int result = fake_check_maps(f, arguments);
    if (result != FAKE_OK)
        return result;
    result = launch_fault(m, &run);
    if (result != FAKE_OK || !run || !fake_counters_are_zero(f, stream, arguments))
        return result;
    uint64_t number = m->launches++;
    struct fake_damage damage = {
        .wrong = strikes(m, FAKE_WRONG) || (number % 3 == 2 && strikes(m, FAKE_FLAKY)),
        .nan = strikes(m, FAKE_NAN),
        .unwritten = strikes(m, FAKE_UNWRITTEN),
        .overrun = strikes(m, FAKE_OVERRUN),
        .underrun = strikes(m, FAKE_UNDERRUN),
        .spoil = strikes(m, FAKE_SPOIL),
        .one_bit = strikes(m, FAKE_ONE_BIT),
    };
    fake.clock_us += fake_script_time(&fake.script, m->marker, number, fake.clock_us);
    const bool is_emulated = fake_emulated_path(m->marker, emulated);
    bool right = is_emulated ? fake_emulated_run(emulated, f->entry, shape->grid, shape->threads,
                                                 shape->smem, arguments)
                             : fake_kernel_run(f->entry, &m->build, arguments, &damage);
    if (!right && is_emulated && getenv("EMULATOR_CHANGE") != NULL)
        return FAKE_OUT_OF_RESOURCES; /* a test that plants faults goes on in this context */
    if (!right)
        fake.sticky = FAKE_ILLEGAL_ADDRESS;
    return FAKE_OK;
}

/* Whether it is a function of a module that is loaded. */
static bool function_lives(const struct function *f)
{
    for (const struct module *m = fake.modules; m != NULL; m = m->next)
        for (int i = 0; i < m->function_count; i++)
            if (m->functions[i] == f)
                return true;
    return false;
}

static int launch(struct function *f, const unsigned grid[3], const unsigned block[3],
                  unsigned smem, void *stream, void **arguments, void **extra)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!function_lives(f))
        return FAKE_INVALID_HANDLE;
    if (extra != NULL || arguments == NULL || grid[0] == 0 || grid[1] == 0 || grid[2] == 0 ||
        grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535 || threads == 0 ||
        threads > MAX_THREADS || smem > (unsigned)f->allowed_smem)
        return FAKE_INVALID_VALUE;
    fake_note("launch %s %s of %ux%ux%u, %llu threads, %u B", f->entry, f->module->marker, grid[0],
              grid[1], grid[2], (unsigned long long)threads, smem);
    if (threads > (uint64_t)most_threads(f))
        return FAKE_OUT_OF_RESOURCES;
    if (fake_kernel_is_tuned(f->entry))
        return launch_candidate(
            f, &(struct shape){{grid[0], grid[1], grid[2]}, (unsigned)threads, smem}, stream,
            arguments);
    fake.clock_us += 5;
    if (!fake_kernel_run(f->entry, &f->module->build, arguments, NULL))
        fake.sticky = FAKE_ILLEGAL_ADDRESS;
    return FAKE_OK;
}

CUDA cuLaunchKernel(struct function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem,
                    void *stream, void **arguments, void **extra)
{
    ENTER;
    return launch(f, (const unsigned[]){grid_x, grid_y, grid_z},
                  (const unsigned[]){block_x, block_y, block_z}, smem, stream, arguments, extra);
}

/* CU_LAUNCH_ATTRIBUTE_COOPERATIVE, of 32 blocks for each SM, and CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, for which no kernel here begins early. */
struct launch_config {
    unsigned grid[3], block[3], smem;
    void *stream;
    const struct {
        int id, pad;
        union {
            uint64_t room[8];
            int on;
        } value;
    } * attribute;
    unsigned attributes;
};

CUDA cuLaunchKernelEx(const struct launch_config *config, struct function *f, void **arguments,
                      void **extra)
{
    ENTER;
    const uint64_t all = (uint64_t)config->grid[0] * config->grid[1] * config->grid[2];
    if (config->attributes != 1 || (config->attribute->id != 2 && config->attribute->id != 6))
        return FAKE_INVALID_VALUE;
    if (config->attribute->id == 6)
        fake_note("programmatic");
    else if (all > 32 * (uint64_t)fake.script.device[fake_current()->device].gpu.sm_count)
        return FAKE_COOPERATIVE_TOO_LARGE;
    else
        fake_note("cooperative, %u blocks", config->grid[0]);
    return launch(f, config->grid, config->block, config->smem, config->stream, arguments, extra);
}
