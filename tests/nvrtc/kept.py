# SPDX-License-Identifier: Apache-2.0
"""kept.py NVRTC FOLDER: gives the test's library in FOLDER the name of the builtins of the NVRTC in NVRTC, too, makes the folder that keeps what
tests compile, and prints its name, a hash of the library, its version, the architectures that it knows and its builtins. The folder lies in the user's cache, as a compiler cache does, so that every
clone and build shares it."""
import ctypes
import glob
import hashlib
import os
import struct
import sys

SIZE = 256 << 20  # the strict sandbox allows an address space of 1 GiB

nvrtc, folder = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
for old in glob.glob(os.path.join(glob.escape(folder), "libnvrtc-builtins.so.*")):
    os.unlink(old)
for builtins in glob.glob(os.path.join(glob.escape(nvrtc), "libnvrtc-builtins.so.13.*")):
    os.symlink("libnvrtc.so.13", os.path.join(folder, os.path.basename(builtins)))

kept = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "fa-tune-tests")
try:
    os.makedirs(kept, exist_ok=True)
except OSError:  # a user without a home
    kept = folder
file = os.path.join(kept, "kept.cubins")
if os.path.exists(file):
    with open(file, "rb") as opened:
        used = struct.unpack("=Q", opened.read(8).ljust(8, b"\0"))[0]
    if os.path.getsize(file) != SIZE or used > SIZE * 3 // 4:
        os.unlink(file)
if not os.path.exists(file):
    with open(file + ".new", "wb") as made:
        made.truncate(SIZE)
    os.rename(file + ".new", file)
path = os.path.join(nvrtc, "libnvrtc.so.13")
with open(path, "rb") as library:
    print(kept, hashlib.sha256(library.read()).hexdigest(), sep="\n")
library = ctypes.CDLL(path)
major, minor = ctypes.c_int(), ctypes.c_int()
library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
print("%d,%d" % (major.value, minor.value), builtins, sep="\n")
