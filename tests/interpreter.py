"""Saves Triton's interpreter from preparing its language anew for each function that a kernel calls."""

from functools import cache
from types import FunctionType
from typing import Any


def prepare_language_once() -> None:
    """Let the interpreter replace the builtins of `triton.language` once for each function, and leave them replaced.

    As it is, it looks through the whole module at each call of a `triton.jit` function, to find all in place. Nothing
    of Triton's is compiled in a process that interprets, so nothing misses what was there before. In a release of
    Triton without these functions all stays as it is.
    """
    from triton.runtime import interpreter

    patch, scope = getattr(interpreter, "_patch_lang", None), getattr(interpreter, "_LangPatchScope", None)
    if patch is None or scope is None:
        return

    @cache
    def patch_once(function: FunctionType) -> Any:
        patch(function)
        return scope()  # Has changed nothing, so it restores nothing.

    interpreter._patch_lang = patch_once
