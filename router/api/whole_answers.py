"""OpenAI's routes without HTTP: from a url and a body to a whole answer, for lines of batches."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from penstock.router.api.http.body import to_body
from penstock.router.api.openai import chat, completions, embeddings
from penstock.router.api.openai.bodies import ChatBody, CompletionBody, OpenAIBody
from penstock.router.api.openai.embedding_bodies import EmbeddingBody
from penstock.router.api.openai.envelope import Whole
from penstock.router.api.responses import answering
from penstock.router.api.responses.bodies import ResponseBody
from penstock.router.errors import ValidationError
from penstock.router.generation import request_record
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish
from penstock.router.generation.services import Services

EMBEDDINGS = "/v1/embeddings"
AnyBody = TypeVar("AnyBody", bound=OpenAIBody | ResponseBody | EmbeddingBody)


@dataclass(frozen=True, slots=True)
class WholeRoute(Generic[AnyBody]):
    """A route whose answers can be had whole: the name of its operation, as in `RequestRecord`, the type of its body,
    and the function that answers one."""

    operation: str
    schema: type[AnyBody]
    answer: Callable[[Asking, AnyBody, Wish], Awaitable[Whole]]

    def read(self, content: Any, is_background: bool) -> AnyBody:
        """Returns a body that was parsed as JSON, which is to ask for a whole answer. Raises RouterError."""
        body = to_body(content, self.schema)
        if is_background:  # which is behind all tiers, and must not be said to be of one
            tiers = {"service_tier", "priority"} & self.schema.model_fields.keys()
            body = cast(AnyBody, body.model_copy(update=dict.fromkeys(tiers)))
        if getattr(body, "stream", None):
            raise ValidationError("`stream` must be false where whole answers are asked for. Given: true")
        return body

    async def ask(self, services: Services, content: Any, wish: Wish, is_background: bool) -> Whole:
        """Answers a body that was parsed as JSON. Raises RouterError."""
        body = self.read(content, is_background)
        request_record.describe(self.operation, body.model)
        async with services.using(body.model) as service:
            with Asking(service, is_background) as asking:
                return await self.answer(asking, body, wish)


ROUTES: Mapping[str, WholeRoute[Any]] = {
    "/v1/chat/completions": WholeRoute("chat", ChatBody, chat.whole_answer),
    "/v1/completions": WholeRoute("text_completion", CompletionBody, completions.whole_answer),
    "/v1/responses": WholeRoute("response", ResponseBody, answering.lone_answer),
    EMBEDDINGS: WholeRoute(embeddings.OPERATION, EmbeddingBody, embeddings.whole_answer),
}
"""By url."""


async def whole_answer(
    services: Services, url: str, content: Any, wish: Wish | None = None, *, is_background: bool = False
) -> Whole:
    """Answers a body that was parsed as JSON as the route at `url`, one of ROUTES, does. Raises RouterError; a client
    of HTTP is told of it by `failures.told`.

    If it `is_background` it comes after all other requests and takes none of their permits, as `Asking` says.
    """
    return await ROUTES[url].ask(services, content, wish or Wish(), is_background)
