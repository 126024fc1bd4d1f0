"""Evaluation of a model's predictions: metrics, temperature scaling, corruptions."""
