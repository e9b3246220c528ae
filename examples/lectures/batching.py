"""Static, dynamic and continuous batching: which request is in which slot at each step, and who waits for whom.

    python examples/lectures/batching.py

A step of the model computes a token for each request of its batch, and takes about as long for one as for several.

- Static: a batch begins when it is full, and the next when its last answer ends. Slots of short answers stay empty.
- Dynamic: as static, but a batch that is not full begins after some time, as Triton's does for other models.
- Continuous (Orca, Yu et al. 2022): requests join and leave at every step. Penstock serves so.

The scheduler of Penstock has all three, so that they can be compared; `penstock bench engine --policy` does so with a
model.
"""

from dataclasses import dataclass
from statistics import fmean

from penstock.bench.batching.drive import POLICIES, Drive
from penstock.bench.batching.timelines import COMING, DELAY, WAITING, Example, Paper, timelines


@dataclass(frozen=True)
class Figures:
    """What a policy makes of some requests, in steps: all of them, the mean wait for a slot, and the mean time from
    when a request comes to the end of its answer."""

    steps: int
    wait: float
    answer: float


def figures(example: Example, policy: str) -> Figures:
    """Lets the scheduler answer an example's requests under a policy; a step takes a unit of time."""
    drive = Drive(example.requests, policy, example.shape, DELAY, Paper())
    steps = sum(1 for _ in drive.steps())
    return Figures(steps, fmean(each.first_after - 1 for each in drive.answered),
                   fmean(each.ended_after for each in drive.answered))


def main() -> None:
    for example in (COMING, WAITING):
        print(example.title, *(line.text for line in timelines(example)), sep="\n\n")
        print(f"\n{'':>10} {'steps':>6} {'wait':>6} {'answer':>6}   means over the requests, in steps")
        for policy in POLICIES:
            found = figures(example, policy)
            print(f"{policy:>10} {found.steps:6} {found.wait:6.2f} {found.answer:6.2f}")
        print()


if __name__ == "__main__":
    main()
