"""What a person sees of a run: progress, TensorBoard, pictures, the model card."""
