"""What a model's predictions are worth: metrics, temperatures, corruptions."""
