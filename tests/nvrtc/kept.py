# SPDX-License-Identifier: Apache-2.0
"""kept.py NVRTC in=FOLDER keep=FILE: gives FOLDER the builtins of the NVRTC in NVRTC beside the test's library, and
makes FILE, which keeps compiled kernels, when it is not there or too full to be of use."""
import glob
import os
import struct
import sys

SIZE = 64 << 20  # the strict sandbox allows an address space of 1 GiB

# Meson configures anew when a path changes that is an argument alone: FILE changes with every test.
nvrtc, folder, file = (argument.rpartition("=")[2] for argument in sys.argv[1:])
os.makedirs(folder, exist_ok=True)
for old in glob.glob(os.path.join(glob.escape(folder), "libnvrtc-builtins.so.*")):
    os.unlink(old)
for builtins in glob.glob(os.path.join(glob.escape(nvrtc), "libnvrtc-builtins.so.13.*")):
    os.symlink(builtins, os.path.join(folder, os.path.basename(builtins)))
os.makedirs(os.path.dirname(file), exist_ok=True)
if os.path.exists(file):
    with open(file, "rb") as opened:
        used = struct.unpack("=Q", opened.read(8).ljust(8, b"\0"))[0]
    if os.path.getsize(file) != SIZE or used > SIZE * 3 // 4:
        os.unlink(file)
if not os.path.exists(file):
    with open(file, "wb") as made:
        made.truncate(SIZE)
