"""Runs the histories of some seeds, and tells what happens in them."""

import click

from tests.router.groups.simulation.clock import virtual_time
from tests.router.groups.simulation.world import World, _live


@click.command()
@click.argument("seeds", nargs=-1, type=int, required=True)
def main(seeds: tuple[int, ...]) -> None:
    """Tell the history of each of SEEDS."""
    for seed in seeds:
        with virtual_time(seed) as loop:
            world = loop.run_until_complete(_live(seed, World))
        for when, what in world.story:
            click.echo(f"{when:8.3f}  {what}")
        click.echo(f"seed {seed}: {world.judge.violation or 'all is well'}; {dict(world.judge.counts)}")


if __name__ == "__main__":
    main()
