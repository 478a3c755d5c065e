"""Runs a script in a process that is forked from one that has imported PyTorch and run nothing."""

import multiprocessing
import os
import runpy
import sys
import warnings

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["torch"])


def run_script(script, told):
    """Run a script as Python does, with its standard output in a file."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.argv = [script]
    with open(told, "w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        sys.stdout = file
        runpy.run_path(script, run_name="__main__")
