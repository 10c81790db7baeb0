# SPDX-License-Identifier: Apache-2.0
"""A fleet for end-to-end tests: hosts, each a Place with a local store and maybe a fake GPU, that share
one store."""
import subprocess
import time

from place import DEADLINE, Place

TWO = {"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0],
       "MIN_BLOCKS": [2]}
TINY = ["--batch", "1", "--heads", "1"]
SLOW = "fault BLOCK_N=64; hang\n"  # until the trial's time is up


class Host(Place):
    """gpu: the number of its board, or None: no GPU."""

    def __init__(self, location, gpu=None, script="", lease=60, space=TWO):
        device = "device name=NVIDIA_L4 sm=89 sms=58 board=%d\n" % (gpu or 0)
        super().__init__(space=space, script=None if gpu is None else device + script)
        self.env["FA_TUNE_STORE"] = location
        self.env["FA_TUNE_LOCAL_STORE"] = self.store
        self.env["FA_TUNE_LEASE"] = str(lease)

    def ask(self, seq, *arguments, status=0):
        return self.json("--seq", str(seq), *TINY, *arguments, status=status)

    def enqueue(self, *lengths, gpu="L4"):
        return self.json("sweep", "--enqueue", "--gpu", gpu, "--seq",
                         ",".join(str(seq) for seq in lengths), *TINY)["sweep"]

    def queue(self):
        """The one sweep in the queue."""
        sweeps = self.json("queue")["sweeps"]
        assert len(sweeps) == 1, sweeps
        return sweeps[0]

    def begin(self, *arguments):
        """Started, for `finish` and `line_with`."""
        return self.start(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8")

    def worker(self, *arguments):
        return self.begin("worker", *arguments)


def finish(process, status=0):
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == status, (process.returncode, out, err)
    return out, err


def line_with(process, text):
    """Reads what a process says until a line has this text."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return line
    raise AssertionError("%r was never said, but: %s" % (text, "".join(lines)))


def until(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "never came: " + what
        time.sleep(0.05)


def kill(process):
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
