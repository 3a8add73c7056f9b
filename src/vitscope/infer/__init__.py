"""Using a model and looking inside it."""
