"""all-MiniLM-L6-v2 for demo, tests and benchmarks: weights, ONNX file, tokenizer, reference values."""
