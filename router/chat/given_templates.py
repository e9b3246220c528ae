"""Chat templates that come with requests: they are rendered in processes of their own, beside the model's."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from penstock.router.chat.files import DEFAULT
from penstock.router.chat.renderer import NUM_PROCESSES, Compiled, Renderers
from penstock.router.chat.template import ChatTemplate, GivenTo
from penstock.router.errors import ValidationError
from penstock.system.daemon_threads import DaemonThreads

MAX_TEMPLATE = 65_536
"""The most characters of a template; those that are published have up to 20,000."""
MAX_KNOWN = 8
"""How many templates are known from one request to the next; the processes keep as many."""


class GivenTemplates:
    """Reads the templates of requests. `special_tokens` are the model's, which templates may name.

    The processes start with the first request that brings one. A template that takes too long ends one of them, which
    is started again; it can do no harm to requests that have none.
    """

    def __init__(self, special_tokens: Mapping[str, str]) -> None:
        self._special_tokens = special_tokens
        self._renderers = Renderers({})
        self._thread = DaemonThreads(NUM_PROCESSES, "given-template")
        self._known: OrderedDict[str, ChatTemplate] = OrderedDict()
        """Those that were used last, by source."""

    async def read(self, source: str) -> ChatTemplate:
        """Returns the template of this source. It is looked at once, as clients send it with each request.

        Raises ValidationError if it is too long, TemplateError if it can't be read, and RouterError if the processes
        are lost.
        """
        if len(source) > MAX_TEMPLATE:
            raise ValidationError(f"`chat_template` must have at most {MAX_TEMPLATE} characters. Given: {len(source)}",
                                  "string_above_max_length", "chat_template")
        if source not in self._known:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._renderers.describe, source)
            compiled = Compiled({DEFAULT: found.variables[""]}, {DEFAULT: found.roles[""]}, {})
            given = GivenTo(self._renderers, self._thread, compiled)
            self._known[source] = ChatTemplate({DEFAULT: source}, self._special_tokens, given)
        self._known.move_to_end(source)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return self._known[source]

    def close(self) -> None:
        """Ends the threads and processes."""
        self._thread.close()
        self._renderers.close()
