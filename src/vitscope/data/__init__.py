"""Pictures in: what happens to an image before a model sees it. Knows no model."""
