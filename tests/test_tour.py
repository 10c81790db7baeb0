#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/tour.ipynb runs from its first cell to its last, without a GPU and with one, and shows what its text says."""
import json
import os
import re
import subprocess

import tap
from place import BUILD, DEADLINE, SOURCE, TWO, Place

TOOLS = os.path.join(SOURCE, ".python-tools")
NOTEBOOK = os.path.join(SOURCE, "examples", "tour.ipynb")
RUN = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=%d, resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, "run.ipynb")
""" % DEADLINE


def code_cells(path):
    return [cell for cell in json.loads(tap.read(path))["cells"] if cell["cell_type"] == "code"]


def shown_by(place):
    """Runs the notebook; for each cell of code what it shows as text, and as a page where it does."""
    if not os.path.exists(os.path.join(TOOLS, "test-tools.stamp")):
        raise tap.Skip("nbclient is not here: ./dev test fetches it")
    env = {**place.env, "PYTHONPATH": os.path.join(BUILD, "python"), "FA_TUNE_WORKER": os.environ["FA_TUNE_WORKER"]}
    done = subprocess.run([os.path.join(TOOLS, "bin", "python"), "-c", RUN, NOTEBOOK], env=env, cwd=place.folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr[-4000:]
    shown = []
    for cell in code_cells(os.path.join(place.folder, "run.ipynb")):
        outputs = [output.get("data", {"text/plain": output.get("text", "")}) for output in cell["outputs"]]
        shown.append(["".join("".join(output.get(kind, "")) for output in outputs) for kind in ("text/plain", "text/html")])
    return shown


def check(shown, here):
    doctor, problem, refused, answer, funnel, sweep, stored, measured, winners, report = shown
    tap.has(doctor[0], "<doctor: ")
    tap.equal(problem[0], "Problem(dtype='fp16', causal='bottom-right', head_dim=64, batch=4, heads=8, seq=512)")
    tap.equal(refused[0], "a problem has no field 'seqlen': did you mean 'seq'?\n")
    assert re.fullmatch(r"<~[\d.]+ µs on L4, predicted: attn_fwd_sm80 .*>", answer[0]), answer
    tap.has(answer[1], "<table>")
    tap.has(funnel[0], "predicted by the model for S 512")
    tap.has(funnel[0], "'compiled': ")
    tap.has(sweep[0], "<sweep of 3 problems, done after ")
    tap.has(sweep[1], "<td style=\"text-align:left\">L4</td>")
    tap.equal(stored[0], "[True, False, False]")
    tap.has(measured[0], here)
    tap.has(winners[0], "%d winners" % (4 if here == " µs ± " else 3))
    tap.has(report[0], "<report of %d problems in tour.html, store " % (4 if here == " µs ± " else 3))


def the_notebook_has_ten_cells_of_code_and_keeps_no_output():
    cells = code_cells(NOTEBOOK)
    tap.equal((len(cells), [cell["outputs"] for cell in cells], {cell["execution_count"] for cell in cells}), (10, [[]] * 10, {None}))


def without_a_gpu_it_predicts_and_reports():
    with Place(space=TWO) as place:
        check(shown_by(place), "install the NVIDIA driver")
        assert os.path.getsize(os.path.join(place.folder, "tour.html")) > 10000


def with_another_gpu_it_measures_too():
    with Place(space=TWO, script="device name=NVIDIA_L40S sm=89 sms=142\ninit_once\n") as place:
        check(shown_by(place), " µs ± ")


tap.main()
