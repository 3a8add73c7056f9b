"""Recipes: functions that return the settings of a whole run, with what they were measured to give."""

from __future__ import annotations

from vitscope.recipes import cifar10, digits, mnist, overfit, photographs  # noqa: F401  they register their recipes
from vitscope.recipes.registry import RECIPES, Recipe, find_recipe, recipe

__all__ = ["RECIPES", "Recipe", "find_recipe", "recipe"]
