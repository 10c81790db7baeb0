#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws README's picture from rows of attn_vs_torch.py, GPU-prefill-DATE.jsonl: TFLOP/s over the sequence length, a panel for each head
dimension with and without a causal mask, beside torch.mm of the same run, which is no ceiling: all are at the card's power limit.

Where FlashAttention-3 did not run beside the others its line is this run's cuDNN times the ratio of the two in an earlier run ("need"), drawn
broken, and left out where cuDNN was as fast. A ring marks every point where a peer is ahead of fa-tune.

    python3 tests/bench/picture.py tests/bench/h200-prefill-2026-11-23.jsonl > docs/tflops.svg
"""
import json
import math
import os
import re
import sys

SEQ = [512, 1024, 2048, 4096, 8192, 16384]
PEERS = [("ours", "fa-tune"), ("fa3", "FlashAttention-3"), ("cudnn", "cuDNN"), ("fa2", "FlashAttention-2")]
VERSIONS = {"2026-11-23": "driver 580.159.04, CUDA 13.0, cuDNN and FlashAttention-2 of PyTorch 2.11, "
                          "FlashAttention-3 of 2026-08-15 (0251105a)"}
# Light and dark: text, what is said beside it, grid, page, and a colour for each peer and for a loss.
NAMES = ("ink", "soft", "grid", "page", "ours", "fa3", "cudnn", "fa2", "loss")
LIGHT = ("#222222", "#555555", "#dddddd", "#ffffff", "#1f4fbf", "#1f7a48", "#b4600f", "#707070", "#c62828")
DARK = ("#e6e9ed", "#a0aab5", "#2b323b", "#0d1117", "#7aa5ff", "#5bd0a3", "#f0a04b", "#a8b0b8", "#ff7b72")
WIDTH, TOP, PANEL_W, PANEL_H, LEFT, GAP_X, GAP_Y, MAXIMUM = 960, 112, 260, 196, 52, 42, 46, 900
NOTES = TOP + 2 * (PANEL_H + GAP_Y)


def rows_of(path):
    """{(D, causal): {S: row}} of fp16 with 16,384 tokens and hidden size 2,048."""
    panels = {}
    with open(path, encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["dtype"] == "fp16" and row["S"] in SEQ and row["B"] * row["S"] == 16384 \
                    and row["H"] * row["D"] == 2048:
                panels.setdefault((row["D"], row["causal"]), {})[row["S"]] = row
    return panels


def tflops(row, peer):
    """A peer's TFLOP/s, and whether it was measured in this run; None where nothing is known."""
    if peer + "_tflops" in row:
        return row[peer + "_tflops"], True
    if peer == "fa3" and (row.get("need") or 1) > 1:
        return row["cudnn_tflops"] * row["need"], False
    return None


def losses(row):
    """The peers ahead of ours in this row."""
    known = [(peer, tflops(row, peer)) for peer, _ in PEERS if peer != "ours"]
    return [peer for peer, value in known if value is not None and value[0] > row["ours_tflops"]]


def style():
    """The colours, by the page that the picture stands in."""
    def values(colors):
        return "".join("--%s:%s;" % pair for pair in zip(NAMES, colors))
    rules = ["svg{%s}" % values(LIGHT), "@media (prefers-color-scheme:dark){svg{%s}}" % values(DARK),
             "text{fill:var(--ink)}", "text.soft{fill:var(--soft)}", "line{stroke:var(--grid)}", "rect{fill:var(--page)}",
             "polyline{fill:none;stroke-width:2}", ".broken{stroke-dasharray:5 4}",
             ".product{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:2 3}",
             ".ring{fill:none;stroke:var(--loss);stroke-width:1.6}"]
    rules += ["polyline.%s{stroke:var(--%s)}circle.%s{fill:var(--%s)}" % (peer, peer, peer, peer) for peer, _ in PEERS]
    return "<style>%s</style>" % "".join(rules)


def text(x, y, words, size=12, anchor="start", soft=False, weight="normal"):
    return ('<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s"%s font-weight="%s">%s</text>'
            % (x, y, size, anchor, ' class="soft"' if soft else "", weight, words))


def line(points, name, broken=False):
    path = " ".join("%.1f,%.1f" % point for point in points)
    return '<polyline points="%s" class="%s%s"/>' % (path, name, " broken" if broken else "")


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def headline(gpu, rows):
    """What the rows come to, of the peers that ran beside fa-tune in all of them."""
    beside = [(peer, name) for peer, name in (PEERS[2], PEERS[1]) if all("vs_" + peer in row for row in rows)]
    ratios = {peer: [row["vs_" + peer] for row in rows] for peer, _ in beside}
    said = " and ".join("%.2f × as %s%s" % (mean(ratios[peer]), "" if i else "fast as ", name)
                        for i, (peer, name) in enumerate(beside))
    return "On an %s, fa-tune is %s" % (gpu, said), "geometric mean of %d problems, worst %.2f" % (
        len(rows), min(min(values) for values in ratios.values()))


def panel(left, top, title, rows, product):
    def x(seq):
        return left + PANEL_W * math.log2(seq / SEQ[0]) / math.log2(SEQ[-1] / SEQ[0])

    def y(value):
        return top + PANEL_H * (1 - value / MAXIMUM)

    yield text(left, top - 8, title, 13, weight="bold")
    for value in range(0, MAXIMUM + 1, 300):
        yield ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>'
               % (left, y(value), left + PANEL_W, y(value)))
        yield text(left - 6, y(value) + 4, value, 11, "end", True)
    for seq in SEQ:
        yield text(x(seq), top + PANEL_H + 16, seq if seq < 1024 else "%dk" % (seq // 1024), 11, "middle", True)
    if product:
        yield line([(left, y(product)), (left + PANEL_W, y(product))], "product")
    for peer, _ in reversed(PEERS):
        known = [(seq, *tflops(rows[seq], peer)) for seq in SEQ if seq in rows and tflops(rows[seq], peer)]
        points = [(x(seq), y(value)) for seq, value, _ in known]
        yield line(points, peer, not all(measured for _, _, measured in known))
        for at in points:
            yield '<circle cx="%.1f" cy="%.1f" r="2.6" class="%s"/>' % (*at, peer)
    for seq in SEQ:
        if seq in rows and losses(rows[seq]):
            yield '<circle cx="%.1f" cy="%.1f" r="7" class="ring"/>' % (x(seq), y(rows[seq]["ours_tflops"]))


def legend(ratio, product, lost):
    """Of the marks that there are."""
    at, y = LEFT, 70
    for peer, name in PEERS:
        yield line([(at, y), (at + 26, y)], peer, peer == "fa3" and ratio)
        yield text(at + 32, y + 4, name)
        at += 60 + 7.2 * len(name)
    if product:
        yield line([(at, y), (at + 26, y)], "product")
        words = "torch.mm in bf16, %.0f TFLOP/s" % product
        yield text(at + 32, y + 4, words)
        at += 60 + 6.2 * len(words)
    if lost:
        yield '<circle cx="%.1f" cy="%d" r="7" class="ring"/>' % (at + 6, y)
        yield text(at + 18, y + 4, "a peer is ahead of fa-tune")


def draw(path):
    panels = rows_of(path)
    every = [row for rows in panels.values() for row in rows.values()]
    gpu, date = re.fullmatch(r"(\w+)-prefill-([\d-]+)\.jsonl", os.path.basename(path)).groups()
    ratio = any("fa3_tflops" not in row for row in every)
    products = {row.get("ceiling_tflops") for row in every}
    product = products.pop() if len(products) == 1 else None
    dims = sorted({dim for dim, _ in panels})
    said, how = headline(gpu.upper(), every)
    notes = ["16,384 tokens, hidden size 2,048. Kernels launched in turn, L2 flushed, median. Measured %s." % date]
    if date in VERSIONS:
        notes.append(VERSIONS[date][0].upper() + VERSIONS[date][1:] + ".")
    if ratio:
        notes.append("FlashAttention-3, broken: not in this run. This run's cuDNN times the ratio of the two in an "
                     "earlier run, where that is above 1.")
    height = NOTES + 18 * len(notes)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif">'
           % (WIDTH, height), "<title>%s, %s</title>" % (said, how), style(),
           '<rect width="%d" height="%d"/>' % (WIDTH, height), text(LEFT, 24, said, 17, weight="bold"),
           text(LEFT, 46, how[0].upper() + how[1:] + ". Attention forward, fp16: TFLOP/s over the sequence length.", 13, soft=True)]
    out += legend(ratio, product, any(map(losses, every)))
    for row, causal in enumerate((False, True)):
        for column, dim in enumerate(dims):
            title = "head dim %d%s" % (dim, ", causal" if causal else "")
            out += panel(LEFT + column * (PANEL_W + GAP_X), TOP + row * (PANEL_H + GAP_Y), title,
                         panels[dim, causal], product)
    out += [text(LEFT, NOTES + 6 + 18 * i, note, 12, soft=True) for i, note in enumerate(notes)]
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw(sys.argv[1]))
