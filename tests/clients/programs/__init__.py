"""What the clients do: programs that need a client, a server's URL, and nothing of this repository."""
