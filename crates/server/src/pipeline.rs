//! The commands of one read from a socket, and their replies.

use std::sync::Arc;

use kv::{Answer, Args, Claims, Command, Spec, Txn, Work};
use tokio::sync::oneshot;

use crate::local::{self, LOCALS, Local, LocalCall};
use crate::resp::{Encoder, Requests};
use crate::session::{Ending, Session};
use crate::shared::Shared;

/// What the name of a command stands for.
#[derive(Clone, Copy)]
enum Resolved {
    Key(&'static Command),
    Local(&'static Local),
    Unknown,
}

/// What a pipeline as a whole needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Needs {
    /// Nothing but this thread.
    Nothing,
    /// Reads of the drive.
    Reads,
    /// Walks over the whole database.
    Walks,
    /// A writer.
    Writes,
}

/// One connection's pipeline. The same one serves a connection to its end, so that its buffers stay.
pub(crate) struct Pipeline {
    shared: Arc<Shared>,
    requests: Requests,
    resolved: Vec<Resolved>,
    before: Session,
    pub session: Session,
    pub out: Encoder,
    back: Option<oneshot::Sender<Box<Pipeline>>>,
}

impl Pipeline {
    pub fn new(shared: Arc<Shared>, session: Session) -> Box<Pipeline> {
        let limit = usize::try_from(shared.options.max_output).unwrap_or(usize::MAX);
        Box::new(Pipeline {
            shared,
            requests: Requests::default(),
            resolved: Vec::new(),
            before: session.clone(),
            session,
            out: Encoder::new(limit),
            back: None,
        })
    }

    /// The last requests, whose memory can be used again.
    pub fn used(&mut self) -> Requests {
        std::mem::take(&mut self.requests)
    }

    /// Takes the next requests in; what they need, and the name of the last command.
    pub fn load(&mut self, requests: Requests) -> (Needs, &'static str) {
        let mut needs = Needs::Nothing;
        let mut last = "NULL";
        self.resolved.clear();
        for args in requests.iter() {
            let name = args.get(0);
            let resolved = match kv::find(name) {
                Some(command) => {
                    needs = needs.max(if command.spec.has(Spec::WRITE) {
                        Needs::Writes
                    } else if command.spec.has(Spec::WALKS) {
                        Needs::Walks
                    } else {
                        Needs::Reads
                    });
                    last = command.spec.name;
                    self.shared.metrics.count(command.spec.name);
                    Resolved::Key(command)
                }
                None => match local::find(name) {
                    Some(local) => {
                        last = local.spec.name;
                        self.shared.metrics.count(local.spec.name);
                        Resolved::Local(local)
                    }
                    None => Resolved::Unknown,
                },
            };
            self.resolved.push(resolved);
        }
        self.requests = requests;
        self.before = self.session.clone();
        (needs, last)
    }

    /// Where [`Work::done`] sends the pipeline back to.
    pub fn send_back(&mut self, to: oneshot::Sender<Box<Pipeline>>) {
        self.back = Some(to);
    }

    fn run_one(&mut self, index: usize, args: Args<'_>, txn: &mut Txn<'_>) {
        let resolved = self.resolved.get(index).copied().unwrap_or(Resolved::Unknown);
        let spec = match resolved {
            Resolved::Key(command) => Some(&command.spec),
            Resolved::Local(local) => Some(&local.spec),
            Resolved::Unknown => None,
        };
        if !self.session.trusted && !spec.is_some_and(|s| s.has(Spec::NO_AUTH)) {
            return self.out.error("NOAUTH Authentication required.");
        }
        match resolved {
            Resolved::Key(command) => kv::execute(command, args, txn, &mut self.out),
            Resolved::Local(local) if !local.spec.takes(args.len()) => {
                self.out.error(&local.spec.arity_error());
            }
            Resolved::Local(local) => {
                let mark = self.out.mark();
                let (session, shared, out) = (&mut self.session, &*self.shared, &mut self.out);
                if let Err(text) = (local.run)(&mut LocalCall { args, session, shared, out }) {
                    self.out.rollback(mark);
                    self.out.error(&text);
                }
            }
            Resolved::Unknown => self.out.error(&unknown(args)),
        }
    }
}

/// The error for an unknown command shows the beginning of what was sent.
fn unknown(args: Args<'_>) -> String {
    const SHOWN: usize = 128;
    let cut = |word: &[u8], len: usize| -> String {
        String::from_utf8_lossy(word.get(..len).unwrap_or(word)).into_owned()
    };
    let mut shown = String::new();
    for word in args.rest(1) {
        if shown.len() >= SHOWN {
            break;
        }
        shown.push_str(&format!("'{}' ", cut(word, SHOWN - shown.len())));
    }
    format!("ERR unknown command '{}', with args beginning with: {shown}", cut(args.get(0), SHOWN))
}

impl Work for Pipeline {
    fn claims(&self, claims: &mut Claims) {
        for (args, resolved) in self.requests.iter().zip(&self.resolved) {
            if let Resolved::Key(command) = resolved {
                claims.command(&command.spec, args);
            }
        }
    }

    fn run(&mut self, txn: &mut Txn<'_>) {
        self.session = self.before.clone();
        self.out.clear();
        self.out.set_resp3(self.session.resp3);
        let requests = std::mem::take(&mut self.requests);
        for (index, args) in requests.iter().enumerate() {
            self.run_one(index, args, txn);
            if self.session.ending != Ending::None || self.out.is_full() {
                break;
            }
        }
        self.requests = requests;
    }

    fn done(mut self: Box<Self>) {
        if let Some(back) = self.back.take() {
            // A connection that is gone needs no replies.
            let _gone = back.send(self);
        }
    }
}

/// The names of all commands.
pub(crate) fn command_names() -> impl Iterator<Item = &'static str> {
    kv::COMMANDS.iter().map(|c| c.spec.name).chain(LOCALS.iter().map(|l| l.spec.name))
}
