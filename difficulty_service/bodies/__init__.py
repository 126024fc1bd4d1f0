"""JSON bodies of the REST service: `api` answers with them, and `client` reads them."""
