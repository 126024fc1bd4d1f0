"""Every choice that a person has, and every rule between choices, once."""
