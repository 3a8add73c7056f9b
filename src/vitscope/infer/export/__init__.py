"""A model as one file that other programs run: ONNX, or torch.export's `.pt2`."""
