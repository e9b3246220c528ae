"""Pages that commands write from the code, and the snippets of all pages, which are run."""
