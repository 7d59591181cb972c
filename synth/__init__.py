"""pipesynth's synthesizer: problem -> graph -> bounds -> solve -> schedule -> verify -> files."""

__version__ = "0.1.0"
