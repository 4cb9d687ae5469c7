//! The orderly end of a serving node: nothing new is granted, what is granted may be read to its end.

use std::time::Duration;

use crate::clock;
use crate::node::Node;

/// How long to wait for news before asking whether to go on.
const PATIENCE: Duration = Duration::from_millis(100);

impl Node {
    /// Refuses every request of peers from here on (`NACK_INTERNAL`, "draining": final, they look
    /// elsewhere at once), and waits until no grant and no stream is live: at most for `limit`, and
    /// only as long as `go_on` says so. Then drop the node.
    ///
    /// Gives the number of grants and streams that are still live; dropping the node cuts them off.
    /// What this node reads itself goes on meanwhile; local saves and loads work as before.
    pub fn drain(&self, limit: Duration, mut go_on: impl FnMut() -> bool) -> usize {
        let end = clock::now().after(limit);
        self.shared.act(|core, _| core.drain());
        let live = self.live_grants();
        if live > 0 {
            let limit_s = limit.as_secs_f64();
            tracing::info!(
                live,
                limit_s,
                "draining: new requests are refused, live grants may finish"
            );
        }
        loop {
            let news = self.news();
            let left = self.live_grants();
            if left == 0 {
                return 0;
            }
            let rest = end.since(clock::now());
            if rest.is_zero() || !go_on() {
                tracing::warn!(left, "draining ends: live grants are cut off");
                return left;
            }
            self.wait(news, rest.min(PATIENCE));
        }
    }
}
