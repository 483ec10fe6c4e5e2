"""Shared by all tests: one thread each, since they run side by side, and reproducible random examples."""

import os

import hypothesis
import torch

hypothesis.settings.register_profile("relucert", deadline=None, derandomize=True, database=None, print_blob=False)


def pytest_configure() -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests start
    hypothesis.settings.load_profile("relucert")
