"""Decoding and preparation of images, from encoded bytes to the input tensor of a backbone."""
