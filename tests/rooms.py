# SPDX-License-Identifier: Apache-2.0
"""The rooms, and which rooms each may use besides its own: for test_layers.py and test_circles.py."""
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

BELOW_ENGINE = ["src/base", "src/gpu", "db", "tuner", "kernel_templates/attn_fwd"]
ROOMS = {
    "include/fa-tune": [],
    "src/base": [],
    "src/gpu": ["src/base"],
    "src/code": ["src/base", "include/fa-tune"],
    "src/snippet": ["src/base", "kernel_templates/attn_fwd"],
    "db": ["src/base"],
    "tuner": ["src/base", "src/gpu", "src/code", "src/snippet", "kernel_templates/attn_fwd"],
    "src/worker": BELOW_ENGINE[:2] + ["tuner"],
    "src/bundle": BELOW_ENGINE + ["include/fa-tune"],
    "src/engine": BELOW_ENGINE + ["src/snippet", "src/worker", "src/bundle", "include/fa-tune"],
    "src/sources": BELOW_ENGINE + ["src/snippet", "src/bundle", "src/engine", "include/fa-tune"],
    "src/sweeps": BELOW_ENGINE + ["src/worker", "src/bundle", "src/engine", "src/sources", "include/fa-tune"],
    "src/cli": ["src/base", "include/fa-tune"],
    "src/daemon": ["src/base", "include/fa-tune"],
    "src/report": ["src/base", "include/fa-tune"],
    "python/_core": ["include/fa-tune"],
    "kernel_templates/attn_fwd": [],
}
