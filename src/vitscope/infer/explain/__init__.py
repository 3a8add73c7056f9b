"""Looking inside a model: where it looks, how far that can be believed, what its layers show."""
