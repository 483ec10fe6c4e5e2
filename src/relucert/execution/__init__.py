"""Runs: questions are put to a method in this process, in others or on other machines, and answers are kept."""
