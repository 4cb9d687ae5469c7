//! How the node's thread tells waiting threads of the engine that something has changed.
//!
//! A lock of its own, so that who wakes up does not stand in the way of who works on the core; and no
//! system call where nobody waits, which is so in an engine that asks once a step.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct News {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often there was news.
    count: u64,
    /// Threads that wait and have not been woken.
    waiting: usize,
}

impl News {
    /// Something has changed: to be called after the change, so that whoever reads the count, looks,
    /// and waits for more cannot miss it.
    pub(crate) fn tell(&self) {
        let mut state = self.state();
        state.count += 1;
        let somebody_waits = std::mem::take(&mut state.waiting) > 0;
        drop(state);
        if somebody_waits {
            self.changed.notify_all();
        }
    }

    /// How often there was news.
    pub(crate) fn count(&self) -> u64 {
        self.state().count
    }

    /// Waits until there is more news than `seen`, at most for `limit`.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) {
        let nothing_new = |state: &mut State| {
            let nothing = state.count == seen;
            state.waiting += usize::from(nothing);
            nothing
        };
        drop(self.changed.wait_timeout_while(self.state(), limit, nothing_new));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn news_before_the_wait_is_not_slept_through() {
        let news = News::default();
        let seen = news.count();
        news.tell();
        news.wait(seen, LONG);
        assert_eq!(news.count(), seen + 1);
    }

    #[test]
    fn all_who_wait_are_woken_by_one_word_and_again_by_the_next() {
        let news = News::default();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for seen in 0..2 {
                        news.wait(seen, LONG);
                    }
                });
            }
            for _ in 0..2 {
                while news.state().waiting < 3 {
                    thread::yield_now();
                }
                news.tell();
            }
        });
        assert_eq!(news.count(), 2);
    }

    #[test]
    fn nobody_is_woken_who_does_not_wait() {
        let news = News::default();
        news.wait(0, Duration::from_millis(1));
        news.tell();
        news.tell();
        assert_eq!((news.count(), news.state().waiting), (2, 0));
    }
}
