"""A request whose outputs are read while it runs, in the session's event loop."""

import asyncio

from penstock.offline.asking import Asked, Question
from penstock.offline.model import Model
from penstock.offline.outputs import RequestOutput
from penstock.offline.sampling_params import RequestOutputKind
from penstock.offline.specs import num_candidates
from penstock.router.generation.service import Service


class Streamed:
    """Runs a request. A reader that is slower than the model gets several tokens at once."""

    def __init__(self, question: Question) -> None:
        self._asked = Asked(question)
        self._kind = question.params.output_kind
        if num_candidates(question.params) > question.params.n and self._kind is not RequestOutputKind.FINAL_ONLY:
            raise ValueError("`best_of` above `n` needs an `output_kind` of FINAL_ONLY: the best are known at the end")
        self._changed = asyncio.Event()
        self._end: Exception | None = None
        self._is_over = self._is_aborted = self._is_told = False

    async def run(self, model: Model, service: Service) -> None:
        """Answers the request; an error is for the reader. To cancel it aborts the request."""
        try:
            await self._asked.run(model.session, service, lambda asked: self._changed.set())
        except asyncio.CancelledError:
            self._is_aborted = True
            raise
        except Exception as error:
            self._end = error
        finally:
            self._is_over = True
            self._changed.set()

    async def next(self) -> RequestOutput | None:
        """Waits for more tokens and returns the output, or None after the last one. Raises the request's error."""
        while not self._is_over:
            await self._changed.wait()
            self._changed.clear()
            if not self._is_over and self._kind is not RequestOutputKind.FINAL_ONLY:
                return self._output()
        if self._end is not None:
            raise self._end
        if self._is_told:
            return None
        return self._output(self._is_aborted)

    def _output(self, is_aborted: bool = False) -> RequestOutput:
        output = self._asked.collector.output(self._kind is RequestOutputKind.DELTA, is_aborted)
        self._is_told = output.finished
        return output
