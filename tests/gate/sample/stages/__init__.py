"""Stages of the sample project."""
