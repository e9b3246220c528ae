"""Runs one step: takes in the rows of a plan, runs the model, samples tokens and keeps what the next steps need."""
