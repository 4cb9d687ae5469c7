//! `chiasm wire`: control messages to and from JSON, without a network.
//!
//! It decodes with the very code that faces peers, so its verdict is a node's verdict.

mod hex;
mod known_keys;
mod parse;
mod value;

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use chiasm_core::wire::{AckLimits, XferAck, XferDone, XferReq, decode_rows};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::exit::Failure;

/// Most bytes of input: the ack for a region of four million blocks, in binary.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Look at control messages, or make some
#[derive(Debug, Args)]
#[command(long_about = ABOUT)]
pub(crate) struct WireCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Decode(Decode),
    Encode(Encode),
}

/// Show a message as JSON, or say why it is none
#[derive(Debug, Args)]
#[command(long_about = ABOUT_DECODE, after_help = DECODE_EXAMPLES)]
struct Decode {
    /// What the bytes should be.
    #[arg(long, value_enum)]
    kind: Kind,

    /// How the bytes are given. In `hex`, white space is ignored.
    #[arg(long, value_enum, default_value_t = Format::Hex)]
    format: Format,

    /// File to read, at most 64 MiB; `-` is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

/// Make a message from JSON and print it in hexadecimal digits
#[derive(Debug, Args)]
#[command(long_about = ABOUT_ENCODE, after_help = ENCODE_EXAMPLES)]
struct Encode {
    /// What to make.
    #[arg(long, value_enum)]
    kind: Kind,

    /// The message as JSON; `-` is standard input, at most 64 MiB.
    #[arg(value_name = "JSON")]
    json_text: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// `XferReq`: a consumer asks for an entry.
    Req,
    /// `XferAck`: a producer answers.
    Ack,
    /// `XferDone`: a Chiasm consumer has let go of a grant.
    Done,
    /// `mem_descriptor`: the blocks of a producer's region.
    Memdesc,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Hexadecimal digits.
    Hex,
    /// The bytes themselves.
    Raw,
}

const ABOUT: &str = "\
Look at control messages, or make some.

Instances ask each other for encoder outputs with msgpack data: `req` (XferReq, the question), \
`ack` (XferAck, the answer), `memdesc` (the list of a region's blocks that an answer may carry in \
mem_descriptor) and, between Chiasm instances only, `done` (XferDone, the end of a grant).";

const ABOUT_DECODE: &str = "\
Show a message as JSON, or say why it is none.

Exit code 0: a node would take the message. Exit code 2: it would refuse it; the reason, with the \
field and the byte offset, is one line on standard error.

Byte strings are shown as {\"bin_len\", \"bin_sha256\"}. A list of more than 64 integers is shown \
as {\"ints\", \"first\", \"last\", \"sum\"}, a descriptor list of more than 64 rows as {\"rows\", \
\"first\", \"last\"}. What only Chiasm instances say to each other stands under \"chiasm\".";

const DECODE_EXAMPLES: &str = "\
Examples:
  A captured request, in hexadecimal digits:
    chiasm wire decode --kind req request.hex
  An ack as it came from the socket:
    chiasm wire decode --kind ack --format raw ack.bin
  From another program, in one line:
    echo 82a76d6d5f68617368a161b2636f6d7061746962696c6974795f68617368a162 |
      chiasm wire decode --kind req --json";

const ABOUT_ENCODE: &str = "\
Make a message from JSON and print it in hexadecimal digits.

The JSON has the form that `decode` shows, except that byte strings are written out as \
{\"hex\": \"00ff\"}. Only mm_hash and compatibility_hash of a req, mm_hash and status of an ack are \
required, and everything of a done. An unknown key is an error.

A memdesc is either a list of rows [address, length, device] or a whole region as {\"base\", \
\"block_bytes\", \"stride\", \"count\", \"device_id\"}; stride defaults to block_bytes and device_id \
to 0.";

const ENCODE_EXAMPLES: &str = "\
Examples:
  A request:
    chiasm wire encode --kind req '{\"mm_hash\": \"ab12\", \"compatibility_hash\": \"cd34\"}'
  The refusal of an entry that is gone (0 OK, 1 MISSING, 2 INCOMPAT, 3 VERSION, 4 INTERNAL,
  5 NOT_READY):
    chiasm wire encode --kind ack '{\"mm_hash\": \"ab12\", \"status\": 1}'
  A Chiasm ack:
    chiasm wire encode --kind ack '{\"mm_hash\": \"ab12\", \"status\": 0, \"chiasm\":
      {\"plane\": \"tcp\", \"token\": {\"hex\": \"00112233445566778899aabbccddeeff\"},
       \"extents\": [[0, 16]], \"dtype\": \"bfloat16\", \"shape\": [16, 128], \"bytes\": 4096}}'
  A region of a thousand blocks, there and back:
    chiasm wire encode --kind memdesc '{\"base\": 4096, \"block_bytes\": 7168, \"count\": 1000}' |
      chiasm wire decode --kind memdesc";

/// Does what was asked for; `json` asks for one line of JSON.
pub(crate) fn run(command: WireCommand, json: bool) -> Result<(), Failure> {
    match command.action {
        Action::Decode(decode) => run_decode(&decode, json),
        Action::Encode(encode) => run_encode(&encode, json),
    }
}

fn run_decode(decode: &Decode, json: bool) -> Result<(), Failure> {
    let input = read(&decode.file)?;
    let bytes = match decode.format {
        Format::Raw => input,
        Format::Hex => hex::decode(&input).map_err(Failure::input)?,
    };
    match decode.kind {
        Kind::Req => {
            let req = XferReq::decode(&bytes).map_err(Failure::input)?;
            print_json(&value::req(&req), json)
        }
        Kind::Ack => {
            let ack = XferAck::decode(&bytes, &AckLimits::default()).map_err(Failure::input)?;
            print_json(&value::ack(&ack), json)
        }
        Kind::Done => {
            let done = XferDone::decode(&bytes).map_err(Failure::input)?;
            print_json(&value::done(&done), json)
        }
        Kind::Memdesc => {
            let rows = decode_rows(&bytes).map_err(Failure::input)?;
            print_json(&value::rows(rows).map_err(Failure::input)?, json)
        }
    }
}

fn run_encode(encode: &Encode, json: bool) -> Result<(), Failure> {
    let text = if encode.json_text == "-" {
        String::from_utf8(read(Path::new("-"))?).map_err(Failure::input)?
    } else {
        encode.json_text.clone()
    };
    let bytes = match encode.kind {
        Kind::Req => parse::req(&text),
        Kind::Ack => parse::ack(&text),
        Kind::Done => parse::done(&text),
        Kind::Memdesc => parse::memdesc(&text),
    }
    .map_err(Failure::Input)?;
    let hex = hex::encode(&bytes);
    if json {
        return print_json(&serde_json::json!({ "hex": hex }), true);
    }
    print_line(&hex)
}

/// All of `file` (`-`: standard input), unless it is too large.
fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let name =
        if file == Path::new("-") { "standard input".into() } else { file.to_string_lossy() };
    let source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).with_context(|| format!("{name}")).map_err(Failure::Input)?)
    };
    let mut bytes = Vec::new();
    source
        .take(MAX_INPUT_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{name}"))
        .map_err(Failure::Input)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        let limit = MAX_INPUT_BYTES >> 20;
        return Err(Failure::Input(anyhow!("{name}: more than the limit of {limit} MiB")));
    }
    Ok(bytes)
}

fn print_json(value: &impl Serialize, one_line: bool) -> Result<(), Failure> {
    let text =
        if one_line { serde_json::to_string(value) } else { serde_json::to_string_pretty(value) };
    print_line(&text.map_err(Failure::work)?)
}

fn print_line(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}").context("standard output").map_err(Failure::Work)
}
