"""A model that answers over HTTP: for programs, and on a small page for people."""
