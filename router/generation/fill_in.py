"""Prompts whose answer fills the gap between a text and its suffix, by the markers that a family of models has learnt.

The markers are found among the tokens that were added to the model's vocabulary: a model that has those of a row was
trained on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.router.text.tokenizer import Tokenizer


class Gap(Enum):
    """The texts before and behind the gap."""

    BEFORE = "before"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class FillForm:
    """The parts of a prompt in their order, of which the texts are markers, and the tokens beside the model's own that
    end an answer, as far as it has them."""

    parts: tuple[str | Gap, ...]
    ends: tuple[str, ...] = ()

    @property
    def markers(self) -> list[str]:
        return [part for part in self.parts if isinstance(part, str)]

    def written(self, before: str, behind: str) -> str:
        """Returns the prompt."""
        texts = {Gap.BEFORE: before, Gap.BEHIND: behind}
        return "".join(part if isinstance(part, str) else texts[part] for part in self.parts)


def _by_prefix(prefix: str, suffix: str, middle: str, *ends: str) -> FillForm:
    """The prefix comes first, each text behind its marker."""
    return FillForm((prefix, Gap.BEFORE, suffix, Gap.BEHIND, middle), ends)


FORMS: Sequence[FillForm] = (
    # Qwen2.5-Coder and CodeGemma, which end in the name of another file if they are let
    _by_prefix("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|endoftext|>", "<|file_sep|>", "<|repo_name|>",
               "<|fim_pad|>", "<|file_separator|>"),
    # StarCoder, StarCoder2, Granite, StableCode, Refact
    _by_prefix("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|endoftext|>", "<file_sep>", "<repo_name>",
               "<fim_pad>"),
    _by_prefix("<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<|endoftext|>", "<fim-pad>"),  # SantaCoder
    _by_prefix("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"),  # CodeLlama
    _by_prefix("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    FillForm(("<[fim-suffix]>", Gap.BEHIND, "<[fim-prefix]>", Gap.BEFORE, "<[fim-middle]>")),  # Seed-Coder
    FillForm(("[SUFFIX]", Gap.BEHIND, "[PREFIX]", Gap.BEFORE)),  # Codestral
)


def fill_form(tokenizer: Tokenizer) -> FillForm | None:
    """Returns the form that a model's tokenizer has all markers of; None if it has none."""
    return next((form for form in FORMS
                 if all(tokenizer.added_id(marker) is not None for marker in form.markers)), None)


def end_ids(form: FillForm, tokenizer: Tokenizer) -> list[int]:
    """Returns the tokens of a form that end an answer, and its markers, one of which would begin another prompt."""
    ids = (tokenizer.added_id(text) for text in (*form.ends, *form.markers))
    return [token_id for token_id in ids if token_id is not None]
