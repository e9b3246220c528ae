"""How vectors and scores are made, by vLLM's names."""

from dataclasses import dataclass


@dataclass(slots=True)
class PoolingParams:
    """Says how a vector or scores are made of a text. A vector is cut to `dimensions`. `use_activation` says whether it
    is scaled to a length of 1, and whether scores go through sigmoid or softmax, as they do unless it is False. A text
    is cut to `truncate_prompt_tokens`; -1 stands for as many as the model takes, and None refuses more."""

    dimensions: int | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("dimensions", "truncate_prompt_tokens"):
            if (value := getattr(self, name)) is not None and type(value) is not int:
                raise TypeError(f"`{name}` must be a number. Given: {value!r:.100}")

    @property
    def truncates(self) -> bool | None:
        """Whether a text is cut; None leaves that to the model's settings."""
        return None if self.truncate_prompt_tokens is None else True

    @property
    def most_tokens(self) -> int | None:
        """To how many tokens it is cut; None stands for as many as the model takes."""
        return None if self.truncate_prompt_tokens == -1 else self.truncate_prompt_tokens
