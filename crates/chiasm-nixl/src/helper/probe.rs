//! *probe*: whether NIXL works here.

use super::link::Link;
use super::{Stop, fresh_name, start};
use crate::capi::Functions;
use crate::event::{Event, Ready};
use crate::settings::Settings;

pub(super) fn run(
    link: &mut Link,
    functions: Functions,
    settings: &Settings,
    library: String,
) -> Result<(), Stop> {
    let agent_name = fresh_name();
    let agent = start(functions, &library, &agent_name, settings)?;
    let text = format!("it has the backends {}", agent.available_backends().join(", "));
    link.send_all(&Event::Warning { text })?;
    link.send_all(&Event::Ready(Ready {
        agent_name,
        agent_metadata: Vec::new(),
        base_address: 0,
        blocks_bytes: 0,
        read_only: true,
        backend: settings.backend.name().into(),
        library,
    }))?;
    Ok(())
}
