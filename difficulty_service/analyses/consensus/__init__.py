"""One score of several backbones."""
