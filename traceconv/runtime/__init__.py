"""The reference NPU runtime: runs ONNX models and logs what a device would."""
