"""Small parts that several networks share. They take plain numbers, never a config."""
