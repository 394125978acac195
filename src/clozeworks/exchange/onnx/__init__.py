"""ONNX: a model as a graph of operations that onnxruntime runs, without this library and without torch."""
