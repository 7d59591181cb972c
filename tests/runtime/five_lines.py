"""The shortest training there is; a script for torchrun: five_lines.py SCHEDULE."""

import sys

import torch
from torch import nn

from runtime import ClippedOptimizer, Pipeline

torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
data = [(torch.randn(8, 4), torch.randn(8, 4)) for _ in range(3)]

pipeline = Pipeline(model, sys.argv[1], loss=nn.functional.mse_loss)
optimizer = ClippedOptimizer(pipeline, torch.optim.AdamW(pipeline.parameters()), max_norm=1.0)
for batch in data:
    result = pipeline.step(batch)
    optimizer.step()

for loss in result.losses.values():
    print(loss.item())
