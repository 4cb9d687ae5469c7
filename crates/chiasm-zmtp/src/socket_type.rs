//! The ZMTP socket types that can meet here, and which may talk to which.

use std::fmt;

/// The side of a connection that this crate plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The bound side, a producer.
    Router,
    /// The connecting side, a consumer.
    Dealer,
}

impl Role {
    /// The value of our own `Socket-Type` property.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Router => "ROUTER",
            Self::Dealer => "DEALER",
        }
    }

    /// Whether a peer of type `peer` may talk to this role.
    ///
    /// These are the valid combinations of ZMTP 3.1, all of which carry the envelope that we need:
    /// REQ and REP put the empty delimiter frame on the wire themselves.
    pub(crate) const fn accepts(self, peer: SocketType) -> bool {
        match self {
            Self::Router => {
                matches!(peer, SocketType::Dealer | SocketType::Req | SocketType::Router)
            }
            Self::Dealer => {
                matches!(peer, SocketType::Router | SocketType::Rep | SocketType::Dealer)
            }
        }
    }

    /// The accepted peer types, for messages.
    pub(crate) const fn accepted(self) -> &'static str {
        match self {
            Self::Router => "DEALER, REQ or ROUTER",
            Self::Dealer => "ROUTER, REP or DEALER",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The socket type that a peer declared in its READY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketType {
    /// `ROUTER`
    Router,
    /// `DEALER`
    Dealer,
    /// `REQ`
    Req,
    /// `REP`
    Rep,
}

impl SocketType {
    /// The type named by the bytes of a `Socket-Type` property; `None` for every type that can talk
    /// to neither of our roles. Values are case-sensitive, as in libzmq.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        match value {
            b"ROUTER" => Some(Self::Router),
            b"DEALER" => Some(Self::Dealer),
            b"REQ" => Some(Self::Req),
            b"REP" => Some(Self::Rep),
            _ => None,
        }
    }
}
