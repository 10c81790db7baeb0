# SPDX-License-Identifier: Apache-2.0
"""PythonKernel: one config of a kernel, as a function of arrays."""
from __future__ import annotations

from typing import Any

from .._errors import NotSupported
from ._described import Described, is_array
from ._device import is_there


class PythonKernel:
    """Called with arrays and numbers in the kernel's order, it returns the outputs that are arrays of the host; arrays of the
    GPU are written in place."""

    def __init__(self, kernel_name: str, kernel_string: Any, problem_size: Any, arguments: Any, params: Any = None, inputs: Any = None,
                 outputs: Any = None, device: int = 0, platform: int = 0, block_size_names: Any = None, grid_div_x: Any = None,
                 grid_div_y: Any = None, grid_div_z: Any = None, verbose: bool = True, lang: str | None = None,
                 results_file: Any = None) -> None:
        if results_file:
            raise NotSupported("PythonKernel reads no results_file: pass params=, the config")
        self.params, self.outputs = dict(params or {}), list(outputs or [True] * len(arguments))
        self._described = Described(kernel_name, kernel_string, problem_size, arguments, {name: [value] for name, value in self.params.items()},
                                    (grid_div_x, grid_div_y, grid_div_z), None, lang, None, None, None, None, block_size_names, device)
        self._tuned = self._described.tuned(None, None, progress=False)

    def __call__(self, *args: Any) -> list[Any]:
        self._described.arguments = list(args)
        wanted = [bool(self.outputs[i]) and is_array(value) and not is_there(value) for i, value in enumerate(args)]
        outputs = self._described.launched(self._tuned, wanted)
        return [value for value, given in zip(outputs, wanted) if given]

    def run_kernel(self, args: Any) -> list[Any]:
        return self(*args)
