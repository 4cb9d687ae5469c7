//! What Chiasm has to say, in a queue until Python asks for it.
//!
//! It must never call Python: lines come from threads that do not have the GIL, and from under locks. It
//! must never grow past its bounds, however long nobody asks.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Lines that wait.
const MAX_LINES: usize = 1024;

/// Longest line in bytes; the rest is cut off.
const MAX_LINE_BYTES: usize = 4096;

/// Level as Python's `logging` has it, target, message.
pub(crate) type Line = (u8, String, String);

#[derive(Debug)]
struct Queue {
    lines: VecDeque<Line>,
    dropped: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { lines: VecDeque::new(), dropped: 0 });

/// Collects from here on what is logged in this process, from INFO up.
pub(crate) fn collect() {
    let subscriber = tracing_subscriber::registry().with(Collector);
    // An error: somebody in this process has said before where lines go, and it stays so.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// What has been logged since the last call.
pub(crate) fn drain() -> Vec<Line> {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lines: Vec<Line> = std::mem::take(&mut queue.lines).into();
    let dropped = std::mem::take(&mut queue.dropped);
    drop(queue);
    if dropped > 0 {
        let text = format!("{dropped} more lines were dropped: nobody had asked for them in time");
        lines.push((of_python(Level::WARN), "chiasm".into(), text));
    }
    lines
}

fn of_python(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct Collector;

impl<S: Subscriber> Layer<S> for Collector {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let line = (of_python(*metadata.level()), metadata.target().to_owned(), text.whole());
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.lines.len() < MAX_LINES {
            queue.lines.push_back(line);
        } else {
            queue.dropped += 1;
        }
    }
}

/// `message key=value key=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    /// One line of printable ASCII: there are names in it that clients chose.
    fn whole(mut self) -> String {
        self.message.push_str(&self.fields);
        let mut line = String::new();
        for char in self.message.chars() {
            if line.len() >= MAX_LINE_BYTES {
                line.push_str("...");
                break;
            }
            match char {
                ' '..='~' => line.push(char),
                _ => line.extend(char.escape_default()),
            }
        }
        line
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Plain, as in the line that `chiasm` writes.
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
