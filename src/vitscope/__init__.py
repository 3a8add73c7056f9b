"""vitscope: a workbench for Vision Transformers."""
