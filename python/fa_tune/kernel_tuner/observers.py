# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's observers, of which there are none here."""
raise ImportError("fa_tune.kernel_tuner has no observers (NVML, ncu, PMT, PowerSensor, Tegra, Register): kernels run in worker processes, "
                  "where no object of this program can watch them. Leave them out, and metrics that read what they measure")
