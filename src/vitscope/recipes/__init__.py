"""Recipes: functions that return the settings of a whole run, with what they were measured to give."""

from __future__ import annotations

from vitscope.recipes import digits  # noqa: F401  registers its recipes
from vitscope.recipes.registry import RECIPES, Recipe, find_recipe, recipe

__all__ = ["RECIPES", "Recipe", "find_recipe", "recipe"]
