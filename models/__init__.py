"""Plain torch modules that know nothing about pipelines, and how to cut them into stages.

`build(name, stages, options)` is the registry: it returns a `Model`, which makes each stage, names
the loss that closes the last one and draws the batches.
"""

from models.layered import Layered
from models.registry import NAMES, Model, Options, build, build_layered

__all__ = ["NAMES", "Layered", "Model", "Options", "build", "build_layered"]
