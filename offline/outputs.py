"""The nouns that a program gets back, by vLLM's names, and the adapter that it may name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """An adapter (LoRA) that is to answer: the name by which it is known, and the folder of its files, or a name on
    the Hugging Face Hub. vLLM's number is taken for the sake of its programs; the name alone tells adapters apart."""

    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass(frozen=True, slots=True)
class Logprob:
    """The logprob of a token, and its rank among all tokens, which is 1 for the likeliest; None if it is unknown:
    that of a token of an answer which is not among those that were asked for."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


Logprobs = dict[int, Logprob]
"""At one position, by token id: the token itself and the likeliest ones."""


@dataclass(slots=True)
class CompletionOutput:
    """One answer to a prompt. `token_ids` have the token that ended it; `text` has not, unless it was asked for."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[Logprobs] | None = None
    finish_reason: Literal["stop", "length", "abort"] | None = None
    """None while the answer goes on."""
    stop_reason: int | str | None = None
    """The stop string or the token of `stop_token_ids` that ended it, if one did."""
    lora_request: LoRARequest | None = None
    score: float | None = None
    """That by which a beam search has compared it."""

    def finished(self) -> bool:
        """Tells whether the answer has come to its end."""
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Where the time of a request went, in seconds."""

    queue: float
    inference: float


@dataclass(slots=True)
class RequestOutput:
    """A prompt and its answers."""

    request_id: str
    prompt: str | None
    """None if the prompt was token ids."""
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    """All answers; where outputs have only the next part, those that have one."""
    finished: bool
    prompt_logprobs: list[Logprobs | None] | None = None
    """An entry for each token of the prompt; the first has none."""
    lora_request: LoRARequest | None = None
    num_cached_tokens: int | None = None
    """How many of the prompt's tokens were in the prefix cache."""
    times: RequestTimes | None = None


@dataclass(frozen=True, slots=True)
class PromptScore:
    """How likely a model finds a prompt: the logprob of each of its tokens after those before it. The first has
    none."""

    prompt: str | None
    prompt_token_ids: list[int]
    logprobs: list[float | None]

    @property
    def cumulative_logprob(self) -> float:
        """The logprob of the whole prompt after its first token."""
        return sum(each for each in self.logprobs if each is not None)


@dataclass(frozen=True, slots=True)
class EmbeddingOutput:
    """The vector of a text."""

    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        """How many numbers it has."""
        return len(self.embedding)


@dataclass(frozen=True, slots=True)
class ClassificationOutput:
    """The scores of a text, one for each class."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.probs)


@dataclass(frozen=True, slots=True)
class ScoringOutput:
    """The score of a pair of texts."""

    score: float


@dataclass(frozen=True, slots=True)
class PoolingOutput:
    """The numbers of a vector or of scores, or a list of them for each token."""

    data: list[float] | list[list[float]]


Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class PoolingRequestOutput(Generic[Made]):
    """The `outputs` that were made of a text. `prompt_token_ids` are its tokens; there are none of a pair whose vectors
    were compared."""

    request_id: str
    outputs: Made
    prompt_token_ids: list[int]
    finished: bool = True


EmbeddingRequestOutput = PoolingRequestOutput[EmbeddingOutput]
ClassificationRequestOutput = PoolingRequestOutput[ClassificationOutput]
ScoringRequestOutput = PoolingRequestOutput[ScoringOutput]


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """An answer that a beam search has found. `tokens` and `text` begin with the prompt."""

    tokens: list[int]
    text: str
    cum_logprob: float
    """The sum of the logprobs of the answer's tokens."""
    score: float
    """That sum, divided by the answer's length to the power of `length_penalty`."""
    finish_reason: Literal["stop", "length", "abort"] | None = None
    stop_reason: int | str | None = None


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """The answers that a beam search has found, the best first."""

    sequences: list[BeamSearchSequence]


@dataclass(frozen=True, slots=True)
class Counter:
    """A series of Prometheus that grows. Its name is that before `_total`."""

    name: str
    labels: Mapping[str, str]
    value: int


@dataclass(frozen=True, slots=True)
class Gauge:
    """A series of Prometheus that goes up and down."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The series of Prometheus that together tell how often values were how large: for each bound, of which the last
    is `+Inf`, how many values were not above it."""

    name: str
    labels: Mapping[str, str]
    count: int
    sum: float
    buckets: Mapping[str, int]


Metric = Counter | Gauge | Histogram
