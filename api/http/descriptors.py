"""How many connections the file descriptors of this process allow."""

import resource

OF_THE_REST = 192
"""Descriptors for what is open beside connections: database, files, pipes of processes."""

OF_A_CONNECTION = 2  # its own, and a file that its request reads or writes
FEWEST = 8
MOST = 1 << 20  # what a limit without an end is taken for


def raise_descriptor_limit() -> int:
    """Raises the soft limit to the hard one; gives the limit that then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # the kernel has a limit of its own
            return soft
    return wanted


def connections_within(descriptors: int, reserved: int) -> int:
    """Number of connections that a number of descriptors allows, beside some reserved ones."""
    return max(FEWEST, (descriptors - OF_THE_REST - reserved) // OF_A_CONNECTION)
