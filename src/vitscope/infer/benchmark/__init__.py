"""How fast models are: fair timing, equal work, and what it was measured on."""
