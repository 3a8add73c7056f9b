"""Pictures of a run: one file each."""
