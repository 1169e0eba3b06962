"""Imported by the worker to be warm."""
