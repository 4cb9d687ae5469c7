//! Everything that can go wrong in a simulated fleet, by name.

macro_rules! faults {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, )*) => {
        /// One kind of trouble. Which ones happen in a run, and how often, is drawn from its seed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Fault {
            $( $(#[doc = $doc])+ $variant, )*
        }

        impl Fault {
            /// Every fault.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// Its name in tallies.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => concat!("fault ", $name), )* }
            }

            /// Its name in command lines.
            #[must_use]
            pub fn word(self) -> String {
                match self { $( Self::$variant => $name, )* }.replace(' ', "-")
            }

            /// The fault with this word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|fault| fault.word() == word)
            }
        }
    };
}

faults! {
    /// A message is lost while its connection lives.
    MessageLost = "message lost",
    /// A message arrives twice.
    MessageDuplicated = "message duplicated",
    /// A message overtakes the one before it.
    MessagesReordered = "messages reordered",
    /// A message takes up to a minute.
    MessageDelayed = "message delayed",
    /// The end of a message is missing.
    MessageTruncated = "message truncated",
    /// One byte of a message is another.
    MessageCorrupted = "message corrupted",
    /// A connection is reset.
    ConnectionReset = "connection reset",
    /// A connection carries nothing any more in one direction, and nobody is told.
    HalfOpen = "connection half open",
    /// Nobody listens at an endpoint.
    ConnectRefused = "connect refused",
    /// An endpoint answers to nothing.
    ConnectBlackHole = "connect black-holed",
    /// Two nodes cannot reach each other for a while.
    Partition = "partition",
    /// One node cannot reach another, which can reach it.
    PartitionOneWay = "one-way partition",
    /// A node stops and goes on later, as if nothing had been.
    NodePaused = "node paused",
    /// A node's process is killed; its host says so to its peers. It comes back at the same port.
    NodeKilled = "node killed",
    /// A node's host loses its power, and its peers hear nothing.
    PowerLost = "power lost",
    /// A node drains before it stops.
    NodeDrained = "node drained",
    /// A process fails in the middle of its start, and undoes what it has done.
    StartFailed = "start failed",
    /// A process is killed in the middle of its start.
    StartKilled = "start killed",
    /// Another instance is started under the name of a node's region.
    NameTaken = "name taken",
    /// A node is started with another model or other weights than the rest, and set right later.
    OtherModel = "other model",
    /// A node is started with other planes than the rest, and set right later.
    OtherPlanes = "other planes",
    /// A worker outlives its node by seconds.
    WorkerLingers = "worker lingers",
    /// A read gets stuck until it is aborted.
    ReadStuck = "read stuck",
    /// A data stream is reset.
    ReadReset = "read reset",
    /// A block of a data stream arrives as another.
    DataCorrupted = "data corrupted",
    /// A producer's region is not to be found on its host.
    RegionAway = "region away",
    /// An aborted read writes on for a while before it lets go.
    SlowAbort = "slow abort",
    /// A read over nixl hangs until nobody wants it, and lands then.
    NixlReadStuck = "nixl read stuck",
    /// A read over nixl fails, and may write on.
    NixlReadFailed = "nixl read failed",
    /// A killed read helper writes on for a while before it is reaped.
    SlowReap = "slow reap",
    /// The helper through which a node serves over nixl dies.
    ServeHelperDied = "serve helper died",
    /// A helper through which a node reads over nixl dies.
    ReadHelperDied = "read helper died",
    /// A worker stops in the middle of a copy and goes on later.
    CopyStalled = "copy stalled",
    /// A worker's report takes longer than `save_timeout_s`.
    ReportLate = "report late",
    /// A worker does not report before it is dead.
    ReportMissing = "report missing",
    /// A worker's report comes twice.
    ReportDuplicated = "report duplicated",
    /// Something that is no report of a live order stands in a ring.
    ReportForged = "report forged",
    /// A worker dies.
    WorkerDied = "worker died",
    /// An encoder's output is another than that of everybody else, for the same input.
    OtherEncoding = "other encoding",
    /// A save fails on its worker.
    SaveFailed = "save failed",
    /// A load fails on a rank.
    LoadFailed = "load failed",
    /// A request is aborted, in whatever state it is.
    RequestAborted = "request aborted",
    /// A running request is preempted, and comes back with fewer tokens computed.
    RequestPreempted = "request preempted",
    /// An engine step takes seconds.
    LongStep = "long step",
    /// The id of an ended request is used again.
    IdReused = "id reused",
    /// A live request gets further items.
    RequestExtended = "request extended",
    /// More requests than admission tracks.
    TooManyRequests = "too many requests",
    /// The allowlist is replaced while requests wait.
    AllowlistReloaded = "allowlist reloaded",
    /// A client announces another number of rows.
    WrongRows = "wrong rows announced",
    /// A client announces another width.
    WrongWidth = "wrong width announced",
    /// A client names a producer that nobody has approved.
    Unapproved = "unapproved producer announced",
    /// A client's announcement is no announcement.
    Garbage = "garbage announced",
    /// A client leaves the announcement out.
    NotAnnounced = "nothing announced",
    /// A client announces what its producer has never had, or has evicted.
    Stale = "stale announcement",
    /// A client announces an entry that is larger than the region.
    TooLarge = "too large announced",
    /// A producer grants other extents than the entry's.
    WrongExtents = "hostile wrong extents",
    /// A producer answers for another hash.
    ForeignHash = "hostile foreign hash",
    /// A producer lies about the size of an entry.
    LyingSize = "hostile lying size",
    /// A producer is never ready.
    EndlessNotReady = "hostile endless not ready",
    /// A producer refuses for good what it could serve: for its version, its model, or without a reason.
    RefusesForGood = "hostile refuses for good",
    /// A producer sends many messages that nobody asked for.
    AckFlood = "hostile ack flood",
    /// A producer does not answer.
    Silence = "hostile silence",
    /// A producer gives a digest that its bytes do not have.
    WrongDigest = "hostile wrong digest",
    /// A producer sends another number of bytes than it has granted.
    WrongLength = "hostile wrong length",
    /// A producer says that it has other weights, and grants what it was asked for.
    WrongFingerprint = "hostile wrong fingerprint",
    /// A producer answers to another session.
    WrongSession = "hostile wrong session",
    /// A producer answers with a status that nobody knows.
    UnknownStatus = "hostile unknown status",
    /// A producer chooses a plane that was not offered.
    WrongPlane = "hostile wrong plane",
    /// A producer announces a message of gigabytes.
    OversizedMessage = "hostile oversized message",
    /// A producer describes an agent that ends the helper that loads it.
    BadAgent = "hostile bad agent",
    /// A producer's life changes with every answer.
    ChangingEpoch = "hostile changing epoch",
    /// A consumer asks under invented session ids.
    InventedSessions = "hostile invented sessions",
    /// A consumer pins all that there is and reads nothing.
    PinsEverything = "hostile pins everything",
    /// A consumer asks and does not read the answers.
    NeverReads = "hostile never reads",
    /// A consumer sends again what others have sent.
    Replays = "hostile replays",
    /// A consumer chooses names that collide with others once they are joined.
    CollidingNames = "hostile colliding names",
    /// A consumer sends bytes that are no ZMTP.
    GarbageBytes = "hostile garbage bytes",
    /// A consumer's first words are ZMTP that nobody here speaks.
    WrongGreeting = "hostile wrong greeting",
    /// A consumer opens data streams with tokens that it has made up.
    InventedTokens = "hostile invented tokens",
    /// A consumer connects and says nothing.
    SilentConnect = "hostile silent connect",
    /// Something happens one nanosecond before a deadline.
    JustBefore = "one ns before a deadline",
    /// Something happens at a deadline.
    JustAt = "at a deadline",
    /// Something happens one nanosecond after a deadline.
    JustAfter = "one ns after a deadline",
}

/// How likely each fault is where it can happen, in thousandths.
#[derive(Clone, Debug)]
pub struct Rates(Vec<u32>);

impl Rates {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Self {
        Self(vec![0; Fault::ALL.len()])
    }

    /// How likely it is.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u32 {
        self.0.get(fault as usize).copied().unwrap_or(0)
    }

    /// Makes it that likely.
    pub fn set(&mut self, fault: Fault, per_mille: u32) {
        if let Some(rate) = self.0.get_mut(fault as usize) {
            *rate = per_mille;
        }
    }
}
