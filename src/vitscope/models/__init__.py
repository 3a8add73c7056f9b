"""The networks: built from a config, never loaded from a file, never optimised here."""
