"""Forks save steps where verifying costs nothing, and are left out where it costs something."""

import random

import pytest

from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.confirmed import Verified
from penstock.router.scheduling.priorities import BACKGROUND
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence, Status
from penstock.router.scheduling.speculation.guesser import LookupGuesser
from penstock.router.scheduling.speculation.speculation import Speculation

NUM_TEXTS = 10


def count_steps(
    cost_of: float, has_forks: bool, monkeypatch: pytest.MonkeyPatch, has_line: bool = False
) -> tuple[int, int]:
    """The steps of answers that repeat the older of two versions in their prompts, and how many forks were taken. With
    `has_line` one of the background waits meanwhile, which has no room beside them."""
    draw, num_steps, num_taken = random.Random(1), 0, 0
    for _ in range(NUM_TEXTS):
        older = [draw.randrange(100, 40000) for _ in range(96)]
        newer = [draw.randrange(100, 40000) if index % 16 == 15 else word for index, word in enumerate(older)]
        tokens, answer = [*older, *newer, *older[:2]], older[2:]
        speculation = Speculation(8, 64)
        for num_tokens in (1, 2, 4, 8, 16, 32, 64):
            speculation.cost.observe(num_tokens, 1 + cost_of * num_tokens)
        if not has_forks:
            monkeypatch.setattr(speculation, "choose_forks", lambda *_: [])
        scheduler = Scheduler(block_size=16, num_blocks=40, max_slots=4, max_step_tokens=400, speculation=speculation)
        sequence = Sequence(0, tokens, len(tokens), len(tokens) + 90, Sampling(), guesser=LookupGuesser(tokens))
        scheduler.add(sequence)
        if has_line:
            scheduler.add(Sequence(1, [7] * 600, 600, 610, Sampling(), priority=BACKGROUND))
        while sequence.status is not Status.FINISHED and (plan := scheduler.plan()):
            slot, num_steps = sequence.slot, num_steps + 1
            confirmed = scheduler.commit(verify(plan, answer, sequence.prompt_length))
            guessed = {row.drafts[:end + 1] for row in plan.rows for end in range(row.num_drafts)}
            verified = [each.num_drafts for each in confirmed if isinstance(each, Verified)]
            assert sum(verified) == len(guessed), "a guess that two rows have counts once"
            num_taken += sequence.slot not in (slot, None)
        assert tokens[sequence.prompt_length:] == answer[:90]
        assert scheduler.memory.num_held == 0
    return num_steps, num_taken


def verify(plan: Plan, answer: list[int], prompt_length: int) -> StepResult:
    """What a model says that knows the answer."""
    rows = []
    for row in plan.rows:
        begin = row.start + row.num_inputs - row.num_drafts - prompt_length
        truth = answer[begin:begin + row.num_drafts + 1]
        num_right = next((i for i, guess in enumerate(row.drafts) if guess != truth[i]), row.num_drafts)
        rows.append(RowResult(row.slot, tuple(truth[:num_right + 1]), (0.0,) * (num_right + 1)))
    return StepResult(plan.step_id, tuple(rows))


def test_forks_save_steps_where_they_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    without, _ = count_steps(0.0, False, monkeypatch)
    steps, num_taken = count_steps(0.0, True, monkeypatch)
    assert num_taken >= 5
    assert steps < 0.96 * without


def test_they_are_there_though_the_background_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_steps(0.0, True, monkeypatch, has_line=True) == count_steps(0.0, True, monkeypatch)


def test_they_are_left_out_where_they_cost_more_than_they_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    assert count_steps(0.1, True, monkeypatch) == count_steps(0.1, False, monkeypatch)
