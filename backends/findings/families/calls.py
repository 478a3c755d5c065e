"""Calls of the attention functions of libraries on NumPy arrays, for the tables of families.

Each takes and gives arrays of batch, heads, positions, features, and its options under the names of the
library.
"""

import ctypes
import os
from types import SimpleNamespace

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("DEV", "PYTHON")  # of tinygrad


def swap(array):
    """Exchange the axes of heads and positions."""
    return np.swapaxes(np.asarray(array), 1, 2)


def tensors(options):
    """Make the arrays among options tensors of PyTorch."""
    import torch

    return {
        name: torch.tensor(each) if isinstance(each, np.ndarray) else each for name, each in options.items()
    }


def torch_sdpa(*arrays, **options):
    import torch
    from torch.nn.functional import scaled_dot_product_attention as attend

    return attend(*map(torch.tensor, arrays), **tensors(options)).numpy()


def torch_flex(*arrays, compiled=False, **options):
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    attend = torch.compile(flex_attention, dynamic=True) if compiled else flex_attention
    result = attend(*map(torch.tensor, arrays), **options)
    return [None if x is None else x.numpy() for x in result] if isinstance(result, tuple) else result.numpy()


def torch_mha(*arrays, grad=False, **options):
    """Call MultiheadAttention, one head without projections: output and weights, or gradients of keys."""
    import torch

    query, key, value = (torch.tensor(array[:, 0]) for array in arrays)
    module = torch.nn.MultiheadAttention(query.shape[-1], 1, bias=False, batch_first=True).eval()
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(query.shape[-1]).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(query.shape[-1]))
    module.to(query.dtype)
    key.requires_grad_(grad)
    output, weights = module(query, key, value, **tensors(options))
    if grad:
        output[:, 1].sum().backward()
        return key.grad.numpy()
    return output.detach().numpy(), None if weights is None else weights.detach().numpy()


def _of_bshd(function, arrays, options):
    """Call a function of JAX whose axes are batch, positions, heads, features."""
    import jax

    wide = any(np.asarray(array).dtype == np.float64 for array in (*arrays, *options.values()))
    with jax.enable_x64(wide):
        options = {
            name: jax.numpy.asarray(each) if isinstance(each, np.ndarray) else each
            for name, each in options.items()
        }
        result = function(*map(jax.numpy.asarray, map(swap, arrays)), **options)
        if isinstance(result, tuple):
            return swap(result[0]), np.asarray(result[1])
        return swap(result)


def jax_nn(*arrays, **options):
    import jax

    return _of_bshd(jax.nn.dot_product_attention, arrays, options)


def tokamax(*arrays, **options):
    from tokamax import dot_product_attention

    return _of_bshd(dot_product_attention, arrays, {"implementation": "xla", **options})


def linen(*arrays, **options):
    from flax import linen

    return _of_bshd(linen.dot_product_attention, arrays, options)


def nnx(*arrays, **options):
    from flax import nnx

    return _of_bshd(nnx.dot_product_attention, arrays, options)


def keras(*arrays, **options):
    from keras.ops import dot_product_attention

    return swap(dot_product_attention(*map(swap, arrays), **options))


def mlx(*arrays, scale=1.0, mask=None):
    import mlx.core as mx

    with mx.stream(mx.cpu):
        made = [mx.array(x, dtype=getattr(mx, str(x.dtype))) for x in arrays]
        mask = None if mask is None else mx.array(mask)
        output = mx.fast.scaled_dot_product_attention(*made, scale=scale, mask=mask)
        return np.array(output)


def _onnx_names(dtype):
    return {"float32": "float", "float64": "double"}.get(str(dtype), str(dtype))


def _model(arrays, attributes, operator, opset):
    """Return a model of one node, whose inputs are those arrays that are not None, and their values."""
    from onnx import helper
    from onnx.parser import parse_model

    names = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
    values = {name: array for name, array in zip(names, arrays, strict=True) if name}
    types = [
        f"{_onnx_names(array.dtype)}[{','.join(map(str, array.shape))}] {name}".replace("[]", "")
        for name, array in values.items()
    ]
    outputs = "Y, PK, PV" if "Group" in operator else "Y"
    model = parse_model(
        f'<ir_version: {10 if opset < 24 else 11}, opset_import: ["" : {opset}, "com.microsoft" : 1]> '
        f"g ({', '.join(types)}) => ({_onnx_names(arrays[0].dtype)}[A,B,C] Y) "
        f"{{ {outputs} = {operator}({', '.join(names)}) }}"
    )
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for name, value in attributes.items():
        model.graph.node[0].attribute.append(helper.make_attribute(name, value))
    return model, values


def onnx(*arrays, **attributes):
    """Call the reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    model, values = _model(arrays, attributes, "Attention", 24)
    return ReferenceEvaluator(model).run(None, values)[0]


def ort(*arrays, operator="Attention", opset=23, **attributes):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    model, values = _model(arrays, attributes, operator, opset)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, values)[0]


def ort_mha(*arrays, bias=None, **attributes):
    """Call MultiHeadAttention with one head."""
    rows = [array[:, 0] for array in arrays]
    operator = "com.microsoft.MultiHeadAttention"
    return ort(*rows, None, None, bias, operator=operator, num_heads=1, **attributes)


def ort_gqa(*arrays, bias=None, **attributes):
    """Call GroupQueryAttention with one head. It needs as many queries as keys."""
    rows = [array[:, 0] for array in arrays]
    count = rows[0].shape[1]
    lengths = [np.array([count - 1], np.int32), np.array(count, np.int32)]
    options = {"num_heads": 1, "kv_num_heads": 1, **attributes}
    operator = "com.microsoft.GroupQueryAttention"
    empty = [None, None, None, bias] if bias is not None else []
    return ort(*rows, None, None, *lengths, *empty, operator=operator, **options)


def equinox(*arrays, mask=None):
    """Call a module of one head whose projections are the identity, on one batch entry."""
    import equinox
    import jax.numpy as jnp
    from jax.random import key

    depth, of_value = arrays[0].shape[-1], arrays[2].shape[-1]
    sizes = {"key_size": depth, "qk_size": depth, "value_size": of_value, "vo_size": of_value}
    module = equinox.nn.MultiheadAttention(1, depth, output_size=of_value, key=key(0), **sizes)
    names = ("query_proj", "key_proj", "value_proj", "output_proj")
    eyes = [jnp.eye(len(getattr(module, name).weight)) for name in names]
    module = equinox.tree_at(lambda tree: [getattr(tree, name).weight for name in names], module, eyes)
    return np.asarray(module(*[jnp.asarray(array[0, 0]) for array in arrays], mask))[None, None]


def litert(*arrays):
    """Convert two products with a softmax between them, and run the model."""
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    module = tf.Module()
    module.call = tf.function(
        lambda q, k, v: {"output": tf.nn.softmax(tf.matmul(q, k, transpose_b=True)) @ v}
    )
    function = module.call.get_concrete_function(
        *[tf.TensorSpec(array.shape, array.dtype, name) for name, array in zip("qkv", arrays, strict=True)]
    )
    model = tf.lite.TFLiteConverter.from_concrete_functions([function], module).convert()
    run = Interpreter(model_content=model).get_signature_runner()
    return run(**dict(zip("qkv", arrays, strict=True)))["output"]


def openvino(*arrays, dynamic=False):
    import openvino
    from openvino import opset13

    parameters = [
        opset13.parameter([-1] * 4 if dynamic else array.shape, array.dtype.type) for array in arrays
    ]
    model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}
    return openvino.compile_model(model, "CPU", settings)(list(arrays))[0].copy()


def ncnn(query, key, value, mask=None, scale=0.0):
    import ncnn

    arrays = {"q": query[0], "k": key[0], "v": value[0], **({} if mask is None else {"m": mask})}
    count = len(arrays)
    lines = ["7767517", f"{count + 1} {count + 1}", *(f"Input {name} 0 1 {name}" for name in arrays)]
    lines.append(f"SDPA s {count} 1 {' '.join(arrays)} output 5={int(count == 4)} 6={scale}")
    network = ncnn.Net()
    network.load_param_mem("\n".join(lines) + "\n")
    network.load_model_mem(b"")
    extractor = network.create_extractor()
    for name, array in arrays.items():
        extractor.input(name, ncnn.Mat(np.ascontiguousarray(array)).clone())
    status, output = extractor.extract("output")
    if status:
        raise ValueError(status)
    return np.array(output)


def ggml(query, key, value, mask=None, sinks=None, scale=1.0, softcap=0.0):
    import ggml

    types = {"float16": ggml.GGML_TYPE_F16, "float32": ggml.GGML_TYPE_F32}
    context = ggml.ggml_init(ggml.ggml_init_params(mem_size=2**24, mem_buffer=None))

    def tensor(array):
        sizes = (1,) * (4 - array.ndim) + array.shape
        made = ggml.ggml_new_tensor_4d(context, types[array.dtype.name], *reversed(sizes))
        ctypes.memmove(ggml.ggml_get_data(made), array.ctypes.data, array.nbytes)
        return made

    mask = None if mask is None else tensor(mask)
    tensors = map(tensor, (query, key, value))
    output = ggml.ggml_flash_attn_ext(context, *tensors, mask, scale, 0.0, softcap)
    if sinks is not None:
        ggml.ggml_flash_attn_ext_add_sinks(output, tensor(sinks))
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, output)
    ggml.ggml_graph_compute_with_ctx(context, graph, 1)
    data = ctypes.cast(ggml.ggml_get_data(output), ctypes.POINTER(ctypes.c_float))
    return np.array([data[i] for i in range(query.shape[2] * value.shape[3])])


def paddle(*arrays, **options):
    import paddle
    from paddle.nn.functional import scaled_dot_product_attention

    options = {
        name: paddle.to_tensor(each) if isinstance(each, np.ndarray) else each
        for name, each in options.items()
    }
    return swap(scaled_dot_product_attention(*(paddle.to_tensor(swap(x)) for x in arrays), **options).numpy())


def executorch(*arrays, mask=None, causal=False, scale=None):
    import torch
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator

    first = arrays[1].shape[2] - arrays[0].shape[2]
    mask = None if mask is None else torch.tensor(mask)
    rows = [torch.tensor(swap(array)).contiguous() for array in arrays]
    return torch.ops.llama.custom_sdpa(*rows, first, mask, 0.0, causal, scale).numpy()


def tinygrad(*arrays, **options):
    from tinygrad import Tensor

    query, key, value = (Tensor(array) if array.size else Tensor.ones(*array.shape) for array in arrays)
    options = {name: Tensor(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}
    return query.scaled_dot_product_attention(key, value, **options).numpy()


def transformers_eager(*arrays, grad=False, mask=None, scaling=1.0, **options):
    """Call the function of attn_implementation="eager": the output, or gradients of queries."""
    import torch
    from transformers.models.llama.modeling_llama import eager_attention_forward

    module = SimpleNamespace(num_key_value_groups=1, training=False)
    query, key, value = map(torch.tensor, arrays)
    query.requires_grad_(grad)
    mask = None if mask is None else torch.tensor(mask)
    output = eager_attention_forward(module, query, key, value, mask, scaling=scaling, **options)[0]
    if grad:
        output.sum().backward()
        return query.grad.numpy()
    return output.numpy()


def transformers_sdpa(*arrays, mask=None, is_causal=False, **options):
    import torch
    from transformers import AttentionInterface

    module = SimpleNamespace(num_key_value_groups=1, training=False)
    mask = None if mask is None else torch.tensor(mask)
    attend = AttentionInterface()["sdpa"]
    tensors = map(torch.tensor, arrays)
    return attend(module, *tensors, mask, is_causal=is_causal, **tensors(options))[0].numpy()


def tvm(*arrays, bias=None, **options):
    import tvm
    from tvm import relax

    arrays = [np.ascontiguousarray(swap(array)) for array in arrays]
    if bias is not None:
        options["bias"] = relax.const(bias)
    inputs = [relax.Var(f"x{i}", relax.TensorType(x.shape, str(x.dtype))) for i, x in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("attend", inputs):
        with builder.dataflow():
            output = builder.emit_output(builder.emit(relax.op.nn.attention(*inputs, **options)))
        builder.emit_func_output(output)
    machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
    return machine["attend"](*map(tvm.runtime.tensor, arrays)).numpy()


def iree(query, key, value, mask, scale="1.0", keys=""):
    """Call iree_linalg_ext.attention with one head. `keys` is "?" for a dynamic number of keys."""
    import iree.compiler
    import iree.runtime

    arrays = [np.asarray(x, np.float32)[0] for x in (query, key, value)] + [np.asarray(mask, np.float32)]
    (_, rows, depth), (_, count, width) = arrays[0].shape, arrays[2].shape
    count = keys or count
    sizes = [(rows, depth), (count, depth), (count, width), (rows, count)]
    q, k, v, m = (f"tensor<1x{a}x{b}xf32>" for a, b in sizes)
    o = f"tensor<1x{rows}x{width}xf32>"
    maps = ["b, i, d", "b, j, d", "b, j, c", "", "b, i, j", "b, i, c"]
    listed = ", ".join(f"affine_map<(b, i, c, d, j) -> ({x})>" for x in maps)
    text = f"""func.func @attend(%q: {q}, %k: {k}, %v: {v}, %m: {m}) -> {o} {{
        %s = arith.constant {scale} : f32
        %e = tensor.empty() : {o}
        %r = iree_linalg_ext.attention <{{indexing_maps = [{listed}]}}>
            ins(%q, %k, %v, %s, %m : {q}, {k}, {v}, f32, {m}) outs(%e : {o}) {{
            ^bb0(%x: f32): iree_linalg_ext.yield %x : f32 }} -> {o}
        return %r : {o} }}"""
    module = iree.compiler.compile_str(text, target_backends=["llvm-cpu"])
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    return np.array(context.modules.module["attend"](*arrays).to_host())


def x_transformers(*arrays, mask=None, attn_bias=None, grad=False, weights=False, **settings):
    """Call the module Attend: the output, the weights, or gradients of queries."""
    import torch
    from x_transformers.attend import Attend

    options = tensors({"mask": mask, "attn_bias": attn_bias})
    query, key, value = map(torch.tensor, arrays)
    query.requires_grad_(grad)
    output, between = Attend(**settings)(query, key, value, **options)
    if grad:
        output.sum().backward()
        return query.grad.numpy()
    return (between.post_softmax_attn if weights else output).numpy()


def diffusers(*arrays, bias=None, scale=1.0):
    """Compute as AttnProcessor does."""
    import torch
    from diffusers.models.attention_processor import Attention

    query, key, value = (torch.tensor(array[:, 0]) for array in arrays)
    module = Attention(query.shape[-1], heads=1, dim_head=query.shape[-1])
    module.scale = scale
    bias = None if bias is None else torch.tensor(bias[:, 0])
    return torch.bmm(module.get_attention_scores(query, key, bias), value).numpy()
