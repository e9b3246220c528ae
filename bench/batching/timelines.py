"""A few requests in a few slots under each policy, step by step, as text and as pictures:
`python -m penstock.bench.batching.timelines` prints them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.batching.drive import POLICIES, Drive, Request, Shape
from penstock.contract.output import Output
from penstock.contract.plan import Plan
from penstock.contract.row_result import RowResult
from penstock.contract.step_result import StepResult

DELAY = 1
"""For how many steps a dynamic batch waits for more requests."""


@dataclass(frozen=True)
class Example:
    """Requests, called by a letter and their numbers from 1 on, and the slots that they share. `answers` has for each
    when it comes, in steps, and how many tokens its answer has; its first step computes the prompt."""

    title: str
    letter: str
    answers: Sequence[tuple[int, int]]
    num_slots: int

    @property
    def requests(self) -> list[Request]:
        return [Request(at, (100 * number, 100 * number + 1), answer, limit=8)
                for number, (at, answer) in enumerate(self.answers, 1)]

    @property
    def shape(self) -> Shape:
        return Shape(self.num_slots, num_blocks=4 * self.num_slots, block_size=4, max_step_tokens=16)


COMING = Example("Five requests that come one after the other", "R", ((0, 4), (0, 2), (2, 6), (2, 3), (3, 2)), 3)
WAITING = Example("Six sequences that are all there at first", "S", tuple((0, each) for each in (5, 8, 4, 7, 4, 3)), 4)


class Paper:
    """Answers a step with a token for each row that wants one; each step takes a unit of time."""

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> float:
        return self._now

    def idle(self) -> None:
        self._now += 1

    def run(self, plan: Plan) -> StepResult:
        self._now += 1
        return StepResult(plan.step_id, tuple(
            RowResult(row.slot, (1,), (-1.0,)) for row in plan.rows if row.output is Output.SAMPLE))


@dataclass(frozen=True)
class Timeline:
    """Says for each step which request, by its number from 1 on, was in which slot; for none nothing ran."""

    example: Example
    policy: str
    steps: list[dict[int, int]]

    @property
    def places(self) -> str:
        """Returns how many of the places, a slot in a step each, were taken."""
        taken, places = sum(map(len, self.steps)), len(self.steps) * self.example.num_slots
        return f"{taken} of {places} places taken, {100 * taken / places:.0f} %"

    @property
    def text(self) -> str:
        rows = [["", *(f"T{number}" for number in range(1, len(self.steps) + 1))]]
        letter = self.example.letter
        rows += [[str(slot + 1), *(f"{letter}{step[slot]}" if slot in step else "." for step in self.steps)]
                 for slot in range(self.example.num_slots)]
        lines = [" ".join(cell.ljust(3) for cell in row).rstrip() for row in rows]
        return "\n".join([f"{self.policy}: {len(self.steps)} steps, {self.places}", *lines])


def timelines(example: Example) -> list[Timeline]:
    """Lets the scheduler answer the requests under each policy, and returns how it did."""
    drives = {policy: Drive(example.requests, policy, example.shape, DELAY, Paper()) for policy in POLICIES}
    return [Timeline(example, policy, [{slot: number + 1 for slot, number in step.items()} for step in drive.steps()])
            for policy, drive in drives.items()]


def draw(example: Example, file: Path) -> None:
    """Draws the timelines, one below the other; the steps that compute prompts are darker."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    found = timelines(example)
    colours = matplotlib.colormaps["tab10"]
    with matplotlib.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.2, 0.7 + 1.3 * example.num_slots), layout="constrained")
        FigureCanvasSVG(figure)
        for axes, line in zip(figure.subplots(len(found), sharex=True), found, strict=True):
            seen: set[int] = set()
            for at, step in enumerate(line.steps):
                for slot, number in step.items():
                    axes.barh(slot, 1, left=at, height=0.86, color=colours(number - 1), edgecolor="white",
                              alpha=0.55 if number in seen else 1.0)
                    axes.text(at + 0.5, slot, f"{example.letter}{number}", ha="center", va="center", fontsize=8)
                seen |= {*step.values()}
            axes.set_title(f"{line.policy}: {line.places}", fontsize=9, loc="left")
            axes.set_yticks(range(example.num_slots), [f"slot {slot + 1}" for slot in range(example.num_slots)])
            axes.set(ylim=(example.num_slots - 0.5, -0.5), xlim=(0, max(len(each.steps) for each in found)))
            axes.spines[["top", "right"]].set_visible(False)
        axes.set_xticks([at + 0.5 for at in range(max(len(each.steps) for each in found))],
                        [f"T{at + 1}" for at in range(max(len(each.steps) for each in found))])
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    print("\n\n".join("\n\n".join([example.title, *(line.text for line in timelines(example))])
                      for example in (COMING, WAITING)))
