//! The flags by which a command says what it is to its peers.

use anyhow::{Context as _, ensure};
use chiasm_core::dtype::Dtype;
use chiasm_core::identity::{DEFAULT_BLOCK_SIZE_BYTES, Identity};
use clap::Args;

use super::number::whole;

/// What peers must agree on. Without any of these flags `chiasm produce` and `chiasm fetch` meet each
/// other; with them they meet a vLLM of the same version, model, dtype and row size.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Identity (both sides must agree)")]
pub(crate) struct IdentityArguments {
    /// Model as the engine was given it (a name or a path: the text is compared). To meet a vLLM give
    /// version and dtype too: what is left out keeps this command's own default, which no engine has.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Version of vLLM, for example 0.33.0.
    #[arg(long, value_name = "VERSION")]
    engine_version: Option<String>,

    /// Element type of the model, for example bfloat16. Without model and version it is no part of the
    /// identity, but fetch still holds every encoding against it.
    #[arg(long, value_name = "DTYPE")]
    dtype: Option<String>,

    /// Bytes of one block. In a vLLM one row of the model's embeddings: width x element size. Default:
    /// 4096.
    #[arg(long, value_name = "BYTES", value_parser = whole(1..=u64::MAX))]
    block: Option<u64>,

    /// The compatibility hash itself, 64 hexadecimal digits, instead of model, version and dtype.
    #[arg(long, value_name = "HEX", conflicts_with_all = ["model", "engine_version"])]
    compat_hash: Option<String>,
}

impl IdentityArguments {
    /// The element type that was named, if any.
    pub(crate) fn dtype(&self) -> anyhow::Result<Option<Dtype>> {
        let Some(name) = &self.dtype else { return Ok(None) };
        let dtype = Dtype::from_name(name).with_context(|| {
            let names: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
            format!("--dtype {name:?} is none of {}", names.join(", "))
        })?;
        Ok(Some(dtype))
    }

    /// The identity that the flags describe, or what is wrong with them.
    pub(crate) fn identity(&self) -> anyhow::Result<Identity> {
        let block = self.block.unwrap_or(DEFAULT_BLOCK_SIZE_BYTES);
        let default = Identity::default();
        let engine = self.model.is_some() || self.engine_version.is_some();
        let dtype = match (self.dtype()?, engine) {
            // Upstream hashes torch's name with its prefix.
            (Some(dtype), true) => format!("torch.{dtype}"),
            _ => default.dtype.clone(),
        };
        let model = self.model.as_deref().unwrap_or(&default.model);
        let version = self.engine_version.as_deref().unwrap_or(&default.engine_version);
        let mut identity = Identity::new(version, model, &dtype, block);
        if let Some(hash) = &self.compat_hash {
            let hexadecimal = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            ensure!(
                hash.len() == 64 && hexadecimal,
                "--compat-hash {hash:?} is not 64 hexadecimal digits"
            );
            identity.compat_hash = hash.to_ascii_lowercase();
        }
        Ok(identity)
    }
}
