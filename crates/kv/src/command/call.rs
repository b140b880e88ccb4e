//! One execution of a command: its words, its transaction and its reply.

use std::borrow::Cow;

use crate::answer::Answer;
use crate::args::Args;
use crate::error::Error;
use crate::txn::Txn;

/// One execution of a command.
pub(crate) struct Call<'c, 't> {
    pub args: Args<'c>,
    pub txn: &'c mut Txn<'t>,
    pub out: &'c mut dyn Answer,
}

/// Why a command failed.
pub(crate) enum Failure {
    /// A mistake of the client, with the text of the error reply.
    Told(Cow<'static, str>),
    /// An error of the engine.
    Engine(Error),
}

pub(crate) type Outcome = std::result::Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Failure {
        Failure::Told(Cow::Borrowed(text))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Told(Cow::Owned(text))
    }
}

pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
