"""A request that killed its group is refused for a while."""

import pytest

from penstock.router.errors import GenerationError
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.poison_memory import MAX_REMEMBERED, PoisonMemory
from penstock.router.generation.spec import GenerationSpec


def spec(text: str, **parameters: object) -> GenerationSpec:
    return GenerationSpec(text, Parameters.model_validate(parameters))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def is_refused(memory: PoisonMemory, asked: GenerationSpec) -> bool:
    try:
        memory.check(asked)
    except GenerationError:
        return True
    return False


def test_the_same_request_is_refused_until_its_time_is_over() -> None:
    clock = Clock()
    memory = PoisonMemory(600, clock)
    memory.remember(spec("a", temperature=0.5))
    clock.now += 300
    memory.remember(spec("b"))
    with pytest.raises(GenerationError, match=r"whenever they ran this request, so it is refused for 600 s"):
        memory.check(spec("a", temperature=0.5))
    assert not is_refused(memory, spec("a", temperature=0.6))
    assert not is_refused(memory, spec("a "))
    clock.now += 300
    assert [is_refused(memory, asked) for asked in (spec("a", temperature=0.5), spec("b"))] == [False, True]
    clock.now += 300
    assert not is_refused(memory, spec("b"))


def test_a_request_that_killed_again_is_refused_anew() -> None:
    clock = Clock()
    memory = PoisonMemory(600, clock)
    memory.remember(spec("a"))
    memory.remember(spec("b"))
    clock.now += 500
    memory.remember(spec("a"))
    clock.now += 200
    assert [is_refused(memory, spec(text)) for text in "ab"] == [True, False]


def test_no_time_means_no_memory() -> None:
    memory = PoisonMemory(0)
    memory.remember(spec("a"))
    assert not is_refused(memory, spec("a"))


def test_the_latest_are_remembered() -> None:
    memory = PoisonMemory(600)
    for number in range(MAX_REMEMBERED + 1):
        memory.remember(spec(f"{number}"))
    assert [is_refused(memory, spec(f"{number}")) for number in (0, 1, MAX_REMEMBERED)] == [False, True, True]


def test_text_that_is_no_unicode_is_told_apart() -> None:
    memory = PoisonMemory(600)
    memory.remember(spec("\ud800"))
    assert [is_refused(memory, spec(text)) for text in ("\ud800", "\ud801")] == [True, False]
