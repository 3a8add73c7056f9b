"""From a data set to batches: two loaders behind one interface."""
