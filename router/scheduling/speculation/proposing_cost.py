"""How long the draft model takes to propose, as far as steps have shown."""

from penstock.contract.plan import Plan
from penstock.router.scheduling.speculation.step_cost import StepCost

UNKNOWN_SHARE = 0.15
"""The cost of a round of proposals, as a share of a step of as many tokens, until a step has shown it."""


class ProposingCost:
    """Averages the times of a round: one token for each sequence that asks."""

    def __init__(self, step_cost: StepCost) -> None:
        """`step_cost` tells what a step takes, while no round is known."""
        self._step_cost = step_cost
        self._round_cost = StepCost()

    def observe(self, plan: Plan, seconds: float) -> None:
        """Takes in the draft model's time in a step. One with prompts, which it ran too, shows nothing of rounds."""
        if plan.num_rounds and not plan.num_prompt_tokens:
            asking = sum(row.num_proposals > 0 for row in plan.rows)
            self._round_cost.observe(asking, seconds / plan.num_rounds)

    def seconds(self, num_rounds: int, asking: int) -> float:
        """Returns how long so many rounds for so many sequences would take."""
        if not num_rounds:
            return 0.0
        if not self._round_cost.is_known:
            return num_rounds * UNKNOWN_SHARE * self._step_cost.seconds(asking)
        return num_rounds * self._round_cost.seconds(asking)
