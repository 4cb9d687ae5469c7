//! Simulated hosts: the directory of regions of each, with names, files, locks, sockets and the helper
//! processes that nodes have started. It keeps what a kernel keeps and judges what is done to it (S9).
//!
//! It must never decide who may do what: that is the product's, and what is held against this.

use std::collections::{BTreeMap, BTreeSet};

use crate::violation::{Promise, Step, ensure};

/// One process of one host; never used again.
pub(crate) type Pid = u64;

/// A file, by number.
pub(crate) type Inode = usize;

/// A region's file, or a draft of one.
#[derive(Clone, Debug, Default)]
struct File {
    maker: Pid,
    /// The name that it had before it was a region.
    draft: Option<String>,
    exclusive: Option<Pid>,
    shared: BTreeSet<Pid>,
    /// Who has the node's byte, and whether anybody ever had.
    node: Option<Pid>,
    had_node: bool,
    header: bool,
}

/// A helper process. It maps the region and has no lock on it.
#[derive(Clone, Copy, Debug)]
struct Helper {
    of: Pid,
}

/// What one machine has.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) names: BTreeMap<String, Inode>,
    files: Vec<File>,
    /// Names of sockets, and who listens; nobody does if that process is dead.
    pub(crate) sockets: BTreeMap<String, Option<Pid>>,
    helpers: Vec<Helper>,
    /// All names that drafts have ever had.
    drafts: BTreeSet<String>,
    /// Files that have not been dead all the time since a process began to tidy up, by process.
    swept: BTreeMap<Pid, Vec<(String, Inode)>>,
}

/// What a process does to the files of its host.
impl Host {
    /// A new file, with no name yet, whose maker has the shared lock.
    pub(crate) fn make(&mut self, maker: Pid) -> Inode {
        self.files.push(File { maker, shared: BTreeSet::from([maker]), ..File::default() });
        self.files.len() - 1
    }

    pub(crate) fn write_header(&mut self, inode: Inode) {
        self.files[inode].header = true;
    }

    /// Gives a file a name that is free. False if it is not.
    pub(crate) fn link(&mut self, name: &str, inode: Inode) -> bool {
        if self.names.contains_key(name) {
            return false;
        }
        self.names.insert(name.to_owned(), inode);
        true
    }

    /// Gives a draft its name. S9: no file has it twice, so whoever removes it late removes nothing else.
    pub(crate) fn link_draft(&mut self, name: &str, inode: Inode) -> Step {
        let is_new = self.drafts.insert(name.to_owned()) && self.link(name, inode);
        ensure(is_new, Promise::S9, || format!("another draft has had the name {name}"))?;
        self.files[inode].draft = Some(name.to_owned());
        Ok(())
    }

    /// As `flock`: a lock that this process has turns into the other kind.
    pub(crate) fn lock_exclusive(&mut self, inode: Inode, pid: Pid) -> bool {
        let file = &mut self.files[inode];
        let others = file.shared.iter().any(|other| *other != pid);
        let free = !others && file.exclusive.is_none_or(|other| other == pid);
        if free {
            file.shared.remove(&pid);
            file.exclusive = Some(pid);
        }
        free
    }

    pub(crate) fn lock_shared(&mut self, inode: Inode, pid: Pid) -> bool {
        let file = &mut self.files[inode];
        let free = file.exclusive.is_none_or(|other| other == pid);
        if free {
            file.exclusive = None;
            file.shared.insert(pid);
        }
        free
    }

    /// The descriptor is closed.
    pub(crate) fn close(&mut self, inode: Inode, pid: Pid) {
        let file = &mut self.files[inode];
        file.shared.remove(&pid);
        file.exclusive.take_if(|other| *other == pid);
        file.node.take_if(|other| *other == pid);
    }

    /// Becomes the node of a region, if it never had one.
    pub(crate) fn claim(&mut self, inode: Inode, pid: Pid) -> bool {
        let file = &mut self.files[inode];
        let free = file.node.is_none() && !file.had_node;
        if free {
            (file.node, file.had_node) = (Some(pid), true);
        }
        free
    }

    /// A name goes. S9: a live region's only by its own node's hand, under its lock; a draft's also by its
    /// maker's, whoever is at it; any other only by who has locked others out.
    pub(crate) fn unlink(&mut self, name: &str, by: Pid) -> Step<bool> {
        let Some(inode) = self.names.get(name).copied() else { return Ok(false) };
        let file = &self.files[inode];
        let of_node = file.node == Some(by) && file.shared.contains(&by);
        let of_maker = file.maker == by && file.draft.as_deref() == Some(name);
        let locked = file.exclusive == Some(by);
        ensure(of_node || of_maker || locked, Promise::S9, || {
            format!("process {by} removes {name}, which is not its own and not locked: {file:?}")
        })?;
        self.names.remove(name);
        Ok(true)
    }

    /// A socket's name goes. S9: not while somebody else listens.
    pub(crate) fn unlink_socket(&mut self, name: &str, by: Pid) -> Step {
        let listens = self.sockets.get(name).copied().flatten();
        ensure(listens.is_none_or(|other| other == by), Promise::S9, || {
            format!("process {by} removes {name}, on which process {listens:?} listens")
        })?;
        self.sockets.remove(name);
        Ok(())
    }

    /// Listens beside a region of its own. What is left of an earlier life is taken away.
    pub(crate) fn bind(&mut self, name: &str, by: Pid) -> Step {
        if self.sockets.contains_key(name) {
            self.unlink_socket(name, by)?;
        }
        self.sockets.insert(name.to_owned(), Some(by));
        Ok(())
    }

    pub(crate) fn start_helper(&mut self, of: Pid) {
        self.helpers.push(Helper { of });
    }

    /// A process's helpers have seen their socket close, and are gone.
    pub(crate) fn end_helpers(&mut self, of: Pid) {
        self.helpers.retain(|helper| helper.of != of);
    }

    pub(crate) fn helpers(&self) -> usize {
        self.helpers.len()
    }

    /// A process is gone, with its descriptors. What it has named stays.
    pub(crate) fn reap(&mut self, pid: Pid) {
        for inode in 0..self.files.len() {
            self.close(inode, pid);
        }
        for listens in self.sockets.values_mut() {
            listens.take_if(|other| *other == pid);
        }
        self.swept.remove(&pid);
    }
}

/// What is promised of them.
impl Host {
    fn is_dead(&self, inode: Inode) -> bool {
        let file = &self.files[inode];
        file.shared.is_empty() && file.exclusive.is_none()
    }

    /// A process begins to look for what dead ones have left: the names that there are.
    pub(crate) fn sweep_begins(&mut self, pid: Pid) -> Vec<String> {
        let dead = self.names.iter().filter(|(_, inode)| self.is_dead(**inode));
        let dead = dead.map(|(name, inode)| (name.clone(), *inode)).collect();
        self.swept.insert(pid, dead);
        self.names.keys().cloned().collect()
    }

    /// It has looked: what was dead all the while is gone, unless somebody is at it just now.
    pub(crate) fn sweep_ends(&mut self, pid: Pid) -> Step {
        let dead = self.swept.remove(&pid).unwrap_or_default();
        for (name, inode) in dead {
            let left = self.names.get(&name) == Some(&inode) && self.is_dead(inode);
            ensure(!left, Promise::S9, || {
                format!("process {pid} has tidied up, and {name} of a dead process is still there")
            })?;
        }
        Ok(())
    }

    /// Somebody uses the file at a name, or has begun to remove it: what was dead may be alive for who
    /// looks.
    pub(crate) fn disturbed(&mut self, inode: Inode, by: Pid) {
        for (pid, dead) in &mut self.swept {
            if *pid != by {
                dead.retain(|(_, other)| *other != inode);
            }
        }
    }

    /// A process has joined a region: it has its name, is whole, and is kept alive by this one too.
    pub(crate) fn check_joined(&self, pid: Pid, name: &str, inode: Option<Inode>) -> Step {
        let named = inode.is_some() && self.names.get(name).copied() == inode;
        let file = inode.and_then(|inode| self.files.get(inode));
        let lives = file.is_some_and(|it| it.header && it.shared.contains(&pid));
        ensure(named && lives, Promise::S9, || {
            format!("process {pid} has joined {name} as a live region: {named} {file:?}")
        })
    }

    /// A start has failed: nothing of it is left.
    pub(crate) fn check_failed(&self, pid: Pid) -> Step {
        let left = self
            .names
            .iter()
            .find(|(_, inode)| self.files[**inode].maker == pid && self.is_dead(**inode));
        ensure(left.is_none(), Promise::S9, || {
            format!("the start of process {pid} has failed, and {left:?} is left")
        })
    }

    /// A process is about to end by itself: it has taken its sockets' names away.
    pub(crate) fn check_ended(&self, pid: Pid) -> Step {
        let socket = self.sockets.iter().find(|(_, listens)| **listens == Some(pid));
        ensure(socket.is_none(), Promise::S9, || {
            format!("process {pid} has ended, and {socket:?} is left")
        })
    }

    /// A running node has its region, under its name, whole, and for itself; and its sockets.
    pub(crate) fn check_node(&self, pid: Pid, name: &str, inode: Inode) -> Step {
        let file = &self.files[inode];
        let named = self.names.get(name) == Some(&inode);
        let whole = file.header && file.node == Some(pid) && file.shared.contains(&pid);
        ensure(named && whole, Promise::S9, || {
            format!("the region {name} of process {pid} is not what it was: {named} {file:?}")
        })?;
        for socket in sockets_of(name) {
            let listens = self.sockets.get(&socket).copied().flatten();
            ensure(listens == Some(pid), Promise::S9, || {
                format!("process {pid} does not listen at {socket} any more: {listens:?}")
            })?;
        }
        Ok(())
    }

    /// All is over: what has a name belongs to a live process.
    pub(crate) fn check_rest(&self) -> Step {
        let left = self.names.iter().find(|(_, inode)| self.is_dead(**inode));
        let socket = self.sockets.iter().find(|(_, listens)| listens.is_none());
        ensure(left.is_none() && socket.is_none(), Promise::S9, || {
            format!("when all is over, {left:?} and {socket:?} are left of dead processes")
        })
    }
}

/// The names of the sockets beside a region.
pub(crate) fn sockets_of(name: &str) -> [String; 2] {
    [format!("{name}.wake"), format!("{name}.status")]
}
