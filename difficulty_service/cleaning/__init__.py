"""How scored datasets are cleaned by marks and conditions, and exported to other tools."""
