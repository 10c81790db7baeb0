# SPDX-License-Identifier: Apache-2.0
"""The names of the package, for editors and type checkers: __init__.py imports them when they are used."""
from ._core import Kernel as Kernel
from ._core import attention as attention
from ._core import attention_decode as attention_decode
from ._core import attention_varlen as attention_varlen
from ._core import close as close
from ._errors import ArgumentError as ArgumentError
from ._errors import CaptureError as CaptureError
from ._errors import DeviceError as DeviceError
from ._errors import DtypeError as DtypeError
from ._errors import Error as Error
from ._errors import ForkedError as ForkedError
from ._errors import NotSupported as NotSupported
from ._errors import NotTuned as NotTuned
from ._errors import ShapeError as ShapeError
from ._errors import TensorError as TensorError
from ._functions import best_kernel as best_kernel
from ._functions import doctor as doctor
from ._functions import forget as forget
from ._functions import kernel as kernel
from ._functions import report as report
from ._functions import sweep as sweep
from ._functions import tune as tune
from ._functions import winners as winners
from ._kernels import TunedKernel as TunedKernel
from ._kernels import array as array
from ._kernels import fixed as fixed
from ._kernels import inout as inout
from ._kernels import partial as partial
from ._kernels import scratch as scratch
from ._kernels import struct as struct
from ._kernels import out as out
from ._kernels import scalar as scalar
from ._kernels import tune_kernel as tune_kernel
from ._objects import Answer as Answer
from ._objects import Check as Check
from ._objects import Doctor as Doctor
from ._objects import Forgotten as Forgotten
from ._objects import Report as Report
from ._objects import Sweep as Sweep
from ._objects import SweepItem as SweepItem
from ._objects import Winners as Winners
from ._policy import policy as policy
from ._problem import Problem as Problem
from ._problem import fields as fields
from ._recording import recording as recording
from ._sdpa_scope import sdpa as sdpa
from ._warm_up import warm_up as warm_up

__all__: list[str]
__version__: str
