"""Looking a data set over before anything is trained on it."""
