"""`python -m synth` is the `pipesynth` command."""

import sys

from synth.cli import main

sys.exit(main())
