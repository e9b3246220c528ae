"""The layers of a decoder. Each reads its own slice of the weights and knows what the other ranks hold."""
