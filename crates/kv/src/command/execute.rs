//! The execution of a command on keys.

use super::call::{Call, Failure, Outcome};
use super::once::{key_places, once};
use super::spec::Spec;
use super::table::{Command, Run};
use crate::answer::Answer;
use crate::args::Args;
use crate::txn::Txn;

/// Runs one command and writes exactly one whole reply to `out`. A command that fails writes an error reply
/// and changes nothing.
pub fn execute(command: &Command, args: Args<'_>, txn: &mut Txn<'_>, out: &mut dyn Answer) {
    let spec = &command.spec;
    if !spec.takes_words(args.len()) {
        return out.error(&spec.arity_error());
    }
    if spec.has(Spec::WRITE) {
        // FURROW.ONCE repeats an answer without a write: it looks itself.
        if !matches!(command.run, Run::Once)
            && let Some(refusal) = txn.refusal()
            && (!refusal.growth_only || spec.has(Spec::NEEDS_ROOM))
        {
            return out.error(&refusal.text);
        }
        let limit = txn.limits().key;
        if key_places(spec, args).any(|n| args.get(n).len() > limit) {
            return out.error(&format!("ERR a key is longer than the limit of {limit} bytes"));
        }
    }
    let mark = out.mark();
    let mut call = Call { args, txn, out: &mut *out };
    let outcome: Outcome = match command.run {
        Run::Keys(run) => run(&mut call),
        Run::Once => once(&mut call),
    };
    match outcome {
        Ok(()) => {}
        Err(Failure::Told(text)) => {
            out.rollback(mark);
            out.error(&text);
        }
        Err(Failure::Engine(error)) => {
            out.rollback(mark);
            tracing::error!(command = spec.name, %error, "a command failed");
            out.error(&error.to_client());
        }
    }
}
