# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's arguments of a type that is tuned, of which there are none here."""
raise ImportError("fa_tune.kernel_tuner has no Tunable, TunablePrecision and AccuracyObserver: an argument has the same type in all "
                  "configs. Tune once for each type")
