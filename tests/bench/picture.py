#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws README's picture from measured rows: TFLOP/s over the sequence length, a panel for each head
dimension with and without a causal mask; ours, cuDNN, FlashAttention-3 and FlashAttention-2.

Rows are those of tests/bench/attn_vs_torch.py. Where FlashAttention-3 ran beside the others ("fa3_tflops")
its line is what was measured. Elsewhere it is this run's cuDNN times the ratio of the two in an earlier
run ("need"), drawn broken, and left out where that ratio says that cuDNN was as fast. A ring marks every
point where a peer is ahead of ours.

    python3 tests/bench/picture.py tests/bench/h200-prefill-2026-11-23.jsonl > docs/tflops.svg
"""
import json
import math
import sys

SEQ = [512, 1024, 2048, 4096, 8192, 16384]
PEERS = [("ours", "fa-tune", "#1f4fbf"), ("fa3", "FlashAttention-3", "#2e8b57"),
         ("cudnn", "cuDNN", "#d9822b"), ("fa2", "FlashAttention-2", "#8a8a8a")]
LOSS = "#c62828"
WIDTH, HEIGHT, TOP, PANEL_W, PANEL_H, LEFT, GAP_X, GAP_Y, MAXIMUM = 960, 604, 92, 260, 196, 52, 42, 46, 900


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
    known = [(peer, tflops(row, peer)) for peer, _, _ in PEERS if peer != "ours"]
    return [peer for peer, value in known if value is not None and value[0] > row["ours_tflops"]]


def text(x, y, words, size=12, anchor="start", color="#222", weight="normal"):
    return ('<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s" font-weight="%s">%s</text>'
            % (x, y, size, anchor, color, weight, words))


def line(points, color, broken):
    path = " ".join("%.1f,%.1f" % point for point in points)
    return ('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>'
            % (path, color, ' stroke-dasharray="5 4"' if broken else ""))


def panel(left, top, title, rows):
    def x(seq):
        return left + PANEL_W * math.log2(seq / SEQ[0]) / math.log2(SEQ[-1] / SEQ[0])

    def y(value):
        return top + PANEL_H * (1 - value / MAXIMUM)

    yield text(left, top - 8, title, 13, weight="bold")
    for value in range(0, MAXIMUM + 1, 300):
        yield ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>'
               % (left, y(value), left + PANEL_W, y(value)))
        yield text(left - 6, y(value) + 4, value, 11, "end", "#555")
    for seq in SEQ:
        yield text(x(seq), top + PANEL_H + 16, seq if seq < 1024 else "%dk" % (seq // 1024), 11, "middle", "#555")
    for peer, _, color in reversed(PEERS):
        known = [(seq, *tflops(rows[seq], peer)) for seq in SEQ if seq in rows and tflops(rows[seq], peer)]
        points = [(x(seq), y(value)) for seq, value, _ in known]
        yield line(points, color, not all(measured for _, _, measured in known))
        for at in points:
            yield '<circle cx="%.1f" cy="%.1f" r="2.6" fill="%s"/>' % (*at, color)
    for seq in SEQ:
        if seq in rows and losses(rows[seq]):
            yield ('<circle cx="%.1f" cy="%.1f" r="7" fill="none" stroke="%s" stroke-width="1.6"/>'
                   % (x(seq), y(rows[seq]["ours_tflops"]), LOSS))


def legend(ratio):
    at = LEFT
    for peer, name, color in PEERS:
        yield line([(at, 46), (at + 26, 46)], color, peer == "fa3" and ratio)
        yield text(at + 32, 50, name)
        at += 60 + 7.2 * len(name)
    yield '<circle cx="%.1f" cy="46" r="7" fill="none" stroke="%s" stroke-width="1.6"/>' % (at + 6, LOSS)
    yield text(at + 18, 50, "a peer is ahead of fa-tune")


def draw(path):
    panels = rows_of(path)
    ratio = any("fa3_tflops" not in row for rows in panels.values() for row in rows.values())
    dims = sorted({dim for dim, _ in panels})
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif">'
           % (WIDTH, HEIGHT),
           "<title>TFLOP/s over sequence length on an H200: fa-tune, FlashAttention-3, cuDNN, FlashAttention-2</title>",
           '<rect width="%d" height="%d" fill="#fff"/>' % (WIDTH, HEIGHT),
           text(LEFT, 24, "Attention forward on an H200, fp16: TFLOP/s over the sequence length", 15, weight="bold")]
    out += legend(ratio)
    for row, causal in enumerate((False, True)):
        for column, dim in enumerate(dims):
            title = "head dim %d%s" % (dim, ", causal" if causal else "")
            out += panel(LEFT + column * (PANEL_W + GAP_X), TOP + row * (PANEL_H + GAP_Y), title,
                         panels[dim, causal])
    note = "16,384 tokens, hidden size 2,048. Kernels launched in turn, L2 flushed, median."
    out.append(text(LEFT, HEIGHT - 30, note, 12, color="#555"))
    if ratio:
        note = ("FlashAttention-3, broken: not in this run. This run's cuDNN times the ratio of the two in an "
                "earlier run, where that is above 1.")
        out.append(text(LEFT, HEIGHT - 12, note, 12, color="#555"))
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw(sys.argv[1]))
