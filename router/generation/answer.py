"""One of the answers to a request, as far as it has come."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.router.engine.request import Request
from penstock.router.engine.stream import Ending, Event, Guesses, PromptLogprobs, Stream
from penstock.router.generation.spec import GenerationSpec
from penstock.router.metrics.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of an answered request went, in seconds."""

    total: float
    validation: float
    queue: float
    inference: float


class Answer:
    """One of the answers to a request. `ending` and `times` are set once its last event has come.

    `index` counts the answers of all prompts: those to the first prompt, then those to the second. `spec` is what was
    asked of the prompt.
    """

    def __init__(
        self, index: int, spec: GenerationSpec, request: Request, stream: Stream, received_at: float, metrics: Metrics
    ) -> None:
        self.index = index
        self.spec = spec
        self.request = request
        self.ending: Ending | None = None
        self._stream = stream
        self._received_at = received_at
        self._metrics = metrics
        self._last_at: float | None = None
        self.first_seed = request.sampling.seed
        """The seed of the first try, of an answer that was made anew."""
        self._num_known = stream.num_tokens
        """How many tokens are still to come that nobody waited for."""

    def note(self, event: Event) -> None:
        """Takes the answer's next event, and counts the time that it took, if it took any."""
        if self._num_known:
            self._num_known -= 1
        elif self.request.beams is None and not self.request.is_background:
            # The tokens of beams come at once, when all is over, and nobody waits for those of the background.
            now = time.monotonic()
            if self._last_at is None:
                self._metrics.first_token(now - self._received_at)
            else:
                self._metrics.next_token(now - self._last_at)
            self._last_at = now
        self.ending = event.ending
        if event.ending is not None:
            times = self.times
            self._metrics.ended(
                times.total, times.validation, times.queue, times.inference, event.ending.num_tokens,
                self.guesses.accepted if self.guesses else 0)

    def begin_anew(self, request: Request, stream: Stream) -> None:
        """Forgets the answer so far, of which no event was noted, for that to another request."""
        self.request, self._stream = request, stream
        self._num_known = 0

    def told(self, reason: str) -> None:
        """Notes by which word the client is told why the answer has ended."""
        self._stream.finish_reason = reason

    @property
    def seed(self) -> int | None:
        """The seed with which the answer can be repeated; None if nothing was drawn."""
        return self.request.sampling.seed if self.request.sampling.do_sample else None

    @property
    def hit_tokens(self) -> int:
        """How many of the prompt's tokens were found in the prefix cache when the request first ran."""
        return self._stream.hit_tokens

    @property
    def guesses(self) -> Guesses | None:
        """Counts the tokens of the answer that were guessed; None where nothing is guessed."""
        return self._stream.guesses

    @property
    def prompt_logprobs(self) -> PromptLogprobs:
        """Whole once the first event has come, if they were asked for."""
        return self._stream.prompt_logprobs

    @property
    def others(self) -> Mapping[tuple[str, int], bytes]:
        """The results of other kinds that have come, as in `Stream`."""
        return self._stream.others

    @property
    def times(self) -> Times:
        stream = self._stream
        assert stream.started_at is not None
        assert stream.finished_at is not None
        return Times(
            total=stream.finished_at - self._received_at,
            validation=stream.submitted_at - self._received_at,
            queue=stream.started_at - stream.submitted_at,
            inference=stream.finished_at - stream.started_at)
