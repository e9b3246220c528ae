"""What each family of models can do here, found out by running: `python -m tests.models` writes docs/models.md."""
