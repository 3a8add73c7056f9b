"""Where pictures come from: one file per format, recognised by looking."""
