"""The commands of `difficulty`, one file each; heavy packages are imported when one runs."""
