//! The steps of a simulated process around its region: looking for what is dead, joining or making it,
//! and taking back what was done.
//!
//! It must never decide by itself whether a region lives: [`chiasm_core::reclaim`] does.

use chiasm_core::plane::Plane;
use chiasm_core::reclaim::{Join, Life, Look, Reclaim, Removal, Seen};

use crate::host::{Pid, sockets_of};
use crate::process::{At, BUSY_ATTEMPTS, HELPERS, Kind, Process};
use crate::violation::Step;
use crate::world::World;

impl World {
    /// One step.
    pub(crate) fn step_of(&mut self, pid: Pid, process: &mut Process) -> Step {
        process.at = match process.at.clone() {
            at @ (At::Up | At::Over) => at,
            At::Listing => {
                let host = self.hosts.entry(process.host).or_default();
                let left = host.sweep_begins(pid);
                At::Sweeping { left, reclaim: Reclaim::new() }
            }
            at @ (At::Sweeping { .. } | At::Joining(_) | At::Clearing(_) | At::Leaving(_)) => {
                self.look_around(pid, process, at)?
            }
            At::Waiting => At::Clearing(Reclaim::new()),
            at @ (At::Unbinding(_) | At::Undrafting | At::Unnaming | At::Closing) => {
                self.take_back(pid, process, &at)?
            }
            at => self.make_region(pid, process, &at)?,
        };
        Ok(())
    }

    /// Steps that ask what there is.
    fn look_around(&mut self, pid: Pid, process: &mut Process, at: At) -> Step<At> {
        Ok(match at {
            At::Sweeping { mut left, mut reclaim } => {
                let Some(name) = left.last().cloned() else {
                    self.hosts.entry(process.host).or_default().sweep_ends(pid)?;
                    let over = process.kind == Kind::Tidier;
                    return Ok(if over { At::Over } else { At::Joining(Join::new()) });
                };
                let seen = self.see(pid, process, &name, reclaim.look())?;
                if let Some(removal) = reclaim.saw(seen) {
                    self.let_go_of_look(pid, process);
                    self.count_removal("sweep", removal);
                    left.pop();
                    reclaim = Reclaim::new();
                }
                At::Sweeping { left, reclaim }
            }
            At::Joining(mut join) => {
                let name = process.name.clone();
                let seen = self.see(pid, process, &name, join.look())?;
                match join.saw(seen) {
                    None => At::Joining(join),
                    Some(Life::Live) => {
                        let host = self.hosts.entry(process.host).or_default();
                        host.check_joined(pid, &name, process.opened)?;
                        self.tally.count("region joined");
                        process.file = process.opened.take();
                        At::Claiming
                    }
                    Some(Life::Dead | Life::Absent | Life::Foreign) => {
                        self.let_go_of_look(pid, process);
                        process.busy = BUSY_ATTEMPTS;
                        At::Clearing(Reclaim::new())
                    }
                }
            }
            At::Clearing(mut reclaim) => {
                let name = process.name.clone();
                let seen = self.see(pid, process, &name, reclaim.look())?;
                let removal = reclaim.saw(seen);
                if let Some(removal) = removal {
                    self.let_go_of_look(pid, process);
                    self.count_removal("clear", removal);
                }
                match removal {
                    None => At::Clearing(reclaim),
                    Some(Removal::Absent | Removal::Removed) if process.file.is_some() => {
                        At::Linking
                    }
                    Some(Removal::Absent | Removal::Removed) => At::Drafting,
                    Some(Removal::Busy) if process.busy > 0 => {
                        process.busy -= 1;
                        At::Waiting
                    }
                    // Somebody else was faster.
                    Some(_) => self.join_again(pid, process)?,
                }
            }
            At::Leaving(mut reclaim) => {
                let name = process.name.clone();
                let seen = self.see(pid, process, &name, reclaim.look())?;
                match reclaim.saw(seen) {
                    None => At::Leaving(reclaim),
                    Some(removal) => {
                        self.let_go_of_look(pid, process);
                        self.count_removal("last out", removal);
                        At::Over
                    }
                }
            }
            other => other,
        })
    }

    /// Steps that make something.
    fn make_region(&mut self, pid: Pid, process: &mut Process, at: &At) -> Step<At> {
        let has_helpers = self.setup.planes.contains(Plane::Nixl);
        // File systems differ in whether a file can be without a name.
        let nameless = process.host.is_multiple_of(2);
        let host = self.hosts.entry(process.host).or_default();
        Ok(match at.clone() {
            At::Drafting => {
                let inode = host.make(pid);
                process.file = Some(inode);
                if nameless {
                    At::Reserving
                } else {
                    // It has a name before it has a lock.
                    host.close(inode, pid);
                    let draft = format!(".chiasm-draft-{pid}-{inode}");
                    host.link_draft(&draft, inode)?;
                    process.draft = Some(draft);
                    At::LockingDraft
                }
            }
            At::LockingDraft => {
                let (Some(inode), Some(draft)) = (process.file, process.draft.clone()) else {
                    return Ok(At::Drafting);
                };
                host.disturbed(inode, pid);
                if host.lock_shared(inode, pid) && host.names.get(&draft) == Some(&inode) {
                    At::Reserving
                } else {
                    // Found without a lock, it looked dead and goes or is gone. Who is removing it may
                    // be killed before it is done.
                    self.tally.count("draft taken for dead");
                    host.unlink(&draft, pid)?;
                    host.close(inode, pid);
                    (process.draft, process.file) = (None, None);
                    At::Drafting
                }
            }
            At::Reserving => At::Writing,
            At::Writing => {
                process.file.inspect(|inode| host.write_header(*inode));
                At::Linking
            }
            At::Linking => {
                let linked = process.file.is_some_and(|inode| host.link(&process.name, inode));
                if linked {
                    self.tally.count("region made");
                    if let Some(draft) = process.draft.take() {
                        host.unlink(&draft, pid)?;
                    }
                    At::Claiming
                } else {
                    self.tally.count("region's name taken meanwhile");
                    process.busy = BUSY_ATTEMPTS;
                    At::Clearing(Reclaim::new())
                }
            }
            At::Claiming => match (process.kind, process.file) {
                (Kind::Worker(_), _) => At::Up,
                (_, Some(inode)) if host.claim(inode, pid) => {
                    process.claimed = true;
                    At::Binding(0)
                }
                _ => {
                    self.tally.count("start refused: another node has the region");
                    process.failed = true;
                    At::Unbinding(0)
                }
            },
            At::Binding(which) => match sockets_of(&process.name).get(which) {
                Some(socket) => {
                    host.bind(socket, pid)?;
                    At::Binding(which + 1)
                }
                None => At::Helping(0),
            },
            At::Helping(which) if which < HELPERS => {
                if has_helpers {
                    host.start_helper(pid);
                }
                At::Helping(which + 1)
            }
            At::Helping(_) => At::Up,
            other => other,
        })
    }

    /// Steps that undo what was made, in their order.
    fn take_back(&mut self, pid: Pid, process: &mut Process, at: &At) -> Step<At> {
        let host = self.hosts.entry(process.host).or_default();
        Ok(match at.clone() {
            At::Unbinding(which) => match sockets_of(&process.name).get(which) {
                Some(socket) => {
                    if host.sockets.get(socket).copied().flatten() == Some(pid) {
                        host.unlink_socket(socket, pid)?;
                    }
                    At::Unbinding(which + 1)
                }
                None => At::Undrafting,
            },
            At::Undrafting => {
                if let Some(draft) = process.draft.take() {
                    host.unlink(&draft, pid)?;
                }
                At::Unnaming
            }
            At::Unnaming => {
                let named = host.names.get(&process.name).copied();
                if process.claimed && named.is_some() && named == process.file {
                    host.unlink(&process.name, pid)?;
                }
                At::Closing
            }
            At::Closing => {
                let held = process.file.take();
                held.inspect(|inode| host.close(*inode, pid));
                let shared = held.is_some() && !process.claimed;
                if shared { At::Leaving(Reclaim::by_the_last()) } else { At::Over }
            }
            other => other,
        })
    }

    /// The name is somebody else's: what was made goes, and that one is joined.
    fn join_again(&mut self, pid: Pid, process: &mut Process) -> Step<At> {
        let host = self.hosts.entry(process.host).or_default();
        if let Some(draft) = process.draft.take() {
            host.unlink(&draft, pid)?;
        }
        if let Some(inode) = process.file.take() {
            host.close(inode, pid);
        }
        if process.rounds == 0 {
            process.failed = true;
            return Ok(At::Unbinding(0));
        }
        process.rounds -= 1;
        Ok(At::Joining(Join::new()))
    }

    /// Does what the decision asks for.
    fn see(&mut self, pid: Pid, process: &mut Process, name: &str, look: Look) -> Step<Seen> {
        let host = self.hosts.entry(process.host).or_default();
        let yes = |is_so| if is_so { Seen::Yes } else { Seen::No };
        if look == Look::Open {
            process.opened = host.names.get(name).copied();
            return Ok(if process.opened.is_some() { Seen::Yes } else { Seen::Absent });
        }
        let Some(inode) = process.opened else { return Ok(Seen::No) };
        Ok(match look {
            Look::Open => Seen::No,
            Look::LockExclusive => {
                let had = host.lock_exclusive(inode, pid);
                if had {
                    host.disturbed(inode, pid);
                }
                yes(had)
            }
            Look::LockShared => {
                host.disturbed(inode, pid);
                yes(host.lock_shared(inode, pid))
            }
            Look::IsItsName => yes(host.names.get(name) == Some(&inode)),
            Look::RemoveSockets => {
                for socket in sockets_of(name) {
                    host.unlink_socket(&socket, pid)?;
                }
                Seen::Yes
            }
            Look::Unlink => {
                if host.unlink(name, pid)? {
                    Seen::Yes
                } else {
                    Seen::Absent
                }
            }
        })
    }

    /// The descriptor of a look is closed. It is another one than the region's own.
    pub(crate) fn let_go_of_look(&mut self, pid: Pid, process: &mut Process) {
        if let Some(inode) = process.opened.take()
            && process.file != Some(inode)
        {
            self.hosts.entry(process.host).or_default().close(inode, pid);
        }
    }

    fn count_removal(&mut self, who: &str, removal: Removal) {
        self.tally.count(&format!("{who}: {removal:?}"));
    }
}
