/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader of cubins: ELF64, little-endian, machine EM_CUDA, with NVIDIA's .nv.info sections.
 *
 * Workload: a few times per compiled candidate (10 to 300 KB), and on cubins from bundles of other
 * people.
 * Invariant: no byte is read before its range has been checked against the size of the file; the
 * file is never written to.
 *
 * .nv.info is a list of records {u8 format, u8 attribute, u16 value}; format 4 is followed by
 * `value` bytes of payload. The section ".nv.info" holds what is known per symbol (registers,
 * stack), ".nv.info.ENTRY" what belongs to one kernel (threads, parameters).
 */
#include "cubin.h"

#include "error.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum {
    ABI_FLAGS_LOW = 7,  /* CUDA 12 and older: the SM is in bits 0..7 of e_flags */
    ABI_FLAGS_HIGH = 8, /* CUDA 13: bits 8..15 */

    FORMAT_PAYLOAD = 4,
    ATTR_MAX_THREADS = 0x05, /* {u32 x, y, z} */
    ATTR_PARAMETERS = 0x0a,  /* {u32 symbol, u16 offset, u16 bytes} */
    ATTR_PARAMETER = 0x17,   /* {u32 0, u16 ordinal, u16 offset, u32 size << 18 | ...} */
    ATTR_FRAME = 0x11,       /* {u32 symbol, u32 bytes}: the function's own frame */
    ATTR_MIN_STACK = 0x12,   /* {u32 symbol, u32 bytes}: with the functions that it calls */
    ATTR_REGISTERS = 0x2f,   /* {u32 symbol, u32 registers} */

    SYMBOL_IS_KERNEL = 0x10, /* of st_other */

    MAX_REGISTERS = 255,
    MAX_THREADS = 1024,
    MAX_STACK = 512 * 1024,
    MAX_SHARED = 256 * 1024,
    SYSTEM_SHARED = 1024, /* the system's share of .nv.shared.ENTRY from sm_90 on */
};

/* The bytes of the file; `at` and `size` of a part are checked before it is made. */
struct span {
    const unsigned char *bytes;
    size_t size;
};

struct section {
    const char *name; /* NUL-terminated inside the file */
    uint32_t type;
    uint64_t size;     /* also of sections without bytes in the file */
    struct span bytes; /* empty for SHT_NOBITS */
    uint32_t link;
};

struct symbols {
    struct span bytes, names;
    size_t count;
};

struct elf {
    struct span file;
    size_t table; /* offset of the section headers */
    uint32_t section_count;
    struct span names;
    struct symbols symbols;
    int32_t sm;
};

static uint32_t read_u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t read_u32(const unsigned char *p)
{
    return read_u16(p) | read_u16(p + 2) << 16;
}

static uint64_t read_u64(const unsigned char *p)
{
    return (uint64_t)read_u32(p) | (uint64_t)read_u32(p + 4) << 32;
}

static bool part(struct span whole, uint64_t at, uint64_t size, struct span *ret)
{
    if (at > whole.size || size > whole.size - at)
        return false;
    *ret = (struct span){whole.bytes + at, (size_t)size};
    return true;
}

/* The string at `at` of a string table, or NULL when it does not end inside the table. */
static const char *string_at(struct span table, uint32_t at)
{
    if (at >= table.size || memchr(table.bytes + at, 0, table.size - at) == NULL)
        return NULL;
    return (const char *)table.bytes + at;
}

static bool section_at(const struct elf *elf, uint32_t index, struct section *ret)
{
    if (index >= elf->section_count)
        return false;
    const unsigned char *h = elf->file.bytes + elf->table + (size_t)index * sizeof(Elf64_Shdr);
    struct section s = {.type = read_u32(h + offsetof(Elf64_Shdr, sh_type)),
                        .size = read_u64(h + offsetof(Elf64_Shdr, sh_size)),
                        .link = read_u32(h + offsetof(Elf64_Shdr, sh_link))};
    uint64_t offset = read_u64(h + offsetof(Elf64_Shdr, sh_offset));
    if (s.type != SHT_NOBITS && s.type != SHT_NULL && !part(elf->file, offset, s.size, &s.bytes))
        return false;
    s.name = elf->names.bytes == NULL
                 ? ""
                 : string_at(elf->names, read_u32(h + offsetof(Elf64_Shdr, sh_name)));
    if (s.name == NULL)
        return false;
    *ret = s;
    return true;
}

/* The first section called prefix + suffix. */
static bool find_section(const struct elf *elf, const char *prefix, const char *suffix,
                         struct section *ret)
{
    size_t length = strlen(prefix);
    for (uint32_t i = 1; i < elf->section_count; i++) {
        struct section s;
        if (section_at(elf, i, &s) && strncmp(s.name, prefix, length) == 0 &&
            strcmp(s.name + length, suffix) == 0) {
            *ret = s;
            return true;
        }
    }
    return false;
}

static int open_cubin(const void *bytes, size_t size, struct elf *ret, fa_diag *diag)
{
    const unsigned char *h = bytes;
    const struct span file = {bytes, size};
    if (h == NULL || file.size < sizeof(Elf64_Ehdr) || memcmp(h, ELFMAG, SELFMAG) != 0)
        return fa_fail(diag, FA_ECORRUPT, "not a cubin: %zu bytes that do not start as ELF",
                       file.size);
    uint32_t machine = read_u16(h + offsetof(Elf64_Ehdr, e_machine));
    if (h[EI_CLASS] != ELFCLASS64 || h[EI_DATA] != ELFDATA2LSB || machine != EM_CUDA)
        return fa_fail(diag, FA_ECORRUPT, "not a cubin: an ELF file for machine %u, not CUDA",
                       machine);
    uint32_t flags = read_u32(h + offsetof(Elf64_Ehdr, e_flags));
    int abi = h[EI_ABIVERSION];
    if (abi != ABI_FLAGS_LOW && abi != ABI_FLAGS_HIGH)
        return fa_fail(diag, FA_ECORRUPT, "cubin has ELF ABI version %d: versions 7 (CUDA 12) and "
                       "8 (CUDA 13) are known", abi);
    int32_t sm = (int32_t)((abi == ABI_FLAGS_LOW ? flags : flags >> 8) & 0xff);
    if (sm < 30)
        return fa_fail(diag, FA_ECORRUPT, "cubin names the impossible architecture sm_%d", sm);

    struct elf elf = {.file = file, .sm = sm};
    uint64_t table = read_u64(h + offsetof(Elf64_Ehdr, e_shoff));
    uint32_t entry_size = read_u16(h + offsetof(Elf64_Ehdr, e_shentsize));
    uint32_t names_index = read_u16(h + offsetof(Elf64_Ehdr, e_shstrndx));
    elf.section_count = read_u16(h + offsetof(Elf64_Ehdr, e_shnum));
    struct span headers;
    struct section names, symbols;
    if (elf.section_count == 0 || entry_size != sizeof(Elf64_Shdr) ||
        !part(file, table, (uint64_t)elf.section_count * sizeof(Elf64_Shdr), &headers))
        return fa_fail(diag, FA_ECORRUPT, "cubin of %zu bytes is truncated: its section table lies "
                       "outside", file.size);
    elf.table = (size_t)table;
    if (!section_at(&elf, names_index, &names) || names.type != SHT_STRTAB)
        return fa_fail(diag, FA_ECORRUPT, "cubin has no table of section names");
    elf.names = names.bytes;
    if (!find_section(&elf, ".symtab", "", &symbols) || symbols.type != SHT_SYMTAB ||
        !section_at(&elf, symbols.link, &names) || names.type != SHT_STRTAB)
        return fa_fail(diag, FA_ECORRUPT, "cubin has no symbol table");
    elf.symbols =
        (struct symbols){symbols.bytes, names.bytes, symbols.bytes.size / sizeof(Elf64_Sym)};
    *ret = elf;
    return 0;
}

/* ---- symbols ---------------------------------------------------------------------------------*/
struct symbol {
    const char *name; /* NULL: it has none */
    int type;
    bool kernel;
    uint32_t index; /* per-symbol records name it by that */
    uint32_t section;
    uint64_t value, size;
};

static struct symbol symbol_at(const struct elf *elf, size_t i)
{
    const unsigned char *s = elf->symbols.bytes.bytes + i * sizeof(Elf64_Sym);
    const int type = ELF64_ST_TYPE(s[offsetof(Elf64_Sym, st_info)]);
    return (struct symbol){
        .name = string_at(elf->symbols.names, read_u32(s + offsetof(Elf64_Sym, st_name))),
        .type = type,
        .kernel = type == STT_FUNC && (s[offsetof(Elf64_Sym, st_other)] & SYMBOL_IS_KERNEL) != 0,
        .index = (uint32_t)i,
        .section = read_u16(s + offsetof(Elf64_Sym, st_shndx)),
        .value = read_u64(s + offsetof(Elf64_Sym, st_value)),
        .size = read_u64(s + offsetof(Elf64_Sym, st_size))};
}

/* The first symbol of this name and type. */
static bool find_symbol(const struct elf *elf, const char *wanted, int type, struct symbol *ret)
{
    for (size_t i = 1; i < elf->symbols.count; i++) {
        *ret = symbol_at(elf, i);
        if (ret->type == type && ret->name != NULL && strcmp(ret->name, wanted) == 0)
            return true;
    }
    return false;
}

/* A name in the mangling of C++ (Itanium's) is "_Z", then, where it lies in namespaces, "N" and them, each name behind its
 * length, and "L" before what a file has for itself. The last of them counts. */
bool fa_cubin_is_called(const char *symbol, const char *entry)
{
    if (strncmp(symbol, "_Z", 2) != 0)
        return strcmp(symbol, entry) == 0;
    const char *base = symbol, *at = symbol + 2;
    size_t size = strlen(symbol);
    const bool nested = *at == 'N';
    for (at += nested; at == symbol + 2 + nested || nested; at = base + size) {
        char *end;
        at += *at == 'L';
        unsigned long length = isdigit((unsigned char)*at) ? strtoul(at, &end, 10) : 0;
        if (length == 0 || length > strlen(end))
            break;
        base = end;
        size = length;
    }
    return strlen(entry) == size && strncmp(base, entry, size) == 0;
}

int fa_cubin_mangled(const void *bytes, size_t size, fa_buf *ret_names, fa_diag *diag)
{
    struct elf elf;
    int rc = open_cubin(bytes, size, &elf, diag);
    for (size_t i = 1; rc == 0 && i < elf.symbols.count; i++) {
        const struct symbol symbol = symbol_at(&elf, i);
        if ((symbol.kernel || symbol.type == STT_OBJECT) && symbol.name != NULL &&
            strncmp(symbol.name, "_Z", 2) == 0)
            fa_buf_append(ret_names, symbol.name, strlen(symbol.name) + 1);
    }
    return rc == 0 && ret_names->failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a cubin")
                                        : rc;
}

/* The one kernel of C++ linkage, or the one variable, that is called so. FA_ENOTFOUND without a sentence. */
static int find_called(const struct elf *elf, bool kernel, const char *name, struct symbol *ret,
                       fa_diag *diag)
{
    *ret = (struct symbol){.name = NULL};
    for (size_t i = 1; i < elf->symbols.count; i++) {
        const struct symbol symbol = symbol_at(elf, i);
        bool right = kernel ? symbol.kernel : symbol.type == STT_OBJECT;
        if (!right || symbol.name == NULL || (kernel && strncmp(symbol.name, "_Z", 2) != 0) ||
            !fa_cubin_is_called(symbol.name, name))
            continue;
        if (ret->name != NULL)
            return fa_fail(diag, FA_ECORRUPT, "cubin has several %s %s, %.200s and %.200s: %s",
                           kernel ? "kernels" : "variables", name, ret->name, symbol.name,
                           kernel ? "let the source instantiate or overload it once"
                                  : "rename one");
        *ret = symbol;
    }
    return ret->name != NULL ? 0 : FA_ENOTFOUND;
}

/* The entry's symbol, whose name those of its sections end with. */
static int open_entry(const void *bytes, size_t size, const char *entry, struct elf *ret_elf,
                      struct symbol *ret, fa_diag *diag)
{
    struct section text;
    int rc = open_cubin(bytes, size, ret_elf, diag);
    if (rc == 0 && !find_symbol(ret_elf, entry, STT_FUNC, ret))
        rc = find_called(ret_elf, true, entry, ret, diag);
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, rc, "cubin has no entry \"%s\": declare it __global__", entry);
    if (rc != 0)
        return rc;
    if (!section_at(ret_elf, ret->section, &text) || strncmp(text.name, ".text.", 6) != 0 ||
        strcmp(text.name + 6, ret->name) != 0)
        return fa_fail(diag, FA_ECORRUPT, "cubin's symbol %s is not in its .text", entry);
    return 0;
}

int fa_cubin_constant(const void *bytes, size_t size, const char *name, void *ret_value,
                      size_t value_size, fa_diag *diag)
{
    struct elf elf;
    struct symbol symbol;
    struct section section;
    struct span value;
    FA_OR_RETURN(open_cubin(bytes, size, &elf, diag));
    if (!find_symbol(&elf, name, STT_OBJECT, &symbol))
        return FA_ENOTFOUND;
    if (symbol.size != value_size)
        return fa_fail(diag, FA_ECORRUPT, "cubin's constant %s has %llu bytes, not %zu", name,
                       (unsigned long long)symbol.size, value_size);
    /* In a file that is not relocatable, st_value is still the offset in the section: CUDA's
     * sections have no addresses of their own. */
    if (!section_at(&elf, symbol.section, &section) || section.type != SHT_PROGBITS ||
        !part(section.bytes, symbol.value, symbol.size, &value))
        return fa_fail(diag, FA_ECORRUPT, "cubin's constant %s lies outside its section", name);
    memcpy(ret_value, value.bytes, value.size);
    return 0;
}

int fa_cubin_variable(const void *bytes, size_t size, const char *name, uint64_t *ret_size,
                      fa_diag *diag)
{
    struct elf elf;
    struct symbol symbol;
    int rc = open_cubin(bytes, size, &elf, diag);
    if (rc == 0)
        rc = find_called(&elf, false, name, &symbol, diag);
    if (rc == 0)
        *ret_size = symbol.size;
    return rc != FA_ENOTFOUND
               ? rc
               : fa_fail(diag, FA_ENOTFOUND,
                         "cubin has no variable %s: declare it __constant__, outside the kernel",
                         name);
}

/* ---- what ptxas decided ----------------------------------------------------------------------*/
/* One record of .nv.info, and the walk over a section. */
struct record {
    uint32_t attribute;
    struct span payload;
};

/* False at the end of the section, where *at is its size, and before what is no whole record. */
static bool next_record(struct span section, size_t *at, struct record *ret)
{
    struct span head;
    if (!part(section, *at, 4, &head))
        return false;
    *ret = (struct record){.attribute = head.bytes[1]};
    if (head.bytes[0] == FORMAT_PAYLOAD &&
        !part(section, *at + 4, read_u16(head.bytes + 2), &ret->payload))
        return false;
    *at += 4 + ret->payload.size;
    return true;
}

static int read_symbol_info(struct span section, uint32_t symbol, fa_cubin_info *info,
                            fa_diag *diag)
{
    size_t at = 0;
    struct record record;
    uint32_t registers = 0, stack = 0;
    while (next_record(section, &at, &record)) {
        if (record.payload.size < 8 || read_u32(record.payload.bytes) != symbol)
            continue;
        uint32_t value = read_u32(record.payload.bytes + 4);
        if (record.attribute == ATTR_REGISTERS)
            registers = value;
        else if ((record.attribute == ATTR_FRAME || record.attribute == ATTR_MIN_STACK) &&
                 value > stack)
            stack = value;
    }
    if (at != section.size)
        return fa_fail(diag, FA_ECORRUPT, "cubin's .nv.info ends inside a record");
    if (registers == 0 || registers > MAX_REGISTERS)
        return fa_fail(diag, FA_ECORRUPT, "cubin says %u registers per thread: 1 to %d can be",
                       registers, MAX_REGISTERS);
    if (stack > MAX_STACK)
        return fa_fail(diag, FA_ECORRUPT, "cubin says %u bytes of stack per thread", stack);
    info->registers = (int32_t)registers;
    info->stack_bytes = (int32_t)stack;
    return 0;
}

static int read_kernel_info(struct span section, fa_cubin_info *info, fa_diag *diag)
{
    size_t at = 0;
    struct record record;
    while (next_record(section, &at, &record)) {
        const unsigned char *p = record.payload.bytes;
        if (record.attribute == ATTR_MAX_THREADS && record.payload.size >= 12) {
            uint64_t x = read_u32(p), y = read_u32(p + 4), z = read_u32(p + 8);
            if (x > MAX_THREADS || y > MAX_THREADS || z > MAX_THREADS || x * y * z > MAX_THREADS)
                return fa_fail(diag, FA_ECORRUPT, "cubin allows blocks of %llux%llux%llu threads: "
                               "%d is the most", (unsigned long long)x, (unsigned long long)y,
                               (unsigned long long)z, MAX_THREADS);
            info->max_threads = (int32_t)(x * y * z);
        } else if (record.attribute == ATTR_PARAMETERS && record.payload.size >= 8) {
            info->parameter_bytes = (int32_t)read_u16(p + 6);
        } else if (record.attribute == ATTR_PARAMETER && record.payload.size >= 12) {
            uint32_t ordinal = read_u16(p + 4);
            info->parameter_count++;
            if (ordinal < FA_CUBIN_PARAMETERS)
                info->parameter_size[ordinal] = (int32_t)(read_u32(p + 8) >> 18);
        }
    }
    if (at != section.size)
        return fa_fail(diag, FA_ECORRUPT, "cubin's .nv.info of the kernel ends inside a record");
    return 0;
}

static int read_kernel(const struct elf *elf, const struct symbol *symbol, fa_cubin_info *ret_info,
                       fa_diag *diag)
{
    const char *name = symbol->name;
    struct section section;
    fa_cubin_info info = {.sm = elf->sm};
    if (!find_section(elf, ".nv.info", "", &section))
        return fa_fail(diag, FA_ECORRUPT, "cubin has no section .nv.info");
    FA_OR_RETURN(read_symbol_info(section.bytes, symbol->index, &info, diag));
    if (!find_section(elf, ".nv.info.", name, &section))
        return fa_fail(diag, FA_ECORRUPT, "cubin has no section .nv.info.%s", name);
    FA_OR_RETURN(read_kernel_info(section.bytes, &info, diag));
    if (find_section(elf, ".nv.shared.", name, &section)) {
        uint64_t shared = section.size;
        if (info.sm >= 90)
            shared = shared > SYSTEM_SHARED ? shared - SYSTEM_SHARED : 0;
        if (shared > MAX_SHARED)
            return fa_fail(diag, FA_ECORRUPT, "cubin says %llu bytes of static shared memory",
                           (unsigned long long)shared);
        info.static_smem_bytes = (int32_t)shared;
    }
    *ret_info = info;
    return 0;
}

int fa_cubin_read(const void *bytes, size_t size, const char *entry, fa_cubin_info *ret_info,
                  fa_diag *diag)
{
    struct elf elf;
    struct symbol symbol;
    int rc = open_entry(bytes, size, entry, &elf, &symbol, diag);
    return rc == 0 ? read_kernel(&elf, &symbol, ret_info, diag) : rc;
}

void fa_cubin_join(fa_cubin_info *info, const fa_cubin_info *other)
{
#define RAISE(member) info->member = other->member > info->member ? other->member : info->member
    RAISE(registers);
    RAISE(stack_bytes);
    RAISE(static_smem_bytes);
#undef RAISE
}

int fa_cubin_most(const void *bytes, size_t size, fa_cubin_info *ret_most, fa_diag *diag)
{
    struct elf elf;
    int rc = 0;
    FA_OR_RETURN(open_cubin(bytes, size, &elf, diag));
    fa_cubin_info info, most = {.sm = elf.sm};
    for (size_t i = 1; rc == 0 && i < elf.symbols.count; i++) {
        const struct symbol symbol = symbol_at(&elf, i);
        if (symbol.kernel && symbol.name != NULL &&
            (rc = read_kernel(&elf, &symbol, &info, diag)) == 0)
            fa_cubin_join(&most, &info);
    }
    if (rc == 0)
        *ret_most = most;
    return rc;
}

int fa_cubin_code(const void *bytes, size_t size, const char *entry, char ret_hex[FA_HASH_HEX],
                  fa_diag *diag)
{
    static const char *const executed[] = {".nv.constant", ".rel"};
    fa_cubin_info info;
    struct elf elf;
    struct section section;
    struct symbol symbol;
    fa_hash hash;
    FA_OR_RETURN(open_entry(bytes, size, entry, &elf, &symbol, diag));
    FA_OR_RETURN(read_kernel(&elf, &symbol, &info, diag));
    if (!find_section(&elf, ".text.", symbol.name, &section) || section.bytes.size == 0)
        return fa_fail(diag, FA_ECORRUPT, "cubin has no instructions for %s", entry);
    fa_hash_init(&hash);
    fa_hash_part(&hash, &info, sizeof info);
    fa_hash_part(&hash, section.bytes.bytes, section.bytes.size);
    for (uint32_t i = 1; i < elf.section_count; i++) {
        if (!section_at(&elf, i, &section))
            continue;
        for (size_t j = 0; j < sizeof executed / sizeof *executed; j++) {
            if (strncmp(section.name, executed[j], strlen(executed[j])) != 0)
                continue;
            fa_hash_text(&hash, section.name);
            fa_hash_part(&hash, section.bytes.bytes, section.bytes.size);
        }
    }
    fa_hash_final(&hash, ret_hex);
    return 0;
}
