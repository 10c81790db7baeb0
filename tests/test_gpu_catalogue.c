/* SPDX-License-Identifier: Apache-2.0
 *
 * The catalogue of GPU types: found by what people write, complete, and true where data sheets
 * can be held against it.
 */
#include "check.h"

#include "catalogue.h"

static fa_diag diag;

static void names_are_found_however_they_are_written(void)
{
    static const char *const rows[][2] = {
        {"L4", "L4"}, {"l4", "L4"}, {"NVIDIA L4", "L4"}, {"Tesla T4", "T4"},
        {"a100", "A100-SXM4-40GB"}, {"A100-80GB", "A100-SXM4-80GB"},
        {"NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"}, {"a100_80gb pcie", "A100 80GB PCIe"},
        {"4090", "RTX 4090"}, {"rtx4090", "RTX 4090"}, {"NVIDIA GeForce RTX 4090", "RTX 4090"},
        {"NVIDIA H100 80GB HBM3", "H100 SXM"}, {"h100", "H100 SXM"}, {"H100-PCIe", "H100 PCIe"},
        {"NVIDIA H200", "H200"}, {"NVIDIA GH200 480GB", "GH200"}, {"Orin", "Orin"},
        {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"}, {"NVIDIA Thor", "Thor"},
        {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_gpu gpu;
        CHECK_OK(fa_catalogue_find(rows[i][0], &gpu, &diag), diag);
        CHECK_TEXT(gpu.name, rows[i][1]);
    }
}

static void every_entry_is_found_by_its_own_name_and_by_no_other(void)
{
    for (int i = 0; i < fa_catalogue_count(); i++) {
        fa_gpu gpu, found;
        const char *refused;
        fa_catalogue_at(i, &gpu, &refused);
        int rc = fa_catalogue_find(gpu.name, &found, &diag);
        CHECK_INT(rc, refused == NULL ? 0 : FA_ENOTSUP);
        if (rc == 0)
            CHECK_TEXT(found.name, gpu.name);
    }
}

static void every_entry_is_complete(void)
{
    for (int i = 0; i < fa_catalogue_count(); i++) {
        fa_gpu g;
        fa_catalogue_at(i, &g, NULL);
        CHECK(g.sm >= 70 && g.sm <= 121 && g.sm_count > 0 && g.sm_count <= 192);
        CHECK(g.smem_per_block > 0 && g.smem_per_block + g.smem_reserved <= g.smem_per_sm);
        CHECK_INT(g.regs_per_sm, 65536);
        CHECK(g.threads_per_sm >= 1024 && g.blocks_per_sm >= 16);
        CHECK(g.l2_bytes >= 2 << 20 && g.l2_bytes % 1024 == 0);
        CHECK(g.memory_bus_bits >= 128 && g.clock_mhz > 1000 && g.clock_mhz < 3500);
        CHECK(g.bandwidth_gbs > 100 && g.bandwidth_gbs <= 8000);
        CHECK(g.tensor_tflops > 5 && g.tensor_tflops < 3000);
        CHECK(!g.present && g.ordinal == -1);
    }
}

static void tensor_peaks_are_those_of_the_data_sheets(void)
{
    static const struct {
        const char *name;
        double tflops; /* dense fp16, fp32 accumulate, at the clock of the catalogue */
    } rows[] = {
        {"T4", 65}, {"A100", 312}, {"A30", 165}, {"A10", 125}, {"A10G", 70}, {"A40", 150},
        {"RTX A6000", 155}, {"RTX 3090", 71}, {"L4", 121}, {"L40", 181}, {"L40S", 362},
        {"RTX 4090", 165}, {"H100 SXM", 989.0 * 1980 / 1830}, {"H100 PCIe", 756.0 * 1755 / 1620},
        {"H20", 148.0 * 1980 / 1830}, {"RTX 5090", 209.5}, {"RTX PRO 6000", 504},
        {"B200", 2250.0 * 1965 / 1850}, {"Thor", 258},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fa_gpu gpu;
        CHECK_OK(fa_catalogue_find(rows[i].name, &gpu, &diag), diag);
        CHECK(fabs(gpu.tensor_tflops / rows[i].tflops - 1) < 0.02);
    }
}

static void v100_is_known_and_refused_with_its_reason(void)
{
    fa_gpu gpu = {.sm = -1};
    CHECK_INT(fa_catalogue_find("v100", &gpu, &diag), FA_ENOTSUP);
    CHECK_HAS(diag.text, "sm_70");
    CHECK_INT(gpu.sm, -1);
}

static void an_unknown_name_is_answered_with_what_is_near(void)
{
    fa_gpu gpu;
    CHECK_INT(fa_catalogue_find("L4O", &gpu, &diag), FA_ENOTFOUND);
    CHECK_HAS(diag.text, "L4");
    CHECK_INT(fa_catalogue_find("RTX 409O", &gpu, &diag), FA_ENOTFOUND);
    CHECK_HAS(diag.text, "RTX 4090");
    CHECK_INT(fa_catalogue_find("H1000", &gpu, &diag), FA_ENOTFOUND);
    CHECK_HAS(diag.text, "H100");
    CHECK(strstr(diag.text, "RTX 3090") == NULL);
    CHECK_INT(fa_catalogue_find("Radeon", &gpu, &diag), FA_ENOTFOUND);
    CHECK_HAS(diag.text, "fa-tune gpus"); /* nothing is near */
    CHECK(strstr(diag.text, "V100") == NULL);
    CHECK_INT(fa_catalogue_find("", &gpu, &diag), FA_ENOTFOUND);
}

static void a_device_is_matched_by_silicon_then_by_name_and_speed(void)
{
    fa_gpu device = {.name = "NVIDIA H200", .sm = 90, .sm_count = 132, .memory_bus_bits = 6016,
                     .clock_mhz = 1980, .bandwidth_gbs = 4814};
    fa_gpu gpu;
    CHECK_INT(fa_catalogue_match(&device, &gpu), 0);
    CHECK_TEXT(gpu.name, "H200");
    CHECK(fabs(gpu.bandwidth_gbs / device.bandwidth_gbs - 1) < 0.01);
    device = (fa_gpu){.name = "some engineering sample", .sm = 80, .sm_count = 108,
                      .memory_bus_bits = 5120, .clock_mhz = 1410, .bandwidth_gbs = 1935};
    CHECK_INT(fa_catalogue_match(&device, &gpu), 0);
    CHECK_TEXT(gpu.name, "A100 80GB PCIe");
    device = (fa_gpu){.name = "NVIDIA RTX A6000", .sm = 86, .sm_count = 84, .memory_bus_bits = 384,
                      .clock_mhz = 1860, .bandwidth_gbs = 1008};
    CHECK_INT(fa_catalogue_match(&device, &gpu), 0);
    CHECK_TEXT(gpu.name, "RTX A6000"); /* the name beats a nearer speed */
    device.sm_count = 83;
    CHECK_INT(fa_catalogue_match(&device, &gpu), FA_ENOTFOUND);
}

static void limits_that_no_gpu_has_become_the_architectures(void)
{
    fa_gpu wild = {.sm = 90,
                   .smem_per_block = INT32_MAX,
                   .smem_per_sm = -1,
                   .regs_per_sm = 1 << 30,
                   .threads_per_sm = 0,
                   .blocks_per_sm = 33,
                   .smem_reserved = -5};
    fa_gpu small = {.sm = 90,
                    .smem_per_block = 49152,
                    .smem_per_sm = 65536,
                    .regs_per_sm = 32768,
                    .threads_per_sm = 1024,
                    .blocks_per_sm = 8,
                    .smem_reserved = 2048};
    fa_gpu kept = small, unknown = wild;
    unknown.sm = 137;
    fa_catalogue_bound(&wild);
    fa_catalogue_bound(&small);
    fa_catalogue_bound(&unknown);
    CHECK_INT(wild.smem_per_block, 232448);
    CHECK_INT(wild.smem_per_sm, 233472);
    CHECK_INT(wild.regs_per_sm, 65536);
    CHECK_INT(wild.threads_per_sm, 2048);
    CHECK_INT(wild.blocks_per_sm, 32);
    CHECK_INT(wild.smem_reserved, 1024);
    CHECK(memcmp(&small, &kept, sizeof small) == 0); /* a part of a GPU may have less */
    CHECK_INT(unknown.smem_per_block, 232448);
    CHECK_INT(unknown.threads_per_sm, 2048);
}

int main(void)
{
    TEST(names_are_found_however_they_are_written);
    TEST(every_entry_is_found_by_its_own_name_and_by_no_other);
    TEST(every_entry_is_complete);
    TEST(tensor_peaks_are_those_of_the_data_sheets);
    TEST(v100_is_known_and_refused_with_its_reason);
    TEST(an_unknown_name_is_answered_with_what_is_near);
    TEST(a_device_is_matched_by_silicon_then_by_name_and_speed);
    TEST(limits_that_no_gpu_has_become_the_architectures);
    return check_done();
}
