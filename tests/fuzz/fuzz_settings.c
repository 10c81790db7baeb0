/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of settings. The first byte chooses whose: 'p', the project's; any other, the user's.
 */
#include "fuzz.h"

#include "buf.h"
#include "options.h"

long fuzz_taken;

static cli_settings first, again;

/* What was read, written as a file. A value has one kind of quotes at most. */
static void write_back(const cli_settings *settings, fa_buf *out)
{
    for (int i = 0; i < CLI_SETTINGS; i++) {
        const char *value = settings->setting[i].value;
        char quote = strchr(value, '\'') != NULL ? '"' : '\'';
        if (value[0] != 0)
            fa_buf_printf(out, "%s=%c%s%c\n", cli_setting_keys[i].name, quote, value, quote);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    cli_settings_file file = data[0] == 'p' ? CLI_FILE_PROJECT : CLI_FILE_USER;
    fa_diag why = {{0}};
    fa_buf text = {0};
    memset(&first, 0, sizeof first);
    memset(&again, 0, sizeof again);
    int rc = cli_settings_read((const char *)data + 1, size - 1, file, &first, &why);
    FUZZ_CHECK(rc == 0 || why.text[0] != 0);
    for (int i = 0; i < CLI_SETTINGS; i++) {
        const char *value = first.setting[i].value;
        fuzz_taken += rc == 0 && value[0] != 0;
        FUZZ_CHECK(value[0] == 0 || file == CLI_FILE_USER || cli_setting_keys[i].variable == NULL);
        for (const char *c = value; *c != 0; c++)
            FUZZ_CHECK((unsigned char)*c >= ' ' || *c == '\t');
    }
    write_back(&first, &text);
    FUZZ_CHECK(
        cli_settings_read(text.data != NULL ? text.data : "", text.size, file, &again, NULL) == 0);
    for (int i = 0; i < CLI_SETTINGS; i++)
        FUZZ_CHECK(strcmp(first.setting[i].value, again.setting[i].value) == 0);
    fa_buf_free(&text);
    return 0;
}
