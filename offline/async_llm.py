"""`AsyncLLM`: a model in this program whose answers stream. It is imported with little, as `LLM` is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.offline.outputs import LoRARequest, RequestOutput
from penstock.offline.owner import ModelOwner
from penstock.offline.sampling_params import SamplingParams

if TYPE_CHECKING:
    from penstock.offline.prompts import PromptType


class AsyncEngineArgs:
    """The arguments of an `AsyncLLM`, which is made of them later, by `from_engine_args`."""

    def __init__(self, model: str, **arguments: Any) -> None:
        self.arguments = {"model": model, **arguments}


class AsyncLLM(ModelOwner):
    """A language model in this program, for programs with an event loop: any number of tasks may ask at once. It is
    loaded on entering the `async with`, or before the first answer. See `ModelOwner` for its arguments."""

    _waits = False

    @classmethod
    def from_engine_args(cls, engine_args: AsyncEngineArgs) -> Self:
        """Makes one with these arguments."""
        return cls(**engine_args.arguments)

    async def generate(
        self, prompt: PromptType, sampling_params: SamplingParams | None = None, request_id: str | None = None, *,
        lora_request: LoRARequest | None = None, priority: int = 0,
    ) -> AsyncGenerator[RequestOutput]:
        """Yields the output of a prompt as it grows, as `output_kind` of the parameters says. Who stops reading, or is
        cancelled, ends the request. Raises ValueError for a request that can't be answered."""
        from penstock.offline.asking import Question
        from penstock.offline.prompts import read
        from penstock.offline.streaming import Streamed

        service = await self._model.opened()
        request_id = self._model.next_id() if request_id is None else request_id
        if request_id in self._model.running:
            raise ValueError(f"there is a request {request_id!r} already, which has not ended")
        question = Question(request_id, read(prompt), SamplingParams() if sampling_params is None else sampling_params,
                            self._model.next_seed(), lora_request, priority)
        streamed, loop = Streamed(question), self._model.loop
        running = self._model.running[request_id] = loop.submit(streamed.run(self._model, service))
        try:
            while (output := await loop.result(streamed.next())) is not None:
                yield output
        finally:
            running.cancel()
            self._model.running.pop(request_id, None)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends requests, whose readers get a last output with the finish reason `abort`; nothing happens to those that
        have ended."""
        for each in [request_id] if isinstance(request_id, str) else request_id:
            if (running := self._model.running.get(each)) is not None:
                running.cancel()

    def shutdown(self) -> None:
        """Ends the shards as `close` does, which is Penstock's name for it."""
        self.close()

    async def __aenter__(self) -> Self:
        await self._model.opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from penstock.offline.event_loop import in_daemon_thread

        await in_daemon_thread(self.close)
