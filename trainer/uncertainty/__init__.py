"""Pretrained visual uncertainties: a head on frozen features that predicts each sample's loss."""
