"""How files are written whole, columns converted and descriptions compared."""
