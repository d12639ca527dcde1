"""all-MiniLM-L6-v2 for the demo, the tests and the benchmarks: weights, ONNX file, tokenizer, reference values."""
