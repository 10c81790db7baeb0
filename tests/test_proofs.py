#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What serving engines ask for is proved: by `fa-tune tune` with the built-in kernels that split keys, whose arithmetic the fake driver does."""
import tap
from place import L4, ONE, Place, read_manifest, write_manifest

FAULTS = {(16, 2): ("wrong", " of o is "), (16, 3): ("unwritten", "of o is nan"), (16, 4): ("nan", "of o is nan"),
          (16, 6): ("spoil", "it wrote to its input q"), (32, 3): ("overrun", "outside its output o"), (32, 2): ("", "")}


def what_engines_ask_for_is_proved_and_wrong_kernels_are_known():
    common = ("--seq-k", "300", "--mean-k", "200", "--batch", "3", "--heads", "4", "--heads-kv", "2", "--head-dim", "64", "--lse")
    pages = ("--seq-q", "1", "--lengths-k", "seqused", "--page", "16", "--sinks", "--window", "100,-1")
    with Place(space=ONE, script=L4) as place:
        for options in (("--seq-q", "1", "--lengths-k", "seqused", "--causal", "bottom-right"), (*pages[:4], "--page", "64", "--kv-dtype", "fp8"),
                        ("--varlen", "--lengths-k", "cu_seqlens", "--seq-q", "40", "--mean-q", "20", "--softcap", "--causal", "bottom-right")):
            funnel = place.json("tune", *common, *options)["funnel"]
            tap.equal((options, funnel["proved"], funnel["failed"]), (options, funnel["compiled"], 0))
    with Place(space=ONE, script=L4 + "".join("fault BLOCK_N=%d;STAGES=%d; %s\n" % (*at, fault) for at, (fault, _) in FAULTS.items() if fault)) as place:
        manifest = read_manifest("attn_fwd_splitkv_sm80", place.env["FA_TUNE_TEMPLATES"])
        manifest["restrictions"] = [one for one in manifest["restrictions"] if not one["require"].startswith(("BLOCK_N", "STAGES"))]
        write_manifest(place.env["FA_TUNE_TEMPLATES"], manifest)
        place.run("tune", *common, *pages)
        ended = {(row["config"]["tunables"]["BLOCK_N"], row["config"]["tunables"]["STAGES"]): row
                 for row in place.json("explain", *common, *pages)["configs"] if row["status"] in ("measured", "wrong")}
        for at, (fault, sentence) in FAULTS.items():
            tap.equal((at, ended[at]["status"]), (at, "wrong" if fault else "measured"))
            tap.has(ended[at]["reason"], sentence)


def scores_and_masks_are_texts_of_a_problem():
    """By all the ways of a problem: tuned, shown, swept, exported, imported and asked for again; each text is a problem of its own."""
    small = ("--seq-q", "40", "--seq-k", "60", "--batch", "2", "--heads", "4", "--heads-kv", "2", "--head-dim", "64")
    texts = ("--mask", "k <= q or min(k, h) == 0", "--score", "score - 0.25 * (h + 1) * abs(q - k)")
    with Place(space=ONE, script=L4) as place:
        answer = place.json("tune", *small, *texts)["answer"]
        tap.equal((answer["origin"], answer["config"]["family"]), ("measured", "attn_fwd_prefill_sm80"))
        tap.equal(place.json("tune", *small, *texts)["answer"]["from_store"], True)
        place.run("sweep", "--seq", "64", "--batch", "1", "--heads", "2", "--head-dim", "64", "--mask", "min(q, k) > 3")
        place.run("export", "--unsigned", "--out", "masks.fab")
        place.env["FA_TUNE_STORE"] = place.env["FA_TUNE_STORE"] + ".other"
        place.run("import", "--allow-unsigned", "masks.fab")
        tap.equal({winner["problem"]["mask"] for winner in place.json("show")["winners"]}, {texts[1], "min(q, k) > 3"})
        tap.has(place.run("tune", *small, "--mask", "k + 1", status=2).stderr, "a mask is true or false")


tap.main()
