"""ONNX's operator Attention: a model of a call, and backends that run such models."""
