"""Sounding: how deep should you speculate? The backend measures, stores and explains draft depth."""

__version__ = "0.1.0"
