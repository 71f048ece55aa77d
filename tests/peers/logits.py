#!/usr/bin/env python3
"""Loads an exported model with the program that its family is known by, and compares its logits with ours.

A Llama goes into transformers as it is (AutoModelForCausalLM, and AutoTokenizer where there is a tokenizer); an
Eagle or a Finch into the package `rwkv`, which reads a .pth: the same tensors, saved by torch. Nothing is renamed,
reshaped or left out; a tensor that the loader misses or does not know is a failure. OURS holds `tokens` [T] and
`logits` [T, V] as this program's model computed them. Prints one line of JSON.

The other way round, `--make` has transformers save a Llama of its own in several files, as Llama 3.2 is: its head tied
to its embedding, its frequencies scaled; with its logits beside it.

usage: logits.py MODEL_DIR OURS.safetensors        exits 1 where any two logits are more than 1e-4 apart
       logits.py --make MODEL_DIR THEIRS.safetensors
needs: tests/peers/requirements.txt
"""
import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

BOUND = 1e-4
TEXT = "Grüße, \u20ac 5!\n\tZero \0 and \U0001f980."


def tensors(folder):
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return load_file(folder / "model.safetensors")
    places = json.loads(index.read_text())["weight_map"]
    found = {}
    for name in sorted(set(places.values())):
        found |= load_file(folder / name)
    assert found.keys() == places.keys(), "the index does not list what the files hold"
    return found


def llama(folder, tokens):
    from transformers import AutoModelForCausalLM

    model, loading = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(loading.values()), loading
    with torch.no_grad():
        return model.eval()(tokens[None]).logits[0]


def rwkv(folder, tokens):
    os.environ.update(RWKV_JIT_ON="0", RWKV_CUDA_ON="0", RWKV_V7_ON="0")
    with tempfile.TemporaryDirectory() as scratch:
        # The package makes its own copies of what it reads, and squeezes them in place.
        torch.save({name: x.clone() for name, x in tensors(folder).items()}, f"{scratch}/model.pth")
        from rwkv.model import RWKV

        with open(os.devnull, "w") as quiet:
            sys.stdout, out = quiet, sys.stdout
            model = RWKV(model=f"{scratch}/model", strategy="cpu fp32")
            sys.stdout = out
        logits, _ = model.forward(tokens.tolist(), None, full_output=True)
    return logits


def check_tokenizer(folder):
    """A token is a byte, and text comes back."""
    if not (folder / "tokenizer.json").exists():
        return False
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer.encode(TEXT)
    assert tokens == list(TEXT.encode()), tokens
    assert tokenizer.decode(tokens) == TEXT, tokenizer.decode(tokens)
    return True


def make(folder, theirs):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=256, hidden_size=96, intermediate_size=136, num_hidden_layers=3, num_attention_heads=6,
                         num_key_value_heads=3, max_position_embeddings=64, rope_theta=2e4, rms_norm_eps=1e-5,
                         initializer_range=0.2, tie_word_embeddings=True, attn_implementation="eager",
                         rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                       "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, x in model.named_parameters():
            if "norm" in name:
                x += 0.1 * torch.randn_like(x)
        tokens = torch.randint(256, (64,))
        save_file({"tokens": tokens, "logits": model(tokens[None]).logits[0].contiguous()}, theirs)
    model.save_pretrained(folder, max_shard_size="300KB")


def main():
    if sys.argv[1] == "--make":
        return make(sys.argv[2], sys.argv[3])
    folder, ours = Path(sys.argv[1]), load_file(sys.argv[2])
    family = json.loads((folder / "config.json").read_text())["model_type"]
    load = {"llama": llama, "rwkv-x052": rwkv, "rwkv-x060": rwkv}[family]
    expected = ours["logits"]
    found = load(folder, ours["tokens"]).float()
    assert found.shape == expected.shape, (found.shape, expected.shape)
    largest = expected.abs().max().item()
    difference = (found - expected).abs().max().item()
    print(json.dumps({"model_type": family, "max_difference": difference, "largest_logit": largest,
                      "tokenizer": check_tokenizer(folder)}))
    sys.exit(not difference <= BOUND)


main()
