"""Checkpoints: written whole or not at all, proved before they are used."""
