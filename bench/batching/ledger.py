"""The cost of dividing steps among requests, which receipts tell of: `python -m penstock.bench.batching.ledger`.

Sequences decode in the scheduler that serves, with steps that cost nothing, in turns with its ledger and with one that
charges nobody. The difference is what a token costs whether or not somebody asks for a receipt;
`penstock.bench.server.router_speed` tells what a token costs in the whole router.
"""

import time
from statistics import median

import click

from penstock.contract.output import Output
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.contract.sampling import Sampling
from penstock.contract.step_result import StepResult
from penstock.router.scheduling.ledger import Ledger
from penstock.router.scheduling.scheduler import Scheduler
from penstock.router.scheduling.sequence import Sequence

PROMPT = 16
BLOCK_SIZE = 16


class NoLedger(Ledger):
    """Charges nobody."""

    def open(self, result: StepResult, num_tokens: int, num_rows: int) -> None:
        pass

    def charge(self, sequence: Sequence, row: Row, num_inputs: int) -> None:
        pass


def seconds_a_token(ledger: type[Ledger], num_sequences: int, num_steps: int) -> float:
    """Returns the processor time of the scheduler for a token of sequences that decode together."""
    length = PROMPT + num_steps
    scheduler = Scheduler(block_size=BLOCK_SIZE, num_blocks=num_sequences * (length // BLOCK_SIZE + 2),
                          max_slots=num_sequences, max_step_tokens=num_sequences * PROMPT)
    scheduler.ledger = ledger(time.monotonic)
    for number in range(num_sequences):
        prompt = [1000 * number + token for token in range(PROMPT)]
        scheduler.add(Sequence(id=number, tokens=prompt, prompt_length=PROMPT, max_length=length, sampling=Sampling(),
                               ignore_eos=True))
    num_tokens, begin = 0, time.process_time()
    while plan := scheduler.plan():
        rows = tuple(RowResult(row.slot, (1,), (-1.0,)) for row in plan.rows if row.output is Output.SAMPLE)
        scheduler.commit(StepResult(plan.step_id, rows, forward_ns=1_000_000))
        num_tokens += len(rows)
    return (time.process_time() - begin) / num_tokens


@click.command(help=__doc__)
@click.option("--sequences", type=click.IntRange(1), default=64, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=400, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True, help="With and without, in turns.")
def main(sequences: int, steps: int, rounds: int) -> None:
    pairs = [(seconds_a_token(Ledger, sequences, steps), seconds_a_token(NoLedger, sequences, steps))
             for _ in range(rounds)]
    more = [1e6 * (own - none) for own, none in pairs]
    click.echo(f"{1e6 * median(own for own, _ in pairs):.2f} µs a token in the scheduler, of which the ledger takes "
               f"{median(more):.2f} ({min(more):.2f} to {max(more):.2f})")


if __name__ == "__main__":
    main()
