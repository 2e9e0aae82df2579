import torch
from torch import nn

from gristmill import spec
from gristmill.models.mlp import Mlp, Shape
from gristmill.training import optimizers


def test_matrices_decay_and_biases_norms_and_embeddings_do_not() -> None:
    model = Mlp(Shape(num_numeric=2, cardinalities=(5,), num_outputs=3, hidden=(8,), dropout=0.0))
    optimizer = optimizers.build(model, spec.AdamW(lr=0.1, weight_decay=0.3))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = {
        group["weight_decay"]: {names[id(parameter)] for parameter in group["params"]}
        for group in optimizer.param_groups
    }
    assert groups == {
        0.3: {"body.0.weight", "head.weight"},
        0.0: {"embeddings.0.weight", "body.0.bias", "body.1.weight", "body.1.bias", "head.bias"},
    }
    assert {group["lr"] for group in optimizer.param_groups} == {0.1}


def test_every_parameter_is_optimized_once_also_in_norms_of_other_shapes() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LayerNorm((4,)), nn.Embedding(2, 2))
    optimizer = optimizers.build(model, spec.AdamW())
    found = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(found) == sorted(id(parameter) for parameter in model.parameters())
    assert len(optimizer.param_groups[0]["params"]) == 1


def test_decay_pulls_what_no_gradient_moves() -> None:
    model = Mlp(Shape(num_numeric=1, cardinalities=(4,), num_outputs=1, hidden=(2,), dropout=0.0))
    before = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    optimizer = optimizers.build(model, spec.AdamW(lr=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, tensor in model.named_parameters():
        decayed = name in ("body.0.weight", "head.weight")
        assert torch.allclose(tensor, before[name] * (1 - 0.1 * 0.5 if decayed else 1.0), rtol=1e-6)
