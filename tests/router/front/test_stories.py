"""A front explains requests that another one has answered."""

from dataclasses import replace
from pathlib import Path

from penstock.router.explaining.recent import Recent
from penstock.router.explaining.story import Story
from tests.router.front.fronts import ASKED, front, serving
from tests.scripted_engine import collect, submit


async def test_a_front_finds_what_another_one_has_told(path: Path) -> None:
    async with serving(path) as (_, server), front(path) as one, front(path) as two:
        server.stories = Recent(2)
        stream = submit(one, ASKED)
        await collect(stream)
        story = Story("r1", "a1", b"key", 0.0, "POST /generate", None, 200, None, "", {}, 0.0, 0.0, 1.0, 1.0,
                      usage=stream.usage)
        one.stories.tell(story)
        await one.stories.find("r1", b"key")  # so that the engine's process has it
        found = await two.stories.find("a1", b"key")
        assert found is not None
        assert found.usage.arrival is not None
        assert (found.usage.arrival.num_before, found.usage.arrival.num_running) == (0, 0)
        assert found.usage.prompt_tokens == len(ASKED.input_ids)
        assert await two.stories.find("r1", None) is None
        one.stories.tell(replace(story, id="r2", answer_id=None))
        one.stories.tell(replace(story, id="r3", answer_id=None))
        assert await one.stories.find("r3", b"key") is not None
        assert await two.stories.find("a1", b"key") is None
