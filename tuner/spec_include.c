/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding what CUDA C++ includes: a file beside the one that includes it, in a folder of the specification, in the
 * vocabulary, among CUDA's own headers, or one of the C library's that say nothing new to NVRTC.
 *
 * Workload: none or a few files; of cub some six hundred, in a quarter of a second.
 * Invariants: NVRTC takes headers by the very text of an #include, so every file has one name, and directives that spell it
 * otherwise are changed to it, on their line. A name is never absolute, so that equal files have equal keys on every machine.
 * Of a text from outside only CUDA's folder is read, and no name with ".." in it.
 */
#include "spec_reading.h"

#include "spec.h"

#include "nvrtc.h"

#include "error.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FILES_MAX = 3000,
    FOLDERS_MAX = 16,
    CUDA_FOLDERS = 4,
    NAME_MAX_ = 300,
    FILE_BYTES_MAX = 4 << 20,
    ALL_BYTES_MAX = 48 << 20 /* of one message to a compile worker */
};

/* Where a file was found, beside its name and text. */
struct place {
    char *folder; /* with a slash at its end; NULL: it includes nothing beside itself */
    dev_t device;
    ino_t node;
    bool own;     /* the author's */
    bool library; /* found through "include", or beside such a file */
};

struct fa_includes {
    struct fa_spec_reading *r; /* they are read for; nothing is found after its first failure */
    char *folder[FOLDERS_MAX]; /* the specification's own first; folders that are searched */
    int folders;
    char cuda[CUDA_FOLDERS][PATH_MAX];
    bool looked_for_cuda;
    int cuda_version, cuda_read; /* of the folder, and of what was read from there */
    fa_template_text file[FA_CUT_SOURCES + FILES_MAX]; /* the sources first */
    struct place place[FA_CUT_SOURCES + FILES_MAX];
    int count;
    size_t bytes;
};

void fa_includes_close(fa_includes **includes)
{
    fa_includes *all = *includes;
    *includes = NULL;
    if (all == NULL)
        return;
    for (int i = 0; i < all->folders; i++)
        free(all->folder[i]);
    for (int i = 0; i < all->count; i++) {
        free((void *)(uintptr_t)all->file[i].name);
        free((void *)(uintptr_t)all->file[i].text);
        free(all->place[i].folder);
    }
    free(all);
}

/* `name` in `folder`, or where it says itself, with a slash at its end; NULL: no memory. */
static char *folder_path(const char *folder, const char *name)
{
    fa_buf path = {0};
    fa_buf_printf(&path, "%s%s%s", name[0] == '/' ? "" : folder, name,
                  name[0] != 0 && name[strlen(name) - 1] != '/' ? "/" : "");
    if (path.failed)
        fa_buf_free(&path);
    return path.data;
}

void fa_includes_open(struct fa_spec_reading *r)
{
    const cJSON *item, *list = fa_json_member(r->json, "include");
    struct stat st;
    if (list != NULL && r->folder == NULL)
        fa_spec_fault(r, "\"include\" names folders, which a text may not");
    if (list != NULL && (!cJSON_IsArray(list) || cJSON_GetArraySize(list) >= FOLDERS_MAX))
        fa_spec_fault(r, "\"include\" must be an array of at most %d folders", FOLDERS_MAX - 1);
    fa_includes *all = r->rc == 0 ? calloc(1, sizeof *all) : NULL;
    r->spec->includes = all;
    fa_spec_memory(r, all != NULL);
    if (all == NULL)
        return;
    all->r = r;
    if (r->folder != NULL)
        fa_spec_memory(r, (all->folder[all->folders++] = folder_path(r->folder, "")) != NULL);
    cJSON_ArrayForEach (item, list) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        char *path = all->folder[all->folders++] = folder_path(r->folder, name);
        fa_spec_memory(r, path != NULL);
        if (name[0] == 0 || path == NULL || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
            fa_spec_fault(r, "\"include\": there is no folder \"%.200s\"", name);
    }
}

/* ---- names -----------------------------------------------------------------------------------*/
/* Appends a name's parts to the path in ret, which may have some: "." is none, ".." takes one away where there is one. */
static bool join_name(char ret[NAME_MAX_], const char *name)
{
    while (*name != 0) {
        size_t size = strcspn(name, "/"), length = strlen(ret);
        char *last = strrchr(ret, '/');
        last = last != NULL ? last + 1 : ret;
        if (size == 2 && strncmp(name, "..", 2) == 0 && length > 0 && strcmp(last, "..") != 0)
            *(last > ret ? last - 1 : ret) = 0;
        else if (size > 0 && !(size == 1 && name[0] == '.')) {
            if (length + size + 2 > NAME_MAX_)
                return false;
            snprintf(ret + length, NAME_MAX_ - length, "%s%.*s", length > 0 ? "/" : "", (int)size,
                     name);
        }
        name += size + (name[size] == '/');
    }
    return ret[0] != 0;
}

static int file_called(const fa_includes *all, const char *name)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->file[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- files -----------------------------------------------------------------------------------*/
/* Those that look for a file return its index; -1: there is none here, or they failed. */

/* Takes over text and folder, freed on failure. */
static int add_file(fa_includes *all, const char *name, char *text, const struct place *place)
{
    char unique[NAME_MAX_ + 16];
    snprintf(unique, sizeof unique, "%s", name);
    if (file_called(all, name) >= 0 || (place->own && fa_template_is_builtin(name)))
        snprintf(unique, sizeof unique, "%d/%s", all->count - FA_CUT_SOURCES, name);
    char *kept = strdup(unique);
    all->bytes += text != NULL ? strlen(text) : 0;
    fa_spec_memory(all->r, kept != NULL && text != NULL);
    if (all->count == FA_CUT_SOURCES + FILES_MAX || all->bytes > ALL_BYTES_MAX)
        fa_spec_fault(all->r, "it includes more than %d files or %d MiB", FILES_MAX,
                      ALL_BYTES_MAX >> 20);
    if (all->r->rc != 0) {
        free(kept);
        free(text);
        free(place->folder);
        return -1;
    }
    all->place[all->count] = *place;
    all->file[all->count] = (fa_template_text){kept, text};
    return all->count++;
}

/* One that is made here, which includes nothing beside itself. */
static int add_made(fa_includes *all, const char *name, fa_buf *text)
{
    if (text->failed)
        fa_buf_free(text);
    return add_file(all, name, text->data, &(struct place){.folder = NULL});
}

/* The file at this path, read once. */
static int take_file(fa_includes *all, const char *folder, const char *written, const char *name,
                     bool own)
{
    char path[PATH_MAX];
    struct stat st;
    if (all->r->rc != 0 ||
        snprintf(path, sizeof path, "%s%s", written[0] == '/' ? "" : folder, written) >=
            (int)sizeof path ||
        stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return -1;
    for (int i = 0; i < all->count; i++)
        if (all->place[i].device == st.st_dev && all->place[i].node == st.st_ino &&
            all->place[i].folder != NULL)
            return i;
    fa_buf text = {0};
    int rc = fa_source_read(&text, path, FILE_BYTES_MAX, all->r->diag);
    if (rc != 0) {
        fa_buf_free(&text);
        all->r->rc = fa_fail_in(all->r->diag, FA_EMANIFEST, "%s: %s", all->r->where, path);
        return -1;
    }
    const struct place place = {.folder = strndup(path, (size_t)(strrchr(path, '/') - path) + 1),
                                .device = st.st_dev,
                                .node = st.st_ino,
                                .own = own};
    return add_file(all, name, text.data != NULL ? text.data : strdup(""), &place);
}

static void put_standard(fa_buf *out, const char *name)
{
    for (const fa_template_text *one = fa_standard; one->name != NULL; one++)
        if (strcmp(one->name, name) == 0)
            fa_buf_text(out, one->text);
}

/* What stands for a header of the standard library. */
static int take_standard(fa_includes *all, const char *name)
{
    fa_buf text = {0};
    int known = file_called(all, name);
    if (known >= 0 && !all->place[known].own)
        return known;
    put_standard(&text, name);
    return text.size > 0 || text.failed ? add_made(all, name, &text) : -1;
}

/* CUDA's own, in a toolkit's folder, with cub from CUDA 13 on in one of its own; packages of CUDA 12 have cub, and what mma.h
 * includes, beside it. Or what stands for the standard library. */
static int find_outside(fa_includes *all, const char *name)
{
    static const char *const below[CUDA_FOLDERS] = {"/", "/cccl/", "/../../cuda_cccl/include/",
                                                    "/../../cuda_nvcc/include/"};
    int index = file_called(all, name);
    if (index >= 0 && !all->place[index].own)
        return index;
    if (!all->looked_for_cuda) {
        fa_cuda_headers headers;
        fa_cuda_headers_find(&headers);
        all->looked_for_cuda = true;
        all->cuda_version = headers.version;
        for (int i = 0; i < CUDA_FOLDERS && headers.folder[0] != 0; i++)
            if (snprintf(all->cuda[i], PATH_MAX, "%s%s", headers.folder, below[i]) >= PATH_MAX)
                all->cuda[i][0] = 0;
    }
    index = -1;
    for (int i = 0; i < CUDA_FOLDERS && index < 0 && all->cuda[i][0] != 0; i++)
        index = take_file(all, all->cuda[i], name, name, false);
    if (index >= 0)
        all->cuda_read = all->cuda_version;
    return index < 0 && all->r->rc == 0 ? take_standard(all, name) : index;
}

/* cub as a whole is the host's, too: the parts for a block or a warp that kernels name, BlockScan in block/block_scan.cuh. */
static int take_cub(fa_includes *all)
{
    fa_buf text = {0};
    for (const char *at = fa_cut_blocks(all->r->cut); *at == ' ';) {
        char name[NAME_MAX_], *out = name;
        size_t size = strcspn(++at, " ");
        out += snprintf(name, sizeof name, "cub/%s/", *at == 'B' ? "block" : "warp");
        for (size_t i = 0; i < size && out < name + sizeof name - 6; i++) {
            if (i > 0 && isupper((unsigned char)at[i]))
                *out++ = '_';
            *out++ = (char)tolower((unsigned char)at[i]);
        }
        snprintf(out, 5, ".cuh");
        if (find_outside(all, name) >= 0)
            fa_buf_printf(&text, "#include <%s>\n", name);
        at += size;
    }
    fa_buf_text(&text, "\n");
    return add_made(all, "cub/cub.cuh", &text);
}

/* C++'s, if CUDA has its like for kernels. */
static int take_library(fa_includes *all, const char *name)
{
    char of_cuda[NAME_MAX_ + 16];
    fa_buf text = {0};
    snprintf(of_cuda, sizeof of_cuda, "cuda/std/%s", name);
    int index = find_outside(all, of_cuda);
    if (index < 0 && strcmp(name, "algorithm") == 0) { /* of which this has min and max */
        snprintf(of_cuda, sizeof of_cuda, "cuda/std/functional");
        index = find_outside(all, of_cuda);
    }
    if (index < 0)
        return -1;
    put_standard(&text, name);
    fa_buf_printf(&text, "#include <%s>\nnamespace std { using namespace cuda::std; }\n", of_cuda);
    return add_made(all, name, &text);
}

/* Those of CUDA's and of its libraries' headers that are for kernels; of others an author's file has no use here. */
static bool is_device_header(const char *name)
{
    static const char begins[] =
        "cuda_fp cuda_bf16 cuda_pipe cuda_awb cuda/ cuComplex curand_ cooperative_grou "
        "mma.h math_const cub/cub.cuh cub/block/ cub/warp/ cub/thread cub/util_t "
        "cub/util_ptx thrust/complex thrust/tuple thrust/pa thrust/swap thrust/functi "
        "thrust/extrema nv/ crt/ cute/ cutlass/ cuda_texture vector_ sm_ ";
    size_t size;
    for (const char *at = begins; *at != 0; at += size + 1) {
        size = strcspn(at, " ");
        if (strncmp(name, at, size) == 0)
            return true;
    }
    return false;
}

/* Among the author's files, as a compiler looks for it there: beside the file that includes it, `from`, then in the folders of
 * "include". */
static int find_own(fa_includes *all, int from, const char *written, bool quoted)
{
    char name[NAME_MAX_] = "", beside[NAME_MAX_] = "";
    const int count = all->count;
    const struct place *of = &all->place[from];
    const char *its = all->file[from].name, *slash = strrchr(its, '/');
    bool library = of->library;
    int index = -1;
    snprintf(beside, sizeof beside, "%.*s", slash != NULL ? (int)(slash - its) : 0, its);
    if (quoted && of->folder != NULL && join_name(beside, written))
        index = take_file(all, of->folder, written, beside, of->own);
    const bool named = written[0] != '/' && join_name(name, written);
    for (int i = 1; named && of->own && i < all->folders && index < 0; i++) {
        index = take_file(all, all->folder[i], written, name, true);
        library = true;
    }
    if (all->count > count)
        all->place[count].library = library;
    return index;
}

/* What a file includes as `written`; -1 also of the vocabulary's. */
static int find_file(fa_includes *all, int from, const char *written, bool quoted)
{
    char name[NAME_MAX_] = "";
    const bool own = all->place[from].own && !all->place[from].library;
    int index = find_own(all, from, written, quoted);
    if (index >= 0 || written[0] == '/' || !join_name(name, written) ||
        fa_template_is_builtin(name) || strstr(written, "..") != NULL)
        return index;
    if (own && file_called(all, name) < 0 && strcmp(name, "cub/cub.cuh") == 0)
        index = take_cub(all);
    else if (own && file_called(all, name) < 0 && strpbrk(name, "./") == NULL && all->r->uses_std)
        index = take_library(all, name);
    if (index >= 0 || all->r->rc != 0)
        return index;
    return !own || is_device_header(name) ? find_outside(all, name) : take_standard(all, name);
}

/* ---- directives ------------------------------------------------------------------------------*/
struct directive {
    const char *from; /* of the name that is written */
    size_t size;
    bool quoted;
    /* of the name's first part, which is a macro; NULL: it is what it says */
    const char *stands_for;
};

/* thrust names some of its files by a macro: `#define NAME <ROOT/file>`, then `#include NAME`. */
static bool read_thrust(const char *at, struct directive *ret)
{
    static const char *const root[][2] = {{"__THRUST_HOST_SYSTEM_ROOT", "thrust/system/cpp"},
                                          {"__THRUST_DEVICE_SYSTEM_ROOT", "thrust/system/cuda"}};
    const fa_code_word name = fa_code_word_at(fa_code_past_blanks(at));
    at = fa_code_past_blanks(name.at + name.size);
    const fa_code_word first = fa_code_word_at(at + (*at == '<'));
    for (int i = 0; i < 2; i++) {
        const char *rest = first.at + first.size;
        if (*at != '<' || !fa_code_is(first, root[i][0]) || *rest != '/')
            continue;
        *ret = (struct directive){
            .from = rest, .size = strcspn(rest, ">\n"), .stands_for = root[i][1]};
        return true;
    }
    return false;
}

static bool read_directive(const char *line, struct directive *ret)
{
    const fa_code_word word = fa_code_directive(line);
    const char *at = fa_code_past_blanks(word.at + word.size);
    if (fa_code_is(word, "define"))
        return read_thrust(at, ret);
    if (!fa_code_is(word, "include") || (*at != '"' && *at != '<'))
        return false;
    const char close = *at == '"' ? '"' : '>';
    *ret = (struct directive){.from = at + 1, .quoted = close == '"'};
    ret->size = strcspn(at + 1, close == '"' ? "\"\n" : ">\n");
    return ret->size > 0 && ret->from[ret->size] == close;
}

/* Whether an author's #include is left out: what is not here, or the host's. */
static bool leave_out(fa_includes *all, int from, const struct directive *found,
                      const char *written, long line)
{
    static const char *const usual[] = {"cuda.h", "cuda_runtime.h", "device_launch_parameters.h"};
    bool told = true;
    if (!all->place[from].own || all->place[from].library ||
        (found->quoted && fa_cut_left(all->r->cut)[0] == 0) || /* no host code could need it */
        found->stands_for != NULL || fa_template_is_builtin(written) || is_device_header(written))
        return false; /* the compiler says what is missing */
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        told = told && strcmp(written, usual[i]) != 0;
    if (told)
        fa_buf_printf(&all->r->spec->left, "%c%s%c in line %ld%s%s\n", found->from[-1], written,
                      found->from[found->size], line, from < FA_CUT_SOURCES ? "" : " of ",
                      all->file[from].name);
    return true;
}

/* Names every file in the text as the compiler will know it; of the author's files, only has those read if `own`. */
static void read_text(fa_includes *all, int from, bool own)
{
    struct fa_spec_reading *r = all->r;
    FA_ENDS(fa_buf_free) fa_buf out = {0};
    long number = 1;
    const char *text = all->file[from].text, *kept = text;
    for (const char *line = text, *end; *line != 0 && r->rc == 0;
         line = *end != 0 ? end + 1 : end, number++) {
        struct directive found;
        char written[NAME_MAX_];
        const bool continues = line > text + 1 && line[-2] == '\\';
        end = strchrnul(line, '\n');
        if (continues || !read_directive(line, &found) ||
            snprintf(written, sizeof written, "%s%.*s",
                     found.stands_for != NULL ? found.stands_for : "", (int)found.size,
                     found.from) >= (int)sizeof written)
            continue;
        int index = (own ? find_own : find_file)(all, from, written, found.quoted);
        if (own || r->rc != 0 ||
            (index >= 0 &&
             (found.stands_for != NULL || strcmp(all->file[index].name, written) == 0)))
            continue;
        if (index >= 0) {
            fa_buf_append(&out, kept, (size_t)(found.from - kept));
            fa_buf_text(&out, all->file[index].name);
            kept = found.from + found.size;
        } else if (leave_out(all, from, &found, written, number)) {
            fa_buf_append(&out, kept, (size_t)(line - kept));
            kept = end;
        }
    }
    if (!own && r->rc == 0) {
        fa_buf_text(&out, kept);
        if (!out.failed && all->place[from].own)
            fa_source_guard(r->json, &out);
        fa_spec_memory(r, !out.failed);
    }
    if (own || r->rc != 0)
        return;
    free((void *)(uintptr_t)text);
    all->file[from].text = out.data;
    out = (fa_buf){0};
}

struct fa_cut_text *fa_includes_read_own(struct fa_spec_reading *r, const char *source,
                                         const char *answer_source)
{
    const char *const sources[FA_CUT_SOURCES] = {source, answer_source};
    fa_includes *all = r->spec->includes;
    for (; r->rc == 0 && all->count < FA_CUT_SOURCES; all->count++) {
        const char *text = sources[all->count];
        struct place *place = &all->place[all->count];
        *place = (struct place){.own = true};
        if (r->folder != NULL)
            place->folder = strdup(all->folder[0]);
        all->file[all->count] = (fa_template_text){strdup(""), strdup(text != NULL ? text : "")};
        fa_spec_memory(r, all->file[all->count].name != NULL &&
                              all->file[all->count].text != NULL &&
                              (place->folder != NULL || r->folder == NULL));
    }
    for (int i = 0; r->rc == 0 && i < all->count; i++) /* those that are found on the way, too */
        read_text(all, i, true);
    struct fa_cut_text *texts = r->rc == 0 ? calloc((size_t)all->count + 1, sizeof *texts) : NULL;
    fa_spec_memory(r, texts != NULL);
    for (int i = 0; texts != NULL && i < all->count; i++)
        texts[i] =
            (struct fa_cut_text){(char *)(uintptr_t)all->file[i].text, all->place[i].library};
    return texts;
}

void fa_includes_read(struct fa_spec_reading *r)
{
    fa_includes *all = r->spec->includes;
    for (int i = 0; r->rc == 0 && i < all->count; i++)
        read_text(all, i, false);
}

const char *fa_includes_source(const fa_includes *all, int source)
{
    return all->file[source].text;
}

/* ---- what was read ---------------------------------------------------------------------------*/
void fa_includes_with(const fa_includes *all, fa_compiled_with *with)
{
    with->header = all->file + FA_CUT_SOURCES;
    with->header_count = all->count - FA_CUT_SOURCES;
    with->cuda_headers = all->cuda_read;
}

void fa_includes_hash(const fa_includes *all, char ret_hash[FA_HASH_HEX])
{
    fa_hash hash;
    fa_hash_init(&hash);
    for (int i = FA_CUT_SOURCES; i < all->count; i++) {
        fa_hash_text(&hash, all->file[i].name);
        fa_hash_text(&hash, all->file[i].text);
    }
    fa_hash_final(&hash, ret_hash);
}
