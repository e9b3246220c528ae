"""Where the commands start: what is imported here is little, so that SIGTERM is heard from the first moment on."""

from penstock.launcher import sigterm


def launcher() -> None:
    """Runs `text-generation-launcher`."""
    sigterm.end_at_once()
    from penstock.launcher.launch import main

    main()


def penstock() -> None:
    """Runs `penstock`."""
    sigterm.end_at_once()
    from penstock.launcher.cli import main

    main(prog_name="penstock")
