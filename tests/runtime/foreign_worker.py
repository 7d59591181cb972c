"""Trains models that are not ours on forked ranks, and in one process; a script.

    python foreign_worker.py WORLD STEPS FOLDER DEVICE MODEL ...

Reads FOLDER/*.json and leaves FOLDER/results/RANK.json: by model and schedule this rank's losses,
and rank 0 those of one process too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from forked_ranks import open_store, run_ranks
from test_foreign_models import Foreign, build, in_one_process, on_one_rank

from runtime.session import connect
from synth.files import load


def run_rank(rank: int, world: int, models: dict[str, Foreign], folder: Path, device: str) -> None:
    session = connect(world, device=device, timeout_s=60, store=open_store(rank, folder))
    found = {
        name: {
            path.stem: on_one_rank(model, load(path), session)
            for path in sorted(folder.glob("*.json"))
        }
        for name, model in models.items()
    }
    session.barrier()
    session.close()
    if rank == 0:
        for name, model in models.items():
            found[name]["alone"] = in_one_process(model)
    (folder / "results" / f"{rank}.json").write_text(json.dumps(found))


def main() -> int:
    world, steps, folder, device = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        Path(sys.argv[3]),
        sys.argv[4],
    )
    # Built once, before the ranks are forked: importing transformers takes seconds.
    models = {name: build(name, steps) for name in sys.argv[5:]}
    return run_ranks(world, folder, lambda rank: run_rank(rank, world, models, folder, device))


if __name__ == "__main__":
    sys.exit(main())
