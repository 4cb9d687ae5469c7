//! The peers that a reading helper knows: the last checks before NIXL sees what they sent.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use crate::capi::Agent;
use crate::command::PeerId;
use crate::event::FailureKind;
use crate::limits::{MAX_AGENT_NAME_BYTES, MAX_PEERS, MAX_PIECES};
use crate::metadata::AgentMetadata;
use crate::piece::{self, Piece, Span};

/// Whose fault, and why.
pub(super) type Failure = (FailureKind, String);

/// One peer.
struct Peer {
    name: CString,
    span: Span,
    /// Reads in flight.
    reads: usize,
    /// To be forgotten when there are none.
    leaves: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Peers(BTreeMap<PeerId, Peer>);

impl Peers {
    /// Get to know one.
    pub(super) fn load(
        &mut self,
        agent: &Agent,
        backend: &str,
        id: PeerId,
        name: &str,
        blob: &[u8],
        span: Span,
    ) -> Result<(), Failure> {
        let invalid = |reason: String| (FailureKind::Invalid, reason);
        let local = |reason: &str| (FailureKind::Local, reason.to_owned());
        if self.0.contains_key(&id) {
            return Err(local("this number is another peer's"));
        }
        if self.0.len() >= MAX_PEERS {
            return Err(local("this helper process knows as many peers as it may"));
        }
        check_metadata(backend, name, blob, span).map_err(invalid)?;
        let c_name = CString::new(name).map_err(|_| invalid("a NUL in its name".into()))?;
        if self.0.values().any(|peer| peer.name == c_name) {
            return Err(local(
                "this agent name is another peer's: it needs a helper process of its own",
            ));
        }
        match agent.load(blob) {
            Ok(loaded) if loaded == name => {}
            Ok(_) => {
                let _ = agent.forget(&c_name);
                return Err(invalid("NIXL found another agent name in its metadata".into()));
            }
            Err(error) => {
                // What was loaded before it failed would keep the name taken for good.
                let _ = agent.forget(&c_name);
                return Err((FailureKind::Peer, error.to_string()));
            }
        }
        self.0.insert(id, Peer { name: c_name, span, reads: 0, leaves: false });
        Ok(())
    }

    /// The agent name of a peer that these pieces may be read from; the read counts from here on.
    pub(super) fn begin(
        &mut self,
        id: PeerId,
        pieces: &[Piece],
        region_bytes: u64,
    ) -> Result<&CStr, Failure> {
        let unknown = || (FailureKind::Local, "no such peer".to_owned());
        let peer = self.0.get_mut(&id).filter(|peer| !peer.leaves).ok_or_else(unknown)?;
        check_pieces(pieces, peer.span, region_bytes)?;
        peer.reads += 1;
        Ok(&peer.name)
    }

    /// A read from this peer has ended.
    pub(super) fn end(&mut self, agent: &Agent, id: PeerId) {
        if let Some(peer) = self.0.get_mut(&id) {
            peer.reads = peer.reads.saturating_sub(1);
            if peer.leaves && peer.reads == 0 {
                self.forget(agent, id);
            }
        }
    }

    /// Forget one, now or when its last read has ended.
    pub(super) fn forget(&mut self, agent: &Agent, id: PeerId) {
        let Some(peer) = self.0.get_mut(&id) else { return };
        peer.leaves = true;
        if peer.reads == 0 {
            // A peer that is gone may be forgotten already.
            let _ = agent.forget(&peer.name);
            self.0.remove(&id);
        }
    }
}

fn check_metadata(backend: &str, name: &str, blob: &[u8], span: Span) -> Result<(), String> {
    let metadata = AgentMetadata::parse(blob).map_err(|error| format!("its metadata: {error}"))?;
    if metadata.agent_name() != name || name.len() > MAX_AGENT_NAME_BYTES {
        return Err(format!("its metadata is agent {:?}'s", metadata.agent_name()));
    }
    if !metadata.backends().iter().any(|it| it == backend) {
        let has = metadata.backends().join(", ");
        return Err(format!("it cannot be reached by {backend}, it has {has}"));
    }
    if !metadata.holds(span) {
        return Err("its blocks are not inside a range of its metadata".into());
    }
    Ok(())
}

fn check_pieces(pieces: &[Piece], span: Span, region_bytes: u64) -> Result<(), Failure> {
    if pieces.is_empty() || pieces.len() > MAX_PIECES {
        return Err((FailureKind::Local, format!("{} pieces, 1 to {MAX_PIECES}", pieces.len())));
    }
    for &piece in pieces {
        piece::check(piece, span, region_bytes)
            .map_err(|error| (FailureKind::Invalid, error.to_string()))?;
    }
    Ok(())
}
