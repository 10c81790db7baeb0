/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a small cubin by hand, laid out as ptxas lays its cubins out, so that tests of the cubin
 * reader and of the driver need no NVRTC. The "code" is empty: only the fake driver can run it.
 *
 *   fake_cubin c = {.sm = 89, .entry = "attn_fwd", .registers = 40, .marker = "family=x;…"};
 *   size_t size = fake_cubin_build(&c, bytes);   (bytes has FAKE_CUBIN_MAX of them)
 */
#ifndef FA_TESTS_FAKE_CUBIN_H
#define FA_TESTS_FAKE_CUBIN_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { FAKE_CUBIN_MAX = 8192 };

typedef struct fake_cubin {
    int sm;
    int abi; /* 8 (CUDA 13) or 7; 0 means 8 */
    const char *entry, *second; /* NULL: there is one alone */
    unsigned registers, stack, static_smem, threads_x, threads_y, threads_z, parameters;
    const char *marker; /* after "fa_tune_config="; NULL: none */
    unsigned sizes[3];  /* of the parameters; 0: no more of them are said */
    const void *boxes;  /* of the constant fa_attn_boxes_wanted, 24 bytes; NULL: none */
} fake_cubin;

struct fake_cubin_writer {
    unsigned char *bytes;
    size_t at;
    Elf64_Shdr section[16];
    unsigned count;
    char names[512];
    size_t names_size;
};

static inline void fake_cubin_put(struct fake_cubin_writer *w, const void *bytes, size_t size)
{
    memcpy(w->bytes + w->at, bytes, size);
    w->at += size;
}

static inline void fake_cubin_u32(struct fake_cubin_writer *w, uint32_t value)
{
    fake_cubin_put(w, &value, sizeof value);
}

/* {u8 format = 4, u8 attribute, u16 bytes} */
static inline void fake_cubin_record(struct fake_cubin_writer *w, unsigned attribute, unsigned size)
{
    fake_cubin_u32(w, 4u | attribute << 8 | size << 16);
}

static inline Elf64_Shdr *fake_cubin_section(struct fake_cubin_writer *w, const char *prefix,
                                             const char *suffix, uint32_t type)
{
    Elf64_Shdr *s = &w->section[w->count++];
    int n = snprintf(w->names + w->names_size, sizeof w->names - w->names_size, "%s%s", prefix,
                     suffix);
    w->at = (w->at + 7) / 8 * 8;
    *s = (Elf64_Shdr){.sh_name = (uint32_t)w->names_size, .sh_type = type, .sh_offset = w->at};
    w->names_size += (size_t)n + 1;
    return s;
}

static inline void fake_cubin_end(struct fake_cubin_writer *w)
{
    Elf64_Shdr *s = &w->section[w->count - 1];
    s->sh_size = w->at - s->sh_offset;
}

enum { SHT_NV_INFO = 0x70000000 };

static inline void fake_cubin_infos(struct fake_cubin_writer *w, const fake_cubin *c)
{
    fake_cubin_section(w, ".nv.info", "", SHT_NV_INFO);
    for (uint32_t symbol = 1; symbol <= 2; symbol++) { /* a neighbour with other numbers first */
        fake_cubin_record(w, 0x2f, 8);
        fake_cubin_u32(w, symbol);
        fake_cubin_u32(w, symbol == 2 ? c->registers : 77);
        fake_cubin_record(w, 0x11, 8);
        fake_cubin_u32(w, symbol);
        fake_cubin_u32(w, symbol == 2 ? c->stack : 888);
    }
    fake_cubin_end(w);
}

/* Of one entry: what the driver and the reader want to know, and its code. */
static inline void fake_cubin_code(struct fake_cubin_writer *w, const fake_cubin *c,
                                   const char *entry)
{
    fake_cubin_section(w, ".nv.info.", entry, SHT_NV_INFO);
    fake_cubin_u32(w, 3u | 0x1bu << 8 | 255u << 16); /* a record without payload */
    fake_cubin_record(w, 0x0a, 8);
    fake_cubin_u32(w, 7);
    fake_cubin_u32(w, 0x210u | c->parameters << 16);
    for (unsigned i = 0; i < 3 && c->sizes[i] != 0; i++) {
        fake_cubin_record(w, 0x17, 12);
        fake_cubin_u32(w, 0);
        fake_cubin_u32(w, i | i * 192u << 16);
        fake_cubin_u32(w, c->sizes[i] << 18 | 0x1f000u);
    }
    if (c->threads_x != 0) {
        fake_cubin_record(w, 0x05, 12);
        fake_cubin_u32(w, c->threads_x);
        fake_cubin_u32(w, c->threads_y == 0 ? 1 : c->threads_y);
        fake_cubin_u32(w, c->threads_z == 0 ? 1 : c->threads_z);
    }
    fake_cubin_end(w);
    fake_cubin_section(w, ".text.", entry, SHT_PROGBITS);
    fake_cubin_put(w, "no code here", 12);
    fake_cubin_end(w);
}

/* Returns the size; `bytes` has FAKE_CUBIN_MAX of them. */
static inline size_t fake_cubin_build(const fake_cubin *c, unsigned char *bytes)
{
    struct fake_cubin_writer w = {.bytes = bytes, .at = sizeof(Elf64_Ehdr), .count = 1,
                                  .names_size = 1};
    memset(bytes, 0, FAKE_CUBIN_MAX);
    fake_cubin_infos(&w, c);
    if (c->second != NULL)
        fake_cubin_code(&w, c, c->second);
    const unsigned second = c->second != NULL ? w.count - 1 : 0;
    fake_cubin_code(&w, c, c->entry);
    const unsigned text = w.count - 1;
    Elf64_Shdr *shared = fake_cubin_section(&w, ".nv.shared.", c->entry, SHT_NOBITS);
    shared->sh_size = c->static_smem + (c->sm >= 90 ? 1024 : 0);
    if (c->marker != NULL) {
        fake_cubin_section(&w, ".nv.global.init", "", SHT_PROGBITS);
        fake_cubin_put(&w, "fa_tune_config=", 15);
        fake_cubin_put(&w, c->marker, strlen(c->marker) + 1);
        fake_cubin_end(&w);
    }
    unsigned constants = w.count;
    if (c->boxes != NULL) {
        fake_cubin_section(&w, ".nv.constant3", "", SHT_PROGBITS);
        fake_cubin_put(&w, "another one", 12);
        fake_cubin_put(&w, c->boxes, 24);
        fake_cubin_end(&w);
    }
    unsigned strings = w.count;
    fake_cubin_section(&w, ".strtab", "", SHT_STRTAB);
    const char *other = c->second != NULL ? c->second : "neighbour";
    const unsigned at = 2 + (unsigned)strlen(other);
    fake_cubin_put(&w, "", 1);
    fake_cubin_put(&w, other, at - 1);
    fake_cubin_put(&w, c->entry, strlen(c->entry) + 1);
    fake_cubin_put(&w, "fa_attn_boxes_wanted", 21);
    fake_cubin_end(&w);
    Elf64_Shdr *symbols = fake_cubin_section(&w, ".symtab", "", SHT_SYMTAB);
    const Elf64_Sym table[4] = {
        [1] = {.st_name = 1,
               .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
               .st_shndx = (uint16_t)second},
        [2] = {.st_name = at,
               .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
               .st_shndx = (uint16_t)text},
        [3] = {.st_name = (uint32_t)(at + 1 + strlen(c->entry)),
               .st_value = 12,
               .st_size = 24,
               .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
               .st_shndx = (uint16_t)constants},
    };
    symbols->sh_link = strings;
    fake_cubin_put(&w, table, (c->boxes != NULL ? 4 : 3) * sizeof *table);
    fake_cubin_end(&w);
    unsigned names = w.count;
    fake_cubin_section(&w, ".shstrtab", "", SHT_STRTAB);
    fake_cubin_put(&w, w.names, w.names_size);
    fake_cubin_end(&w);

    w.at = (w.at + 7) / 8 * 8;
    int abi = c->abi == 0 ? 8 : c->abi;
    uint32_t sm = (uint32_t)c->sm;
    Elf64_Ehdr header = {
        .e_type = ET_EXEC, .e_machine = EM_CUDA, .e_version = 1, .e_shoff = w.at,
        .e_flags = abi == 8 ? 0x06000004u | sm << 8 : 0x00000500u | sm | sm << 16,
        .e_ehsize = sizeof header, .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = (uint16_t)w.count, .e_shstrndx = (uint16_t)names,
    };
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = 1;
    header.e_ident[EI_OSABI] = abi == 8 ? 0x41 : 0x33;
    header.e_ident[EI_ABIVERSION] = (unsigned char)abi;
    memcpy(bytes, &header, sizeof header);
    fake_cubin_put(&w, w.section, w.count * sizeof(Elf64_Shdr));
    return w.at;
}

#endif
