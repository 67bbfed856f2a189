"""Widgets that draw lines themselves, from no more rows than the screen has cells."""
