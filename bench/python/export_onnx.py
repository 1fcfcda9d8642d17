"""Makes the ONNX files that transformers.js runs, out of the GGUF file that Hearth and llama.cpp run.

    python export_onnx.py MODEL.gguf FOLDER

writes, in the layout that transformers.js looks for,

    FOLDER/q4/onnx/model_q4.onnx          symmetric 4-bit blocks of 32, for WebGPU
    FOLDER/q8/onnx/model_quantized.onnx   dynamic 8-bit, what transformers.js takes on the CPU by default

each with the configuration and the tokenizer beside it. The weights are dequantized first and quantized anew, so that the speed can be compared,
and the words cannot. The graphs are those of onnxruntime-genai's model builder: grouped-query attention, and products with blocks.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GENERATORS = Path(__file__).resolve().parents[2] / "tests/fixtures/gen"
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
CONFIG_FILES = ["config.json", "generation_config.json", *TOKENIZER_FILES]


def save_checkpoint(gguf, folder):
    """Writes the GGUF's weights, in float32, and its tokenizer as a Hugging Face checkpoint."""
    os.environ["MODEL_DIR"], os.environ["MODEL_FILE"] = str(gguf.parent), gguf.name
    sys.path.insert(0, str(GENERATORS))
    sys.dont_write_bytecode = True
    from common import bpe_tokenizer, gguf_fields, load_hf
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    fields = gguf_fields(str(gguf))
    loaded = load_hf()
    config = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path"):
        config.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(loaded.state_dict())
    model.float().save_pretrained(folder)

    # The builder looks for these under their older names.
    saved = json.loads((folder / "config.json").read_text())
    saved["rope_theta"] = float(fields["llama.rope.freq_base"])
    saved["torch_dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(saved, indent=1))

    tokens = fields["tokenizer.ggml.tokens"]
    name = lambda kind: tokens[fields[f"tokenizer.ggml.{kind}_token_id"]]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe_tokenizer(str(gguf)),
        bos_token=name("bos"),
        eos_token=name("eos"),
        unk_token=name("unknown"),
        pad_token=name("eos"),
    )
    tokenizer.chat_template = fields["tokenizer.chat_template"]
    tokenizer.save_pretrained(folder)
    return saved


def build(checkpoint, folder, precision, provider, **options):
    """Runs the model builder and gives the graph, with its external data read in."""
    import onnx

    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", str(checkpoint), "-o", str(folder), "-c", str(folder / "cache")]
    command += ["-p", precision, "-e", provider, "--extra_options"]
    command += [f"{key}={value}" for key, value in options.items()]
    finished = subprocess.run(
        command,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # It tells of every tensor; only a failure is worth it.
    if finished.returncode != 0:
        sys.exit(f"{finished.stdout}\nThe model builder failed.")
    return onnx.load(folder / "model.onnx")


def fix_cache_shapes(graph, config):
    """Writes the sizes of the cache into the graph's signature: transformers.js takes a symbolic one for 0."""
    heads = config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for value in [*graph.graph.input, *graph.graph.output]:
        if value.name.startswith(("past", "present")):
            dimensions = value.type.tensor_type.shape.dim
            dimensions[1].dim_value, dimensions[3].dim_value = heads, head_dim


def drop_accuracy_levels(graph):
    """Lets WebGPU compute products with blocks in float32, as the other rows do, rather than with 8-bit activations."""
    for node in graph.graph.node:
        if node.op_type == "MatMulNBits":
            kept = [attribute for attribute in node.attribute if attribute.name != "accuracy_level"]
            del node.attribute[:]
            node.attribute.extend(kept)


def publish(checkpoint, folder, name, save):
    """Has `save` write the graph into a new folder, with the checkpoint's configuration beside it. It appears when it is whole."""
    part = folder / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    (part / "onnx").mkdir(parents=True)
    for file in CONFIG_FILES:
        shutil.copy(checkpoint / file, part)
    save(part / "onnx")
    shutil.rmtree(folder / name, ignore_errors=True)
    part.rename(folder / name)


def main():
    # Progress bars are for terminals.
    os.environ["TQDM_DISABLE"] = "1"
    gguf, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        scratch = Path(scratch)
        checkpoint = scratch / "checkpoint"
        config = save_checkpoint(gguf, checkpoint)
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # onnxruntime-web cannot gather from 8-bit blocks, so the embeddings stay apart from the head, in float32.
        q4 = build(
            checkpoint,
            scratch / "q4",
            "int4",
            "webgpu",
            use_webgpu_fp32=1,
            block_size=32,
            algo_config="default",
            shared_embeddings="false",
        )
        fix_cache_shapes(q4, config)
        drop_accuracy_levels(q4)
        publish(checkpoint, folder, "q4", lambda onnx_folder: onnx.save_model(q4, onnx_folder / "model_q4.onnx"))

        f32 = build(checkpoint, scratch / "f32", "fp32", "cpu", shared_embeddings="false")
        fix_cache_shapes(f32, config)
        onnx.save_model(f32, scratch / "f32.onnx")
        publish(
            checkpoint,
            folder,
            "q8",
            lambda onnx_folder: quantize_dynamic(
                scratch / "f32.onnx",
                onnx_folder / "model_quantized.onnx",
                weight_type=QuantType.QInt8,
                per_channel=True,
                op_types_to_quantize=["MatMul"],
            ),
        )


if __name__ == "__main__":
    main()
