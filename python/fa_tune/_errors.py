# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions. Each says what failed and what to pass or to do instead."""
from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Error(Exception):
    """Any failure of fa_tune. `code` is the library's number for it (FA_E… in fa_types.h)."""

    code: int = 0


class ArgumentError(Error, ValueError):
    """An argument has a value that cannot be used."""


class ShapeError(Error, ValueError):
    """Shapes or strides do not fit one another, or no kernel takes them."""


class TensorError(Error, TypeError):
    """Something that is no tensor was passed where a tensor belongs."""


class DtypeError(Error, TypeError):
    """A tensor has an element type that is not served, or tensors' types differ."""


class DeviceError(Error, ValueError):
    """A tensor is not on a CUDA device, tensors are on several, or there is no device."""


class NotTuned(Error, LookupError):
    """No kernel is known for this problem, and the effort does not allow to tune one."""


class CaptureError(Error, RuntimeError):
    """A kernel would have to be loaded or tuned while a CUDA graph is captured: warm up first."""


class ForkedError(Error, RuntimeError):
    """The process was forked from one that had used CUDA: start it with spawn."""


class NotSupported(Error, NotImplementedError):
    """The problem is well-formed, and no kernel here computes it."""


class FileError(Error, OSError):
    """A file cannot be read."""


class MissingFileError(FileError, FileNotFoundError):
    """A file that is to be read does not exist."""


_MLA = "multi-head latent attention (absorbed) decodes with head_dim=576, head_dim_v=512 and v_in_k=True"
_NOT_COVERED = {"mla": _MLA, "kv_lora_rank": _MLA,
                **dict.fromkeys(("mask_mod", "block_mask", "score_mod"), "PyTorch's flex_attention computes it, after fa_tune.flex.use() by "
                                "fa_tune's kernels; score= and mask= take its functions"),
                **dict.fromkeys(("mask", "bias", "alibi"), "PyTorch's SDPA computes it, within fa_tune.sdpa() too, and attention(score=…, "
                                "mask=…, buffers=…) from what it is computed of"),
                "dropout": "attention() and attention_varlen() have dropout_p; a problem has buffers=\"dropout:f32 dropout_seed:i64[:]\""}


def refuse_feature(name: str, fields: Iterable[str]) -> None:
    """Refuses the name of a feature that attention has elsewhere and fa_tune does not cover; "causal_mask" is a field in other words."""
    words = "_%s_" % name.lower()
    if any("_%s_" % field in words for field in fields if field not in ("score", "mask")):
        return
    for feature, instead in _NOT_COVERED.items():
        if "_%s_" % feature in words:
            raise NotSupported("%s is not covered: %s" % (name, instead))


def did_you_mean(word: Any, words: Iterable[str]) -> str:
    """What is added to the sentence about a word that is not known: ": did you mean 'seq'?", or nothing."""
    near = []
    if isinstance(word, str):
        words = [one for one in words if isinstance(one, str)]  # a word that begins otherwise must be nearer: "layout" is not meant to be "out"
        near = (difflib.get_close_matches(word, words, 1, 0.7) or
                difflib.get_close_matches(word, [one for one in words if one[:1] == word[:1]], 1))
    return ": did you mean %r?" % near[0] if near else ""


def shown(value: Any) -> str:
    """A value in a sentence."""
    text = repr(value)
    return text if len(text) <= 60 else "a " + type(value).__name__


def one_of(name: str, value: Any, words: Iterable[str]) -> None:
    """Refuses a value that is none of the words."""
    if value not in (words := list(words)):
        raise ArgumentError("%s is %s or %r, not %s%s" % (name, ", ".join(map(repr, words[:-1])), words[-1], shown(value),
                                                          did_you_mean(value, words)))


def check_text(name: str, value: Any) -> None:
    if not isinstance(value, (str, type(None))):
        raise ArgumentError("%s is a text or None, not %s" % (name, shown(value)))


def suggesting(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Refuses a keyword that the function does not have, with the one that was meant."""
    @functools.wraps(function)
    def call(*args: Parameters.args, **given: Parameters.kwargs) -> Result:
        for name in given.keys() - function.__annotations__.keys():
            raise ArgumentError("there is no argument %r%s" % (name, did_you_mean(name, function.__annotations__) or
                                                               ": there are %s" % ", ".join(list(function.__annotations__)[:-1])))
        return function(*args, **given)
    return call
