"""A turn that is being answered: its permits, its prompt, and which answers it gets."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from penstock.contract.pooling import Task
from penstock.router.chat.answer_form import AnswerForm
from penstock.router.errors import ValidationError
from penstock.router.generation.answers import Answers, answering
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import OUTPUT_IDS, Identity, Wish, identify
from penstock.router.generation.spec import GenerationSpec
from penstock.router.generation.tasks import check_task
from penstock.router.turns.turn import Turn
from penstock.router.turns.turn_reader import TurnReader


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn as it was read: the spec of its generation, the form of its answers, and which answers these are."""

    asking: Asking
    spec: GenerationSpec
    form: AnswerForm
    identity: Identity
    is_stream: bool
    num_permits: int

    def answering(self) -> AbstractAsyncContextManager[Answers]:
        """Has the answers made, as `answers.answering` does."""
        return answering(self.asking, [self.spec], self.identity, self.is_stream, self.num_permits)

    def readers(self, answers: Answers) -> list[TurnReader]:
        """Returns a reader for each answer, in the order of their indices."""
        return [TurnReader(answer, self.form, f"{self.identity.name}.{answer.index}") for answer in answers.each]


@asynccontextmanager
async def ask(
    asking: Asking, turn_of: Callable[[], Turn], wish: Wish, rendering: Sequence[object], *, num_answers: int = 1,
    is_stream: bool, flags: Sequence[str] = (),
) -> AsyncIterator[Asked]:
    """Holds the permits of a turn with so many answers, and reads it. The permits come first: a prompt is work, too.

    `rendering` and `flags` are as in `identify`. Raises RouterError.
    """
    service = asking.service
    check_task(service.facts, Task.GENERATE)
    # More than there can be are refused by a rule.
    num_permits = num_answers if num_answers <= service.limits.max_concurrent_requests else 0
    async with asking.permit(num_permits):
        spec, form = await turn_of().read(service)
        if wish.output_ids is not None and not form.is_plain:
            raise ValidationError(f"`{OUTPUT_IDS}` is not for answers that may call tools, whose tokens have no event "
                                  "each")
        kind = [form.calls and form.calls.name, *([form.thinking.name] if form.thinking else ())]
        identity = await identify(service, [spec], wish, (*rendering, *kind), is_stream=is_stream, flags=flags)
        yield Asked(asking, spec, form, identity, is_stream, num_permits)
