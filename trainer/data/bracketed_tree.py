"""Sentiment trees in the notation of the Stanford Sentiment Treebank.

`(3 (2 It) (4 (2 's) (4 good)))`: every pair of brackets is a node, which begins with its label;
a leaf goes on with its word, any other node with its two children.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_PIECE = re.compile(r"[()]|[^\s()]+")
CHILDREN = 2


@dataclass(frozen=True)
class Tree:
    """A binary tree; children come before their parent, and the root is the last node.

    Attributes:
        labels: Label of each node.
        words: Word of each leaf; None for other nodes.
        children: Positions of the left and the right child of each node; None for leaves.
        heights: Longest way down to a leaf, in nodes; 0 for leaves.
    """

    labels: Sequence[int]
    words: Sequence[str | None]
    children: Sequence[tuple[int, int] | None]
    heights: Sequence[int]


@dataclass
class _Open:
    """A node whose closing bracket is still to come."""

    pieces: list[str] = field(default_factory=list)
    children: list[int] = field(default_factory=list)


def parse_tree(text: str) -> Tree:
    """Reads a tree.

    Args:
        text: One tree. A leaf may have several words, which are one with spaces.

    Raises:
        ValueError: Brackets do not match, a label is no number, or a node has neither one word nor
            two children.
    """
    open_nodes: list[_Open] = []
    labels: list[int] = []
    words: list[str | None] = []
    children: list[tuple[int, int] | None] = []
    heights: list[int] = []
    roots = 0
    for piece in _PIECE.findall(text):
        if piece == "(":
            open_nodes.append(_Open())
            continue
        if not open_nodes:
            raise ValueError(f"{piece!r} stands outside of a tree")
        if piece != ")":
            open_nodes[-1].pieces.append(piece)
            continue
        node = open_nodes.pop()
        label, word, pair = _close(node)
        labels.append(label)
        words.append(word)
        children.append(pair)
        heights.append(0 if pair is None else 1 + max(heights[child] for child in pair))
        if open_nodes:
            open_nodes[-1].children.append(len(labels) - 1)
        else:
            roots += 1
    if open_nodes or roots != 1:
        raise ValueError(
            f"{len(open_nodes)} brackets are not closed"
            if open_nodes
            else f"there are {roots} trees in place of one"
        )
    return Tree(labels, words, children, heights)


def _close(node: _Open) -> tuple[int, str | None, tuple[int, int] | None]:
    """Label, word and children of a node."""
    label, *words = node.pieces or [""]
    if not re.fullmatch(r"\d{1,4}", label):
        raise ValueError(f"the label {label[:20]!r} of a node is no number")
    if words and not node.children:
        return int(label), " ".join(words), None
    if words or len(node.children) != CHILDREN:
        raise ValueError(
            f"a node has {len(words)} words and {len(node.children)} children in place of a word "
            "or two children"
        )
    left, right = node.children
    return int(label), None, (left, right)
