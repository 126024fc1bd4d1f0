"""Folders of small encoders that Sentence Transformers saved, for the tests."""
