/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads ELF notes with pread: the libraries are 100 MB, the note is 36 bytes near the start.
 *
 * Invariants: sizes out of the file bound nothing but a read into a fixed buffer; a damaged file
 * gives a sentence or "no build-id", never a read outside that buffer.
 */
#include "elf_note.h"

#include "error.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROGRAM_HEADERS = 256, MIN_ID = 8, MAX_ID = 32 };

#if defined(__x86_64__)
enum { OWN_MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { OWN_MACHINE = EM_AARCH64 };
#else
#error "fa-tune runs on x86-64 and aarch64, where NVRTC exists"
#endif

static bool read_at(int fd, void *to, size_t size, uint64_t at)
{
    if (at > INT64_MAX - size)
        return false;
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

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
    if (!read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
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
            !read_at(fd, &segment, sizeof segment, header.e_phoff + i * sizeof segment))
            return FA_ENOTFOUND;
        if (segment.p_type == PT_NOTE && segment.p_filesz <= sizeof notes &&
            read_at(fd, notes, (size_t)segment.p_filesz, segment.p_offset) &&
            build_id_in(notes, (size_t)segment.p_filesz, ret_hex))
            return 0;
    }
    return FA_ENOTFOUND;
}

int fa_elf_build_id(const char *path, char ret_hex[FA_HASH_HEX], fa_diag *diag)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fa_fail(diag, FA_ENONVRTC, "cannot open %s: %s", path, strerror(errno));
    int rc = find_build_id(fd, path, ret_hex, diag);
    close(fd);
    return rc;
}
