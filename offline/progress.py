"""The bar that shows how many prompts are answered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.offline.outputs import RequestOutput

TellEnd = Callable[[RequestOutput], None]


@contextmanager
def shown(use_tqdm: bool | Callable[..., Any], number: int, title: str) -> Iterator[TellEnd]:
    """Shows a bar while the block runs, with tokens per second; yields the function to be called with each output.
    `use_tqdm` may be a function that makes a bar, as tqdm does."""
    if not use_tqdm:
        yield lambda output: None
        return
    from tqdm.auto import tqdm  # which looks for a notebook when it is imported

    num_read = num_written = 0
    with (use_tqdm if callable(use_tqdm) else tqdm)(total=number, desc=title, dynamic_ncols=True) as bar:
        def tell(output: RequestOutput) -> None:
            nonlocal num_read, num_written
            num_read += len(output.prompt_token_ids)
            num_written += sum(len(each.token_ids) for each in output.outputs)
            seconds = bar.format_dict["elapsed"] or 1.0
            bar.set_postfix_str(f"{num_read / seconds:.0f} tokens/s read, {num_written / seconds:.0f} written",
                                refresh=False)
            bar.update()

        yield tell
