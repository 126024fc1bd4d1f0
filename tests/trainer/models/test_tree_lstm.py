"""Tree-LSTMs beside a recursion from node to node."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from trainer.config import ModelConfig
from trainer.data.trees import Tree, TreeInputs, parse_tree, plant
from trainer.models import build_model
from trainer.models.word_networks import TreeLSTM
from trainer.samples import InputSpec

WORDS = ("<padding>", "<unknown>", "it", "is", "not", "good")
SPEC = InputSpec((), vocabulary=WORDS)
TREES = [
    "(3 (2 It) (4 (2 is) (4 good)))",
    "(4 good)",
    "(1 (2 (2 It) (2 is)) (1 (1 (2 not) (3 (3 very) (4 good))) (2 .)))",
]

Pair = tuple[Tensor, Tensor]


def build(**options: Any) -> TreeLSTM:  # noqa: ANN401
    torch.manual_seed(0)
    options = {"hidden": 7, "embedding_dim": 5} | options
    model = build_model(ModelConfig(name="tree_lstm", options=options), SPEC, 3)
    assert isinstance(model, TreeLSTM)
    return model.double().eval()


def logits_of_all_nodes(model: nn.Module, trees: list[Tree]) -> Tensor:
    forest = plant(trees, WORDS)
    nodes = torch.arange(int(forest.starts[-1]))
    inputs = TreeInputs(forest, nodes.numpy(), torch.device("cpu"))
    (batch,) = inputs.batches([nodes], None)
    logits: Tensor = model(batch)
    return logits


def weights(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters())


def word_of(model: TreeLSTM, word: str) -> Tensor:
    token = WORDS.index(word.lower()) if word.lower() in WORDS else 1
    return weights(model)["embedding.weight"][token]


def binary_state(model: TreeLSTM, tree: Tree, node: int) -> Pair:
    """Equations 9 to 14 of Tai et al. with two children, gate by gate."""
    w, hidden = weights(model), model.classifier.in_features
    children, word = tree.children[node], tree.words[node]
    if children is None:
        assert word is not None
        x = word_of(model, word)
        c = w["cell.word.weight"][:hidden] @ x + w["cell.word.bias"][:hidden]
        o = torch.sigmoid(w["cell.word.weight"][hidden:] @ x + w["cell.word.bias"][hidden:])
        return o * torch.tanh(c), c
    (h_l, c_l), (h_r, c_r) = (binary_state(model, tree, child) for child in children)

    def gate(number: int) -> Tensor:
        rows = slice(number * hidden, (number + 1) * hidden)
        matrix, bias = w["cell.children_gates.weight"][rows], w["cell.children_gates.bias"][rows]
        return matrix[:, :hidden] @ h_l + matrix[:, hidden:] @ h_r + bias

    i, f_l, f_r, o = (torch.sigmoid(gate(number)) for number in range(4))
    c = i * torch.tanh(gate(4)) + f_l * c_l + f_r * c_r
    return o * torch.tanh(c), c


def child_sum_state(model: TreeLSTM, tree: Tree, node: int) -> Pair:
    """Equations 2 to 8 of Tai et al., child by child."""
    w, hidden = weights(model), model.classifier.in_features
    word = tree.words[node]
    states = [child_sum_state(model, tree, child) for child in tree.children[node] or ()]
    total = sum((h for h, _ in states), torch.zeros(hidden, dtype=torch.float64))
    gates = w["cell.children_sum.weight"] @ total + w["cell.children_sum.bias"]
    if word is not None:
        gates = gates + w["cell.word.weight"] @ word_of(model, word)
    i, o, u = gates[:hidden], gates[hidden : 2 * hidden], gates[2 * hidden :]
    c = torch.sigmoid(i) * torch.tanh(u)
    for h_k, c_k in states:
        c = c + torch.sigmoid(w["cell.child.weight"] @ h_k + w["cell.child.bias"]) * c_k
    return torch.sigmoid(o) * torch.tanh(c), c


@pytest.mark.parametrize(
    ("cell", "state"), [("binary", binary_state), ("child_sum", child_sum_state)]
)
def test_batches_by_height_equal_the_recursion_from_node_to_node(cell: str, state: Any) -> None:  # noqa: ANN401
    model, trees = build(cell=cell), [parse_tree(text) for text in TREES]

    logits = logits_of_all_nodes(model, trees)

    expected = [
        model.classifier(state(model, tree, node)[0])
        for tree in trees
        for node in range(len(tree.labels))
    ]
    torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["binary", "child_sum"])
def test_gradients_equal_those_of_the_recursion(cell: str) -> None:
    model, tree = build(cell=cell), parse_tree(TREES[2])
    state = binary_state if cell == "binary" else child_sum_state
    logits_of_all_nodes(model, [tree])[-1].square().sum().backward()
    batched = {name: each.grad for name, each in model.named_parameters()}
    model.zero_grad(set_to_none=True)

    root = state(model, tree, len(tree.labels) - 1)[0]
    model.classifier(root).square().sum().backward()

    for name, parameter in model.named_parameters():
        torch.testing.assert_close(batched[name], parameter.grad, rtol=1e-9, atol=1e-12)


def test_a_sample_does_not_depend_on_the_trees_beside_it() -> None:
    model, trees = build(), [parse_tree(text) for text in TREES]

    together = logits_of_all_nodes(model, trees)

    alone = torch.cat([logits_of_all_nodes(model, [tree]) for tree in trees])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


def test_only_the_binary_cell_tells_left_from_right() -> None:
    tree, mirrored = parse_tree("(2 (2 not) (2 good))"), parse_tree("(2 (2 good) (2 not))")

    roots = {
        cell: [logits_of_all_nodes(build(cell=cell), [each])[-1] for each in (tree, mirrored)]
        for cell in ("binary", "child_sum")
    }

    torch.testing.assert_close(*roots["child_sum"])
    assert (roots["binary"][0] - roots["binary"][1]).abs().max() > 1e-3


def test_dropout_is_of_training_alone() -> None:
    model, trees = build(dropout=0.5), [parse_tree(TREES[0])]

    first, second = (logits_of_all_nodes(model, trees) for _ in range(2))
    model.train()
    third, fourth = (logits_of_all_nodes(model, trees) for _ in range(2))

    assert torch.equal(first, second)
    assert not torch.equal(third, fourth)


def test_an_unknown_cell_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no cell 'ternary'.*binary or child_sum"):
        build(cell="ternary")
