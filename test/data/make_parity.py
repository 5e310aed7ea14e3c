#!/usr/bin/env python3
"""Records what PyTorch and Hugging Face Transformers compute for two small models; test/parity compares with it.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python test/data/make_parity.py          # writes parity_gpt2.safetensors, parity_llama.safetensors here

Made with torch 2.15.0 and transformers 5.24.0. Everything runs in float64 on the CPU (Transformers' LLaMA computes RoPE
and RMSNorm in float32 all the same), so that the record's own rounding is far below that of what is compared with it.
Weights, biases and norms all start at random, larger than a real model would have them: a term that is left out shows.

Each file holds, under DeepShard's names and layouts (runtime/model/segment_spec.h; linear weights [out, in]; queries,
keys and values in one matrix, gate and up in one; vocabulary not padded):
    tokens           [steps, batch, T + 1] i32; inputs are the first T of a sample, targets the last T
    initial.NAME     f32, parameters before the first step
    logits, loss     of the first batch with the initial parameters
    gradient.NAME    f32, of that loss, before clipping
    losses, norms    [steps] f64: the loss of each step's batch before its update, the gradient's norm before clipping
    final.NAME       f32, parameters after the last step
and as metadata "parity" the model's configuration and the optimizer's settings, as JSON.
"""

import json
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

STEPS, BATCH, TOKENS, LAYERS, HIDDEN, HEADS = 10, 2, 32, 2, 32, 4
# eps is large: the gradient of a key bias is zero but for rounding (softmax does not see it), and Adam with a small eps
# would turn that rounding into steps of the size of lr.
OPTIMIZER = dict(lr=2e-3, beta1=0.9, beta2=0.95, eps=1e-5, weight_decay=0.1, clip=1.0)


def gpt2():
    config = GPT2Config(vocab_size=257, n_positions=40, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_inner=4 * HIDDEN,
                        activation_function="gelu_new", layer_norm_epsilon=1e-5, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
                        attn_implementation="eager")
    ours = dict(layers=LAYERS, hidden=HIDDEN, heads=HEADS, kv_heads=HEADS, ffn=4 * HIDDEN, vocabulary=257,
                max_positions=40, norm="layer_norm", norm_eps=1e-5, position="learned", activation="gelu_tanh",
                bias=True, qkv_bias=True, tied_head=True)
    return GPT2LMHeadModel(config), ours


def llama():
    config = LlamaConfig(vocab_size=300, hidden_size=HIDDEN, intermediate_size=80, num_hidden_layers=LAYERS,
                         num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=64,
                         rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
                         hidden_act="silu", attention_bias=False, mlp_bias=False,
                         tie_word_embeddings=False, attn_implementation="eager")
    ours = dict(layers=LAYERS, hidden=HIDDEN, heads=HEADS, kv_heads=2, ffn=80, vocabulary=300, max_positions=64,
                norm="rms_norm", norm_eps=1e-6, position="rope", rope_theta=500.0, activation="swiglu", bias=False,
                qkv_bias=False, tied_head=False)
    return LlamaForCausalLM(config), ours


def gpt2_names(get):
    """Our name -> tensor; `get` gives a parameter's value or gradient by Transformers' name. Conv1D is [in, out]."""
    out = {"embedding.tokens.weight": get("transformer.wte.weight"),
           "embedding.positions.weight": get("transformer.wpe.weight"),
           "head.norm.weight": get("transformer.ln_f.weight"), "head.norm.bias": get("transformer.ln_f.bias")}
    for i in range(LAYERS):
        for ours, theirs, transposed in [("attention.norm", "ln_1", False), ("attention.qkv", "attn.c_attn", True),
                                         ("attention.proj", "attn.c_proj", True), ("mlp.norm", "ln_2", False),
                                         ("mlp.up", "mlp.c_fc", True), ("mlp.down", "mlp.c_proj", True)]:
            weight = get(f"transformer.h.{i}.{theirs}.weight")
            out[f"layers.{i}.{ours}.weight"] = weight.t() if transposed else weight
            out[f"layers.{i}.{ours}.bias"] = get(f"transformer.h.{i}.{theirs}.bias")
    return out


def llama_names(get):
    out = {"embedding.tokens.weight": get("model.embed_tokens.weight"), "head.norm.weight": get("model.norm.weight"),
           "head.weight": get("lm_head.weight")}
    for i in range(LAYERS):
        theirs, ours = f"model.layers.{i}.", f"layers.{i}."
        out[ours + "attention.norm.weight"] = get(theirs + "input_layernorm.weight")
        out[ours + "attention.qkv.weight"] = torch.cat([get(theirs + f"self_attn.{n}_proj.weight") for n in "qkv"])
        out[ours + "attention.proj.weight"] = get(theirs + "self_attn.o_proj.weight")
        out[ours + "mlp.norm.weight"] = get(theirs + "post_attention_layernorm.weight")
        out[ours + "mlp.gate_up.weight"] = torch.cat([get(theirs + f"mlp.{n}_proj.weight") for n in ("gate", "up")])
        out[ours + "mlp.down.weight"] = get(theirs + "mlp.down_proj.weight")
    return out


def randomize(model, generator):
    """Matrices: normal(0, 0.15); norm weights: normal(1, 0.1); biases: normal(0, 0.1); each rounded to f32."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float32)
        if p.dim() >= 2:
            value = 0.15 * noise
        elif name.endswith("bias"):
            value = 0.1 * noise
        else:
            value = 1 + 0.1 * noise
        p.data.copy_(value)


def loss_of(model, tokens):
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return logits, F.cross_entropy(logits.reshape(-1, logits.shape[-1]).double(), tokens[:, 1:].reshape(-1))


def record(name, build, names, seed):
    generator = torch.Generator().manual_seed(seed)
    model, config = build()
    model = model.double().train()
    randomize(model, generator)
    params = dict(model.named_parameters())
    tokens = torch.randint(0, config["vocabulary"], (STEPS, BATCH, TOKENS + 1), generator=generator)

    def f32(prefix, get):
        return {prefix + k: v.detach().float().contiguous().clone() for k, v in names(get).items()}

    out = {"tokens": tokens.int()}
    out |= f32("initial.", lambda n: params[n])
    logits, loss = loss_of(model, tokens[0])
    loss.backward()
    out["logits"], out["loss"] = logits.detach().float(), loss.detach().reshape(1)
    out |= f32("gradient.", lambda n: params[n].grad)

    decayed = [p for p in params.values() if p.dim() >= 2]
    others = [p for p in params.values() if p.dim() < 2]
    o = OPTIMIZER
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": o["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, tokens[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(params.values(), o["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    out["losses"], out["norms"] = torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
    out |= f32("final.", lambda n: params[n])

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"parity_{name}.safetensors")
    save_file(out, path, metadata={"parity": json.dumps({"model": config, "optimizer": OPTIMIZER})})
    print(f"{path}: {os.path.getsize(path)} bytes")
    print("  losses", [round(x, 4) for x in losses])
    print("  norms ", [round(x, 4) for x in norms])


if __name__ == "__main__":
    torch.set_num_threads(1)
    record("gpt2", gpt2, gpt2_names, seed=20240101)
    record("llama", llama, llama_names, seed=20240102)
