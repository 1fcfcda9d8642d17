//! The native command line: chat with a model file, look into one, measure one.

use burn::tensor::Device;
use clap::{Parser, Subcommand, ValueEnum};
use cubecl::future::block_on;
use hearth::chat::Message;
use hearth::error::{Error, Result};
use hearth::format::{TensorType, gguf};
use hearth::generation::sampler::SamplerConfig;
use hearth::generation::{CancelToken, FinishReason, Session};
use hearth::inference::{ChatPrompt, GenerationEvent, GenerationOptions, Llama, LoadOptions, ModelLoader};
use hearth::models::RandomWeights;
use hearth::models::llama::LlamaConfig;
use hearth::tokenizer::{BpeTokenizer, Tokenizer};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufRead, ErrorKind, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Bytes of the file that are read at a time.
const READ_BYTES: usize = 4 << 20;

/// Run Llama-family GGUF models on this machine.
#[derive(Parser)]
#[command(name = "hearth", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Talk to a model; each line of input is one message. Ctrl-D ends.
    Chat {
        /// The GGUF file.
        model: PathBuf,
        #[command(flatten)]
        target: Target,
        /// An instruction for the whole conversation.
        #[arg(long)]
        system: Option<String>,
        /// 0 always takes the likeliest token.
        #[arg(long, default_value_t = SamplerConfig::default().temperature)]
        temperature: f32,
        /// Makes the answers repeatable.
        #[arg(long)]
        seed: Option<u64>,
        /// Tokens after which an answer ends.
        #[arg(long, default_value_t = 512)]
        max_tokens: usize,
    },
    /// Print a file's metadata and tensors.
    Inspect {
        /// The GGUF file.
        model: PathBuf,
    },
    /// Measure a model of random weights: bytes on the device, prefill and decode.
    Bench {
        /// The model whose shape it has.
        #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(LlamaConfig::SHAPES))]
        shape: String,
        /// The type of its matrices, such as q4_k.
        #[arg(long, default_value = "q4_k")]
        quant: String,
        /// Tokens of the prompt.
        #[arg(long, default_value_t = 64)]
        prompt: usize,
        /// Tokens that are generated after it.
        #[arg(long, default_value_t = 8)]
        tokens: usize,
        #[command(flatten)]
        target: Target,
    },
    /// Measure the negative log-likelihood of a text.
    Eval {
        /// The GGUF file.
        model: PathBuf,
        /// The UTF-8 text.
        #[arg(long)]
        text: PathBuf,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(clap::Args)]
struct Target {
    /// Where the model runs.
    #[arg(long, value_enum, default_value_t = DeviceName::Gpu)]
    device: DeviceName,
    /// Tokens that the context holds; the model's own limit caps it.
    #[arg(long, default_value_t = LoadOptions::default().max_seq_len)]
    context: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum DeviceName {
    Gpu,
    Cpu,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Chat { model, target, system, temperature, seed, max_tokens } => {
            let seed = seed.unwrap_or_else(random_seed);
            let sampler = SamplerConfig { temperature, seed, ..SamplerConfig::default() };
            chat(&model, &target, system, GenerationOptions { sampler, max_tokens, ..GenerationOptions::default() })
        }
        Command::Inspect { model } => inspect(&model),
        Command::Bench { shape, quant, prompt, tokens, target } => bench(&shape, &quant, prompt, tokens, &target),
        Command::Eval { model, text, target } => eval(&model, &text, &target),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error [{}]: {error}", error.code());
            ExitCode::FAILURE
        }
    }
}

fn chat(path: &Path, target: &Target, system: Option<String>, options: GenerationOptions) -> Result<()> {
    let mut llama = load(path, target)?;
    block_on(llama.warm_up())?;
    let mut messages: Vec<Message> = system.map(Message::system).into_iter().collect();
    let interactive = std::io::stdin().is_terminal();
    loop {
        if interactive {
            written(print(">>> "))?;
        }
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).map_err(|error| io(Path::new("standard input"), &error))? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::user(line.trim_end()));
        let prompt = ChatPrompt { messages: messages.clone(), now: now() };
        let cancel = CancelToken::default();
        let completion = block_on(llama.chat(&prompt, &options, &cancel, |event| {
            // An answer that cannot be written ends.
            if let GenerationEvent::Text { text, .. } = event
                && print(text).is_err()
            {
                cancel.cancel();
            }
        }))?;
        written(print("\n"))?;
        eprintln!(
            "[{} + {} tokens, {:.0} ms to the first, {:.1} tokens/s]",
            completion.usage.prompt_tokens,
            completion.usage.completion_tokens,
            completion.timings.time_to_first_token_ms,
            completion.timings.decode_tokens_per_second,
        );
        messages.push(Message::assistant(completion.text));
    }
}

fn inspect(path: &Path) -> Result<()> {
    let mut parser = gguf::Parser::new();
    read(path, |bytes| {
        parser.push(bytes, &mut |_| Ok(()))?;
        Ok(parser.header().is_none())
    })?;
    let header = match parser.header() {
        Some(header) => header,
        // The file ended inside the header: finishing says where.
        None => &parser.finish()?,
    };
    let mut text = format!("GGUF v{}, alignment {}\n", header.version, header.alignment);
    for (key, value) in header.metadata.iter() {
        text += &format!("{key} = {}\n", shortened(&value.to_string()));
    }
    for tensor in &header.tensors {
        text += &format!("{:<32} {:>8} {:?}\n", tensor.name, tensor.ty.name(), tensor.dims);
    }
    written(print(&text))
}

fn eval(path: &Path, text: &Path, target: &Target) -> Result<()> {
    let text = std::fs::read_to_string(text).map_err(|error| io(text, &error))?;
    let mut llama = load(path, target)?;
    let tokens = llama.tokenizer().encode(&text, llama.tokenizer().adds_bos(), false)?;
    if tokens.len() < 2 {
        return Err(Error::InvalidParameter { name: "text", reason: "it must have at least two tokens".into() });
    }
    let losses = block_on(llama.negative_log_likelihood(&tokens))?;
    let (sum, count) = (losses.iter().sum::<f64>(), losses.len() as f64);
    let mean = sum / count;
    written(print(&format!("tokens {}  nll {sum:.4}  mean {mean:.6}  perplexity {:.4}\n", tokens.len(), mean.exp())))
}

fn bench(shape: &str, quant: &str, prompt: usize, tokens: usize, target: &Target) -> Result<()> {
    let invalid = |name, reason: &str| Error::InvalidParameter { name, reason: reason.into() };
    let ty = TensorType::from_name(quant).ok_or_else(|| invalid("quant", "no type of GGUF matrices has this name"))?;
    let config = LlamaConfig::of_shape(shape).ok_or_else(|| invalid("shape", "no model of this name is known"))?;
    let config = config.with_max_seq_len(target.context);
    if prompt == 0 || prompt + tokens > target.context {
        return Err(invalid("prompt", "it must have a token at least, and fit the context with those that follow"));
    }
    let device = open(target.device)?;

    let begin = Instant::now();
    let model = config.load(&mut RandomWeights::new(ty, &device), &device)?;
    let (parameters, weights) = (model.parameters(), model.device_bytes());
    let mut session = Session::new(model, &config, &device);
    let cache = session.cache_bytes();
    block_on(session.warm_up(0))?;
    eprintln!("loaded and warmed up in {:.1} s", begin.elapsed().as_secs_f64());

    let cancel = CancelToken::default();
    let begin = Instant::now();
    let Some(next) = block_on(session.prefill(&vec![1; prompt], &cancel, |_, _| ()))? else { return Ok(()) };
    let prefill = prompt as f64 / begin.elapsed().as_secs_f64();
    let mut sampler = SamplerConfig { temperature: 0.0, ..SamplerConfig::default() }.build()?;
    let (mut generated, mut begin) = (0, Instant::now());
    let on_token = |_| {
        // The first token is chosen from the prompt's logits.
        if generated == 0 {
            begin = Instant::now();
        }
        generated += 1;
        Ok(if generated > tokens { ControlFlow::Break(FinishReason::Length) } else { ControlFlow::Continue(()) })
    };
    block_on(session.decode(next, &mut sampler, &[], &cancel, on_token))?;
    let decode = tokens as f64 / begin.elapsed().as_secs_f64();

    let file = ty.bytes_for(parameters as u64).unwrap_or(0);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    written(print(&format!(
        "{shape} in {}: {parameters} weights\n\
         weights on the device  {:>9.1} MiB, {:.3} times the {:.1} MiB of the types alone\n\
         KV cache               {:>9.1} MiB for {} tokens\n\
         prefill                {prefill:>9.2} tokens/s for {prompt} tokens\n\
         decode                 {decode:>9.2} tokens/s\n",
        ty.name(),
        mib(weights as f64),
        weights as f64 / file as f64,
        mib(file as f64),
        mib(cache as f64),
        target.context,
    )))
}

fn load(path: &Path, target: &Target) -> Result<Llama<BpeTokenizer>> {
    let device = open(target.device)?;
    let bytes = std::fs::metadata(path).map_err(|error| io(path, &error))?.len();
    let style = ProgressStyle::with_template("loading {bytes}/{total_bytes} {wide_bar} {bytes_per_sec}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes).with_style(style);
    let mut loader = ModelLoader::new(&device, LoadOptions { max_seq_len: target.context, ..LoadOptions::default() });
    read(path, |bytes| {
        loader.push(bytes)?;
        bar.inc(bytes.len() as u64);
        Ok(true)
    })?;
    bar.finish_and_clear();
    loader.finish()
}

fn open(name: DeviceName) -> Result<Device> {
    match name {
        DeviceName::Gpu => block_on(hearth::device::open()),
        DeviceName::Cpu => Ok(hearth::device::cpu()),
    }
}

/// Gives a file's bytes to `take` until it wants no more.
fn read(path: &Path, mut take: impl FnMut(&[u8]) -> Result<bool>) -> Result<()> {
    let mut file = File::open(path).map_err(|error| io(path, &error))?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = file.read(&mut buffer).map_err(|error| io(path, &error))?;
        if count == 0 || !take(&buffer[..count])? {
            return Ok(());
        }
    }
}

/// Writes to standard output at once.
fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// What came of writing to standard output: a reader that has gone away (`| head`) is no error.
fn written(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(io(Path::new("standard output"), &error)),
        _ => Ok(()),
    }
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::Io { path: path.display().to_string(), reason: error.to_string() }
}

/// Seconds since 1970 (UTC).
fn now() -> Option<i64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|elapsed| elapsed.as_secs() as i64)
}

/// A seed that differs from run to run.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(())
}

/// The beginning of a text that may be long.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 100;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
