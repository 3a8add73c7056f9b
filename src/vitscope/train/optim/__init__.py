"""How weights move: parameter groups, optimisers, learning-rate schedules."""
