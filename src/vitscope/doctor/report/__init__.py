"""What an examination came to, as people and programs read it: in a terminal, as JSON, as a page."""
