"""Takes orders from the router's stream, runs them the same on every rank, and sends the results back."""
