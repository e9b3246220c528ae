"""What a checkpoint is: its configuration, its family, and the decoder that computes it."""
