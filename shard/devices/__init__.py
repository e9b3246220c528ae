"""What a processor and a GPU need to be told, and how data gets there and back."""
