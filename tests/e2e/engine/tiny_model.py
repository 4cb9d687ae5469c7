"""Writes a vision-language model with random weights: small enough that an engine on a CPU starts
at once and answers in milliseconds, and otherwise whole (tokenizer, processor, chat template).

    python tiny_model.py {qwen2_vl|qwen3_vl} FOLDER

The weights are large, so that other pixels give other tokens. The same file makes the same model.
qwen3_vl has an encoder output that is wider than the rows of the language model: it carries
features of earlier layers behind them. Nothing is fetched.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WIDTH = 128  # of one row of the language model, in elements
PATCH = 14
VOCABULARY = 320  # 256 bytes, the special tokens, and some that nothing means

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]

# One line per message; an image is its placeholder between two marks, whatever its form.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}\n
{%- if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if 'image' in part.type -%}<|vision_start|><|image_pad|><|vision_end|>
{%- elif 'text' in part -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
<|im_end|>\n
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}
"""


def byte_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """One token per byte, and the special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[s for s in SPECIAL if s not in ("<|im_end|>", "<|endoftext|>")],
        model_max_length=4096,
        chat_template=CHAT_TEMPLATE,
    )


def random_model(kind: str, token: dict[str, int]) -> Any:
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [8, 12, 12],
        },
        "bos_token_id": token["<|endoftext|>"],
        "eos_token_id": token["<|im_end|>"],
        "pad_token_id": token["<|endoftext|>"],
        "tie_word_embeddings": False,
    }
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": PATCH, "in_channels": 3}
    marks = {
        "image_token_id": token["<|image_pad|>"],
        "video_token_id": token["<|video_pad|>"],
        "vision_start_token_id": token["<|vision_start|>"],
        "vision_end_token_id": token["<|vision_end|>"],
        "tie_word_embeddings": False,
    }
    if kind == "qwen2_vl":
        vision |= {"embed_dim": WIDTH, "hidden_size": WIDTH, "mlp_ratio": 2}
        config: Any = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **marks)
        make: Any = transformers.Qwen2VLForConditionalGeneration
    else:
        text |= {"head_dim": WIDTH // 2}
        vision |= {
            "hidden_size": WIDTH,
            "out_hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1],
        }
        config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **marks)
        make = transformers.Qwen3VLForConditionalGeneration
    config.dtype = torch.float32
    torch.manual_seed(0)
    model = make(config).to(torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.12)
    return model


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    tokenizer = byte_tokenizer()
    token = {s: int(tokenizer.convert_tokens_to_ids(s)) for s in SPECIAL}
    random_model(kind, token).save_pretrained(folder)
    sizes = {
        "patch_size": PATCH,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"shortest_edge": 56 * 56, "longest_edge": 560 * 560},  # pixels: 4 to 400 rows
    }
    video: Any = transformers.Qwen2VLVideoProcessor
    processor: Any = transformers.Qwen2VLProcessor
    if kind == "qwen3_vl":
        video = transformers.Qwen3VLVideoProcessor
        processor = transformers.Qwen3VLProcessor
    processor(
        image_processor=transformers.Qwen2VLImageProcessor(**sizes),
        video_processor=video(**sizes),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ends = {"eos_token_id": token["<|im_end|>"], "pad_token_id": token["<|endoftext|>"]}
    (folder / "generation_config.json").write_text(json.dumps(ends))


if __name__ == "__main__":
    main()
