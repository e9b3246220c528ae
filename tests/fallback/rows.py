"""The rows of the page, found out by running."""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import transformers
from tqdm import tqdm

from tests.fallback.comparison import compare
from tests.fallback.page import NO, YES, Row
from tests.fallback.unequal import REASONS

NUM_TOKENS = 100
SECONDS = 60                             # that one class may take


def find_rows(names: Sequence[str]) -> list[Row]:
    """Compares classes, with a bar for progress; as many at once as there are processors."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawn, _prepare) as pool:
        return list(tqdm(pool.map(_row, names), unit="class", total=len(names)))


def _prepare() -> None:
    """Leaves the other processors to other classes, and the screen to the bar."""
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _end)


def _end(*_: object) -> None:
    raise TimeoutError(f"it takes more than {SECONDS} seconds")


def _row(name: str) -> Row:
    signal.alarm(SECONDS)
    try:
        with TemporaryDirectory() as folder:
            found = compare(name, Path(folder), NUM_TOKENS, with_bits=True)
    except Exception as error:           # any class's code may end in any
        told = f"{type(error).__name__}: {error}".splitlines()[0][:200].replace("|", "/")
        return Row(name, NO, reason=REASONS.get(name, told))
    finally:
        signal.alarm(0)
    replaced = ", ".join(f"{number} {module}" for module, number in found.replaced) or "nothing"
    reason = {} if found.is_equal else {"reason": REASONS.get(name, "its tokens are others")}
    return Row(name, YES if found.is_equal else NO, found.way, YES if found.has_bits else NO, replaced, **reason)
