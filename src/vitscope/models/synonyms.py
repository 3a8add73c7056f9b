"""Other people's words for a model's settings, so that 'you mean ...' can name ours."""

from __future__ import annotations

# Other people's words for the settings of a ViT: Hugging Face's and the tuning guide's.
VIT_SYNONYMS = {
    "image_size": "img_size",
    "hidden_size": "embed_dim",
    "hidden_dim": "embed_dim",
    "dim": "embed_dim",
    "width": "embed_dim",
    "num_hidden_layers": "depth",
    "num_layers": "depth",
    "layers": "depth",
    "num_attention_heads": "num_heads",
    "heads": "num_heads",
    "intermediate_size": "mlp_dim",
    "dim_feedforward": "mlp_dim",
    "hidden_act": "act",
    "act_layer": "act",
    "hidden_dropout_prob": "drop_rate",
    "dropout": "drop_rate",
    "attention_probs_dropout_prob": "attn_drop_rate",
    "attention_dropout": "attn_drop_rate",
    "stochastic_depth": "drop_path_rate",
    "num_channels": "in_chans",
    "in_channels": "in_chans",
    "num_labels": "num_classes",
    "layer_norm_eps": "norm_eps",
    "global_pool": "pool",
    "reg_tokens": "num_registers",
    "num_register_tokens": "num_registers",
    "init_values": "layer_scale",
    "layerscale_value": "layer_scale",
    "weight_init": "init",
    "pos_embed": "position",
    "pos_embed_type": "position",
    "positions": "position",
    "rope": "position",
    "swiglu": "mlp",
    "mlp_layer": "mlp",
    "registers": "num_registers",
}

# Other people's words for what a setting may be.
VIT_VALUE_SYNONYMS = {
    "avg": "mean",
    "gap": "mean",
    "token": "cls",
    "map": "attention",
    "rotary": "rope",
    "sinusoidal": "sincos",
    "sin_cos": "sincos",
    "absolute": "learned",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
}
