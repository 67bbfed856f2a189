"""Tests of the reference training loops: command lines and parity."""
