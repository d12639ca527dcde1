"""Writes to a tensor that nothing else sees, such as `nn.ReLU(inplace=True)` after a convolution, as values.

torch makes a graph functional by tracing it once more, which takes longer than the export did. Where the
tensor is a result of its own, without a view of it before the write, the write is its op without underscore.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram

__all__ = ["plain_writes_as_values"]

_aten = torch.ops.aten

# The result has the type of the first operand where all operands have it.
_COMPUTE = frozenset(
    """abs_ add_ addcdiv_ addcmul_ bitwise_and_ bitwise_or_ celu_ clamp_ clamp_max_ clamp_min_ div_ dropout_
    elu_ exp_ hardsigmoid_ hardswish_ hardtanh_ leaky_relu_ mish_ mul_ neg_ reciprocal_ relu6_ relu_ rsqrt_
    selu_ sigmoid_ silu_ sqrt_ sub_ tanh_ threshold_""".split()
)
# The result has the type of the first operand.
_PLACE = frozenset(
    """detach_ fill_ index_add_ index_copy_ index_fill_ index_put_ masked_fill_ masked_scatter_ scatter_
    scatter_add_ scatter_reduce_ zero_""".split()
)
# Ops that torch puts together from others and whose result is never their operand.
_COMPOSITES = frozenset(
    """adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d batch_norm conv1d conv2d conv3d group_norm
    instance_norm layer_norm linear matmul max_pool1d max_pool2d max_pool3d""".split()
)


def plain_writes_as_values(exported: ExportedProgram) -> ExportedProgram:
    """The same program, changed in place."""
    for module in exported.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        order = {node: index for index, node in enumerate(module.graph.nodes)}
        changed = [node for node in order if _becomes_value(node, order)]
        if changed:
            module.recompile()
    return exported


def _becomes_value(node: torch.fx.Node, order: dict[torch.fx.Node, int]) -> bool:
    op = _functional(node.target)
    if op is None or not _is_alone(node, order) or not _of_one_type(node):
        return False
    written = node.args[0]
    node.target = op
    written.replace_all_uses_with(node, delete_user_cb=lambda user: order[user] > order[node])
    return True


def _functional(op: Any) -> Any:
    """The op of the same arguments that writes to none; None where there is no such."""
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return None
    name = op._schema.name.removeprefix("aten::")
    if name not in _COMPUTE | _PLACE:
        return None
    value = getattr(getattr(_aten, name[:-1]), op._overloadname, None)
    return value if value is not None and _types(value) == _types(op) else None


def _types(op: Any) -> list[str]:
    return [str(argument.type) for argument in op._schema.arguments]


def _is_alone(node: torch.fx.Node, order: dict[torch.fx.Node, int]) -> bool:
    """Whether the tensor that the node writes to has memory of its own, which no other value shares."""
    written = node.args[0]
    if not isinstance(written, torch.fx.Node) or not _makes_tensor(written):
        return False
    users = [user for user in written.users if user is not node]
    if any(user.op == "output" for user in users):
        return False
    return all(_makes_tensor(user) for user in users if order[user] < order[node])


def _makes_tensor(node: torch.fx.Node) -> bool:
    """Whether the node's result is one tensor that shares no memory with its operands.

    Kernels say so in their schemas; what torch puts together from several may be its operand all the same.
    """
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten" or op._schema.is_mutable:
        return False
    returns = op._schema.returns
    if len(returns) != 1 or returns[0].alias_info is not None:
        return False
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    name = op._schema.name
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return not composite or name.removeprefix("aten::") in _COMPOSITES


def _of_one_type(node: torch.fx.Node) -> bool:
    if node.target._schema.name.removeprefix("aten::") in _PLACE:
        return True
    values = [operand.meta.get("val") for operand in node.all_input_nodes]
    return len({value.dtype for value in values if isinstance(value, torch.Tensor)}) == 1
